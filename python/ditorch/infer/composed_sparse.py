"""Attention over chosen keys (DeepSeek's sparse attention), made of PyTorch's operators: which keys, and the attention.
The cache has one head (MLA). Some queries at a time, so that the working space does not grow with the prompt."""

from __future__ import annotations

import torch
from torch import Tensor

QUERIES = 32


def _wide(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()


def _check_head(cache: Tensor, name: str) -> None:
    if cache.dim() != 4 or cache.shape[2] != 1:
        raise ValueError(f"'{name}' is {tuple(cache.shape)}; valid: (blocks, block, 1, elements)")


def _find_sequences(query_ends: Tensor, tokens: int, device: torch.device) -> Tensor:
    """The sequence of each query."""
    ends = query_ends.to(device).long().contiguous()
    place = torch.arange(tokens, device=device)
    return torch.searchsorted(ends, place, right=True).clamp_max(max(ends.numel() - 1, 0))


def _choose(query: Tensor, keys: Tensor, weights: Tensor, own: Tensor, count: int) -> Tensor:
    """The `count` best keys up to each query's own; -1 behind the last."""
    scores = torch.einsum("qhk,qh->qk", torch.einsum("qhd,kd->qhk", query, keys).relu(), weights)
    place = torch.arange(keys.shape[0], device=keys.device)
    best = scores.masked_fill(place > own.unsqueeze(1), -torch.inf).topk(count, -1)
    return torch.where(best.indices > own.unsqueeze(1), -1, best.indices).int()


def lightning_indexer(query, key, weights, query_ends, key_lengths, block_table, sparse_count) -> Tensor:
    _check_head(key, "key")
    block, begin = key.shape[1], 0
    out = torch.full((query.shape[0], 1, sparse_count), -1, dtype=torch.int32, device=query.device)
    for number, (end, length) in enumerate(zip(query_ends.tolist(), key_lengths.tolist(), strict=True)):
        blocks = block_table[number, : -(-length // block)].long().to(key.device)
        keys = _wide(key[blocks].flatten(0, 2)[:length])
        for first in range(begin, end, QUERIES):
            last, count = min(first + QUERIES, end), min(sparse_count, length)
            own = torch.arange(first, last, device=query.device) + (length - end)
            parts = (_wide(query[first:last]), keys, _wide(weights[first:last]))
            out[first:last, 0, :count] = _choose(*parts, own, count)
        begin = end
    return out


def sparse_flash_attention(
    query, key, value, sparse_indices, scale_value, block_table, query_ends, kv_seqlens, query_rope, key_rope
) -> Tensor:
    for name, cache in (("key", key), ("value", value), ("key_rope", key if key_rope is None else key_rope)):
        _check_head(cache, name)
    tokens, device, block = query.shape[0], query.device, key.shape[1]
    sequence = _find_sequences(query_ends, tokens, device)
    places = sparse_indices.reshape(tokens, -1).long()
    hidden = (places < 0) | (places >= kv_seqlens.to(device)[sequence].unsqueeze(1))
    places = places.masked_fill(hidden, 0)
    numbers = block_table.to(device).long()[sequence.unsqueeze(1), places // block].masked_fill(hidden, 0)
    out = query.new_empty((*query.shape[:2], value.shape[-1]))
    for first in range(0, tokens, QUERIES):
        part = slice(first, first + QUERIES)
        at = (numbers[part], places[part] % block, 0)
        scores = torch.einsum("thd,tkd->thk", _wide(query[part]), _wide(key[at]))
        if query_rope is not None:
            scores = scores + torch.einsum("thd,tkd->thk", _wide(query_rope[part]), _wide(key_rope[at]))
        scores = (scores * scale_value).masked_fill(hidden[part].unsqueeze(1), -torch.inf)
        weights = torch.softmax(scores, -1).masked_fill(hidden[part].all(-1).view(-1, 1, 1), 0)
        out[part] = torch.einsum("thk,tkd->thd", weights, _wide(value[at])).to(out.dtype)
    return out
