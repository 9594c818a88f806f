"""Controls over the operators of the embedded device, for debugging an operator library while a program runs.

    controls.use(force_fallback="mm,.*_backward")    # from now on: these run on the CPU
    with controls.use(autocompare="softmax,mm"):     # inside the block: judged by the CPU's result, call by call
        ...
    print(controls.report())                         # what was compared, and what was wrong
    controls.use(dump_op_args=2)                     # print every operator, its function and its arguments

The lists are names or regular expressions, by commas: `softmax`, `torch.softmax`, `aten::_softmax`, `add.out`,
`.*_backward`. The same options can be set from the environment: DITORCH_FORCE_FALLBACK, DITORCH_AUTOCOMPARE,
DITORCH_DUMP_OP_ARGS, CUDA_LAUNCH_BLOCKING, and by DIPU's names. While all are off they cost nothing.
"""

from __future__ import annotations

import warnings

from . import _C, settings

NAMES = ("force_fallback", "autocompare", "dump_op_args", "launch_blocking")
COUNTS = ("compared", "wrong", "unknown", "on_cpu", "not_compared")


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
    for name, text in values.items():
        _C.option_set(name, text)
    refresh()


def refresh() -> None:
    """Read the options and DIPU's files anew. A pattern that matches no operator is told in a warning."""
    import torch

    for text in torch.ops.ditorch.refresh_controls():
        warnings.warn(text, stacklevel=2)


def use(
    *,
    force_fallback: str | None = None,
    autocompare: str | None = None,
    dump_op_args: int | None = None,
    launch_blocking: bool | None = None,
) -> Controls:
    """Set the controls that are given and leave the others; "", -1 and False turn one off. A pattern that is no
    regular expression is a ValueError, and nothing changes; one that matches no operator is a warning that names the
    nearest ones."""
    given = dict(zip(NAMES, (force_fallback, autocompare, dump_op_args, launch_blocking), strict=True))
    values = {name: _to_text(value) for name, value in given.items() if value is not None}
    previous = {name: _to_text(settings.get(name)) for name in values}
    try:
        _set(values)
    except Exception:
        _set(previous)
        raise
    return Controls(previous)


def report() -> str:
    """What autocompare found so far, as text: one line per operator. The same is printed when the process ends."""
    import torch

    return torch.ops.ditorch.compared_text()


def rows() -> list[dict[str, str | int]]:
    """The same as data: operator, calls compared, wrong, unknown, on_cpu and not_compared, and the first reason of an
    unknown or left out call."""
    import torch

    found = []
    for line in torch.ops.ditorch.compared_rows():
        name, *counts, reason = line.split("\t")
        found.append({"operator": name, **dict(zip(COUNTS, map(int, counts), strict=True)), "reason": reason})
    return found


def reset_report() -> None:
    """Forget what was found; every operator has its lines again."""
    import torch

    torch.ops.ditorch.compared_reset()
