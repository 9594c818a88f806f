"""What tracing is told about the memory layout of results: that of the device's operators.

PyTorch's own rules for fake tensors ask which kernel of CUDA or of the CPU would run; for a device they do not know
they say "contiguous". A compiled program that believes it then fails where a view of the real result is impossible.
The rules here are those of src/ops/network_conv.c and adapter/torch/Attention.cpp.
"""

from __future__ import annotations

import torch

from .compiler import is_on_device
from .patches import Patches

_SPATIAL_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


def _install_convolution(patches: Patches, table: dict, target) -> None:
    native = table[target]

    def convolution(fake_mode, func, *args, **kwargs):
        result = native(fake_mode, func, *args, **kwargs)
        names = [argument.name for argument in func._schema.arguments]
        given = dict(zip(names, args, strict=False), **kwargs)
        seen = [given[name] for name in ("input", "weight") if name in given]
        wanted = _SPATIAL_FORMATS.get(seen[0].dim())
        if not is_on_device(seen[0]) or wanted is None:
            return result
        with fake_mode:
            if not any(torch._prims_common.suggest_memory_format(tensor) == wanted for tensor in seen):
                wanted = torch.contiguous_format
            if isinstance(result, torch.Tensor):
                return result.contiguous(memory_format=wanted)
            spread = [t if t is None else t.contiguous(memory_format=wanted) for t in result[:2]]
            return (*spread, result[2])

    patches.item(table, target, convolution)


def _attention(fake_mode, func, query, key, value, attn_bias=None, dropout_p=0.0, *args, **kwargs):
    if not is_on_device(query):
        return NotImplemented
    with fake_mode:
        batch, heads, length, depth = query.shape
        wide = torch.float64 if query.dtype is torch.float64 else torch.float32
        if value.shape[3] == depth:
            output = torch.empty_like(query)
        else:
            output = query.new_empty(batch, length, heads, value.shape[3]).transpose(1, 2)
        sums = query.new_empty((batch, length, heads), dtype=wide).transpose(1, 2)
        seed = offset = None
        if dropout_p > 0:
            seed, offset = (query.new_empty((), dtype=torch.int64) for _ in range(2))
    return output, sums, None, None, length, key.shape[2], seed, offset, None


def _attention_backward(fake_mode, func, grad_out, query, key, value, attn_bias, grad_input_mask, *args, **kwargs):
    if not is_on_device(query):
        return NotImplemented
    with fake_mode:
        made = []
        for like in (query, key, value):
            batch, heads, length, depth = like.shape
            made.append(like.new_empty(batch, length, heads, depth).transpose(1, 2))
        bias = attn_bias.new_empty(attn_bias.shape) if grad_input_mask[3] and attn_bias is not None else None
    return *made, bias


def patch(patches: Patches, module) -> None:
    """torch._subclasses.fake_impls: the device's rules before PyTorch's; other devices keep theirs."""
    table, aten = module.op_implementations_dict, torch.ops.aten
    for target in (aten.convolution.default, aten.convolution_backward.default):
        if target in table:
            _install_convolution(patches, table, target)
    patches.item(table, aten._scaled_dot_product_fused_attention_overrideable.default, _attention)
    patches.item(table, aten._scaled_dot_product_fused_attention_overrideable_backward.default, _attention_backward)
