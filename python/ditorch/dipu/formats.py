"""Native memory formats: layouts of one vendor's hardware. The embedded device has plain strided memory alone."""

from __future__ import annotations

import enum
from typing import Any

import torch

from ..refusal import refuse
from .device import get_type


class NativeMemoryFormat(enum.IntEnum):
    """The numbers of DIPU's Ascend build."""

    UNDEFINED = -1
    NCHW = 0
    NHWC = 1
    ND = 2
    NC1HWC0 = 3
    FRACTAL_Z = 4
    NC1HWC0_C04 = 12
    HWCN = 16
    NDHWC = 27
    FRACTAL_NZ = 29
    NCDHW = 30
    NDC1HWC0 = 32
    FRACTAL_Z_3D = 33


def get_native_memory_format(tensor: torch.Tensor) -> NativeMemoryFormat:
    """ND for every tensor of the device: its strides say the rest."""
    if tensor.device.type != get_type():
        raise RuntimeError(f"native memory formats are of tensors on the device; this one is on {tensor.device}")
    return NativeMemoryFormat.ND


def native_memory_format_cast(tensor: torch.Tensor, format: Any) -> torch.Tensor:
    """The tensor itself for ND; every other format is refused by name."""
    wanted = NativeMemoryFormat(format)
    if wanted is get_native_memory_format(tensor):
        return tensor
    why = "its memory is plain and strided (ND); use tensor.contiguous(memory_format=torch.channels_last) or permute"
    refuse(f"native_memory_format_cast(tensor, NativeMemoryFormat.{wanted.name})", why)


NAMES = {
    "NativeMemoryFormat": NativeMemoryFormat,
    "native_memory_format_cast": native_memory_format_cast,
    "get_native_memory_format": get_native_memory_format,
}
