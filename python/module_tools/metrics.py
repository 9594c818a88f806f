"""Numbers of two tensors: how far the real one is from the expected one.

Everything is float64 on flattened values; two NaN and equal infinities are equal, any other pair with a NaN or an
infinity is a violation. Close is |real - expected| <= atol + rtol * |expected|. Where ditorch is loaded, its fused pass
in C gives the verdict, and tensors that agree are read once.
"""

from __future__ import annotations

import math
import sys
from dataclasses import asdict, dataclass
from typing import Any

import torch

from .snapshot import quiet


@dataclass(frozen=True)
class Metrics:
    """Of one pair. `expected` and `real` are the values where the difference is largest."""

    numel: int
    cosine: float
    norm1: float
    norm2: float
    max_abs: float
    above: int
    above_fraction: float
    violating: int
    violating_fraction: float
    index: tuple[int, ...]
    expected: float
    real: float
    relative: float
    both_zero: bool

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        facts = {name: _finite_or_text(value) for name, value in asdict(self).items()}
        return {**facts, "index": list(self.index)}


def _finite_or_text(value: Any) -> Any:
    """JSON has no NaN and no infinities: they are text there."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def to_plain(tensor: torch.Tensor) -> torch.Tensor:
    """Dense values on the CPU without a graph."""
    tensor = tensor.detach()
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    if tensor.is_nested:
        tensor = tensor.to_padded_tensor(0.0)
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    return tensor.cpu()


def is_close(real: torch.Tensor, expected: torch.Tensor, atol: float, rtol: float) -> bool:
    """Every pair close; shapes are equal."""
    native = getattr(sys.modules.get("ditorch._C"), "tensor_compare", None)
    if native is not None:
        try:
            return bool(native(real, expected, rtol=rtol, atol=atol, equal_nan=True)["allclose"])
        except (TypeError, ValueError, RuntimeError, NotImplementedError):
            pass
    return measure(real, expected, atol, rtol).violating == 0


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    flat = tensor.reshape(-1)
    if flat.is_complex():
        return torch.view_as_real(flat.to(torch.complex128).resolve_conj()).reshape(-1)
    return flat.to(torch.float64)


def _pick(tensor: torch.Tensor, place: int) -> float:
    return float(tensor[place])


def measure(real: torch.Tensor, expected: torch.Tensor, atol: float, rtol: float) -> Metrics:
    """The metric set; shapes are equal. A complex number counts as two values."""
    with quiet():
        a, b = _wide(real), _wide(expected)
        if not a.numel():
            return Metrics(0, 1.0, 0.0, 0.0, 0.0, 0, 0.0, 0, 0.0, (), 0.0, 0.0, 0.0, True)
        same = (a == b) | (a.isnan() & b.isnan())
        difference = torch.where(same, 0.0, (a - b).abs())
        exact = _measure_integers(real, expected)
        if exact is not None:
            difference, same = exact
        bad = ~same & ~((difference <= atol + rtol * b.abs()) & difference.isfinite())
        worst = int(torch.where(difference.isnan(), math.inf, difference).argmax())
        biggest = _pick(difference, worst)
        above = int((~same & ~(difference <= atol)).sum())
        violating, count = int(bad.sum()), a.numel()
        return Metrics(
            numel=count,
            cosine=_cosine(a, b),
            norm1=float(difference.sum()),
            norm2=float(torch.linalg.vector_norm(difference)),
            max_abs=biggest,
            above=above,
            above_fraction=above / count,
            violating=violating,
            violating_fraction=violating / count,
            index=_unravel(worst, real),
            expected=_pick(b, worst),
            real=_pick(a, worst),
            relative=_relative(biggest, _pick(b, worst)),
            both_zero=not bool(a.any()) and not bool(b.any()),
        )


def _measure_integers(real: torch.Tensor, expected: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor] | None:
    """64-bit integers that float64 does not hold: equality and difference of the integers themselves."""
    wide = (torch.int64, torch.uint64)
    if real.dtype not in wide or expected.dtype != real.dtype:
        return None
    x, y = real.reshape(-1).view(torch.int64), expected.reshape(-1).view(torch.int64)
    same = x == y
    difference = (_wide(real) - _wide(expected)).abs()
    near = ~same & (difference < 1 << 12)  # here the integers' own difference cannot overflow
    return torch.where(near, (x - y).abs().to(torch.float64), difference), same


def _cosine(a: torch.Tensor, b: torch.Tensor) -> float:
    """Over the pairs of which both are finite: 1 when both are zero, 0 when one is."""
    finite = a.isfinite() & b.isfinite()
    if not bool(finite.all()):
        a, b = a[finite], b[finite]
    if not a.numel():
        return math.nan
    norm_a, norm_b = float(torch.linalg.vector_norm(a)), float(torch.linalg.vector_norm(b))
    if norm_a == 0 or norm_b == 0:
        return 1.0 if norm_a == norm_b else 0.0
    return min(1.0, max(-1.0, float(torch.dot(a / norm_a, b / norm_b))))


def _relative(difference: float, expected: float) -> float:
    if difference == 0:
        return 0.0
    return difference / abs(expected) if expected != 0 else math.inf


def _unravel(place: int, tensor: torch.Tensor) -> tuple[int, ...]:
    if tensor.is_complex():
        place //= 2
    index = []
    for size in reversed(tensor.shape):
        index.append(place % size)
        place //= size
    return tuple(reversed(index))
