"""vLLM's attention over torch.ops.dlinfer: fill_kv_cache, and paged attention for all tokens of a batch at once.

vLLM's cache of a layer is (blocks, heads, tokens, keys and values side by side); the operators take strided views.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from vllm.v1.attention.backend import (
    AttentionBackend,
    AttentionImpl,
    AttentionMetadataBuilder,
    AttentionType,
    CommonAttentionMetadata,
)

from . import operators  # noqa: F401  defines them

_ops = torch.ops.dlinfer


@dataclass
class DitorchMetadata:
    tokens: int
    starts: torch.Tensor
    lengths: torch.Tensor
    table: torch.Tensor
    slot_mapping: torch.Tensor
    decoding: bool  # one token of each sequence


class DitorchMetadataBuilder(AttentionMetadataBuilder[DitorchMetadata]):
    def __init__(self, kv_cache_spec: Any, layer_names: list[str], vllm_config: Any, device: torch.device) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)

    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> DitorchMetadata:
        common = common_attn_metadata
        if common.causal is not True:
            raise NotImplementedError("ditorch's paged attention is causal")
        return DitorchMetadata(
            tokens=common.num_actual_tokens,
            starts=common.query_start_loc,
            lengths=common.seq_lens,
            table=common.block_table_tensor,
            slot_mapping=common.slot_mapping,
            decoding=common.max_query_len == 1,
        )


class DitorchAttention(AttentionImpl):
    def __init__(
        self,
        num_heads: int,
        head_size: int,
        scale: float,
        num_kv_heads: int,
        alibi_slopes: list[float] | None,
        sliding_window: int | None,
        kv_cache_dtype: str,
        logits_soft_cap: float | None = None,
        attn_type: str = AttentionType.DECODER,
        kv_sharing_target_layer_name: str | None = None,
        sinks: torch.Tensor | None = None,
    ) -> None:
        self.num_heads, self.head_size, self.num_kv_heads = num_heads, head_size, num_kv_heads
        self.scale, self.kv_cache_dtype, self.sinks = float(scale), kv_cache_dtype, sinks
        self.window = sliding_window or -1
        self.softcap = float(logits_soft_cap or 0)
        self.slopes = None if alibi_slopes is None else torch.tensor(alibi_slopes, dtype=torch.float32).cuda()
        self.kv_sharing_target_layer_name = kv_sharing_target_layer_name

    def _split(self, cache: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return cache.transpose(1, 2).split(self.head_size, -1)

    def do_kv_cache_update(
        self, layer: Any, key: torch.Tensor, value: torch.Tensor, kv_cache: torch.Tensor, slot_mapping: torch.Tensor
    ) -> None:
        tokens = slot_mapping.shape[0]
        _ops.fill_kv_cache(
            key[:tokens], value[:tokens], *self._split(kv_cache), slot_mapping, None, None, None, None, 0
        )

    def forward(
        self,
        layer: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        kv_cache: torch.Tensor,
        attn_metadata: DitorchMetadata | None,
        output: torch.Tensor,
        output_scale: torch.Tensor | None = None,
        output_block_scale: torch.Tensor | None = None,
    ) -> torch.Tensor:
        if attn_metadata is None:  # the engine measures its memory
            return output.fill_(0)
        given = attn_metadata
        attend = _ops.paged_decode_attention if given.decoding else _ops.paged_prefill_attention
        attend(
            query[: given.tokens],
            *self._split(kv_cache),
            given.table,
            None if given.decoding else given.starts,
            given.lengths,
            self.scale,
            self.slopes,
            self.sinks,
            self.window,
            self.softcap,
            None,
            None,
            0,
            output[: given.tokens],
        )
        return output


class DitorchAttentionBackend(AttentionBackend):
    supported_dtypes: ClassVar[list[torch.dtype]] = [torch.float16, torch.bfloat16, torch.float32]
    supported_kv_cache_dtypes: ClassVar[list[str]] = ["auto", "float16", "bfloat16"]
    forward_includes_kv_cache_update = False

    @staticmethod
    def get_name() -> str:
        return "CUSTOM"

    @staticmethod
    def get_impl_cls() -> type[DitorchAttention]:
        return DitorchAttention

    @staticmethod
    def get_builder_cls() -> type[DitorchMetadataBuilder]:
        return DitorchMetadataBuilder

    @classmethod
    def supports_sliding_window(cls) -> bool:
        return True

    @classmethod
    def supports_sink(cls) -> bool:
        return True
