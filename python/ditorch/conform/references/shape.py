"""References of functions that move elements: cat, permute, pad and their kin. Exact."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

from .base import Call, Result, differentiate, reference, widen


@reference("Cat")
def run_cat(call: Call) -> dict[str, Result]:
    return {"out": Result(torch.cat([widen(t) for t in call["tensors"]], call["dim"]), exact=True)}


@reference("Stack")
def run_stack(call: Call) -> dict[str, Result]:
    return {"out": Result(torch.stack([widen(t) for t in call["tensors"]], call["dim"]), exact=True)}


@reference("SplitWithSizes")
def run_split(call: Call) -> dict[str, Any]:
    parts = torch.split(call.wide("input"), call["splitSizes"], call["dim"])
    return {"outs": [Result(part.clone(), exact=True) for part in parts]}


@reference("Transpose")
def run_transpose(call: Call) -> dict[str, Result]:
    return {"out": Result(call.wide("input").transpose(call["dim0"], call["dim1"]).contiguous(), exact=True)}


@reference("Permute")
def run_permute(call: Call) -> dict[str, Result]:
    return {"out": Result(call.wide("input").permute(call["dims"]).contiguous(), exact=True)}


@reference("Expand")
def run_expand(call: Call) -> dict[str, Result]:
    """The output's shape says how far: the input's dimensions of one element become three."""
    x = call.wide("input")
    shape = [2, *[3 if size == 1 else size for size in x.shape]]
    return {"out": Result(x.expand(shape).contiguous(), exact=True)}


@reference("Repeat")
def run_repeat(call: Call) -> dict[str, Result]:
    return {"out": Result(call.wide("input").repeat(call["repeats_size"]), exact=True)}


@reference("Roll")
def run_roll(call: Call) -> dict[str, Result]:
    return {"out": Result(torch.roll(call.wide("input"), call["shifts"], call["dims"] or None), exact=True)}


@reference("Flip")
def run_flip(call: Call) -> dict[str, Result]:
    return {"out": Result(torch.flip(call.wide("input"), call["dims"]), exact=True)}


@reference("Pad")
def run_pad(call: Call) -> dict[str, Result]:
    x, mode = call.wide("input"), call["mode"]
    if mode != "constant":
        if not (x.is_floating_point() or x.is_complex()):
            return {"out": Result(F.pad(x.to(torch.float64), call["pad"], mode).to(x.dtype), exact=True)}
        return {"out": Result(F.pad(x, call["pad"], mode), exact=True)}
    value = 0 if call["value"] is None else call["value"]
    filled = F.pad(x, call["pad"], value=bool(value) if x.dtype == torch.bool else value)
    return {"out": Result(filled, exact=True)}


@reference("Tril")
def run_tril(call: Call) -> dict[str, Result]:
    return {"out": Result(torch.tril(call.wide("input"), call["diagonal"]), exact=True)}


@reference("Triu")
def run_triu(call: Call) -> dict[str, Result]:
    return {"out": Result(torch.triu(call.wide("input"), call["diagonal"]), exact=True)}


@reference("OneHot")
def run_one_hot(call: Call) -> dict[str, Result]:
    return {"out": Result(F.one_hot(call["input"].to(torch.int64), call["num_classes"]), torch.int64, exact=True)}


@reference("Unfold")
def run_unfold(call: Call) -> dict[str, Result]:
    value = call.wide("input").unfold(call["dim"], call["size"], call["step"]).contiguous()
    return {"out": Result(value, exact=True)}


@reference("UnfoldBackward")
def run_unfold_backward(call: Call) -> dict[str, Result]:
    grad = call.wide("grad_output")
    x = torch.zeros(call["input_sizes"], dtype=grad.dtype)

    def forward(t: torch.Tensor) -> torch.Tensor:
        return t.unfold(call["dim"], call["size"], call["step"])

    value = differentiate(forward, [x], grad)[0]
    scale = differentiate(forward, [x.abs()], grad.abs())[0]
    return {"grad_input": Result(value, scale=scale, terms=max(call["size"], 1))}


@reference("MeshGrid")
def run_mesh(call: Call) -> dict[str, Any]:
    parts = torch.meshgrid(*[widen(t) for t in call["inputs"]], indexing="ij")
    return {"outs": [Result(part.contiguous(), exact=True) for part in parts]}
