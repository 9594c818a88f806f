"""A small transformer in four versions, for tests of the alignment: eager or fused attention, with or without
checkpointing, on one rank or several. Started by `ditorch run --tool observe`.

Every operator stands on a line of its own, so that line, module, step, direction and occurrence say which call is
which; the alignment does not look at lines.
"""

import os
import sys

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

DIM, HEADS, LAYERS, STEPS = 32, 4, 4, 3


class Attention(torch.nn.Module):
    def __init__(self, fused):
        super().__init__()
        self.fused = fused
        self.q, self.k, self.v, self.o = (torch.nn.Linear(DIM, DIM) for _ in range(4))

    def split(self, x):
        x = x.view(x.shape[0], x.shape[1], HEADS, -1)
        return x.transpose(1, 2)

    def forward(self, x):
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v)
        else:
            y = k.transpose(-2, -1)
            y = torch.matmul(q, y)
            y = torch.mul(y, (DIM // HEADS) ** -0.5)
            y = torch.softmax(y, -1)
            y = torch.matmul(y, v)
        y = y.transpose(1, 2)
        y = y.reshape(x.shape)
        return self.o(y)


class Block(torch.nn.Module):
    def __init__(self, fused):
        super().__init__()
        self.a, self.b = torch.nn.LayerNorm(DIM), torch.nn.LayerNorm(DIM)
        self.attn = Attention(fused)
        self.up, self.down = torch.nn.Linear(DIM, 4 * DIM), torch.nn.Linear(4 * DIM, DIM)

    def forward(self, x):
        y = self.attn(self.a(x))
        x = torch.add(x, y)
        y = self.up(self.b(x))
        y = F.gelu(y)
        y = self.down(y)
        return torch.add(x, y)


class Model(torch.nn.Module):
    def __init__(self, fused, again):
        super().__init__()
        self.again = again
        self.embed, self.head = torch.nn.Linear(8, DIM), torch.nn.Linear(DIM, 8)
        self.layers = torch.nn.ModuleList(Block(fused) for _ in range(LAYERS))

    def forward(self, x):
        x = self.embed(x)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.again else layer(x)
        return self.head(x)


def main():
    import ditorch  # noqa: F401

    words = sys.argv[1:]
    torch.manual_seed(0)
    model = Model("fused" in words, "again" in words).cuda()
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if world > 1:
        torch.distributed.init_process_group("nccl")
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    data = torch.randn(STEPS, 8, 6, 8, generator=torch.Generator().manual_seed(1))
    for step in range(STEPS):
        x = data[step].chunk(world)[rank].cuda()
        loss = model(x)
        loss = F.mse_loss(loss, x)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    if world > 1:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
