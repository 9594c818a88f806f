"""torch_dipu: everything of torch_dipu.dipu, and its folders."""

from __future__ import annotations

import importlib
from types import ModuleType

from .device import is_mocking
from .surface import EXPORTED


def fill(module: ModuleType) -> None:
    """torch_dipu."""
    module.mockcuda = is_mocking()
    for name in ("_C", "dipu", "profiler"):
        setattr(module, name, importlib.import_module(f"{module.__name__}.{name}"))
    vars(module).update({name: getattr(module.dipu, name) for name in EXPORTED})
