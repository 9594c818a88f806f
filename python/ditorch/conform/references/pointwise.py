"""References of pointwise functions: unary, binary, ternary, comparison, logical, foreach, complex, copy.

The magnitude that enters a unary function is |f(x)| + |x f'(x)|, its condition; of sums the magnitude of their terms.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from .base import Call, Result, differentiate, get_float, is_held, reference, widen

EXACT_UNARY = {
    "Sign": torch.sign,
    "Neg": torch.neg,
    "Floor": torch.floor,
    "Ceil": torch.ceil,
    "Relu": torch.relu,
    "Conj": torch.conj_physical,
}
SMOOTH_UNARY = {
    "Sqrt": torch.sqrt,
    "Rsqrt": torch.rsqrt,
    "Sin": torch.sin,
    "Asin": torch.asin,
    "Cos": torch.cos,
    "Acos": torch.acos,
    "Tan": torch.tan,
    "Sinh": torch.sinh,
    "Cosh": torch.cosh,
    "Tanh": torch.tanh,
    "Atan": torch.atan,
    "Asinh": torch.asinh,
    "Acosh": torch.acosh,
    "Atanh": torch.atanh,
    "Sigmoid": torch.sigmoid,
    "Silu": F.silu,
    "Exp": torch.exp,
    "Expm1": torch.expm1,
    "Log": torch.log,
    "Log2": torch.log2,
    "Log10": torch.log10,
    "Log1p": torch.log1p,
    "Erf": torch.erf,
    "Erfinv": torch.erfinv,
    "Reciprocal": torch.reciprocal,
    "Hardswish": F.hardswish,
}


def get_condition(function: Callable[..., torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """|f(x)| + |x f'(x)|."""
    slope = differentiate(function, [x], torch.ones_like(y))[0]
    return y.abs() + (x * slope).abs().nan_to_num(nan=0.0, posinf=0.0)


def _unary_exact(function: Callable[..., torch.Tensor]) -> Any:
    def run(call: Call) -> dict[str, Result]:
        return {"out": Result(function(call.wide("input")), call["input"].dtype, exact=True)}

    return run


def _unary_smooth(function: Callable[..., torch.Tensor]) -> Any:
    def run(call: Call) -> dict[str, Result]:
        x = call.real("input")
        y = function(x)
        return {"out": Result(y, get_float(call["input"].dtype), scale=get_condition(function, x, y))}

    return run


for _name, _function in EXACT_UNARY.items():
    reference(_name)(_unary_exact(_function))
for _name, _function in SMOOTH_UNARY.items():
    reference(_name)(_unary_smooth(_function))


@reference("Abs")
def run_abs(call: Call) -> dict[str, Result]:
    x = call["input"]
    dtype = torch.float32 if x.dtype == torch.complex64 else torch.float64 if x.is_complex() else x.dtype
    return {"out": Result(call.wide("input").abs(), dtype, exact=not x.is_complex())}


@reference("Sgn")
def run_sgn(call: Call) -> dict[str, Result]:
    return {"out": Result(torch.sgn(call.wide("input")), call["input"].dtype, exact=not call["input"].is_complex())}


@reference("IsNan")
def run_isnan(call: Call) -> dict[str, Result]:
    return {"out": Result(torch.isnan(call["input"]), torch.bool, exact=True)}


# Binary


def _operands(call: Call, first: str, second: str) -> tuple[Any, Any, torch.dtype]:
    """Both operands, wide, and the dtype of the result; scalars are numbers."""
    values = []
    for name in (first, second):
        value = call[name]
        values.append(value if isinstance(value, torch.Tensor) else call.number(name))
    dtype = torch.result_type(*values)
    return *[_widen_to(value, dtype) for value in values], dtype


def _widen_to(value: Any, dtype: torch.dtype) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    if dtype.is_complex:
        return value.to(torch.complex128)
    return value.to(torch.float64) if dtype.is_floating_point else value.to(dtype)


def _magnitude(value: Any) -> Any:
    return value.abs() if isinstance(value, torch.Tensor) and value.dtype != torch.bool else _number_magnitude(value)


def _number_magnitude(value: Any) -> Any:
    return value if isinstance(value, torch.Tensor) else abs(value)


def _sum(call: Call, sign: int) -> dict[str, Result]:
    a, b, dtype = _operands(call, "input", "other")
    alpha = call.number("alpha", 1)
    if not isinstance(b, torch.Tensor) and not isinstance(alpha, bool):
        out = torch.add(a, b, alpha=alpha * sign) if sign > 0 else torch.sub(a, b, alpha=alpha)
    else:
        out = torch.add(a, b, alpha=alpha) if sign > 0 else torch.sub(a, b, alpha=alpha)
    if out.dtype.is_floating_point or out.is_complex():
        return {"out": Result(out, dtype, scale=_magnitude(a) + _magnitude(b) * abs(alpha))}
    return {"out": Result(out, dtype, exact=True)}


@reference("Add", "AddScalar")
def run_add(call: Call) -> dict[str, Result]:
    return _sum(call, 1)


@reference("Sub", "SubScalar")
def run_sub(call: Call) -> dict[str, Result]:
    return _sum(call, -1)


@reference("Mul", "MulScalar")
def run_mul(call: Call) -> dict[str, Result]:
    a, b, dtype = _operands(call, "input", "other")
    out = torch.mul(a, b)
    scale = _magnitude(a) * _magnitude(b) if out.is_complex() else None
    return {"out": Result(out, dtype, scale=scale)}


ROUNDING = {0: None, 1: "trunc", 2: "floor"}


@reference("Div", "DivScalar")
def run_div(call: Call) -> dict[str, Result]:
    a, b, dtype = _operands(call, "input", "other")
    mode = ROUNDING[call["rounding_mode"]]
    if mode is None:
        dtype = get_float(dtype)
        a, b = _widen_to(a, dtype), _widen_to(b, dtype)
        return {"out": Result(torch.div(a, b), dtype)}
    if mode == "trunc" and dtype in (torch.float16, torch.bfloat16) and "Scalar" not in call.function:
        # PyTorch divides tensors of half types in their own precision before it cuts
        quotient = torch.div(a.float(), b.float()).to(dtype)
        return {"out": Result(quotient.double().trunc(), dtype, exact=True)}
    return {"out": Result(torch.div(a, b, rounding_mode=mode), dtype, exact=True)}


@reference("Maximum")
def run_maximum(call: Call) -> dict[str, Result]:
    a, b, dtype = _operands(call, "input", "other")
    return {"out": Result(torch.maximum(a, b), dtype, exact=True)}


@reference("Minimum")
def run_minimum(call: Call) -> dict[str, Result]:
    a, b, dtype = _operands(call, "input", "other")
    return {"out": Result(torch.minimum(a, b), dtype, exact=True)}


@reference("Remainder", "RemainderTensor", "RemainderScalar")
def run_remainder(call: Call) -> dict[str, Result]:
    """a - floor(a / b) * b; half types are taken at their own values."""
    a, b, dtype = _operands(call, "input", "other")
    if not isinstance(a, torch.Tensor):
        a = torch.tensor(a, dtype=b.dtype)
    out = torch.remainder(a, b)
    return {"out": Result(out, dtype, scale=_magnitude(a) + _magnitude(b) + torch.zeros_like(out))}


@reference("Pow", "PowScalar", "PowTensor")
def run_pow(call: Call) -> dict[str, Result]:
    """Pow: tensor ^ scalar, PowScalar: scalar ^ tensor, PowTensor: tensor ^ tensor."""
    a, b, dtype = _operands(call, "input", "exponent")
    out = torch.pow(a, b)
    if not (dtype.is_floating_point or dtype.is_complex):
        return {"out": Result(out, dtype, exact=True)}
    base = a if isinstance(a, torch.Tensor) else torch.tensor(float(a), dtype=torch.float64)
    grown = (torch.log(base.abs().clamp_min(1e-30)) * b).abs() if not out.is_complex() else out.abs()
    power = b.abs() if isinstance(b, torch.Tensor) else abs(b)
    scale = out.abs() * (1 + grown + power).nan_to_num(nan=0.0, posinf=0.0)
    return {"out": Result(out, dtype, scale=scale)}


# Ternary


def _promote(call: Call, *names: str) -> tuple[torch.dtype, list[torch.Tensor]]:
    dtype = call[names[0]].dtype
    for name in names[1:]:
        if isinstance(call[name], torch.Tensor):
            dtype = torch.promote_types(dtype, call[name].dtype)
    return dtype, [_widen_to(call[name], dtype) for name in names]


@reference("Addcmul")
def run_addcmul(call: Call) -> dict[str, Result]:
    dtype, (x, a, b) = _promote(call, "input", "tensor1", "tensor2")
    value = call.number("value", 1)
    out = torch.addcmul(x, a, b, value=value)
    floating = out.is_floating_point() or out.is_complex()
    scale = x.abs() + abs(value) * a.abs() * b.abs() if floating else None
    return {"out": Result(out, dtype, scale=scale, exact=not floating)}


@reference("Addcdiv")
def run_addcdiv(call: Call) -> dict[str, Result]:
    dtype, (x, a, b) = _promote(call, "input", "tensor1", "tensor2")
    value = call.number("value", 1)
    out = torch.addcdiv(x, a, b, value=value)
    return {"out": Result(out, dtype, scale=x.abs() + (value * a / b).abs())}


@reference("Clamp", "ClampScalar", "ClampMax", "ClampMaxScalar", "ClampMin", "ClampMinScalar")
def run_clamp(call: Call) -> dict[str, Result]:
    limits = {
        name: call[name] if isinstance(call[name], torch.Tensor) else call.number(name) for name in ("min", "max")
    }
    dtype = call["input"].dtype
    for value in limits.values():
        if value is not None:
            dtype = torch.promote_types(dtype, torch.result_type(call["input"], value))
    wide = {name: _widen_to(value, dtype) for name, value in limits.items() if value is not None}
    out = torch.clamp(_widen_to(call["input"], dtype), **wide)
    numbers = [value for value in wide.values() if not isinstance(value, torch.Tensor)]
    return {"out": Result(out, dtype, exact=is_held(call, *numbers))}


@reference("Where")
def run_where(call: Call) -> dict[str, Result]:
    dtype, (x, y) = _promote(call, "input", "other")
    return {"out": Result(torch.where(call["condition"].to(torch.bool), x, y), dtype, exact=True)}


@reference("LerpTensor", "LerpScalar")
def run_lerp(call: Call) -> dict[str, Result]:
    x, end = call.wide("input"), call.wide("end")
    weight = call.wide("weight") if isinstance(call["weight"], torch.Tensor) else call.number("weight")
    size = weight.abs() if isinstance(weight, torch.Tensor) else abs(weight)
    return {"out": Result(torch.lerp(x, end, weight), scale=(x.abs() + end.abs()) * (1 + size))}


# Comparison, logical, bitwise


def _relation(function: Callable[..., torch.Tensor]) -> Any:
    def run(call: Call) -> dict[str, Result]:
        a, b, _ = _operands(call, "input", "other")
        return {"out": Result(function(a, b), torch.bool, exact=True)}

    return run


for _name, _function in (
    ("Eq", torch.eq),
    ("Ne", torch.ne),
    ("Ge", torch.ge),
    ("Gt", torch.gt),
    ("Le", torch.le),
    ("Lt", torch.lt),
):
    reference(_name, _name + "Scalar")(_relation(_function))
for _name, _function in (("LogicalAnd", torch.logical_and), ("LogicalOr", torch.logical_or)):
    reference(_name)(_relation(_function))


@reference("LogicalNot")
def run_logical_not(call: Call) -> dict[str, Result]:
    return {"out": Result(torch.logical_not(call["input"]), torch.bool, exact=True)}


def _bits(function: Callable[..., torch.Tensor]) -> Any:
    def run(call: Call) -> dict[str, Result]:
        a, b, dtype = _operands(call, "input", "other")
        return {"out": Result(function(a, b), dtype, exact=True)}

    return run


for _name, _function in (("BitwiseAnd", torch.bitwise_and), ("BitwiseOr", torch.bitwise_or)):
    reference(_name, _name + "Scalar")(_bits(_function))
reference("BitwiseNot")(_unary_exact(torch.bitwise_not))


@reference("Equal")
def run_equal(call: Call) -> dict[str, Result]:
    return {"out": Result(torch.equal(call["input"], call["other"]), exact=True)}


# Lists of tensors


def _each(call: Call, function: Callable[..., torch.Tensor], scale: Callable[..., torch.Tensor]) -> list[Result]:
    return [
        Result(function(widen(x)), x.dtype, scale=scale(widen(x)) if x.is_floating_point() else None)
        for x in call["inputs"]
    ]


@reference("ForeachaddScalar", "ForeachaddInpScalar")
def run_foreach_add(call: Call) -> dict[str, Any]:
    other = call.number("other")
    results = _each(call, lambda x: x + other, lambda x: x.abs() + abs(other))
    return {"inputs" if "Inp" in call.function else "outs": results}


@reference("ForeachmulScalar", "ForeachmulInpScalar", "ForeachmulTensor", "ForeachmulInpTensor")
def run_foreach_mul(call: Call) -> dict[str, Any]:
    other = call.wide("other") if isinstance(call["other"], torch.Tensor) else call.number("other")
    return {"inputs" if "Inp" in call.function else "outs": _each(call, lambda x: x * other, lambda x: x * other)}


@reference("ForeachnormScalar")
def run_foreach_norm(call: Call) -> dict[str, Any]:
    order = call.number("ord")
    results = []
    for x in call["inputs"]:
        value = torch.linalg.vector_norm(widen(x), order)
        results.append(Result(value, x.dtype, terms=max(x.numel(), 1)))
    return {"outs": results}


# Complex numbers


@reference("Polar")
def run_polar(call: Call) -> dict[str, Result]:
    dtype = torch.complex128 if call.dtype == torch.float64 else torch.complex64
    size = call.wide("abs")
    return {
        "out": Result(torch.polar(size, call.wide("angle")), dtype, scale=size.abs() * (1 + call.wide("angle").abs()))
    }


@reference("Complex")
def run_complex(call: Call) -> dict[str, Result]:
    dtype = torch.complex128 if call.dtype == torch.float64 else torch.complex64
    return {"out": Result(torch.complex(call.wide("real"), call.wide("imag")), dtype, exact=True)}


@reference("Real", "Imag")
def run_part(call: Call) -> dict[str, Result]:
    x = call.wide("input")
    dtype = torch.float32 if call.dtype == torch.complex64 else torch.float64
    return {"out": Result((x.real if call.function == "diopiReal" else x.imag).clone(), dtype, exact=True)}
