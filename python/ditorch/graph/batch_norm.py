"""batch_norm as nodes.

A channel's elements are rows, one for each image: rows are folded where they lie, and what they fold to, one number for
each image and channel, is folded over the images. The variance is that of the rows and of their means (Chan's update),
so that nothing is taken away from a sum of squares."""

from __future__ import annotations

from typing import Any

import torch

from .folds import MAX_ROW, Folds
from .nodes import Unfused, Value

MIN_ROW = 16
"""Rows that are shorter cost more than they save."""


class BatchNorm(Folds):
    """`outs` are the fake results."""

    def evaluate_batch_norm(self, args: list[Any], outs: Any) -> list[Any]:
        """input, weight, bias, mean, variance, momentum, epsilon -> result, mean, 1 / deviation. The statistics are
        there as the trace has them, which no kernel gives."""
        value, weight, bias, mean, variance = args[:5]
        work = self._get_statistics_dtype(value, outs[1:])
        if any(tuple(saved.shape) != mean.shape for saved in outs[1:]):
            raise Unfused("statistics of another shape")
        mean, variance = self.cast(mean, work), self.cast(variance, work)
        factor = self._get_factor(variance, args[6], work)
        made = self._normalize(value, weight, bias, mean, factor, outs[0], work)
        return [made, self.point("COPY", [mean], work, mean.shape), factor]

    def train_batch_norm(self, args: list[Any], outs: Any) -> list[Any]:
        """input, weight, bias, [running mean, running variance,] whether it is training, momentum, epsilon -> result,
        mean, 1 / deviation, and the running statistics where there are some."""
        value, weight, bias, *running = args[:-3]
        trains, momentum, epsilon = args[-3:]
        if not trains:
            raise Unfused("a batch_norm in evaluation that is written as one in training")
        work = self._get_statistics_dtype(value, outs[1:3])
        dims, length = self._get_rows(value)
        images = value.shape[0]
        whole = self.cast(value, work)
        part = self._divide(self.fold("SUM", whole, dims), length)
        rest = self.point("SUB", [whole, part], work, value.shape)
        own = self.fold("SUM", self.point("MUL", [rest, rest], work, value.shape), dims)
        total = self.fold("SUM", part, [0])
        apart = self.point("DIV", [total, images], work, part.shape)  # the mean, made where it is needed
        apart = self.point("SUB", [part, apart], work, part.shape)
        apart = self.point("MUL", [apart, apart], work, part.shape)
        apart = self.point("MUL", [apart, length], work, part.shape)
        squares = self.fold("SUM", self.point("ADD", [own, apart], work, part.shape), [0])
        around = [0, *dims]
        total, squares = self.drop_dims(total, around), self.drop_dims(squares, around)
        mean = self._divide(total, images)
        factor = self._get_factor(self._divide(squares, images * length), epsilon, work)
        made = [self._normalize(value, weight, bias, mean, factor, outs[0], work), mean, factor]
        if running:
            unbiased = self._divide(squares, images * length - 1)
            for old, new, out in zip(running, (mean, unbiased), outs[3:], strict=True):
                kept = self.point("MUL", [self.cast(old, work), 1.0 - momentum], work, mean.shape)
                made.append(self._like("ADD_SCALED", [kept, new, float(momentum)], out, work))
        return made

    def batch_norm_backward(self, args: list[Any], outs: Any) -> list[Any]:
        """gradient, input, weight, running mean, running variance, mean, 1 / deviation, whether it was training,
        epsilon, mask -> gradients of input, weight and bias. With r the input without its mean, f = 1 / deviation and
        averages over a channel: (gradient - average(gradient) - r * f * f * average(gradient * r)) * f * weight, and
        sums of gradient * r * f and of gradient; in evaluation the averages are left out."""
        gradient, value, weight, running_mean, running_variance, mean, factor, trains, epsilon = args[:9]
        dims, length = self._get_rows(value)
        work = torch.float64 if value.dtype == torch.float64 else torch.float32
        if not trains:
            mean = self.cast(running_mean, work)
            factor = self._get_factor(self.cast(running_variance, work), epsilon, work)
        if mean.dtype != work or factor.dtype != work or gradient.shape != value.shape:
            raise Unfused("statistics of another dtype")
        gradient, whole = self.cast(gradient, work), self.cast(value, work)
        rest = self.point("SUB", [whole, self.spread(mean, value)], work, value.shape)
        made: list[Any] = [None] * 3
        if trains or outs[1] is not None:
            slope = self._sum_channels(self.point("MUL", [gradient, rest], work, value.shape), dims)
        if trains or outs[2] is not None:
            level = self._sum_channels(gradient, dims)
        if outs[0] is not None:
            left = gradient
            if trains:
                count = value.shape[0] * length
                steep = self.point("MUL", [self._divide(slope, count), factor], work, factor.shape)
                steep = self.point("MUL", [steep, factor], work, factor.shape)
                left = self.point("SUB", [left, self.spread(self._divide(level, count), value)], work, value.shape)
                late = self.point("COPY", [mean], work, mean.shape)  # beside the sums: behind them the rest is made
                rest = self.point("SUB", [whole, self.spread(late, value)], work, value.shape)  # again, and not kept
                along = self.point("MUL", [rest, self.spread(steep, value)], work, value.shape)
                left = self.point("SUB", [left, along], work, value.shape)
            scale = self._get_scale(factor, weight, work)
            made[0] = self._like("MUL", [left, self.spread(scale, value)], outs[0], work)
        if outs[1] is not None:
            made[1] = self._like("MUL", [slope, factor], outs[1], work)
        if outs[2] is not None:
            op = "COPY" if outs[2].dtype == work else "CAST"
            made[2] = self.point(op, [level], outs[2].dtype, outs[2].shape, outs[2].stride())
        return made

    @staticmethod
    def _get_statistics_dtype(value: Value, saved: Any) -> torch.dtype:
        work = torch.float64 if value.dtype == torch.float64 else torch.float32
        if any(leaf.dtype != work for leaf in saved):
            raise Unfused("statistics of another dtype")
        return work

    @staticmethod
    def _get_rows(value: Value) -> tuple[list[int], int]:
        """The dimensions of an image, and how many elements of a channel it has."""
        length = 1
        for size in value.shape[2:]:
            if not isinstance(size, int):
                raise Unfused("a batch_norm over images whose size changes")
            length *= size
        if not value.is_contiguous or not MIN_ROW <= length <= MAX_ROW or not value.dtype.is_floating_point:
            raise Unfused("a batch_norm over images that are small, large or not contiguous")
        return list(range(2, len(value.shape))), length

    def _divide(self, value: Value, count: Any) -> Value:
        return self.point("DIV", [value, count], value.dtype, value.shape)

    def _sum_channels(self, value: Value, dims: list[int]) -> Value:
        """One number for each channel."""
        return self.drop_dims(self.fold("SUM", self.fold("SUM", value, dims), [0]), [0, *dims])

    def _get_factor(self, variance: Value, epsilon: Any, work: torch.dtype) -> Value:
        shifted = self.point("ADD", [variance, float(epsilon)], work, variance.shape)
        return self.point("RSQRT", [shifted], work, variance.shape)

    def _get_scale(self, factor: Value, weight: Any, work: torch.dtype) -> Value:
        return factor if weight is None else self.point("MUL", [factor, self.cast(weight, work)], work, factor.shape)

    def _normalize(
        self, value: Value, weight: Any, bias: Any, mean: Value, factor: Value, out: torch.Tensor, work: torch.dtype
    ) -> Value:
        scale = self._get_scale(factor, weight, work)
        rest = self.point("SUB", [self.cast(value, work), self.spread(mean, value)], work, value.shape)
        shift = None if bias is None else self.spread(self.cast(bias, work), value)
        return self._scale(rest, self.spread(scale, value), shift, out, work)
