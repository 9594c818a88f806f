"""The account of DIPU's names: whether each works on the embedded device, and what to know about it.

`works`: does what it did on DIPU. `neutral`: accepted, answers sensibly, has no effect here. `refused`: raises an error
that names it. The tables of docs/dipu.md are generated from this one (tools/gen_dipu_table.py);
tests/python/test_dipu_names.py holds it against the modules.
"""

from __future__ import annotations

import importlib
import types
from typing import Any

from ..cuda.support import NEUTRAL, REFUSED, WORKS, Support
from .finder import REFUSED as MODULES_REFUSED
from .surface import EXPORTED

TABLE: dict[str, Support] = {}


def _add(module: str, names: str, note: str = "", status: str = WORKS) -> None:
    for name in names.split():
        TABLE[f"{module}.{name}"] = Support(status, note)


def _add_surface() -> None:
    add = lambda names, note="", status=WORKS: _add("torch_dipu.dipu", names, note, status)  # noqa: E731
    add("current_device device_count set_device synchronize is_available")
    add("is_initialized", "the runtime is started by the import of ditorch")
    add("devicectx device_of", "None and negative numbers select nothing")
    add("can_device_access_peer", "takes two devices; without arguments: whether there are two")
    add("get_device_name get_device_properties get_device_capability get_device_status", "-1 is the current device")
    add("GetDeviceProxy GetDeviceStaticProxy")
    add("diputype", "`cuda`, or `dit` with DIPU_PYTHON_DEVICE_AS_CUDA=false")
    add("vendor_type", "`HOST`")
    add("get_dipu_torch_version", "the running torch: 2.13.0 is 21300")
    add("Stream Event StreamContext", "torch.cuda's classes, with `dipu_stream` and `dipu_event`")
    add("current_stream default_stream set_stream stream")
    add("set_sync_debug_mode", "kept; synchronising operators are not reported", NEUTRAL)
    add("is_current_stream_capturing", "as torch.cuda's")
    add("get_rng_state get_rng_state_all set_rng_state set_rng_state_all manual_seed manual_seed_all seed seed_all")
    add("initial_seed _is_in_bad_fork Generator")
    add("default_generators", "the generators that the operators draw from")
    add("memory_allocated memory_reserved max_memory_allocated max_memory_reserved reset_peak_memory_stats")
    add("mem_get_info empty_cache memory_stats memory_summary caching_allocator_alloc caching_allocator_delete")
    add("release_all_resources", "gives cached memory back")
    add("NativeMemoryFormat get_native_memory_format", "every tensor of the device is ND")
    add("native_memory_format_cast", "to ND; other formats are refused by name")
    add("amp nvtx", "submodule")
    for name in EXPORTED:
        TABLE[f"torch_dipu.{name}"] = TABLE[f"torch_dipu.dipu.{name}"]
    _add("torch_dipu", "mockcuda", "DIPU_MOCK_CUDA")
    _add("torch_dipu", "_C dipu profiler", "submodule")


def _add_native() -> None:
    add = lambda names, note="", status=WORKS: _add("torch_dipu._C", names, note, status)  # noqa: E731
    add("dipu_vendor", "`HOST`")
    add("dipu_device_type", "`dit`")
    add("dicl_backend", "`dicl`, another name of the device's `nccl` backend")
    add("_dipu_set_device _dipu_get_device_count _dipu_current_device _dipu_synchronize")
    add("_dipu_getDeviceProperties _dipu_getDeviceStatus", "-1 is the current device")
    add("_DIPUDeviceProperties _DIPUDeviceStatus _DIPUEventBase")
    add("_DIPUStreamBase", "stream_id=0 is the default stream; stream_ptr takes a vendor's handle")
    add("_dipu_setStream _dipu_getCurrentStream _dipu_getDefaultStream")
    add("_dipu_emptyCache release_all_resources memory_reserved memory_allocated max_memory_reserved")
    add("max_memory_allocated reset_peak_memory_stats")
    add("init_resource", "done by the import of ditorch", NEUTRAL)
    add("_dipu_dipuCachingAllocator_set_allocator_settings", "the grammar of PYTORCH_CUDA_ALLOC_CONF")
    add("_dipu_dipuCachingAllocator_raw_alloc _dipu_dipuCachingAllocator_raw_delete")
    add("storage_resize_ is_dipu dipu NativeMemoryFormat get_native_memory_format")
    add("native_memory_format_cast", "to ND; other formats are refused by name")
    add("_manual_seed _seed _initial_seed _get_rng_state _set_rng_state _is_in_bad_fork _create_dipu_generator")
    add("get_autocast_dipu_dtype is_autocast_dipu_enabled set_autocast_dipu_enabled set_autocast_dipu_dtype")
    add("get_dipu_torch_version", "the running torch")
    add("metrics enable_metrics is_metrics_enabled MetricsGroup", "ditorch.metrics; off until enable_metrics(True)")
    add("_prepare_profiler _enable_profiler _disable_profiler _add_metadata_json _kineto_step _supported_activities")
    add("_enable_profiler_api _disable_profiler_api", "a Chrome trace by torch.profiler")
    add("_get_python_device_as_cuda")
    add("_set_python_device_as_cuda", "to the value in force; a change is refused by name")
    add("_mockCudaTensorType", "torch.cuda.FloatTensor ... are of the device already", NEUTRAL)
    add("ProcessGroupDICL", "the device's process group; the timeout counts")


def _add_rest() -> None:
    _add("torch_dipu.profiler", "NativeProfile", "a Chrome trace by torch.profiler")
    _add("torch_dipu.profiler", "dipu_profiler dipu_kineto_available", "torch.profiler's own")
    _add("torch_dipu.dipu.amp", "get_autocast_dipu_dtype set_autocast_dipu_dtype is_autocast_dipu_enabled")
    _add("torch_dipu.dipu.amp", "set_autocast_dipu_enabled")
    _add("torch_dipu.dipu.amp", "is_bf16_supported", "True")
    _add("torch_dipu.dipu.nvtx", "range_push range_pop range_start range_end mark range", "torch.cuda.nvtx")
    _add("torch_dipu.utils.distutis", "auto_env", "SLURM and Open MPI; runs no command. `distutils` is a second name")
    for path, why in MODULES_REFUSED.items():
        TABLE[path] = Support(REFUSED, why)
    _add("torch.Tensor", "dipu is_dipu", "after `import torch_dipu`")
    _add("torch.UntypedStorage", "dipu is_dipu", "after `import torch_dipu`")


_add_surface()
_add_native()
_add_rest()


def resolve(path: str) -> Any:
    """The object that a path of the table names."""
    for cut in range(path.count(".") + 1):
        parts = path.rsplit(".", cut)
        try:
            found: Any = importlib.import_module(parts[0])
        except ImportError:
            continue
        for name in parts[1:]:
            found = getattr(found, name)
        return found
    raise ImportError(path)


def is_public(module: str, name: str) -> bool:
    """Whether the account speaks of `name`: everything but Python's own names, and folders that only a full import
    makes."""
    if name.startswith("__"):
        return False
    value = getattr(importlib.import_module(module), name)
    return not isinstance(value, types.ModuleType) or f"{module}.{name}" in TABLE
