"""References of attention with kept tensors and of attention over token pools: plain softmax of all scores in float64,
one sequence after the other. Half types: see references/attention.py.
"""

from __future__ import annotations

import math

import torch

from .base import Call, Result, differentiate, reference

Mask = torch.Tensor | None


def _share(x: torch.Tensor, heads: int) -> torch.Tensor:
    """(rows, heads of the keys, width) for as many heads as the queries have."""
    return x.repeat_interleave(heads // x.shape[1], 1) if x.shape[1] != heads else x


def _score(q: torch.Tensor, k: torch.Tensor, scale: float, bias: Mask, hidden: Mask) -> torch.Tensor:
    """(heads, queries, keys) of one sequence: q (rows, heads, width)."""
    scores = torch.einsum("qhd,khd->hqk", q, _share(k, q.shape[1])) * scale
    scores = scores if bias is None else scores + bias
    return scores if hidden is None else scores.masked_fill(hidden, -math.inf)


def _weigh(scores: torch.Tensor) -> torch.Tensor:
    """Softmax; 0 where a query sees nothing."""
    return torch.softmax(scores, -1).nan_to_num(nan=0.0)


def _attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, bias: Mask, hidden: Mask) -> torch.Tensor:
    return torch.einsum("hqk,khd->qhd", _weigh(_score(q, k, scale, bias, hidden)), _share(v, q.shape[1]))


def _work(call: Call) -> torch.dtype | None:
    return call.dtype if call.dtype in (torch.float16, torch.bfloat16) else None


def _size(q: torch.Tensor, k: torch.Tensor, scale: float, bias: Mask) -> float:
    """How large scores are at most: their errors enter the exponents."""
    if not q.numel() or not k.numel():
        return 1.0
    extra = 0.0 if bias is None else float(bias.abs().max())
    return 1 + float(torch.einsum("qhd,khd->hqk", q.abs(), _share(k, q.shape[1]).abs()).max()) * abs(scale) + extra


# Customized flash attention


def _order(call: Call, tensor: torch.Tensor, layout: str, width: int) -> torch.Tensor:
    """A view (batch, rows, heads, width)."""
    if layout == "BNSD":
        return tensor.transpose(1, 2)
    if layout == "BSND":
        return tensor
    tensor = tensor.transpose(0, 1) if layout == "SBH" else tensor
    return tensor.unflatten(-1, (-1, width))


def _parts(call: Call, names: list[str]) -> list[dict[str, torch.Tensor]]:
    """Sequences as (rows, heads, width), views of the arguments."""
    if "VarLen" in call.function:
        q, k = call["cum_seq_q"], call["cum_seq_kv"]
        found = []
        for number in range(len(q) - 1):
            rows, columns = slice(q[number], q[number + 1]), slice(k[number], k[number + 1])
            found.append({n: call[n][columns if n in ("k", "v") else rows] for n in names})
        return found
    layout = call["input_layout"]
    width = call["q"].shape[-1] // (call["head_num"] if len(layout) == 3 else 1)
    views = {name: _order(call, call[name], layout, width) for name in names}
    return [{name: view[number] for name, view in views.items()} for number in range(views["q"].shape[0])]


def _rules(call: Call, number: int, count: int, q: torch.Tensor, k: torch.Tensor) -> tuple[Mask, torch.Tensor]:
    """Bias and hidden places of sequence `number` of `count`."""
    heads, queries, keys = q.shape[1], q.shape[0], k.shape[0]
    own, at = torch.arange(queries).reshape(-1, 1) + keys - queries, torch.arange(keys)
    hidden = torch.zeros(queries, keys, dtype=torch.bool)
    left, right = call["window_size_left"], 0 if call["is_causal"] else call["window_size_right"]
    hidden = hidden | (at > own + right) if right >= 0 else hidden
    hidden = hidden | (at < own - left) if left >= 0 else hidden
    mask, slopes, bias = call["attention_mask"], call.wide("alibi_slopes"), None
    if mask is not None:
        whole = mask.to(torch.bool).expand(*torch.broadcast_shapes(mask.shape, (count, heads, 1, 1)))
        hidden = hidden | whole[number][:, :queries, :keys]
    if slopes is not None:
        slopes = slopes[number] if slopes.dim() == 2 else slopes
        bias = -slopes.reshape(-1, 1, 1) * (own - at).abs()
    return bias, hidden


def _fill(call: Call, parts: list[dict[str, torch.Tensor]], values: list[torch.Tensor], name: str) -> torch.Tensor:
    """Values of the sequences, put together in the shape of argument `name`."""
    out = torch.zeros(call[name].shape, dtype=torch.float64)
    other = Call(call.function, call.dtype, {**call.arguments, name: out, "q": out if name == "q" else call["q"]})
    for part, value in zip(_parts(other, ["q", name]), values, strict=True):
        part[name].copy_(value)
    return out


@reference("CustomizedFlashAttention", "CustomizedFlashAttentionVarLen")
def run_customized(call: Call) -> dict[str, Result]:
    """What is kept for the gradient is the library's own affair."""
    values, scales, terms, scale = [], [], 1, call["softmax_scale"]
    parts = _parts(call, ["q", "k", "v"])
    for number, part in enumerate(parts):
        q, k, v = (part[name].to(torch.float64) for name in ("q", "k", "v"))
        bias, hidden = _rules(call, number, len(parts), q, k)
        values.append(_attend(q, k, v, scale, bias, hidden))
        scales.append(_attend(q, k, v.abs(), scale, bias, hidden) * _size(q, k, scale, bias))
        terms = max(terms, k.shape[0], q.shape[-1])
    value, size = _fill(call, parts, values, "q"), _fill(call, parts, scales, "q")
    kept = {
        name: Result(torch.zeros(0, dtype=torch.float64), torch.float32, check="anything", required=True)
        for name in ("dropout_mask", "softmax_max", "softmax_sum", "softmax_out")
    }
    return {"attention_out": Result(value, scale=size, terms=terms, compute=_work(call)), **kept}


@reference("CustomizedFlashAttentionBackward", "CustomizedFlashAttentionVarLenBackward")
def run_customized_backward(call: Call) -> dict[str, Result]:
    """softmax_max + log(softmax_sum) is the logarithm of a query's sum: here the largest score, and the rest."""
    parts = _parts(call, ["q", "k", "v", "grad_output", "attention_out"])
    names, scale = ("q", "k", "v"), call["softmax_scale"]
    found: dict[str, list[torch.Tensor]] = {name: [] for name in names}
    sizes: dict[str, list[torch.Tensor]] = {name: [] for name in names}
    terms = 1
    for number, part in enumerate(parts):
        q, k, v, grad = (part[name].to(torch.float64) for name in (*names, "grad_output"))
        bias, hidden = _rules(call, number, len(parts), q, k)
        part["attention_out"].copy_(_attend(q, k, v, scale, bias, hidden))
        scores = _score(q, k, scale, bias, hidden)
        most = scores.amax(-1)
        call["softmax_max"][number, :, : q.shape[0]] = most.to(call["softmax_max"].dtype)
        given = call["softmax_max"][number, :, : q.shape[0]].to(torch.float64)
        rest = torch.exp(torch.logsumexp(scores, -1) - given).nan_to_num(nan=1.0)
        call["softmax_sum"][number, :, : q.shape[0]] = rest.to(call["softmax_sum"].dtype)
        rules = (scale, bias, hidden)
        grads = differentiate(lambda a, b, c, rules=rules: _attend(a, b, c, *rules), [q, k, v], grad)
        size = _size(q, k, scale, bias)
        flow = float(grad.abs().sum(-1).max() * v.abs().max()) * scale * size
        most_of = [flow * k.abs().max(), flow * q.abs().max() * q.shape[0], grad.abs().max() * size * q.shape[0]]
        group = q.shape[1] // k.shape[1]
        for name, value, one in zip(names, grads, most_of, strict=True):
            found[name].append(value)
            sizes[name].append(torch.full_like(value, float(one) * (group if name != "q" else 1)))
        terms = max(terms, k.shape[0], q.shape[0])
    return {
        f"grad_{name}": Result(
            _fill(call, parts, found[name], name),
            scale=_fill(call, parts, sizes[name], name),
            terms=terms,
            compute=_work(call),
        )
        for name in names
    }


# Prompts


@reference("ContextAttentionInference")
def run_context(call: Call) -> dict[str, Result]:
    q, k, v, out = call.wide("q"), call.wide("k"), call.wide("v"), call.wide("context_attention_out")
    value, scale = out.clone(), out.abs()
    root = 1 / math.sqrt(q.shape[-1])
    for start, length in zip(call["b_start_loc"].tolist(), call["b_seq_len"].tolist(), strict=True):
        rows = slice(start, start + length)
        hidden = torch.ones(length, length, dtype=torch.bool).triu(1)
        value[rows] = _attend(q[rows], k[rows], v[rows], root, None, hidden)
        scale[rows] = _attend(q[rows], k[rows], v[rows].abs(), root, None, hidden) * _size(q[rows], k[rows], root, None)
    terms = max(call["max_input_len"], q.shape[-1])
    return {"context_attention_out": Result(value, scale=scale, terms=terms, compute=_work(call))}


@reference("PromptFlashAttention")
def run_prompt(call: Call) -> dict[str, Result]:
    rows, width = call["max_input_len"], call["dim"]
    q, k, v = (
        call.wide(name).reshape(-1, rows, call[name].shape[-1] // width, width) for name in ("query", "key", "value")
    )
    lengths = call["actual_seq_lengths"] or [rows] * q.shape[0]
    mask, root = call["atten_mask"], 1 / math.sqrt(width)
    value, scale = torch.zeros_like(q), torch.zeros_like(q)
    for number, length in enumerate(lengths):
        hidden = None
        if mask is not None:
            shaped = mask.to(torch.bool).unsqueeze(1) if mask.dim() == 3 else mask.to(torch.bool)
            whole = shaped.expand(q.shape[0], q.shape[2], rows, rows)
            hidden = whole[number][:, :length, :length]
        a, b, c = q[number, :length], k[number, :length], v[number, :length]
        value[number, :length] = _attend(a, b, c, root, None, hidden)
        scale[number, :length] = _attend(a, b, c.abs(), root, None, hidden) * _size(a, b, root, None)
    shape = call["query"].shape
    return {
        "out": Result(value.reshape(shape), scale=scale.reshape(shape), terms=max(rows, width), compute=_work(call))
    }


# New tokens over a pool


def _places(call: Call, number: int) -> torch.Tensor:
    length, longest = int(call["b_seq_len"][number]), call["max_input_len"]
    return call["b_loc"][number, longest - length : longest].to(torch.int64)


@reference("TokenAttentionInference")
def run_token(call: Call) -> dict[str, Result]:
    q, k, out = call.wide("q"), call.wide("k"), call.wide("token_attention_out")
    value, scale = out.clone(), out.abs()
    root = 1 / math.sqrt(q.shape[-1])
    for number in range(q.shape[0]):
        rows = k[_places(call, number)]
        where = slice(int(call["b_start_loc"][number]), int(call["b_start_loc"][number]) + rows.shape[0])
        value[:, where] = _score(q[number : number + 1], rows, root, None, None)[:, 0]
        scale[:, where] = _score(q[number : number + 1].abs(), rows.abs(), root, None, None)[:, 0]
    return {"token_attention_out": Result(value, scale=scale, terms=max(q.shape[-1], 1), compute=_work(call))}


@reference("TokenSoftmaxReduceVInference")
def run_token_reduce(call: Call) -> dict[str, Result]:
    scores, v = call.wide("logics"), call.wide("v")
    heads, values, scales = scores.shape[0], [], []
    for number in range(call["b_loc"].shape[0]):
        rows = _share(v[_places(call, number)], heads)
        where = slice(int(call["b_start_loc"][number]), int(call["b_start_loc"][number]) + rows.shape[0])
        weights = torch.softmax(scores[:, where], -1)
        size = 1 + float(scores[:, where].abs().max()) if rows.shape[0] else 1.0
        values.append(torch.einsum("hk,khd->hd", weights, rows))
        scales.append(torch.einsum("hk,khd->hd", weights, rows.abs()) * size)
    shape = (0, heads, v.shape[2])
    value = torch.stack(values) if values else torch.zeros(shape, dtype=torch.float64)
    scale = torch.stack(scales) if scales else None
    return {"out": Result(value, scale=scale, terms=max(call["max_input_len"], 1), compute=_work(call))}


@reference("PagedAttention")
def run_paged(call: Call) -> dict[str, Result]:
    heads, kv, width, block = call["num_heads"], call["num_kv_heads"], call["dim"], call["block_size"]
    q = call.wide("q").reshape(-1, heads, width)
    k, v = (call.wide(name).reshape(-1, kv, width) for name in ("k", "v"))
    value, scale, root = torch.zeros_like(q), torch.zeros_like(q), 1 / math.sqrt(width)
    for number, length in enumerate(call["actual_seq_lengths"]):
        table = call["block_table"][number].to(torch.int64)
        rows = torch.tensor([int(table[j // block]) * block + j % block for j in range(length)], dtype=torch.int64)
        mask, hidden = call["attenMask"], None
        if mask is not None:
            hidden = mask.to(torch.bool).expand(q.shape[0], heads, 1, mask.shape[-1])[number][:, :, :length]
        one = q[number : number + 1]
        value[number] = _attend(one, k[rows], v[rows], root, None, hidden)[0]
        scale[number] = _attend(one, k[rows], v[rows].abs(), root, None, hidden)[0] * _size(one, k[rows], root, None)
    shape = call["q"].shape
    terms = max(*call["actual_seq_lengths"], width, 1)
    return {"out": Result(value.reshape(shape), scale=scale.reshape(shape), terms=terms, compute=_work(call))}
