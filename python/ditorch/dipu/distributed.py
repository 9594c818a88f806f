"""torch_dipu.dipu.distributed: `dicl`, DIPU's process group, is the device's own, which torch knows as `nccl`."""

from __future__ import annotations

from datetime import timedelta
from types import ModuleType
from typing import Any

import torch

from ..patches import Patches
from ..refusal import refuse
from .device import is_mocking

BACKEND = "dicl"
_PLAIN = "there is no process group for it without the alias (DIPU_MOCK_CUDA=false); use gloo with CPU tensors"


def _find_class() -> Any:
    """torch.distributed.ProcessGroupNCCL of the device."""
    if not is_mocking() or not torch.distributed.is_available():
        refuse("torch_dipu._C.ProcessGroupDICL", _PLAIN)
    return torch.distributed.ProcessGroupNCCL


class _Meta(type):
    def __call__(cls, store: Any, rank: int, size: int, timeout: timedelta | None = None) -> Any:
        kind = _find_class()
        return kind(store, rank, size, kind.Options() if timeout is None else kind.Options(timeout=timeout))

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, _find_class())


class ProcessGroupDICL(metaclass=_Meta):
    """ProcessGroupDICL(store, rank, size, timeout): the device's backend; every collective keeps to the timeout."""


def add_name(patches: Patches) -> None:
    """init_process_group("dicl"), "cuda:dicl" and Backend("dicl") mean the device's backend."""
    if is_mocking() and torch.distributed.is_available():
        patches.set(torch.distributed.Backend, BACKEND.upper(), torch.distributed.Backend.NCCL)


def fill(module: ModuleType) -> None:
    """torch_dipu.dipu.distributed."""
    module.ProcessGroupDICL = ProcessGroupDICL
    module.dicl_backend = BACKEND
