"""transformers: `attn_implementation="dlinfer"`, attention through dlinfer's operators.

A dense cache is one block for each sequence, so the paged operator serves it without a copy of keys and values. Batches
without padding and without a mask of the user's own take it; others go to PyTorch's scaled_dot_product_attention.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

NAME = "dlinfer"


def _fits(module: Any, attention_mask: Tensor | None, dropout: float) -> bool:
    return attention_mask is None and dropout == 0.0 and getattr(module, "is_causal", True)


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
    if not _fits(module, attention_mask, dropout):
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
        rest.get("s_aux"),
        rest.get("sliding_window") or -1,
        rest.get("softcap") or 0.0,
        None,
        None,
        0,
        out,
    )
    return out.view(batch, count, heads, -1), None


def register() -> None:
    """Let transformers know the name; once is enough."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)


def use(model: Any) -> Any:
    """Attention of this transformers model through dlinfer, from the next call on; returns the model."""
    register()
    model.set_attn_implementation(NAME)
    return model
