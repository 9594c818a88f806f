"""batch_norm in compiled graphs: nodes that are fused where a channel's rows are of a fitting length, and the device's
operator where they are not; both as in eager mode, gradients and running statistics included."""

import ditorch  # noqa: F401
import pytest
import torch
import torch.nn.functional as F
from ditorch import graph
from torch import nn


@pytest.fixture(autouse=True)
def kept():
    torch._dynamo.reset()
    yield graph.keep()
    graph.keep(False)


def list_steps(kept, kind):
    return [step for each in kept for plan in each.describe() for step in plan["steps"] if step["kind"] == kind]


def has_row(kept):
    return any("batch_norm" in step["name"] for step in list_steps(kept, "row"))


def train(norm, x, compiled, steps=2):
    """Results, gradients and buffers of some steps."""
    function = (
        torch.compile(lambda x: F.relu(norm(x)) * 2, backend="dit") if compiled else lambda x: F.relu(norm(x)) * 2
    )
    found = []
    for step in range(steps):
        leaf = (x * (step + 1)).detach().requires_grad_()
        y = function(leaf)
        weight = torch.linspace(-1, 1, y.numel(), device="cuda").view(y.shape).to(y.dtype)
        (y * weight).sum().backward()
        found += [y, leaf.grad]
    return [*found, *(p.grad for p in norm.parameters()), *norm.buffers()]


def compare(norm, x, **close):
    torch.manual_seed(0)
    state = {name: value.clone() for name, value in norm.state_dict().items()}
    wanted = train(norm, x, False)
    norm.load_state_dict(state)
    norm.zero_grad()
    for mine, other in zip(train(norm, x, True), wanted, strict=True):
        assert mine.stride() == other.stride() and mine.dtype == other.dtype
        torch.testing.assert_close(mine, other, **close)


@pytest.mark.parametrize("size", [(6, 3, 16), (5, 4, 9, 7), (1, 2, 8, 8), (2, 3, 4, 3, 2)], ids=str)
@pytest.mark.parametrize("options", [{}, {"affine": False}, {"track_running_stats": False, "momentum": 0.3}], ids=str)
def test_training(size, options, kept):
    norm = {3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}[len(size)](size[1], **options).cuda()
    for parameter in norm.parameters():
        nn.init.uniform_(parameter)
    compare(norm, torch.randn(size).cuda() * 3 + 1, rtol=1e-4, atol=1e-5)
    assert not has_row(kept)
    assert any("RSQRT" in step["operations"] for step in list_steps(kept, "region"))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_dtypes(dtype, kept):
    norm = nn.BatchNorm2d(3).cuda().to(dtype)
    close = {} if dtype == torch.float64 else {"rtol": 0.02, "atol": 0.02}
    compare(norm, torch.randn(4, 3, 8, 8).cuda().to(dtype), **close)
    assert not has_row(kept)


def test_parameters_of_another_dtype(kept):
    compare(nn.BatchNorm2d(3).cuda(), torch.randn(4, 3, 8, 8).cuda().bfloat16(), rtol=0.02, atol=0.02)
    assert not has_row(kept)


def test_evaluation_with_gradients(kept):
    norm = nn.BatchNorm2d(3).cuda()
    norm(torch.randn(4, 3, 8, 8).cuda() * 2 + 1)
    compare(norm.eval(), torch.randn(4, 3, 8, 8).cuda(), rtol=1e-4, atol=1e-5)
    assert not has_row(kept)


def test_a_mean_that_is_large_costs_no_digits():
    """The variance is no difference of two large sums."""
    x = (torch.randn(8, 2, 16, 16) + 3000).cuda()
    mine = torch.compile(lambda x: F.batch_norm(x, None, None, training=True), backend="dit")(x)
    exact = F.batch_norm(x.cpu().double(), None, None, training=True)
    eager = F.batch_norm(x, None, None, training=True)
    assert (mine.cpu() - exact).abs().max() <= 2 * (eager.cpu() - exact).abs().max() + 1e-5


def test_the_batch_may_change(kept):
    norm, other = nn.BatchNorm2d(3).cuda(), nn.BatchNorm2d(3).cuda()
    function = torch.compile(norm, backend="dit")
    for count in (4, 2, 7):
        x = torch.randn(count, 3, 6, 6).cuda()
        torch._dynamo.mark_dynamic(x, 0)
        torch.testing.assert_close(function(x), other(x), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(norm.running_var, other.running_var)
    assert len(kept) <= 2 and not has_row(kept)


@pytest.mark.parametrize("size", [(64, 5), (4, 3, 2, 2), (2, 2, 100, 100)], ids=str)
def test_other_lengths_are_the_operator(size, kept):
    norm = (nn.BatchNorm1d if len(size) == 2 else nn.BatchNorm2d)(size[1]).cuda()
    compare(norm, torch.randn(size).cuda(), rtol=1e-4, atol=1e-5)
    assert has_row(kept)


def test_channels_last(kept):
    x = torch.randn(4, 6, 8, 8).cuda().contiguous(memory_format=torch.channels_last)
    compare(nn.BatchNorm2d(6).cuda(), x, rtol=1e-4, atol=1e-5)
