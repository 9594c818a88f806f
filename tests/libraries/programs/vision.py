"""timm and torchvision models: a few training steps and evaluation, with running statistics.

torchvision's usual wheel is built for CUDA; beside a CPU build of torch its compiled operators do not load and the
import fails for want of two schemas. Declaring them is enough for everything but detection.
"""

from __future__ import annotations

import sys

import torch

from . import DEVICE, seed_all, summary, variants

try:
    import torchvision
except RuntimeError:
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]
    _library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        _library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import torchvision
import timm

SIZE = 64
"""Smaller images leave maps of one pixel, where batch normalisation multiplies rounding errors by thousands; some
networks (EfficientNet, ShuffleNet) do so at this size too and are no measure."""


def train(model) -> dict:
    seed_all(3)
    model = model.to(DEVICE)
    images = torch.randn(8, 3, SIZE, SIZE).to(DEVICE)
    labels = torch.arange(8, device=DEVICE) % 4
    optimizer = torch.optim.SGD(model.parameters(), lr=0.002, momentum=0.9)
    losses = []
    for _ in range(3):
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    model.eval()
    with torch.no_grad():
        values = model(images).tolist()
    return {"losses": losses, "values": values, "weights": summary(model)}


TIMM = {
    "resnet": ("resnet10t.c3_in1k", {}),
    "vit": ("vit_tiny_patch16_224", {"img_size": SIZE, "patch_size": 8, "depth": 2}),
    "convnext": ("convnext_atto", {"depths": (1, 1, 1, 1), "dims": (8, 16, 24, 32)}),
    "swin": (
        "swin_tiny_patch4_window7_224",
        {
            "img_size": SIZE,
            "window_size": 4,
            "depths": (1, 1),
            "embed_dim": 24,
            "num_heads": (2, 4),
            "drop_path_rate": 0,
        },
    ),
    "mixer": ("mixer_s32_224", {"img_size": SIZE}),
}


@variants("train and evaluate", {name: {"entry": entry} for name, entry in TIMM.items()})
def timm_train(folder, entry):
    name, options = entry
    seed_all()
    return train(timm.create_model(name, pretrained=False, num_classes=4, **options))


@variants("train and evaluate", {name: {"name": name} for name in ("resnet18", "mobilenet_v3_small")})
def torchvision_train(folder, name):
    seed_all()
    extra = {"dropout": 0.0} if name.startswith("mobilenet") else {}
    return train(torchvision.models.get_model(name, weights=None, num_classes=4, **extra))
