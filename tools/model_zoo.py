"""The models that tools/record_models.py records: how each is made, on meta tensors, and what its training step is.

A builder returns (module, inputs, loss): loss(module, inputs) runs forward and gives one number. Definitions come from
timm, torchvision, transformers and diffusers, whose code stays in their packages, and from model_parts.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import model_parts as parts
import model_parts_time as times
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


def _spread(config: str) -> None:
    """Experts read values of their router; ours get their share of the tokens each."""
    import importlib

    name = {"MixtralConfig": "mixtral", "Qwen3MoeConfig": "qwen3_moe", "DeepseekV3Config": "deepseek_v3"}[config]
    module = importlib.import_module(f"transformers.models.{name}.modeling_{name}")
    getattr(module, config.removesuffix("Config") + "Experts").forward = times.spread_experts


def _language(
    name: str, config: str, words: dict[str, Any], length: int = 2048, dtype: Any = torch.bfloat16, layers: str = ""
) -> Model:
    def build() -> Any:
        import transformers

        made = getattr(transformers, config)(**words)
        made._attn_implementation = "eager" if config == "MambaConfig" else "sdpa"
        if config in ("MixtralConfig", "Qwen3MoeConfig", "DeepseekV3Config"):
            _spread(config)
        module = transformers.AutoModelForCausalLM.from_config(made).to(dtype)
        ids = torch.empty(1, length, dtype=torch.int64)
        vocabulary = made.vocab_size

        def loss(m: Any, i: Any) -> torch.Tensor:
            logits = m(input_ids=i, use_cache=False).logits.float()
            return F.cross_entropy(logits[:, :-1].reshape(-1, vocabulary), i[:, 1:].reshape(-1))

        return module, ids, loss

    kind = "bfloat16" if dtype is torch.bfloat16 else "float32"
    return Model(name, "language", f"transformers {config}", f"1x{length} tokens, {kind}{layers}", "adamw", build)


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


def _backbone(model: str, out: tuple[int, ...], **words: Any) -> Any:
    import timm

    return timm.create_model(model, features_only=True, out_indices=out, **words)


def _own(name: str, family: str, sizes: tuple[int, ...], make: Callable[[], Any], optimizer: str = "sgd") -> Model:
    """A module of model_parts.py that gives its loss."""

    def build() -> Any:
        return make(), torch.empty(sizes), lambda m, i: m(i)

    text = f"{'x'.join(map(str, sizes))} float32"
    return Model(name, family, "definitions of our own", text, optimizer, build)


def _shufflenet() -> Any:
    import torchvision

    inputs = torch.empty(64, 3, 224, 224), torch.empty(64, dtype=torch.int64)
    return torchvision.models.shufflenet_v2_x1_0(weights=None), inputs, lambda m, i: F.cross_entropy(m(i[0]), i[1])


def _vgg() -> Any:
    import torchvision

    return torchvision.models.vgg16(weights=None).features


def _tsn() -> Any:
    """Eight segments of four videos, whose scores are averaged."""
    import timm

    module = timm.create_model("resnet50", num_classes=400)

    def loss(m: Any, i: Any) -> torch.Tensor:
        return F.cross_entropy(m(i[0]).view(4, 8, 400).mean(1), i[1])

    return module, (torch.empty(32, 3, 224, 224), torch.empty(4, dtype=torch.int64)), loss


def _internvl() -> Any:
    """InternViT-300M over one tile, pixels shuffled to 256 tokens, InternLM2 of 1.8 B."""
    import timm
    import transformers

    words = {"hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 8, "num_hidden_layers": 24}
    words |= {"vocab_size": 92553, "intermediate_size": 8192}
    config = transformers.LlamaConfig(**words)
    config._attn_implementation = "sdpa"
    module = torch.nn.ModuleDict(
        {
            "tower": timm.create_model("vit_large_patch14_clip_224", img_size=448, num_classes=0, global_pool=""),
            "join": torch.nn.Sequential(
                torch.nn.LayerNorm(4096), torch.nn.Linear(4096, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 2048)
            ),
            "words": transformers.AutoModelForCausalLM.from_config(config),
        }
    ).to(torch.bfloat16)

    def loss(m: Any, i: Any) -> torch.Tensor:
        seen = m["tower"](i[0])[:, 1:].view(1, 16, 2, 16, 2, 1024).permute(0, 1, 3, 2, 4, 5).reshape(1, 256, 4096)
        words = m["words"].get_input_embeddings()(i[1]).clone()
        words[:, :256] = m["join"](seen)
        logits = m["words"](inputs_embeds=words, use_cache=False).logits.float()
        return F.cross_entropy(logits[0], i[1][0], ignore_index=-100)

    return module, (torch.empty(1, 3, 448, 448, dtype=torch.bfloat16), torch.empty(1, 1024, dtype=torch.int64)), loss


def _cogvlm() -> Any:
    import timm

    tower = timm.create_model("vit_large_patch14_clip_224", img_size=490, num_classes=0)
    module = times.Vision(tower, 4096, 32, 11008, 32, 32000).to(torch.bfloat16)
    inputs = torch.empty(1, 3, 490, 490, dtype=torch.bfloat16), torch.empty(1, 512, dtype=torch.int64)
    return module, inputs, lambda m, i: m(i[0], i[1])


_LLAMA = {"hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 32}
_QWEN = {"vocab_size": 151936, "num_key_value_heads": 4, "num_attention_heads": 28, "num_hidden_layers": 28}

DETECT, CITY, C2, C3 = (2, 3, 800, 1344), (2, 3, 512, 1024), (1, 2, 3, 4), (2, 3, 4)

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
    Model(
        "shufflenet_v2", "classification", "torchvision shufflenet_v2_x1_0", "64x3x224x224 float32", "sgd", _shufflenet
    ),
    _own("faster_rcnn_r50", "detection", DETECT, lambda: parts.TwoStage(_backbone("resnet50", C2))),
    _own("mask_rcnn", "detection", DETECT, lambda: parts.TwoStage(_backbone("resnet50", C2), masks=True)),
    _own("cascade_rcnn", "detection", DETECT, lambda: parts.TwoStage(_backbone("resnet50", C2), 3)),
    _own("retinanet", "detection", DETECT, lambda: parts.OneStage(_backbone("resnet50", C3), 9, False)),
    _own("fcos", "detection", DETECT, lambda: parts.OneStage(_backbone("resnet50", C3), 1, True)),
    _own("atss", "detection", (2, 3, 800, 1216), lambda: parts.OneStage(_backbone("resnet50", C3), 1, True)),
    _own("dyhead", "detection", (2, 3, 800, 1216), lambda: parts.OneStage(_backbone("resnet50", C3), 1, True, 6)),
    _own("ssd300", "detection", (8, 3, 300, 300), lambda: parts.Ssd(_vgg())),
    _own(
        "yolov3",
        "detection",
        (8, 3, 608, 608),
        lambda: parts.Yolo(_backbone("darknet53", (3, 4, 5)), (256, 512, 1024), False),
    ),
    _own(
        "yolov5",
        "detection",
        (16, 3, 640, 640),
        lambda: parts.Yolo(_backbone("cs3darknet_m", C3), (192, 384, 768), True),
    ),
    _own("solo", "detection", DETECT, lambda: parts.Solo(_backbone("resnet50", C2))),
    _own("centernet", "detection", (16, 3, 512, 512), lambda: parts.CenterNet(_backbone("resnet18", (4,)))),
    _own("pointpillars", "detection", (12000, 32, 4), parts.PointPillars, "adamw"),
    _own("fcn", "segmentation", CITY, lambda: parts.Segmenter(_backbone("resnet50", C2, output_stride=8), "fcn")),
    _own("pspnet", "segmentation", CITY, lambda: parts.Segmenter(_backbone("resnet50", C2, output_stride=8), "psp")),
    _own(
        "deeplabv3", "segmentation", CITY, lambda: parts.Segmenter(_backbone("resnet50", C2, output_stride=8), "aspp")
    ),
    _own(
        "deeplabv3plus",
        "segmentation",
        CITY,
        lambda: parts.Segmenter(_backbone("resnet50", C2, output_stride=8), "aspp+"),
    ),
    _own("upernet", "segmentation", CITY, lambda: parts.Segmenter(_backbone("resnet50", C2), "pyramid")),
    _own("unet", "segmentation", CITY, parts.Unet),
    _own("crnn", "text", (64, 1, 32, 100), times.Crnn, "adamw"),
    _own("sar", "text", (64, 3, 48, 160), times.Sar, "adamw"),
    _own("dbnet", "text", (16, 3, 640, 640), lambda: times.DbNet(_backbone("resnet18", C2))),
    _own("deeppose", "pose", (64, 3, 256, 192), lambda: times.DeepPose(_backbone("resnet50", (4,))), "adamw"),
    _own("slowfast", "video", (8, 3, 32, 224, 224), times.SlowFast),
    _own("stgcn", "video", (16, 3, 300, 25, 2), times.StGcn),
    Model("tsn", "video", "timm resnet50, 8 segments", "32x3x224x224 float32", "sgd", _tsn),
    Model(
        "internvl",
        "vision and language",
        "timm and transformers",
        "448x448, 1x1024 tokens, bfloat16",
        "adamw",
        _internvl,
    ),
    Model(
        "cogvlm", "vision and language", "definitions of our own", "490x490, 1x512 tokens, bfloat16", "adamw", _cogvlm
    ),
    Model("detr", "detection", "transformers DetrConfig", "2x3x800x1088 float32", "adamw", _detr),
    _language("llama2", "LlamaConfig", {**_LLAMA, "vocab_size": 32000, "intermediate_size": 11008}),
    _language(
        "mixtral",
        "MixtralConfig",
        {**_LLAMA, "vocab_size": 32000, "intermediate_size": 14336, "num_key_value_heads": 8},
    ),
    _language(
        "qwen3_moe",
        "Qwen3MoeConfig",
        {"vocab_size": 151936, "hidden_size": 2048, "num_attention_heads": 32, "num_key_value_heads": 4}
        | {"head_dim": 128, "moe_intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 8}
        | {"num_hidden_layers": 4},
        layers=", 4 of 48 layers",
    ),
    _language(
        "deepseek_v3",
        "DeepseekV3Config",
        {"num_hidden_layers": 5},
        layers=", 5 of 61 layers (three dense, two of experts)",
    ),
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

ORIGINAL = [
    "convnext",
    "densenet",
    "efficientnet",
    "inceptionv3",
    "mobilenet_v2",
    "mobilenet_v3",
    "repvgg",
    "resnet101",
    "resnet50",
    "seresnet50",
    "shufflenet_v2",
    "swin_transformer",
    "vgg16",
    "vit",
    "atss",
    "cascade_rcnn",
    "centernet",
    "detr",
    "dyhead",
    "faster_rcnn_r50",
    "fcos",
    "mask_rcnn",
    "pointpillars",
    "retinanet",
    "solo",
    "ssd300",
    "yolov3",
    "deeplabv3",
    "deeplabv3plus",
    "fcn",
    "pspnet",
    "unet",
    "upernet",
    "crnn",
    "dbnet",
    "deeppose",
    "hrnet",
    "llama2",
    "sar",
    "slowfast",
    "stgcn",
    "tsn",
    "yolov5",
]
"""The families of the original's suite (its llama is llama2 here)."""
