"""References of mmcv's sparse convolution: a sum of products of gathered rows, gradients by autograd."""

from __future__ import annotations

import torch

from .base import Call, Result, differentiate, reference


def _pairs(call: Call) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Input and output rows of each place of the kernel. With _subM the place with the most pairs is the identity."""
    pairs, counts = call["indicePairs"].to(torch.int64), call["indiceNum"].tolist()
    found = []
    for v, count in enumerate(counts):
        rows = pairs[v, :, :count]
        found.append((rows[1], rows[0]) if call["_inverse"] else (rows[0], rows[1]))
    if call["_subM"]:
        same = torch.arange(call["features"].shape[0])
        found[counts.index(max(counts))] = (same, same)
    return found


def _convolve(call: Call, features: torch.Tensor, filters: torch.Tensor, rows: int) -> torch.Tensor:
    flat = filters.reshape(-1, *filters.shape[-2:])
    out = torch.zeros(rows, filters.shape[-1], dtype=torch.float64)
    for v, (start, end) in enumerate(_pairs(call)):
        out = out.index_add(0, end, features[start] @ flat[v])
    return out


@reference("IndiceConvMmcv", "FusedIndiceConvBatchnormMmcv")
def run_conv(call: Call) -> dict[str, Result]:
    features, filters, rows = call.wide("features"), call.wide("filters"), call["numActOut"]
    value, size = _convolve(call, features, filters, rows), _convolve(call, features.abs(), filters.abs(), rows)
    if call["bias"] is not None:
        value, size = value + call.wide("bias"), size + call.wide("bias").abs()
    terms = max(features.shape[1] * len(call["indiceNum"]), 1)
    return {"out": Result(value, scale=size, terms=terms, required=True)}


@reference("IndiceConvBackwardMmcv")
def run_conv_backward(call: Call) -> dict[str, list[Result]]:
    features, filters, grad = call.wide("features"), call.wide("filters"), call.wide("outGrad")

    def run(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return _convolve(call, x, w, len(grad))

    values = differentiate(run, [features, filters], grad)
    sizes = differentiate(run, [features.abs(), filters.abs()], grad.abs())
    terms = max(grad.numel(), features.numel(), 1)
    parts = [Result(v, scale=s, terms=terms, required=True) for v, s in zip(values, sizes, strict=True)]
    return {"outlist": parts}


@reference("IndiceMaxpoolMmcv")
def run_pool(call: Call) -> dict[str, Result]:
    features = call.wide("features")
    value = torch.zeros(call["numAct"], features.shape[1], dtype=torch.float64)
    for start, end in _pairs(call):
        index = end[:, None].expand(-1, features.shape[1])
        value = value.scatter_reduce(0, index, features[start], "amax", include_self=True)
    return {"out": Result(value, exact=True, required=True)}


@reference("IndiceMaxpoolBackwardMmcv")
def run_pool_backward(call: Call) -> dict[str, Result]:
    """The forward result is put into the argument that has it."""
    features, grad = call.wide("features"), call.wide("outGrad")
    call.arguments["numAct"] = len(grad)
    call["outFeatures"].copy_(run_pool(call)["out"].value)
    del call.arguments["numAct"]
    largest = call.wide("outFeatures")
    value, size = torch.zeros_like(features), torch.zeros_like(features)
    for start, end in _pairs(call):
        part = torch.where(features[start] == largest[end], grad[end], 0.0)
        value.index_add_(0, start, part)
        size.index_add_(0, start, part.abs())
    return {"out": Result(value, scale=size, terms=max(grad.numel(), 1), required=True)}
