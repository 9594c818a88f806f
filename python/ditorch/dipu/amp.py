"""torch_dipu.dipu.amp: the autocast state of the device. The default dtype is float16, in every thread."""

from __future__ import annotations

from types import ModuleType

import torch

from .device import DEVICE_NAME


def get_autocast_dipu_dtype() -> torch.dtype:
    return torch.get_autocast_dtype(DEVICE_NAME)


def set_autocast_dipu_dtype(dtype: torch.dtype) -> None:
    torch.set_autocast_dtype(DEVICE_NAME, dtype)


def is_autocast_dipu_enabled() -> bool:
    return torch.is_autocast_enabled(DEVICE_NAME)


def set_autocast_dipu_enabled(enabled: bool) -> None:
    torch.set_autocast_enabled(DEVICE_NAME, enabled)


def is_bf16_supported() -> bool:
    """True: the device computes in bfloat16."""
    return True


NAMES = {
    function.__name__: function
    for function in (
        get_autocast_dipu_dtype,
        set_autocast_dipu_dtype,
        is_autocast_dipu_enabled,
        set_autocast_dipu_enabled,
        is_bf16_supported,
    )
}


def fill(module: ModuleType) -> None:
    """torch_dipu.dipu.amp."""
    vars(module).update(NAMES)
    module.autocast, module.GradScaler = torch.autocast, torch.amp.GradScaler
