"""Definitions of our own for tools/model_zoo.py: necks, heads and losses of detection and segmentation models.

From their papers, at the sizes of their usual training. Assignment of targets reads values, which meta tensors do not
have: the number of samples is fixed, as the models' samplers fix it. Depends on torch alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def conv(
    i: int, o: int, k: int = 1, s: int = 1, act: Any = nn.ReLU, norm: Any = nn.BatchNorm2d, d: int = 1
) -> nn.Module:
    """Convolution, norm, activation."""
    parts = [nn.Conv2d(i, o, k, s, d * (k // 2), d, bias=norm is None)]
    parts += [norm(o)] if norm else []
    return nn.Sequential(*parts, *([act(inplace=True)] if act else []))


def leaky(inplace: bool = True) -> nn.Module:
    return nn.LeakyReLU(0.1, inplace)


def group_norm(channels: int) -> nn.Module:
    return nn.GroupNorm(32, channels)


def up(x: Tensor, to: Any, mode: str = "nearest") -> Tensor:
    size = to.shape[-2:] if isinstance(to, Tensor) else to
    return F.interpolate(x, size=size, mode=mode, align_corners=None if mode == "nearest" else False)


class Fpn(nn.Module):
    """Feature pyramid: lateral 1x1, top-down sum, 3x3; `extra` levels by strided convolutions or pooling."""

    def __init__(self, channels: Sequence[int], extra: int = 1, pooled: bool = True) -> None:
        super().__init__()
        self.lateral = nn.ModuleList(nn.Conv2d(c, 256, 1) for c in channels)
        self.out = nn.ModuleList(nn.Conv2d(256, 256, 3, padding=1) for _ in channels)
        self.more = nn.ModuleList() if pooled else nn.ModuleList(nn.Conv2d(256, 256, 3, 2, 1) for _ in range(extra))
        self.extra = extra

    def forward(self, maps: Sequence[Tensor]) -> list[Tensor]:
        rows = [layer(x) for layer, x in zip(self.lateral, maps, strict=True)]
        for i in range(len(rows) - 1, 0, -1):
            rows[i - 1] = rows[i - 1] + up(rows[i], rows[i - 1])
        rows = [layer(x) for layer, x in zip(self.out, rows, strict=True)]
        for i in range(self.extra):
            rows.append(self.more[i](F.relu(rows[-1])) if self.more else F.max_pool2d(rows[-1], 1, 2))
        return rows


class RoiAlign(torch.autograd.Function):
    """torchvision's operator with its gradient, without its kernels."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rois: Tensor, scale: float, size: int) -> Tensor:
        ctx.save_for_backward(rois)
        ctx.words = (scale, size, size, *x.shape, 0, True)
        return torch.ops.torchvision.roi_align(x, rois, scale, size, size, 0, True)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return torch.ops.torchvision._roi_align_backward(grad, *ctx.saved_tensors, *ctx.words), None, None, None


def pool_regions(maps: Sequence[Tensor], per_level: int, size: int) -> Tensor:
    """Regions of four levels, as many of each, put back into the order of their regions."""
    found = []
    for level, x in enumerate(maps[:4]):
        found.append(RoiAlign.apply(x, torch.rand(per_level, 5), 0.25 / 2**level, size))
    out = torch.zeros(4 * per_level, *found[0].shape[1:])
    for level, part in enumerate(found):
        out = out.index_copy(0, torch.arange(per_level) + level * per_level, part)
    return out


def pick(x: Tensor, count: int, dim: int = 0) -> Tensor:
    """So many sampled rows."""
    return x.index_select(dim, torch.zeros(count, dtype=torch.int64))


def decode(deltas: Tensor, anchors: Tensor) -> Tensor:
    """Boxes of offsets to anchors, clipped to the image."""
    w, h = anchors[:, 2] - anchors[:, 0], anchors[:, 3] - anchors[:, 1]
    x, y = anchors[:, 0] + 0.5 * w, anchors[:, 1] + 0.5 * h
    dx, dy, dw, dh = deltas.unbind(1)
    cx, cy = dx * w + x, dy * h + y
    w, h = torch.exp(dw.clamp(max=math.log(1000 / 16))) * w, torch.exp(dh.clamp(max=math.log(1000 / 16))) * h
    return torch.stack([cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2], 1).clamp(0, 1344)


def giou_loss(a: Tensor, b: Tensor) -> Tensor:
    low, high = torch.max(a[:, :2], b[:, :2]), torch.min(a[:, 2:], b[:, 2:])
    overlap = (high - low).clamp(min=0).prod(1)
    union = (a[:, 2:] - a[:, :2]).prod(1) + (b[:, 2:] - b[:, :2]).prod(1) - overlap
    hull = (torch.max(a[:, 2:], b[:, 2:]) - torch.min(a[:, :2], b[:, :2])).clamp(min=0).prod(1)
    return (1 - overlap / union + (hull - union) / hull.clamp(min=1e-6)).mean()


def match_anchors(anchors: Tensor, boxes: Tensor) -> Tensor:
    """Overlap of every anchor with every box and the best box of each."""
    low = torch.max(anchors[:, None, :2], boxes[None, :, :2])
    high = torch.min(anchors[:, None, 2:], boxes[None, :, 2:])
    overlap = (high - low).clamp(min=0).prod(2)
    area = (anchors[:, 2:] - anchors[:, :2]).prod(1), (boxes[:, 2:] - boxes[:, :2]).prod(1)
    best, index = (overlap / (area[0][:, None] + area[1] - overlap)).max(1)
    return torch.where(best < 0.4, torch.full_like(index, -1), index)


def focal_loss(logits: Tensor, targets: Tensor) -> Tensor:
    p = logits.sigmoid()
    ce = F.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    p_t = p * targets + (1 - p) * (1 - targets)
    return ((0.25 * targets + 0.75 * (1 - targets)) * ce * (1 - p_t) ** 2).sum() / 64


def dice_loss(p: Tensor, target: Tensor) -> Tensor:
    p, target = p.flatten(1), target.flatten(1)
    return (1 - 2 * (p * target).sum(1) / (p.square().sum(1) + target.square().sum(1) + 1e-3)).mean()


def flatten_maps(maps: Sequence[Tensor], columns: int) -> Tensor:
    return torch.cat([x.permute(0, 2, 3, 1).reshape(x.shape[0], -1, columns) for x in maps], 1)


class Towers(nn.Module):
    """Two towers of four 3x3 convolutions over all levels, one for classes, one for boxes."""

    def __init__(self, classes: int, anchors: int = 1, norm: Any = None, third: bool = False) -> None:
        super().__init__()
        self.a = nn.Sequential(*[conv(256, 256, 3, norm=norm) for _ in range(4)])
        self.b = nn.Sequential(*[conv(256, 256, 3, norm=norm) for _ in range(4)])
        self.classes, self.boxes = (
            nn.Conv2d(256, anchors * classes, 3, padding=1),
            nn.Conv2d(256, anchors * 4, 3, padding=1),
        )
        self.center = nn.Conv2d(256, anchors, 3, padding=1) if third else None
        self.scales = nn.ParameterList(torch.empty(()) for _ in range(5)) if third else None

    def forward(self, maps: Sequence[Tensor]) -> tuple[list[Tensor], ...]:
        found: tuple[list[Tensor], ...] = ([], [], [])
        for level, x in enumerate(maps):
            a, b = self.a(x), self.b(x)
            boxes = self.boxes(b)
            found[0].append(self.classes(a))
            found[1].append(boxes if self.scales is None else boxes * self.scales[level])
            if self.center is not None:
                found[2].append(self.center(b))
        return found


class RegionHead(nn.Module):
    """Two fully connected layers over 7x7 regions."""

    def __init__(self, classes: int = 81, shared_boxes: bool = False) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(12544, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU())
        self.classes, self.boxes = nn.Linear(1024, classes), nn.Linear(1024, 4 if shared_boxes else 4 * (classes - 1))

    def loss(self, maps: Sequence[Tensor], per_level: int) -> Tensor:
        x = self.body(pool_regions(maps, per_level, 7))
        labels = torch.zeros(len(x), dtype=torch.int64)
        boxes = pick(self.boxes(x), len(x) // 4)
        boxes = boxes.view(len(boxes), -1, 4)[:, 0]
        return F.cross_entropy(self.classes(x), labels) + F.l1_loss(boxes, torch.rand_like(boxes))


class TwoStage(nn.Module):
    """Proposals on five levels, then one head or a cascade of three, and masks."""

    def __init__(self, backbone: nn.Module, stages: int = 1, masks: bool = False) -> None:
        super().__init__()
        self.backbone, self.neck = backbone, Fpn((256, 512, 1024, 2048))
        self.shared = nn.Conv2d(256, 256, 3, padding=1)
        self.objects, self.deltas = nn.Conv2d(256, 3, 1), nn.Conv2d(256, 12, 1)
        self.heads = nn.ModuleList(RegionHead(shared_boxes=stages > 1) for _ in range(stages))
        self.masks = None
        if masks:
            layers = [conv(256, 256, 3, norm=None) for _ in range(4)]
            self.masks = nn.Sequential(*layers, nn.ConvTranspose2d(256, 256, 2, 2), nn.ReLU(), nn.Conv2d(256, 80, 1))

    def forward(self, x: Tensor) -> Tensor:
        maps = self.neck(self.backbone(x))
        objects, deltas, proposals = [], [], []
        for level in maps:
            y = F.relu(self.shared(level))
            objects.append(self.objects(y))
            deltas.append(self.deltas(y))
            scores, index = flatten_maps(objects[-1:], 1)[0, :, 0].sigmoid().sort(descending=True)
            index = index[: min(2000, len(index))]
            boxes = decode(flatten_maps(deltas[-1:], 4)[0][index].detach(), torch.rand(len(index), 4))
            proposals.append(torch.cat([boxes, scores[: len(index), None]], 1))
        torch.cat(proposals)[:, 4].topk(1000)
        match_anchors(torch.rand(sum(o[0].numel() for o in objects), 4), torch.rand(16, 4))
        chosen = pick(flatten_maps(objects, 1).flatten(), 512)
        boxes = pick(flatten_maps(deltas, 4).flatten(0, 1), 128)
        loss = F.binary_cross_entropy_with_logits(chosen, torch.rand_like(chosen)) + F.l1_loss(
            boxes, torch.rand_like(boxes)
        )
        for head in self.heads:
            loss = loss + head.loss(maps, 256)
        if self.masks is not None:
            shape = self.masks(pool_regions(maps, 64, 14))
            shape = shape[torch.arange(len(shape)), torch.zeros(len(shape), dtype=torch.int64)]
            loss = loss + F.binary_cross_entropy_with_logits(shape, torch.rand_like(shape))
        return loss


class OneStage(nn.Module):
    """RetinaNet (nine anchors), FCOS and ATSS (one point each, centerness); `blocks`: DyHead's before the towers."""

    def __init__(self, backbone: nn.Module, anchors: int, points: bool, blocks: int = 0) -> None:
        super().__init__()
        self.backbone, self.neck = backbone, Fpn((512, 1024, 2048), 2, False)
        self.blocks = nn.Sequential(*[DynamicBlock() for _ in range(blocks)])
        self.head = Towers(80, anchors, group_norm if points else None, points)

    def forward(self, x: Tensor) -> Tensor:
        logits, boxes, centers = self.head(self.blocks(self.neck(self.backbone(x))))
        scores, found = flatten_maps(logits, 80), flatten_maps(boxes, 4)
        match_anchors(torch.rand(found.shape[1], 4), torch.rand(16, 4))
        labels = torch.zeros(scores.shape[:2], dtype=torch.int64)
        loss = focal_loss(scores, torch.zeros_like(scores).scatter(2, labels[..., None], 1.0))
        positive = pick(found.flatten(0, 1), 256)
        if not centers:
            return loss + F.l1_loss(positive, torch.rand_like(positive))
        center = pick(flatten_maps(centers, 1).flatten(), 256)
        loss = loss + F.binary_cross_entropy_with_logits(center, torch.rand_like(center))
        return loss + giou_loss(positive.exp(), torch.rand_like(positive))


class DynamicBlock(nn.Module):
    """Attention over levels, places and channels (DyHead). The places are shifted by grid_sample, where the original
    has a deformable convolution, which PyTorch has not."""

    def __init__(self) -> None:
        super().__init__()
        self.offset = nn.Conv2d(256, 27, 3, padding=1)
        self.convs = nn.ModuleList(nn.Conv2d(256, 256, 3, padding=1, bias=False) for _ in range(3))
        self.norms = nn.ModuleList(nn.GroupNorm(16, 256) for _ in range(3))
        self.level = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(256, 1, 1), nn.ReLU(), nn.Hardsigmoid())
        self.task = nn.Sequential(nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 1024), nn.Hardsigmoid())

    def _sample(self, x: Tensor, offset: Tensor, way: int) -> Tensor:
        grid = offset[:, :2].permute(0, 2, 3, 1).tanh()
        x = F.grid_sample(x, grid, align_corners=False) * offset[:, 18:19].sigmoid()
        return self.norms[way](self.convs[way](x))

    def forward(self, maps: Sequence[Tensor]) -> list[Tensor]:
        found = []
        for i, x in enumerate(maps):
            offset = self.offset(x)
            parts = [self._sample(x, offset, 0)]
            if i > 0:
                parts.append(F.max_pool2d(self._sample(maps[i - 1], self.offset(maps[i - 1]), 1), 2, 2, ceil_mode=True))
                parts[-1] = up(parts[-1], x, "bilinear")
            if i + 1 < len(maps):
                parts.append(up(self._sample(maps[i + 1], self.offset(maps[i + 1]), 2), x, "bilinear"))
            y = torch.stack([part * self.level(part) for part in parts]).mean(0)
            a1, b1, a2, b2 = (2 * self.task(y.mean((2, 3))) - 1).view(len(y), 4, 256, 1, 1).unbind(1)
            found.append(torch.max(y * (1 + a1) + b1, y * a2 + b2))
        return found


class Ssd(nn.Module):
    """VGG16 with four more scales, 8732 boxes, hard negatives by sorting."""

    def __init__(self, vgg: nn.Module, classes: int = 81) -> None:
        super().__init__()
        self.low, self.high = vgg[:23], nn.Sequential(*vgg[23:30])
        self.six = nn.Sequential(
            nn.MaxPool2d(3, 1, 1),
            nn.Conv2d(512, 1024, 3, padding=6, dilation=6),
            nn.ReLU(True),
            nn.Conv2d(1024, 1024, 1),
        )
        rows = [(1024, 256, 512, 2, 1), (512, 128, 256, 2, 1), (256, 128, 256, 1, 0), (256, 128, 256, 1, 0)]
        self.extra = nn.ModuleList(
            nn.Sequential(nn.Conv2d(i, m, 1), nn.ReLU(True), nn.Conv2d(m, o, 3, s, p), nn.ReLU(True))
            for i, m, o, s, p in rows
        )
        self.scale = nn.Parameter(torch.empty(512))
        widths, counts = (512, 1024, 512, 256, 256, 256), (4, 6, 6, 6, 4, 4)
        self.classes = nn.ModuleList(
            nn.Conv2d(w, n * classes, 3, padding=1) for w, n in zip(widths, counts, strict=True)
        )
        self.boxes = nn.ModuleList(nn.Conv2d(w, n * 4, 3, padding=1) for w, n in zip(widths, counts, strict=True))

    def forward(self, x: Tensor) -> Tensor:
        x = self.low(x)
        maps = [F.normalize(x, dim=1) * self.scale.view(1, -1, 1, 1)]
        maps.append(F.relu(self.six(self.high(x))))
        for layer in self.extra:
            maps.append(layer(maps[-1]))
        scores = flatten_maps([f(m) for f, m in zip(self.classes, maps, strict=True)], 81)
        boxes = flatten_maps([f(m) for f, m in zip(self.boxes, maps, strict=True)], 4)
        labels = torch.zeros(scores.shape[:2], dtype=torch.int64)
        match_anchors(torch.rand(boxes.shape[1], 4), torch.rand(8, 4))
        ce = F.cross_entropy(scores.flatten(0, 1), labels.flatten(), reduction="none").view(labels.shape)
        rank = ce.detach().masked_fill(labels > 0, 0).sort(1, descending=True)[1].sort(1)[1]
        negative = rank < (labels > 0).sum(1, keepdim=True) * 3
        loss = (ce * (negative | (labels > 0)).float()).sum() / 64
        return loss + F.smooth_l1_loss(pick(boxes.flatten(0, 1), 64), torch.rand(64, 4))


class Yolo(nn.Module):
    """Three scales over a Darknet: YOLOv3's chain (leaky) or YOLOv5's path aggregation (SiLU)."""

    def __init__(self, backbone: nn.Module, widths: Sequence[int], aggregate: bool) -> None:
        super().__init__()
        self.backbone, self.aggregate = backbone, aggregate
        act = nn.SiLU if aggregate else leaky
        self.reduce = nn.ModuleList()
        self.merge = nn.ModuleList()
        before = 0
        for width in reversed(widths):
            half = width // 2
            self.merge.append(
                nn.Sequential(
                    conv(width + before, half, 1, act=act), conv(half, width, 3, act=act), conv(width, half, 1, act=act)
                )
            )
            self.reduce.append(conv(half, half // 2, 1, act=act))
            before = half // 2
        halves = [width // 2 for width in reversed(widths)]
        self.down = nn.ModuleList(conv(h, h, 3, 2, act=act) for h in halves[:0:-1])
        self.join = nn.ModuleList(
            conv(a + b, b, 3, act=act) for a, b in zip(halves[:0:-1], halves[-2::-1], strict=True)
        )
        self.out = nn.ModuleList(nn.Sequential(conv(h, 2 * h, 3, act=act), nn.Conv2d(2 * h, 255, 1)) for h in halves)

    def forward(self, x: Tensor) -> Tensor:
        maps = list(self.backbone(x))[::-1]
        found: list[Tensor] = []
        for i, y in enumerate(maps):
            y = y if not found else torch.cat([up(self.reduce[i - 1](found[-1]), y), y], 1)
            found.append(self.merge[i](y))
        if self.aggregate:
            for i, (down, join) in enumerate(zip(self.down, self.join, strict=True)):
                place = len(found) - 2 - i
                found[place] = join(torch.cat([down(found[place + 1]), found[place]], 1))
        loss = torch.zeros(())
        for y, layer in zip(found, self.out, strict=True):
            rows = flatten_maps([layer(y)], 85)
            xy, wh = rows[..., :2].sigmoid(), rows[..., 2:4].exp()
            near = pick(torch.cat([xy, wh], -1).flatten(0, 1), 96)
            loss = loss + F.binary_cross_entropy_with_logits(rows[..., 4], torch.zeros_like(rows[..., 4]))
            picked = pick(rows.flatten(0, 1), 96)[:, 5:]
            loss = loss + F.binary_cross_entropy_with_logits(picked, torch.zeros_like(picked))
            loss = loss + (
                giou_loss(near, torch.rand_like(near)) if self.aggregate else F.mse_loss(near, torch.rand_like(near))
            )
        return loss


class Solo(nn.Module):
    """Masks per grid cell over five levels."""

    GRIDS = (40, 36, 24, 16, 12)

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.backbone, self.neck = backbone, Fpn((256, 512, 1024, 2048))
        self.mask = nn.Sequential(*[conv(256 + 2 * (i == 0), 256, 3, norm=group_norm) for i in range(7)])
        self.kind = nn.Sequential(*[conv(256, 256, 3, norm=group_norm) for _ in range(7)])
        self.masks = nn.ModuleList(nn.Conv2d(256, grid * grid, 1) for grid in self.GRIDS)
        self.kinds = nn.Conv2d(256, 80, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        maps = self.neck(self.backbone(x))
        maps[0] = F.interpolate(maps[0], scale_factor=0.5, mode="bilinear")
        maps[4] = up(maps[4], maps[3], "bilinear")
        loss = torch.zeros(())
        for level, y in enumerate(maps):
            rows, columns = torch.linspace(-1, 1, y.shape[2]), torch.linspace(-1, 1, y.shape[3])
            places = torch.stack(torch.meshgrid(rows, columns, indexing="ij")).expand(len(y), -1, -1, -1)
            mask = self.masks[level](up(self.mask(torch.cat([y, places], 1)), [2 * s for s in y.shape[2:]], "bilinear"))
            kind = self.kinds(self.kind(up(y, (self.GRIDS[level],) * 2, "bilinear")))
            chosen = pick(mask.flatten(0, 1), 24).sigmoid()
            loss = loss + dice_loss(chosen, torch.rand_like(chosen)) + focal_loss(kind, torch.zeros_like(kind))
        return loss


class CenterNet(nn.Module):
    """ResNet-18, three transposed convolutions, heat maps."""

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.backbone, parts, width = backbone, [], 512
        for out in (256, 128, 64):
            parts += [
                conv(width, out, 3),
                nn.ConvTranspose2d(out, out, 4, 2, 1, bias=False),
                nn.BatchNorm2d(out),
                nn.ReLU(True),
            ]
            width = out
        self.neck = nn.Sequential(*parts)
        self.heads = nn.ModuleList(nn.Sequential(conv(64, 64, 3, norm=None), nn.Conv2d(64, n, 1)) for n in (80, 2, 2))

    def forward(self, x: Tensor) -> Tensor:
        heat, size, offset = (head(y) for y in [self.neck(self.backbone(x)[-1])] for head in self.heads)
        p, target = heat.sigmoid().clamp(1e-4, 1 - 1e-4), torch.rand_like(heat)
        near = target.eq(1).float()
        loss = (
            -(p.log() * (1 - p).pow(2) * near).sum()
            - ((1 - p).log() * p.pow(2) * (1 - near) * (1 - target).pow(4)).sum()
        )
        index = torch.zeros(len(x), 128, 2, dtype=torch.int64)
        for y in (size, offset):
            found = y.flatten(2).transpose(1, 2).gather(1, index)
            loss = loss + F.l1_loss(found, torch.rand_like(found))
        return loss


class PointPillars(nn.Module):
    """Pillars of 32 points, a map of 496 x 432, three stages, boxes with two directions."""

    def __init__(self, pillars: int = 12000) -> None:
        super().__init__()
        self.points, self.norm = nn.Linear(9, 64, bias=False), nn.BatchNorm1d(64, eps=1e-3)
        self.pillars, self.stages, self.ups, width = pillars, nn.ModuleList(), nn.ModuleList(), 64
        for count, out, step in ((3, 64, 1), (5, 128, 2), (5, 256, 4)):
            self.stages.append(nn.Sequential(conv(width, out, 3, 2), *[conv(out, out, 3) for _ in range(count)]))
            self.ups.append(
                nn.Sequential(nn.ConvTranspose2d(out, 128, step, step, bias=False), nn.BatchNorm2d(128), nn.ReLU(True))
            )
            width = out
        self.heads = nn.ModuleList(nn.Conv2d(384, 6 * n, 1) for n in (3, 7, 2))

    def forward(self, x: Tensor) -> Tensor:
        center = x[:, :, :3] - x[:, :, :3].sum(1, keepdim=True) / 32
        x = torch.cat([x, center, x[:, :, :2] - 0.16], -1)
        x = F.relu(self.norm(self.points(x).transpose(1, 2)).transpose(1, 2)).max(1)[0]
        flat = torch.zeros(2, 64, 496 * 432)
        half = self.pillars // 2
        for image in range(2):
            flat[image][:, torch.zeros(half, dtype=torch.int64)] = x[image * half : (image + 1) * half].t()
        y, maps = flat.view(2, 64, 496, 432), []
        for stage, layer in zip(self.stages, self.ups, strict=True):
            y = stage(y)
            maps.append(layer(y))
        kind, box, way = (
            flatten_maps([head(torch.cat(maps, 1))], n) for head, n in zip(self.heads, (3, 7, 2), strict=True)
        )
        near, ways = pick(box.flatten(0, 1), 128), pick(way.flatten(0, 1), 128)
        turn = torch.sin(near[:, 6] - torch.rand(128)).abs().mean()
        loss = (
            focal_loss(kind, torch.zeros_like(kind)) + F.smooth_l1_loss(near, torch.rand_like(near), beta=0.11) + turn
        )
        return loss + F.cross_entropy(ways, torch.zeros(128, dtype=torch.int64))


# Segmentation


class Pyramid(nn.Module):
    """PSPNet's pooling at four scales."""

    def __init__(self, width: int = 2048, out: int = 512) -> None:
        super().__init__()
        self.parts = nn.ModuleList(nn.Sequential(nn.AdaptiveAvgPool2d(n), conv(width, out)) for n in (1, 2, 3, 6))
        self.out = conv(width + 4 * out, out, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.cat([x, *(up(part(x), x, "bilinear") for part in self.parts)], 1))


class Aspp(nn.Module):
    """DeepLab's dilated convolutions and image pooling."""

    def __init__(self, width: int = 2048, out: int = 512, separable: bool = False) -> None:
        super().__init__()
        self.pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), conv(width, out))
        self.parts = nn.ModuleList([conv(width, out)])
        for d in (12, 24, 36):
            deep = nn.Sequential(
                nn.Conv2d(width, width, 3, 1, d, d, width, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(True),
                conv(width, out),
            )
            self.parts.append(deep if separable else conv(width, out, 3, d=d))
        self.out = conv(5 * out, out, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.cat([up(self.pool(x), x, "bilinear"), *(part(x) for part in self.parts)], 1))


class Segmenter(nn.Module):
    """Dilated ResNet-50 with a head and an auxiliary one, 19 classes."""

    def __init__(self, backbone: nn.Module, kind: str) -> None:
        super().__init__()
        self.backbone, self.kind = backbone, kind
        heads: dict[str, Callable[[], nn.Module]] = {
            "fcn": lambda: nn.Sequential(conv(2048, 512, 3), conv(512, 512, 3)),
            "psp": Pyramid,
            "aspp": Aspp,
            "aspp+": lambda: Aspp(separable=True),
            "pyramid": lambda: Pyramid(),
        }
        self.head = heads[kind]()
        if kind == "aspp+":
            self.low, self.join = conv(256, 48), nn.Sequential(conv(560, 512, 3), conv(512, 512, 3))
        if kind == "pyramid":
            self.lateral = nn.ModuleList(conv(c, 512) for c in (256, 512, 1024))
            self.smooth, self.join = nn.ModuleList(conv(512, 512, 3) for _ in range(3)), conv(2048, 512, 3)
        self.classes, self.drop = nn.Conv2d(512, 19, 1), nn.Dropout2d(0.1)
        self.second = nn.Sequential(conv(1024, 256, 3), nn.Dropout2d(0.1), nn.Conv2d(256, 19, 1))

    def _top(self, maps: Sequence[Tensor]) -> Tensor:
        x = self.head(maps[-1])
        if self.kind == "aspp+":
            x = self.join(torch.cat([up(x, maps[0], "bilinear"), self.low(maps[0])], 1))
        if self.kind == "pyramid":
            rows = [*(f(m) for f, m in zip(self.lateral, maps, strict=False)), x]
            for i in (3, 2, 1):
                rows[i - 1] = rows[i - 1] + up(rows[i], rows[i - 1], "bilinear")
            rows = [*(f(r) for f, r in zip(self.smooth, rows, strict=False)), rows[3]]
            x = self.join(torch.cat([rows[0], *(up(r, rows[0], "bilinear") for r in rows[1:])], 1))
        return self.classes(self.drop(x))

    def forward(self, x: Tensor) -> Tensor:
        maps = self.backbone(x)
        target = torch.zeros(len(x), *x.shape[2:], dtype=torch.int64)
        loss = F.cross_entropy(up(self._top(maps), x, "bilinear"), target, ignore_index=255)
        return loss + 0.4 * F.cross_entropy(up(self.second(maps[2]), x, "bilinear"), target, ignore_index=255)


class Unet(nn.Module):
    def __init__(self, base: int = 64, classes: int = 19) -> None:
        super().__init__()
        self.down, self.up, self.merge, width = nn.ModuleList(), nn.ModuleList(), nn.ModuleList(), 3
        for level in range(5):
            out = base << level
            self.down.append(nn.Sequential(conv(width, out, 3), conv(out, out, 3)))
            width = out
        for level in (3, 2, 1, 0):
            out = base << level
            self.up.append(conv(2 * out, out))
            self.merge.append(nn.Sequential(conv(2 * out, out, 3), conv(out, out, 3)))
        self.classes = nn.Conv2d(base, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        maps, y = [], x
        for level, layer in enumerate(self.down):
            y = layer(F.max_pool2d(y, 2) if level else y)
            maps.append(y)
        for step, (layer, merge) in enumerate(zip(self.up, self.merge, strict=True)):
            y = merge(torch.cat([maps[3 - step], layer(F.interpolate(y, scale_factor=2.0, mode="bilinear"))], 1))
        return F.cross_entropy(self.classes(y), torch.zeros(len(x), *x.shape[2:], dtype=torch.int64))
