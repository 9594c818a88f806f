"""Controls over the operators of the embedded device, for debugging an operator library while a program runs.

    controls.use(force_fallback="mm,.*_backward")    # from now on: these run on the CPU
    with controls.use(autocompare="softmax,mm"):     # inside the block: judged by the CPU's result, call by call
        ...
    print(controls.report())                         # what was compared, and what was wrong
    controls.use(dump_op_args=2)                     # print every operator, its function and its arguments

The lists are names or regular expressions, separated by commas: `softmax`, `torch.softmax`, `aten::_softmax`,
`add.out`, `.*_backward`. The same options can be set from the environment: DITORCH_FORCE_FALLBACK, DITORCH_AUTOCOMPARE,
DITORCH_DUMP_OP_ARGS, CUDA_LAUNCH_BLOCKING, and by DIPU's names. While all are off they cost nothing.
"""

from __future__ import annotations

import warnings

from . import _C, dipu_variables, settings

NAMES = ("force_fallback", "autocompare", "dump_op_args", "launch_blocking")
COUNTS = ("compared", "wrong", "unknown", "on_cpu", "not_compared")


class Controls:
    """Controls that are in force from construction until the `with` block ends."""

    def __init__(self, previous: dict[str, str]) -> None:
        self._previous = previous

    def __enter__(self) -> Controls:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        idle = list_idle() if kind is None else []
        _set(self._previous)
        for text in idle:
            warnings.warn(text, stacklevel=2)


def _to_text(value: str | int | bool) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def _set(values: dict[str, str]) -> None:
    for name, text in values.items():
        _C.option_set(name, text)
    refresh()


def refresh() -> None:
    """Read the options and DIPU's files anew. A pattern that matches no operator is reported in a warning."""
    import torch

    for text in torch.ops.ditorch.refresh_controls():
        warnings.warn(text, stacklevel=2)


def list_idle() -> list[str]:
    """Entries of the lists in force that none of the operators matched that ran since then, in words."""
    import torch

    return [f"{text}; DITORCH_LEDGER=1 lists them" for text in torch.ops.ditorch.idle_controls()]


def listen(on: bool) -> None:
    """Follow the environment: a variable of the controls that the program changes takes effect with its next line."""
    variables = _list_variables() if on else {}
    _C.environ_listen(frozenset(name.encode() for name in variables), _follow if on else None)


def _list_variables() -> dict[str, str]:
    """Every variable that sets a control, and which."""
    own = {row["environment"]: row["name"] for row in _C.options() if row["name"] in NAMES}
    return own | {row.name: row.option for row in dipu_variables.TABLE if row.option in NAMES}


def _follow(name: bytes, value: bytes | None) -> None:
    option = _list_variables()[name.decode()]
    text = value.decode("utf-8", "surrogateescape") if value else ""
    default = next(row["default"] for row in _C.options() if row["name"] == option)
    try:
        _set({option: text or default})
    except ValueError as error:
        raise ValueError(f"environment variable {name.decode()}: {error}") from None


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
