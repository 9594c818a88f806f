"""Definitions of our own for tools/model_zoo.py, of models over time and text: reading of words, video, skeletons, and
experts whose tokens are spread evenly, because the routing of real ones reads values. Depends on torch alone.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from model_parts import conv, dice_loss, up
from torch import Tensor, nn


class Crnn(nn.Module):
    """Convolutions to a row of 26 columns, two bidirectional LSTMs, CTC."""

    def __init__(self, classes: int = 37) -> None:
        super().__init__()
        parts: list[nn.Module] = []
        rows = ((1, 64, 0, (2, 2)), (64, 128, 0, (2, 2)), (128, 256, 1, None), (256, 256, 0, (2, 1)))
        for i, o, norm, pool in (*rows, (256, 512, 1, None), (512, 512, 0, (2, 1))):
            parts += [nn.Conv2d(i, o, 3, padding=1), *([nn.BatchNorm2d(o)] if norm else []), nn.ReLU(True)]
            parts += [nn.MaxPool2d(2, pool, (0, 2 - pool[1]))] if pool else []
        self.body = nn.Sequential(*parts, nn.Conv2d(512, 512, 2), nn.BatchNorm2d(512), nn.ReLU(True))
        self.first, self.second = nn.LSTM(512, 256, bidirectional=True), nn.LSTM(256, 256, bidirectional=True)
        self.between, self.out = nn.Linear(512, 256), nn.Linear(512, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.body(x).squeeze(2).permute(2, 0, 1)
        x = self.out(self.second(self.between(self.first(x)[0]))[0]).log_softmax(2)
        targets = torch.zeros(x.shape[1], 12, dtype=torch.int64)
        return F.ctc_loss(x, targets, [x.shape[0]] * x.shape[1], [12] * x.shape[1], zero_infinity=True)


class Sar(nn.Module):
    """ResNet-31, an LSTM over columns, an LSTM decoder with attention over the map."""

    def __init__(self, classes: int = 92, length: int = 31) -> None:
        super().__init__()
        self.length = length
        parts: list[nn.Module] = [conv(3, 64, 3), conv(64, 128, 3), nn.MaxPool2d(2, 2)]
        for i, o, n, pool in ((128, 256, 1, (2, 2)), (256, 256, 2, (2, 1)), (256, 512, 5, None), (512, 512, 3, None)):
            parts += [
                conv(i, o, 3),
                *(Basic(o) for _ in range(n)),
                conv(o, o, 3),
                *([nn.MaxPool2d(pool, pool)] if pool else []),
            ]
        self.body = nn.Sequential(*parts)
        self.encoder, self.encoded = nn.LSTM(512, 512, 2, batch_first=True), nn.Linear(512, 512)
        self.embedding = nn.Embedding(classes + 1, 512)
        self.cells = nn.ModuleList(nn.LSTMCell(512, 512) for _ in range(2))
        self.query, self.key, self.score = nn.Linear(512, 512), nn.Conv2d(512, 512, 3, padding=1), nn.Linear(512, 1)
        self.out = nn.Linear(1536, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.body(x)
        holistic = self.encoded(self.encoder(F.max_pool2d(x, (x.shape[2], 1)).squeeze(2).transpose(1, 2))[0][:, -1])
        key = self.key(x).permute(0, 2, 3, 1)
        state: list[Any] = [None, None]
        logits = []
        tokens = torch.zeros(len(x), self.length, dtype=torch.int64)
        for step in range(self.length):
            y = holistic if step == 0 else self.embedding(tokens[:, step - 1])
            for i, cell in enumerate(self.cells):
                state[i] = cell(y, state[i])
                y = state[i][0]
            weight = self.score(torch.tanh(key + self.query(y)[:, None, None])).flatten(1).softmax(1)
            glimpse = (x.flatten(2) * weight[:, None]).sum(2)
            logits.append(self.out(F.dropout(torch.cat([y, glimpse, holistic], 1), 0.1)))
        return F.cross_entropy(torch.stack(logits, 1).flatten(0, 1), tokens.flatten(), ignore_index=92)


class Basic(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.a, self.b = conv(width, width, 3), conv(width, width, 3, act=None)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.b(self.a(x)) + x)


class DbNet(nn.Module):
    """ResNet-18, pyramid joined by concatenation, probability and threshold maps."""

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone
        self.lateral = nn.ModuleList(nn.Conv2d(c, 256, 1) for c in (64, 128, 256, 512))
        self.smooth = nn.ModuleList(nn.Conv2d(256, 64, 3, padding=1) for _ in range(4))
        self.heads = nn.ModuleList(
            nn.Sequential(
                conv(256, 64, 3),
                nn.ConvTranspose2d(64, 64, 2, 2),
                nn.BatchNorm2d(64),
                nn.ReLU(True),
                nn.ConvTranspose2d(64, 1, 2, 2),
                nn.Sigmoid(),
            )
            for _ in range(2)
        )

    def forward(self, x: Tensor) -> Tensor:
        rows = [layer(y) for layer, y in zip(self.lateral, self.backbone(x), strict=True)]
        for i in (3, 2, 1):
            rows[i - 1] = rows[i - 1] + up(rows[i], rows[i - 1])
        y = torch.cat([up(layer(r), rows[0]) for layer, r in zip(self.smooth, rows, strict=True)], 1)
        p, t = (head(y).squeeze(1) for head in self.heads)
        target, mask = torch.rand_like(p), torch.rand_like(p)
        loss = F.binary_cross_entropy(p, target, reduction="none")
        hard = (loss * (1 - target) * mask).flatten().topk(3 * 4096)[0]
        binary = torch.reciprocal(1 + torch.exp(-50 * (p - t)))
        return (
            ((loss * target).sum() + hard.sum()) / 16384
            + dice_loss(binary, target)
            + 10 * ((t - target).abs() * mask).mean()
        )


class DeepPose(nn.Module):
    """Coordinates of 17 joints from pooled features."""

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.backbone, self.out = backbone, nn.Linear(2048, 34)

    def forward(self, x: Tensor) -> Tensor:
        y = self.out(self.backbone(x)[-1].mean((2, 3))).view(-1, 17, 2)
        target = torch.rand_like(y)
        return F.smooth_l1_loss(y * 0.5, target * 0.5)


def _conv3(i: int, o: int, k: Any, s: Any = 1, act: bool = True) -> nn.Module:
    k = (k,) * 3 if isinstance(k, int) else k
    parts = [nn.Conv3d(i, o, k, s, tuple(n // 2 for n in k), bias=False), nn.BatchNorm3d(o)]
    return nn.Sequential(*parts, *([nn.ReLU(True)] if act else []))


class _Bottleneck3(nn.Module):
    def __init__(self, i: int, m: int, deep: bool, s: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            _conv3(i, m, (3, 1, 1) if deep else 1), _conv3(m, m, (1, 3, 3), (1, s, s)), _conv3(m, 4 * m, 1, act=False)
        )
        self.skip = _conv3(i, 4 * m, 1, (1, s, s), False) if s > 1 or i != 4 * m else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x) + self.skip(x))


class SlowFast(nn.Module):
    """ResNet-50 with 4 slow and 32 fast frames, joined after each stage."""

    def __init__(self) -> None:
        super().__init__()
        self.stems = nn.ModuleList([_conv3(3, 64, (1, 7, 7), (1, 2, 2)), _conv3(3, 8, (5, 7, 7), (1, 2, 2))])
        self.slow, self.fast, self.side = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        wide, thin = 64, 8
        for stage, count in enumerate((3, 4, 6, 3)):
            m, step = 64 << stage, 2 if stage else 1
            self.side.append(_conv3(thin, 2 * thin, (7, 1, 1), (8, 1, 1)))
            first = wide + 2 * thin
            self.slow.append(self._stage(first, m, count, stage > 1, step))
            self.fast.append(self._stage(thin, m // 8, count, True, step))
            wide, thin = 4 * m, m // 2
        self.out = nn.Linear(2048 + 256, 400)

    def _stage(self, i: int, m: int, count: int, deep: bool, step: int) -> nn.Module:
        return nn.Sequential(
            _Bottleneck3(i, m, deep, step), *(_Bottleneck3(4 * m, m, deep, 1) for _ in range(count - 1))
        )

    def forward(self, x: Tensor) -> Tensor:
        slow, fast = self.stems[0](x[:, :, ::8]), self.stems[1](x)
        slow, fast = (F.max_pool3d(y, (1, 3, 3), (1, 2, 2), (0, 1, 1)) for y in (slow, fast))
        for a, b, side in zip(self.slow, self.fast, self.side, strict=True):
            slow, fast = a(torch.cat([slow, side(fast)], 1)), b(fast)
        y = torch.cat([F.adaptive_avg_pool3d(slow, 1), F.adaptive_avg_pool3d(fast, 1)], 1).flatten(1)
        return F.cross_entropy(self.out(F.dropout(y, 0.5)), torch.zeros(len(x), dtype=torch.int64))


class _GraphBlock(nn.Module):
    def __init__(self, i: int, o: int, step: int) -> None:
        super().__init__()
        self.mix, self.importance = nn.Conv2d(i, 3 * o, 1), nn.Parameter(torch.empty(3, 25, 25))
        self.time = nn.Sequential(
            nn.BatchNorm2d(o),
            nn.ReLU(True),
            nn.Conv2d(o, o, (9, 1), (step, 1), (4, 0)),
            nn.BatchNorm2d(o),
            nn.Dropout(0.5),
        )
        self.skip = (
            nn.Identity() if i == o and step == 1 else nn.Sequential(nn.Conv2d(i, o, 1, (step, 1)), nn.BatchNorm2d(o))
        )

    def forward(self, x: Tensor, graph: Tensor) -> Tensor:
        y = self.mix(x)
        y = y.view(len(x), 3, -1, *y.shape[2:])
        y = torch.einsum("nkctv,kvw->nctw", y, graph * self.importance).contiguous()
        return F.relu(self.time(y) + self.skip(x))


class StGcn(nn.Module):
    """Ten graph convolutions over 25 joints and 300 frames of two persons."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.graph = nn.BatchNorm1d(75), nn.Parameter(torch.empty(3, 25, 25), requires_grad=False)
        widths = (3, 64, 64, 64, 64, 128, 128, 128, 256, 256, 256)
        steps = (1, 1, 1, 1, 2, 1, 1, 2, 1, 1)
        rows = zip(widths[:-1], widths[1:], steps, strict=True)
        self.blocks, self.out = nn.ModuleList(_GraphBlock(*row) for row in rows), nn.Conv2d(256, 60, 1)

    def forward(self, x: Tensor) -> Tensor:
        n, c, t, v, m = x.shape
        x = self.norm(x.permute(0, 4, 3, 1, 2).reshape(n * m, v * c, t))
        x = x.view(n * m, v, c, t).permute(0, 2, 3, 1).contiguous()
        for block in self.blocks:
            x = block(x, self.graph)
        x = F.avg_pool2d(x, x.shape[2:]).view(n, m, -1, 1, 1).mean(1)
        return F.cross_entropy(self.out(x).flatten(1), torch.zeros(n, dtype=torch.int64))


def spread_experts(self: Any, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
    """In the place of transformers' experts: every expert gets its share of the tokens."""
    count = len(self.gate_up_proj)
    share = max(1, top_k_index.numel() // count)
    found = torch.zeros_like(hidden_states)
    for expert in range(count):
        token = torch.zeros(share, dtype=torch.int64)
        rows = hidden_states[token]
        gate, value = F.linear(rows, self.gate_up_proj[expert]).chunk(2, -1)
        rows = F.linear(self.act_fn(gate) * value, self.down_proj[expert])
        rows = rows * top_k_weights[token, token, None]
        found.index_add_(0, token, rows.to(found.dtype))
    return found


class Vision(nn.Module):
    """A vision tower and a language model with experts of their own for the image's tokens, as CogVLM has them."""

    def __init__(self, tower: nn.Module, width: int, heads: int, hidden: int, layers: int, words: int) -> None:
        super().__init__()
        self.tower, self.words = tower, nn.Embedding(words, width)
        self.adapter = nn.Sequential(nn.Linear(1024, width), nn.LayerNorm(width), nn.GELU(), nn.Linear(width, width))
        self.layers = nn.ModuleList(_VisionExpert(width, heads, hidden) for _ in range(layers))
        self.norm, self.out = nn.RMSNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, image: Tensor, tokens: Tensor) -> Tensor:
        seen = self.adapter(self.tower.forward_features(image))
        x, length = torch.cat([seen, self.words(tokens)], 1), seen.shape[1]
        for layer in self.layers:
            x = layer(x, length)
        logits = self.out(self.norm(x))[:, length:].float()
        return F.cross_entropy(logits.flatten(0, 1), tokens.flatten())


class _VisionExpert(nn.Module):
    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.heads, self.norms = heads, nn.ModuleList(nn.RMSNorm(width) for _ in range(2))
        self.qkv = nn.ModuleList(nn.Linear(width, 3 * width, bias=False) for _ in range(2))
        self.proj = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(2))
        self.gate = nn.ModuleList(nn.Linear(width, 2 * hidden, bias=False) for _ in range(2))
        self.down = nn.ModuleList(nn.Linear(hidden, width, bias=False) for _ in range(2))

    def _both(self, layers: Any, x: Tensor, length: int) -> Tensor:
        return torch.cat([layers[0](x[:, :length]), layers[1](x[:, length:])], 1)

    def _turn(self, x: Tensor) -> Tensor:
        place = torch.arange(x.shape[2], device=x.device)[:, None] * torch.rand(x.shape[3] // 2)
        cos, sin = torch.cat([place, place], 1).cos().to(x.dtype), torch.cat([place, place], 1).sin().to(x.dtype)
        a, b = x.chunk(2, -1)
        return x * cos + torch.cat([-b, a], -1) * sin

    def forward(self, x: Tensor, length: int) -> Tensor:
        y = self._both(self.qkv, self.norms[0](x), length)
        q, k, v = y.view(*x.shape[:2], 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(self._turn(q), self._turn(k), v, is_causal=True)
        x = x + self._both(self.proj, y.transpose(1, 2).reshape(x.shape), length)
        gate, value = self._both(self.gate, self.norms[1](x), length).chunk(2, -1)
        return x + self._both(self.down, F.silu(gate) * value, length)
