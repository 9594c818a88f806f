"""References of inference with language models: penalties, token pools, products over ranks, sparse products, and the
hooks of devices with memory formats of their own.
"""

from __future__ import annotations

import torch

from .base import Call, Result, reference


@reference("SpMM")
def run_spmm(call: Call) -> dict[str, Result]:
    a, b = call["input"].to_dense(), call.wide("mat2")
    return {"out": Result(a @ b, scale=a.abs() @ b.abs(), terms=max(a.shape[1], 1))}


@reference("MatmulAllReduce")
def run_matmul_all_reduce(call: Call) -> dict[str, Result]:
    """One process: the sum over the group is the product."""
    a, b, bias = call.wide("x1"), call.wide("x2"), call.wide("bias")
    value, scale = a @ b, a.abs() @ b.abs()
    if bias is not None:
        value, scale = value + bias, scale + bias.abs()
    if not call.dtype.is_floating_point and not call.dtype.is_complex:
        return {"out": Result(value, exact=True)}
    return {"out": Result(value, scale=scale, terms=max(a.shape[-1], 1))}


@reference("DestIndexCopyKV")
def run_copy_kv(call: Call) -> dict[str, Result]:
    """The case's places are made different from each other: the first t of a permutation."""
    places = call["dest_loc"]
    pool = call["out"].shape[0]
    order = sorted(range(pool), key=lambda i: (i * 7 + 3) % pool if pool % 7 else (i * 5 + 3) % pool)
    places.copy_(torch.tensor(order[: places.shape[0]], dtype=places.dtype))
    value = call.wide("out").clone()
    value[places.to(torch.int64)] = call.wide("k")
    return {"out": Result(value, call["out"].dtype, exact=True)}


def _penalise(call: Call, row: int, logits: torch.Tensor, ids: list[int], counts: list[int]) -> torch.Tensor:
    """Logits of a row, and the size of what enters."""
    presence, frequency = call.wide("presence_penalty")[row], call.wide("frequency_penalty")[row]
    size = logits.abs()
    for token, count in zip(ids, counts, strict=True):
        x = logits[token].clone()
        if call["repetition_penalty"] is not None:
            repetition = call.wide("repetition_penalty")[row]
            x = x / repetition if x > 0 else x * repetition
        logits[token] = x - (frequency * count + presence)
        size[token] = x.abs() + (frequency * count).abs() + presence.abs()
    return size


@reference("ApplyPenalty", "ApplyPenaltyV2")
def run_penalty(call: Call) -> dict[str, Result]:
    """Tokens of a sequence become different from each other: token i of it is i * 3 + the row."""
    logits, scale = call.wide("logits").clone(), []
    ids, ends = call["p_token_ids"], call["p_cumsum_seq_len"]
    for row in range(logits.shape[0]):
        where = slice(int(ends[row]), int(ends[row + 1])) if ends is not None else row
        ids[where] = (torch.arange(ids[where].shape[0]) * 3 + row) % logits.shape[1]
        scale.append(_penalise(call, row, logits[row], ids[where].tolist(), call["p_token_counts"][where].tolist()))
    return {"logits": Result(logits, scale=torch.stack(scale) if scale else None)}


@reference("NativeMemoryFormatCast")
def run_format_cast(call: Call) -> dict[str, Result]:
    return {"out": Result(call.wide("in"), exact=True, required=True)}


@reference("GetNativeMemoryFormat")
def run_get_format(call: Call) -> dict[str, Result]:
    """A device without formats of its own has number 0."""
    return {"format": Result(0, exact=True)}


@reference("TensorDestructionHook")
def run_destruction_hook(call: Call) -> dict[str, Result]:
    return {}
