"""ditorch.exempt: packages whose own code sees devices by their real names and torch.cuda as it was.

What decides is the module whose line of code makes the call: code of other packages that an exempt one calls, torch's
included, is not exempt. The work is done in C (python/ext/py_exempt.c), and only once something is exempt: before that,
no function is wrapped and no caller is looked up.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

from . import _C, settings
from .patches import Patches, Record
from .vendors.probe import Stack

NAMES, ALL = 1, 3
"""What a package sees as it is (python/ext/exempt.h): device names alone, as a vendor needs it; everything."""

_packages: set[str] = set()
"""Packages that the program exempted."""
_own: set[str] = set()
"""The vendor's, exempt for names."""
_gates: dict[int, Patches] = {}
"""The gates of an installation, by the id of its undo list."""
_deferred: set[int] = set()
"""Undo lists that know how to take all this back."""


def exempt(*packages: str, on: bool = True) -> list[str]:
    """Let the code of these packages (and of their submodules) see the truth; with on=False no longer. Returns the
    names that are exempt now. To be called before the package asks, best before it is imported."""
    for name in packages:
        if not isinstance(name, str) or not all(part.isidentifier() for part in name.split(".")):
            raise ValueError(f"exempt: {name!r} is no name of a package; expected such as 'accelerate' or 'a.b'")
    _packages.update(packages) if on else _packages.difference_update(packages)
    from . import installation

    with installation.state.lock:
        if packages and installation.state.patches is not None:
            _apply(installation.state.patches)
    return sorted(_packages)


def install(patches: Patches, stack: Stack | None) -> None:
    """At installation: the packages of the option, the vendor's own, and those of earlier calls."""
    for name in filter(None, (part.strip() for part in str(settings.get("exempt")).split(","))):
        exempt(name)
    _own.clear()
    if stack is not None:
        _own.update((stack.row.package, stack.module.__name__, *stack.row.modules))
    if _packages or _own:
        _apply(patches)


def _apply(patches: Patches) -> None:
    """Tell C who is exempt, and put gates in front of what was patched."""
    from . import installation

    if installation.state.target is None:
        return
    name, number = installation.state.target
    _C.exempt_set({**dict.fromkeys(_own, NAMES), **dict.fromkeys(_packages, ALL)})
    gate(patches) if _packages else ungate(patches)
    if installation.state.alias == "binary" and settings.get("show_device_as_cuda"):
        torch = sys.modules["torch"]
        _C.device_show_install(torch.device, number, name, None, None, True)
    _defer(patches)


def _defer(patches: Patches) -> None:
    """Once per installation: take everything back with it."""
    if id(patches) not in _deferred:
        _deferred.add(id(patches))
        patches.defer(lambda: _withdraw(id(patches)))


def _withdraw(key: int) -> None:
    _deferred.discard(key)
    _C.exempt_set({})
    if _C.alias_status()["installed"]:
        _C.device_show_restore()
    _remove_gates(key)


def is_gateable(record: Record) -> bool:
    """A function that took the place of a function. Classes, constants and new names have one answer for all."""
    kinds = (staticmethod, classmethod, property, type, types.ModuleType)
    if isinstance(record.old, kinds) or isinstance(record.new, (*kinds, _C.Gate)) or not callable(record.new):
        return False
    return callable(record.old) or (record.is_new and record.path.startswith("torch._C._cuda_"))


_ABSENT = {"_cuda_getDeviceCount": 0, "_cuda_isInBadFork": False}
"""What torch's own code makes of C names that a build without CUDA does not have."""


def _make_absent(record: Record) -> Callable[..., Any]:
    """Stands for a C name that was not there before."""

    def absent(*args: Any, **kwargs: Any) -> Any:
        if record.name in _ABSENT:
            return _ABSENT[record.name]
        raise AttributeError(f"module 'torch._C' has no attribute {record.name!r} without ditorch")

    return absent


def gate(patches: Patches) -> None:
    """Put a gate in front of every function that was patched; those that have one keep it."""
    if id(patches) in _gates:
        return
    gates = _gates[id(patches)] = Patches()
    for record in list(patches.records):
        if is_gateable(record) and vars(record.owner).get(record.name) is record.new:
            old = _make_absent(record) if record.is_new else record.old
            gates.set(record.owner, record.name, _C.Gate(old, record.new, record.path))
    for name, function in _list_untouched():
        gates.set(sys.modules["torch"].cuda, name, _C.Gate(function, function, f"torch.cuda.{name}"))
    _defer(patches)


def _list_untouched() -> list[tuple[str, Any]]:
    """Functions of torch.cuda that are torch's own code over C names that were supplied: called by an exempt package,
    they must find these absent."""
    cuda = sys.modules["torch"].cuda
    names = [name for name in cuda.__all__ if isinstance(vars(cuda).get(name), types.FunctionType)]
    return [(name, vars(cuda)[name]) for name in names if vars(cuda)[name].__module__.startswith("torch.cuda")]


def ungate(patches: Patches) -> None:
    """Take the gates away again where nobody needs them: no package is exempt, and nothing is counted."""
    if not _packages and _C.exempt_counts() is None:
        _remove_gates(id(patches))


def _remove_gates(key: int) -> None:
    gates = _gates.pop(key, None)
    failures = gates.undo() if gates else []
    if failures:
        raise failures[0]
