"""Device tensors between processes: torch.multiprocessing on the embedded device.

torch's own reductions run unchanged; they end in four functions that a build of torch without CUDA lacks. The work is
done in C (include/dit/share.h): the receiver maps the very memory, the sender keeps it until all receivers let go.
"""

from __future__ import annotations

import atexit
import sys
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch.multiprocessing import reductions

from . import settings
from .patches import Patches

_ops = torch.ops.ditorch


def _share_cuda_(self) -> tuple:
    """Handles of a storage for one receiver, in the form that torch.multiprocessing expects from CUDA."""
    if self.device.type != torch.device("cuda").type:
        raise RuntimeError(f"_share_cuda_: only available on CUDA, the storage is on {self.device}")
    with torch._C.DisableTorchFunction():
        if self.nbytes() == 0:
            return (self.get_device(), None, 0, 0, b"", 0, b"", False)
        view = torch.empty(0, dtype=torch.uint8, device=self.device).set_(self)
        memory, size, offset, counters, ticket = _ops.share_send(view)
    return (self.get_device(), memory.encode(), size, offset, counters.encode(), ticket, b"", False)


def _new_shared_cuda(cls, device, memory, size, offset, counters, ticket, event=b"", event_required=False):
    """The storage behind the handles of another process."""
    index = device if isinstance(device, int) else torch.device(device).index or 0
    with torch._C.DisableTorchFunction():
        bytes_ = _ops.share_receive(index, _text(memory), size, offset, _text(counters), ticket)
        return bytes_.untyped_storage()


def _release_ipc_counter_cuda(cls, counters, ticket) -> None:
    """A message whose storage this process has already."""
    _ops.share_dismiss(_text(counters), ticket)


def _text(handle: Any) -> str:
    if not isinstance(handle, bytes):
        raise TypeError(f"a handle of a shared device tensor is bytes, got {type(handle).__name__}")
    return handle.decode("ascii", "replace")


def _collect() -> None:
    _ops.share_collect()


def _warn_at_exit() -> None:
    count = _ops.share_count_unreceived()
    if count:
        print(
            f"ditorch: warning: this process ends before {count} device tensor(s) that it sent were received, and the "
            "receivers will fail; keep the producer alive until its consumers have them",
            file=sys.stderr,
        )


def _reduce_by_real_name(native: Callable[[torch.Tensor], tuple]) -> Callable[[torch.Tensor], tuple]:
    """torch's reduce_tensor knows device memory by the name "cuda"; with DITORCH_SHOW_DEVICE_AS_CUDA=0 it has another
    one."""

    def reduce_tensor(tensor):
        plain = tensor.layout == torch.strided and not tensor.is_nested
        if not (plain and tensor.is_cuda) or (tensor.requires_grad and not tensor.is_leaf):
            return native(tensor)
        torch.utils.hooks.warn_if_has_hooks(tensor)
        storage = tensor._typed_storage()
        device, memory, size, offset, *counter = storage._share_cuda_()
        reductions.shared_cache[memory] = reductions.StorageWeakRef(storage)
        place = (type(tensor), tensor.size(), tensor.stride(), tensor.storage_offset(), type(storage), tensor.dtype)
        handles = (device, memory, size, offset, tensor.requires_grad, *counter)
        return (reductions.rebuild_cuda_tensor, place + handles)

    return reduce_tensor


def install(patches: Patches) -> None:
    """Give the storages their methods."""
    patches.set(torch.UntypedStorage, "_share_cuda_", _share_cuda_)
    patches.set(torch.UntypedStorage, "_new_shared_cuda", classmethod(_new_shared_cuda))
    patches.set(torch.UntypedStorage, "_release_ipc_counter_cuda", classmethod(_release_ipc_counter_cuda))
    patches.set(torch._C, "_cuda_ipc_collect", _collect)
    if not settings.get("show_device_as_cuda"):
        reducers = ForkingPickler._extra_reducers
        for kind, native in list(reducers.items()):
            if native is reductions.reduce_tensor:
                patches.item(reducers, kind, _reduce_by_real_name(native))
    atexit.register(_warn_at_exit)
    patches.defer(lambda: atexit.unregister(_warn_at_exit))
