"""References of matrix products. The magnitude that enters is |a| @ |b|, the terms are the inner dimension."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

from .base import Call, Result, differentiate, reference


def _is_inexact(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


def _product(call: Call, a: torch.Tensor, b: torch.Tensor) -> Result:
    value = torch.matmul(a, b)
    if not _is_inexact(call.dtype):
        return Result(value, exact=True)
    return Result(value, scale=torch.matmul(a.abs(), b.abs()), terms=max(a.shape[-1], 1))


@reference("Mm", "Bmm")
def run_mm(call: Call) -> dict[str, Result]:
    return {"out": _product(call, call.wide("input"), call.wide("mat2"))}


@reference("Matmul")
def run_matmul(call: Call) -> dict[str, Result]:
    return {"out": _product(call, call.wide("input"), call.wide("other"))}


def _add_product(call: Call, x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> dict[str, Result]:
    beta, alpha = call.number("beta"), call.number("alpha")
    function = torch.addmm if a.dim() == 2 else torch.baddbmm
    if not _is_inexact(call.dtype):
        return {"out": Result(function(x, a, b, beta=int(beta), alpha=int(alpha)), exact=True)}
    value = function(x, a, b, beta=beta, alpha=alpha)
    added = x.abs() * abs(beta) if beta != 0 else torch.zeros_like(value.abs())
    scale = added + torch.matmul(a.abs(), b.abs()) * abs(alpha)
    return {"out": Result(value, scale=scale, terms=max(a.shape[-1], 1))}


@reference("Addmm")
def run_addmm(call: Call) -> dict[str, Result]:
    return _add_product(call, call.wide("input"), call.wide("mat1"), call.wide("mat2"))


@reference("Baddbmm")
def run_baddbmm(call: Call) -> dict[str, Result]:
    return _add_product(call, call.wide("input"), call.wide("batch1"), call.wide("batch2"))


@reference("Linear")
def run_linear(call: Call) -> dict[str, Result]:
    x, weight, bias = call.wide("input"), call.wide("weight"), call.wide("bias")
    value = F.linear(x, weight, bias)
    scale = F.linear(x.abs(), weight.abs(), None if bias is None else bias.abs())
    return {"out": Result(value, scale=scale, terms=max(x.shape[-1], 1))}


def _gradients(
    names: list[str], function: Any, inputs: list[Any], grad: torch.Tensor, sizes: list[int]
) -> dict[str, Result]:
    values = differentiate(function, inputs, grad)
    scales = differentiate(function, [None if x is None else x.abs() for x in inputs], grad.abs())
    found = {}
    for name, value, scale, terms in zip(names, values, scales, sizes, strict=True):
        if value is not None:
            found[name] = Result(value, scale=scale, terms=max(terms, 1))
    return found


@reference("MatmulBackward")
def run_matmul_backward(call: Call) -> dict[str, Result]:
    a, b, grad = call.wide("input"), call.wide("other"), call.wide("grad_out")
    terms = [max(grad.numel(), 1)] * 2
    return _gradients(["grad_input", "grad_other"], torch.matmul, [a, b], grad, terms)


@reference("LinearBackward")
def run_linear_backward(call: Call) -> dict[str, Result]:
    x, weight, grad = call.wide("input"), call.wide("weight"), call.wide("grad_output")
    rows = max(grad.numel() // max(grad.shape[-1], 1), 1)
    names, terms = ["grad_input", "grad_weight"], [max(grad.shape[-1], 1), rows]
    found = _gradients(names, lambda a, b: F.linear(a, b), [x, weight], grad, terms)
    flat = grad.reshape(rows, -1) if grad.numel() else grad.reshape(-1, grad.shape[-1])
    found["grad_bias"] = Result(flat.sum(0), scale=flat.abs().sum(0), terms=rows)
    return found
