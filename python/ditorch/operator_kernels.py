"""Kernels that a program registers for CUDA belong to the device.

What names a dispatch key by a text is translated by the alias. Left are kernels that were registered before the alias
was there or by C++ extensions (`TORCH_LIBRARY_IMPL(mylib, CUDA, m)`, see adapter/torch/CudaKernels.cpp), and Python's
`op.py_impl(DispatchKey.CUDA)`, which takes the key as an object.
"""

from __future__ import annotations

import mmap
from importlib.machinery import ExtensionFileLoader
from typing import Any

import torch

from .patches import Patches

_PREFIXES = ("", "Autograd", "Autocast")


def _keys() -> dict[Any, Any]:
    """CUDA's dispatch keys and the device's."""
    keys = torch._C.DispatchKey
    return {keys.__members__[f"{p}CUDA"]: keys.__members__[f"{p}PrivateUse1"] for p in _PREFIXES}


def _mentions_cuda_kernels(path: str) -> bool:
    """The extension was built against PyTorch's registration macros."""
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
            return text.find(b"torch7Library") >= 0
    except (OSError, ValueError):
        return True


def install(patches: Patches) -> None:
    """Adopt what is there, and what is loaded later."""
    adopt = torch.ops.ditorch.adopt_cuda_kernels
    adopt()
    native_load = torch._ops._Ops.load_library
    native_create = ExtensionFileLoader.create_module
    native_py_impl = torch._ops.OperatorBase.py_impl
    keys = _keys()
    lent: set[tuple[int, Any]] = set()

    def load_library(self, path):
        native_load(self, path)
        adopt()

    def create_module(self, spec):
        module = native_create(self, spec)
        if _mentions_cuda_kernels(spec.origin):
            adopt()
        return module

    def py_impl(self, k):
        """A kernel for CUDA is the device's too, as long as that has none of its own."""
        mine = keys.get(k) if isinstance(k, torch._C.DispatchKey) else None
        if (id(self), k) in lent:
            lent.discard((id(self), k))
            del self.py_kernels[k]
        register = native_py_impl(self, k)

        def inner(fn):
            result = register(fn)
            if mine is not None and mine not in self.py_kernels:
                native_py_impl(self, mine)(fn)
                lent.add((id(self), mine))
            return result

        return inner

    native_impl = torch.library.Library.impl

    def impl(self, op_name, fn, dispatch_key="", **options):
        """Code that registers one function for CUDA and for out-of-tree devices means one kernel here."""
        key = torch._C._parse_dispatch_key(dispatch_key or self.dispatch_key or "Undefined")
        known = self.__dict__.setdefault("_ditorch_kernels", {})
        place = (str(getattr(op_name, "_schema", op_name)), key)
        if key in keys.values():
            if known.get(place) is fn:
                return None
            known[place] = fn
        return native_impl(self, op_name, fn, dispatch_key, **options)

    patches.set(torch.library.Library, "impl", impl)
    patches.set(torch._ops._Ops, "load_library", load_library)
    patches.set(ExtensionFileLoader, "create_module", create_module)
    patches.set(torch._ops.OperatorBase, "py_impl", py_impl)
