"""Deliberate faults: break chosen operators in chosen ways, to prove that a tool or a test notices."""

from __future__ import annotations

import warnings

from . import _C


class Fault:
    """Rules that are in force from construction until the `with` block ends (or until the next `fault`)."""

    def __init__(self, text: str, previous: Fault | None) -> None:
        self.text = text
        self._previous = previous
        self._count = 0

    def __enter__(self) -> Fault:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        idle = describe_idle() if _current is self and kind is None else ""
        _configure(self._previous)
        _tell(idle)

    @property
    def count(self) -> int:
        """Faults injected while these rules were in force."""
        return self._count + (_C.fault_count() if _current is self else 0)

    def __repr__(self) -> str:
        return f"<ditorch.fault {self.text!r}, {self.count} injected>"


_current: Fault | None = None


def _configure(chosen: Fault | None) -> str:
    """The rules of `chosen` from now on; those before keep what they have counted. Returns what should be told."""
    global _current
    counted = _C.fault_count()
    warning = _C.fault_configure(chosen.text if chosen is not None else "")
    if _current is not None:
        _current._count += counted
    _current = chosen
    return warning


def fault(text: str = "") -> Fault:
    """Replace all fault rules by those of `text`; "" removes them.

    Rules are separated by ';', each `kind:operator[,key=value ...]`; kinds: value, precision, nan, stride, input,
    unwritten, slow, error. The operator is a name (softmax, torch.softmax, aten::add.Tensor), a shell pattern, or
    several, separated by '|'; one that matches nothing is reported in a warning, with the nearest names.

        ditorch.fault("nan:mm,call=3")              # from now on
        with ditorch.fault("value:aten::add.*"):    # inside the block
            ...
    """
    chosen = Fault(text, _current)
    _tell(_configure(chosen))
    return chosen


def start(text: str) -> None:
    """Rules from the options (DITORCH_FAULT)."""
    _tell(_configure(Fault(text, None)))


def describe_idle() -> str:
    """Rules in force that have not acted although operators ran; "" when there are none."""
    idle = _C.fault_idle()
    if not idle or _current is None:
        return ""
    return f"fault {_current.text!r}: {idle}; DITORCH_LEDGER=1 lists the operators that ran"


def _tell(warning: str) -> None:
    if warning:
        warnings.warn(f"ditorch: {warning}", RuntimeWarning, stacklevel=3)
