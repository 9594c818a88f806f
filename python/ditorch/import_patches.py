"""Patches for modules that are expensive to import: applied when, and only when, the program imports them."""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from collections.abc import Callable
from typing import Any

from . import compiler, distributed, fake_layouts, operator_kernels, profiler, sharing
from .patches import Patches
from .refusal import refuse, refusing

_NVCC = (
    "it cannot run CUDA kernels; build the C++ sources alone (CppExtension), or write the operator with torch functions"
)
_TRITON = "Triton kernels need a GPU; use the operator's PyTorch implementation"


class _Loader(importlib.abc.Loader):
    """Runs the real loader, then the patch."""

    def __init__(self, loader: Any, patch: Callable[[Any], None]):
        self._loader, self._patch = loader, patch

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module) -> None:
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._patch(module)


class Finder(importlib.abc.MetaPathFinder):
    """First on sys.meta_path: answers for the listed modules only."""

    def __init__(self, patches: dict[str, Callable[[Any], None]]):
        self._patches = patches

    def find_spec(self, name, path, target=None):
        patch = self._patches.get(name)
        if patch is None:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader, patch)
                return spec
        return None


def _patch_cpp_extension(patches: Patches, module: Any) -> None:
    """torch.utils.cpp_extension: C++ extensions go on working, CUDA ones are refused by name."""
    patches.set(module, "CUDA_HOME", None)
    patches.set(module, "CUDAExtension", refusing("torch.utils.cpp_extension.CUDAExtension", _NVCC))
    native_load, native_inline = module.load, module.load_inline

    def load(name, sources, *args, **kwargs):
        files = [sources] if isinstance(sources, str) else list(sources)
        cuda = [str(file) for file in files if str(file).endswith((".cu", ".cuh"))]
        if cuda or kwargs.get("with_cuda"):
            refuse("torch.utils.cpp_extension.load with CUDA sources", f"{name}: {cuda or 'with_cuda=True'}; {_NVCC}")
        return native_load(name, sources, *args, **kwargs)

    def load_inline(name, cpp_sources, cuda_sources=None, *args, **kwargs):
        if cuda_sources or kwargs.get("with_cuda"):
            refuse("torch.utils.cpp_extension.load_inline with cuda_sources", f"{name}; {_NVCC}")
        return native_inline(name, cpp_sources, cuda_sources, *args, **kwargs)

    patches.set(module, "load", load)
    patches.set(module, "load_inline", load_inline)


def _patch_triton_check(patches: Patches, module: Any) -> None:
    """torch.utils._triton: whatever is installed, this device has no Triton."""
    patches.set(module, "has_triton", lambda: False)


def _patch_triton(patches: Patches, module: Any) -> None:
    """triton.runtime.jit: launching a kernel is refused by its name; importing and decorating are not."""

    def run(self, *args, **kwargs):
        refuse(f"the Triton kernel {getattr(self, '__name__', self)}", _TRITON)

    if hasattr(module, "JITFunction"):
        patches.set(module.JITFunction, "run", run)


def _patch_trace_rules(patches: Patches, module: Any) -> None:
    """torch._dynamo.trace_rules: the operator tools are not traced; one that is started inside of a compiled function
    breaks the graph."""
    module.add("op_tools")


def _patch_lmdeploy(patches: Patches, module: Any) -> None:
    """LMDeploy's server: what has to be there before LMDeploy asks dlinfer for anything."""
    from .infer import lmdeploy_start

    lmdeploy_start.patch(patches, module)


_COMPILERS = {
    "torch._dynamo.backends.cudagraphs": compiler.patch_cudagraphs,
    "torch._dynamo.backends.registry": compiler.patch_registry,
    "torch._dynamo.trace_rules": _patch_trace_rules,
    "torch._inductor": compiler.patch_inductor,
}
_LAYOUTS = {"torch._subclasses.fake_impls": fake_layouts.patch}
_PATCHES = {
    **_COMPILERS,
    **_LAYOUTS,
    "lmdeploy.pytorch.engine.mp_engine.zmq_engine": _patch_lmdeploy,
    "torch.utils.cpp_extension": _patch_cpp_extension,
    "torch.utils._triton": _patch_triton_check,
    "triton.runtime.jit": _patch_triton,
}


def install(patches: Patches) -> None:
    """Patch what is imported already; watch for the rest."""
    for module in (compiler, profiler, distributed, sharing, operator_kernels):
        module.install(patches)
    _watch(patches, _PATCHES)


def install_compiler(patches: Patches, is_ours: bool) -> None:
    """torch.compile alone; `is_ours`: the operators of the device are those of ditorch."""
    compiler.install(patches)
    _watch(patches, {**_COMPILERS, **_LAYOUTS} if is_ours else _COMPILERS)


def install_backends(patches: Patches) -> None:
    """The names of backends alone; torch.compile without one stays as it is."""
    _watch(patches, {name: patch for name, patch in _COMPILERS.items() if patch is compiler.patch_registry})


def _watch(patches: Patches, table: dict[str, Callable[[Patches, Any], None]]) -> None:
    waiting: dict[str, Callable[[Any], None]] = {}
    for name, patch in table.items():
        if name in sys.modules:
            patch(patches, sys.modules[name])
        else:
            waiting[name] = lambda module, patch=patch: patch(patches, module)
    patches.append(sys.meta_path, Finder(waiting), first=True)
