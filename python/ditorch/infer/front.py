"""From the calls of frameworks to the operators: each vendor's conventions (vendors.py) become one form.

Caches become (blocks, block, Hk, D), whatever the vendor stores (a view, nothing is copied); lengths become the place
where each sequence begins. Lengths may be on the CPU or on the device: nothing here waits for the device.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from . import vendors


def _ops() -> Any:
    from . import operators  # noqa: F401  defines them

    return torch.ops.dlinfer


_local = threading.local()


@contextlib.contextmanager
def extras(window: int = -1, softcap: float = 0.0, sinks: Tensor | None = None) -> Iterator[None]:
    """For the attentions inside: what a framework knows about a layer but does not pass."""
    before = getattr(_local, "extras", None)
    _local.extras = (sinks, window, softcap)
    try:
        yield
    finally:
        _local.extras = before


def _extras(sinks: Tensor | None, window: int, softcap: float) -> tuple[Tensor | None, int, float]:
    """The caller's, or those of the layer around."""
    known = getattr(_local, "extras", None)
    if known is None:
        return sinks, window, softcap
    return (
        known[0] if sinks is None else sinks,
        known[1] if window <= 0 else window,
        softcap if softcap > 0 else known[2],
    )


def rms_norm(hidden_states, weight, epsilon):
    return _ops().rms_norm(hidden_states, weight, epsilon)


def add_rms_norm(hidden_states, residual, weight, epsilon):
    return _ops().add_rms_norm(hidden_states, residual, weight, epsilon)


def rms_norm_w8a8(hidden_states, weight, epsilon, quant_dtype):
    return _ops().rms_norm_w8a8(hidden_states, weight, epsilon, quant_dtype)


def add_rms_norm_w8a8(hidden_states, residual, weight, epsilon, quant_dtype):
    return _ops().add_rms_norm_w8a8(hidden_states, residual, weight, epsilon, quant_dtype)


def silu_and_mul(input_tensor, dim):
    if dim % input_tensor.dim() != input_tensor.dim() - 1:
        return _ops().silu_and_mul(input_tensor.movedim(dim, -1).contiguous()).movedim(-1, dim)
    return _ops().silu_and_mul(input_tensor)


def _flat(table: Tensor) -> Tensor:
    return table.reshape(-1, table.shape[-1]) if table.dim() != 2 else table


def _rotary(operator, query, key, cos, sin):
    q, k = (x.reshape(-1, *x.shape[-2:]) if x.dim() != 3 else x for x in (query, key))
    out_query, out_key = operator(q, k, _flat(cos), _flat(sin))
    return out_query.view(query.shape), out_key.view(key.shape)


def apply_rotary_pos_emb(query, key, cos, sin):
    return _rotary(_ops().apply_rotary_pos_emb, query, key, cos, sin)


def apply_rotary_pos_emb_interleaved(query, key, cos, sin):
    return _rotary(_ops().apply_rotary_pos_emb_interleaved, query, key, cos, sin)


def _cache(cache: Tensor) -> Tensor:
    """(blocks, block, Hk, D)."""
    return cache.transpose(1, 2) if vendors.get().heads_first else cache


def fill_kv_cache(key, value, key_cache, value_cache, kv_indices, k_scales_zeros, v_scales_zeros, quant_bits):
    scales = [*k_scales_zeros, None, None][:2] + [*v_scales_zeros, None, None][:2]
    _ops().fill_kv_cache(
        key, value, _cache(key_cache), _cache(value_cache), kv_indices, *scales, 8 if int(quant_bits) == 8 else 0
    )
    return key_cache, value_cache


def _starts(q_start_loc, q_seq_len, sequences: int | None, cumulative: bool) -> Tensor:
    """Where each sequence's queries begin, and their end."""
    if q_start_loc is not None and sequences is not None and q_start_loc.numel() == sequences + 1:
        return q_start_loc
    ends = q_seq_len if cumulative else q_seq_len.cumsum(0)
    return torch.nn.functional.pad(ends, (1, 0))


def _scale(softmax_scale, query: Tensor) -> float:
    return float(softmax_scale) if softmax_scale else 1 / math.sqrt(query.shape[-1])


def _output(attn_output, query: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """(what is returned, its form T x H x Dv): the caller's tensor, or a new one."""
    if attn_output is None:
        attn_output = query.new_empty((*query.shape[:-1], width))
    if attn_output.shape[-1] != width and attn_output.dim() == 3 and attn_output.shape[-1] > width:
        return attn_output, attn_output[..., :width]
    return attn_output, attn_output.view(-1, query.shape[-2], width)


def _is_causal(attn_mask, q_start_loc, q_seq_len) -> bool:
    if vendors.get().causal_by_mask:
        return attn_mask is not None and len(attn_mask) > 0
    return q_start_loc is not None and q_start_loc.numel() == q_seq_len.numel() + 1


def prefill_attention(
    query,
    key,
    value,
    key_cache,
    value_cache,
    q_start_loc,
    q_seq_len,
    kv_seq_len,
    max_q_seq_len,
    num_q_heads,
    num_kv_heads,
    attn_mask,
    softmax_scale,
    alibi_slopes,
    attn_output,
    sinks,
    window,
    softcap,
):
    query, key = query.view(-1, num_q_heads, query.shape[-1]), key.view(-1, num_kv_heads, key.shape[-1])
    value = value.view(-1, num_kv_heads, value.shape[-1])
    result, out = _output(attn_output, query, value.shape[-1])
    sinks, window, softcap = _extras(sinks, window, softcap)
    _ops().prefill_attention(
        query,
        key,
        value,
        _starts(q_start_loc, q_seq_len, q_seq_len.numel(), False),
        _is_causal(attn_mask, q_start_loc, q_seq_len),
        _scale(softmax_scale, query),
        alibi_slopes,
        sinks,
        window,
        softcap,
        out,
    )
    return result


def _paged(operator, query, key_cache, value_cache, block_table, starts, kv_seq_len, options, attn_output, head_size_v):
    softmax_scale, alibi_slopes, kv_scales, kv_zeros, quant_bits, *more = options
    sinks, window, softcap = _extras(*more)
    key_cache, value_cache = _cache(key_cache), _cache(value_cache)
    if head_size_v and head_size_v < value_cache.shape[-1]:
        value_cache = value_cache[..., :head_size_v]
    result, out = _output(attn_output, query, value_cache.shape[-1])
    operator(
        query,
        key_cache,
        value_cache,
        block_table,
        starts,
        kv_seq_len,
        _scale(softmax_scale, query),
        alibi_slopes,
        sinks,
        window,
        softcap,
        kv_scales,
        kv_zeros,
        8 if int(quant_bits) == 8 else 0,
        out,
    )
    return result


def paged_prefill_attention(
    query,
    key,
    value,
    key_cache,
    value_cache,
    block_table,
    block_size,
    q_start_loc,
    q_seq_len,
    kv_seq_len,
    cu_seq_lens_kv,
    max_q_seq_len,
    max_kv_seq_len,
    num_q_heads,
    num_kv_heads,
    attn_mask,
    head_size_v,
    softmax_scale,
    alibi_slopes,
    attn_output,
    kv_scales,
    kv_zeros,
    quant_bits,
    sinks,
    window,
    softcap,
):
    starts = _starts(q_start_loc, q_seq_len, kv_seq_len.numel(), vendors.get().cumulative_paged)
    options = (softmax_scale, alibi_slopes, kv_scales, kv_zeros, quant_bits, sinks, window, softcap)
    query = query.view(-1, num_q_heads, query.shape[-1])
    return _paged(
        _ops().paged_prefill_attention,
        query,
        key_cache,
        value_cache,
        block_table,
        starts,
        kv_seq_len,
        options,
        attn_output,
        head_size_v,
    )


def paged_decode_attention(
    query,
    key_cache,
    value_cache,
    block_table,
    block_size,
    q_seq_len,
    kv_seq_len,
    max_kv_seq_len,
    num_q_heads,
    num_kv_heads,
    head_size_v,
    softmax_scale,
    alibi_slopes,
    attn_output,
    kv_scales,
    kv_zeros,
    quant_bits,
    sinks,
    window,
    softcap,
):
    options = (softmax_scale, alibi_slopes, kv_scales, kv_zeros, quant_bits, sinks, window, softcap)
    query = query.view(-1, num_q_heads, query.shape[-1])
    return _paged(
        _ops().paged_decode_attention,
        query,
        key_cache,
        value_cache,
        block_table,
        None,
        kv_seq_len,
        options,
        attn_output,
        head_size_v,
    )


def _reduce(out: Tensor, all_reduce: bool, group: Any = None) -> Tensor:
    if all_reduce is True:
        import torch.distributed as dist

        dist.all_reduce(out, group=group or None)
    return out


def linear(x, weight, bias, all_reduce, group):
    return _reduce(_ops().linear(x, weight, bias), all_reduce, group)


def dynamic_quant(x, quant_dtype, quant_granularity):
    if quant_granularity not in (None, "PER_TOKEN"):
        raise ValueError(f"'quant_granularity' is {quant_granularity!r}; valid: 'PER_TOKEN'")
    return _ops().dynamic_quant(x, quant_dtype)


def linear_w8a8(a, b, rms_scale, linear_scale, out_dtype, quant_dtype, bias):
    return _ops().linear_w8a8(a, b, rms_scale, linear_scale, out_dtype, bias)


def weight_quant_matmul(x1, x2, scale, offset, bias, all_reduce, group_size):
    return _reduce(_ops().weight_quant_matmul(x1, x2, scale, offset, bias, group_size), all_reduce)


def moe_gating_topk_softmax(router_logits, topk, moe_metadata):
    groups = getattr(moe_metadata, "router_n_groups", -1)
    return _ops().moe_gating_topk_softmax(router_logits, topk, -1 if groups is None else groups)


def fused_moe(
    hidden_states,
    gate_up_weights,
    down_weights,
    topk_weights,
    topk_ids,
    topk,
    renormalize,
    moe_metadata,
    chunked_moe_layout,
):
    ids = topk_ids if topk_ids.dtype in (torch.int32, torch.int64) else topk_ids.to(torch.int32)
    return _ops().fused_moe(hidden_states, gate_up_weights, down_weights, topk_weights, ids, bool(renormalize))


def linear_w8a8_static(x, weight, input_scale, input_offset, deq_scale, out_dtype, quant_dtype, quant_bias):
    return _ops().linear_w8a8_static(x, weight, input_scale, input_offset, deq_scale, out_dtype, quant_bias)


def fused_moe_w8a8(
    hidden_states,
    gate_up_weights,
    gate_up_scales,
    down_weights,
    down_scales,
    topk_weights,
    topk_ids,
    topk,
    renormalize,
    moe_metadata,
):
    experts = (gate_up_weights, gate_up_scales, down_weights, down_scales)
    return _ops().fused_moe_w8a8(hidden_states, *experts, topk_weights, topk_ids, bool(renormalize))


def lightning_indexer(query, key, weights, actual_seq_lengths_query, actual_seq_lengths_key, block_table, sparse_count):
    lengths = (actual_seq_lengths_query, actual_seq_lengths_key)
    return _ops().lightning_indexer(query, _cache(key), weights, *lengths, block_table, sparse_count)


def sparse_flash_attention(
    query,
    key,
    value,
    sparse_indices,
    scale_value,
    block_table,
    actual_seq_lengths_query,
    kv_seqlens,
    query_rope,
    key_rope,
):
    rope = (query_rope, None if key_rope is None else _cache(key_rope))
    lengths = (actual_seq_lengths_query, kv_seqlens)
    return _ops().sparse_flash_attention(
        query, _cache(key), _cache(value), sparse_indices, scale_value, block_table, *lengths, *rope
    )


def fill_contiguous_kvcache(key_cache, value_cache, key_state, value_state):
    return torch.cat((key_cache, key_state), 1), torch.cat((value_cache, value_state), 1)


def get_cache_len(cache):
    return cache.shape[1]


def _dense(query, key, value, causal: bool, scale=None):
    return torch.nn.functional.scaled_dot_product_attention(
        query, key, value, is_causal=causal, scale=scale, enable_gqa=query.shape[1] != key.shape[1]
    )


def fused_attention(query_states, key_states, value_states, mask):
    parts = [x.transpose(1, 2) for x in (query_states, key_states, value_states)]
    return _dense(*parts, causal=mask is not None and len(mask) > 0).transpose(1, 2)


def incre_flash_attention(query, key, value, num_heads, input_layout, softmax_scale):
    if input_layout not in ("BSH", "BSND", "BNSD"):
        raise ValueError(f"'input_layout' is {input_layout!r}; valid: 'BSH', 'BSND', 'BNSD'")
    parts = [query, key, value]
    if input_layout == "BSH":
        width = query.shape[-1] // num_heads
        parts = [x.unflatten(-1, (-1, width)) for x in parts]
    if input_layout != "BNSD":
        parts = [x.transpose(1, 2) for x in parts]
    out = _dense(*parts, causal=False, scale=softmax_scale)
    out = out if input_layout == "BNSD" else out.transpose(1, 2)
    return out.flatten(-2) if input_layout == "BSH" else out


def transdata(hidden_states, transdata_type):
    if transdata_type != 2:
        raise ValueError(f"'transdata_type' is {transdata_type}; valid: 2")
    x = hidden_states if hidden_states.dim() == 3 else hidden_states.unsqueeze(0)
    width = 32 if x.dtype == torch.int8 else 16
    rows, columns = -x.shape[1] % 16, -x.shape[2] % width
    return torch.nn.functional.pad(x, (0, columns, 0, rows)).unflatten(2, (-1, width)).transpose(1, 2).contiguous()
