"""vLLM's worker for CUDA on ditorch's device. What it would start of Triton is composed of PyTorch's operators."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from vllm.utils.torch_utils import set_random_seed
from vllm.v1.attention.backends.utils import PAD_SLOT_ID
from vllm.v1.structured_output.utils import apply_grammar_bitmask
from vllm.v1.worker import gpu_model_runner
from vllm.v1.worker.block_table import BlockTable, SlotMappingMode
from vllm.v1.worker.gpu_worker import Worker
from vllm.v1.worker.worker_base import CompilationTimes

from . import vllm_layers  # noqa: F401  registers them


def _compute_slot_mapping(
    self: BlockTable, num_reqs: int, query_start_loc: torch.Tensor, positions: torch.Tensor
) -> None:
    """Where each token of the batch goes in the caches' blocks; -1 behind them."""
    if self.slot_mapping_mode == SlotMappingMode.NONE:
        return
    if self.dcp_world_size != 1:
        raise NotImplementedError("ditorch's platform has no context parallelism for vLLM")
    tokens, block, slots = positions.shape[0], self.block_size, self.slot_mapping.gpu
    places = torch.arange(tokens, dtype=query_start_loc.dtype, device=slots.device)
    rows = torch.searchsorted(query_start_loc[1 : num_reqs + 1], places, right=True).clamp_(max=num_reqs - 1)
    numbers = self.block_table.gpu[rows, positions // block].long()
    slots[:tokens] = torch.where(places < query_start_loc[num_reqs], numbers * block + positions % block, PAD_SLOT_ID)
    slots[tokens:] = PAD_SLOT_ID


def _mask_on_host(scheduled: Any, grammar: Any, batch: Any, logits: torch.Tensor) -> None:
    """Guided decoding would start a Triton kernel of xgrammar's."""
    host = logits.float().cpu()
    apply_grammar_bitmask(scheduled, grammar, batch, host)
    logits.copy_(host)


class DitorchWorker(Worker):
    def init_device(self) -> None:
        BlockTable.compute_slot_mapping = _compute_slot_mapping
        gpu_model_runner.apply_grammar_bitmask = _mask_on_host
        super().init_device()

    def _maybe_get_memory_pool_context(self, tag: str) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()  # memory that can be put to sleep is CUDA's own

    def compile_or_warm_up_model(self) -> CompilationTimes:
        """Nothing is compiled."""
        set_random_seed(self.model_config.seed)
        return CompilationTimes(language_model=0.0, encoder=0.0)
