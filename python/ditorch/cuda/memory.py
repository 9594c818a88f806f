"""The names of torch._C that torch/cuda/memory.py calls, over libdit's caching allocator and pinned host cache.

torch.cuda.memory_stats, memory_summary, memory_snapshot, max_memory_* and reset_* stay torch's own functions and read
true numbers.
"""

from __future__ import annotations

import os
import re
import types

import torch

from .. import _C
from ..refusal import refusing
from .state import fetch, nothing, store

_POOLS = "it has one pool per device; drop the pool, allocations are cached and reused without it"


def memory_stats(device: int) -> dict:
    return _C.memory_stats(device)


def memory_snapshot(mempool_id=None) -> dict:
    """Segments of all devices in torch's layout, or of one pool; allocation history is not recorded, so the traces are
    empty."""
    segments = _C.memory_snapshot(-1)
    if isinstance(segments, dict):
        segments = segments["segments"]
    if mempool_id is not None and any(mempool_id[:2]):
        segments = [segment for segment in segments if segment["segment_pool_id"] == tuple(mempool_id[:2])]
    for segment in segments:
        segment.setdefault("is_expandable", False)
        segment.setdefault("frames", [])
        for block in segment["blocks"]:
            block.setdefault("frames", [])
    return {
        "segments": segments,
        "device_traces": [[] for _ in range(_C.device_count())],
        "external_annotations": [],
        "allocator_settings": allocator_settings(),
    }


_SETTINGS: dict[str, tuple[str, object]] = {
    "max_split_size": ("max_split_size_mb", -1),
    "garbage_collection_threshold": ("garbage_collection_threshold", 0.0),
    "expandable_segments": ("expandable_segments", False),
    "pinned_num_register_threads": ("pinned_num_register_threads", 1),
    "release_lock_on_cudamalloc": ("release_lock_on_cudamalloc", False),
    "pinned_use_cuda_host_register": ("pinned_use_cuda_host_register", False),
    "graph_capture_record_stream_reuse": ("graph_capture_record_stream_reuse", False),
}
"""Name in a snapshot: key of the configuration, value when it is not set."""
_NO_LIMIT = (1 << 64) - 1


def _read_setting(given: dict[str, str], key: str, default: object) -> object:
    text = given.get(key)
    if text is None:
        return default
    if isinstance(default, bool):
        return text == "True"
    return float(text) if isinstance(default, float) else int(text)


def allocator_settings() -> dict[str, object]:
    """PYTORCH_CUDA_ALLOC_CONF as it was accepted, and what it says, under the keys of torch's snapshots."""
    text = _C.memory_get_configuration()
    given = dict(entry.split(":", 1) for entry in re.sub(r"\[[^]]*\]|\s", "", text).split(",") if ":" in entry)
    found = {name: _read_setting(given, key, default) for name, (key, default) in _SETTINGS.items()}
    if found["max_split_size"] != -1:
        found["max_split_size"] <<= 20
    for name in ("max_round_threshold", "max_cached_size"):
        megabytes = given.get(f"pinned_{name}_mb")
        found[name] = _NO_LIMIT if megabytes is None else int(megabytes) << 20
    return {"PYTORCH_CUDA_ALLOC_CONF": text, **found, "roundup_power2_divisions": _read_divisions(text)}


def _read_divisions(text: str) -> dict[str, int]:
    """Divisions by the size in MiB up to which they hold, as the allocator's sixteen intervals have them."""
    sizes = [str(1 << i) for i in range(16)]
    found = re.search(r"roundup_power2_divisions:(\d+|\[[^]]*\])", re.sub(r"\s", "", text))
    if not found:
        return dict.fromkeys(sizes, 0)
    if not found[1].startswith("["):
        return dict.fromkeys(sizes, int(found[1]))
    divisions, last = dict.fromkeys(sizes, 0), -1
    for entry in found[1][1:-1].split(","):
        size, value = entry.split(":")
        index = 15 if size == ">" else min(int(size).bit_length() - 1, 15)
        first = max(last, 0) if size == ">" else 0 if last < 0 else index
        for i in range(first, index + 1):
            divisions[sizes[i]] = int(value)
        last = index
    return divisions


def raw_alloc(size: int, stream: int) -> int:
    """torch.cuda.caching_allocator_alloc: `stream` is a vendor handle."""
    return _C.memory_alloc(_C.current_device(), stream, size) or 0


def allocator_enable(enabled: bool) -> None:
    """torch.cuda.caching_allocator_enable: the allocator's backend is native (cached) or raw."""
    keys = [entry for entry in _C.memory_get_configuration().split(",") if entry and not entry.startswith("backend:")]
    _C.memory_configure(",".join(keys if enabled else [*keys, "backend:raw"]))


def allocator_is_enabled() -> bool:
    return _C.memory_get_algorithm() != "raw"


def empty_cache() -> None:
    _C.memory_empty_cache(-1)


def _in_microseconds(times: dict[str, int]) -> dict[str, float]:
    """Nanoseconds as torch's statistics of durations have them."""
    found = {key: times[key] / 1e3 for key in ("total", "max", "min")}
    return {**found, "count": times["count"], "avg": found["total"] / max(times["count"], 1)}


def host_memory_stats() -> dict:
    """Statistics of pinned memory with torch's keys."""
    raw = _C.host_stats()
    allocations, frees = _C.host_times()
    bytes_ = {
        "current": raw["allocated_current"],
        "peak": raw["allocated_peak"],
        "allocated": raw["allocated_total"],
        "freed": raw["freed_total"],
    }
    reserved = {
        "current": raw["reserved_current"],
        "peak": raw["reserved_peak"],
        "allocated": raw["reserved_current"],
        "freed": 0,
    }
    live = raw["allocations"] - raw["frees"]
    count = {"current": live, "peak": live, "allocated": raw["allocations"], "freed": raw["frees"]}
    segments = raw["vendor_allocations"] - raw["vendor_frees"]
    segment = {
        "current": segments,
        "peak": segments,
        "allocated": raw["vendor_allocations"],
        "freed": raw["vendor_frees"],
    }
    return {
        "allocated_bytes": bytes_,
        "active_bytes": dict(bytes_),
        "reserved_bytes": reserved,
        "allocations": count,
        "active_requests": dict(count),
        "segments": segment,
        "num_host_alloc": raw["vendor_allocations"],
        "num_host_free": raw["vendor_frees"],
        "host_alloc_time": _in_microseconds(allocations),
        "host_free_time": _in_microseconds(frees),
    }


def list_gpu_processes(device=None) -> str:
    """torch.cuda.list_gpu_processes: the device lives in this process, so this is the only one."""
    index = torch.cuda._utils._get_device_index(device, optional=True)
    used = torch.cuda.memory_reserved(index) / (1 << 20)
    return f"GPU:{index}\nprocess {os.getpid():>10d} uses {used:>12.3f} MB GPU memory"


def device_memory_used(device=None) -> int:
    """torch.cuda.device_memory_used: total minus free memory of the device, in bytes."""
    free, total = torch.cuda.mem_get_info(device)
    return total - free


class _AllocatorState:
    """Opaque state of a graph pool; torch._dynamo.reset() wants the name to exist."""


def natives() -> dict[str, object]:
    """Names of torch._C supplied by this module."""
    return {
        "_cuda_memoryStats": memory_stats,
        "_cuda_memorySnapshot": memory_snapshot,
        "_cuda_resetPeakMemoryStats": lambda device: _C.memory_reset_peak(device),
        "_cuda_resetAccumulatedMemoryStats": lambda device: _C.memory_reset_accumulated(device),
        "_cuda_hostMemoryStats": host_memory_stats,
        "_cuda_resetPeakHostMemoryStats": lambda: _C.host_reset_peak(),
        "_cuda_resetAccumulatedHostMemoryStats": nothing,
        "_cuda_emptyCache": empty_cache,
        "_host_emptyCache": lambda: _C.host_empty_cache(),
        "_cuda_setMemoryFraction": lambda fraction, device: _C.memory_set_fraction(device, fraction),
        "_cuda_getMemoryFraction": lambda device: _C.memory_get_fraction(device),
        "_cuda_getAllocatorBackend": lambda: "native",
        "_cuda_cudaCachingAllocator_raw_alloc": raw_alloc,
        "_cuda_cudaCachingAllocator_raw_delete": lambda pointer: _C.memory_free(pointer),
        "_cuda_cudaCachingAllocator_enable": allocator_enable,
        "_cuda_cudaCachingAllocator_is_enabled": allocator_is_enabled,
        "_cuda_cudaCachingAllocator_set_allocator_settings": lambda text: _C.memory_configure(text),
        "_accelerator_setAllocatorSettings": lambda text: _C.memory_configure(text),
        "_accelerator_getAllocatorSettings": lambda: _C.memory_get_configuration(),
        "_cuda_record_memory_history": nothing,
        "_cuda_record_memory_history_legacy": nothing,
        "_cuda_isHistoryEnabled": lambda: False,
        "_cuda_allocationTraceback": lambda pointer: None,
        "_cuda_setMemoryMetadata": store("memory_metadata"),
        "_cuda_getMemoryMetadata": fetch("memory_metadata", ""),
        "_cuda_CUDAAllocator_AllocatorState": _AllocatorState,
        "_cuda_getCheckpointState": refusing("torch._C._cuda_getCheckpointState", _POOLS),
        "_cuda_setCheckpointPoolState": refusing("torch._C._cuda_setCheckpointPoolState", _POOLS),
        "_cuda_checkPoolLiveAllocations": refusing("torch._C._cuda_checkPoolLiveAllocations", _POOLS),
        "_cuda_beginAllocateCurrentStreamToPool": refusing("torch._C._cuda_beginAllocateCurrentStreamToPool", _POOLS),
        "_cuda_customAllocator": refusing("torch._C._cuda_customAllocator", _POOLS),
        "_cuda_getAllocator": refusing("torch._C._cuda_getAllocator", _POOLS),
        "_cuda_changeCurrentAllocator": refusing("torch._C._cuda_changeCurrentAllocator", _POOLS),
        "_cuda_cudaHostAllocator": refusing("torch._C._cuda_cudaHostAllocator", "use Tensor.pin_memory()"),
        "_tensors_data_ptrs_at_indices_equal": lambda tensors, pointers, indices: all(
            tensors[index].data_ptr() == pointers[index] for index in indices
        ),
    }


def make_cudart() -> types.ModuleType:
    """torch.cuda.cudart(): the runtime functions that torch binds."""
    runtime = types.ModuleType("torch._C._cudart")
    runtime.cudaError = CudaErrorCode
    runtime.cudaGetErrorString = lambda code: _ERROR_TEXT.get(int(code), "unrecognized error code")
    runtime.cudaMemGetInfo = lambda device=None: _C.memory_info(_C.current_device() if device is None else device)
    runtime.cudaProfilerStart = runtime.cudaProfilerStop = lambda: CudaErrorCode.success
    runtime.cudaHostRegister = lambda pointer, size, flags=0: _status(_C.host_register, pointer, size)
    runtime.cudaHostUnregister = lambda pointer: _status(_C.host_unregister, pointer)
    why = "make streams with torch.cuda.Stream()"
    runtime.cudaStreamCreate = refusing("cudart.cudaStreamCreate", why)
    runtime.cudaStreamDestroy = refusing("cudart.cudaStreamDestroy", why)
    return runtime


class CudaErrorCode(int):
    """cudaError as torch binds it: a number with one named value."""

    success: CudaErrorCode


CudaErrorCode.success = CudaErrorCode(0)
_ERROR_TEXT = {
    0: "no error",
    1: "invalid argument",
    2: "out of memory",
    712: "part or all of the requested memory range is already mapped",
}


def _status(function, *args) -> CudaErrorCode:
    try:
        function(*args)
    except (RuntimeError, ValueError):
        return CudaErrorCode(1)
    return CudaErrorCode.success
