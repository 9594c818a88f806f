"""torch_dipu.dipu: devices, and the proxies for device arguments.

Everything here asks libdit, so it is the same with the alias and without it (DIPU_MOCK_CUDA=false).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from .. import _C
from ..cuda import properties, state

DEVICE_NAME = "dit"
"""The real name of the device type, which parses in every mode."""

VENDOR = "HOST"
"""What DIPU calls the vendor: CUDA, MLU, NPU ... or, here, the embedded device."""


def is_mocking() -> bool:
    """ "cuda" means the device (DIPU_MOCK_CUDA, the alias)."""
    from .. import installation

    return installation.state.alias != "off"


def get_type() -> str:
    """How the device's type prints: `cuda`, or the real name with DIPU_PYTHON_DEVICE_AS_CUDA=false."""
    return torch.device(DEVICE_NAME).type


def get_index(device: Any, optional: bool = False) -> int:
    """The index that a device, a text, a number or (with `optional`: the current device) None or -1 stands for."""
    if isinstance(device, str):
        device = torch.device(device)
    if isinstance(device, torch.device):
        if device.type != get_type():
            raise ValueError(f"Expected a dipu device, but got: {device}")
        device = device.index
    elif device is not None and (isinstance(device, bool) or not isinstance(device, int)):
        raise TypeError(
            f"a device is a torch.device, a text such as 'dipu:0', a number or None, not {type(device).__name__}"
        )
    if device is None or device == -1:
        if not optional:
            raise ValueError(
                "Expected a dipu device with a specified index or an integer, such as 0 or 'dipu:0', but got none"
            )
        return _C.current_device()
    if not 0 <= device < device_count():
        raise RuntimeError(f"device index {device} is invalid; valid: 0 to {device_count() - 1}, or -1 for the current")
    return device


def device_count() -> int:
    """Devices that CUDA_VISIBLE_DEVICES leaves visible."""
    return state.device_count()


def current_device() -> int:
    """Index of this thread's device."""
    return _C.current_device()


def set_device(device: Any) -> None:
    """Make `device` this thread's."""
    _C.set_device(get_index(device, optional=True))


def synchronize(device: Any = None) -> None:
    """Wait for all streams of the device."""
    _C.synchronize(get_index(device, optional=True))


def is_available() -> bool:
    return device_count() > 0


def is_initialized() -> bool:
    """The runtime has been started, and not by a process that forked this one."""
    return _C.is_active() and not _C.is_bad_fork()


class devicectx:
    """Context that selects a device; None and negative numbers select nothing."""

    def __init__(self, device: Any):
        self.idx = -1 if device is None else device if isinstance(device, int) and device < 0 else get_index(device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        if self.idx >= 0:
            self.prev_idx = _C.exchange_device(self.idx)

    def __exit__(self, *exc_info: Any) -> bool:
        if self.idx >= 0:
            _C.set_device(self.prev_idx)
        return False


class device_of(devicectx):
    """Context that selects the device of a tensor or storage; one of another device selects nothing."""

    def __init__(self, obj: Any):
        super().__init__(obj.device.index if obj.device.type == get_type() else -1)


def can_device_access_peer(device: Any = None, peer_device: Any = None) -> bool:
    """Whether the two devices see each other's memory; without arguments, whether any two do."""
    if device is None and peer_device is None:
        return device_count() > 1
    return state.can_device_access_peer(get_index(device, optional=True), get_index(peer_device, optional=True))


def get_device_properties(device: Any = None) -> Any:
    """Name, version, processors and memory of a device."""
    return properties.get_device_properties(get_index(device, optional=True))


def get_device_name(device: Any = None) -> str:
    return get_device_properties(device).name


def get_device_capability(device: Any = None) -> tuple[int, int]:
    found = get_device_properties(device)
    return found.major, found.minor


class DeviceStatus:
    """torch_dipu._C._DIPUDeviceStatus."""

    def __init__(self, index: int):
        self.free_memory, self.total_memory = _C.memory_info(index)

    def __repr__(self) -> str:
        return f"_DIPUDeviceStatus(free_memory={self.free_memory}, total_memory={self.total_memory})"


def get_device_status(device: Any = None) -> DeviceStatus:
    """Free and total memory, of the device that was asked for."""
    return DeviceStatus(get_index(device, optional=True))


def get_torch_version() -> int:
    """The running torch as DIPU writes it: 2.1.1 is 20101."""
    numbers = torch.__version__.partition("+")[0].split(".")[:3]
    major, minor, patch = (int("".join(filter(str.isdigit, number)) or 0) for number in (*numbers, "0", "0")[:3])
    return (major * 100 + minor) * 100 + patch


def GetDeviceProxy(rawfunc: Callable, pos: int = 0, name: str = "device", caller: str = "obj") -> Callable:
    """`rawfunc` that also takes a number or a text where it wants a torch.device: as argument `pos` (-1: none) or
    `name`. `caller`: "obj" is a method, "static" a function, "class_new" a constructor."""
    if caller not in ("obj", "static", "class_new"):
        raise ValueError(f"caller {caller!r} is unknown; valid: obj, static, class_new")

    def translate(value: Any) -> Any:
        if isinstance(value, int) and not isinstance(value, bool):
            return torch.device(DEVICE_NAME, value)
        return torch.device(value) if isinstance(value, str) else value

    def call(args: tuple, kwargs: dict, first: tuple) -> Any:
        if 0 <= pos < len(args):
            args = (*args[:pos], translate(args[pos]), *args[pos + 1 :])
        if name in kwargs:
            kwargs[name] = translate(kwargs[name])
        return rawfunc(*first, *args, **kwargs)

    if caller == "static":

        def proxy(*args, **kwargs):
            return call(args, kwargs, ())
    elif caller == "class_new":

        def proxy(cls, *args, **kwargs):
            return call(args, kwargs, ())
    else:

        def proxy(self, *args, **kwargs):
            return call(args, kwargs, (self,))

    return functools.update_wrapper(proxy, rawfunc, assigned=("__name__", "__qualname__", "__doc__"))


def GetDeviceStaticProxy(rawfunc: Callable, pos: int = -1, name: str = "device", caller: str = "static") -> Callable:
    """GetDeviceProxy for a function that takes its device by keyword."""
    return GetDeviceProxy(rawfunc, pos, name, caller)


FUNCTIONS = {
    function.__name__: function
    for function in (
        can_device_access_peer,
        current_device,
        devicectx,
        device_count,
        device_of,
        synchronize,
        get_device_name,
        get_device_properties,
        get_device_capability,
        get_device_status,
        is_available,
        is_initialized,
        set_device,
        GetDeviceProxy,
        GetDeviceStaticProxy,
    )
}


def fill(module: ModuleType) -> None:
    """torch_dipu.dipu.device, .utils and .storages."""
    vars(module).update(FUNCTIONS)
    module.__dipu__ = "dipu"
    module.__diputype__ = get_type()
    module.__vendor__ = VENDOR
    module._get_device_index = get_index
    module.get_dipu_torch_version = get_torch_version
    module.check_dipu_torch_compatiable = lambda: True
    module.torch_ver_200, module.torch_ver_211 = 20000, 20101
