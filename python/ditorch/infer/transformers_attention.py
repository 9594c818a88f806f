"""transformers: `attn_implementation="dlinfer"` and `experts_implementation="dlinfer"`, through dlinfer's operators.

A dense cache is one block for each sequence, so the paged operator serves it without a copy of keys and values; where
the batch is padded on the left, or a static cache longer than what was written, its tokens are the blocks. Other masks,
and training, go to PyTorch's scaled_dot_product_attention, or are composed where there is a soft limit or a sink, which
it does not know.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import transformers_flash, transformers_padding

NAME = "dlinfer"


def _fits(module: Any, dropout: float, inputs: tuple[Tensor, ...]) -> bool:
    trained = torch.is_grad_enabled() and any(x.requires_grad for x in inputs)
    return dropout == 0.0 and getattr(module, "is_causal", True) and not trained


def _find_sequences(key: Tensor, value: Tensor, count: int) -> tuple[Tensor, ...]:
    """Caches, table, starts and lengths of a batch without a mask. Then transformers means what SDPA's is_causal means:
    several queries are the first keys, not the last."""
    length, batch = key.shape[2] if count == 1 else count, key.shape[0]
    table = torch.arange(batch, dtype=torch.int32).unsqueeze(1)
    lengths = torch.full((batch,), length, dtype=torch.int32)
    return key.transpose(1, 2), value.transpose(1, 2), table, None, lengths


def _find_padded(key: Tensor, value: Tensor, mask: Tensor, window: int) -> tuple[Tensor, ...] | None:
    """The same as the mask tells it; None where it tells something else."""
    if mask.shape[0] != key.shape[0] or mask.shape[-1] != key.shape[2]:
        return None
    layout = transformers_padding.get_layout(mask, window)
    if layout is None:
        return None
    views = [transformers_padding.view_tokens(x) for x in (key, value)]
    if None in views or views[0][1] != views[1][1]:
        views = [transformers_padding.view_tokens(x.contiguous()) for x in (key, value)]
    table = layout.table + (layout.rows * views[0][1]).int()
    return views[0][0], views[1][0], table, layout.starts, layout.lengths


def _compose(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    scale: float,
    dropout: float,
    sinks: Tensor | None,
    window: int,
    softcap: float,
) -> Tensor:
    """What SDPA leaves out: scores softcap * tanh(score / softcap), and exp(sink) in the softmax's denominator."""
    group = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)
    scores = (query @ key.transpose(2, 3)).float() * scale
    if softcap > 0:
        scores = softcap * torch.tanh(scores / softcap)
    if mask is None and getattr(module, "is_causal", True):
        place = torch.arange(key.shape[2], device=key.device)
        own = torch.arange(query.shape[2], device=key.device).unsqueeze(1)
        own = own + (key.shape[2] - 1 if query.shape[2] == 1 else 0)
        mask = (place <= own) & ((place > own - window) if window > 0 else True)
    if mask is not None and mask.dtype == torch.bool:
        scores = scores.masked_fill(~mask[..., : key.shape[2]], torch.finfo(scores.dtype).min)
    elif mask is not None:
        scores = scores + mask[..., : key.shape[2]]
    if sinks is not None:
        more = sinks.float().view(1, -1, 1, 1).expand(*scores.shape[:3], 1)
        scores = torch.cat((scores, more), -1)
    weights = torch.softmax(scores, -1)[..., : key.shape[2]].to(value.dtype)
    return torch.nn.functional.dropout(weights, dropout, training=dropout > 0) @ value


def attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **rest: Any,
) -> tuple[Tensor, None]:
    """query (B, H, q, D), key and value (B, Hk, k, D) -> (B, q, H, D)."""
    window, softcap, sinks = rest.get("sliding_window") or -1, rest.get("softcap") or 0.0, rest.get("s_aux")
    scale = query.shape[-1] ** -0.5 if scaling is None else float(scaling)
    found = None
    if _fits(module, dropout, (query, key, value)):
        masked = attention_mask is not None
        found = (
            _find_padded(key, value, attention_mask, window) if masked else _find_sequences(key, value, query.shape[2])
        )
    if found is None:
        if sinks is not None or softcap > 0:
            out = _compose(module, query, key, value, attention_mask, scale, dropout, sinks, window, softcap)
            return out.transpose(1, 2).contiguous(), None
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        return sdpa_attention_forward(module, query, key, value, attention_mask, dropout, scaling, **rest)
    from . import operators  # noqa: F401  defines them

    batch, heads, count, width = query.shape
    out = query.new_empty((batch * count, heads, value.shape[-1]))
    packed = query.transpose(1, 2).reshape(batch * count, heads, width)
    window = -1 if count == 1 and attention_mask is not None else window  # it is in the mask
    options = (scale, None, sinks, window, softcap, None, None, 0)
    torch.ops.dlinfer.paged_prefill_attention(packed, *found, *options, out)
    return out.view(batch, count, heads, -1), None


def _are_plain(module: Any) -> bool:
    """Gate and up side by side, rows as torch's linears have them, silu between, and nothing else."""
    name = getattr(module.config, "hidden_act", None) or getattr(module.config, "hidden_activation", None)
    own = getattr(type(module), "_apply_gate", None)
    return (
        name in ("silu", "swish")
        and getattr(own, "__name__", "") == "_default_apply_gate"
        and module.has_gate
        and getattr(module, "is_concatenated", True)
        and not module.is_transposed
        and not module.has_bias
        and not getattr(module, "has_post_expert_norm", False)
        and not getattr(module, "_is_expert_parallel", False)
    )


def experts(module: Any, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
    """hidden_states (T, N), the experts of each token and their weights (T, K); training goes PyTorch's way."""
    trained = torch.is_grad_enabled() and (hidden_states.requires_grad or module.down_proj.requires_grad)
    if trained or not _are_plain(module):
        from transformers.integrations.moe import batched_mm_experts_forward

        return batched_mm_experts_forward(module, hidden_states, top_k_index, top_k_weights)
    from . import operators  # noqa: F401  defines them

    return torch.ops.dlinfer.fused_moe(
        hidden_states, module.gate_up_proj, module.down_proj, top_k_weights, top_k_index, False
    )


def register() -> None:
    """Let transformers know the names; once is enough."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    transformers_flash.register()
    try:
        from transformers.integrations.moe import ExpertsInterface
    except ImportError:
        return  # an older transformers
    ExpertsInterface.register(NAME, experts)


def _has_experts(model: Any) -> bool:
    return any(hasattr(module, "is_transposed") and hasattr(module, "has_gate") for module in model.modules())


def use(model: Any, attention: str = NAME) -> Any:
    """Attention and experts of this transformers model through dlinfer, from the next call on; returns the model.
    `attention`: "dlinfer", or "dlinfer_flash2", which continuous batching takes for flash attention."""
    register()
    model.set_attn_implementation(attention)
    if _has_experts(model):
        model.set_experts_implementation(NAME)
    return model
