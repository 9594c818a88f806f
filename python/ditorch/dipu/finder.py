"""The meta-path finder behind `import torch_dipu`, and the tree of modules that it makes.

Each module is a fresh, empty one that its row of MODULES fills. A name that is not a row is not answered, so
`import torch_dipu.nonsense` fails as any missing module does.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from types import ModuleType
from typing import Any

from ..patches import Patches

MODULES: dict[str, str] = {
    "torch_dipu": "front",
    "torch_dipu._C": "native",
    "torch_dipu.dipu": "surface",
    "torch_dipu.dipu.amp": "amp",
    "torch_dipu.dipu.device": "device",
    "torch_dipu.dipu.distributed": "distributed",
    "torch_dipu.dipu.generator": "random_numbers",
    "torch_dipu.dipu.memory": "memory",
    "torch_dipu.dipu.nvtx": "nvtx",
    "torch_dipu.dipu.random_dipu": "random_numbers",
    "torch_dipu.dipu.storages": "device",
    "torch_dipu.dipu.streams": "streams",
    "torch_dipu.dipu.utils": "device",
    "torch_dipu.profiler": "profiler",
    "torch_dipu.profiler.profiler": "profiler",
    "torch_dipu.utils": "",
    "torch_dipu.utils.distutis": "auto_environment",
    "torch_dipu.utils.distutils": "auto_environment",
}
"""Module -> the file of this folder whose `fill(module)` gives it its names; empty: a folder and nothing else."""

REFUSED: dict[str, str] = {
    "torch_dipu.utils.deepspeed_dipu": "DeepSpeed finds the device as cuda; drop the import",
}


class Loader(importlib.abc.Loader):
    """Makes one module of the tree."""

    def __init__(self, patches: Patches):
        self._patches = patches

    def create_module(self, spec: Any) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        if module.__name__ in REFUSED:
            raise ImportError(
                f"{module.__name__} is not supported on the ditorch host device: {REFUSED[module.__name__]}",
                name=module.__name__,
            )
        if module.__name__ == "torch_dipu":
            from . import activation

            activation.activate(self._patches)
        source = MODULES[module.__name__]
        module.__doc__ = f"{module.__name__} on the ditorch host device (docs/dipu.md says what each name does)."
        if source:
            importlib.import_module(f".{source}", __package__).fill(module)


class Finder(importlib.abc.MetaPathFinder):
    """Last on sys.meta_path: asked only when nobody else has the module."""

    def __init__(self, patches: Patches):
        self._loader = Loader(patches)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in MODULES and name not in REFUSED:
            return None
        parent = sys.modules.get(name.rpartition(".")[0])
        if parent is not None and not isinstance(parent.__spec__.loader, Loader):
            return None  # a real torch_dipu, which has no such module
        return importlib.machinery.ModuleSpec(
            name, self._loader, is_package=any(other.startswith(f"{name}.") for other in MODULES)
        )
