"""Methods of Tensor that PyTorch binds to the CUDA key in C: cuda(), DLPack, __cuda_array_interface__."""

from __future__ import annotations

import ctypes

import torch
import torch.utils.dlpack

from .. import _C
from ..patches import Patches
from .streams import DEVICE_NAMES

_DLPACK_CPU = (1, 0)


def cuda(self, device=None, non_blocking=False, memory_format=torch.preserve_format):
    """Copy of this tensor in device memory, or the tensor itself when it is there already (Tensor.cuda)."""
    if device is None:
        return self.to("cuda", non_blocking=non_blocking, memory_format=memory_format)
    target = torch.device(device)
    if target.type != torch.device("cuda").type:
        raise RuntimeError(f"Invalid device, must be cuda device, but got: {target}")
    return self.to(target, non_blocking=non_blocking, memory_format=memory_format)


def host_view(tensor: torch.Tensor) -> torch.Tensor:
    """A CPU tensor over the memory of a device tensor. Work queued on the current stream is waited for."""
    index = tensor.get_device()
    if not _C.device_properties(index)["host_accessible"]:
        raise BufferError(
            f"the memory of {tensor.device} cannot be read by the host; copy the tensor with tensor.cpu() first"
        )
    _C.stream_synchronize(index, _C.stream_current(index))
    storage = tensor.untyped_storage()
    size = storage.nbytes()
    if size == 0:
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")
    kind = type("DeviceMemory", (ctypes.c_char * size,), {})
    memory = kind.from_address(storage.data_ptr())
    memory.owner = storage
    flat = torch.frombuffer(memory, dtype=torch.uint8, count=size)
    return torch.empty(0, dtype=tensor.dtype, device="cpu").set_(
        flat.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride()
    )


def _is_plain(tensor: torch.Tensor) -> bool:
    """On the device, and not of a class that answers for itself (Parameter does not)."""
    return tensor.is_cuda and not torch.overrides.has_torch_function_unary(tensor)


def _is_open(tensor: torch.Tensor) -> bool:
    """May the host read the memory of this device tensor?"""
    return _C.device_properties(tensor.get_device())["host_accessible"]


def _install_dlpack(patches: Patches) -> None:
    """Device memory is host memory here, so it is exported as CPU memory: every consumer can read it, without a
    copy. Memory that the host cannot read goes out as an extension device's, which PyTorch alone takes back."""
    native_dlpack, native_device = torch.Tensor.__dlpack__, torch.Tensor.__dlpack_device__
    native_to, native_from = torch._C._to_dlpack, torch.from_dlpack

    def __dlpack__(self, *, stream=-1, max_version=None, dl_device=None, copy=None):
        if _is_plain(self) and self.layout is torch.strided and _is_open(self):
            if self.requires_grad:
                raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
            if self.is_conj():
                raise BufferError("Can't export tensors with the conjugate bit set")
            return native_dlpack(host_view(self), max_version=max_version, dl_device=dl_device, copy=copy)
        return native_dlpack(self, stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)

    def __dlpack_device__(self):
        if _is_plain(self) and _is_open(self):
            return (type(native_device(torch.empty(0, device="cpu"))[0])(_DLPACK_CPU[0]), _DLPACK_CPU[1])
        if _is_plain(self):
            return (torch.utils.dlpack.DLDeviceType.kDLExtDev, self.get_device())
        return native_device(self)

    def to_dlpack(tensor, *args, **kwargs):
        return native_to(host_view(tensor) if tensor.is_cuda and _is_open(tensor) else tensor, *args, **kwargs)

    def from_dlpack(ext_tensor, *, device=None, copy=None):
        """As torch.from_dlpack; a tensor of the device stays on the device."""
        if isinstance(ext_tensor, torch.Tensor) and _is_plain(ext_tensor):
            if ext_tensor.requires_grad:
                raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
            target = ext_tensor.device if device is None else torch.device(device)
            if copy is False and target != ext_tensor.device:
                raise ValueError(
                    f"cannot move DLPack tensor from {ext_tensor.device} to {target} without copying (copy=False)"
                )
            return ext_tensor.detach().to(target, copy=bool(copy))
        if type(ext_tensor).__name__ == "PyCapsule" and device is None and not copy:
            # Made by to_dlpack, which shows device memory as the CPU's: the memory itself says whose it is.
            return torch.ops.ditorch.bring_home(native_from(ext_tensor, copy=copy))
        if device is not None and torch.device(device).type in DEVICE_NAMES:
            if copy is False:
                raise ValueError("cannot move DLPack tensor to cuda without copying (copy=False)")
            return native_from(ext_tensor).to(device)
        return native_from(ext_tensor, device=device, copy=copy)

    patches.set(torch.Tensor, "__dlpack__", __dlpack__)
    patches.set(torch.Tensor, "__dlpack_device__", __dlpack_device__)
    for module in (torch, torch.utils.dlpack):
        if getattr(module, "to_dlpack", None) is native_to:
            patches.set(module, "to_dlpack", to_dlpack)
        if getattr(module, "from_dlpack", None) is native_from:
            patches.set(module, "from_dlpack", from_dlpack)
    patches.set(torch._C, "_to_dlpack", to_dlpack)


def _cuda_array_interface(self):
    raise AttributeError(
        "__cuda_array_interface__ is not supported on the ditorch host device: its memory is host memory; "
        "use tensor.cpu().numpy() or numpy.from_dlpack(tensor)"
        if self.is_cuda
        else f"Can't get __cuda_array_interface__ on non-CUDA tensor type: {self.type()} "
        "If CUDA data is required use tensor.cuda() to copy tensor to device memory."
    )


def install(patches: Patches) -> None:
    """Bind the methods to torch.Tensor."""
    patches.set(torch.Tensor, "cuda", cuda)
    patches.set(torch.Tensor, "__cuda_array_interface__", property(_cuda_array_interface))
    _install_dlpack(patches)
