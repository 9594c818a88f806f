"""ditorch's device as a platform of vLLM: what its engine asks a device for (docs/vllm.md).

The device answers to the name cuda, so vLLM's own worker and model runner for CUDA are used; what they start of Triton
is answered by `vllm_worker.py`. Attention goes to `vllm_attention.py`. Depends on: vLLM's interface of version 0.30.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

import torch
from vllm.platforms.interface import Platform, PlatformEnum

if TYPE_CHECKING:
    from vllm.config import VllmConfig


def _hold_triton() -> None:
    """Triton takes every torch.cuda for a GPU of NVIDIA's; vLLM asks its drivers before it uses it."""
    if importlib.util.find_spec("triton") is not None:
        from triton.backends import backends

        for backend in backends.values():
            backend.driver.is_active = staticmethod(lambda: False)


_hold_triton()


class DitorchPlatform(Platform):
    _enum = PlatformEnum.OOT
    device_name = "cuda"  # devices of groups are made of it
    device_type = "cuda"
    dispatch_key = "PrivateUse1"
    dist_backend = "nccl"
    device_control_env_var = "CUDA_VISIBLE_DEVICES"
    simple_compile_backend = "eager"
    supported_quantization: list[str] = []

    @classmethod
    def import_kernels(cls) -> None:
        """The wheel's kernels are CUDA's."""

    @classmethod
    def import_ir_kernels(cls) -> None:
        """PyTorch's own forms stay."""

    @classmethod
    def check_runner_kv_caches_multi_layer(cls) -> None:
        pass

    @classmethod
    def get_attn_backend_cls(
        cls, selected_backend: Any, attn_selector_config: Any, num_heads: int | None = None
    ) -> str:
        if attn_selector_config.use_mla or attn_selector_config.use_sparse:
            raise NotImplementedError("ditorch's platform has no latent (MLA) and no sparse attention for vLLM")
        return "ditorch.infer.vllm_attention.DitorchAttentionBackend"

    @classmethod
    def get_device_name(cls, device_id: int = 0) -> str:
        return torch.cuda.get_device_name(device_id)

    @classmethod
    def get_device_uuid(cls, device_id: int = 0) -> str:
        return str(torch.cuda.get_device_properties(device_id).uuid)

    @classmethod
    def get_device_total_memory(cls, device_id: int = 0) -> int:
        return torch.cuda.get_device_properties(device_id).total_memory

    @classmethod
    def get_current_memory_usage(cls, device: Any = None) -> float:
        torch.cuda.reset_peak_memory_stats(device)
        return torch.cuda.max_memory_allocated(device)

    @classmethod
    def check_if_supports_dtype(cls, dtype: torch.dtype) -> None:
        if dtype not in (torch.float32, torch.float16, torch.bfloat16):
            raise ValueError(f"models of {dtype} are not offered; valid: float32, float16, bfloat16")

    @classmethod
    def num_compute_units(cls, device_id: int = 0) -> int:
        return torch.cuda.get_device_properties(device_id).multi_processor_count

    @classmethod
    def set_device(cls, device: torch.device) -> None:
        torch.cuda.set_device(device)

    @classmethod
    def manual_seed_all(cls, seed: int) -> None:
        torch.cuda.manual_seed_all(seed)

    @classmethod
    def check_and_update_config(cls, vllm_config: VllmConfig) -> None:
        from vllm.config import CompilationMode, CUDAGraphMode

        vllm_config.compilation_config.mode = CompilationMode.NONE
        vllm_config.compilation_config.cudagraph_mode = CUDAGraphMode.NONE
        vllm_config.compilation_config.cudagraph_capture_sizes = []
        parallel = vllm_config.parallel_config
        if parallel.worker_cls == "auto":
            parallel.worker_cls = "ditorch.infer.vllm_worker.DitorchWorker"
        if vllm_config.model_config is not None:
            vllm_config.model_config.disable_cascade_attn = True
