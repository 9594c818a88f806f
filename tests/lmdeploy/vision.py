"""Tiny random vision models: checkpoints that LMDeploy loads, and the references that transformers computes in float32
on the CPU. An image is IMAGE tokens of the prompt."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import models
import torch
import transformers
from safetensors.torch import load_file, save_file

IMAGE = 255  # the token in an image's places
SIDE, PATCH = 56, 14
GRID = [1, SIDE // PATCH, SIDE // PATCH]  # pictures, rows and columns of patches
PLACES = (SIDE // PATCH // 2) ** 2  # tokens of an image
START = 253  # the token before an image

_CONFIG = """from transformers import PretrainedConfig, Qwen2Config


class InternVLChatConfig(PretrainedConfig):
    model_type = "internvl_chat"

    def __init__(self, vision_config=None, llm_config=None, **rest):
        self.vision_config = PretrainedConfig(**(vision_config or {}))
        self.llm_config = Qwen2Config(**(llm_config or {}))
        super().__init__(**rest)
"""

_NAMES = {
    "vision_tower.": "vision_model.",
    "embeddings.cls_token": "embeddings.class_embedding",
    "embeddings.patch_embeddings.projection": "embeddings.patch_embedding",
    "embeddings.position_embeddings": "embeddings.position_embedding",
    "encoder.layer.": "encoder.layers.",
    "attention.projection_layer": "attn.proj",
    "attention.q_proj": "attn.qkv",
    "layernorm_before": "norm1",
    "layernorm_after": "norm2",
    "lambda_": "ls",
    "multi_modal_projector.layer_norm": "mlp1.0",
    "multi_modal_projector.linear_1": "mlp1.1",
    "multi_modal_projector.linear_2": "mlp1.3",
}
"""InternVL's names in transformers, and those of its own checkpoints (1.5, 2)."""


def _disguise(folder: pathlib.Path) -> None:
    """The saved InternVL becomes a checkpoint of InternVL 1.5 or 2 (InternVLChatModel)."""
    config = json.loads((folder / "config.json").read_text())
    vision = config.pop("vision_config")
    config |= {
        "architectures": ["InternVLChatModel"],
        "model_type": "internvl_chat",
        "auto_map": {"AutoConfig": "configuration_internvl_chat.InternVLChatConfig"},
        "llm_config": config.pop("text_config"),
        "vision_config": {
            **vision,
            "image_size": SIDE,
            "patch_size": PATCH,
            "qkv_bias": vision["attention_bias"],
            "qk_normalization": False,
            "model_type": "intern_vit_6b",
        },
        "select_layer": -1,
        "ps_version": "v2",
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "configuration_internvl_chat.py").write_text(_CONFIG)
    tensors, renamed = load_file(folder / "model.safetensors"), {}
    for name, tensor in tensors.items():
        if name.startswith("vision_tower") and (".k_proj" in name or ".v_proj" in name):
            continue
        if name.startswith("vision_tower") and ".q_proj" in name:
            tensor = torch.cat([tensors[name.replace(".q_proj", f".{part}_proj")] for part in "qkv"])
        for old, new in _NAMES.items():
            name = name if name.startswith("language_model") else name.replace(old, new)
        renamed[name] = tensor
    save_file(renamed, folder / "model.safetensors", {"format": "pt"})


def _internvl() -> torch.nn.Module:
    vision = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96}
    vision |= {"image_size": [SIDE, SIDE], "patch_size": [PATCH, PATCH], "attention_bias": True}
    text = {**models.SIZES, "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]}
    config = transformers.InternVLConfig(
        vision_config=vision, text_config=text, image_token_id=IMAGE, image_seq_length=PLACES, tie_word_embeddings=False
    )
    return transformers.InternVLForConditionalGeneration(config)


def _qwen(kind: str) -> torch.nn.Module:
    """Positions of an image are rows and columns (mrope); its patches come one behind the other."""
    family = "Qwen2VL" if kind == "qwen2-vl" else "Qwen2_5_VL"
    vision = {"depth": 2, "num_heads": 4, "patch_size": PATCH, "spatial_merge_size": 2, "temporal_patch_size": 2}
    if kind == "qwen2-vl":
        vision |= {"embed_dim": 64, "hidden_size": 64, "mlp_ratio": 2}
    else:
        vision |= {"hidden_size": 64, "intermediate_size": 96, "out_hidden_size": 64}
        vision |= {"window_size": SIDE, "fullatt_block_indexes": [1]}
    rope = {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 10000.0}
    config = getattr(transformers, f"{family}Config")(
        text_config={**models.SIZES, "rope_parameters": rope},
        vision_config=vision,
        image_token_id=IMAGE,
        video_token_id=IMAGE - 1,
        vision_start_token_id=START,
        vision_end_token_id=START - 1,
        tie_word_embeddings=False,
    )
    return getattr(transformers, f"{family}ForConditionalGeneration")(config)


def make(kind: str, folder: str) -> torch.nn.Module:
    """Save the model in float16 to `folder`; the same weights in float32, to compare with."""
    torch.manual_seed(3)
    model = (_internvl() if kind.startswith("internvl") else _qwen(kind)).eval()
    models.save(model, pathlib.Path(folder))
    if kind == "internvl-chat":
        _disguise(pathlib.Path(folder))
    return model


def make_images(kind: str, count: int) -> torch.Tensor:
    """Numbers that float16 holds."""
    shape = (3, SIDE, SIDE) if kind.startswith("internvl") else (GRID[1] * GRID[2], 3 * 2 * PATCH**2)
    return torch.randn(count, *shape, generator=torch.Generator().manual_seed(5)).half().float()


def place(kind: str, images: torch.Tensor, offsets: list[int]) -> list[dict[str, Any]]:
    """What LMDeploy's engine gets of images whose tokens begin at `offsets`."""
    each: dict[str, Any] = {"image_token_id": IMAGE, "image_tokens": PLACES}
    if kind.startswith("internvl"):
        return [{**each, "pixel_values": images[i : i + 1], "offset": offset} for i, offset in enumerate(offsets)]
    each["image_grid_thw"] = torch.tensor([GRID])
    return [{**each, "pixel_values": images[i], "offset": offset} for i, offset in enumerate(offsets)]


def show(kind: str, images: torch.Tensor, tokens: torch.Tensor) -> dict[str, torch.Tensor]:
    """What the reference gets of them."""
    if len(images) == 0:
        return {}
    if kind.startswith("internvl"):
        return {"pixel_values": images}
    grid = torch.tensor([GRID] * len(images))
    return {"pixel_values": images.flatten(0, 1), "image_grid_thw": grid, "mm_token_type_ids": (tokens == IMAGE).int()}
