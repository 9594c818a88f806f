"""Small models of the common kinds, trained on the device and on the CPU side by side; one line of JSON each: name,
losses of the CPU, losses of the device, operators that fell back, whether all is well. Exit status 1 when it is not.

    python cuda_models.py gpt llama:bfloat16 ...

Run by test_cuda_library.py over the emulated CUDA driver, by tools/test_cuda.sh on a GPU.
"""

import copy
import json
import sys

import ditorch
import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width=16, heads=2, causal=True):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        parts = [
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.mix(self.norms[0](x)).chunk(3, -1)
        ]
        seen = F.scaled_dot_product_attention(*parts, is_causal=self.causal)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.wide(self.norms[1](x))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(20, 16), nn.Embedding(8, 16)
        self.blocks = nn.Sequential(Block(), Block(), nn.LayerNorm(16), nn.Linear(16, 20, bias=False))

    def forward(self, x):
        return self.blocks(self.words(x) + self.places(torch.arange(x.shape[1], device=x.device)))


class Vit(nn.Module):
    """Patches, a class token, learned places; attention sees all of them."""

    def __init__(self):
        super().__init__()
        self.patches, self.token = nn.Conv2d(3, 16, 4, 4), nn.Parameter(torch.zeros(1, 1, 16))
        self.places = nn.Parameter(torch.randn(1, 5, 16) * 0.02)
        self.blocks = nn.Sequential(Block(causal=False), Block(causal=False), nn.LayerNorm(16))
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1).to(x.dtype), x], 1) + self.places
        return self.head(self.blocks(x)[:, 0])


class Llama(nn.Module):
    """Root mean square norm, rotary positions, grouped heads, gated layers."""

    def __init__(self, width=16):
        super().__init__()
        self.words, self.norm = nn.Embedding(20, width), nn.RMSNorm(width)
        self.query, self.key, self.value = nn.Linear(width, width), nn.Linear(width, 8), nn.Linear(width, 8)
        self.gate, self.up, self.down = nn.Linear(width, 24), nn.Linear(width, 24), nn.Linear(24, width)
        self.head = nn.Linear(width, 20, bias=False)

    def turn(self, x):
        angles = torch.arange(x.shape[-2], device=x.device)[:, None] * 10.0 ** -torch.arange(4, device=x.device)
        angles = torch.cat([angles, angles], -1)
        left, right = x.chunk(2, -1)
        return (x * angles.cos() + torch.cat([-right, left], -1) * angles.sin()).to(x.dtype)

    def forward(self, x):
        x = self.words(x)
        normal = self.norm(x)
        query, key, value = (
            layer(normal).unflatten(-1, (-1, 8)).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        seen = F.scaled_dot_product_attention(self.turn(query), self.turn(key), value, is_causal=True, enable_gqa=True)
        x = x + seen.transpose(1, 2).flatten(2)
        return self.head(x + self.down(F.silu(self.gate(x)) * self.up(x)))


class Images(nn.Module):
    def __init__(self):
        super().__init__()
        first = [nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2)]
        second = [nn.Conv2d(8, 8, 3, stride=2, groups=8), nn.BatchNorm2d(8), nn.ReLU6(), nn.AdaptiveAvgPool2d(1)]
        self.layers = nn.Sequential(*first, *second, nn.Flatten(), nn.Dropout(0.0), nn.Linear(8, 10))

    def forward(self, x):
        return self.layers(x)


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.gate, self.head = nn.Embedding(20, 8), nn.Linear(8, 4), nn.Linear(8, 20)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 8)) for _ in range(4))

    def forward(self, x):
        rows = self.words(x).flatten(0, 1)
        weights, chosen = self.gate(rows).softmax(-1).topk(2)
        weights, sums = weights / weights.sum(-1, keepdim=True), torch.zeros_like(rows)
        for number, expert in enumerate(self.experts):
            row, column = torch.where(chosen == number)
            sums.index_add_(0, row, (expert(rows[row]) * weights[row, column, None]).to(sums.dtype))
        return self.head(sums).unflatten(0, x.shape)


class Unet(nn.Module):
    def __init__(self):
        super().__init__()
        self.top, self.norm, self.down = nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.Conv2d(8, 8, 3, 2, 1)
        self.up, self.out = nn.ConvTranspose2d(8, 8, 2, 2), nn.Conv2d(16, 4, 1)

    def forward(self, x):
        top = F.silu(self.norm(self.top(x)))
        below = F.silu(self.down(top))
        above = self.up(below) + F.interpolate(below, scale_factor=2, mode="bilinear")
        return self.out(torch.cat([top, above], 1)).movedim(1, -1)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(20, 8), nn.Linear(8, 20)
        self.first, self.second = nn.LSTM(8, 8, batch_first=True), nn.GRU(8, 8, batch_first=True)

    def forward(self, x):
        return self.head(self.second(self.first(self.words(x))[0])[0])


def words():
    return torch.randint(0, 20, (2, 8)), torch.randint(0, 20, (2, 8))


MODELS = {
    "gpt": (Gpt, words),
    "llama": (Llama, words),
    "vit": (Vit, lambda: (torch.randn(4, 3, 8, 8), torch.randint(0, 10, (4,)))),
    "images": (Images, lambda: (torch.randn(4, 3, 8, 8), torch.randint(0, 10, (4,)))),
    "experts": (Experts, words),
    "recurrent": (Recurrent, words),
    "unet": (Unet, lambda: (torch.randn(2, 3, 8, 8), torch.randint(0, 4, (2, 8, 8)))),
}


def train(model, make, device, dtype):
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=1e-2), []
    scaler = torch.amp.GradScaler(device, enabled=dtype is torch.float16)
    for step in range(3):
        torch.manual_seed(step)
        x, y = (tensor.to(device) for tensor in make())
        with torch.autocast(device, dtype=dtype, enabled=dtype is not torch.float32):
            loss = F.cross_entropy(model(x).flatten(0, -2), y.flatten(), label_smoothing=0.1)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def main():
    is_well = True
    for word in sys.argv[1:]:
        name, _, dtype = word.partition(":")
        dtype = getattr(torch, dtype or "float32")
        make_model, make = MODELS[name]
        torch.manual_seed(0)
        model = make_model()
        wanted, got = (train(copy.deepcopy(model).to(device), make, device, dtype) for device in ("cpu", "cuda"))
        on_cpu = [row["operator"] for row in ditorch.fallbacks()]
        near = 1e-5 if dtype is torch.float32 else 2e-2
        well = not on_cpu and all(abs(a - b) <= near * abs(a) for a, b in zip(wanted, got, strict=True))
        print(json.dumps([word, wanted, got, on_cpu, well]), flush=True)
        is_well = is_well and well
    sys.exit(0 if is_well else 1)


main()
