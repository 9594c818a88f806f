"""References of pooling and upsampling.

Max pooling gives an element of its input: exact, with the index of the first largest one, as PyTorch counts it.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.nn import functional as F

from .base import Call, Result, differentiate, reference

RANKS = ("1", "2", "3")


def _rank(call: Call) -> str:
    return call.function[call.function.index("Pool") + 4]


def _sizes(call: Call, name: str) -> Any:
    return call[name] or None


def _max_options(call: Call) -> dict[str, Any]:
    return {
        "kernel_size": call["kernel_size"],
        "stride": _sizes(call, "stride"),
        "padding": call["padding"],
        "dilation": call["dilation"],
        "ceil_mode": call["ceil_mode"],
    }


@reference(*[f"MaxPool{r}d{kind}" for r in RANKS for kind in ("", "WithIndices")])
def run_max_pool(call: Call) -> dict[str, Result]:
    function = getattr(F, f"max_pool{_rank(call)}d")
    value, indices = function(call.wide("input"), **_max_options(call), return_indices=True)
    return {"out": Result(value, exact=True), "indices": Result(indices, torch.int64, exact=True)}


def _scatter_gradient(call: Call, dims: int) -> dict[str, Result]:
    """The gradient goes where the given indices point to: flat places in the pooled dimensions."""
    x, grad, indices = call.wide("input"), call.wide("grad_output"), call["indices"]
    lead = list(x.shape[: x.dim() - dims])
    flat = torch.zeros([*lead, math.prod(x.shape[x.dim() - dims :])], dtype=torch.float64)
    places = indices.reshape(*lead, -1)
    value = flat.scatter_add(-1, places, grad.reshape(*lead, -1)).reshape(x.shape)
    scale = flat.scatter_add(-1, places, grad.abs().reshape(*lead, -1)).reshape(x.shape)
    return {"grad_input": Result(value, scale=scale, terms=max(indices.numel(), 1))}


def _fix_indices(call: Call) -> None:
    """Indices of a backward case must point into the windows: they are those of the forward pass."""
    dims = int(_rank(call))
    if "Adaptive" in call.function:
        size = list(call["grad_output"].shape[-dims:])
        _, found = getattr(F, f"adaptive_max_pool{dims}d")(call.wide("input"), size, return_indices=True)
    else:
        function = getattr(F, f"max_pool{dims}d")
        _, found = function(call.wide("input"), **_max_options(call), return_indices=True)
    call["indices"].copy_(found)


@reference(*[f"MaxPool{r}dBackward" for r in RANKS], *[f"AdaptiveMaxPool{r}dBackward" for r in RANKS])
def run_max_pool_backward(call: Call) -> dict[str, Result]:
    _fix_indices(call)
    return _scatter_gradient(call, int(_rank(call)))


def _average(call: Call) -> Any:
    options: dict[str, Any] = {
        "kernel_size": call["kernel_size"],
        "stride": _sizes(call, "stride"),
        "padding": call["padding"],
        "ceil_mode": call["ceil_mode"],
        "count_include_pad": call["count_include_pad"],
    }
    if _rank(call) != "1":
        options["divisor_override"] = call["divisor_override"]
    function = getattr(F, f"avg_pool{_rank(call)}d")
    return lambda x: function(x, **options)


def _apply(call: Call, function: Any, terms: float) -> dict[str, Result]:
    x = call.wide("input")
    return {"out": Result(function(x), scale=function(x.abs()), terms=terms)}


def _apply_backward(call: Call, function: Any, terms: float) -> dict[str, Result]:
    x, grad = call.wide("input"), call.wide("grad_output")
    value = differentiate(function, [x], grad)[0]
    scale = differentiate(function, [x], grad.abs())[0]
    return {"grad_input": Result(value, scale=scale, terms=terms)}


@reference(*[f"AvgPool{r}d" for r in RANKS])
def run_average_pool(call: Call) -> dict[str, Result]:
    return _apply(call, _average(call), math.prod(call["kernel_size"]))


@reference(*[f"AvgPool{r}dBackward" for r in RANKS])
def run_average_pool_backward(call: Call) -> dict[str, Result]:
    return _apply_backward(call, _average(call), math.prod(call["kernel_size"]))


def _adaptive_average(call: Call, size: list[int]) -> Any:
    function = getattr(F, f"adaptive_avg_pool{_rank(call)}d")
    return lambda x: function(x, size)


@reference(*[f"AdaptiveAvgPool{r}d" for r in RANKS])
def run_adaptive_average(call: Call) -> dict[str, Result]:
    x = call["input"]
    return _apply(call, _adaptive_average(call, call["output_size"]), max(x.numel(), 1))


@reference(*[f"AdaptiveAvgPool{r}dBackward" for r in RANKS])
def run_adaptive_average_backward(call: Call) -> dict[str, Result]:
    size = list(call["grad_output"].shape[-int(_rank(call)) :])
    return _apply_backward(call, _adaptive_average(call, size), max(math.prod(size), 1))


@reference(*[f"AdaptiveMaxPool{r}d{kind}" for r in RANKS for kind in ("", "WithIndices")])
def run_adaptive_max(call: Call) -> dict[str, Result]:
    function = getattr(F, f"adaptive_max_pool{_rank(call)}d")
    value, indices = function(call.wide("input"), call["output_size"], return_indices=True)
    return {"out": Result(value, exact=True), "indices": Result(indices, torch.int64, exact=True)}


# All poolings by one function


def _pool(call: Call) -> Any:
    """diopiPool2d and its siblings as functions of the input: (function, whether it is a maximum)."""
    rank, largest = _rank(call), call["mode"] == "max"
    if call["adaptive"]:
        dims = int(rank)
        size = call["output_size"] or list(call["grad_output"].shape[-dims:])
        kind = "max" if largest else "avg"
        function = getattr(F, f"adaptive_{kind}_pool{rank}d")
        return lambda x: function(x, size)
    options = {"kernel_size": call["ksize"], "stride": _sizes(call, "stride"), "padding": call["padding"]}
    options["ceil_mode"] = call["ceil_mode"]
    if largest:
        function = getattr(F, f"max_pool{rank}d")
        return lambda x: function(x, dilation=call["dilation"], **options)
    function = getattr(F, f"avg_pool{rank}d")
    return lambda x: function(x, count_include_pad=not call["exclusive"], **options)


@reference(*[f"Pool{r}d" for r in RANKS])
def run_pool(call: Call) -> dict[str, Result]:
    found = _apply(call, _pool(call), max(call["input"].numel(), 1))
    found["out"].exact = call["mode"] == "max"
    return found


@reference(*[f"Pool{r}dBackward" for r in RANKS])
def run_pool_backward(call: Call) -> dict[str, Result]:
    """The indices of a maximum are those of the forward pass."""
    x, grad, function = call.wide("input"), call.wide("grad_output"), _pool(call)
    if call["mode"] == "max" and call["indices"] is not None:
        dims = int(_rank(call))
        numbers = torch.arange(math.prod(x.shape[-dims:])).reshape(x.shape[-dims:]).expand(x.shape)
        order = x.numel() - 1 - torch.argsort(x.flatten().flip(0), stable=True)  # of equal elements the first wins
        by_rank = torch.empty_like(order)
        by_rank[order] = torch.arange(order.numel())
        chosen = function(by_rank.reshape(x.shape).to(torch.float64)).to(torch.int64)
        call["indices"].copy_(numbers.flatten()[order[chosen.flatten()]].reshape(chosen.shape))
    value = differentiate(function, [x], grad)[0]
    scale = differentiate(function, [x], grad.abs())[0]
    return {"grad_input": Result(value, scale=scale, terms=max(grad.numel(), 1))}


# Upsampling


def _upsample(call: Call, size: list[int]) -> Any:
    if "Nearest" in call.function:
        return lambda x: F.interpolate(x, size=size, mode="nearest")
    aligned = bool(call["align_corners"])
    return lambda x: F.interpolate(x, size=size, mode=call["mode"], align_corners=aligned)


@reference("UpsampleNearest", "UpsampleLinear")
def run_upsample(call: Call) -> dict[str, Result]:
    found = _apply(call, _upsample(call, call["size"]), 8)
    found["out"].exact = "Nearest" in call.function
    found["out"].ops = 16
    if "Linear" in call.function and call["mode"] == "bicubic" and call.wide("input").numel():
        # Weights of both signs: their magnitudes add up to 1.375 per dimension.
        found["out"].scale = torch.full_like(found["out"].value, 1.375**2) * call.wide("input").abs().max()
    return found


@reference("UpsampleNearestBackward", "UpsampleLinearBackward")
def run_upsample_backward(call: Call) -> dict[str, Result]:
    x, grad = torch.zeros(call["in_size"], dtype=torch.float64), call.wide("grad_output")
    function = _upsample(call, call["out_size"])
    value = differentiate(function, [x], grad)[0]
    scale = differentiate(function, [x], grad.abs())[0]
    return {"grad_input": Result(value, scale=scale, terms=max(grad.numel(), 1), ops=16)}


@reference("GridSample")
def run_grid_sample(call: Call) -> dict[str, Result]:
    """Places from -1 to 1 are the outer edges of the corner elements; zeros lie outside."""
    x, grid, mode = call.wide("input"), call.wide("grid"), call["mode"]

    def sample(t: torch.Tensor) -> torch.Tensor:
        return F.grid_sample(t, grid, mode=mode, padding_mode="zeros", align_corners=False)

    # An error of a place moves the weights by its size in elements.
    size = 1 + max(x.shape[-2:]) if x.numel() else 1
    return {"out": Result(sample(x), scale=sample(x.abs()) + size * x.abs().max(), exact=mode == "nearest", ops=16)}
