"""How far a result may be from its reference: one rule for every function (docs/conformance.md).

    tolerance = eps(out) * |expected| + (ops + 2 * log2(terms)) * eps(compute) * scale + floor

eps(out) rounds the result to its dtype; eps(compute) is that of the type the work is done in (float32 for the half
types and float32, float64 for float64); `scale` is the sum of the magnitudes that enter (|a| + |b|, |a| @ |b|,
|x f'(x)|: what a small error of an operand does to the result); `terms` how many are added up; `ops` how many roundings
happen on the way, four when nothing is said. `floor` lets subnormal numbers be flushed: the least subnormal of the
result plus the least normal number of the compute type. Integers, bools, comparisons and moved data have no tolerance.
"""

from __future__ import annotations

import math

import torch

OPERATIONS = 4
REAL = {torch.complex64: torch.float32, torch.complex128: torch.float64}
WIDE = {torch.float64: torch.float64, torch.complex128: torch.complex128, torch.complex64: torch.complex128}


def get_wide(dtype: torch.dtype) -> torch.dtype:
    """The type that expected values of a dtype are written in."""
    if dtype.is_complex:
        return torch.complex128
    if dtype.is_floating_point:
        return torch.float64
    return torch.bool if dtype == torch.bool else torch.int64


def get_compute(dtype: torch.dtype) -> torch.dtype:
    """The type in which work on a dtype is done, as PyTorch does it."""
    return torch.float64 if dtype in (torch.float64, torch.complex128) else torch.float32


def round_to(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Values as a tensor of this dtype would hold them, in the wide type."""
    if value.dtype.is_complex and not dtype.is_complex:
        raise TypeError("a complex reference for a real result")
    if value.dtype.is_floating_point and not (dtype.is_floating_point or dtype.is_complex):
        value = value.nan_to_num() if not bool(torch.isfinite(value).all()) else value
    return value.to(dtype).to(get_wide(dtype))


def compute(
    expected: torch.Tensor,
    dtype: torch.dtype,
    scale: torch.Tensor | None = None,
    terms: float = 1,
    ops: float = OPERATIONS,
    compute_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Allowed distance per element, float64, of a result of a floating dtype."""
    out = torch.finfo(REAL.get(dtype, dtype))
    work = torch.finfo(compute_dtype or get_compute(dtype))
    magnitude = expected.abs().nan_to_num(nan=0.0, posinf=0.0).to(torch.float64)
    entering = magnitude if scale is None else torch.maximum(scale.abs().to(torch.float64), magnitude)
    entering = entering.nan_to_num(nan=0.0, posinf=0.0)
    steps = ops + 2 * math.log2(max(terms, 1))
    floor = out.smallest_normal * out.eps + work.smallest_normal
    return out.eps * magnitude + steps * work.eps * entering + floor
