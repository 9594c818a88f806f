"""Deliberate faults: break chosen operators in chosen ways, to prove that a tool or a test notices."""

from __future__ import annotations

from . import _C


class Fault:
    """Rules that are in force from construction until the `with` block ends (or until the next `fault`)."""

    def __init__(self, text: str, previous: str) -> None:
        self.text = text
        self._previous = previous

    def __enter__(self) -> Fault:
        return self

    def __exit__(self, *exc_info) -> None:
        _configure(self._previous)

    @property
    def count(self) -> int:
        """Faults injected since these rules were set."""
        return _C.fault_count()

    def __repr__(self) -> str:
        return f"<ditorch.fault {self.text!r}, {self.count} injected>"


_current = ""


def _configure(text: str) -> None:
    global _current
    _C.fault_configure(text)
    _current = text


def fault(text: str = "") -> Fault:
    """Replace all fault rules by those of `text`; "" removes them.

    Rules are separated by ';', each `kind:operator[,key=value ...]`; kinds: value, precision, nan, stride, input,
    unwritten, slow, error.

        ditorch.fault("nan:mm,call=3")              # from now on
        with ditorch.fault("value:aten::add.*"):    # inside the block
            ...
    """
    previous = _current
    _configure(text)
    return Fault(text, previous)


def start(text: str) -> None:
    """Rules from the options (DITORCH_FAULT)."""
    _configure(text)
