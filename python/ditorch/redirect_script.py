"""TorchScript under alias=python: C++ parses the device literals of compiled code, so the compiled graphs are renamed.

Graphs say the real name while they are in memory, and "cuda" in files: a file is written with the literals named back,
and what is read from one is renamed at once. A device that compiled code makes from a text at run time is out of reach
(docs/modes.md).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

import torch

from .patches import Patches

_lock = threading.RLock()


class Literals:
    """The device constants of compiled functions, and their two names."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._loaded: list[Any] = []
        """Graphs from files: their compilation units cannot be reached later."""

    def rename(self, graphs: Iterable[Any], old: str, new: str) -> int:
        """Rename devices; returns how many there were."""
        count = 0
        for graph in graphs:
            for node in graph.findAllNodes("prim::Constant", True):
                if node.output().type().kind() != "DeviceObjType" or not node.hasAttribute("value"):
                    continue
                kind, colon, index = node.s("value").partition(":")
                if kind == old:
                    node.s_("value", new + colon + index)
                    count += 1
        return count

    def adopt(self, functions: Iterable[Any], keep: bool = False) -> None:
        """Functions that were just compiled or loaded."""
        graphs = [function.graph for function in functions if function is not None]
        with _lock:
            renamed = [graph for graph in graphs if self.rename([graph], "cuda", self.name)]
            if keep:
                self._loaded += renamed

    def written(self, native: Callable[..., Any]) -> Callable[..., Any]:
        """A method that writes a file, with every literal named "cuda" meanwhile."""

        def save(self_, *args, **kwargs):
            with _lock:
                graphs = [function.graph for function in torch.jit._state._python_cu.get_functions()] + self._loaded
                try:
                    self.rename(graphs, self.name, "cuda")
                    return native(self_, *args, **kwargs)
                finally:
                    self.rename(graphs, "cuda", self.name)

        return _like(save, native)


def _like(wrapper: Callable[..., Any], native: Any) -> Callable[..., Any]:
    wrapper.__name__ = wrapper.__qualname__ = getattr(native, "__name__", wrapper.__name__)
    wrapper.__doc__ = native.__doc__
    wrapper.__wrapped__ = native
    return wrapper


def _install_compilers(patches: Patches, literals: Literals) -> None:
    for name in ("_jit_script_compile", "_jit_script_compile_overload"):
        native = getattr(torch._C, name, None)
        if native is not None:

            def compile_function(*args, native=native, **kwargs):
                function = native(*args, **kwargs)
                literals.adopt([function])
                return function

            patches.set(torch._C, name, _like(compile_function, native))
    kind = torch._C.ConcreteModuleType
    native_methods = kind._create_methods_and_properties

    def _create_methods_and_properties(self, *args, **kwargs):
        native_methods(self, *args, **kwargs)
        literals.adopt(_methods(self.jit_type.qualified_name()))

    patches.set(kind, "_create_methods_and_properties", _like(_create_methods_and_properties, native_methods))
    native_class = torch._C._jit_script_class_compile

    def _jit_script_class_compile(name, *args, **kwargs):
        answer = native_class(name, *args, **kwargs)
        literals.adopt(_methods(name))
        return answer

    patches.set(torch._C, "_jit_script_class_compile", _like(_jit_script_class_compile, native_class))


def _methods(type_name: str) -> list[Any]:
    functions = torch.jit._state._python_cu.get_functions()
    return [function for function in functions if function.qualified_name.startswith(type_name + ".")]


def _install_loaders(patches: Patches, literals: Literals) -> None:
    for name in ("import_ir_module", "import_ir_module_from_buffer", "_import_ir_module_from_package"):
        native = getattr(torch._C, name, None)
        if native is not None:

            def load(unit, *args, native=native, **kwargs):
                module = native(unit, *args, **kwargs)
                literals.adopt(unit.get_functions(), keep=True)
                return module

            patches.set(torch._C, name, _like(load, native))


def _install_writers(patches: Patches, literals: Literals) -> None:
    for kind in (torch._C.ScriptModule, torch._C.ScriptFunction):
        for name in ("save", "save_to_buffer", "_save_for_mobile", "_save_to_buffer_for_mobile"):
            if hasattr(kind, name):
                patches.set(kind, name, literals.written(getattr(kind, name)))


def install(patches: Patches, name: str, show: bool) -> None:
    """Watch TorchScript's compilers and loaders and, where devices say "cuda", its writers."""
    literals = Literals(name)
    _install_compilers(patches, literals)
    _install_loaders(patches, literals)
    if show:
        _install_writers(patches, literals)
