"""torch_dipu.dipu: memory. Numbers come from libdit's allocator, for the device that is asked for."""

from __future__ import annotations

import types
from collections import OrderedDict
from types import ModuleType
from typing import Any

import torch
import torch.cuda.memory

from .. import _C
from .device import current_device, get_device_status, get_index
from .streams import current_stream


def _get_bytes(device: Any, kind: str, column: str) -> int:
    return _C.memory_stats(get_index(device, optional=True))[f"{kind}_bytes"]["all"][column]


def memory_allocated(device: Any = None) -> int:
    """Bytes in tensors."""
    return _get_bytes(device, "allocated", "current")


def memory_reserved(device: Any = None) -> int:
    """Bytes taken from the device, in tensors or cached."""
    return _get_bytes(device, "reserved", "current")


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes in tensors since the start or reset_peak_memory_stats."""
    return _get_bytes(device, "allocated", "peak")


def max_memory_reserved(device: Any = None) -> int:
    return _get_bytes(device, "reserved", "peak")


def reset_peak_memory_stats(device: Any = None) -> None:
    _C.memory_reset_peak(get_index(device, optional=True))


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Free and total bytes of the device."""
    status = get_device_status(device)
    return status.free_memory, status.total_memory


def empty_cache() -> None:
    """Give cached memory back to the device."""
    _C.memory_empty_cache(-1)


def memory_stats(device: Any = None) -> OrderedDict[str, Any]:
    """Every statistic of the allocator, with torch.cuda.memory_stats' names."""
    found: dict[str, Any] = {}

    def add(prefix: str, value: Any) -> None:
        if isinstance(value, dict):
            for key, entry in value.items():
                add(f"{prefix}.{key}" if prefix else key, entry)
        else:
            found[prefix] = value

    add("", _C.memory_stats(get_index(device, optional=True)))
    return OrderedDict(sorted(found.items()))


def _summarize() -> Any:
    """torch.cuda.memory_summary, over the numbers of this file: it needs no torch.cuda device then."""
    native = torch.cuda.memory.memory_summary
    scope = {**native.__globals__, "memory_stats": memory_stats, "_get_device_index": get_index}
    return types.FunctionType(native.__code__, scope, "memory_summary", native.__defaults__)


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """The statistics as a table."""
    return _summarize()(get_index(device, optional=True), abbreviated)


def caching_allocator_alloc(size: int, device: Any = None, stream: Any = None) -> int:
    """Memory for another library, as an address: for `device` (or the current one) and a stream, given as an object or
    as its handle."""
    index = get_index(device, optional=True)
    stream = current_stream(index) if stream is None else stream
    handle = stream if isinstance(stream, int) else getattr(stream, "dipu_stream", None)
    if isinstance(handle, bool) or not isinstance(handle, int):
        raise TypeError(f"stream is a torch_dipu.dipu.Stream or its handle as a number, not {type(stream).__name__}")
    return _C.memory_alloc(index, handle, size) or 0


def caching_allocator_delete(mem_ptr: int) -> None:
    """Give memory of caching_allocator_alloc back."""
    _C.memory_free(mem_ptr)


def release_all_resources() -> None:
    """Cached memory goes back to the device; the rest ends with the process."""
    empty_cache()
    _C.host_empty_cache()


def set_allocator_settings(text: str) -> None:
    """Settings of the allocator, in the grammar of DIPU_TORCH_ALLOCATOR_CONF and PYTORCH_CUDA_ALLOC_CONF."""
    _C.memory_configure(text)


NAMES = {
    function.__name__: function
    for function in (
        caching_allocator_alloc,
        caching_allocator_delete,
        empty_cache,
        max_memory_allocated,
        max_memory_reserved,
        mem_get_info,
        memory_allocated,
        memory_reserved,
        memory_stats,
        memory_summary,
        release_all_resources,
        reset_peak_memory_stats,
    )
}


def fill(module: ModuleType) -> None:
    """torch_dipu.dipu.memory."""
    vars(module).update(NAMES)
    module.current_device = current_device
    module._set_allocator_settings = set_allocator_settings
