"""torch.cuda.FloatTensor, torch.cuda.sparse.FloatTensor and their families, Tensor.type(), set_default_tensor_type.

PyTorch's own objects for these names are bound in C to the CUDA dispatch key. The classes here behave like them on
the device: they construct, answer isinstance and issubclass, carry dtype/is_cuda/is_sparse, and are accepted wherever
torch takes a tensor type.
"""

from __future__ import annotations

import torch

from ..patches import Patches

_KINDS = {
    "BFloat16": torch.bfloat16,
    "Bool": torch.bool,
    "Byte": torch.uint8,
    "Char": torch.int8,
    "Double": torch.float64,
    "Float": torch.float32,
    "Half": torch.float16,
    "Int": torch.int32,
    "Long": torch.int64,
    "Short": torch.int16,
}


class CudaTensorType(type):
    """Metaclass of the tensor types: calling one makes a plain torch.Tensor on the device."""

    dtype: torch.dtype
    is_cuda = True
    is_sparse = False
    layout = torch.strided

    def __call__(cls, *args, device=None, **kwargs):
        device = torch.device("cuda" if device is None else device)
        if device.type != torch.device("cuda").type:
            raise RuntimeError(
                f"legacy constructor expects device type: cuda but device type: {device.type} was passed"
            )
        if not args and not kwargs:
            return torch.empty(0, dtype=cls.dtype, device=device)
        first = args[0] if args else None
        if isinstance(first, torch.Size) or (isinstance(first, int) and not isinstance(first, bool)):
            size = first if isinstance(first, torch.Size) else args
            return torch.empty(*size, dtype=cls.dtype, device=device)
        if isinstance(first, torch.Tensor) and isinstance(first, cls):
            return first.detach()
        if isinstance(first, torch.Tensor):
            raise TypeError(f"expected {cls} (got {first.type()})")
        if isinstance(first, (torch.UntypedStorage, torch.TypedStorage)):
            untyped = first if isinstance(first, torch.UntypedStorage) else first.untyped()
            return torch.empty(0, dtype=cls.dtype, device=untyped.device).set_(untyped)
        return torch.tensor(first, dtype=cls.dtype, device=device)

    def __instancecheck__(cls, instance) -> bool:
        return (
            isinstance(instance, torch.Tensor)
            and instance.dtype is cls.dtype
            and instance.is_cuda
            and instance.layout is cls.layout
        )

    def __repr__(cls) -> str:
        return f"<class '{cls}'>"

    def __str__(cls) -> str:
        return f"{cls.__module__}.{cls.__name__}"


class CudaSparseTensorType(CudaTensorType):
    """The same for sparse COO tensors: made from indices, values and sizes, or from sizes alone."""

    is_sparse = True
    layout = torch.sparse_coo

    def __call__(cls, *args, device=None):
        device = torch.device("cuda" if device is None else device)
        if device.type != torch.device("cuda").type:
            raise RuntimeError(
                f"legacy constructor expects device type: cuda but device type: {device.type} was passed"
            )
        if args and isinstance(args[0], torch.Tensor):
            return torch.sparse_coo_tensor(*args, dtype=cls.dtype, device=device)
        size = args[0] if len(args) == 1 and not isinstance(args[0], int) else args
        return torch.sparse_coo_tensor(tuple(size) or (0,), dtype=cls.dtype, device=device)


def make_types() -> dict[str, CudaTensorType]:
    """Name behind "torch.cuda." -> class: "FloatTensor", "sparse.FloatTensor"."""
    types = {}
    for kind, dtype in _KINDS.items():
        name = f"{kind}Tensor"
        types[name] = CudaTensorType(name, (), {"dtype": dtype, "__module__": "torch.cuda"})
        if kind != "Bool":  # PyTorch has none
            values = {"dtype": dtype, "__module__": "torch.cuda.sparse"}
            types[f"sparse.{name}"] = CudaSparseTensorType(name, (), values)
    return types


def _find(dtype, types: dict[str, CudaTensorType]) -> CudaTensorType | None:
    """The device's tensor type that `dtype` names, as a class or as text."""
    if isinstance(dtype, CudaTensorType):
        return dtype
    if isinstance(dtype, str) and dtype.startswith("torch.cuda."):
        return types.get(dtype.removeprefix("torch.cuda."))
    return None


def install(patches: Patches) -> None:
    """Replace the types and the three functions that take or answer them."""
    types = make_types()
    for path, kind in types.items():
        owner, name = (torch.cuda.sparse if kind.is_sparse else torch.cuda), path.removeprefix("sparse.")
        if hasattr(owner, name):
            patches.set(owner, name, kind)
        torch._tensor_classes.add(kind)
        patches.defer(lambda kind=kind: torch._tensor_classes.discard(kind))
    native_type, real = torch.Tensor.type, f"torch.{torch._C._get_privateuse1_backend_name()}."

    def type(self, dtype=None, non_blocking=False, **kwargs):
        """As Tensor.type; types of the device are torch.cuda.*."""
        if dtype is None:
            text = native_type(self, **kwargs)
            return text.replace(real, "torch.cuda.") if self.device.type == "cuda" else text
        if torch.overrides.has_torch_function_unary(self):
            return native_type(self, dtype, non_blocking, **kwargs)
        kind = _find(dtype, types)
        if kind is not None:
            device = self.device if self.is_cuda else torch.device("cuda")
            return self.to(device=device, dtype=kind.dtype, non_blocking=non_blocking)
        if isinstance(dtype, str) and dtype.startswith("torch.cuda."):
            raise ValueError(f"invalid type: '{dtype}'; valid: {', '.join(f'torch.cuda.{name}' for name in types)}")
        if self.is_cuda and not isinstance(dtype, torch.dtype):
            return native_type(self.cpu(), dtype, non_blocking, **kwargs)
        return native_type(self, dtype, non_blocking, **kwargs)

    patches.set(torch.Tensor, "type", type)
    _install_default(patches, types)


def _install_default(patches: Patches, types: dict[str, CudaTensorType]) -> None:
    native = torch.set_default_tensor_type
    chosen = [False]

    def set_default_tensor_type(t) -> None:
        """As torch.set_default_tensor_type; a torch.cuda type also makes "cuda" the default device."""
        kind = _find(t, types)
        if kind is not None:
            native(f"torch.{kind.__name__}")
            torch.set_default_device("cuda")
            chosen[0] = True
            return
        native(t)
        if chosen[0]:
            torch.set_default_device(None)
            chosen[0] = False

    patches.set(torch, "set_default_tensor_type", set_default_tensor_type)
