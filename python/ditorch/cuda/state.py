"""The names of torch._C that torch/cuda/__init__.py calls: devices, streams, versions.

Supplying them keeps torch.cuda's own Python functions in charge (lazy initialisation, queued seeds, argument checks,
error texts).
"""

from __future__ import annotations

import torch

from .. import _C, visible
from ..refusal import refusing
from .properties import _CudaDeviceProperties, get_device_properties
from .streams import DEVICE_TYPE, sleep

CUDA_VERSION = "12.4"
"""What torch.version.cuda answers: None sends libraries onto paths without CUDA."""
CUDA_VERSION_NUMBER = 12040

_settings: dict[str, object] = {}
_generators: tuple[torch.Generator, ...] = ()


def get_architectures() -> str:
    """Those of the devices: PyTorch warns about a device that is not among what it was built for."""
    properties = map(_C.device_properties, range(_C.device_count()))
    return " ".join(sorted({f"sm_{one['major']}{one['minor']}" for one in properties}))


def prepare() -> None:
    """At installation: ask for the default generators, which cannot be done later inside a torch.jit trace."""
    global _generators
    _generators = tuple(torch.ops.ditorch.default_generator(index) for index in range(_C.device_count()))


def _follow_environment() -> None:
    """CUDA_VISIBLE_DEVICES counts until the first use of the device: a program may set it after its imports."""
    if not torch.cuda.is_initialized() and visible.is_outdated():
        from .. import installation

        if installation.is_untouched():
            installation.restart()
            get_device_properties.cache_clear()
            prepare()


def device_count() -> int:
    """Devices that CUDA_VISIBLE_DEVICES leaves visible."""
    _follow_environment()
    return min(_C.device_count(), len(visible.ordinals))


def init() -> None:
    """First use of the device: called once by torch.cuda._lazy_init."""
    count = device_count()
    if count == 0:
        raise RuntimeError("No CUDA GPUs are available")
    torch.cuda.default_generators = _generators[:count]


def get_device() -> int:
    return _C.current_device()


def set_device(index: int) -> None:
    if index >= 0:
        _C.set_device(index)


def exchange_device(index: int) -> int:
    return _C.exchange_device(index) if index >= 0 else -1


def maybe_exchange_device(index: int) -> int:
    """Not the same object as exchange_device: Dynamo keys its handlers by identity."""
    return _C.exchange_device(index) if index >= 0 else -1


def synchronize() -> None:
    _C.synchronize(_C.current_device())


def get_current_stream(device: int) -> tuple[int, int, int]:
    return (_C.stream_current(device), device, DEVICE_TYPE)


def get_default_stream(device: int) -> tuple[int, int, int]:
    return (0, device, DEVICE_TYPE)


def get_stream_from_external(pointer: int, device: int) -> tuple[int, int, int]:
    return (pointer, device, DEVICE_TYPE)


def get_current_raw_stream(device: int) -> int:
    return _C.stream_raw(device, _C.stream_current(device)) or 0


def set_stream(stream_id: int, device_index: int, device_type: int) -> None:
    """Select the stream and, as CUDA does, its device."""
    _C.set_device(device_index)
    _C.stream_set(device_index, stream_id)


def can_device_access_peer(device: int, peer: int) -> bool:
    """Devices of the host vendor share one address space."""
    return device != peer


def get_device_capability(device: int) -> dict[str, set[torch.dtype]]:
    """torch.accelerator.get_device_capability: every dtype that the CPU has."""
    kinds = (torch.bool, torch.bfloat16, torch.float16, torch.float32, torch.float64)
    kinds += (torch.complex32, torch.complex64, torch.complex128, torch.int8, torch.int16, torch.int32, torch.int64)
    return {"supported_dtypes": {*kinds, torch.uint8, torch.uint16, torch.uint32, torch.uint64}}


def store(key: str):
    """A setter that keeps a value which changes nothing on this device."""

    def setter(value=None, *rest):
        _settings[key] = value

    return setter


def fetch(key: str, default: object):
    """The getter that belongs to `store`."""

    def getter(*args):
        return _settings.get(key, default)

    return getter


def nothing(*args, **kwargs) -> None:
    """Accepted, without effect on this device."""


def natives() -> dict[str, object]:
    """Names of torch._C supplied by this module."""
    blas = "it has no cuBLAS handle; matrix products run in the vendor library or ATen's CPU kernels"
    solver = "it has no cuSOLVER handle; torch.linalg runs ATen's CPU kernels"
    return {
        "_has_cuda": True,
        "_CudaDeviceProperties": _CudaDeviceProperties,
        "_get_device_properties": get_device_properties,
        "_cuda_init": init,
        "_cuda_isInBadFork": _C.is_bad_fork,
        "_cuda_getDeviceCount": device_count,
        "_cuda_getDevice": get_device,
        "_cuda_setDevice": set_device,
        "_cuda_exchangeDevice": exchange_device,
        "_cuda_maybeExchangeDevice": maybe_exchange_device,
        "_cuda_synchronize": synchronize,
        "_cuda_sleep": sleep,
        "_cuda_getCurrentStream": get_current_stream,
        "_cuda_getDefaultStream": get_default_stream,
        "_cuda_getStreamFromExternal": get_stream_from_external,
        "_cuda_getCurrentRawStream": get_current_raw_stream,
        "_cuda_setStream": set_stream,
        "_cuda_canDeviceAccessPeer": can_device_access_peer,
        "_cuda_hasPrimaryContext": lambda device: torch.cuda.is_initialized(),
        "_cuda_getCompiledVersion": lambda: CUDA_VERSION_NUMBER,
        "_cuda_getArchFlags": get_architectures,
        "_cuda_isCurrentStreamCapturing": lambda: False,
        "_cuda_ipc_collect": nothing,
        "_cuda_set_sync_debug_mode": store("sync_debug_mode"),
        "_cuda_get_sync_debug_mode": fetch("sync_debug_mode", 0),
        "_cuda_getCurrentBlasHandle": refusing("torch.cuda.current_blas_handle", blas),
        "_cuda_getCurrentSolverHandle": refusing("torch.cuda.current_solver_handle", solver),
        "_cuda_clearCublasWorkspaces": nothing,
        "_cuda_getCublasWorkspaceSize": fetch("cublas_workspace", 0),
        "_cuda_setCublasWorkspaceSize": store("cublas_workspace"),
        "_cuda_resetCublasWorkspaceSize": nothing,
        "_cuda_getCublasLtWorkspaceSize": fetch("cublaslt_workspace", 0),
        "_cuda_setCublasLtWorkspaceSize": store("cublaslt_workspace"),
        "_cuda_resetCublasLtWorkspaceSize": nothing,
        "_cuda_get_cudnn_benchmark_limit": fetch("cudnn_benchmark_limit", 10),
        "_cuda_set_cudnn_benchmark_limit": store("cudnn_benchmark_limit"),
        "_cuda_get_conv_benchmark_empty_cache": fetch("conv_benchmark_empty_cache", False),
        "_cudnn_set_conv_benchmark_empty_cache": store("conv_benchmark_empty_cache"),
        "_cuda_attach_out_of_memory_observer": nothing,
        "_accelerator_getDeviceCapability": get_device_capability,
        "_accelerator_getMemoryInfo": lambda device: _C.memory_info(device),
        "_cuda_lock_mutex": nothing,
        "_cuda_unlock_mutex": nothing,
    }
