"""References of reductions, scans and softmax. Terms: how many elements meet in one result."""

from __future__ import annotations

from typing import Any

import torch

from .base import Call, Result, differentiate, get_float, reference


def _dims(call: Call, name: str = "dim") -> list[int]:
    """The dimensions that are reduced: those named, or all."""
    x = call["input"] if call["input"] is not None else call["self"]
    named = call[name]
    named = [named] if isinstance(named, int) else named
    count = max(x.dim(), 1)
    return sorted({d % count for d in named}) if named else list(range(x.dim()))


def _terms(x: torch.Tensor, dims: list[int]) -> int:
    count = 1
    for dim in dims:
        count *= x.shape[dim] if x.dim() else 1
    return max(count, 1)


@reference("Sum")
def run_sum(call: Call) -> dict[str, Result]:
    x, dims = call.wide("input"), _dims(call)
    dims = dims if x.dim() else []
    value = x.sum(dims) if x.dim() else x.sum()
    if not (x.is_floating_point() or x.is_complex()):
        return {"out": Result(value, torch.int64, exact=True)}
    scale = x.abs().sum(dims) if x.dim() else x.abs()
    return {"out": Result(value, scale=scale, terms=_terms(x, dims))}


@reference("Mean")
def run_mean(call: Call) -> dict[str, Result]:
    x, dims = call.wide("input"), _dims(call)
    value, scale = (x.mean(dims), x.abs().mean(dims)) if x.dim() else (x.mean(), x.abs())
    return {"out": Result(value, scale=scale, terms=_terms(x, dims))}


@reference("Std")
def run_std(call: Call) -> dict[str, Result]:
    """The deviations from the mean lose what the mean is larger than they are."""
    x, dims = call.wide("input"), _dims(call)
    correction = call.number("correction", 1)
    value = torch.std(x, dim=dims or None, correction=correction) if x.dim() else torch.std(x, correction=correction)
    size = x.abs().amax(dims) if x.numel() and x.dim() else x.abs().sum()
    return {"out": Result(value, scale=value.abs() + size, terms=_terms(x, dims))}


@reference("Max", "Min")
def run_max(call: Call) -> dict[str, Result]:
    x, dim = call.wide("input"), call["dim"]
    kind = call.function[5:].lower()
    values, indices = (torch.max if kind == "max" else torch.min)(x, dim)
    return {
        kind: Result(values, exact=True),
        f"{kind}_indices": Result(indices, torch.int64, exact=True),
    }


@reference("MaxAll", "MinAll")
def run_max_all(call: Call) -> dict[str, Result]:
    x = call.wide("input")
    kind = call.function[5:8].lower()
    return {kind: Result(torch.max(x) if kind == "max" else torch.min(x), exact=True)}


@reference("Amax")
def run_amax(call: Call) -> dict[str, Result]:
    x = call.wide("self")
    return {"out": Result(torch.amax(x, dim=tuple(call["dim"] or ()), keepdim=call["keepdim"]), exact=True)}


@reference("Any", "All")
def run_any(call: Call) -> dict[str, Result]:
    x, dim = call["input"], call["dim"]
    function = torch.any if call.function == "diopiAny" else torch.all
    value = function(x) if dim is None else function(x, dim)
    return {"out": Result(value, torch.uint8 if x.dtype == torch.uint8 else torch.bool, exact=True)}


@reference("Argmax", "Argmin")
def run_argmax(call: Call) -> dict[str, Result]:
    x = call.wide("input")
    function = torch.argmax if call.function == "diopiArgmax" else torch.argmin
    value = function(x, dim=call["dim"], keepdim=call["keepdim"])
    return {"out": Result(value, torch.int64, exact=True)}


@reference("Prod")
def run_prod(call: Call) -> dict[str, Result]:
    x, dim = call.wide("input"), call["dim"]
    value = x.prod() if dim is None else x.prod(dim)
    if not (x.is_floating_point() or x.is_complex()):
        return {"out": Result(value, torch.int64, exact=True)}
    terms = x.numel() if dim is None or x.dim() == 0 else x.shape[dim]
    return {"out": Result(value, ops=4 + terms)}


def _norm(call: Call, x: torch.Tensor, order: float, keepdim: bool) -> Result:
    dims = _dims(call)
    value = torch.linalg.vector_norm(x, order, dim=dims if x.dim() else None, keepdim=keepdim and x.dim() > 0)
    return Result(value, get_float(call.dtype), terms=_terms(x, dims), ops=4 + abs(order if abs(order) < 100 else 1))


@reference("Norm")
def run_norm(call: Call) -> dict[str, Result]:
    return {"out": _norm(call, call.wide("input"), call.number("p"), False)}


@reference("LinalgVecNorm")
def run_vector_norm(call: Call) -> dict[str, Result]:
    return {"out": _norm(call, call.wide("input"), call.number("ord"), call["keepdim"])}


@reference("NormBackward")
def run_norm_backward(call: Call) -> dict[str, Result]:
    """The norm is an argument: it is taken as it is given."""
    x, grad, norm = call.wide("self"), call.wide("grad_output"), call.wide("norm")
    order, dims = call.number("p"), call["dim"]
    dims = sorted({d % max(x.dim(), 1) for d in dims}) if dims else list(range(x.dim()))
    shape = [1 if d in dims else size for d, size in enumerate(x.shape)]
    grad, norm = grad.reshape(shape), norm.reshape(shape)
    if order == 2:
        value = torch.where(norm == 0, torch.zeros_like(x), x * (grad / norm))
    elif order == 1:
        value = x.sign() * grad
    else:
        scaled = x * x.abs() ** (order - 2) * grad / norm ** (order - 1)
        value = torch.where((norm == 0).expand_as(x), torch.zeros_like(x), scaled)
    return {"grad_input": Result(value, ops=4 + 4 * abs(order))}


@reference("Normalize")
def run_normalize(call: Call) -> dict[str, Result]:
    x = call.wide("input")
    value = torch.nn.functional.normalize(x, p=call["p"], dim=call["axis"], eps=call["eps"])
    return {"output": Result(value, terms=max(x.shape[call["axis"]] if x.dim() else 1, 1), ops=8)}


@reference("NormalizeBackward")
def run_normalize_backward(call: Call) -> dict[str, Result]:
    x, grad = call.wide("input"), call.wide("grad_output")
    p, axis, eps = call["p"], call["axis"], call["eps"]

    def forward(t: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.normalize(t, p=p, dim=axis, eps=eps)

    value = differentiate(forward, [x], grad)[0]
    length = torch.linalg.vector_norm(x, p, dim=axis, keepdim=True).clamp_min(eps)
    scale = (grad.abs() + (grad * x).abs().sum(axis, keepdim=True) / length) / length
    return {"grad_input": Result(value, scale=scale, terms=x.shape[axis], ops=16)}


@reference("Cumsum")
def run_cumsum(call: Call) -> dict[str, Result]:
    x, dim = call.wide("input"), call["dim"]
    value = x.cumsum(dim)
    if not (x.is_floating_point() or x.is_complex()):
        return {"out": Result(value, torch.int64, exact=True)}
    return {"out": Result(value, scale=x.abs().cumsum(dim), terms=max(x.shape[dim] if x.dim() else 1, 1))}


@reference("CumsumBackward")
def run_cumsum_backward(call: Call) -> dict[str, Result]:
    grad, dim = call.wide("grad_output"), call["dim"]

    def backward(g: torch.Tensor) -> torch.Tensor:
        return g.flip(dim).cumsum(dim).flip(dim) if g.dim() else g

    terms = max(grad.shape[dim] if grad.dim() else 1, 1)
    return {"grad_input": Result(backward(grad), scale=backward(grad.abs()), terms=terms)}


# Softmax


@reference("Softmax", "LogSoftmax")
def run_softmax(call: Call) -> dict[str, Result]:
    x, dim = call.wide("input"), call["dim"]
    terms = max(x.shape[dim] if x.dim() else 1, 1)
    size = x.abs().nan_to_num(nan=0.0, posinf=0.0)
    if call.function == "diopiLogSoftmax":
        value = torch.log_softmax(x, dim)
        return {"out": Result(value, scale=value.abs() + size, terms=terms)}
    value = torch.softmax(x, dim)
    return {"out": Result(value, scale=value * (1 + size), terms=terms)}


@reference("SoftmaxBackward", "LogSoftmaxBackward")
def run_softmax_backward(call: Call) -> dict[str, Any]:
    y, grad, dim = call.wide("output"), call.wide("grad_output"), call["dim"]
    terms = max(y.shape[dim] if y.dim() else 1, 1)
    if call.function == "diopiSoftmaxBackward":
        value = y * (grad - (y * grad).sum(dim, keepdim=True))
        scale = y.abs() * (grad.abs() + (y * grad).abs().sum(dim, keepdim=True))
    else:
        value = grad - y.exp() * grad.sum(dim, keepdim=True)
        scale = grad.abs() + y.exp() * (1 + y.abs()) * grad.abs().sum(dim, keepdim=True)
    return {"grad_input": Result(value, scale=scale, terms=terms)}
