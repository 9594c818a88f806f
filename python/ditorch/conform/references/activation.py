"""References of activation functions with parameters, and of the gradients of all of them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional as F

from .base import Call, Result, differentiate, is_held, reference


@reference("Hardtanh")
def run_hardtanh(call: Call) -> dict[str, Result]:
    low, high = call.number("min_val"), call.number("max_val")
    return {"out": Result(F.hardtanh(call.wide("input"), low, high), exact=is_held(call, low, high))}


@reference("Threshold")
def run_threshold(call: Call) -> dict[str, Result]:
    threshold, value = call.number("threshold"), call.number("value")
    out = F.threshold(call.wide("input"), threshold, value)
    return {"out": Result(out, exact=is_held(call, threshold, value))}


@reference("LeakyRelu")
def run_leaky_relu(call: Call) -> dict[str, Result]:
    return {"out": Result(F.leaky_relu(call.wide("input"), call.number("negative_slope")))}


@reference("Gelu")
def run_gelu(call: Call) -> dict[str, Result]:
    x = call.wide("input")
    return {"out": Result(F.gelu(x, approximate=call["approximate"]), scale=x.abs())}


def _gradient(call: Call, function: Callable[..., torch.Tensor], exact: bool = False) -> dict[str, Result]:
    x, grad = call.wide("input"), call.wide("grad_output")
    value = differentiate(function, [x], grad)[0]
    scale = grad.abs() * (1 + x.abs().nan_to_num(nan=0.0, posinf=0.0))
    return {"grad_input": Result(value, scale=scale, exact=exact)}


@reference("HardtanhBackward")
def run_hardtanh_backward(call: Call) -> dict[str, Result]:
    low, high = call.number("min_val"), call.number("max_val")
    return _gradient(call, lambda x: F.hardtanh(x, low, high), exact=True)


@reference("HardswishBackward")
def run_hardswish_backward(call: Call) -> dict[str, Result]:
    return _gradient(call, F.hardswish)


@reference("ThresholdBackward")
def run_threshold_backward(call: Call) -> dict[str, Result]:
    threshold = call.number("threshold")
    x, grad = call.wide("input"), call.wide("grad_output")
    return {"grad_input": Result(torch.where(x <= threshold, torch.zeros_like(grad), grad), exact=True)}


@reference("GeluBackward")
def run_gelu_backward(call: Call) -> dict[str, Result]:
    return _gradient(call, lambda x: F.gelu(x, approximate=call["approximate"]))


@reference("LeakyReluBackward")
def run_leaky_relu_backward(call: Call) -> dict[str, Result]:
    slope = call.number("negative_slope")
    x, grad = call.wide("input"), call.wide("grad_output")
    return {"grad_input": Result(torch.where(x > 0, grad, grad * slope))}


@reference("SiluBackward")
def run_silu_backward(call: Call) -> dict[str, Result]:
    return _gradient(call, F.silu)


@reference("TanhBackward", "SigmoidBackward")
def run_output_backward(call: Call) -> dict[str, Result]:
    """These take the forward's result: grad conj(1 - y^2) and grad y (1 - y)."""
    y, grad = call.wide("output"), call.wide("grad_output")
    if call.function.startswith("diopiTanh"):
        return {"grad_input": Result(grad * (1 - y * y).conj(), scale=grad.abs() * (1 + (y * y).abs()))}
    return {"grad_input": Result(grad * (y * (1 - y)), scale=grad.abs() * (y.abs() + (y * y).abs()))}
