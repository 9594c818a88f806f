"""torch.cuda names that cannot work on the host device: each is replaced by something that raises the one error
naming it.

Classes keep their identity (isinstance and annotations go on working); only making an instance is refused.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from ..patches import Patches
from ..refusal import refusing

_POOL = "it has one allocator per device; torch.cuda.MemPool has pools of it"
_GREEN = "it has no green contexts; use torch.cuda.Stream"
_NVML = "it has no NVML counters; torch.cuda.mem_get_info and memory_stats report memory"
_NCCL = "use torch.distributed, or torch.cuda.comm for tensors of one process"
_GDS = "it has no GPUDirect Storage; use torch.save/torch.load or UntypedStorage.from_file"
_JIT = "it cannot compile CUDA source; write the function with torch operators"
_TUNE = "it has no tunable GEMM kernels"

FUNCTIONS: dict[str, str] = {
    "torch.cuda.memory.change_current_allocator": _POOL,
    "torch.cuda.utilization": _NVML,
    "torch.cuda.memory_usage": _NVML,
    "torch.cuda.temperature": _NVML,
    "torch.cuda.power_draw": _NVML,
    "torch.cuda.clock_rate": _NVML,
    "torch.cuda._compile_kernel": _JIT,
    "torch.cuda.nccl.unique_id": _NCCL,
    "torch.cuda.nccl.init_rank": _NCCL,
    "torch.cuda.nccl.all_reduce": _NCCL,
    "torch.cuda.nccl.reduce": _NCCL,
    "torch.cuda.nccl.broadcast": _NCCL,
    "torch.cuda.nccl.all_gather": _NCCL,
    "torch.cuda.nccl.reduce_scatter": _NCCL,
    "torch.cuda.gds.gds_register_buffer": _GDS,
    "torch.cuda.gds.gds_deregister_buffer": _GDS,
    "torch.cuda.tunable.read_file": _TUNE,
    "torch.cuda.tunable.tune_gemm_in_file": _TUNE,
    "torch.cuda.tunable.mgpu_tune_gemm_in_file": _TUNE,
}

CLASSES: dict[str, str] = {
    "torch.cuda.memory.CUDAPluggableAllocator": _POOL,
    "torch.cuda.gds.GdsFile": _GDS,
    "torch.cuda.green_contexts.GreenContext": _GREEN,
}

METHODS: dict[str, str] = {
    "torch.cuda.green_contexts.GreenContext.create": _GREEN,
    "torch.cuda.green_contexts.GreenContext.max_workqueue_concurrency": _GREEN,
}

JITERATOR = "a function of torch.cuda.jiterator"
"""Made by programs while they are imported (PyTorch's operator database does); its call is refused, as torch's own is
where there is no CUDA."""


def public_name(path: str) -> str:
    """The name users know: torch.cuda.graphs.CUDAGraph is torch.cuda.CUDAGraph."""
    module, _, name = path.rpartition(".")
    if module in ("torch.cuda.graphs", "torch.cuda.memory", "torch.cuda.green_contexts"):
        return f"torch.cuda.{name}"
    return path


def _resolve(path: str):
    module, _, name = path.rpartition(".")
    try:
        owner = importlib.import_module(module)
    except ImportError:
        parent, _, attribute = module.rpartition(".")
        owner = getattr(importlib.import_module(parent), attribute, None)
    return owner, name


def refuse_jiterator(patches: Patches, refused: Callable[..., Any]) -> None:
    """Functions of CUDA source can be made, and refuse when they are called."""
    patches.set(importlib.import_module("torch.cuda.jiterator")._JittedFunction, "__call__", staticmethod(refused))


def install(patches: Patches) -> None:
    """Put the refusals in place; names that this torch does not have are skipped."""
    cuda = importlib.import_module("torch.cuda")
    for path, why in FUNCTIONS.items():
        owner, name = _resolve(path)
        old = getattr(owner, name, None)
        if old is None:
            continue
        refused = refusing(public_name(path), why)
        patches.set(owner, name, refused)
        if getattr(cuda, name, None) is old:
            patches.set(cuda, name, refused)
    for path, why in CLASSES.items():
        owner, name = _resolve(path)
        if hasattr(owner, name):
            patches.set(getattr(owner, name), "__new__", staticmethod(refusing(public_name(path), why)))
    for path, why in METHODS.items():
        owner, name = _resolve(path)
        if owner is not None and hasattr(owner, name):
            patches.set(owner, name, staticmethod(refusing(path.replace(".green_contexts", ""), why)))
    refuse_jiterator(patches, refusing(JITERATOR, _JIT))
