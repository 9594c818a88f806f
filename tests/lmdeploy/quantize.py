"""Quantised checkpoints of a tiny Llama in the layouts that LMDeploy loads, and references that compute with the same
rounded numbers in float32."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable
from typing import Any

import models
import torch
from safetensors.torch import load_file, save_file

GROUP = 32
_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # the column of each nibble in AWQ's words


def _pack(numbers: torch.Tensor) -> torch.Tensor:
    """(rows, columns) of 0 to 15 -> int32 (rows, columns / 8)."""
    columns = numbers.to(torch.int64).unflatten(1, (-1, 8))
    words = sum(columns[..., column] << 4 * place for place, column in enumerate(_ORDER))
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)


def _awq(name: str, weight: torch.Tensor) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """The tensors of one linear and its weight as they mean it."""
    groups = weight.float().t().unflatten(0, (-1, GROUP))
    low, high = groups.amin(1, keepdim=True), groups.amax(1, keepdim=True)
    scale = ((high - low) / 15).half().float()
    zero = (-low / scale).round().clamp(0, 15)
    numbers = (groups / scale + zero).round().clamp(0, 15)
    tensors = {
        "qweight": _pack(numbers.flatten(0, 1)),
        "qzeros": _pack(zero.squeeze(1)),
        "scales": scale.squeeze(1).half(),
    }
    meant = ((numbers - zero) * scale).flatten(0, 1).t().contiguous()
    return {f"{name}.{part}": tensor.contiguous() for part, tensor in tensors.items()}, meant


def _w8a8(name: str, weight: torch.Tensor) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    scale = weight.float().abs().amax(1, keepdim=True) / 127
    numbers = (weight.float() / scale).round().clamp(-127, 127)
    return {f"{name}.weight": numbers.to(torch.int8), f"{name}.scale": scale}, numbers * scale


def _round_rows(module: torch.nn.Module, given: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
    """What W8A8 does to a linear's input."""
    scale = given[0].abs().amax(-1, keepdim=True) / 127
    return ((given[0] / scale).round() * scale,)


FORMS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "awq": (_awq, {"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm", "zero_point": True}),
    "smooth_quant": (_w8a8, {"quant_method": "smooth_quant"}),
}


def make(form: str, folder: str) -> torch.nn.Module:
    """Save a Llama with its linears (but the last) in this form; the reference."""
    model, (quantize, settings) = models.make("llama", folder), FORMS[form]
    path = pathlib.Path(folder)
    tensors = load_file(path / "model.safetensors")
    for name, module in model.named_modules():
        if not isinstance(module, torch.nn.Linear) or name == "lm_head":
            continue
        parts, meant = quantize(name, tensors.pop(f"{name}.weight"))
        tensors |= parts
        module.weight.data.copy_(meant)
        if form == "smooth_quant":
            module.register_forward_pre_hook(_round_rows)
    save_file(tensors, path / "model.safetensors", {"format": "pt"})
    config = json.loads((path / "config.json").read_text()) | {"quantization_config": settings}
    (path / "config.json").write_text(json.dumps(config))
    return model


CACHE_SCALES = ((0.0625, 3.0), (0.03125, -2.0))
"""Scale and offset of keys and of values."""


def write_cache_scales(path: pathlib.Path, layers: int) -> None:
    """The text that ASCEND_QUANT_RECORD_FILE names."""
    lines = [f"scale: {scale} offset: {int(offset)}" for _ in range(layers) for scale, offset in CACHE_SCALES]
    path.write_text("\n".join(lines) + "\n")


def round_caches(model: torch.nn.Module, prompt: int) -> None:
    """Attention of tokens behind the prompt reads int8 keys and values, as an engine does: the prompt itself is
    computed before its states are rounded."""
    import transformers

    def rounded(x: torch.Tensor, scale: float, offset: float) -> torch.Tensor:
        return ((x / scale - offset).round().clamp(-128, 127) + offset) * scale

    def attention(module: Any, query: Any, key: Any, value: Any, mask: Any, scaling: float, **rest: Any) -> Any:
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        exact = sdpa_attention_forward(module, query, key, value, mask, scaling=scaling)[0]
        coarse = [rounded(x, *how) for x, how in zip((key, value), CACHE_SCALES, strict=True)]
        later = sdpa_attention_forward(module, query, *coarse, mask, scaling=scaling)[0]
        return torch.cat((exact[:, :prompt], later[:, prompt:]), 1), None

    transformers.AttentionInterface.register("int8_cache", attention)
    transformers.AttentionMaskInterface.register("int8_cache", transformers.masking_utils.sdpa_mask)
    model.set_attn_implementation("int8_cache")
