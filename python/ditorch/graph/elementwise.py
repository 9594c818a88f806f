"""Elementwise operators of PyTorch as nodes."""

from __future__ import annotations

from typing import Any

import torch

from .nodes import HALVES, Nodes, Unfused, Value, is_number

UNARY = {
    "neg": "NEG", "abs": "ABS", "sign": "SIGN", "sqrt": "SQRT", "rsqrt": "RSQRT", "reciprocal": "RECIPROCAL",
    "exp": "EXP", "expm1": "EXPM1", "log": "LOG", "log2": "LOG2", "log10": "LOG10", "log1p": "LOG1P", "sin": "SIN",
    "cos": "COS", "tanh": "TANH", "erf": "ERF", "floor": "FLOOR", "ceil": "CEIL", "trunc": "TRUNC", "relu": "RELU",
    "sigmoid": "SIGMOID", "silu": "SILU", "bitwise_not": "NOT", "round": "ROUND",
}  # fmt: skip
BINARY = {
    "mul": "MUL", "maximum": "MAXIMUM", "minimum": "MINIMUM", "bitwise_and": "AND", "bitwise_or": "OR",
    "bitwise_xor": "XOR", "logical_and": "AND", "logical_or": "OR", "logical_xor": "XOR",
}  # fmt: skip
COMPARE = {"eq": "EQ", "ne": "NE", "lt": "LT", "le": "LE", "gt": "GT", "ge": "GE"}
GRADS = {"tanh_backward": "TANH_GRAD", "sigmoid_backward": "SIGMOID_GRAD", "silu_backward": "SILU_GRAD"}


def _make_sample(value: Any) -> Any:
    """Something that promotes as the argument does."""
    if isinstance(value, Value):
        return torch.empty((1,) * len(value.shape), dtype=value.dtype, device="meta")
    return 1 if isinstance(value, torch.SymInt) else value


def _round_number(value: Any, dtype: torch.dtype) -> Any:
    """A number as sums, differences and comparisons take it beside tensors of half precision."""
    is_plain = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_plain or dtype not in HALVES:
        return value
    return torch.tensor(value, dtype=torch.float64, device="cpu").to(dtype).item()


class Elementwise(Nodes):
    """`out` is the fake result."""

    def elementwise(self, name: str, args: list[Any], kwargs: dict[str, Any], out: torch.Tensor) -> Value:
        """One operator by its word; Unfused where it is not one of ours."""
        shape, strides, dtype = out.shape, out.stride(), out.dtype
        if name in ("floor", "ceil", "trunc", "round") and not dtype.is_floating_point:
            name, args = "clone", args[:1]
        is_unary = name in UNARY and len(args) == 1 and not kwargs
        if is_unary and (args[0].dtype == dtype or dtype.is_floating_point):
            return self._like(UNARY[name], args, out)
        if name in BINARY and len(args) == 2 and not kwargs:
            return self._like(BINARY[name], args, out)
        if name in ("add", "sub", "rsub") and len(args) >= 2:
            args = [*(_round_number(arg, dtype) for arg in args[:2]), *args[2:]]
        if name in ("add", "sub") and len(args) in (2, 3):
            alpha = _round_number(args[2] if len(args) == 3 else kwargs.get("alpha", 1), dtype)
            if alpha == 1:
                return self._like(name.upper(), args[:2], out)
            if dtype.is_floating_point and isinstance(args[1], Value) and isinstance(args[0], Value):
                return self._like("ADD_SCALED", [*args[:2], float(alpha) if name == "add" else -float(alpha)], out)
        if name == "rsub" and kwargs.get("alpha", 1) == 1 and len(args) == 2:
            return self._like("SUB", [args[1], args[0]], out)
        if name == "div" and len(args) == 2 and not kwargs and dtype.is_floating_point:
            return self._like("DIV", args, out)
        if name in COMPARE:
            common = torch.result_type(*map(_make_sample, args))
            given = [_round_number(self.cast(arg, common), common) for arg in args]
            return self.point(COMPARE[name], given, torch.bool, shape, strides)
        if name == "logical_not":
            return self.point("NOT", [self.cast(args[0], torch.bool)], torch.bool, shape, strides)
        if name == "isnan" and args[0].dtype.is_floating_point:
            return self.point("ISNAN", args, torch.bool, shape, strides)
        if name == "where" and len(args) == 3:
            picked = [self.cast(arg, dtype) for arg in args[1:]]
            return self.point("WHERE", [self.cast(args[0], torch.bool), *picked], dtype, shape, strides)
        if name == "pow":
            return self._power(args, out)
        if name in ("clamp", "clamp_min", "clamp_max", "hardtanh"):
            return self._clamp(name, args, kwargs, out)
        return self._activation(name, args, kwargs, out)

    def _activation(self, name: str, args: list[Any], kwargs: dict[str, Any], out: torch.Tensor) -> Value:
        work = self._work(out)
        if name == "gelu":
            return self._like("GELU_TANH" if kwargs.get("approximate") == "tanh" else "GELU", args[:1], out)
        if name == "gelu_backward":
            tanh = kwargs.get("approximate") == "tanh"
            return self._like("GELU_TANH_GRAD" if tanh else "GELU_GRAD", args[:2], out)
        if name in GRADS and len(args) == 2:
            return self._like(GRADS[name], args, out)
        if name == "threshold_backward" and isinstance(args[1], Value):
            test = self.point("LE", [args[1], args[2]], torch.bool, args[1].shape)
            return self.point("WHERE", [test, 0, self.cast(args[0], out.dtype)], out.dtype, out.shape, out.stride())
        if name == "leaky_relu":
            slope = args[1] if len(args) > 1 else 0.01
            test = self.point("GT", [args[0], 0], torch.bool, args[0].shape)
            scaled = self.point("MUL", [args[0], slope], out.dtype, out.shape)
            return self.point("WHERE", [test, args[0], scaled], out.dtype, out.shape, out.stride())
        if name in ("addcmul", "addcdiv") and out.dtype.is_floating_point:
            scale = kwargs.get("value", 1)
            first, second, third = (self.cast(arg, work) for arg in args[:3])
            if scale != 1:
                second = self.point("MUL", [second, float(scale)], work, second.shape)
            if name == "addcmul":  # rounds once, as the operator does
                return self._like("ADD_SCALED", [first, second, third], out, work)
            quotient = self.point("DIV", [second, third], work, out.shape)
            return self._like("ADD", [first, quotient], out, work)
        if name == "lerp" and out.dtype.is_floating_point:
            return self._like("LERP", args[:3], out)
        if name in ("clone", "_to_copy", "copy", "convert_element_type"):
            source = args[1] if name == "copy" else args[0]
            if source.dtype == out.dtype:
                return self.point("COPY", [source], out.dtype, out.shape, out.stride())
            return self.point("CAST", [source], out.dtype, out.shape, out.stride())
        if name == "masked_fill" and len(args) == 3 and (is_number(args[2]) or isinstance(args[2], Value)):
            filled = self.cast(args[2], out.dtype)
            return self.point(
                "WHERE", [args[1], filled, self.cast(args[0], out.dtype)], out.dtype, out.shape, out.stride()
            )
        raise Unfused("")

    def _power(self, args: list[Any], out: torch.Tensor) -> Value:
        base, exponent = args
        if isinstance(base, Value) and isinstance(exponent, (int, float)) and out.dtype.is_floating_point:
            base = self.cast(base, out.dtype)
            if exponent == 2:
                return self._like("MUL", [base, base], out)
            if exponent in (0.5, -0.5, -1):
                return self._like({0.5: "SQRT", -0.5: "RSQRT", -1: "RECIPROCAL"}[exponent], [base], out)
        if out.dtype.is_floating_point:
            if out.dtype in HALVES:
                return self._like("POW", args, out, torch.float32)
            return self._like("POW", args, out)
        raise Unfused("")

    def _clamp(self, name: str, args: list[Any], kwargs: dict[str, Any], out: torch.Tensor) -> Value:
        low, high = kwargs.get("min"), kwargs.get("max")
        if name in ("clamp", "hardtanh"):
            low = args[1] if len(args) > 1 else (-1.0 if name == "hardtanh" else low)
            high = args[2] if len(args) > 2 else (1.0 if name == "hardtanh" else high)
        else:
            low, high = (args[1], None) if name == "clamp_min" else (None, args[1])
        if low is None and high is None:
            raise Unfused("")
        value: Any = self.cast(args[0], out.dtype)
        if low is not None:
            value = self._like("CLAMP_MIN", [value, low], out)
        return value if high is None else self._like("CLAMP_MAX", [value, high], out)
