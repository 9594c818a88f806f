"""Operators in another honest way: as a device may compute them and the CPU does not, and composed of what the CPU has.

A running sum of float32 that is kept in float32, as devices keep it, errs by far more than the CPU's, which adds up in
float64; where the summands are equal (the gradient of a mean) even more than the roundings of random summands would
suggest. So the judge asks what such a sum costs for these very numbers. Called by C (python/ext/tools/compare/run.c)
for suspicious results of devices other than the embedded one. An operator that the CPU refuses in a dtype (histc of
integers, a grouped product in float64) is composed of others (`run_instead`). Depends on torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def _scan(x: torch.Tensor, dim: int, step: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> torch.Tensor:
    if x.dim() == 0 or x.shape[dim] == 0:
        return x.clone()
    rows = list(x.unbind(dim))
    for i in range(1, len(rows)):
        rows[i] = step(rows[i - 1], rows[i])
    return torch.stack(rows, dim)


class _RunningSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, dim: int) -> torch.Tensor:
        ctx.dim = dim
        return _scan(x, dim, torch.add)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        if gradient.dim() == 0:
            return gradient, None
        return _scan(gradient.flip(ctx.dim), ctx.dim, torch.add).flip(ctx.dim), None


def cumsum(input: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> torch.Tensor:
    return _RunningSum.apply(input if dtype is None else input.to(dtype), dim)


def cumprod(input: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> torch.Tensor:
    return _scan(input if dtype is None else input.to(dtype), dim, torch.mul)


_WAYS = {"cumsum": cumsum, "cumprod": cumprod}


def run_other_way(word: str, args: tuple, kwargs: dict | None) -> Any:
    """The operator (the last word of its name) one step after the other, in the dtype of its input."""
    way = _WAYS.get(word)
    if way is None:
        raise NotImplementedError(f"{word} has no other way")
    return way(*args, **(kwargs or {}))


# ---- what the CPU refuses


def histc(input: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """Of integers, which float64 holds."""
    return torch.histc(input.double(), *args, **kwargs).to(input.dtype)


def grouped_mm(
    a: torch.Tensor,
    b: torch.Tensor,
    offs: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Products of slices: `offs` are their ends along the rows of a, the columns of b, or the dimension they share."""
    if bias is not None:
        raise NotImplementedError("a grouped product with a bias")
    if offs is None:
        return torch.bmm(a, b)
    ends = offs.tolist()
    pairs = list(zip([0, *ends], ends, strict=False))
    if a.dim() == 2 and b.dim() == 3:
        parts = [a[begin:end] @ b[group] for group, (begin, end) in enumerate(pairs)]
        parts.append(a.new_zeros(a.shape[0] - ends[-1], b.shape[-1]))
        return torch.cat(parts)
    if a.dim() == 3 and b.dim() == 2:
        parts = [a[group] @ b[:, begin:end] for group, (begin, end) in enumerate(pairs)]
        parts.append(b.new_zeros(a.shape[1], b.shape[1] - ends[-1]))
        return torch.cat(parts, 1)
    return torch.stack([a[:, begin:end] @ b[begin:end] for begin, end in pairs])


_INSTEAD = {"histc": histc, "_grouped_mm": grouped_mm}


def run_instead(word: str, args: tuple, kwargs: dict | None) -> Any:
    """The operator composed of others; NotImplemented when there is no such composition."""
    way = _INSTEAD.get(word)
    return NotImplemented if way is None else way(*args, **(kwargs or {}))
