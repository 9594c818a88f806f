"""Who answers to `import torch_dipu`: a real package, or ditorch.

Python finds the package python/torch_dipu by itself, also in children of torchrun, and that hands over to whoever it
is. That package loads this file by itself, without ditorch: nothing may be imported here but what is asked for.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

NAME = "torch_dipu"
_MARK = b'"""`import torch_dipu` where ditorch is installed'


def is_stub(spec: ModuleSpec | None) -> bool:
    """The spec of the package that only hands over."""
    if spec is None or not spec.origin or not spec.has_location:
        return False
    try:
        with open(spec.origin, "rb") as file:
            return file.read(len(_MARK)) == _MARK
    except OSError:
        return False


def find_real() -> ModuleSpec | None:
    """The spec of a real torch_dipu on the path."""
    for entry in sys.path:
        spec = PathFinder.find_spec(NAME, [entry])
        if spec is not None and spec.loader is not None and not is_stub(spec):
            return spec
    return None


def become(name: str) -> None:
    """Put what torch_dipu is into sys.modules, in place of the module that is being imported."""
    spec = find_real()
    if spec is None:
        spec = _find_ours(name)
    stub = sys.modules.pop(name, None)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        if stub is not None:
            sys.modules[name] = stub  # importlib takes it off
        raise


def _find_ours(name: str) -> ModuleSpec:
    import ditorch
    from ditorch.dipu.finder import Finder

    finder = next((finder for finder in sys.meta_path if isinstance(finder, Finder)), None)
    if finder is None:
        why = (
            "DITORCH_DIPU_NAMES=0"
            if not ditorch.settings.get("dipu_names")
            else "ditorch answers to this name on the embedded device alone, which is not in use"
        )
        raise ModuleNotFoundError(f"No module named {name!r} ({why})", name=name)
    sys.modules.pop(name, None)  # the finder would take it for a real one
    return finder.find_spec(name)


def is_ours(module: ModuleType | ModuleSpec) -> bool:
    """True for a `torch_dipu` module, or a spec of one, that stands for the embedded device and is no real package."""
    from ditorch.dipu.finder import Loader

    spec = getattr(module, "__spec__", None) or module
    return isinstance(getattr(spec, "loader", None), Loader) or is_stub(spec)
