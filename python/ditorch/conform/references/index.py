"""References of indexing and embedding. Elements move, so results are exact, but where several are added up."""

from __future__ import annotations

from typing import Any

import torch

from .base import Call, Result, differentiate, make_number, reference, widen


def _zeros(call: Call, sizes: list[int]) -> torch.Tensor:
    return torch.zeros(sizes, dtype=torch.complex128 if call.dtype.is_complex else torch.float64)


def _is_inexact(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


@reference("IndexSelect")
def run_index_select(call: Call) -> dict[str, Result]:
    return {"out": Result(torch.index_select(call.wide("input"), call["dim"], call["index"]), exact=True)}


@reference("IndexSelectBackward")
def run_index_select_backward(call: Call) -> dict[str, Result]:
    zeros, grad, index = _zeros(call, call["input_sizes"]), call.wide("grad"), call["index"]
    value = zeros.index_add(call["dim"], index, grad)
    scale = zeros.abs().index_add(call["dim"], index, grad.abs())
    return {"grad_input": Result(value, scale=scale, terms=max(index.numel(), 1))}


@reference("Select")
def run_select(call: Call) -> dict[str, Result]:
    return {"out": Result(call.wide("input").select(call["dim"], call["index"]).clone(), exact=True)}


@reference("SelectBackward")
def run_select_backward(call: Call) -> dict[str, Result]:
    zeros = _zeros(call, call["input_sizes"])
    zeros.select(call["dim"], call["index"]).copy_(call.wide("grad_output"))
    return {"grad_input": Result(zeros, exact=True)}


@reference("SelectScatter")
def run_select_scatter(call: Call) -> dict[str, Result]:
    value = torch.select_scatter(call.wide("input"), call.wide("src"), call["dim"], call["index"])
    return {"out": Result(value, exact=True)}


def _slice(call: Call, x: torch.Tensor) -> torch.Tensor:
    dim = call["dim"] % x.dim()
    return x[(slice(None),) * dim + (slice(call["start"], call["end"], call["step"]),)]


@reference("Slice")
def run_slice(call: Call) -> dict[str, Result]:
    return {"null_out": Result(_slice(call, call.wide("input")).clone(), exact=True)}


@reference("SliceBackward")
def run_slice_backward(call: Call) -> dict[str, Result]:
    zeros = _zeros(call, call["input_sizes"])
    _slice(call, zeros).copy_(call.wide("grad_output"))
    return {"grad_input": Result(zeros, exact=True)}


@reference("SliceScatter")
def run_slice_scatter(call: Call) -> dict[str, Result]:
    x = call.wide("input")
    _slice(call, x).copy_(call.wide("src"))
    return {"out": Result(x, exact=True)}


@reference("MaskedFill", "MaskedFillScalar")
def run_masked_fill(call: Call) -> dict[str, Result]:
    x, mask = call.wide("input"), call["mask"]
    value = widen(call["value"].to(call.dtype)) if isinstance(call["value"], torch.Tensor) else call.number("value")
    if not isinstance(value, torch.Tensor):
        value = make_number(value, call.dtype)
    x, mask = torch.broadcast_tensors(x, mask)
    return {"out": Result(torch.where(mask, value, x), exact=True)}


@reference("MaskedSelect")
def run_masked_select(call: Call) -> dict[str, Result]:
    return {"out": Result(torch.masked_select(call.wide("input"), call["mask"]), exact=True, required=True)}


@reference("MaskedSelectBackward")
def run_masked_select_backward(call: Call) -> dict[str, Result]:
    zeros, mask = _zeros(call, list(call["input"].shape)), call["mask"]
    return {"grad_input": Result(zeros.masked_scatter(mask, call.wide("grad_output")), exact=True)}


@reference("MaskedScatter")
def run_masked_scatter(call: Call) -> dict[str, Result]:
    x, mask = torch.broadcast_tensors(call.wide("input"), call["mask"])
    return {"out": Result(torch.masked_scatter(x, mask, call.wide("source")), exact=True)}


@reference("Nonzero")
def run_nonzero(call: Call) -> dict[str, Result]:
    return {"out": Result(torch.nonzero(call["input"]), torch.int64, exact=True, required=True)}


@reference("IndexFill", "IndexFillScalar")
def run_index_fill(call: Call) -> dict[str, Result]:
    x, value = call.wide("input"), call["value"]
    number = widen(value) if isinstance(value, torch.Tensor) else call.number("value")
    if not isinstance(number, torch.Tensor):
        number = make_number(number, call.dtype)
    return {"out": Result(x.index_fill(call["dim"], call["index"].to(torch.int64), number), exact=True)}


# Gather and scatter


@reference("Gather")
def run_gather(call: Call) -> dict[str, Result]:
    value = torch.gather(call.wide("input"), call["dim"], call["index"].to(torch.int64))
    return {"out": Result(value, exact=True)}


@reference("GatherBackward")
def run_gather_backward(call: Call) -> dict[str, Result]:
    zeros, grad = _zeros(call, list(call["input"].shape)), call.wide("grad_output")
    index = call["index"].to(torch.int64)
    value = zeros.scatter_add(call["dim"], index, grad)
    scale = zeros.abs().scatter_add(call["dim"], index, grad.abs())
    return {"grad_input": Result(value, scale=scale, terms=max(index.numel(), 1))}


@reference("Scatter", "ScatterScalar")
def run_scatter(call: Call) -> dict[str, Result]:
    """reduce: "" puts, "add" and "multiply" join. Without reduce every place must be named once."""
    x, dim, index, mode = call.wide("input"), call["dim"], call["index"].to(torch.int64), call["reduce"]
    if "src" in call.arguments:
        source = call.wide("src")
    else:
        number = make_number(call.number("value"), call.dtype)
        source = number.expand(index.shape)
    source = source[tuple(slice(0, size) for size in index.shape)] if source.dim() else source
    if mode in ("", "none", None):
        return {"out": Result(x.scatter(dim, index, source), exact=True)}
    how = {"add": "sum", "multiply": "prod"}[mode]
    value = x.scatter_reduce(dim, index, source, how, include_self=True)
    if not _is_inexact(x):
        return {"out": Result(value, exact=True)}
    scale = x.abs().scatter_reduce(dim, index, source.abs(), how, include_self=True)
    return {"out": Result(value, scale=scale, terms=max(index.numel(), 1), ops=4 + index.numel(), compute=call.dtype)}


# Advanced indexing


def _indices(call: Call) -> tuple[Any, ...]:
    found = []
    for index in call["indices"]:
        if index is None:
            found.append(slice(None))
        else:
            found.append(index if index.dtype in (torch.bool, torch.uint8) else index.to(torch.int64))
    return tuple(found)


@reference("Index")
def run_index(call: Call) -> dict[str, Result]:
    return {"out": Result(call.wide("input")[_indices(call)].clone(), exact=True, required=True)}


@reference("IndexBackward")
def run_index_backward(call: Call) -> dict[str, Result]:
    """zeros_like_input is zero and may be used as scratch."""
    zeros, grad = torch.zeros_like(call.wide("zeros_like_input")), call.wide("grad_output")
    value, scale = zeros.clone(), zeros.abs()
    indices = _indices(call)
    value = _put(value, indices, grad, True)
    scale = _put(scale, indices, grad.abs(), True)
    return {
        "grad_input": Result(value, scale=scale, terms=max(grad.numel(), 1)),
        "zeros_like_input": Result(zeros, check="anything"),
    }


def _put(x: torch.Tensor, indices: tuple[Any, ...], values: torch.Tensor, accumulate: bool) -> torch.Tensor:
    tensors = tuple(None if isinstance(i, slice) else i for i in indices)
    return torch.ops.aten.index_put(x, tensors, values, accumulate)


@reference("IndexPut")
def run_index_put(call: Call) -> dict[str, Result]:
    x, values, indices = call.wide("input"), call.wide("values"), _indices(call)
    value = _put(x, indices, values, call["accumulate"])
    if not call["accumulate"] or not _is_inexact(x):
        return {"out": Result(value, exact=True)}
    scale = _put(x.abs(), indices, values.abs(), True)
    return {"out": Result(value, scale=scale, terms=max(x.numel(), 1), compute=call.dtype)}


# Embedding


@reference("Embedding")
def run_embedding(call: Call) -> dict[str, Result]:
    return {"out": Result(call.wide("weight")[call["indices"].to(torch.int64)], exact=True)}


@reference("EmbeddingBackward")
def run_embedding_backward(call: Call) -> dict[str, Result]:
    grad, indices = call.wide("grad"), call["indices"].to(torch.int64)
    rows, padding, by_frequency = call["num_weights"], call["padding_idx"], call["scale_grad_byfreq"]
    weight = torch.zeros((rows, grad.shape[-1]), dtype=torch.float64)

    def forward(table: torch.Tensor) -> torch.Tensor:
        return torch.embedding(table, indices, padding, by_frequency)

    value = differentiate(forward, [weight], grad)[0]
    scale = differentiate(forward, [weight], grad.abs())[0]
    return {"out": Result(value, scale=scale, terms=max(indices.numel(), 1))}


@reference("EmbeddingRenorm_")
def run_embedding_renorm(call: Call) -> dict[str, Result]:
    x, indices = call.wide("inout"), call["indices"].to(torch.int64)
    limit, order = call["max_norm"], call["norm_type"]
    norms = torch.linalg.vector_norm(x, order, dim=1, keepdim=True)
    named = torch.zeros(x.shape[0], 1, dtype=torch.bool)
    named[indices.reshape(-1)] = True
    value = torch.where(named & (norms > limit), x * (limit / (norms + 1e-7)), x)
    return {"inout": Result(value, terms=max(x.shape[1], 1), ops=8)}
