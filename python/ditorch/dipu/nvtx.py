"""torch_dipu.dipu.nvtx: torch.cuda.nvtx while "cuda" means the device; ranges that do nothing else."""

from __future__ import annotations

import contextlib
from types import ModuleType

import torch

from ..cuda.neutral import Nvtx
from .device import is_mocking

NAMES = ("range_push", "range_pop", "range_start", "range_end", "mark", "range")


def fill(module: ModuleType) -> None:
    """torch_dipu.dipu.nvtx."""
    if is_mocking():
        vars(module).update({name: getattr(torch.cuda.nvtx, name) for name in NAMES})
    else:
        _fill_plain(module, Nvtx())
    module.__all__ = list(NAMES)


def _fill_plain(module: ModuleType, ranges: Nvtx) -> None:
    @contextlib.contextmanager
    def range(msg: str, *args, **kwargs):
        ranges.rangePushA(msg.format(*args, **kwargs))
        try:
            yield
        finally:
            ranges.rangePop()

    module.range_push, module.range_pop = ranges.rangePushA, ranges.rangePop
    module.range_start, module.range_end = ranges.rangeStartA, ranges.rangeEnd
    module.mark, module.range = ranges.markA, range
