"""The operators made of PyTorch's own, for every device without a C function: clear before fast. Sums in float32
(float64 tensors: float64). Arguments as in torch.ops.dlinfer.*; caches are (blocks, block, Hk, D)."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from .composed_sparse import lightning_indexer, sparse_flash_attention  # noqa: F401  of the same table


def _wide(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()


def _norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    wide = _wide(x)
    return wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + epsilon) * _wide(weight)


def _round(x: Tensor, low: int, high: int) -> Tensor:
    """To whole numbers from `low` to `high`, of halves to the even one, by the rounding of a sum: the operator standard
    has no function for it, and a closed device should not need the CPU."""
    shift = 1.5 * 2.0 ** (52 if x.dtype == torch.float64 else 23)
    return x.clamp(low, high) + shift - shift


def _quantize(x: Tensor) -> tuple[Tensor, Tensor]:
    scale = (x.abs().amax(-1) / 127).float()
    divisor = torch.where(scale > 0, scale, 1).unsqueeze(-1)
    return _round(x / divisor, -127, 127).to(torch.int8), scale


def rms_norm(hidden_states: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    return _norm(hidden_states, weight, epsilon).to(hidden_states.dtype)


def add_rms_norm(hidden_states: Tensor, residual: Tensor, weight: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    added = hidden_states + residual
    return rms_norm(added, weight, epsilon), added


def rms_norm_w8a8(hidden_states: Tensor, weight: Tensor, epsilon: float, quant_dtype: torch.dtype):
    return _quantize(_norm(hidden_states, weight, epsilon))


def add_rms_norm_w8a8(
    hidden_states: Tensor, residual: Tensor, weight: Tensor, epsilon: float, quant_dtype: torch.dtype
):
    added = hidden_states + residual
    return *_quantize(_norm(added, weight, epsilon)), added


def silu_and_mul(input_tensor: Tensor) -> Tensor:
    gate, up = _wide(input_tensor).chunk(2, -1)
    return (torch.nn.functional.silu(gate) * up).to(input_tensor.dtype)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    width = cos.shape[-1]
    part, cos, sin = _wide(x[..., :width]), _wide(cos).unsqueeze(1), _wide(sin).unsqueeze(1)
    if interleaved:
        turned = torch.stack((-part[..., 1::2], part[..., ::2]), -1).flatten(-2)
    else:
        turned = torch.cat((-part[..., width // 2 :], part[..., : width // 2]), -1)
    return torch.cat(((part * cos + turned * sin).to(x.dtype), x[..., width:]), -1)


def apply_rotary_pos_emb(query: Tensor, key: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    return _rotate(query, cos, sin, False), _rotate(key, cos, sin, False)


def apply_rotary_pos_emb_interleaved(query: Tensor, key: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    return _rotate(query, cos, sin, True), _rotate(key, cos, sin, True)


def _get_extent(cache: Tensor) -> int:
    """Elements from the first of a token to behind its last."""
    return (cache.shape[2] - 1) * cache.stride(2) + cache.shape[3]


def _is_inside(value_cache: Tensor, key_cache: Tensor) -> bool:
    """MLA's value cache is a part of each token of the key cache."""
    offset = value_cache.data_ptr() - key_cache.data_ptr()
    last = offset + _get_extent(value_cache) * value_cache.element_size()
    same = value_cache.stride()[:2] == key_cache.stride()[:2]
    return same and offset >= 0 and last <= _get_extent(key_cache) * key_cache.element_size()


def _fill(rows: Tensor, cache: Tensor, slots: Tensor, scale: Tensor | None, zero: Tensor | None) -> None:
    """Nothing is read by the host: a token whose slot is another's in the end writes what that one writes, and one
    without a slot what slot 0 has."""
    if scale is not None:
        offset = 0 if zero is None else zero.to(rows.device).float().flatten()[0]
        rows = _round(rows.float() / scale.to(rows.device).float().flatten()[0] - offset, -128, 127)
        cache, rows = cache.view(torch.int8), rows.to(torch.int8)
    block, tokens = cache.shape[1], torch.arange(rows.shape[0], device=rows.device)
    if tokens.numel() == 0:
        return
    slots = slots.flatten().to(rows.device).long()
    places = slots.clamp_min(0)
    last = torch.where(places.unsqueeze(1) == slots, tokens, -1).amax(1)
    kept = cache[0, 0].unsqueeze(0)
    values = torch.where((last < 0).view(-1, 1, 1), kept, rows[last.clamp_min(0)])
    cache[places // block, places % block] = values.to(cache.dtype)


def fill_kv_cache(
    key, value, key_cache, value_cache, kv_indices, key_scale, key_zero, value_scale, value_zero, quant_bits
) -> None:
    _fill(key, key_cache, kv_indices, key_scale if quant_bits else None, key_zero)
    if not _is_inside(value_cache, key_cache):
        _fill(value, value_cache, kv_indices, value_scale if quant_bits else None, value_zero)


def _attend(query, key, value, causal, scale, slopes, sinks, window, softcap) -> Tensor:
    """One sequence: query (q, H, D), key (k, Hk, D), value (k, Hk, Dv); the last query stands at the last key."""
    group = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)
    scores = torch.einsum("qhd,khd->hqk", query, key) * scale
    if softcap > 0:
        scores = softcap * torch.tanh(scores / softcap)
    own = torch.arange(query.shape[0], device=query.device).unsqueeze(1) + key.shape[0] - query.shape[0]
    place = torch.arange(key.shape[0], device=query.device).unsqueeze(0)
    if slopes is not None:
        scores = scores - slopes.to(scores).view(-1, 1, 1) * (own - place).abs()
    hidden = (place > own) if causal else torch.zeros_like(own - place, dtype=torch.bool)
    if window > 0:
        hidden = hidden | (place <= own - window) | (place >= own + window)
    scores = scores.masked_fill(hidden, -torch.inf)
    if sinks is not None:
        scores = torch.cat((scores, sinks.to(scores).view(-1, 1, 1).expand(-1, scores.shape[1], 1)), -1)
    weights = torch.softmax(scores, -1)[..., : key.shape[0]]
    return torch.einsum("hqk,khd->qhd", weights, value)


def prefill_attention(
    query, key, value, q_start_loc, causal, softmax_scale, alibi_slopes, sinks, window, softcap, attn_output
) -> None:
    query, starts = _wide(query).clone(), q_start_loc.tolist()
    for begin, end in itertools.pairwise(starts):
        if end > begin:
            rows = (query[begin:end], _wide(key[begin:end]), _wide(value[begin:end]))
            attn_output[begin:end] = _attend(*rows, causal, softmax_scale, alibi_slopes, sinks, window, softcap).to(
                attn_output.dtype
            )


def _gather(cache: Tensor, blocks: Tensor, length: int, scales, zeros, which: int, quantized: bool) -> Tensor:
    rows = cache[blocks].flatten(0, 1)[:length]
    if not quantized:
        return _wide(rows)
    zero = 0 if zeros is None else zeros.flatten()[which].float()
    return (rows.view(torch.int8).float() + zero) * scales.flatten()[which].float()


def paged_prefill_attention(
    query,
    key_cache,
    value_cache,
    block_table,
    q_start_loc,
    kv_seq_len,
    softmax_scale,
    alibi_slopes,
    sinks,
    window,
    softcap,
    kv_scales,
    kv_zeros,
    quant_bits,
    attn_output,
) -> None:
    lengths, block = kv_seq_len.tolist(), key_cache.shape[1]
    step = query.shape[0] // max(len(lengths), 1)
    starts = [i * step for i in range(len(lengths) + 1)] if q_start_loc is None else q_start_loc.tolist()
    query = _wide(query).clone()
    for i, length in enumerate(lengths):
        begin, end = starts[i], starts[i + 1]
        if end <= begin:
            continue
        if length == 0:
            attn_output[begin:end] = 0
            continue
        blocks = block_table[i, : -(-length // block)].long().to(key_cache.device)
        key = _gather(key_cache, blocks, length, kv_scales, kv_zeros, 0, quant_bits == 8)
        value = _gather(value_cache, blocks, length, kv_scales, kv_zeros, 1, quant_bits == 8)
        attn_output[begin:end] = _attend(
            query[begin:end], key, value, True, softmax_scale, alibi_slopes, sinks, window, softcap
        ).to(attn_output.dtype)


paged_decode_attention = paged_prefill_attention


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return torch.nn.functional.linear(x, weight, bias)


def dynamic_quant(x: Tensor, quant_dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    return _quantize(_wide(x))


def linear_w8a8(a, b, rms_scale, linear_scale, out_dtype, bias) -> Tensor:
    rows = a.reshape(-1, a.shape[-1])
    product = rows.double() @ b.double().t() * rms_scale.reshape(-1, 1) * linear_scale.reshape(1, -1)
    product = product if bias is None else product + bias
    return product.to(out_dtype).reshape(*a.shape[:-1], b.shape[0])


_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)  # nibble of each column in AWQ's packing


def _unpack(words: Tensor, awq: bool) -> Tensor:
    shifts = torch.tensor(_ORDER if awq else range(8), device=words.device, dtype=torch.int32) * 4
    return (words.unsqueeze(-1) >> shifts & 15).flatten(-2)


def weight_quant_matmul(x1, x2, scale, offset, bias, group_size) -> Tensor:
    awq = offset is not None and offset.dtype == torch.int32
    group = group_size if group_size > 0 else x2.shape[0]
    weight = _unpack(x2, awq).float()
    if awq:
        weight = weight - _unpack(offset, True).float().repeat_interleave(group, 0)
    else:
        weight = torch.where(weight > 7, weight - 16, weight)
        weight = weight if offset is None else weight + offset.float().repeat_interleave(group, 0)
    out = _wide(x1) @ (weight * scale.float().repeat_interleave(group, 0)).to(_wide(x1).dtype)
    return (out if bias is None else out + bias).to(x1.dtype)


def moe_gating_topk_softmax(router_logits: Tensor, topk: int, router_n_groups: int) -> tuple[Tensor, Tensor]:
    scores = torch.softmax(router_logits.float(), -1)
    if router_n_groups > 0:
        size = scores.shape[-1] // router_n_groups
        weights, ids = scores.unflatten(-1, (router_n_groups, size)).topk(topk // router_n_groups, -1)
        ids = ids + torch.arange(router_n_groups, device=ids.device).view(-1, 1) * size
        return weights.flatten(-2), ids.flatten(-2).to(torch.int32)
    weights, ids = scores.topk(topk, -1)
    return weights, ids.to(torch.int32)


def fused_moe(hidden_states, gate_up_weights, down_weights, topk_weights, topk_ids, renormalize) -> Tensor:
    weights = _wide(topk_weights)
    weights = weights / weights.sum(-1, keepdim=True) if renormalize else weights
    out = torch.zeros_like(_wide(hidden_states))
    for expert in range(gate_up_weights.shape[0]):
        tokens, places = (topk_ids == expert).nonzero(as_tuple=True)
        if tokens.numel():
            hidden = _wide(hidden_states[tokens]) @ _wide(gate_up_weights[expert]).t()
            result = silu_and_mul(hidden) @ _wide(down_weights[expert]).t()
            out.index_add_(0, tokens, result * weights[tokens, places].unsqueeze(-1).to(result.dtype))
    return out.to(hidden_states.dtype)


def _ops():
    return torch.ops.dlinfer  # what C has of the parts is C's


def linear_w8a8_static(x, weight, input_scale, input_offset, deq_scale, out_dtype, quant_bias) -> Tensor:
    if x.dtype != torch.int8:
        x = _round(_wide(x) / input_scale.float() + input_offset.float(), -128, 127).to(torch.int8)
    ones = torch.ones(x.shape[:-1].numel(), device=x.device)
    scale = deq_scale.reshape(-1).float()
    bias = None if quant_bias is None else quant_bias.float() * scale
    return _ops().linear_w8a8(x, weight, ones, scale.unsqueeze(1), out_dtype, bias)


def fused_moe_w8a8(
    hidden_states, gate_up_weights, gate_up_scales, down_weights, down_scales, topk_weights, topk_ids, renormalize
) -> Tensor:
    weights = _wide(topk_weights)
    weights = weights / weights.sum(-1, keepdim=True) if renormalize else weights
    rows, scale = _ops().dynamic_quant(hidden_states, torch.int8)
    up_scales, down_scales = (x.reshape(x.shape[0], -1, 1).float() for x in (gate_up_scales, down_scales))
    out = torch.zeros(hidden_states.shape, dtype=torch.float32, device=hidden_states.device)
    for expert in range(gate_up_weights.shape[0]):
        tokens, places = (topk_ids == expert).nonzero(as_tuple=True)
        if tokens.numel():
            up = (gate_up_weights[expert], scale[tokens], up_scales[expert], torch.float32, None)
            hidden = _ops().silu_and_mul(_ops().linear_w8a8(rows[tokens], *up))
            inner, inner_scale = _ops().dynamic_quant(hidden, torch.int8)
            down = (down_weights[expert], inner_scale, down_scales[expert], torch.float32, None)
            result = _ops().linear_w8a8(inner, *down)
            out.index_add_(0, tokens, result * weights[tokens, places].unsqueeze(-1).float())
    return out.to(hidden_states.dtype)
