"""The undo list behind all-or-nothing installation.

Every change that ditorch makes to another package goes through one `Patches` object, which remembers what was there.
`undo` puts everything back in reverse order; a failure in the middle of an installation therefore leaves nothing
half-patched.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

_MISSING = object()


class Record(NamedTuple):
    """One attribute that was changed."""

    owner: Any
    name: str
    old: Any
    """What was there; MISSING: nothing."""
    new: Any

    @property
    def path(self) -> str:
        """The attribute's full name, such as torch.cuda.is_available."""
        owner = self.owner
        if isinstance(owner, type):
            return f"{owner.__module__}.{owner.__qualname__}.{self.name}"
        return f"{getattr(owner, '__name__', type(owner).__name__)}.{self.name}"

    @property
    def is_new(self) -> bool:
        """There was no such attribute before (or only an inherited one)."""
        return self.old is _MISSING


class Patches:
    """Changes made so far, newest last."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []
        self.records: list[Record] = []
        """Every attribute that was set, for the audit."""

    def __len__(self) -> int:
        return len(self._undo)

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Set an attribute. An attribute that `owner` only inherited is deleted again by `undo`."""
        old = vars(owner).get(name, _MISSING)
        setattr(owner, name, value)
        self.records.append(Record(owner, name, old, value))
        if old is _MISSING:
            self._undo.append(lambda: delattr(owner, name))
        else:
            self._undo.append(lambda: setattr(owner, name, old))

    def item(self, mapping: dict, key: Any, value: Any) -> None:
        """Set an entry of a dictionary."""
        old = mapping.get(key, _MISSING)
        mapping[key] = value
        if old is _MISSING:
            self._undo.append(lambda: mapping.pop(key, None))
        else:
            self._undo.append(lambda: mapping.__setitem__(key, old))

    def append(self, sequence: list, value: Any, *, first: bool = False) -> None:
        """Add an element to a list; `undo` removes it by identity."""
        sequence.insert(0 if first else len(sequence), value)
        self._undo.append(lambda: _remove(sequence, value))

    def defer(self, undo: Callable[[], Any]) -> None:
        """Remember how to take back a change that was made elsewhere."""
        self._undo.append(undo)

    def undo(self) -> list[BaseException]:
        """Take everything back. Failures do not stop the rest; they are returned."""
        failures: list[BaseException] = []
        self.records.clear()
        while self._undo:
            try:
                self._undo.pop()()
            except Exception as error:
                failures.append(error)
        return failures


def _remove(sequence: list, value: Any) -> None:
    for index, element in enumerate(sequence):
        if element is value:
            del sequence[index]
            return
