"""How far apart two tensors are, and how far they may be."""

from __future__ import annotations

import math
from typing import Any

import torch
from ditorch import _C

TOLERANCES = {
    "float64": 1e-9,
    "complex128": 1e-9,
    "float32": 1e-5,
    "complex64": 1e-5,
    "float16": 1e-2,
    "complex32": 1e-2,
    "bfloat16": 3e-2,
}
"""By dtype; float8 types have 0.25, integers and bool 0."""


def get_tolerance(*dtypes: str) -> float:
    """That of the coarsest of these dtypes."""
    return max((0.25 if name.startswith("float8") else TOLERANCES.get(name, 0.0) for name in dtypes), default=0.0)


def as_number(value: float) -> float | str:
    """JSON has no infinities."""
    return value if math.isfinite(value) else "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def compare_tensors(a: torch.Tensor, b: torch.Tensor) -> dict[str, Any]:
    """`error`: the largest difference over the largest magnitude; infinite where NaN, infinities or shapes differ."""
    about = {"dtype_a": _name(a), "dtype_b": _name(b)}
    if a.shape != b.shape:
        return {**about, "error": math.inf, "reason": f"shapes {list(a.shape)} and {list(b.shape)}"}
    if a.numel() == 0:
        return {**about, "error": 0.0, "max_abs": 0.0, "same_bits": a.dtype == b.dtype}
    try:
        with torch.no_grad():
            a, b = (tensor if tensor.layout == torch.strided else _C.tensor_plain(tensor) for tensor in (a, b))
            same = a.dtype == b.dtype and _C.tensor_hash(a) == _C.tensor_hash(b)
            found = _C.tensor_compare(a, b, equal_nan=True)
    except (TypeError, ValueError, RuntimeError, NotImplementedError) as error:
        return {**about, "error": math.inf, "reason": f"cannot be compared: {error}"}
    scale = max(
        (abs(found[name]) for name in ("min_a", "max_a", "min_b", "max_b") if math.isfinite(found[name])), default=0.0
    )
    error = found["max_abs_diff"] / scale if scale else 0.0
    told = {**about, "error": error, "max_abs": found["max_abs_diff"], "cosine": found["cosine"]}
    told |= {"unequal": found["unequal"], "numel": found["numel"], "same_bits": same}
    if found["nonfinite_mismatch"]:
        told |= {"error": math.inf, "reason": f"{found['nonfinite_mismatch']} NaN or Inf on one side alone"}
    return told


def _name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
