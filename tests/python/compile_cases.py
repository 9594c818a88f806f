"""What people hand to torch.compile: small models, functions of the kinds that break compilers, and ways to call it.

A case makes a function and its arguments, everything drawn from the default generators. `islands` names the operators
that a graph of it leaves to PyTorch, `splits` why a graph of it is cut.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F

DEVICE = "cuda"


class Block(nn.Module):
    """Of a GPT: one projection for attention, dropout behind both halves."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, nn.Dropout(dropout)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        parts = self.mix(self.norms[0](x)).split(x.shape[-1], -1)
        parts = [part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts]
        seen = F.scaled_dot_product_attention(*parts, is_causal=True).transpose(1, 2).reshape(x.shape)
        x = x + self.dropout(self.out(seen))
        return x + self.dropout(self.wide(self.norms[1](x)))


class Gpt(nn.Module):
    def __init__(self, words=64, width=32, length=16, dropout=0.0) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, 2, dropout) for _ in range(2)), nn.LayerNorm(width))
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, tokens, targets=None):
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        logits = self.head(self.blocks(x))
        return logits if targets is None else F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Llama(nn.Module):
    """A decoder layer: norm written out, rotated halves, gated feed-forward."""

    def __init__(self, width=32, heads=2, hidden=48) -> None:
        super().__init__()
        self.heads, self.scale = heads, nn.ParameterList(torch.ones(width) for _ in range(2))
        self.parts = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def norm(self, x, which):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.scale[which]

    @staticmethod
    def turn(x):
        places = torch.arange(x.shape[-2], device=x.device, dtype=torch.float32)
        speeds = 1e4 ** (-torch.arange(0, x.shape[-1], 2, device=x.device) / x.shape[-1])
        angles = torch.outer(places, speeds).repeat(1, 2)
        left, right = x.chunk(2, -1)
        return x * angles.cos() + torch.cat((-right, left), -1) * angles.sin()

    def forward(self, x):
        normal = self.norm(x, 0)
        q, k, v = (part(normal).unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.parts[:3])
        seen = F.scaled_dot_product_attention(self.turn(q), self.turn(k), v, is_causal=True)
        x = x + self.parts[3](seen.transpose(1, 2).reshape(x.shape))
        normal = self.norm(x, 1)
        return x + self.down(F.silu(self.gate(normal)) * self.up(normal))


class Residual(nn.Module):
    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        first = [nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
        self.body = nn.Sequential(*first, nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after))
        across = [nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after)]
        self.across = nn.Sequential(*across) if stride > 1 else nn.Identity()

    def forward(self, x):
        return F.relu(self.body(x) + self.across(x))


class ResNet(nn.Module):
    def __init__(self, width=8) -> None:
        super().__init__()
        stem = [nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2)]
        self.body = nn.Sequential(*stem, Residual(width, width, 1), Residual(width, 2 * width, 2))
        self.head = nn.Linear(2 * width, 10)

    def forward(self, x):
        return self.head(F.adaptive_avg_pool2d(self.body(x), 1).flatten(1))


def draw(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes).to(DEVICE)


def draw_words(*sizes: int, below: int = 64) -> torch.Tensor:
    return torch.randint(0, below, sizes).to(DEVICE)


# Models that train: batch -> (model, function of the model that gives a loss)


def train_gpt(batch: int = 3, dropout: float = 0.0) -> Any:
    tokens, targets = draw_words(batch, 16), draw_words(batch, 16)
    return (lambda: Gpt(dropout=dropout)), (lambda model: model(tokens, targets))


def train_llama(batch: int = 3) -> Any:
    x = draw(batch, 8, 32)
    return (lambda: nn.Sequential(Llama(), Llama())), (lambda model: model(x).square().mean())


def train_resnet(batch: int = 3) -> Any:
    images, labels = draw(batch, 3, 16, 16), draw_words(batch, below=10)
    return ResNet, (lambda model: F.cross_entropy(model(images), labels))


TRAINED = {"gpt": train_gpt, "llama": train_llama, "resnet": train_resnet}


# Functions


@torch.library.custom_op("ditorch_tests::squared", mutates_args=(), device_types="cuda")
def squared(x: torch.Tensor) -> torch.Tensor:
    return x * x


@squared.register_fake
def _(x):
    return torch.empty_like(x)


@torch.library.custom_op("ditorch_tests::add_to", mutates_args=("x",))
def add_to(x: torch.Tensor, number: float) -> None:
    x.add_(number)


def pointwise(x, y, z):
    a = torch.sigmoid(x) * y + torch.tanh(z)
    b = torch.exp(-a * a) * x - y * 0.5
    d = torch.sin(torch.where(b > 0, b, b * 0.01)) * torch.cos(a) + torch.sqrt(b.abs() + 1e-6)
    return F.silu(d) * (x + z) - torch.log1p(b.abs()) * a


def use_stream(x):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    return x + 1


def change_argument(x):
    add_to(x, 2.0)
    return x * 2


def reorder(x):
    picked = x[:, (x[0] > 0).long()].cumsum(0) + x.sort(0)[0]
    return picked + torch.zeros_like(x).scatter_add(1, (x > 0).long(), x)


@dataclasses.dataclass
class Case:
    make: Callable[[], tuple]  # function, arguments
    islands: tuple[str, ...] = ()
    splits: tuple[str, ...] = ()
    options: dict[str, Any] = dataclasses.field(default_factory=dict)


FUNCTIONS = {
    "pointwise": Case(lambda: (pointwise, draw(8, 12), draw(8, 12), draw(8, 12))),
    "fullgraph": Case(lambda: (pointwise, draw(8, 12), draw(8, 12), draw(8, 12)), options={"fullgraph": True}),
    "dynamic": Case(lambda: (pointwise, draw(8, 12), draw(8, 12), draw(8, 12)), options={"dynamic": True}),
    "gpt": Case(lambda: (Gpt().to(DEVICE).eval(), draw_words(3, 16))),
    "llama": Case(lambda: (Llama().to(DEVICE).eval(), draw(2, 8, 32))),
    "resnet": Case(lambda: (ResNet().to(DEVICE).eval(), draw(2, 3, 16, 16))),
    "mask": Case(
        lambda: (lambda q, m: F.scaled_dot_product_attention(q, q, q, attn_mask=m), draw(2, 2, 8, 8), draw(8, 8))
    ),
    "custom": Case(lambda: (lambda x: squared(x) + 1, draw(8, 8)), islands=("ditorch_tests::squared",)),
    "custom that writes": Case(lambda: (change_argument, draw(8, 8)), splits=("a higher-order operator",)),
    "item": Case(lambda: (lambda x: x * x.sum().item(), draw(4, 4))),
    "factories": Case(
        lambda: (lambda x: x + torch.ones(8, device=DEVICE) + torch.arange(8, device=DEVICE), draw(4, 8))
    ),
    "copies": Case(
        lambda: (lambda x: (x.cpu() + 1).cuda() * 2, draw(4, 4)),
        islands=("aten::_to_copy",),
        splits=("a tensor made on cpu",),
    ),
    "number of the CPU": Case(
        lambda: (lambda x: x * torch.tensor(2.0), draw(4, 4)), islands=("aten::lift_fresh_copy",)
    ),
    "random": Case(lambda: (lambda x: x * 2 + torch.randn_like(x) + torch.rand_like(x), draw(4, 4))),
    "convolution": Case(lambda: (lambda x, w: F.conv2d(x, w, padding=1), draw(2, 3, 8, 8), draw(4, 3, 3, 3))),
    "channels last": Case(
        lambda: (
            lambda x, w: F.conv2d(x, w).relu().flatten(1),
            draw(2, 3, 8, 8).to(memory_format=torch.channels_last),
            draw(4, 3, 3, 3),
        )
    ),
    "reorder": Case(lambda: (reorder, draw(6, 6))),
    "stream": Case(lambda: (use_stream, draw(4, 4)), islands=("streams::wait_stream",)),
    "dropout": Case(lambda: (lambda x: F.dropout(x * 2, 0.4) + 1, draw(16, 16))),
    "batch_norm of parts": Case(
        lambda: (
            lambda x, m, v, w: (
                F.batch_norm(x, m[1:], v[1:].exp(), w[1:], w[:4]).relu() + F.batch_norm(x, m[:4], v[:4] ** 2)
            ),
            *(draw(3, 4, 5), draw(5), draw(5), draw(5)),
        )
    ),
    "batch_norm": Case(lambda: (nn.BatchNorm2d(4).to(DEVICE), draw(3, 4, 5, 5))),
}
