"""torch_dipu.dipu: the public names of DIPU, gathered."""

from __future__ import annotations

import importlib
from types import ModuleType

import torch

from . import device, formats, memory, random_numbers, streams

_EXPORTED = (
    "can_device_access_peer current_device devicectx device_count device_of synchronize get_device_name "
    "get_device_properties get_device_capability is_available is_initialized set_device GetDeviceProxy "
    "GetDeviceStaticProxy diputype vendor_type current_stream default_stream set_stream set_sync_debug_mode stream "
    "StreamContext Stream Event is_current_stream_capturing get_rng_state get_rng_state_all set_rng_state "
    "set_rng_state_all manual_seed manual_seed_all seed seed_all initial_seed _is_in_bad_fork default_generators "
    "reset_peak_memory_stats empty_cache memory_allocated memory_reserved max_memory_allocated max_memory_reserved "
    "mem_get_info NativeMemoryFormat native_memory_format_cast get_native_memory_format"
)
EXPORTED = tuple(_EXPORTED.split())
"""torch_dipu.dipu.__all__; torch_dipu has all of them too."""


def fill(module: ModuleType) -> None:
    """torch_dipu.dipu."""
    vars(module).update(device.FUNCTIONS, **memory.NAMES, **random_numbers.names(), **streams.names(), **formats.NAMES)
    module.diputype, module.vendor_type = device.get_type(), device.VENDOR
    module.get_dipu_torch_version = device.get_torch_version
    module.Generator = torch.Generator
    module.__all__ = list(EXPORTED)
    for name in ("amp", "nvtx"):
        setattr(module, name, importlib.import_module(f"{module.__name__}.{name}"))
