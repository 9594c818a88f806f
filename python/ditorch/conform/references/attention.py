"""References of attention: rotary embedding, flash attention in the layout (batch, sequence, heads, width), and softmax
with a mask. Half types: operands of the two products may be rounded to their dtype, so that is the compute type.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from .base import Call, Result, differentiate, reference


@reference("RotaryEmbedding")
def run_rotary(call: Call) -> dict[str, Result]:
    """Pairs (a, b) of x turned by an angle: halves of the last dimension, or neighbours when interleaved."""
    x, cos, sin = call.wide("x"), call.wide("cos"), call.wide("sin")
    half = x.shape[-1] // 2
    cos, sin = cos[..., :half], sin[..., :half]
    sin = -sin if call["conj"] else sin
    if call["interleaved"]:
        a, b = x[..., 0::2], x[..., 1::2]
    else:
        a, b = x[..., :half], x[..., half:]
    first, second = a * cos - b * sin, a * sin + b * cos
    size = (a.abs() + b.abs()) * (cos.abs() + sin.abs())
    if call["interleaved"]:
        value = torch.stack([first, second], -1).flatten(-2)
        scale = torch.stack([size, size], -1).flatten(-2)
    else:
        value, scale = torch.cat([first, second], -1), torch.cat([size, size], -1)
    return {"out": Result(value, scale=scale)}


@reference("RotaryEmbeddingV2")
def run_rotary_v2(call: Call) -> dict[str, Result]:
    """In place, by halves, with cos and sin for every element: x cos + (-x2, x1) sin."""
    found = {}
    for name in ("query", "key"):
        shape, dim = call[name].shape, call["dim"]
        x = call.wide(name).reshape(*shape[:-1], -1, dim) if len(shape) == 2 else call.wide(name)
        cos, sin = call.wide("cos"), call.wide("sin")
        turned = torch.cat([-x[..., dim // 2 :], x[..., : dim // 2]], -1)
        value, scale = x * cos + turned * sin, (x * cos).abs() + (turned * sin).abs()
        found[name] = Result(value.reshape(shape), scale=scale.reshape(shape))
    return found


def _mask(call: Call, queries: int, keys: int) -> torch.Tensor:
    """True where a query sees a key: aligned at the end, as flash attention does."""
    row, column = torch.arange(queries).reshape(-1, 1) + keys - queries, torch.arange(keys)
    seen = torch.ones(queries, keys, dtype=torch.bool)
    left, right = call["window_size_left"], call["window_size_right"]
    if call["is_causal"]:
        seen &= column <= row
    if left >= 0:
        seen &= column >= row - left
    if right >= 0:
        seen &= column <= row + right
    return seen


def _scores(call: Call, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    q, k = q.transpose(1, 2), k.transpose(1, 2)
    if k.shape[1] != q.shape[1]:
        k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
    scores = torch.matmul(q, k.transpose(-1, -2)) * call["softmax_scale"]
    slopes = call.wide("alibi_slopes")
    if slopes is not None:
        distance = torch.arange(q.shape[2]).reshape(-1, 1) + k.shape[2] - q.shape[2] - torch.arange(k.shape[2])
        scores = scores - slopes.reshape(-1, q.shape[1], 1, 1) * distance.abs()
    return scores.masked_fill(~_mask(call, q.shape[2], k.shape[2]), -math.inf)


def _attend(call: Call, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    scores = _scores(call, q, k)
    blind = (scores == -math.inf).all(-1, keepdim=True)  # queries that see no key: nothing, instead of 0 / 0
    weights = torch.softmax(scores.masked_fill(blind, 0.0), -1).masked_fill(blind, 0.0)
    v = v.transpose(1, 2)
    if v.shape[1] != q.shape[2]:
        v = v.repeat_interleave(q.shape[2] // v.shape[1], 1)
    return torch.matmul(weights, v).transpose(1, 2)


def _compute(call: Call) -> torch.dtype | None:
    return call.dtype if call.dtype in (torch.float16, torch.bfloat16) else None


def _drop(call: Call, weights: torch.Tensor, shape: torch.Size) -> Result:
    """Rows of weights, each dropped with probability p and else divided by 1 - p, summed up: the mean is that of the
    whole rows (which are alike), the variance p / (1 - p) times the sum of the squared weights. The elements of a row
    of the result are equal, so rows are what counts."""
    p = call["p_dropout"]
    sums = weights.sum(-1)
    rows, mean, most = sums.numel(), float(sums.mean()), float(sums.max())
    variance = float((weights**2).sum(-1).mean()) * p / (1 - p)
    spread = 8 * math.sqrt(variance / rows)
    wide = 8 * variance * math.sqrt(8 / rows) + variance / rows
    slack = 4 * torch.finfo(call.dtype).eps * most
    bounds = (mean - spread - slack, mean + spread + slack, max(variance - wide, 0.0), variance + wide + slack, 0.0)
    return Result(torch.ones(shape, dtype=torch.float64), check="moments", bounds=(*bounds, most / (1 - p) + slack))


@reference("FlashAttention")
def run_flash(call: Call) -> dict[str, Result]:
    q, k, v = call.wide("q"), call.wide("k"), call.wide("v")
    value = _attend(call, q, k, v)
    size = 1 + float((_scores(call, q.abs(), k.abs())).nan_to_num(neginf=0.0).abs().max())
    scale = _attend(call, q, k, v.abs()) * size
    lse = torch.logsumexp(_scores(call, q, k), -1)
    dtype = torch.float64 if call.dtype == torch.float64 else torch.float32
    terms = max(k.shape[1], q.shape[-1])
    out = Result(value.contiguous(), scale=scale, terms=terms, compute=_compute(call))
    return {
        "attention_out": _drop(call, torch.softmax(_scores(call, q, k), -1), q.shape) if call["p_dropout"] > 0 else out,
        "softmax_lse": Result(lse, dtype, scale=lse.abs().nan_to_num(posinf=0.0) + size, terms=terms),
    }


def _drop_backward(call: Call, q: torch.Tensor, k: torch.Tensor) -> dict[str, Result]:
    """Gradients under dropout, where q = k = 0 and grad_output = 1: every weight is the same, grad_v has the sums of
    the weights that a key kept, and nothing flows to q and k. Whether it is the mask of the forward call cannot be told
    from one call."""
    weights = torch.softmax(_scores(call, q, k), -1).transpose(-1, -2)
    return {
        "grad_q": Result(torch.zeros_like(q), exact=True),
        "grad_k": Result(torch.zeros_like(k), exact=True),
        "grad_v": _drop(call, weights, k.shape),
    }


@reference("FlashAttentionBackward")
def run_flash_backward(call: Call) -> dict[str, Any]:
    q, k, v, grad = call.wide("q"), call.wide("k"), call.wide("v"), call.wide("grad_output")
    call["attention_out"].copy_(_attend(call, q, k, v))
    call["softmax_lse"].copy_(torch.logsumexp(_scores(call, q, k), -1))
    if call["p_dropout"] > 0:
        return _drop_backward(call, q, k)
    values = differentiate(lambda a, b, c: _attend(call, a, b, c), [q, k, v], grad)
    # dS = P (dP - D): the difference is of the size of |dO| |v|, summed over the keys and queries.
    size = 1 + float((_scores(call, q.abs(), k.abs())).nan_to_num(neginf=0.0).abs().max())
    flow = float(grad.abs().sum(-1).max() * v.abs().max()) * call["softmax_scale"] * size
    scales = [flow * k.abs().max(), flow * q.abs().max() * q.shape[1], grad.abs().max() * size * q.shape[1]]
    terms = max(k.shape[1], q.shape[1])
    found = {}
    for name, value, scale in zip(("grad_q", "grad_k", "grad_v"), values, scales, strict=True):
        found[name] = Result(value, scale=torch.full_like(value, float(scale)), terms=terms, compute=_compute(call))
    return found


def _parts(call: Call) -> list[tuple[slice, slice]]:
    """Sequences one after another: where each has its queries and its keys."""
    queries, keys = call["cum_seq_q"].tolist(), call["cum_seq_kv"].tolist()
    edges = zip(queries[:-1], queries[1:], keys[:-1], keys[1:], strict=True)
    return [(slice(a, b), slice(c, d)) for a, b, c, d in edges]


def _part(call: Call, number: int, rows: slice, columns: slice) -> Call:
    """One sequence as a batch of one."""
    arguments = dict(call.arguments)
    chosen = {"q": rows, "k": columns, "v": columns, "grad_output": rows, "attention_out": rows}
    for name, where in chosen.items():
        if name in arguments:
            arguments[name] = arguments[name][where].unsqueeze(0)
    if "softmax_lse" in arguments:
        arguments["softmax_lse"] = arguments["softmax_lse"][number : number + 1, :, : rows.stop - rows.start]
    return Call(call.function, call.dtype, arguments)


def _join(results: list[Result], dim: int) -> Result:
    parts = [result.value.squeeze(0) for result in results]
    scales = [result.scale.squeeze(0) for result in results]
    first = results[0]
    return Result(
        torch.cat(parts, dim),
        first.dtype,
        scale=torch.cat(scales, dim),
        terms=max(result.terms for result in results),
        compute=first.compute,
    )


@reference("FlashAttentionVarLen")
def run_flash_varlen(call: Call) -> dict[str, Result]:
    """softmax_lse is (batch, heads, longest): judged when all sequences are that long."""
    parts = _parts(call)
    found = [run_flash(_part(call, number, *where)) for number, where in enumerate(parts)]
    heads, longest = call["q"].shape[1], call["max_seqlen_q"]
    dtype = found[0]["softmax_lse"].dtype
    sums = Result(torch.zeros(len(parts), heads, longest, dtype=torch.float64), dtype, check="anything")
    if all(rows.stop - rows.start == longest for rows, _ in parts):
        sums = _join([part["softmax_lse"] for part in found], 0)
        sums.value, sums.scale = (t.reshape(len(parts), heads, longest) for t in (sums.value, sums.scale))
    return {"attention_out": _join([part["attention_out"] for part in found], 0), "softmax_lse": sums}


@reference("FlashAttentionVarLenBackward")
def run_flash_varlen_backward(call: Call) -> dict[str, Result]:
    found = [run_flash_backward(_part(call, number, *where)) for number, where in enumerate(_parts(call))]
    return {name: _join([part[name] for part in found], 0) for name in ("grad_q", "grad_k", "grad_v")}


RENAMED = {
    "dropout_p": "p_dropout",
    "scale": "softmax_scale",
    "out": "attention_out",
    "grad_out": "grad_output",
    "cum_seq_k": "cum_seq_kv",
    "max_q": "max_seqlen_q",
    "max_k": "max_seqlen_kv",
}


def _as_flash(call: Call) -> Call:
    """A call of the deprecated functions as one of flash attention: other names, no window, no slopes."""
    arguments = {RENAMED.get(name, name): value for name, value in call.arguments.items()}
    return Call(call.function, call.dtype, {**arguments, "window_size_left": -1, "window_size_right": -1})


@reference("MultiHeadAttention", "MultiHeadAttentionVarLen")
def run_multi_head(call: Call) -> dict[str, Result]:
    found = (run_flash_varlen if "VarLen" in call.function else run_flash)(_as_flash(call))
    return {"out": found["attention_out"], "softmax_lse": found["softmax_lse"]}


@reference("MultiHeadAttentionBackward", "MultiHeadAttentionVarLenBackward")
def run_multi_head_backward(call: Call) -> dict[str, Result]:
    return (run_flash_varlen_backward if "VarLen" in call.function else run_flash_backward)(_as_flash(call))


def _get_hidden(call: Call, shape: torch.Size) -> torch.Tensor:
    if call["fixed_triu_mask"]:
        return torch.ones(shape[-2:], dtype=torch.bool).triu(1)
    return call["mask"].to(torch.bool)


@reference("ScaledMaskedSoftmax")
def run_masked_softmax(call: Call) -> dict[str, Result]:
    """Softmax over the last dimension of scale * x, where the mask does not hide it: hidden places become -10000."""
    x = call.wide("input")
    scaled = x * call["scale"]
    value = torch.softmax(scaled.masked_fill(_get_hidden(call, x.shape), -10000.0), -1)
    return {"output": Result(value, scale=value * (1 + scaled.abs()), terms=max(x.shape[-1], 1))}


@reference("ScaledMaskedSoftmaxBackward")
def run_masked_softmax_backward(call: Call) -> dict[str, Result]:
    """The forward's result is zero where the mask hides."""
    call["output"].masked_fill_(_get_hidden(call, call["output"].shape), 0)
    y, grad, scale = call.wide("output"), call.wide("grad_output"), call["scale"]
    value = scale * y * (grad - (y * grad).sum(-1, keepdim=True))
    size = abs(scale) * y.abs() * (grad.abs() + (y * grad).abs().sum(-1, keepdim=True))
    return {"grad_input": Result(value, scale=size, terms=max(y.shape[-1], 1))}
