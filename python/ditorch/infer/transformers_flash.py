"""transformers: the name "dlinfer_flash2", for what asks for flash attention by its name: continuous batching and
batches without padding.

transformers finds the functions of flash attention by the name's package; these three have the same arguments and
compute by dlinfer's operators. The 2 is the version whose caches of pages they serve (flash_attn_with_kvcache).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

NAME = "dlinfer_flash2"


def _check(query: Tensor, dropout: float) -> Any:
    if torch.is_grad_enabled() and query.requires_grad:
        raise NotImplementedError(f"{NAME!r} has no gradients: train with attn_implementation='dlinfer'")
    if dropout:
        raise NotImplementedError(f"{NAME!r} has no dropout; it was {dropout}")
    from . import operators  # noqa: F401  defines them

    return torch.ops.dlinfer


def flash_attn_varlen_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    s_aux: Tensor | None = None,
) -> Tensor:
    """Packed sequences: q (T, H, D), k and v (Tk, Hk, D); the last query of a sequence stands at its last key."""
    ops = _check(q, dropout_p)
    out = q.new_zeros((*q.shape[:2], v.shape[-1]))  # rows behind the last sequence belong to nobody
    scale = q.shape[-1] ** -0.5 if softmax_scale is None else float(softmax_scale)
    options = (scale, None, s_aux, window_size[0] + 1 if window_size[0] >= 0 else -1, softcap or 0.0)
    if not causal:
        if q.shape[0] != k.shape[0]:
            raise NotImplementedError(f"{NAME!r} without causal=True needs as many keys ({k.shape[0]}) as queries")
        ops.prefill_attention(q, k, v, cu_seqlens_q, False, *options, out)
        return out
    table = cu_seqlens_k[:-1].unsqueeze(1) + torch.arange(int(max_seqlen_k), device=k.device)
    table = table.clamp_max(max(k.shape[0] - 1, 0)).int()
    caches = (k.unsqueeze(1), v.unsqueeze(1))  # blocks of one token
    ops.paged_prefill_attention(q, *caches, table, cu_seqlens_q, cu_seqlens_k.diff(), *options, None, None, 0, out)
    return out


def flash_attn_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    s_aux: Tensor | None = None,
) -> Tensor:
    """The same for sequences of one length: q (B, T, H, D)."""
    batch, queries, keys = q.shape[0], q.shape[1], k.shape[1]
    steps = torch.arange(batch + 1, dtype=torch.int32, device=q.device)
    packed = [x.reshape(-1, *x.shape[-2:]) for x in (q, k, v)]
    options = (dropout_p, softmax_scale, causal, window_size, softcap, s_aux)
    out = flash_attn_varlen_func(*packed, steps * queries, steps * keys, queries, keys, *options)
    return out.view(batch, queries, *out.shape[-2:])


def flash_attn_with_kvcache(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    k: Tensor,
    v: Tensor,
    cache_seqlens: Tensor,
    block_table: Tensor,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    s_aux: Tensor | None = None,
) -> Tensor:
    """One more token for each sequence: q (B, 1, H, D), k and v (B, 1, Hk, D) go to the caches (blocks, block, Hk, D)
    behind `cache_seqlens` tokens. A sequence of length -1 or without a block is none."""
    ops = _check(q, 0.0)
    block, places = k_cache.shape[1], cache_seqlens.long().clamp_min(0)
    number = block_table.gather(1, (places // block).unsqueeze(1)).squeeze(1).long()
    slots = torch.where((number >= 0) & (cache_seqlens >= 0), number * block + places % block, -1)
    ops.fill_kv_cache(k.squeeze(1), v.squeeze(1), k_cache, v_cache, slots, None, None, None, None, 0)
    lengths = torch.where(slots >= 0, places + 1, 0)
    scale = q.shape[-1] ** -0.5 if softmax_scale is None else float(softmax_scale)
    window = window_size[0] + 1 if window_size[0] >= 0 else -1
    out = q.new_empty((q.shape[0], q.shape[2], v_cache.shape[-1]))
    caches, options = (k_cache, v_cache), (scale, None, s_aux, window, softcap or 0.0, None, None, 0)
    ops.paged_decode_attention(q.squeeze(1), *caches, block_table, None, lengths, *options, out)
    return out.unsqueeze(1)


def register() -> bool:
    """Let transformers know the name; False for a version that looks for the functions elsewhere."""
    try:
        from transformers import AttentionInterface, AttentionMaskInterface
        from transformers import modeling_flash_attention_utils as finder
        from transformers.integrations.flash_attention import flash_attention_forward
        from transformers.masking_utils import flash_attention_mask
    except ImportError:
        return False
    native = getattr(finder, "_lazy_imports", None)
    if native is None or not hasattr(finder, "_unpad_input"):
        return False
    if not hasattr(native, "_dlinfer"):

        def find(implementation: str | None, *given: Any, **named: Any) -> Any:
            if implementation != NAME:
                return native(implementation, *given, **named)
            functions = (flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache)
            return *functions, finder._pad_input, finder._unpad_input

        find._dlinfer = True
        finder._lazy_imports = find
    AttentionInterface.register(NAME, flash_attention_forward)
    AttentionMaskInterface.register(NAME, flash_attention_mask)
    return True
