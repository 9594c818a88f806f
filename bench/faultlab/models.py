"""Small models of five families and one training step of each: what faults are injected into.

Sizes are small enough for hundreds of runs and large enough for real reductions. The hand-written attention, losses
and norms are there for their operators, as in model codebases that do not use the fused ones.
"""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class Attention(nn.Module):
    """Written out: matmul, scale, mask, softmax."""

    def __init__(self, width, heads, causal):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        if self.causal:
            mask = torch.triu(torch.ones(length, length, dtype=torch.bool, device=x.device), 1)
            scores = scores.masked_fill(mask, float("-inf"))
        y = torch.softmax(scores, -1) @ v
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


class GatedMlp(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gate, self.up = nn.Linear(width, 2 * width), nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, width, heads, causal, norm, mlp):
        super().__init__()
        self.norm1, self.norm2 = norm(width), norm(width)
        self.attention, self.mlp = Attention(width, heads, causal), mlp

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Gpt(nn.Module):
    def __init__(self, width=48, vocabulary=64, length=16):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        gelu = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.blocks = nn.ModuleList(
            [Block(width, 4, True, nn.LayerNorm, gelu), Block(width, 4, True, RMSNorm, GatedMlp(width))]
        )
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(x)

    @staticmethod
    def make_batch(generator):
        tokens = torch.randint(0, 64, (3, 17), generator=generator)
        return tokens[:, :-1], tokens[:, 1:]

    @staticmethod
    def loss(output, target):
        return F.cross_entropy(output.flatten(0, 1), target.flatten())


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU(), nn.MaxPool2d(2))
        self.conv1, self.norm1 = nn.Conv2d(12, 16, 3, padding=1, stride=2), nn.GroupNorm(4, 16)
        self.conv2, self.norm2 = nn.Conv2d(16, 16, 3, padding=1, groups=4), nn.BatchNorm2d(16)
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        x = self.stem(x)
        x = F.leaky_relu(self.norm1(self.conv1(x)), 0.1)
        x = x + torch.tanh(self.norm2(self.conv2(x)))
        x = F.adaptive_avg_pool2d(F.elu(x), 1).flatten(1)
        return self.head(x)

    @staticmethod
    def make_batch(generator):
        return torch.randn(4, 3, 16, 16, generator=generator), torch.randint(0, 10, (4,), generator=generator)

    @staticmethod
    def loss(output, target):
        return -torch.log_softmax(output, 1).gather(1, target[:, None]).mean()


class Lstm(nn.Module):
    """One LSTM of torch.nn and one cell written out."""

    def __init__(self, width=24):
        super().__init__()
        self.embed = nn.Embedding(40, width)
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.gates = nn.Linear(2 * width, 4 * width)
        self.head = nn.Linear(width, 40)

    def forward(self, tokens):
        x, _ = self.lstm(self.embed(tokens))
        h = c = torch.zeros_like(x[:, 0])
        outputs = []
        for step in x.unbind(1)[:4]:
            i, f, g, o = self.gates(torch.cat([step, h], 1)).chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            outputs.append(h)
        return self.head(torch.stack(outputs, 1) + x[:, :4])

    @staticmethod
    def make_batch(generator):
        tokens = torch.randint(0, 40, (4, 8), generator=generator)
        return tokens, tokens.roll(-1, 1)[:, :4]

    @staticmethod
    def loss(output, target):
        return F.nll_loss(F.log_softmax(output, -1).flatten(0, 1), target.flatten())


class Vit(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.patch = nn.Conv2d(3, width, 4, stride=4)
        self.cls, self.places = nn.Parameter(torch.zeros(1, 1, width)), nn.Parameter(torch.randn(1, 17, width) * 0.02)
        mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(approximate="tanh"), nn.Linear(2 * width, width))
        self.blocks = nn.Sequential(
            Block(width, 4, False, nn.LayerNorm, mlp), nn.TransformerEncoderLayer(width, 4, 64, 0.0, batch_first=True)
        )
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.places
        x = self.blocks(x)
        return self.head(x[:, 0] + x[:, 1:].amax(1))

    @staticmethod
    def make_batch(generator):
        return torch.randn(4, 3, 16, 16, generator=generator), torch.rand(4, 10, generator=generator)

    @staticmethod
    def loss(output, target):
        smooth = F.smooth_l1_loss(output, target)
        return F.binary_cross_entropy_with_logits(output, target) + 0.5 * smooth + 1e-3 * output.abs().sum().sqrt()


class Wide(nn.Module):
    """Tensors of more than 65,535 elements, softmaxes and sums over the last dimension but one, and queries that see
    nothing: their rows of scores are -inf, their softmax is NaN and is masked, as padded batches do it."""

    def __init__(self, width=192):
        super().__init__()
        self.embed, self.norm = nn.Embedding(50, width, padding_idx=0), nn.LayerNorm(width)
        self.qkv, self.up = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.pool, self.head = nn.Linear(width, 4), nn.Linear(4 * width, 20)

    def forward(self, tokens):
        padding = tokens == 0
        unseen = padding[:, :, None] | padding[:, None, :]
        x = self.embed(tokens)
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        scores = (q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])).masked_fill(unseen, float("-inf"))
        x = x + torch.softmax(scores, -1).masked_fill(unseen, 0.0) @ v
        x = torch.cat([F.relu(self.up(x[..., ::2].repeat_interleave(2, -1))), x], 1)
        weights = torch.softmax(self.pool(x), dim=-2)
        pooled = weights.transpose(1, 2) @ x
        return self.head(pooled.flatten(1)) + torch.cumsum(x[..., :20], dim=-2).mean(-2)

    @staticmethod
    def make_batch(generator):
        tokens = torch.randint(1, 50, (9, 40), generator=generator)
        tokens[:, 33:] = 0
        return tokens, torch.randint(0, 20, (9,), generator=generator)

    @staticmethod
    def loss(output, target):
        return F.cross_entropy(output, target)


MODELS = {"gpt": Gpt, "cnn": Cnn, "lstm": Lstm, "vit": Vit, "wide": Wide}
EPSILON = 1e-4
"""Not the usual 1e-8, which is 0 in float16."""
OPTIMIZERS = {
    "gpt": lambda parameters: torch.optim.AdamW(parameters, lr=1e-3, eps=EPSILON, foreach=False),
    "cnn": lambda parameters: torch.optim.SGD(parameters, lr=1e-2, momentum=0.9, weight_decay=1e-4, foreach=False),
    "lstm": lambda parameters: torch.optim.RMSprop(parameters, lr=1e-3, eps=EPSILON, foreach=False),
    "vit": lambda parameters: torch.optim.Adam(parameters, lr=1e-3, eps=EPSILON),
    "wide": lambda parameters: torch.optim.SGD(parameters, lr=1e-2, foreach=False),
}


class Training:
    """A model on the device with its data and optimizer; `step()` is one iteration and returns the loss."""

    def __init__(self, name, dtype, seed, device="cuda"):
        torch.manual_seed(seed)
        self.kind = MODELS[name]
        self.model = self.kind().to(device=device, dtype=getattr(torch, dtype))
        self.optimizer = OPTIMIZERS[name](self.model.parameters())
        generator = torch.Generator().manual_seed(seed)
        self.batches = []
        for _ in range(2):
            data, target = self.kind.make_batch(generator)
            self.batches.append([self._place(x, device, dtype) for x in (data, target)])
        self.count = 0

    @staticmethod
    def _place(x, device, dtype):
        return x.to(device, getattr(torch, dtype)) if x.is_floating_point() else x.to(device)

    def step(self):
        data, target = self.batches[self.count % len(self.batches)]
        self.count += 1
        self.optimizer.zero_grad()
        loss = self.kind.loss(self.model(data), target)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0, foreach=False)
        self.optimizer.step()
        return loss.detach()
