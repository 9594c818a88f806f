"""Small programs that train: what tests of the tools put under a tool. Each maker returns the model and a function that
makes one step and gives the loss. Everything random comes from the default generators: seed them before the maker."""

import contextlib
import os
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples"))
from gpt import GPT

DEVICE = "cuda"


def gpt(device=DEVICE, dropout=0.1):
    model = GPT(32, 16, 32, 2, 2, dropout=dropout).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step():
        tokens = torch.randint(0, 32, (2, 17)).to(device)
        _, loss = model(tokens[:, :-1], tokens[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    return model, step


def cnn(device=DEVICE):
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(4 * 16, 5),
    ).to(device)  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def step():
        x, y = torch.randn(4, 1, 8, 8).to(device), torch.randint(0, 5, (4,)).to(device)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def lstm(device=DEVICE):
    model = nn.ModuleDict({"embedding": nn.Embedding(20, 8), "lstm": nn.LSTM(8, 12, 2), "head": nn.Linear(12, 20)})
    model.to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    def step():
        tokens = torch.randint(0, 20, (6, 3)).to(device)
        out, (hidden, _) = model["lstm"](model["embedding"](tokens))
        loss = F.cross_entropy(model["head"](out).flatten(0, 1), tokens.flatten()) + hidden.pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def embedding(device=DEVICE, dropout=0.2):
    """Rows are renormalised in place by the forward; SGD walks over two groups."""
    model = nn.ModuleDict({"table": nn.Embedding(12, 6, max_norm=1.0, padding_idx=0), "head": nn.Linear(6, 12)})
    model.to(device)
    groups = [
        {"params": list(part.parameters()), "lr": rate} for part, rate in zip(model.values(), (0.5, 0.1), strict=True)
    ]
    optimizer = torch.optim.SGD(groups)

    def step():
        tokens = torch.randint(0, 12, (4, 5)).to(device)
        x = F.dropout(model["table"](tokens), dropout).sum(1)
        loss = F.nll_loss(F.log_softmax(model["head"](x), 1), tokens[:, 0])
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def amp(dtype, device=DEVICE):
    model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler(device, init_scale=2.0**10, growth_interval=2, enabled=dtype is torch.float16)

    def step():
        x, y = torch.randn(6, 8).to(device), torch.randint(0, 4, (6,)).to(device)
        optimizer.zero_grad()
        with torch.autocast(device, dtype=dtype):
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        return loss

    return model, step


def checkpointed(reentrant, device=DEVICE, dropout=0.1):
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 8)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step():
        x = torch.randn(4, 8).to(device).requires_grad_()
        optimizer.zero_grad()
        loss = checkpoint(model, x, use_reentrant=reentrant).pow(2).sum()
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def loader(device=DEVICE):
    """Batches come from two worker processes."""
    model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = torch.utils.data.TensorDataset(torch.randn(8, 3), torch.randn(8, 1))

    def step():
        for x, y in torch.utils.data.DataLoader(data, 4, shuffle=True, num_workers=2):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x.to(device)), y.to(device))
            loss.backward()
            optimizer.step()
        return loss

    return model, step


MODELS = {
    "gpt": gpt,
    "cnn": cnn,
    "lstm": lstm,
    "embedding": embedding,
    "amp float16": lambda: amp(torch.float16),
    "amp bfloat16": lambda: amp(torch.bfloat16),
    "checkpoint": lambda: checkpointed(False),
    "checkpoint reentrant": lambda: checkpointed(True),
    "loader": loader,
}


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 5), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(256, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x.flatten(1))))))


def train(make, tool=None, steps=3, seed=7):
    """(losses, tensors of the state) after some steps under the tool."""
    torch.manual_seed(seed)
    model, step = make()
    losses = []
    with tool or contextlib.nullcontext():
        for _ in range(steps):
            losses.append(step().item())
            if tool is not None:
                tool.step()
    return losses, {name: value.detach().cpu() for name, value in model.state_dict().items()}


def is_same(one, other):
    """The same to the last bit."""
    return one[0] == other[0] and all(torch.equal(one[1][name], other[1][name]) for name in other[1])
