"""How far a device's value may be from the CPU's. The rule, the first that applies:

1. a [[tolerance]] row of the expectations file for this entry and dtype;
2. where the file's [device] says database = "cuda": the widest that the database itself gives the entry for CUDA in
   this dtype (toleranceOverride, precisionOverride), if wider than 3;
3. [device.tolerance.<dtype>] of the file;
4. torch.testing's for the dtype of the result.

Outside of it, a value may still be nearer to the truth than the CPU's: see `compare.settle`. Depends on torch alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.testing._comparison import default_tolerances

COMPARISON = "test_compare_cpu"
"""PyTorch's own test of CUDA against the CPU; entries that it leaves out have results that need not agree."""


class Tolerance:
    """Widths by the dtype of the result; `values` False: the results need not agree in value at all."""

    def __init__(self, table: dict[torch.dtype, tuple[float, float]], values: bool = True) -> None:
        self._table = table
        self.values = values

    def get(self, dtype: torch.dtype) -> tuple[float, float]:
        """(rtol, atol)"""
        return self._table.get(dtype) or default_tolerances(dtype)


def choose(op: Any, dtype: torch.dtype, device: dict[str, Any], row: dict[str, float] | None) -> Tolerance:
    """`device`: the [device] table of the file, `row`: its [[tolerance]] row for this entry and dtype, if any."""
    table = {getattr(torch, name): (w["rtol"], w["atol"]) for name, w in device.get("tolerance", {}).items()}
    values = True
    if device.get("database") == "cuda":
        values = not is_left_out(op, dtype)
        for own, rtol, atol in list_overrides(op, dtype):
            before = table.get(own) or default_tolerances(own)
            table[own] = (max(before[0], rtol), max(before[1], atol))
    if row is not None:
        floating = [d for d in (*_FLOATING, dtype) if d.is_floating_point or d.is_complex]
        table.update(dict.fromkeys(floating, (row["rtol"], row["atol"])))
    return Tolerance(table, values)


_FLOATING = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128)


def list_overrides(op: Any, dtype: torch.dtype) -> Iterator[tuple[torch.dtype, float, float]]:
    """(dtype, rtol, atol) of every mark of the entry that holds on CUDA for samples of `dtype`."""
    for mark in _list_marks(op, dtype):
        for own, width in getattr(mark, "d", {}).items():
            if isinstance(width, tuple):
                yield own, float(width.rtol), float(width.atol)
            else:
                yield own, default_tolerances(own)[0], float(width)


def _list_marks(op: Any, dtype: torch.dtype, test: str | None = None) -> Iterator[Any]:
    for info in op.decorators:
        if not hasattr(info, "decorators"):
            yield from () if test else (info,)
            continue
        holds = info.active_if is True and info.device_type in (None, "cuda")
        holds = holds and (info.dtypes is None or dtype in info.dtypes)
        if holds and test is not None:
            holds = info.cls_name in (None, "TestCommon") and info.test_name in (None, test)
        if holds:
            yield from info.decorators


def is_left_out(op: Any, dtype: torch.dtype) -> bool:
    """PyTorch does not compare this entry's results on CUDA with the CPU's."""
    return any(not isinstance(getattr(mark, "d", None), dict) for mark in _list_marks(op, dtype, COMPARISON))
