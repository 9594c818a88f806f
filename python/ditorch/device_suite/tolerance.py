"""Tolerances that a user wrote into the expectations file: where there are any, they decide instead of the rule.

[[tolerance]] rows for an entry and a dtype come before [device.tolerance.<dtype>]. Everything else is judged by the one
rule (docs/verdict.md), which needs none. Depends on torch alone.
"""

from __future__ import annotations

from typing import Any

import torch

_FLOATING = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128)


class Tolerance:
    """Widths by the dtype of the result."""

    def __init__(self, table: dict[torch.dtype, tuple[float, float]]) -> None:
        self._table = table

    def find(self, dtype: torch.dtype) -> tuple[float, float] | None:
        """(rtol, atol); None: the rule decides."""
        return self._table.get(dtype)


def choose(dtype: torch.dtype, device: dict[str, Any], row: dict[str, float] | None) -> Tolerance:
    """`device`: the [device] table of the file, `row`: its [[tolerance]] row for this entry and dtype, if any."""
    table = {getattr(torch, name): (w["rtol"], w["atol"]) for name, w in device.get("tolerance", {}).items()}
    if row is not None:
        floating = [d for d in (*_FLOATING, dtype) if d.is_floating_point or d.is_complex]
        table.update(dict.fromkeys(floating, (row["rtol"], row["atol"])))
    return Tolerance(table)
