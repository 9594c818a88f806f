"""dlinfer.ops, what inference frameworks call. Written by tools/gen_infer.py from standard/dlinfer.tsv."""

import torch

from . import front

OPERATORS = {
    "rms_norm": ("(Tensor hidden_states, Tensor weight, float epsilon) -> Tensor"),
    "add_rms_norm": ("(Tensor hidden_states, Tensor residual, Tensor weight, float epsilon) -> (Tensor, Tensor)"),
    "rms_norm_w8a8": (
        "(Tensor hidden_states, Tensor weight, float epsilon, ScalarType quant_dtype) -> (Tensor, Tensor)"
    ),
    "add_rms_norm_w8a8": (
        "(Tensor hidden_states, Tensor residual, Tensor weight, float epsilon, ScalarType quant_dtype) -> "
        "(Tensor, Tensor, Tensor)"
    ),
    "silu_and_mul": ("(Tensor input_tensor) -> Tensor"),
    "apply_rotary_pos_emb": ("(Tensor query, Tensor key, Tensor cos, Tensor sin) -> (Tensor, Tensor)"),
    "apply_rotary_pos_emb_interleaved": ("(Tensor query, Tensor key, Tensor cos, Tensor sin) -> (Tensor, Tensor)"),
    "fill_kv_cache": (
        "(Tensor key, Tensor value, Tensor(a!) key_cache, Tensor(b!) value_cache, Tensor kv_indices, Tensor? "
        "key_scale, Tensor? key_zero, Tensor? value_scale, Tensor? value_zero, int quant_bits) -> ()"
    ),
    "prefill_attention": (
        "(Tensor query, Tensor key, Tensor value, Tensor q_start_loc, bool causal, float softmax_scale, "
        "Tensor? alibi_slopes, Tensor? sinks, int window, float softcap, Tensor(a!) attn_output) -> ()"
    ),
    "paged_prefill_attention": (
        "(Tensor query, Tensor key_cache, Tensor value_cache, Tensor block_table, Tensor? q_start_loc, Tensor"
        " kv_seq_len, float softmax_scale, Tensor? alibi_slopes, Tensor? sinks, int window, float softcap, "
        "Tensor? kv_scales, Tensor? kv_zeros, int quant_bits, Tensor(a!) attn_output) -> ()"
    ),
    "paged_decode_attention": (
        "(Tensor query, Tensor key_cache, Tensor value_cache, Tensor block_table, Tensor? q_start_loc, Tensor"
        " kv_seq_len, float softmax_scale, Tensor? alibi_slopes, Tensor? sinks, int window, float softcap, "
        "Tensor? kv_scales, Tensor? kv_zeros, int quant_bits, Tensor(a!) attn_output) -> ()"
    ),
    "linear": ("(Tensor x, Tensor weight, Tensor? bias) -> Tensor"),
    "dynamic_quant": ("(Tensor x, ScalarType quant_dtype) -> (Tensor, Tensor)"),
    "linear_w8a8": (
        "(Tensor a, Tensor b, Tensor rms_scale, Tensor linear_scale, ScalarType out_dtype, Tensor? bias) -> Tensor"
    ),
    "weight_quant_matmul": (
        "(Tensor x1, Tensor x2, Tensor scale, Tensor? offset, Tensor? bias, int group_size) -> Tensor"
    ),
    "moe_gating_topk_softmax": ("(Tensor router_logits, int topk, int router_n_groups) -> (Tensor, Tensor)"),
    "fused_moe": (
        "(Tensor hidden_states, Tensor gate_up_weights, Tensor down_weights, Tensor topk_weights, Tensor "
        "topk_ids, bool renormalize) -> Tensor"
    ),
    "linear_w8a8_static": (
        "(Tensor x, Tensor weight, Tensor input_scale, Tensor input_offset, Tensor deq_scale, ScalarType "
        "out_dtype, Tensor? quant_bias) -> Tensor"
    ),
    "fused_moe_w8a8": (
        "(Tensor hidden_states, Tensor gate_up_weights, Tensor gate_up_scales, Tensor down_weights, Tensor "
        "down_scales, Tensor topk_weights, Tensor topk_ids, bool renormalize) -> Tensor"
    ),
    "lightning_indexer": (
        "(Tensor query, Tensor key, Tensor weights, Tensor query_ends, Tensor key_lengths, Tensor "
        "block_table, int sparse_count) -> Tensor"
    ),
    "sparse_flash_attention": (
        "(Tensor query, Tensor key, Tensor value, Tensor sparse_indices, float scale_value, Tensor "
        "block_table, Tensor query_ends, Tensor kv_seqlens, Tensor? query_rope, Tensor? key_rope) -> Tensor"
    ),
}
"""Operator of torch.ops.dlinfer -> its schema."""
IN_C = (
    "rms_norm",
    "add_rms_norm",
    "rms_norm_w8a8",
    "add_rms_norm_w8a8",
    "silu_and_mul",
    "apply_rotary_pos_emb",
    "apply_rotary_pos_emb_interleaved",
    "fill_kv_cache",
    "prefill_attention",
    "paged_prefill_attention",
    "paged_decode_attention",
    "dynamic_quant",
    "linear_w8a8",
    "weight_quant_matmul",
    "moe_gating_topk_softmax",
    "fused_moe",
)
"""Those with a slot in include/dit/infer.h."""
MODES = {
    "rms_norm": (("float32", "float16", "bfloat16"), ""),
    "add_rms_norm": (("float32", "float16", "bfloat16"), ""),
    "rms_norm_w8a8": (("float32", "float16", "bfloat16"), "int8, a scale for each row"),
    "add_rms_norm_w8a8": (("float32", "float16", "bfloat16"), "int8, a scale for each row"),
    "silu_and_mul": (("float32", "float16", "bfloat16"), "last dimension, even"),
    "apply_rotary_pos_emb": (("float32", "float16", "bfloat16"), "any head size, any part of it"),
    "apply_rotary_pos_emb_interleaved": (("float32", "float16", "bfloat16"), "any head size, any part of it"),
    "fill_kv_cache": (("float32", "float16", "bfloat16"), "any head size; quant_bits 0, 8; MLA"),
    "prefill_attention": (
        ("float32", "float16", "bfloat16"),
        "any head sizes (key and value may differ), grouped heads, causal or not, window, soft limit, alibi, sinks",
    ),
    "paged_prefill_attention": (("float32", "float16", "bfloat16"), "the same, causal; quant_bits 0, 8; MLA"),
    "paged_decode_attention": (("float32", "float16", "bfloat16"), "the same as paged_prefill_attention"),
    "dynamic_quant": (("float32", "float16", "bfloat16"), "int8, a scale for each row (PER_TOKEN)"),
    "linear_w8a8": (("int8",), "int8 by int8; results float32, float16, bfloat16"),
    "weight_quant_matmul": (
        ("float32", "float16", "bfloat16"),
        "4 bits, AWQ's packing or signed nibbles, groups of any size",
    ),
    "moe_gating_topk_softmax": (("float32", "float16", "bfloat16"), "plain or by groups"),
    "fused_moe": (("float32", "float16", "bfloat16"), "silu; any number of experts"),
}
"""What those take in C: dtypes, and head sizes or quantisation."""


def rms_norm(hidden_states, weight, epsilon):
    """Out = hidden_states / sqrt(mean of its squares over the last dimension + epsilon) * weight, computed in
    float32 and rounded once."""
    return front.rms_norm(hidden_states, weight, epsilon)


def add_rms_norm(hidden_states, residual, weight, epsilon):
    """Added = hidden_states + residual, rounded to their dtype; out = rms_norm(added). Both are new tensors."""
    return front.add_rms_norm(hidden_states, residual, weight, epsilon)


def rms_norm_w8a8(hidden_states, weight, epsilon, quant_dtype=torch.int8):
    """Rms_norm, then dynamic_quant of the unrounded result."""
    return front.rms_norm_w8a8(hidden_states, weight, epsilon, quant_dtype)


def add_rms_norm_w8a8(hidden_states, residual, weight, epsilon, quant_dtype=torch.int8):
    """Add_rms_norm, its first result quantised as in rms_norm_w8a8."""
    return front.add_rms_norm_w8a8(hidden_states, residual, weight, epsilon, quant_dtype)


def silu_and_mul(input_tensor, dim=-1):
    """Silu(first half of the dimension) * second half."""
    return front.silu_and_mul(input_tensor, dim)


def apply_rotary_pos_emb(query, key, cos, sin):
    """Query (T, H, D), key (T, Hk, D), cos and sin (T, R), R even and at most D: elements i and i + R/2 of the
    first R are rotated by angle i; the rest is copied."""
    return front.apply_rotary_pos_emb(query, key, cos, sin)


def apply_rotary_pos_emb_interleaved(query, key, cos, sin):
    """The same with elements 2i and 2i + 1 as a pair; cos and sin hold every angle twice, side by side."""
    return front.apply_rotary_pos_emb_interleaved(query, key, cos, sin)


def fill_kv_cache(key, value, key_cache, value_cache, kv_indices, k_scales_zeros=(), v_scales_zeros=(), quant_bits=0):
    """Row t of key (T, Hk, D) and value (T, Hk, Dv) goes to slot kv_indices[t] of the caches (blocks, block, Hk,
    D); slot -1 writes nothing, of equal slots the last one stays. quant_bits 8: the caches hold round(x /
    scale - zero) as int8. A value cache that lies inside the key cache (MLA) is not written."""
    return front.fill_kv_cache(
        key, value, key_cache, value_cache, kv_indices, k_scales_zeros, v_scales_zeros, quant_bits
    )


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
    softmax_scale=None,
    alibi_slopes=None,
    attn_output=None,
    sinks=None,
    window=-1,
    softcap=0.0,
):
    """Attention of packed sequences over themselves: query (T, H, D), key (T, Hk, D), value (T, Hk, Dv), sequence
    b has rows q_start_loc[b] to q_start_loc[b + 1]. attn_output (T, H, Dv) may be query itself."""
    return front.prefill_attention(
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
    )


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
    head_size_v=0,
    softmax_scale=None,
    alibi_slopes=None,
    attn_output=None,
    kv_scales=None,
    kv_zeros=None,
    quant_bits=0,
    sinks=None,
    window=-1,
    softcap=0.0,
):
    """Attention of new tokens over a paged cache that holds them already: sequence b has kv_seq_len[b] tokens in
    the blocks of row b of block_table, its queries are the last of them; causal."""
    return front.paged_prefill_attention(
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
    head_size_v=0,
    softmax_scale=None,
    alibi_slopes=None,
    attn_output=None,
    kv_scales=None,
    kv_zeros=None,
    quant_bits=0,
    sinks=None,
    window=-1,
    softcap=0.0,
):
    """The same with T / B queries for each sequence, without q_start_loc."""
    return front.paged_decode_attention(
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
    )


def linear(x, weight, bias=None, all_reduce=False, group=""):
    """X @ weight^T + bias, summed over the group where all_reduce is true."""
    return front.linear(x, weight, bias, all_reduce, group)


def dynamic_quant(x, quant_dtype=torch.int8, quant_granularity="PER_TOKEN"):
    """Scale = largest magnitude of a row / 127 (float32, shape without the last dimension), out = round(x /
    scale); a row of zeros has scale 0."""
    return front.dynamic_quant(x, quant_dtype, quant_granularity)


def linear_w8a8(a, b, rms_scale, linear_scale, out_dtype, quant_dtype=torch.int8, bias=None):
    """A (..., K) and b (N, K) int8: whole numbers are summed, then multiplied by the row's rms_scale and the
    column's linear_scale."""
    return front.linear_w8a8(a, b, rms_scale, linear_scale, out_dtype, quant_dtype, bias)


def weight_quant_matmul(x1, x2, scale, offset=None, bias=None, all_reduce=False, group_size=0):
    """X1 (..., K) by 4-bit weights x2 int32 (K, N / 8), scale (K / group_size, N). offset int32: AWQ's packing
    (nibbles 0 2 4 6 1 3 5 7), w = (q - offset) * scale; a floating offset (or none): nibbles in order and
    signed, w = (q + offset) * scale."""
    return front.weight_quant_matmul(x1, x2, scale, offset, bias, all_reduce, group_size)


def moe_gating_topk_softmax(router_logits, topk, moe_metadata=None):
    """Softmax over the experts in float32, its topk largest (float32, int32), not renormalised; with groups, topk
    / groups of each group; of equal ones the first."""
    return front.moe_gating_topk_softmax(router_logits, topk, moe_metadata)


def fused_moe(
    hidden_states,
    gate_up_weights,
    down_weights,
    topk_weights,
    topk_ids,
    topk,
    renormalize,
    moe_metadata=None,
    chunked_moe_layout=None,
):
    """Sum over a token's experts of weight * down @ silu_and_mul(gate_up @ token); gate_up (E, 2I, N), down (E, N,
    I). An id outside 0 to E - 1 adds nothing; topk_weights stay as they are."""
    return front.fused_moe(
        hidden_states,
        gate_up_weights,
        down_weights,
        topk_weights,
        topk_ids,
        topk,
        renormalize,
        moe_metadata,
        chunked_moe_layout,
    )


def linear_w8a8_static(
    x, weight, input_scale, input_offset, deq_scale, out_dtype, quant_dtype=torch.int8, quant_bias=None
):
    """Q = round(x / input_scale + input_offset), -128 to 127 (an int8 x is q already); (q @ weight^T + quant_bias)
    * deq_scale, whole numbers in the brackets; weight (N, K) int8, quant_bias (N,) int32, deq_scale (N,)."""
    return front.linear_w8a8_static(x, weight, input_scale, input_offset, deq_scale, out_dtype, quant_dtype, quant_bias)


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
    moe_metadata=None,
):
    """Fused_moe over int8 weights with a scale for each of their rows (E, rows): tokens, and what lies between the
    two products, are quantised as in dynamic_quant."""
    return front.fused_moe_w8a8(
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
    )


def lightning_indexer(
    query, key, weights, actual_seq_lengths_query, actual_seq_lengths_key, block_table, sparse_count=2048
):
    """For each query (T, H, D) the places (T, 1, sparse_count) int32 of the keys with the largest sums over the
    heads of weights (T, H) * relu(query . key), the best first, -1 behind the last; a paged cache of keys
    with one head, causal, query_ends: where each sequence's queries end."""
    return front.lightning_indexer(
        query, key, weights, actual_seq_lengths_query, actual_seq_lengths_key, block_table, sparse_count
    )


def sparse_flash_attention(
    query,
    key,
    value,
    sparse_indices,
    scale_value,
    block_table,
    actual_seq_lengths_query,
    kv_seqlens,
    query_rope=None,
    key_rope=None,
):
    """Attention of each query (T, H, D) over the keys of a paged cache with one head that sparse_indices (T, 1, K)
    names (-1: none); the rope parts are further elements of queries and keys."""
    return front.sparse_flash_attention(
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
    )


def fill_contiguous_kvcache(key_cache, value_cache, key_state, value_state):
    """Both caches with the new states behind, on dimension 1."""
    return front.fill_contiguous_kvcache(key_cache, value_cache, key_state, value_state)


def get_cache_len(cache):
    """Its dimension 1."""
    return front.get_cache_len(cache)


def fused_attention(query_states, key_states, value_states, mask):
    """Dense attention; query (B, T, H, D), causal where mask is not empty."""
    return front.fused_attention(query_states, key_states, value_states, mask)


def incre_flash_attention(query, key, value, num_heads, input_layout, softmax_scale=None):
    """Dense attention without a mask; input_layout BSH, BSND or BNSD."""
    return front.incre_flash_attention(query, key, value, num_heads, input_layout, softmax_scale)


def transdata(hidden_states, transdata_type=2):
    """Rows and columns as blocks of 16 (int8: 32) columns, padded with zeros: (batch, columns / n, rows, n)."""
    return front.transdata(hidden_states, transdata_type)
