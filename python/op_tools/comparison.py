"""Comparison of two results: tolerances, differences, cosine similarity, and the table of the original.

The definitions are the original's: |a - b| <= atol + rtol * |b|, the relative difference of tensors is relative to a
(the device's result) plus 1e-6, b is cast to the type of a first. Everything is computed in double; equal values, two
NaN and equal infinities differ by 0.
"""

from __future__ import annotations

import math
import os
import struct
import sys
from collections.abc import Callable
from typing import Any

import torch

from .containers import traverse_container

# Tolerances and comparison

_TOLERANCES = {torch.float16: 1e-4, torch.bfloat16: 1e-3, torch.float32: 1e-5, torch.float64: 1e-8}
_TOLERANCE = "AUTOCOMPARE_ERROR_TOLERANCE"


def _read_tolerance(variable: str) -> tuple[float, float] | None:
    text = os.environ.get(variable)
    if text is None:
        return None
    try:
        atol, rtol = map(float, text.split(","))
    except ValueError:
        raise ValueError(f"{variable}={text!r} is not of the form 'atol,rtol', e.g. '1e-3,1e-3'") from None
    return atol, rtol


def get_error_tolerance(dtype: torch.dtype, op_name: str) -> tuple[float, float]:
    """(atol, rtol) by <OP>_AUTOCOMPARE_ERROR_TOLERANCE_<DTYPE>, else AUTOCOMPARE_ERROR_TOLERANCE_<DTYPE>, else
    AUTOCOMPARE_ERROR_TOLERANCE, else built in. <OP> is the last part of the operator's name; an in-place operator also
    finds the variable of the plain one. The variables with a dtype exist for float16, bfloat16, float32, float64."""
    variables = []
    if dtype in _TOLERANCES:
        typed = f"{_TOLERANCE}_{str(dtype).removeprefix('torch.').upper()}"
        op = op_name.split(".")[-1].upper()
        variables = [f"{op}_{typed}", typed]
        if op.endswith("_") and not op.endswith("__"):
            variables.insert(1, f"{op[:-1]}_{typed}")
    for variable in [*variables, _TOLERANCE]:
        tolerance = _read_tolerance(variable)
        if tolerance is not None:
            return tolerance
    return (_TOLERANCES.get(dtype, 1e-3),) * 2


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    """Contiguous CPU values in a type that holds every difference: float64, complex128."""
    tensor = tensor.detach().cpu()
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


def _cosine(a: torch.Tensor, b: torch.Tensor) -> float:
    finite = torch.isfinite(a) & torch.isfinite(b)
    if not finite.all():
        a, b = a[finite], b[finite]
    if a.numel() == 0:
        return math.nan
    norm_a, norm_b = (torch.linalg.vector_norm(x).item() for x in (a, b))
    if norm_a == 0 or norm_b == 0:
        return 1.0 if norm_a == norm_b else 0.0
    # Scaled first: the product of two norms may leave the range of double.
    dot = torch.vdot((b / norm_b).reshape(-1), (a / norm_a).reshape(-1))
    return min(1.0, max(-1.0, (dot.real if dot.is_complex() else dot).item()))


def tensor_cos_similarity(a: torch.Tensor, b: torch.Tensor) -> float:
    """Cosine of the angle between two tensors as vectors, over the pairs of which both are finite: 1 when both are
    zero, 0 when one is."""
    return _cosine(_wide(a), _wide(b))


def _worst_difference(difference: torch.Tensor, scale: torch.Tensor) -> float:
    value = (difference / scale).max().item()
    return math.inf if math.isnan(value) and not difference.isnan().any() else value


def _compare_wide(a: torch.Tensor, b: torch.Tensor, atol: float, rtol: float) -> tuple[bool, float, float, float]:
    """(allclose, max |a - b|, max |a - b| / (|a| + 1e-6), cosine). Equal pairs, two NaN and equal infinities differ by
    0; a NaN on one side by NaN; any other infinity by infinity."""
    if a.dtype in (torch.int64, torch.uint64) and not _fits_double(a, b):
        return _compare_long(a, b, atol, rtol)
    a, b = _wide(a), _wide(b)
    same = (a == b) | (a.isnan() & b.isnan())
    if bool(same.all()):
        return True, 0.0, 0.0, _cosine(a, b)
    difference = torch.where(same, 0.0, (a - b).abs())
    close = same | (difference.isfinite() & (difference <= atol + rtol * b.abs()))
    relative = _worst_difference(difference, a.abs() + 1e-6)
    return bool(close.all()), difference.max().item(), relative, _cosine(a, b)


def _fits_double(*tensors: torch.Tensor) -> bool:
    return all(t.numel() == 0 or max(abs(int(t.min())), abs(int(t.max()))) <= 2**53 for t in tensors)


def _compare_long(a: torch.Tensor, b: torch.Tensor, atol: float, rtol: float) -> tuple[bool, float, float, float]:
    """64-bit integers beyond 2^53, exactly."""
    pairs = list(zip(a.reshape(-1).tolist(), b.reshape(-1).tolist(), strict=True))
    close = all(abs(x - y) <= atol + rtol * abs(y) for x, y in pairs)
    largest = float(max(abs(x - y) for x, y in pairs))
    return close, largest, max(abs(x - y) / (abs(x) + 1e-6) for x, y in pairs), _cosine(_wide(a), _wide(b))


def _relative_difference(a: torch.Tensor, b: torch.Tensor) -> float:
    """Largest |a - b| / (|a| + 1e-6) of flat tensors without mismatched infinities and NaN; by parts that stay in the
    processor's cache."""
    largest, part = 0.0, 1 << 15
    for start in range(0, a.numel(), part):
        wide_a, wide_b = _wide(a[start : start + part]), _wide(b[start : start + part])
        quotient = (wide_a - wide_b).abs().div_(wide_a.abs().add_(1e-6))
        largest = max(largest, quotient.nan_to_num_(0.0).max().item())  # NaN: equal infinities, two NaN
    return largest


def _native_compare(a: torch.Tensor, b: torch.Tensor, atol: float, rtol: float) -> tuple | None:
    """One fused pass in C, where ditorch is loaded; None: not for these tensors. The relative difference of the
    original is not among its results, so tensors that differ are walked once more."""
    function = getattr(sys.modules.get("ditorch._C"), "tensor_compare", None)
    if function is None:
        return None
    try:
        result = function(a, b, rtol=rtol, atol=atol, equal_nan=True)
    except (TypeError, ValueError, RuntimeError, NotImplementedError):
        return None
    if result["nonfinite_mismatch"]:
        return None
    relative = 0.0
    if result["unequal"]:
        relative = _relative_difference(a.cpu().reshape(-1), b.cpu().reshape(-1))
    return bool(result["allclose"]), result["max_abs_diff"], relative, result["cosine"]


def _to_cpu(tensor: torch.Tensor) -> torch.Tensor:
    return (tensor if tensor.layout == torch.strided else tensor.to_dense()).cpu()


# One item

Verdict = tuple[bool, float, float, float, float, float, str]  # allclose, cosine, abs, relative, atol, rtol, info
_NO = (False, -1.0, math.nan, math.nan)


def _round_to_float(value: float) -> float:
    """As float32 arithmetic gives it; values beyond its range stay."""
    try:
        return struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return value


def _judge_tensors(a: torch.Tensor, b: torch.Tensor, op_name: str) -> Verdict:
    info = ""
    if a.dtype != b.dtype:
        info = f"Inconsistent dtypes: {a.dtype} {b.dtype}"
        b = b.detach().to(a.dtype)
    if a.shape != b.shape:
        return (*_NO, 0, 0, f"Inconsistent shape: {a.shape} {b.shape}")
    atol, rtol = get_error_tolerance(a.dtype, op_name)
    if a.numel() == 0:
        return True, 1, 0.0, 0.0, atol, rtol, info
    try:
        a, b = a.detach(), b.detach()
        if a.device != b.device or a.layout != torch.strided or b.layout != torch.strided:
            a, b = _to_cpu(a), _to_cpu(b)
        verdict = _native_compare(a, b, atol, rtol) or _compare_wide(a, b, atol, rtol)
    except (RuntimeError, NotImplementedError) as error:  # no values to read: meta, fake
        return (*_NO, atol, rtol, info + f"not comparable: {str(error).splitlines()[0]}")
    close, difference, relative, cosine = verdict
    if a.is_floating_point() and a.dtype != torch.float64:
        difference = _round_to_float(difference)
    return close, cosine, difference, relative, atol, rtol, info


def _judge_numbers(a: float, b: float) -> Verdict:
    if a == b or (a != a and b != b):
        return True, 1, 0.0, 0.0, 1e-6, 1e-6, ""
    difference = abs(a - b)
    try:
        relative = difference / (abs(b) + 1e-6)
        close = math.isfinite(difference) and difference <= 1e-6 + 1e-6 * abs(b)
    except OverflowError:  # an int that no float holds
        difference, relative, close = math.inf, math.inf, False
    if relative != relative and difference == difference:
        relative = math.inf
    return close, 1 if close else -1, difference, relative, 1e-6, 1e-6, "" if close else f" value: {a} {b} "


def _judge_objects(a: Any, b: Any) -> Verdict:
    info = ""
    try:
        equal = bool(a == b)
    except Exception as error:  # whatever a foreign __eq__ raises
        equal, info = False, str(error)
    info += f" value: {a} {b}"
    return (True, 1, 0, 0, 0, 0, info) if equal else (*_NO, 0, 0, info)


def _judge(a: Any, b: Any, op_name: str) -> Verdict:
    if a is None and b is None:
        return True, 1, 0, 0, 0, 0, ""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return _judge_tensors(a, b, op_name)
    if type(a) is not type(b):
        return (*_NO, 0, 0, f"Inconsistent types: {type(a)} {type(b)}")
    if isinstance(a, bool):
        return (True, 1, 0.0, 0.0, 0, 0, "") if a == b else (*_NO, 0, 0, f" value: {a} {b} ")
    if isinstance(a, (int, float)):
        return _judge_numbers(a, b)
    return _judge_objects(a, b)


# All items


def _describe(items: list) -> str:
    def one(item: Any) -> str:
        if isinstance(item, torch.Tensor):
            return f"{str(item.dtype).removeprefix('torch.')}{list(item.shape)}"
        return type(item).__name__

    return "[" + ", ".join(one(item) for item in items[:8]) + (", ...]" if len(items) > 8 else "]")


def _row(name: str, verdict: Verdict) -> dict[str, Any]:
    close, cosine, difference, relative, atol, rtol, info = verdict
    return {
        "name": f"{name:<30}",
        "allclose": close,
        "cosine_similarity": f"{cosine:1.9f}",
        "max_abs_diff": f"{difference:10.9f}",
        "max_relative_diff": f"{relative:10.9f}",
        "atol": f"{atol:10.9f}",
        "rtol": f"{rtol:10.9f}",
        "error_info": info,
    }


def _worst(values: list[float], choose: Callable = max) -> float:
    """The largest (or smallest); NaN wins over everything."""
    return next((value for value in values if value != value), None) or choose(values)


def compare_result(name: str, a: Any, b: Any, ignore_index: int | None = None, *, op_name: str | None = None) -> dict:
    """Compare two results item by item; a is the device's, b the reference.

    `name` labels the rows; the tolerance is that of `op_name`, by default the label's first word ("torch.add output" is
    judged as torch.add). The answer holds the worst of all items and one row per item in `result_list`."""
    a_items, b_items = list(traverse_container(a)), list(traverse_container(b))
    if len(a_items) != len(b_items):
        counts = f"{len(a_items)} {len(b_items)}"
        return {
            "allclose": False,
            "max_abs_diff": math.nan,
            "max_relative_diff": math.nan,
            "error_info": f"Inconsistent output length: {counts}, {_describe(a_items)} {_describe(b_items)}",
            "atol": math.nan,
            "rtol": math.nan,
            "result_list": [],
        }
    op = op_name if op_name is not None else (name.split() or [""])[0]
    verdicts, rows = [], []
    for i, (a_item, b_item) in enumerate(zip(a_items, b_items, strict=True)):
        if i == ignore_index:
            continue
        verdict = _judge(a_item, b_item, op)
        verdicts.append(verdict)
        rows.append(_row(f"{name}[{i}]" if len(a_items) > 1 else name, verdict))
    closes, cosines, differences, relatives, atols, rtols, infos = (
        zip(*verdicts, strict=True) if verdicts else ((), (1,), (0,), (0,), (0,), (0,), ())
    )
    return {
        "allclose": all(closes),
        "cos_similarity": _worst(list(cosines), min),
        "max_abs_diff": _worst(list(differences)),
        "max_relative_diff": _worst(list(relatives)),
        "error_info": "".join(infos),
        "atol": max(atols),
        "rtol": max(rtols),
        "name": name,
        "result_list": rows,
    }
