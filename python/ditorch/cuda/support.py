"""The account of torch.cuda: every public name, whether it works on the host device, and what to know about it.

`works`: does what it does on CUDA. `neutral`: accepted, answers sensibly, has no effect here. `refused`: raises
NotSupportedError that names it. docs/cuda-surface.md is generated from this table (tools/gen_cuda_table.py);
tests/python/test_cuda_surface.py holds it against the running torch.
"""

from __future__ import annotations

import importlib
import pkgutil
import types
from typing import NamedTuple

WORKS, NEUTRAL, REFUSED = "works", "neutral", "refused"


class Support(NamedTuple):
    """One line of the account."""

    status: str
    note: str = ""


TABLE: dict[str, Support] = {}

TESTED_TORCH = "2.13"
"""The release whose names the table lists; other releases may have a few more or fewer."""


def _add(module: str, status: str, names: str, note: str = "") -> None:
    for name in names.split():
        TABLE[f"{module}.{name}"] = Support(status, note)


def _same(module: str, names: str) -> None:
    """Names that `module` shares with torch.cuda."""
    for name in names.split():
        TABLE[f"{module}.{name}"] = TABLE[f"torch.cuda.{name}"]


def _add_types() -> None:
    kinds = ["BFloat16", "Bool", "Byte", "Char", "Double", "Float", "Half", "Int", "Long", "Short"]
    tensor_note = "constructor, isinstance, Tensor.type and set_default_tensor_type"
    _add("torch.cuda", WORKS, " ".join(f"{kind}Tensor" for kind in kinds), tensor_note)
    sparse = " ".join(f"{kind}Tensor" for kind in kinds if kind != "Bool")
    _add("torch.cuda.sparse", WORKS, sparse, "constructor, isinstance and Tensor.type")
    kinds += ["ComplexDouble", "ComplexFloat"]
    _add("torch.cuda", WORKS, " ".join(f"{kind}Storage" for kind in kinds), "")


def _add_devices() -> None:
    add = lambda names, note="", status=WORKS: _add("torch.cuda", status, names, note)  # noqa: E731
    add("device device_of set_device current_device init is_initialized is_available")
    add("device_count", "CUDA_VISIBLE_DEVICES and DITORCH_HOST_DEVICES decide")
    add("get_device_name get_device_properties", "of the host device")
    add("get_device_capability", "(8, 0)")
    add("get_arch_list get_gencode_flags", "sm_80")
    add("can_device_access_peer", "True between different devices")
    add(
        "synchronize ipc_collect cudaStatus CudaError check_error DeferredCudaCallError "
        "OutOfMemoryError AcceleratorError"
    )
    add("cudart", "cudaMemGetInfo, cudaHostRegister/Unregister, cudaProfilerStart/Stop, cudaGetErrorString")
    add("is_bf16_supported is_tf32_supported", "True")
    add("has_half has_magma")
    add("get_sync_debug_mode set_sync_debug_mode", "kept; synchronising operators are not reported", NEUTRAL)
    add("current_blas_handle current_solver_handle", "no cuBLAS or cuSOLVER handle", REFUSED)
    add("utilization memory_usage temperature power_draw clock_rate", "no NVML counters", REFUSED)
    add("device_memory_used", "total minus free memory of the device")
    add("list_gpu_processes", "this process")
    add("amp graphs jiterator memory nccl nvtx profiler random sparse streams tunable", "submodule")


def _add_streams() -> None:
    _add(
        "torch.cuda",
        WORKS,
        "Stream ExternalStream",
        "real streams with a worker thread each; the default stream runs inline",
    )
    _add("torch.cuda", WORKS, "Event", "record, wait, query, synchronize, elapsed_time; IPC handles are refused")
    _add("torch.cuda", WORKS, "StreamContext stream set_stream current_stream default_stream get_stream_from_external")
    _same("torch.cuda.streams", "Stream ExternalStream Event")
    _add("torch.cuda", REFUSED, "GreenContext", "no green contexts")
    _same("torch.cuda.green_contexts", "GreenContext")
    graphs = "CUDAGraph graph graph_pool_handle make_graphed_callables is_current_stream_capturing"
    _add("torch.cuda", WORKS, graphs, "a tape of the operators, run again over the same storages")
    _same("torch.cuda.graphs", graphs)


def _add_memory() -> None:
    counters = (
        "memory_allocated max_memory_allocated memory_reserved max_memory_reserved memory_cached max_memory_cached "
        "memory_stats "
        "memory_stats_as_nested_dict memory_summary reset_accumulated_memory_stats reset_peak_memory_stats "
        "reset_max_memory_allocated reset_max_memory_cached host_memory_stats host_memory_stats_as_nested_dict "
        "reset_peak_host_memory_stats"
    )
    _add("torch.cuda", WORKS, counters, "counters of the caching allocator")
    _add("torch.cuda", NEUTRAL, "reset_accumulated_host_memory_stats", "pinned memory keeps its totals")
    _add("torch.cuda", WORKS, "memory_snapshot", "segments and blocks; no allocation history")
    rest = (
        "mem_get_info empty_cache caching_allocator_alloc caching_allocator_delete caching_allocator_enable "
        "caching_allocator_disabled get_per_process_memory_fraction set_per_process_memory_fraction "
        "get_allocator_backend"
    )
    _add("torch.cuda", WORKS, rest)
    pools = "MemPool use_mem_pool"
    _add("torch.cuda", WORKS, pools, "segments of their own; use_on_oom, no_split and an allocator are refused")
    allocators = "CUDAPluggableAllocator change_current_allocator"
    _add("torch.cuda", REFUSED, allocators, "one allocator per device")
    _same(
        "torch.cuda.memory",
        f"{counters} {rest} {pools} {allocators} memory_snapshot reset_accumulated_host_memory_stats",
    )
    _same("torch.cuda.memory", "list_gpu_processes is_initialized")


def _add_random() -> None:
    names = (
        "get_rng_state get_rng_state_all set_rng_state set_rng_state_all manual_seed manual_seed_all "
        "seed seed_all initial_seed"
    )
    _add("torch.cuda", WORKS, names, "Philox generator; seeds given before the first use are kept")
    _add("torch.cuda", WORKS, "default_generators")
    _same("torch.cuda.random", f"{names} current_device device_count is_initialized")


def _add_submodules() -> None:
    for module, names in {
        "torch.cuda.amp": "GradScaler amp_definitely_not_available autocast custom_bwd custom_fwd",
        "torch.cuda.amp.autocast_mode": "autocast custom_bwd custom_fwd",
        "torch.cuda.amp.common": "amp_definitely_not_available",
        "torch.cuda.amp.grad_scaler": "GradScaler",
        "torch.cuda.comm": "broadcast broadcast_coalesced gather reduce_add reduce_add_coalesced scatter",
    }.items():
        _add(module, WORKS, names)
    nvtx = "mark range range_end range_pop range_push range_start"
    _add("torch.cuda.nvtx", WORKS, nvtx, "in the trace of torch.profiler; no effect without one")
    _add("torch.cuda.profiler", NEUTRAL, "start stop profile", "there is no vendor profiler to control")
    _same("torch.cuda.profiler", "check_error cudart")
    _add("torch.cuda.nccl", WORKS, "is_available", "False")
    _add("torch.cuda.nccl", WORKS, "version", "of the NCCL whose collectives torch.distributed offers here")
    nccl = "unique_id init_rank all_gather all_reduce broadcast reduce reduce_scatter"
    _add("torch.cuda.nccl", REFUSED, nccl, "use torch.distributed or torch.cuda.comm")
    _add("torch.cuda.gds", REFUSED, "GdsFile gds_register_buffer gds_deregister_buffer", "no GPUDirect Storage")
    settings = (
        "enable is_enabled tuning_enable tuning_is_enabled record_untuned_enable record_untuned_is_enabled "
        "get_filename "
        "set_filename get_max_tuning_duration set_max_tuning_duration get_max_tuning_iterations "
        "set_max_tuning_iterations "
        "get_rotating_buffer_size set_rotating_buffer_size get_results get_validators set_numerical_check_tolerances"
    )
    _add("torch.cuda.tunable", NEUTRAL, settings, "settings are kept; there are no kernels to choose from")
    _add("torch.cuda.tunable", REFUSED, "read_file tune_gemm_in_file mgpu_tune_gemm_in_file", "no tunable kernels")


_add_types()
_add_devices()
_add_streams()
_add_memory()
_add_random()
_add_submodules()


def public_modules() -> list[str]:
    """torch.cuda and its public submodules in the running torch."""
    cuda = importlib.import_module("torch.cuda")
    names = ["torch.cuda"]
    for info in pkgutil.walk_packages(cuda.__path__, "torch.cuda."):
        if not any(part.startswith("_") for part in info.name.split(".")):
            importlib.import_module(info.name)
            names.append(info.name)
    return names


def public_names() -> list[str]:
    """Names in `__all__`, and public functions and classes that torch.cuda defines."""
    found = []
    for module_name in public_modules():
        module = importlib.import_module(module_name)
        names = set(getattr(module, "__all__", ()))
        for name, value in vars(module).items():
            if name.startswith("_") or isinstance(value, types.ModuleType):
                continue
            origin = str(getattr(value, "__module__", ""))
            if origin.startswith(("torch.cuda", "ditorch.")) or _is_error(name, value):
                names.add(name)
        found += [f"{module_name}.{name}" for name in sorted(names)]
    return found


def _is_error(name: str, value: object) -> bool:
    """torch.cuda.OutOfMemoryError and AcceleratorError say they live in torch."""
    return isinstance(value, type) and issubclass(value, Exception) and not name.startswith("_")
