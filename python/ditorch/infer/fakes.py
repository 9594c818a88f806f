"""Shapes and dtypes of the operators' results, for tracing and compiling. Those that only write return nothing."""

from __future__ import annotations

import torch
from torch import Tensor


def _like(x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    return x.new_empty(x.shape, dtype=dtype or x.dtype)


def _scale(x: Tensor) -> Tensor:
    return x.new_empty(x.shape[:-1], dtype=torch.float32)


FAKES = {
    "rms_norm": lambda x, weight, epsilon: _like(x),
    "add_rms_norm": lambda x, residual, weight, epsilon: (_like(x), _like(x)),
    "rms_norm_w8a8": lambda x, weight, epsilon, dtype: (_like(x, dtype), _scale(x)),
    "add_rms_norm_w8a8": lambda x, residual, weight, epsilon, dtype: (_like(x, dtype), _scale(x), _like(x)),
    "silu_and_mul": lambda x: x.new_empty((*x.shape[:-1], x.shape[-1] // 2)),
    "apply_rotary_pos_emb": lambda query, key, cos, sin: (_like(query), _like(key)),
    "apply_rotary_pos_emb_interleaved": lambda query, key, cos, sin: (_like(query), _like(key)),
    "fill_kv_cache": lambda *arguments: None,
    "prefill_attention": lambda *arguments: None,
    "paged_prefill_attention": lambda *arguments: None,
    "paged_decode_attention": lambda *arguments: None,
    "linear": lambda x, weight, bias: x.new_empty((*x.shape[:-1], weight.shape[0])),
    "dynamic_quant": lambda x, dtype: (_like(x, dtype), _scale(x)),
    "linear_w8a8": lambda a, b, rms, linear, dtype, bias: a.new_empty((*a.shape[:-1], b.shape[0]), dtype=dtype),
    "weight_quant_matmul": lambda x, w, scale, offset, bias, size: x.new_empty((*x.shape[:-1], w.shape[1] * 8)),
    "moe_gating_topk_softmax": lambda x, topk, groups: (
        x.new_empty((x.shape[0], topk), dtype=torch.float32),
        x.new_empty((x.shape[0], topk), dtype=torch.int32),
    ),
    "linear_w8a8_static": lambda x, w, scale, offset, deq, dtype, bias: x.new_empty(
        (*x.shape[:-1], w.shape[0]), dtype=dtype
    ),
    "fused_moe_w8a8": lambda x, up, up_scales, down, down_scales, weights, ids, renormalize: _like(x),
    "lightning_indexer": lambda q, key, weights, ends, lengths, table, count: q.new_empty(
        (q.shape[0], 1, count), dtype=torch.int32
    ),
    "sparse_flash_attention": lambda q, key, value, *rest: q.new_empty((*q.shape[:2], value.shape[-1])),
    "fused_moe": lambda x, up, down, weights, ids, renormalize: _like(x),
}
