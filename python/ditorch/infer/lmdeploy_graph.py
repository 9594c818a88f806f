"""Graph mode of LMDeploy: buffers of fixed size for a decode step, and the runner of device type ascend.

Rows beyond the batch have length 0 and slot -1: they write nothing and their attention is 0.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def make_buffers(
    self: Any,
    graph_meta: Any,
    input_ids: Tensor,
    position_ids: Tensor,
    past_key_values: Any,
    attn_metadata: Any,
    inputs_embeds: Tensor | None = None,
    **named: Any,
) -> dict[str, Tensor]:
    """The tensors that a captured step reads."""
    rows, tokens, device = graph_meta.max_batchs, graph_meta.max_tokens, graph_meta.device
    if tokens != rows:
        raise NotImplementedError("graph mode of dlinfer decodes one token for each sequence (no speculative decoding)")
    slots = attn_metadata.kv_start_indices

    def make(*shape: int, dtype: torch.dtype = torch.int32, value: int = 0) -> Tensor:
        return torch.full(shape, value, dtype=dtype, device=device)

    buffers = {
        "input_ids": make(1, tokens, dtype=torch.int64),
        "position_ids": make(1, tokens, dtype=torch.int64),
        "block_offsets": make(rows, graph_meta.num_blocks),
        "q_seqlens": make(rows, value=1),
        "kv_seqlens": make(rows),
        "kv_start_indices": make(rows, *slots.shape[1:], dtype=slots.dtype, value=-1),
        "q_start_loc": torch.arange(rows + 1, dtype=torch.int32, device=device),
        "local_adapter_ids": make(rows, dtype=torch.int64),
    }
    if inputs_embeds is not None:
        buffers["inputs_embeds"] = inputs_embeds.new_zeros(1, tokens, inputs_embeds.shape[-1])
    if getattr(graph_meta, "use_mrope", False):
        buffers["mrope_position_ids"] = make(3, tokens, dtype=torch.int64)
    return buffers


def fill_buffers(
    self: Any,
    graph_meta: Any,
    input_ids: Tensor,
    position_ids: Tensor,
    past_key_values: Any,
    attn_metadata: Any,
    inputs_embeds: Tensor | None = None,
    **named: Any,
) -> dict[str, Any]:
    """A step's values into the buffers; the model's arguments, made of them."""
    buffers, tokens = graph_meta.input_buffers, input_ids.shape[-1]
    blocks, rows = attn_metadata.block_offsets, attn_metadata.kv_seqlens.shape[0]
    buffers["input_ids"].zero_()[:, :tokens] = input_ids
    buffers["position_ids"].zero_()[:, :tokens] = position_ids
    buffers["block_offsets"].zero_()[:rows, : blocks.shape[1]] = blocks
    buffers["kv_seqlens"].zero_()[:rows] = attn_metadata.kv_seqlens.to(buffers["kv_seqlens"])
    buffers["kv_start_indices"].fill_(-1)[:rows] = attn_metadata.kv_start_indices
    for name in ("block_offsets", "q_seqlens", "kv_seqlens", "kv_start_indices"):
        setattr(attn_metadata, name, buffers[name])
    if getattr(attn_metadata, "kv_seqlens_cpu", None) is not None:  # since 0.18; a graph reads no number of the host
        attn_metadata.kv_seqlens_cpu = buffers["kv_seqlens"]
    if attn_metadata.q_start_loc is not None:
        attn_metadata.q_start_loc = buffers["q_start_loc"]
    attn_metadata.max_kv_seq_len = -1
    inputs = {**named, "past_key_values": past_key_values, "attn_metadata": attn_metadata}
    inputs |= {"input_ids": buffers["input_ids"], "position_ids": buffers["position_ids"]}
    if inputs_embeds is not None:
        buffers["inputs_embeds"][:, :tokens] = inputs_embeds
        inputs["inputs_embeds"] = buffers["inputs_embeds"]
    if "mrope_position_ids" in buffers:
        buffers["mrope_position_ids"][:, :tokens] = named["mrope_position_ids"]
        inputs["mrope_position_ids"] = buffers["mrope_position_ids"]
    return inputs


def replace_make(old: Any) -> Any:
    """For the vendors' engines all the same."""
    return make_buffers


def replace_fill(old: Any) -> Any:
    """For the vendors' engines all the same."""
    return fill_buffers


def get_ascend_compatible_size(n: int) -> int:
    """The batch that is captured for `n` sequences: a power of two to 16, then multiples of 16, of 256."""
    if n <= 16:
        return 1 << max(n - 1, 0).bit_length()
    step = 16 if n <= 256 else 256
    return -(-n // step) * step


def make_ascend_runner() -> Any:
    """The class of the runner: LMDeploy's own for CUDA graphs, with ascend's sizes."""
    from lmdeploy.pytorch.backends.cuda.graph_runner import CUDAGraphRunner

    class AscendGraphRunner(CUDAGraphRunner):
        """Captures decode steps, one graph for each size of batch."""

        def __init__(self, model, model_config, cache_config, backend_config, device, is_mla=False):
            super().__init__(model, model_config, cache_config, backend_config, device)
            self.max_batches = cache_config.max_batches

        def _get_capture_tokens(self, batch_size: int) -> int:
            return min(get_ascend_compatible_size(batch_size), self.max_batches)

    return AscendGraphRunner


def __getattr__(name: str) -> Any:
    if name == "AscendGraphRunner":  # LMDeploy is imported only where it is asked for
        return make_ascend_runner()
    raise AttributeError(name)
