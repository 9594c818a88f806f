"""References of convolutions, their gradients, and of windows as columns."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

from .base import Call, Result, differentiate, reference


def _options(call: Call, transposed: bool) -> dict[str, Any]:
    names = ["stride", "padding", "dilation", "groups"]
    found = {name: call[name] for name in names}
    if transposed:
        found["output_padding"] = call["output_padding"]
    return found


def _get_function(call: Call) -> tuple[Any, bool]:
    name = call.function.replace("Backward", "")
    return {
        "diopiConvolution2d": (F.conv2d, False),
        "diopiConvolution3d": (F.conv3d, False),
        "diopiConvTranspose2d": (F.conv_transpose2d, True),
        "diopiConvTranspose3d": (F.conv_transpose3d, True),
    }[name]


@reference("Convolution2d", "Convolution3d", "ConvTranspose2d", "ConvTranspose3d")
def run_conv(call: Call) -> dict[str, Result]:
    function, transposed = _get_function(call)
    options = _options(call, transposed)
    x, weight, bias = call.wide("input"), call.wide("weight"), call.wide("bias")
    value = function(x, weight, bias, **options)
    scale = function(x.abs(), weight.abs(), None if bias is None else bias.abs(), **options)
    return {"out": Result(value, scale=scale, terms=max(weight.numel() // max(weight.shape[0], 1), 1))}


@reference("Convolution2dBackward", "Convolution3dBackward", "ConvTranspose2dBackward", "ConvTranspose3dBackward")
def run_conv_backward(call: Call) -> dict[str, Result]:
    function, transposed = _get_function(call)
    options = _options(call, transposed)
    x, weight, grad = call.wide("input"), call.wide("weight"), call.wide("grad_output")

    def forward(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return function(a, b, None, **options)

    values = differentiate(forward, [x, weight], grad)
    scales = differentiate(forward, [x.abs(), weight.abs()], grad.abs())
    rows = max(grad.numel() // max(grad.shape[1], 1), 1)
    terms = [max(weight.numel() // max(weight.shape[1], 1), 1), rows]
    found = {
        name: Result(value, scale=scale, terms=count)
        for name, value, scale, count in zip(["grad_input", "grad_weight"], values, scales, terms, strict=True)
    }
    if call["bias_sizes"]:
        dims = [d for d in range(grad.dim()) if d != 1]
        found["grad_bias"] = Result(grad.sum(dims), scale=grad.abs().sum(dims), terms=rows)
    return found


@reference("Im2Col")
def run_im2col(call: Call) -> dict[str, Result]:
    value = F.unfold(call.wide("input"), call["kernel_size"], call["dilation"], call["padding"], call["stride"])
    return {"out": Result(value, exact=True)}


@reference("Col2Im")
def run_col2im(call: Call) -> dict[str, Result]:
    x, size = call.wide("input"), call["output_size"]
    options = (size, call["kernel_size"], call["dilation"], call["padding"], call["stride"])
    kernel = call["kernel_size"][0] * call["kernel_size"][1]
    return {"out": Result(F.fold(x, *options), scale=F.fold(x.abs(), *options), terms=kernel)}
