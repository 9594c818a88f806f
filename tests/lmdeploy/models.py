"""Tiny random models with real architectures: the checkpoint that LMDeploy loads, and the reference that transformers
computes in float32 on the CPU."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import torch
import transformers
from ditorch.infer.tiny_model import VOCABULARY, save_tokenizer, spread_weights
from safetensors.torch import load_file, save_file

SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
    "eos_token_id": 0,
    "bos_token_id": 1,
    "pad_token_id": 0,
    "tie_word_embeddings": False,
}
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
LATENT = {
    "num_key_value_heads": 4,
    "kv_lora_rank": 32,
    "q_lora_rank": None,
    "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    "head_dim": 16,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
    "topk_method": "greedy",
    "routed_scaling_factor": 1.0,
    "norm_topk_prob": False,
    "moe_layer_freq": 1,
    "scoring_func": "softmax",
}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "qwen2": ("Qwen2", {}),
    "qwen3": ("Qwen3", {"head_dim": 32}),
    "internlm2": ("Llama", {}),
    "internlm3": ("Llama", {}),
    "qwen2-moe": ("Qwen2Moe", {**EXPERTS, "shared_expert_intermediate_size": 48}),
    "qwen3-moe": ("Qwen3Moe", {**EXPERTS, "head_dim": 32}),
    "mixtral": ("Mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None}),
    "mistral": ("Mistral", {"sliding_window": 24}),
    "deepseek-v2": ("DeepseekV2", LATENT),
}
"""Name -> (class of transformers, what differs from SIZES). InternLM2 and InternLM3 are Llamas under other names."""

_CONFIG = """from transformers import PretrainedConfig


class InternLMConfig(PretrainedConfig):
    model_type = "{kind}"

    def __init__(self, **rest):
        super().__init__(**rest)
"""


def _rename_internlm2(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """wqkv holds for each key head its queries, its key and its value."""
    names = {
        "self_attn.o_proj": "attention.wo",
        "mlp.gate_proj": "feed_forward.w1",
        "mlp.up_proj": "feed_forward.w3",
        "mlp.down_proj": "feed_forward.w2",
        "input_layernorm": "attention_norm",
        "post_attention_layernorm": "ffn_norm",
        "embed_tokens": "tok_embeddings",
        "lm_head": "output",
    }
    heads, group = SIZES["num_key_value_heads"], SIZES["num_attention_heads"] // SIZES["num_key_value_heads"]
    out = {}
    for name, tensor in tensors.items():
        for old, new in names.items():
            name = name.replace(old, new)
        if ".k_proj" in name or ".v_proj" in name:
            continue
        if ".q_proj" in name:
            q, k, v = (tensors[name.replace(".q_proj", f".{part}_proj")] for part in "qkv")
            width = k.shape[0] // heads
            parts = [x.view(heads, -1, width, x.shape[-1]) for x in (q, k, v)]
            tensor, name = torch.cat(parts, 1).flatten(0, 2), name.replace("self_attn.q_proj", "attention.wqkv")
            assert parts[0].shape[1] == group
        out[name] = tensor.contiguous()
    return out


def _disguise(folder: pathlib.Path, kind: str) -> None:
    """The saved Llama becomes a checkpoint of InternLM2 or InternLM3."""
    name = "InternLM2" if kind == "internlm2" else "InternLM3"
    config = json.loads((folder / "config.json").read_text())
    config |= {
        "architectures": [f"{name}ForCausalLM"],
        "model_type": kind,
        "auto_map": {"AutoConfig": "configuration_internlm.InternLMConfig"},
        "bias": False,
        "qkv_bias": False,
        "head_dim": SIZES["hidden_size"] // SIZES["num_attention_heads"],
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "configuration_internlm.py").write_text(_CONFIG.format(kind=kind))
    if kind == "internlm2":
        tensors = load_file(folder / "model.safetensors")
        save_file(_rename_internlm2(tensors), folder / "model.safetensors", {"format": "pt"})


def make(kind: str, folder: str, **more: Any) -> torch.nn.Module:
    """Save the model `kind` in float16 to `folder`; the same weights in float32, to compare with."""
    torch.manual_seed(3)
    family, own = MODELS[kind]
    config = getattr(transformers, f"{family}Config")(**{**SIZES, **own, **more})
    model = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    save(model, pathlib.Path(folder))
    if kind.startswith("internlm"):
        _disguise(pathlib.Path(folder), kind)
    return model


def save(model: torch.nn.Module, folder: pathlib.Path) -> None:
    """Give it weights, save it in float16 with a tokenizer, and leave it in float32."""
    spread_weights(model)
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    model.half().save_pretrained(folder)
    save_tokenizer(folder)
    for name, buffer in model.float().named_buffers():
        buffer.copy_(buffers[name])  # the frequencies of positions, which half() rounds
