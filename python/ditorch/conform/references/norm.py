"""References of normalization, with saved statistics and gradients.

With z = (x - mean) * s: an error of the mean, at most eps * max|x|, moves z by eps * max|x| * s. Gradients are
s * (h - mean(h) - z * mean(h z)) with h = grad * weight: the magnitude that enters is the sum of these three.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from .base import Call, Result, get_statistics_dtype, reference


def _shape_for(parameter: torch.Tensor | None, x: torch.Tensor) -> torch.Tensor | None:
    """A parameter per channel, to multiply a (N, C, ...) tensor with."""
    return None if parameter is None else parameter.reshape([1, -1] + [1] * (x.dim() - 2))


class _Rows:
    """x as groups of elements that share statistics: dims are those that are reduced."""

    def __init__(self, x: torch.Tensor, dims: list[int], eps: float, centered: bool = True) -> None:
        self.x, self.dims = x, dims
        self.count = max(math.prod(x.shape[d] for d in dims), 1)
        zero = torch.zeros((), dtype=torch.float64)
        self.mean = x.mean(dims, keepdim=True) if centered else zero.expand_as(x.sum(dims, keepdim=True))
        self.variance = ((x - self.mean) ** 2).mean(dims, keepdim=True)
        self.scale = (self.variance + eps).rsqrt()

    def with_statistics(self, mean: torch.Tensor | None, scale: torch.Tensor) -> _Rows:
        """The same with statistics that were given."""
        shape = self.mean.shape
        self.mean = self.mean if mean is None else mean.reshape(shape)
        self.scale = scale.reshape(shape)
        return self

    @property
    def largest(self) -> torch.Tensor:
        if self.x.numel() == 0:
            return torch.zeros_like(self.mean)
        return self.x.abs().amax(self.dims, keepdim=True)

    def normalize(self) -> torch.Tensor:
        return (self.x - self.mean) * self.scale

    def spread(self) -> torch.Tensor:
        """Magnitude that enters a normalized value."""
        return (self.x.abs() + self.mean.abs() + self.largest) * self.scale

    def forward(self, weight: Any, bias: Any) -> Result:
        value, scale = self.normalize(), self.spread()
        if weight is not None:
            value, scale = value * weight, scale * weight.abs()
        if bias is not None:
            value, scale = value + bias, scale + bias.abs()
        return Result(value, scale=scale, terms=self.count, ops=8)

    def statistics(self, dtype: torch.dtype, shape: list[int]) -> tuple[Result, Result]:
        statistics = get_statistics_dtype(dtype)
        spread = self.scale * (1 + (self.largest * self.scale))
        return (
            Result(self.mean.reshape(shape), statistics, scale=self.largest.reshape(shape), terms=self.count),
            Result(self.scale.reshape(shape), statistics, scale=spread.reshape(shape), terms=self.count, ops=8),
        )

    def backward(self, grad: torch.Tensor, weight: Any, centered: bool = True) -> Result:
        h = grad if weight is None else grad * weight
        z, spread = self.normalize(), self.spread()

        def mean(t: torch.Tensor) -> torch.Tensor:
            return t.mean(self.dims, keepdim=True)

        value = h - z * mean(h * z) - (mean(h) if centered else 0)
        scale = h.abs() + spread * mean(h.abs() * spread) + mean(h.abs())
        return Result(value * self.scale, scale=scale * self.scale, terms=self.count, ops=16)


def _sum_over(name: str, value: torch.Tensor, scale: torch.Tensor, dims: list[int], shape: Any) -> dict[str, Result]:
    terms = max(math.prod(value.shape[d] for d in dims), 1)
    summed = value.sum(dims) if dims else value
    scales = scale.sum(dims) if dims else scale
    return {name: Result(summed.reshape(shape), scale=scales.reshape(shape), terms=terms, ops=8)}


# Layer norm, RMS norm


def _layer(call: Call, x: torch.Tensor, shape: list[int], eps: float, centered: bool = True) -> _Rows:
    return _Rows(x, list(range(x.dim() - len(shape), x.dim())), eps, centered)


@reference("LayerNorm")
def run_layer_norm(call: Call) -> dict[str, Result]:
    x, shape = call.wide("input"), call["normalized_shape"]
    rows = _layer(call, x, shape, call["eps"])
    mean, scale = rows.statistics(call.dtype, list(rows.mean.shape))
    return {"out": rows.forward(call.wide("weight"), call.wide("bias")), "save_mean": mean, "save_invstd": scale}


def _layer_backward(call: Call, rows: _Rows, shape: list[int], centered: bool) -> dict[str, Result]:
    grad, weight = call.wide("grad_output"), call.wide("weight")
    lead = list(range(grad.dim() - len(shape)))
    found = {"grad_input": rows.backward(grad, weight, centered)}
    if weight is not None:
        dtype = call["weight"].dtype
        found |= _sum_over("grad_weight", grad * rows.normalize(), grad.abs() * rows.spread(), lead, shape)
        found["grad_weight"].dtype = dtype
    if call["bias"] is not None:
        found |= _sum_over("grad_bias", grad, grad.abs(), lead, shape)
        found["grad_bias"].dtype = call["bias"].dtype
    return found


@reference("LayerNormBackward")
def run_layer_norm_backward(call: Call) -> dict[str, Result]:
    x, shape = call.wide("input"), call["normalized_shape"]
    rows = _layer(call, x, shape, 1e-5)
    call["mean"].copy_(rows.mean.reshape(call["mean"].shape))
    call["rstd"].copy_(rows.scale.reshape(call["rstd"].shape))
    rows = rows.with_statistics(call.wide("mean"), call.wide("rstd"))
    return _layer_backward(call, rows, shape, True)


@reference("RMSNorm")
def run_rms_norm(call: Call) -> dict[str, Result]:
    x, shape = call.wide("input"), call["normalized_shape"]
    rows = _layer(call, x, shape, call["eps"], centered=False)
    _, scale = rows.statistics(call.dtype, list(rows.mean.shape))
    return {"out": rows.forward(call.wide("weight"), call.wide("bias")), "inv_rms": scale}


@reference("RMSNormBackward")
def run_rms_norm_backward(call: Call) -> dict[str, Result]:
    x, shape = call.wide("input"), call["normalized_shape"]
    rows = _layer(call, x, shape, call["eps"], centered=False)
    call["inv_rms"].copy_(rows.scale.reshape(call["inv_rms"].shape))
    return _layer_backward(call, rows.with_statistics(None, call.wide("inv_rms")), shape, False)


@reference("LayerNormGB")
def run_layer_norm_gb(call: Call) -> dict[str, Result]:
    """Layer norm from an axis on, with mean and 1/std in running_mean and running_var."""
    x, axis = call.wide("input"), call["begin_norm_axis"]
    rows = _Rows(x, list(range(axis % max(x.dim(), 1), x.dim())), call["eps"])
    mean, scale = rows.statistics(call.dtype, [rows.mean.numel()])
    return {"out": rows.forward(call.wide("weight"), call.wide("bias")), "running_mean": mean, "running_var": scale}


@reference("LayerNormGBBackward")
def run_layer_norm_gb_backward(call: Call) -> dict[str, Result]:
    x, axis = call.wide("input"), call["begin_norm_axis"]
    axis %= max(x.dim(), 1)
    rows = _Rows(x, list(range(axis, x.dim())), 1e-5)
    call["running_mean"].copy_(rows.mean.reshape(-1))
    call["running_std"].copy_(rows.scale.reshape(-1))
    rows = rows.with_statistics(call.wide("running_mean"), call.wide("running_std"))
    return _layer_backward(call, rows, list(x.shape[axis:]), True)


# Batch norm


def _batch(x: torch.Tensor, eps: float) -> _Rows:
    return _Rows(x, [d for d in range(x.dim()) if d != 1], eps)


@reference("BatchNorm")
def run_batch_norm(call: Call) -> dict[str, Result]:
    x, training = call.wide("input"), call["training"]
    rows, channels = _batch(x, call["eps"]), [x.shape[1]]
    weight, bias = _shape_for(call.wide("weight"), x), _shape_for(call.wide("bias"), x)
    if not training:
        mean = call.wide("running_mean")
        rows = rows.with_statistics(mean, (call.wide("running_var") + call["eps"]).rsqrt())
        found = {"out": rows.forward(weight, bias)}
        for name in ("save_mean", "save_invstd"):
            found[name] = Result(mean, get_statistics_dtype(call.dtype), check="anything")
        return found
    mean, scale = rows.statistics(call.dtype, channels)
    found = {"out": rows.forward(weight, bias), "save_mean": mean, "save_invstd": scale}
    if call["running_mean"] is not None:
        found |= _update_running(call, rows, call["momentum"])
    return found


def _update_running(call: Call, rows: _Rows, momentum: float) -> dict[str, Result]:
    old_mean, old_var = call.wide("running_mean"), call.wide("running_var")
    variance = rows.variance.reshape(-1) * rows.count / max(rows.count - 1, 1)
    size = rows.largest.reshape(-1)
    return {
        "running_mean": Result(
            old_mean * (1 - momentum) + rows.mean.reshape(-1) * momentum, scale=old_mean.abs() + size, terms=rows.count
        ),
        "running_var": Result(
            old_var * (1 - momentum) + variance * momentum,
            scale=old_var.abs() + size * size,
            terms=rows.count,
            ops=8,
        ),
    }


@reference("BatchNormBackward")
def run_batch_norm_backward(call: Call) -> dict[str, Result]:
    x, grad, weight = call.wide("input"), call.wide("grad_output"), call.wide("weight")
    rows = _batch(x, call["eps"])
    if call["training"]:
        call["save_mean"].copy_(rows.mean.reshape(-1))
        call["save_invstd"].copy_(rows.scale.reshape(-1))
        rows = rows.with_statistics(call.wide("save_mean"), call.wide("save_invstd"))
        found = {"grad_input": rows.backward(grad, _shape_for(weight, x))}
    else:
        rows = rows.with_statistics(call.wide("running_mean"), (call.wide("running_var") + call["eps"]).rsqrt())
        scaled = grad * rows.scale * (1 if weight is None else _shape_for(weight, x))
        found = {"grad_input": Result(scaled, ops=8)}
    if weight is not None:
        shape = [x.shape[1]]
        found |= _sum_over("grad_weight", grad * rows.normalize(), grad.abs() * rows.spread(), rows.dims, shape)
        found |= _sum_over("grad_bias", grad, grad.abs(), rows.dims, shape)
        for name in ("grad_weight", "grad_bias"):
            found[name].dtype = call["weight"].dtype
    return found


@reference("BatchNormStats")
def run_batch_norm_stats(call: Call) -> dict[str, Result]:
    x = call.wide("input")
    mean, scale = _batch(x, call["eps"]).statistics(call.dtype, [x.shape[1]])
    return {"mean": mean, "invstd": scale}


@reference("BatchNormGatherStatsWithCounts")
def run_gather_stats(call: Call) -> dict[str, Result]:
    """Mean and 1/std of all processes together from those of each, weighted with their counts."""
    means, scales, counts = call.wide("mean_all"), call.wide("invstd_all"), call.wide("counts").reshape(-1, 1)
    eps, momentum = call["eps"], call["momentum"]
    total = counts.sum()
    mean = (means * counts).sum(0) / total
    variances = scales**-2 - eps
    variance = ((variances + (means - mean) ** 2) * counts).sum(0) / total
    size = means.abs().amax(0) + variance.sqrt()
    statistics = get_statistics_dtype(call.dtype)
    terms = means.shape[0]
    scale = (variance + eps).rsqrt()
    spread = scale * (1 + scale * size) ** 2
    found = {
        "mean": Result(mean, statistics, scale=size, terms=terms),
        "invstd": Result(scale, statistics, scale=spread, terms=terms, ops=16),
    }
    if call["running_mean"] is not None:
        old_mean, old_var = call.wide("running_mean"), call.wide("running_var")
        unbiased = variance * total / (total - 1)
        entering = old_mean.abs() + size
        found["running_mean"] = Result(old_mean * (1 - momentum) + mean * momentum, scale=entering, terms=terms)
        entering = old_var.abs() + size * size + scale**-2
        found["running_var"] = Result(
            old_var * (1 - momentum) + unbiased * momentum, scale=entering, terms=terms, ops=16
        )
    return found


@reference("BatchNormElemt")
def run_batch_norm_elemt(call: Call) -> dict[str, Result]:
    x = call.wide("input")
    rows = _batch(x, 0.0).with_statistics(call.wide("mean"), call.wide("invstd"))
    return {"out": rows.forward(_shape_for(call.wide("weight"), x), _shape_for(call.wide("bias"), x))}


@reference("BatchNormBackwardReduce")
def run_batch_norm_reduce(call: Call) -> dict[str, Result]:
    x, grad = call.wide("input"), call.wide("grad_out")
    mean, scale = call.wide("mean"), call.wide("invstd")
    dims = [d for d in range(x.dim()) if d != 1]
    centered = x - _shape_for(mean, x)
    spread = grad.abs() * (x.abs() + _shape_for(mean, x).abs())
    statistics, shape = get_statistics_dtype(call.dtype), [x.shape[1]]
    found: dict[str, Result] = {}
    if call["input_g"]:
        found |= _sum_over("sum_dy", grad, grad.abs(), dims, shape)
        found |= _sum_over("sum_dy_xmu", grad * centered, spread, dims, shape)
    if call["weight_g"]:
        inverse = _shape_for(scale, x)
        found |= _sum_over("grad_weight", grad * centered * inverse, spread * inverse, dims, shape)
    if call["bias_g"]:
        found |= _sum_over("grad_bias", grad, grad.abs(), dims, shape)
    for name, result in found.items():
        weight = call["weight"]
        result.dtype = weight.dtype if name.startswith("grad") and weight is not None else statistics
    return found


@reference("BatchNormBackwardElemt")
def run_batch_norm_backward_elemt(call: Call) -> dict[str, Result]:
    x, grad, weight = call.wide("input"), call.wide("grad_out"), _shape_for(call.wide("weight"), call["input"])
    mean, scale = _shape_for(call.wide("mean"), x), _shape_for(call.wide("invstd"), x)
    total = call["count"].sum().to(torch.float64)
    dy, xmu = _shape_for(call.wide("sum_dy"), x) / total, _shape_for(call.wide("sum_dy_xmu"), x) / total
    factor = scale * (1 if weight is None else weight)
    value = (grad - dy - (x - mean) * scale * scale * xmu) * factor
    entering = (grad.abs() + dy.abs() + (x.abs() + mean.abs()) * scale * scale * xmu.abs()) * factor.abs()
    return {"grad_input": Result(value, scale=entering, ops=8)}


# Group norm, instance norm


class _Groups:
    """A (N, C, ...) tensor as (N, groups, channels of a group, elements)."""

    def __init__(self, x: torch.Tensor, groups: int) -> None:
        self.shape = x.shape
        self.split = [x.shape[0], groups, x.shape[1] // groups, math.prod(x.shape[2:])]

    def fold(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(self.split)

    def parameter(self, weight: torch.Tensor | None) -> torch.Tensor | None:
        return None if weight is None else weight.reshape(1, self.split[1], self.split[2], 1)

    def unfold(self, result: Result) -> Result:
        result.value = result.value.reshape(self.shape)
        result.scale = result.scale.expand(self.split).reshape(self.shape)
        return result


@reference("GroupNorm")
def run_group_norm(call: Call) -> dict[str, Result]:
    x = call.wide("input")
    groups = _Groups(x, call["num_groups"])
    rows = _Rows(groups.fold(x), [2, 3], call["eps"])
    mean, scale = rows.statistics(call.dtype, [x.shape[0], call["num_groups"]])
    out = rows.forward(groups.parameter(call.wide("weight")), groups.parameter(call.wide("bias")))
    return {"out": groups.unfold(out), "save_mean": mean, "save_invstd": scale}


@reference("GroupNormBackward")
def run_group_norm_backward(call: Call) -> dict[str, Result]:
    x, grad, weight = call.wide("input"), call.wide("grad_output"), call.wide("weight")
    groups = _Groups(x, call["num_groups"])
    rows = _Rows(groups.fold(x), [2, 3], 1e-5)
    call["mean"].copy_(rows.mean.reshape(call["mean"].shape))
    call["rstd"].copy_(rows.scale.reshape(call["rstd"].shape))
    rows = rows.with_statistics(call.wide("mean"), call.wide("rstd"))
    folded = groups.fold(grad)
    found = {"grad_input": groups.unfold(rows.backward(folded, groups.parameter(weight)))}
    if weight is not None:
        shape = [x.shape[1]]
        found |= _sum_over("grad_weight", folded * rows.normalize(), folded.abs() * rows.spread(), [0, 3], shape)
        found |= _sum_over("grad_bias", folded, folded.abs(), [0, 3], shape)
        for name in ("grad_weight", "grad_bias"):
            found[name].dtype = call["weight"].dtype
    return found


@reference("InstanceNorm")
def run_instance_norm(call: Call) -> dict[str, Result]:
    x, axis = call.wide("input"), call["axis"]
    rows = _Rows(x, [d for d in range(1, x.dim()) if d != axis % x.dim()], call["eps"])
    return {"output": rows.forward(_along(call.wide("scale"), x, axis), _along(call.wide("bias"), x, axis))}


def _along(parameter: torch.Tensor | None, x: torch.Tensor, axis: int) -> torch.Tensor | None:
    if parameter is None:
        return None
    return parameter.reshape([-1 if d == axis % x.dim() else 1 for d in range(x.dim())])


@reference("InstanceNormBackward")
def run_instance_norm_backward(call: Call) -> dict[str, Result]:
    x, grad, axis = call.wide("input"), call.wide("grad_output"), call["axis"] % call["input"].dim()
    rows = _Rows(x, [d for d in range(1, x.dim()) if d != axis], call["eps"])
    found = {"grad_input": rows.backward(grad, _along(call.wide("scale"), x, axis))}
    others, shape = [d for d in range(x.dim()) if d != axis], [x.shape[axis]]
    if call["scale"] is not None:
        found |= _sum_over("grad_scale", grad * rows.normalize(), grad.abs() * rows.spread(), others, shape)
    if call["bias"] is not None:
        found |= _sum_over("grad_bias", grad, grad.abs(), others, shape)
    return found
