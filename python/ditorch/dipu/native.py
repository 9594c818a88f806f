"""torch_dipu._C: DIPU's binding, name by name, over ditorch._C and torch's own functions."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch

from .. import _C
from ..cuda.properties import _CudaDeviceProperties
from ..refusal import refuse
from . import activation, amp, device, distributed, formats, measurements, memory, profiler, random_numbers, streams


def _set_python_device_as_cuda(enabled: bool) -> None:
    if bool(enabled) != (device.get_type() == "cuda"):
        why = f"the device prints as {device.get_type()!r} since the import; set DIPU_PYTHON_DEVICE_AS_CUDA before it"
        refuse(f"torch_dipu._C._set_python_device_as_cuda({enabled})", why)


def _mock_cuda_tensor_type() -> None:
    """torch.cuda.FloatTensor and its siblings are of the device already."""
    if not device.is_mocking():
        refuse("torch_dipu._C._mockCudaTensorType", "DIPU_MOCK_CUDA is false; set it to true before the import")


def _storage_resize(storage: torch.UntypedStorage, size: int) -> torch.UntypedStorage:
    if storage.device.type != device.get_type():
        raise RuntimeError(f"storage_resize_ takes a storage of the device; this one is on {storage.device}")
    return storage.resize_(size)


def _device_names() -> dict[str, Any]:
    return {
        "dipu_vendor": device.VENDOR,
        "dipu_device_type": device.DEVICE_NAME,
        "dicl_backend": distributed.BACKEND,
        "ProcessGroupDICL": distributed.ProcessGroupDICL,
        "_DIPUDeviceProperties": _CudaDeviceProperties,
        "_DIPUDeviceStatus": device.DeviceStatus,
        "_dipu_set_device": device.set_device,
        "_dipu_get_device_count": device.device_count,
        "_dipu_current_device": device.current_device,
        "_dipu_synchronize": lambda: _C.synchronize(_C.current_device()),
        "_dipu_getDeviceProperties": device.get_device_properties,
        "_dipu_getDeviceStatus": device.get_device_status,
        "get_dipu_torch_version": device.get_torch_version,
        "_get_python_device_as_cuda": lambda: device.get_type() == "cuda",
        "_set_python_device_as_cuda": _set_python_device_as_cuda,
        "_mockCudaTensorType": _mock_cuda_tensor_type,
    }


def _stream_names() -> dict[str, Any]:
    return {
        "_DIPUStreamBase": streams.stream_class(),
        "_DIPUEventBase": streams.event_class(),
        "_dipu_setStream": lambda stream_id=0, device_index=0: streams.set_stream(
            streams.get_stream(stream_id, device.get_index(device_index))
        ),
        "_dipu_getCurrentStream": streams.current_stream,
        "_dipu_getDefaultStream": streams.default_stream,
    }


def _memory_names() -> dict[str, Any]:
    return {
        "_dipu_emptyCache": memory.empty_cache,
        "init_resource": lambda: None,
        "release_all_resources": memory.release_all_resources,
        "memory_reserved": memory.memory_reserved,
        "memory_allocated": memory.memory_allocated,
        "max_memory_reserved": memory.max_memory_reserved,
        "max_memory_allocated": memory.max_memory_allocated,
        "reset_peak_memory_stats": memory.reset_peak_memory_stats,
        "_dipu_dipuCachingAllocator_set_allocator_settings": memory.set_allocator_settings,
        "_dipu_dipuCachingAllocator_raw_alloc": lambda size, stream: memory.caching_allocator_alloc(
            size, _C.current_device(), stream
        ),
        "_dipu_dipuCachingAllocator_raw_delete": memory.caching_allocator_delete,
    }


def _tensor_names() -> dict[str, Any]:
    return {
        "storage_resize_": _storage_resize,
        "is_dipu": activation.is_dipu,
        "dipu": activation.dipu,
        **formats.NAMES,
    }


def _random_names() -> dict[str, Any]:
    generator = random_numbers.get_generator
    return {
        "_manual_seed": lambda index, seed: generator(index).manual_seed(seed) and None,
        "_seed": lambda index: generator(index).seed() and None,
        "_initial_seed": lambda index: generator(index).initial_seed(),
        "_get_rng_state": random_numbers.get_rng_state,
        "_set_rng_state": lambda index, state: random_numbers.set_rng_state(state, index),
        "_is_in_bad_fork": _C.is_bad_fork,
        "_create_dipu_generator": random_numbers.create_generator,
    }


def names() -> dict[str, Any]:
    """Every name of torch_dipu._C."""
    autocast = {name: function for name, function in amp.NAMES.items() if "autocast" in name}
    found = {**_device_names(), **_stream_names(), **_memory_names(), **_tensor_names(), **_random_names()}
    return {**found, **autocast, **measurements.names(), **profiler.native_names()}


def fill(module: ModuleType) -> None:
    """torch_dipu._C."""
    vars(module).update(names())
