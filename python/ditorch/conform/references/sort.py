"""References of sorting. Where equal elements may come in any order, indices are judged by what they point to."""

from __future__ import annotations

import torch

from .base import Call, Result, reference


def _indices(call: Call, indices: torch.Tensor, values: torch.Tensor, stable: bool, dim: int) -> Result:
    if stable:
        return Result(indices, torch.int64, exact=True)
    return Result(values, torch.int64, check="selection", source="input", bounds=(float(dim),))


def _wrap(call: Call, dim: int) -> int:
    return dim % max(call["input"].dim(), 1)


@reference("Sort")
def run_sort(call: Call) -> dict[str, Result]:
    x, dim, stable = call.wide("input"), call["dim"], bool(call["pStable"])
    values, indices = torch.sort(x, dim=dim, descending=call["descending"], stable=True)
    return {
        "values": Result(values, exact=True),
        "indices": _indices(call, indices, values, stable, _wrap(call, dim)),
    }


@reference("Argsort")
def run_argsort(call: Call) -> dict[str, Result]:
    dim = -1 if call["dim"] is None else call["dim"]
    values, indices = torch.sort(call.wide("input"), dim=dim, descending=call["descending"], stable=True)
    return {"out": _indices(call, indices, values, call["stable"], _wrap(call, dim))}


@reference("Topk")
def run_topk(call: Call) -> dict[str, Result]:
    """Not sorted: the values in any order, so they stand in the last dimension."""
    x, dim = call.wide("input"), call["dim"]
    values, _ = torch.topk(x, call["k"], dim=dim, largest=call["largest"], sorted=True)
    if not call["sorted"]:
        return {
            "values": Result(values, exact=True, check="permutation"),
            "indices": Result(values, torch.int64, check="anything"),
        }
    return {
        "values": Result(values, exact=True),
        "indices": _indices(call, values, values, False, _wrap(call, dim)),
    }


@reference("SortBackward")
def run_sort_backward(call: Call) -> dict[str, Result]:
    """The gradient of the values goes back to the places they came from: the indices must be a permutation."""
    grad, dim = call.wide("grad_output"), call["dim"]
    order = torch.argsort(grad, dim=dim, stable=True)
    call["indices"].copy_(order)
    value = torch.zeros(call["sizes"], dtype=torch.float64).scatter(dim, order, grad)
    return {"grad_input": Result(value, exact=True)}


@reference("Unique")
def run_unique(call: Call) -> dict[str, Result]:
    x, dim = call.wide("input"), call["dim"]
    if dim is None:
        values, inverse, counts = torch.unique(x, sorted=True, return_inverse=True, return_counts=True)
    else:
        values, inverse, counts = torch.unique(x, sorted=True, return_inverse=True, return_counts=True, dim=dim)
    found = {
        "out": Result(values, exact=True, required=True),
        "indices": Result(inverse, torch.int64, exact=True),
    }
    if call["return_counts"]:
        found["counts"] = Result(counts, torch.int64, exact=True, required=True)
    return found
