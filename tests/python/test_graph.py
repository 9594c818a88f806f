"""backend="dit": compiled results equal eager ones, and the plan is fused as it should be."""

import copy

import ditorch  # noqa: F401
import pytest
import torch
from ditorch import graph


@pytest.fixture(autouse=True)
def kept():
    torch._dynamo.reset()
    yield graph.keep()
    graph.keep(False)


def test_pointwise_and_reductions_are_regions(kept):
    def function(x, w):
        return torch.softmax(torch.nn.functional.gelu(x * 2 + w).sum(1, keepdim=True) + x, -1)

    x, w = torch.randn(8, 16, device="cuda"), torch.randn(16, device="cuda")
    torch.testing.assert_close(torch.compile(function, backend="dit")(x, w), function(x, w))
    (plan,) = kept[0].describe()
    assert plan["regions"] >= 1 and plan["rows"] == plan["islands"] == 0


def test_a_maximum_keeps_nan():
    x = torch.tensor([[1.0, float("nan"), 2.0], [-0.0, float("-inf"), 3.0]], device="cuda")
    got = torch.compile(lambda a: a.amax(-1) + 1, backend="dit")(x)
    torch.testing.assert_close(got, x.amax(-1) + 1, equal_nan=True)


@pytest.mark.parametrize("dynamic", [False, True])
def test_training(dynamic, kept):
    torch.manual_seed(0)
    layers = [torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4)]
    model = torch.nn.Sequential(*layers).cuda()
    twin = copy.deepcopy(model)
    compiled = torch.compile(twin, backend="dit", dynamic=dynamic)
    x = torch.randn(5, 8, device="cuda")
    model(x).pow(2).mean().backward()
    compiled(x).pow(2).mean().backward()
    for wanted, got in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(got.grad, wanted.grad)
    assert len(kept) == 2 and not any(isinstance(entry, str) for entry in kept)
