"""The meta-path finder behind `import dlinfer`, and the tree of modules that it makes.

Each module is a fresh one whose names come from a file of this folder. A name that is not a row is not answered.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
from types import ModuleType
from typing import Any

MODULES: dict[str, tuple[str, tuple[str, ...]]] = {
    "dlinfer": ("front_page", ()),
    "dlinfer.ops": ("ops", ()),
    "dlinfer.ops.llm": ("ops", ()),
    "dlinfer.vendor": ("vendor_page", ()),
    "dlinfer.vendor.ascend": ("", ()),
    "dlinfer.vendor.ascend.version": ("ascend", ("ensure_ascend_runtime",)),
    "dlinfer.vendor.ascend.moe": (
        "ascend",
        ("build_chunked_moe_storage_layout", "chunked_moe_storage_expert_id", "zero_chunked_moe_weight_padding"),
    ),
    "dlinfer.utils": ("", ()),
    "dlinfer.utils.type_annotation": ("types", ("MoECommType", "MoeMetadata")),
    "dlinfer.framework": ("", ()),
    "dlinfer.framework.lmdeploy_ext": ("lmdeploy", ("check_version",)),
    "dlinfer.framework.lmdeploy_ext.device": ("", ()),
    "dlinfer.framework.lmdeploy_ext.cudagraph": ("", ()),
    "dlinfer.framework.lmdeploy_ext.cudagraph.ascend_cudagraph": (
        "lmdeploy_graph",
        ("AscendGraphRunner", "get_ascend_compatible_size"),
    ),
    "dlinfer.framework.transformers_ext": ("transformers_attention", ("use", "register")),
}
"""Module -> (the file of this folder, its names; none: all public ones); an empty file: a folder and nothing else."""


class Loader(importlib.abc.Loader):
    """Makes one module of the tree."""

    def create_module(self, spec: Any) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        file, names = MODULES[module.__name__]
        module.__doc__ = f"{module.__name__} of ditorch (docs/dlinfer.md)."
        if not file:
            return
        source = importlib.import_module(f".{file}", __package__)
        chosen = names or [name for name in vars(source) if not name.startswith("_")]
        vars(module).update({name: getattr(source, name) for name in chosen})


class Finder(importlib.abc.MetaPathFinder):
    """Asked only when nobody else has the module."""

    def __init__(self) -> None:
        self._loader = Loader()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in MODULES:
            return None
        parent = sys.modules.get(name.rpartition(".")[0])
        if parent is not None and not isinstance(parent.__spec__.loader, Loader):
            return None  # a real dlinfer, which has no such module
        is_package = any(other.startswith(f"{name}.") for other in MODULES)
        return importlib.machinery.ModuleSpec(name, self._loader, is_package=is_package)


def install() -> Finder:
    """The finder, at the end of sys.meta_path."""
    found = next((finder for finder in sys.meta_path if isinstance(finder, Finder)), None)
    if found is None:
        found = Finder()
        sys.meta_path.append(found)
    return found
