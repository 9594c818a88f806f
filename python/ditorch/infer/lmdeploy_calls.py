"""Attention as LMDeploy 0.18 calls it: where sequences begin is told by cumulative lengths on the host alone."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import ops

paged_decode_attention = ops.paged_decode_attention


def prefill_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_cache: Tensor | None,
    value_cache: Tensor | None,
    q_seq_len: Tensor,
    kv_seq_len: Tensor,
    max_q_seq_len: int,
    num_q_heads: int,
    num_kv_heads: int,
    attn_mask: Any,
    *,
    actual_seq_lengths_cpu: Tensor,
    **named: Any,
) -> Tensor:
    """`actual_seq_lengths_cpu`: the end of each sequence."""
    starts = torch.nn.functional.pad(actual_seq_lengths_cpu, (1, 0))
    caches, heads = (key_cache, value_cache), (num_q_heads, num_kv_heads)
    return ops.prefill_attention(
        query, key, value, *caches, starts, starts.diff(), kv_seq_len, max_q_seq_len, *heads, attn_mask, **named
    )


def paged_prefill_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_table: Tensor,
    block_size: int,
    q_ends: Tensor,
    kv_seq_len: Tensor,
    max_q_seq_len: int,
    max_kv_seq_len: int,
    num_q_heads: int,
    num_kv_heads: int,
    attn_mask: Any,
    **named: Any,
) -> Tensor:
    """`q_ends`: the end of each sequence's new tokens, as device type ascend has always passed them."""
    tokens, caches = (query, key, value), (key_cache, value_cache)
    lengths = (None, q_ends, kv_seq_len, None, max_q_seq_len, max_kv_seq_len)
    heads = (num_q_heads, num_kv_heads)
    return ops.paged_prefill_attention(*tokens, *caches, block_table, block_size, *lengths, *heads, attn_mask, **named)
