"""Reductions, softmax and the norms of PyTorch as nodes."""

from __future__ import annotations

from typing import Any

import torch

from .elementwise import Elementwise
from .nodes import Unfused, Value

MAX_ROW = 8192
"""DIT_REGION_MAX_ROW"""
FOLDS = {"sum": "SUM", "amax": "MAX", "amin": "MIN"}


class Folds(Elementwise):
    """`out` and `outs` are the fake results."""

    def reduction(self, name: str, args: list[Any], kwargs: dict[str, Any], out: torch.Tensor) -> Value:
        value = args[0]
        ndim = len(value.shape)
        dims = args[1] if len(args) > 1 else kwargs.get("dim")
        dims = [dims] if isinstance(dims, int) else dims
        dims = [dim % max(ndim, 1) for dim in dims] if dims else list(range(ndim))
        keep = args[2] if len(args) > 2 else kwargs.get("keepdim", False)
        if name in ("amax", "amin"):
            folded = self.fold(FOLDS[name], self.cast(value, out.dtype), dims)
        else:
            work = self._work(out)
            folded = self.fold("SUM", self.cast(value, work), dims)
            if name == "mean":
                count: Any = 1
                for dim in dims:
                    count = count * value.shape[dim] if ndim else 1
                folded = self.point("DIV", [folded, count], work, folded.shape)
            folded = self.cast(folded, out.dtype)
        if not ndim:
            return self.point("COPY", [folded], out.dtype, out.shape, out.stride())
        return folded if keep else self.drop_dims(folded, dims)

    def softmax(self, args: list[Any], out: torch.Tensor, is_log: bool) -> Value:
        value, dim = args[0], args[1]
        ndim = len(value.shape)
        if not ndim or dim % ndim != ndim - 1 or args[2] or not out.dtype.is_floating_point:
            raise Unfused("a softmax over another dimension than the last")
        work = self._work(out)
        value = self.cast(value, work)
        top = self.fold("MAX", value, [ndim - 1])
        shifted = self.point("SUB", [value, top], work, value.shape)
        powers = self.point("EXP", [shifted], work, value.shape)
        total = self.fold("SUM", powers, [ndim - 1])
        if is_log:
            return self._like("SUB", [shifted, self.point("LOG", [total], work, total.shape)], out, work)
        factor = self.point("RECIPROCAL", [total], work, total.shape)  # as the device's own softmax
        return self._like("MUL", [powers, factor], out, work)

    def softmax_backward(self, args: list[Any], out: torch.Tensor, is_log: bool) -> Value:
        gradient, result, dim = args[0], args[1], args[2]
        ndim = len(result.shape)
        if not ndim or dim % ndim != ndim - 1:
            raise Unfused("a softmax over another dimension than the last")
        work = self._work(out)
        gradient, result = self.cast(gradient, work), self.cast(result, work)
        if is_log:
            total = self.fold("SUM", gradient, [ndim - 1])
            power = self.point("EXP", [result], work, result.shape)
            return self._like("SUB", [gradient, self.point("MUL", [power, total], work, result.shape)], out, work)
        product = self.point("MUL", [gradient, result], work, result.shape)
        total = self.fold("SUM", product, [ndim - 1])
        return self._like("SUB", [product, self.point("MUL", [result, total], work, result.shape)], out, work)

    def _get_norm_dims(self, value: Value, shape: Any) -> tuple[list[int], int]:
        """The last dimensions, and how many elements they have; Unfused where a row is too long to stay close."""
        count = 1
        for size in shape:
            if not isinstance(size, int):
                raise Unfused("a norm over a size that changes")
            count *= size
        if not value.is_contiguous or not 0 < count <= MAX_ROW or not value.dtype.is_floating_point:
            raise Unfused("a norm over rows that are long or not contiguous")
        return list(range(len(value.shape) - len(shape), len(value.shape))), count

    def _scale(self, value: Value, weight: Any, bias: Any, out: torch.Tensor, work: torch.dtype) -> Value:
        if weight is not None:
            value = self.point("MUL", [value, self.cast(weight, work)], work, out.shape)
        if bias is not None:
            value = self.point("ADD", [value, self.cast(bias, work)], work, out.shape)
        return self.point("COPY" if work == out.dtype else "CAST", [value], out.dtype, out.shape, out.stride())

    def layer_norm(self, args: list[Any], outs: Any) -> list[Any]:
        """input, shape, weight, bias, epsilon -> result, mean, 1 / deviation."""
        dims, count = self._get_norm_dims(args[0], args[1])
        work = torch.float64 if args[0].dtype == torch.float64 else torch.float32
        if any(out.dtype != work for out in outs[1:]):
            raise Unfused("statistics of another dtype")
        value = self.cast(args[0], work)
        total = self.fold("SUM", value, dims)
        mean = self.point("DIV", [total, count], work, total.shape)
        rest = self.point("SUB", [value, mean], work, value.shape)
        square = self.point("MUL", [rest, rest], work, value.shape)
        variance = self.fold("SUM", square, dims)
        variance = self.point("DIV", [variance, count], work, variance.shape)
        shifted = self.point("ADD", [variance, float(args[4])], work, variance.shape)
        factor = self.point("RSQRT", [shifted], work, variance.shape)
        scaled = self.point("MUL", [rest, factor], work, value.shape)
        return [self._scale(scaled, args[2], args[3], outs[0], work), mean, factor]

    def rms_norm(self, args: list[Any], outs: Any) -> list[Any]:
        """input, shape, weight, epsilon -> result, 1 / root of the mean square."""
        dims, count = self._get_norm_dims(args[0], args[1])
        work = torch.float64 if args[0].dtype == torch.float64 else torch.float32
        if outs[1].dtype != work or args[3] is None:
            raise Unfused("statistics of another dtype")
        value = self.cast(args[0], work)
        square = self.point("MUL", [value, value], work, value.shape)
        mean = self.fold("SUM", square, dims)
        mean = self.point("DIV", [mean, count], work, mean.shape)
        shifted = self.point("ADD", [mean, float(args[3])], work, mean.shape)
        factor = self.point("RSQRT", [shifted], work, mean.shape)
        scaled = self.point("MUL", [value, factor], work, value.shape)
        return [self._scale(scaled, args[2], None, outs[0], work), factor]

    def layer_norm_backward(self, args: list[Any], outs: Any) -> list[Any]:
        """gradient, input, shape, mean, 1 / deviation, weight, bias, mask -> gradients of input, weight and bias."""
        gradient, value, shape, mean, factor, weight = args[:6]
        return self._norm_backward(gradient, value, shape, mean, factor, weight, outs)

    def rms_norm_backward(self, args: list[Any], outs: Any) -> list[Any]:
        """gradient, input, shape, 1 / root of the mean square, weight, mask -> gradients of input and weight."""
        gradient, value, shape, factor, weight = args[:5]
        return self._norm_backward(gradient, value, shape, None, factor, weight, outs)

    def _norm_backward(
        self, gradient: Value, value: Value, shape: Any, mean: Value | None, factor: Value, weight: Any, outs: Any
    ) -> list[Any]:
        """With x the normalized input and g = gradient * weight: factor * (g - average(g) - x * average(g * x)) by rows
        (without average(g) where no mean is taken away), and sums of gradient * x and of gradient by columns."""
        dims, count = self._get_norm_dims(value, shape)
        work = torch.float64 if value.dtype == torch.float64 else torch.float32
        if not gradient.is_contiguous or gradient.shape != value.shape or factor.dtype != work:
            raise Unfused("a gradient that is not contiguous, or statistics of another dtype")
        gradient, rest = self.cast(gradient, work), self.cast(value, work)
        if mean is not None:
            rest = self.point("SUB", [rest, mean], work, value.shape)
        normal = self.point("MUL", [rest, factor], work, value.shape)
        made: list[Any] = [None] * len(outs)
        if outs[0] is not None:
            scaled = gradient
            if weight is not None:
                scaled = self.point("MUL", [gradient, self.cast(weight, work)], work, value.shape)
            product = self.point("MUL", [scaled, normal], work, value.shape)
            slope = self.fold("SUM", product, dims)
            slope = self.point("DIV", [slope, count], work, slope.shape)
            left = scaled
            if mean is not None:
                level = self.fold("SUM", scaled, dims)
                level = self.point("DIV", [level, count], work, level.shape)
                left = self.point("SUB", [scaled, level], work, value.shape)
            along = self.point("MUL", [normal, slope], work, value.shape)
            left = self.point("SUB", [left, along], work, value.shape)
            made[0] = self._like("MUL", [left, factor], outs[0], work)
        if outs[1] is not None:
            made[1] = self._sum_columns(self.point("MUL", [gradient, normal], work, value.shape), dims, outs[1])
        if len(outs) > 2 and outs[2] is not None:
            made[2] = self._sum_columns(gradient, dims, outs[2])
        return made

    def _sum_columns(self, value: Value, dims: list[int], out: torch.Tensor) -> Value:
        """The sum over all but the last dimensions `dims`."""
        outer = list(range(dims[0]))
        if outer:
            value = self.drop_dims(self.fold("SUM", value, outer), outer)
        return self.point("COPY" if value.dtype == out.dtype else "CAST", [value], out.dtype, out.shape, out.stride())
