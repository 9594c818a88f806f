"""vLLM's layers over torch.ops.dlinfer, registered in the place of its own: norms, activation, positions, experts.

Where an operator does not cover a layer's case, vLLM's form of PyTorch's operators is taken.
"""

from __future__ import annotations

from typing import Any

import torch
from vllm import _custom_ops
from vllm.model_executor.custom_op import CustomOp
from vllm.model_executor.layers.activation import SiluAndMul
from vllm.model_executor.layers.fused_moe.activation import MoEActivation
from vllm.model_executor.layers.fused_moe.router import fused_topk_router
from vllm.model_executor.layers.fused_moe.unquantized_fused_moe_method import UnquantizedFusedMoEMethod
from vllm.model_executor.layers.layernorm import RMSNorm
from vllm.model_executor.layers.rotary_embedding.base import RotaryEmbedding

from . import operators  # noqa: F401  defines them

_ops = torch.ops.dlinfer


@CustomOp.register_oot(name="RMSNorm")
class DitorchRMSNorm(RMSNorm):
    def forward_oot(self, x: torch.Tensor, residual: torch.Tensor | None = None) -> Any:
        if not self.has_weight or self.variance_size_override is not None or self.weight.dtype != x.dtype:
            return self.forward_native(x, residual)
        if residual is None:
            return _ops.rms_norm(x, self.weight.data, self.variance_epsilon)
        return tuple(_ops.add_rms_norm(x, residual, self.weight.data, self.variance_epsilon))


@CustomOp.register_oot(name="SiluAndMul")
class DitorchSiluAndMul(SiluAndMul):
    def forward_oot(self, x: torch.Tensor) -> torch.Tensor:
        return _ops.silu_and_mul(x)


@CustomOp.register_oot(name="RotaryEmbedding")
class DitorchRotaryEmbedding(RotaryEmbedding):
    def forward_oot(
        self, positions: torch.Tensor, query: torch.Tensor, key: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        if key is None or not self.is_neox_style:
            return self.forward_native(positions, query, key)
        table = self._match_cos_sin_cache_dtype(query).index_select(0, positions.flatten())
        cos, sin = (half.repeat(1, 2) for half in table.chunk(2, -1))
        tokens, shapes = positions.numel(), (query.shape, key.shape)
        heads = [x.view(tokens, -1, self.head_size) for x in (query, key)]
        turned = _ops.apply_rotary_pos_emb(*heads, cos, sin)
        return turned[0].view(shapes[0]), turned[1].view(shapes[1])


@CustomOp.register_oot(name="UnquantizedFusedMoEMethod")
class DitorchFusedMoEMethod(UnquantizedFusedMoEMethod):
    is_monolithic = False  # experts are chosen before

    def forward_oot(
        self,
        layer: Any,
        x: torch.Tensor,
        topk_weights: torch.Tensor,
        topk_ids: torch.Tensor,
        shared_experts: Any = None,
        shared_experts_input: torch.Tensor | None = None,
    ) -> torch.Tensor:
        if layer.activation != MoEActivation.SILU or self.moe.has_bias or layer.apply_router_weight_on_input:
            raise NotImplementedError("ditorch's experts for vLLM are silu without biases, weights on their outputs")
        if layer.expert_map is not None:
            raise NotImplementedError("ditorch's platform has no expert parallelism for vLLM")
        return _ops.fused_moe(x, layer.w13_weight, layer.w2_weight, topk_weights, topk_ids, False)


def _choose_experts(
    topk_weights: torch.Tensor,
    topk_indices: torch.Tensor,
    token_expert_indices: torch.Tensor,
    gating_output: torch.Tensor,
    renormalize: bool = False,
) -> tuple[torch.Tensor, ...]:
    weights, ids = _ops.moe_gating_topk_softmax(gating_output, topk_weights.shape[1], 0)
    if renormalize:
        weights = weights / weights.sum(-1, keepdim=True)
    return weights, ids.to(topk_indices.dtype)


fused_topk_router.vllm_topk_softmax = _choose_experts
_custom_ops.apply_repetition_penalties = _custom_ops.apply_repetition_penalties_torch
