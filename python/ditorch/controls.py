"""Controls over the operators of the embedded device, for debugging an operator library while a program runs.

    controls.use(force_fallback="mm,.*_backward")         # from now on: these run on the CPU
    with controls.use(autocompare="native_layer_norm.*"):  # inside the block: compared with the CPU, call by call
        ...
    controls.use(dump_op_args=2)                          # print every operator, its function and its arguments

The lists are regular expressions, by commas, that match the whole name of an overload without `aten::`. The same
options can be set from the environment: DITORCH_FORCE_FALLBACK, DITORCH_AUTOCOMPARE, DITORCH_DUMP_OP_ARGS,
CUDA_LAUNCH_BLOCKING, and by DIPU's names. While all are off they cost nothing.
"""

from __future__ import annotations

from . import _C, settings

NAMES = ("force_fallback", "autocompare", "dump_op_args", "launch_blocking")


class Controls:
    """Controls that are in force from construction until the `with` block ends."""

    def __init__(self, previous: dict[str, str]) -> None:
        self._previous = previous

    def __enter__(self) -> Controls:
        return self

    def __exit__(self, *exc_info: object) -> None:
        _set(self._previous)


def _to_text(value: str | int | bool) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def _set(values: dict[str, str]) -> None:
    import torch

    for name, text in values.items():
        _C.option_set(name, text)
    torch.ops.ditorch.refresh_controls()


def use(
    *,
    force_fallback: str | None = None,
    autocompare: str | None = None,
    dump_op_args: int | None = None,
    launch_blocking: bool | None = None,
) -> Controls:
    """Set the controls that are given and leave the others; "", -1 and False turn one off. A pattern that is no
    regular expression is a ValueError, and nothing changes."""
    given = dict(zip(NAMES, (force_fallback, autocompare, dump_op_args, launch_blocking), strict=True))
    values = {name: _to_text(value) for name, value in given.items() if value is not None}
    previous = {name: _to_text(settings.get(name)) for name in values}
    try:
        _set(values)
    except Exception:
        _set(previous)
        raise
    return Controls(previous)
