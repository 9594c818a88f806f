"""The models that tools/record_models.py records: how each is made, on meta tensors, and what its training step is.

A builder returns (module, inputs, loss): loss(module, inputs) runs forward and gives one number. Definitions come from
timm, transformers and diffusers; their code stays in their packages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F


class Model(NamedTuple):
    name: str
    family: str
    source: str
    sizes: str
    optimizer: str
    build: Callable[[], tuple[Any, Any, Callable[[Any, Any], torch.Tensor]]]


def _timm(name: str, family: str, model: str, batch: int = 32, size: int = 224, optimizer: str = "sgd") -> Model:
    def build() -> Any:
        import timm

        module = timm.create_model(model, num_classes=1000)
        inputs = (torch.empty(batch, 3, size, size), torch.empty(batch, dtype=torch.int64))
        return module, inputs, lambda m, i: F.cross_entropy(m(i[0]), i[1])

    return Model(name, family, f"timm {model}", f"{batch}x3x{size}x{size} float32", optimizer, build)


def _features(name: str, family: str, model: str, batch: int, size: int, optimizer: str = "sgd") -> Model:
    """Backbone with the feature maps of every stage: what detectors and segmenters are built on."""

    def build() -> Any:
        import timm

        module = timm.create_model(model, features_only=True)
        return module, torch.empty(batch, 3, size, size), lambda m, i: sum(x.square().mean() for x in m(i))

    return Model(name, family, f"timm {model}, features", f"{batch}x3x{size}x{size} float32", optimizer, build)


def _language(name: str, config: str, words: dict[str, Any], length: int = 2048, dtype: Any = torch.bfloat16) -> Model:
    def build() -> Any:
        import transformers

        made = getattr(transformers, config)(**words)
        made._attn_implementation = "eager" if config == "MambaConfig" else "sdpa"
        if hasattr(made, "num_experts_per_tok"):
            made._experts_implementation = "batched_mm"
        module = transformers.AutoModelForCausalLM.from_config(made).to(dtype)
        ids = torch.empty(1, length, dtype=torch.int64)
        vocabulary = made.vocab_size

        def loss(m: Any, i: Any) -> torch.Tensor:
            logits = m(input_ids=i, use_cache=False).logits.float()
            return F.cross_entropy(logits[:, :-1].reshape(-1, vocabulary), i[:, 1:].reshape(-1))

        return module, ids, loss

    kind = "bfloat16" if dtype is torch.bfloat16 else "float32"
    return Model(name, "language", f"transformers {config}", f"1x{length} tokens, {kind}", "adamw", build)


def _detr() -> Any:
    import transformers

    module = transformers.DetrForObjectDetection(transformers.DetrConfig(use_pretrained_backbone=False))
    inputs = torch.empty(2, 3, 800, 1088), torch.empty(2, 800, 1088, dtype=torch.int64)

    def loss(m: Any, i: Any) -> torch.Tensor:
        out = m(pixel_values=i[0], pixel_mask=i[1])
        return out.logits.float().log_softmax(-1).mean() + out.pred_boxes.abs().mean()

    return module, inputs, loss


def _whisper() -> Any:
    import transformers

    config = transformers.WhisperConfig(
        d_model=768,
        encoder_layers=12,
        decoder_layers=12,
        encoder_attention_heads=12,
        decoder_attention_heads=12,
        encoder_ffn_dim=3072,
        decoder_ffn_dim=3072,
    )
    module = transformers.WhisperForConditionalGeneration(config)
    inputs = torch.empty(8, 80, 3000), torch.empty(8, 448, dtype=torch.int64)

    def loss(m: Any, i: Any) -> torch.Tensor:
        logits = m(input_features=i[0], decoder_input_ids=i[1], use_cache=False).logits
        return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), i[1].reshape(-1))

    return module, inputs, loss


def _unet() -> Any:
    import diffusers

    module = diffusers.UNet2DConditionModel(cross_attention_dim=768, sample_size=64, attention_head_dim=8)
    inputs = torch.empty(4, 4, 64, 64), torch.empty(4, dtype=torch.int64), torch.empty(4, 77, 768)
    return module, inputs, lambda m, i: F.mse_loss(m(i[0], i[1], i[2]).sample, i[0])


_LLAMA = {"hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 32}
_QWEN = {"vocab_size": 151936, "num_key_value_heads": 4, "num_attention_heads": 28, "num_hidden_layers": 28}

MODELS = [
    _timm("resnet50", "classification", "resnet50"),
    _timm("resnet101", "classification", "resnet101"),
    _timm("mobilenet_v2", "classification", "mobilenetv2_100"),
    _timm("mobilenet_v3", "classification", "mobilenetv3_large_100"),
    _timm("seresnet50", "classification", "seresnet50"),
    _timm("vgg16", "classification", "vgg16"),
    _timm("efficientnet", "classification", "efficientnet_b0"),
    _timm("vit", "classification", "vit_base_patch16_224", optimizer="adamw"),
    _timm("convnext", "classification", "convnext_tiny", optimizer="adamw"),
    _timm("swin_transformer", "classification", "swin_tiny_patch4_window7_224", optimizer="adamw"),
    _timm("densenet", "classification", "densenet121"),
    _timm("repvgg", "classification", "repvgg_a0"),
    _timm("inceptionv3", "classification", "inception_v3", size=299),
    _features("hrnet", "pose", "hrnet_w32", 64, 256, "adamw"),
    Model("detr", "detection", "transformers DetrConfig", "2x3x800x1088 float32", "adamw", _detr),
    _language("llama2", "LlamaConfig", {**_LLAMA, "vocab_size": 32000, "intermediate_size": 11008}),
    _language(
        "llama3",
        "LlamaConfig",
        {**_LLAMA, "vocab_size": 128256, "intermediate_size": 14336, "num_key_value_heads": 8},
    ),
    _language(
        "internlm2",
        "LlamaConfig",
        {**_LLAMA, "vocab_size": 92544, "intermediate_size": 14336, "num_key_value_heads": 8},
    ),
    _language("qwen2", "Qwen2Config", {**_QWEN, "hidden_size": 3584, "intermediate_size": 18944}),
    _language(
        "qwen3",
        "Qwen3Config",
        {
            **_QWEN,
            "hidden_size": 4096,
            "intermediate_size": 12288,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "num_hidden_layers": 36,
            "head_dim": 128,
        },
    ),
    _language("mamba", "MambaConfig", {"hidden_size": 768, "num_hidden_layers": 24}, 512, torch.float32),
    Model("whisper", "speech", "transformers WhisperConfig (small)", "8x80x3000 float32", "adamw", _whisper),
    Model("stable_diffusion", "diffusion", "diffusers UNet2DConditionModel", "4x4x64x64 float32", "adamw", _unet),
]

MISSING = {
    "shufflenet_v2": "timm has no definition",
    "faster_rcnn_r50, mask_rcnn, cascade_rcnn, retinanet, fcos, atss, dyhead, ssd300, yolov3, yolov5, solo, centernet, "
    "pointpillars": "no definition: mmdetection has no wheel for this torch, and theirs read values that meta tensors "
    "do not have",
    "unet, pspnet, deeplabv3, deeplabv3plus, upernet, fcn": "no definition: mmsegmentation has no wheel for this torch",
    "tsn, slowfast, stgcn, crnn, sar, dbnet, deeppose": "no definition: the OpenMMLab packages have no wheel here",
    "mixtral, qwen3_moe, deepseek_v3": "not recorded yet: the routing of experts reads values",
    "internvl, cogvlm": "not recorded yet",
}
