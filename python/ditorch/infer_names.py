"""Who answers to `import dlinfer`: a real package, or ditorch. python/dlinfer loads this file by itself, without
ditorch: nothing may be imported here but what is asked for."""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import ModuleSpec, PathFinder

NAME = "dlinfer"
_MARK = b'"""`import dlinfer` where ditorch is installed'


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
    """The spec of a real dlinfer on the path."""
    for entry in sys.path:
        spec = PathFinder.find_spec(NAME, [entry])
        if spec is not None and spec.loader is not None and not is_stub(spec):
            return spec
    return None


def _find_ours() -> ModuleSpec:
    from ditorch.infer.finder import install

    return install().find_spec(NAME)


def become(name: str) -> None:
    """Put what dlinfer is into sys.modules, in place of the module that is being imported."""
    spec = find_real() or _find_ours()
    sys.modules.pop(name, None)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
