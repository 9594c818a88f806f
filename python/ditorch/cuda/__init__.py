"""The torch.cuda surface: what makes torch.cuda's own Python code work on the device.

The rule is to supply the names of torch._C that torch calls, and to replace a Python function of torch only where it
cannot work. `support` is the account of every public name.
"""

from __future__ import annotations

import sys
import types

import torch
import torch.cuda.nccl

from .. import _C
from ..patches import Patches
from . import comm, graphs, legacy_types, memory, neutral, pools, refused, state, streams, tensor, trace


def install(patches: Patches) -> None:
    """Install the whole surface. The caller undoes `patches` when this raises."""
    _reset_state(patches)
    state.prepare()
    for natives in (state.natives(), memory.natives(), comm.natives(), neutral.tunable_natives()):
        for name, value in natives.items():
            if name != "_get_device_properties":
                patches.set(torch._C, name, value)
    streams.install(patches)
    _install_module(patches)
    _install_backends(patches)
    if torch.device("cuda").type != "cuda":
        _install_index(patches)
    refused.install(patches)
    pools.install(patches)
    graphs.install(patches)
    legacy_types.install(patches)
    tensor.install(patches)
    _C.is_cuda_install(torch._C.TensorBase, streams.DEVICE_TYPE)
    patches.defer(_C.is_cuda_restore)


def _reset_state(patches: Patches) -> None:
    """torch.cuda starts uninitialised on the device, even where a real CUDA device was in use before."""
    for name, value in {"_initialized": False, "_cached_device_count": None, "default_generators": ()}.items():
        if hasattr(torch.cuda, name):
            patches.set(torch.cuda, name, value)
    calls = list(torch.cuda._queued_calls)
    patches.defer(lambda: torch.cuda._queued_calls.__setitem__(slice(None), calls))


def _install_module(patches: Patches) -> None:
    """Names that torch.cuda bound when it was imported, before torch._C had them."""
    cuda, natives = torch.cuda, state.natives()
    runtime = memory.make_cudart()
    nvtx = neutral.Nvtx()
    patches.set(torch._C, "_cudart", runtime)
    patches.set(torch._C, "_nvtx", nvtx)
    activate = trace.make_activate(torch._C._activate_gpu_trace, natives["_cuda_synchronize"])
    patches.set(torch._C, "_activate_gpu_trace", activate)
    patches.set(cuda, "_cudart", runtime)
    patches.set(cuda.nvtx, "_nvtx", nvtx)
    patches.set(cuda, "_CudaDeviceProperties", natives["_CudaDeviceProperties"])
    patches.set(cuda, "_get_device_properties", natives["_get_device_properties"])
    patches.set(cuda, "_exchange_device", natives["_cuda_exchangeDevice"])
    patches.set(cuda, "_maybe_exchange_device", natives["_cuda_maybeExchangeDevice"])
    patches.set(cuda, "_is_in_bad_fork", natives["_cuda_isInBadFork"])
    patches.set(cuda, "device_memory_used", memory.device_memory_used)
    patches.set(cuda, "device_count", _device_count)
    patches.set(cuda.random, "device_count", _device_count)
    for module in (cuda, cuda.memory):
        patches.set(module, "list_gpu_processes", memory.list_gpu_processes)
    patches.set(cuda.graphs, "_cuda_isCurrentStreamCapturing", natives["_cuda_isCurrentStreamCapturing"])
    patches.set(cuda.nccl, "is_available", _nccl_is_available)


def _install_index(patches: Patches) -> None:
    """DITORCH_SHOW_DEVICE_AS_CUDA=0: torch.cuda's own check of device arguments knows the name "cuda" only."""
    native = torch.cuda._utils._get_device_index

    def _get_device_index(device, optional=False, allow_cpu=False):
        device = torch.device(device) if isinstance(device, str) else device
        if not isinstance(device, torch.device) or device.type not in streams.DEVICE_NAMES:
            return native(device, optional, allow_cpu)
        return native(None if device.index is None else device.index, optional, allow_cpu)

    for name, module in list(sys.modules.items()):
        if name.startswith("torch.cuda") and getattr(module, "_get_device_index", None) is native:
            patches.set(module, "_get_device_index", _get_device_index)


def _device_count() -> int:
    """Number of devices (torch.cuda.device_count). NVML is not asked: another GPU's driver may well be installed."""
    return state.device_count()


def _nccl_is_available(tensors) -> bool:
    """False: torch.cuda.comm then adds tensors itself (torch.cuda.nccl.is_available)."""
    return False


def _install_backends(patches: Patches) -> None:
    """torch.version, torch.backends and the module of the device under its real name."""
    if torch.version.cuda is None:  # a CUDA build without a GPU keeps its own
        patches.set(torch.version, "cuda", state.CUDA_VERSION)
    cudnn = getattr(torch.backends.cudnn, "m", torch.backends.cudnn)
    patches.set(cudnn, "is_acceptable", lambda tensor: False)
    patches.set(torch._C, "_has_cudnn", False)
    module = types.ModuleType(
        "torch.dit", "The ditorch device under its real name; everything of torch.cuda is here too."
    )
    module.__getattr__ = lambda name: getattr(torch.cuda, name)
    module.get_amp_supported_dtype = lambda: [torch.float16, torch.bfloat16]
    patches.set(torch, "dit", module)
    patches.item(sys.modules, "torch.dit", module)
