"""transformers: `attn_implementation="dlinfer"` and `experts_implementation="dlinfer"`, through dlinfer's operators.

A dense cache is one block for each sequence, so the paged operator serves it without a copy of keys and values. Batches
without padding and without a mask of the user's own take it; others, and training, go to PyTorch's
scaled_dot_product_attention, or are composed where there is a soft limit or a sink, which it does not know.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

NAME = "dlinfer"


def _fits(module: Any, attention_mask: Tensor | None, dropout: float, inputs: tuple[Tensor, ...]) -> bool:
    trained = torch.is_grad_enabled() and any(x.requires_grad for x in inputs)
    return attention_mask is None and dropout == 0.0 and getattr(module, "is_causal", True) and not trained


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
    if not _fits(module, attention_mask, dropout, (query, key, value)):
        if sinks is not None or softcap > 0:
            scale = query.shape[-1] ** -0.5 if scaling is None else float(scaling)
            out = _compose(module, query, key, value, attention_mask, scale, dropout, sinks, window, softcap)
            return out.transpose(1, 2).contiguous(), None
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        return sdpa_attention_forward(module, query, key, value, attention_mask, dropout, scaling, **rest)
    from . import operators  # noqa: F401  defines them

    batch, heads, count, width = query.shape
    # Without a mask transformers means what SDPA's is_causal means: several queries are the first keys, not the last.
    # A static cache is longer than what was written: the rest of it is not to be seen.
    length = key.shape[2] if count == 1 else count
    out = query.new_empty((batch * count, heads, value.shape[-1]))
    torch.ops.dlinfer.paged_prefill_attention(
        query.transpose(1, 2).reshape(batch * count, heads, width),
        key.transpose(1, 2),
        value.transpose(1, 2),
        torch.arange(batch, dtype=torch.int32).unsqueeze(1),
        None,
        torch.full((batch,), length, dtype=torch.int32),
        width**-0.5 if scaling is None else float(scaling),
        None,
        sinks,
        window,
        softcap,
        None,
        None,
        0,
        out,
    )
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
    try:
        from transformers.integrations.moe import ExpertsInterface
    except ImportError:
        return  # an older transformers
    ExpertsInterface.register(NAME, experts)


def _has_experts(model: Any) -> bool:
    return any(hasattr(module, "is_transposed") and hasattr(module, "has_gate") for module in model.modules())


def use(model: Any) -> Any:
    """Attention and experts of this transformers model through dlinfer, from the next call on; returns the model."""
    register()
    model.set_attn_implementation(NAME)
    if _has_experts(model):
        model.set_experts_implementation(NAME)
    return model
