"""Compiled models on a chip that takes whole subgraphs (vendor=opaque), against eager mode; test_graph_engine.py runs
them in a process of their own."""

import copy
import threading

import ditorch  # noqa: F401
import pytest
import torch
from ditorch import graph
from torch import nn
from torch.nn import functional as F

ENGINE = "box"


@pytest.fixture(autouse=True)
def kept():
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield graph.keep()
    graph.keep(False)


def list_steps(kept):
    return [step for entry in kept for plan in entry.describe() for step in plan["steps"]]


class Block(nn.Module):
    """A block of a GPT: attention by hand, so that its products and its softmax are seen."""

    def __init__(self, width=16, heads=2):
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (
            part.reshape(batch, length, self.heads, -1).transpose(1, 2) for part in self.qkv(self.first(x)).chunk(3, -1)
        )
        scores = q @ k.transpose(-1, -2) / (width // self.heads) ** 0.5
        hidden = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        weights = torch.softmax(scores.masked_fill(hidden, float("-inf")), -1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.second(x))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Linear(4 * 16, 5)

    def forward(self, x):
        x = F.max_pool2d(F.silu(self.norm(self.conv(x))) * 2, 2)
        return F.log_softmax(self.head(x.flatten(1)), -1)


MODELS = {"gpt": (Block, (2, 6, 16)), "convolution": (Net, (2, 3, 8, 8))}


def train(model, x, steps=3):
    """Losses and parameters; the optimizer is compiled with the model where the model is."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [parameter.detach().clone() for parameter in model.parameters()]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_models_train(name, dynamic, kept):
    make, shape = MODELS[name]
    model = make().cuda()
    twin = copy.deepcopy(model)
    x = torch.randn(*shape, device="cuda")
    wanted = train(model, x)
    got = train(torch.compile(twin, backend="dit", dynamic=dynamic), x)
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)
    steps = list_steps(kept)
    subgraphs = [step for step in steps if step["kind"] == "subgraph"]
    assert {step["name"] for step in subgraphs} == {ENGINE} and max(step["nodes"] for step in subgraphs) >= 8
    assert not any(step["kind"] == "region" for step in steps)
    if name == "gpt":  # all of the forward pass
        assert sum(len(plan["steps"]) for plan in kept[0].describe()) <= 3


def test_an_optimizer_writes_to_its_inputs(kept):
    def step(parameters, gradients, state):
        for p, g, s in zip(parameters, gradients, state, strict=True):
            s.mul_(0.9).add_(g)
            p.sub_(s * 0.1)

    def make():
        torch.manual_seed(3)
        return [[torch.randn(4, n, device="cuda") for n in (3, 5)] for _ in range(3)]

    wanted, got = make(), make()
    compiled = torch.compile(step, backend="dit")
    for _ in range(3):
        step(*wanted)
        compiled(*got)
    torch.testing.assert_close(got, wanted)
    assert [step["kind"] for step in list_steps(kept)] == ["subgraph"]


def test_what_the_chip_lacks_runs_beside_it(kept):
    def function(x, w):
        y = (x * w).sin() + x  # no sine
        z = y.double() * 2  # no float64
        return torch.cumsum(y, 0) * w, z.float() - w, y.sum(-1).exp()

    x, w = torch.randn(5, 7, device="cuda"), torch.randn(7, device="cuda")
    torch.testing.assert_close(torch.compile(function, backend="dit")(x, w), function(x, w))
    assert kept[0].refused["aten::sin"] == "the engine does not take SIN of float32"
    kinds = [step["kind"] for step in list_steps(kept)]
    assert kinds.count("subgraph") >= 2 and "row" in kinds
    (row,) = (step for step in list_steps(kept) if step.get("name") == "aten::sin")
    assert row["reason"] == "the engine does not take SIN of float32"


def test_numbers_of_the_cpu_are_not_given_to_the_chip(kept):
    scale = torch.tensor(3.0)  # a tensor of the CPU among those of the device
    x = torch.randn(4, 4, device="cuda")
    torch.testing.assert_close(torch.compile(lambda a: (a * scale + 1).relu(), backend="dit")(x), (x * 3 + 1).relu())


def test_dtypes_and_special_numbers():
    x = torch.tensor([[0.0, -0.0, float("nan"), float("inf"), -float("inf"), 1e-40, 3e38, -5.0]], device="cuda")

    def function(a):
        b = a.bfloat16() * 3 + 1
        return b, a.half().relu(), a.amax(-1), a.isnan().sum(), (a > 0) & (a < 1e30), torch.where(a > 0, a, -1.0)

    torch.testing.assert_close(torch.compile(function, backend="dit")(x), function(x), equal_nan=True)


def test_sizes_that_change(kept):
    model = Block().cuda()
    compiled = torch.compile(model, backend="dit", dynamic=True)
    for batch, length in ((2, 4), (3, 5), (2, 9), (2, 4)):
        x = torch.randn(batch, length, 16, device="cuda")
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
    assert len(kept[0].describe()) == 3


def test_two_threads_at_once():
    model = Block().cuda()
    compiled = torch.compile(model, backend="dit")
    inputs = [torch.randn(2, 6, 16, device="cuda") for _ in range(2)]
    wanted = [model(x).detach() for x in inputs]
    compiled(inputs[0])
    wrong = []

    def work(x, y):
        stream = torch.cuda.Stream()
        with torch.no_grad(), torch.cuda.stream(stream):
            for _ in range(20):
                got = compiled(x)
                stream.synchronize()
                if not torch.allclose(got, y, rtol=1e-4, atol=1e-5):
                    wrong.append((got - y).abs().max().item())

    threads = [threading.Thread(target=work, args=pair) for pair in zip(inputs, wanted, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
