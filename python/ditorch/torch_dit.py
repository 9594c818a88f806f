"""alias=off: torch.cuda stays untouched, and the device is reached under its real name, "dit"."""

from __future__ import annotations

import sys
import types

import torch

from . import _C
from .patches import Patches


def _index(device) -> int:
    if device is None:
        return _C.current_device()
    device = torch.device("dit", device) if isinstance(device, int) else torch.device(device)
    return _C.current_device() if device.index is None else device.index


class _Device:
    """torch.dit.device: context that selects a device."""

    def __init__(self, device):
        self._index = _index(device)

    def __enter__(self) -> None:
        self._before = _C.exchange_device(self._index)

    def __exit__(self, *exc_info) -> None:
        _C.set_device(self._before)


def make_module() -> types.ModuleType:
    """torch.dit: the functions that PyTorch's device-neutral code asks for, and the everyday ones."""
    module = types.ModuleType("torch.dit", "The ditorch device.")
    generator = torch.ops.ditorch.default_generator

    def manual_seed_all(seed: int) -> None:
        for index in range(_C.device_count()):
            generator(index).manual_seed(int(seed))

    module.is_available = lambda: _C.device_count() > 0
    module.is_initialized = _C.is_active
    module._is_in_bad_fork = _C.is_bad_fork
    module._lazy_init = module.init = lambda: None
    module.device = _Device
    module.device_count = _C.device_count
    module.current_device = _C.current_device
    module.set_device = lambda device: _C.set_device(_index(device))
    module.synchronize = lambda device=None: _C.synchronize(_index(device))
    module.manual_seed = lambda seed: generator(_C.current_device()).manual_seed(int(seed))
    module.manual_seed_all = manual_seed_all
    module.get_rng_state = lambda device="dit": generator(_index(device)).get_state()
    module.set_rng_state = lambda state, device="dit": generator(_index(device)).set_state(state)
    module.get_amp_supported_dtype = lambda: [torch.float16, torch.bfloat16]
    module.empty_cache = lambda: _C.memory_empty_cache(-1)
    module.memory_allocated = lambda device=None: _C.memory_stats(_index(device))["allocated_bytes"]["all"]["current"]
    return module


def install(patches: Patches) -> None:
    """Put torch.dit in place."""
    module = make_module()
    patches.set(torch, "dit", module)
    patches.item(sys.modules, "torch.dit", module)
