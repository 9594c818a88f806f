"""The original's own tool tests, as far as they concern the watching tools: the same programs, run the same ways, with
what they must show asserted. Options are set through os.environ between calls, as users do."""

import os

import ditorch  # noqa: F401
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from op_tools import OpCapture, OpDispatchWatcher, OpObserve, OpOverflowCheck, OpTimeMeasure

TOOLS = {"CAPTURE": OpCapture, "OBSERVE": OpObserve, "TIME_MEASURE": OpTimeMeasure, "OVERFLOW_CHECK": OpOverflowCheck}


@pytest.fixture(autouse=True)
def clean(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("OP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("OP_TOOLS_CONSOLE", "off")
    return tmp_path


def program():
    x = torch.randn(3, 4, dtype=torch.half).cuda()
    x.requires_grad_()
    y = torch.tensor(2.5, device="cuda")
    noise = torch.rand_like(x).detach() + torch.empty_like(x).uniform_() + torch.empty_like(x).normal_()
    z = x + noise
    z = z * 2 - x / y.half() + torch.bernoulli(torch.full_like(x, 0.5))
    values, indices = torch.sort(z)
    assert indices.dtype is torch.long
    linear = nn.Linear(4, 5).cuda().half()
    out = F.silu(linear(values))[:, 1:4]
    x[0:1].sum()
    out.sum().backward()
    assert x.grad.dtype is torch.half and x.grad.shape == x.shape
    return out


def applied(kind, **options):
    """Names of the calls that the tool took while the program ran."""
    tool = TOOLS[kind](**options)
    with tool:
        program()
    return tool.counts()["applied"]


@pytest.fixture(params=list(TOOLS))
def kind(request):
    return request.param


def test_usage_with(kind):
    assert applied(kind) > 15


def test_usage_start_stop_three_times(kind):
    tool = TOOLS[kind]()
    for _ in range(3):
        tool.start()
        program()
        tool.stop()
        assert tool.counts()["applied"] > 15
    before = tool.counts()["applied"]
    program()
    assert tool.counts()["applied"] == before


def test_usage_disable_list(kind, monkeypatch):
    everything = applied(kind)
    monkeypatch.setenv(f"OP_{kind}_DISABLE_LIST", "torch.Tensor.add,torch.sort")
    assert applied(kind) == everything - 5  # three additions, one of them of noise twice, and the sort


def test_usage_enable_list(kind, monkeypatch):
    monkeypatch.setenv(f"OP_{kind}_LIST", "torch.sort, torch.nn.functional.silu")
    assert applied(kind) == 2


def test_usage_empty_enable_list_disables_the_tool(kind, monkeypatch):
    monkeypatch.setenv(f"OP_{kind}_LIST", "")
    assert applied(kind) == 0


def test_usage_both_lists_disable_wins(kind, monkeypatch):
    monkeypatch.setenv(f"OP_{kind}_LIST", "torch.sort,torch.Tensor.add")
    monkeypatch.setenv(f"OP_{kind}_DISABLE_LIST", "torch.Tensor.add")
    assert applied(kind) == 1


def test_usage_list_deleted_while_the_tool_is_on(kind, monkeypatch):
    monkeypatch.setenv(f"OP_{kind}_LIST", "torch.sort")
    tool = TOOLS[kind]()
    with tool:
        program()
        assert tool.counts()["applied"] == 1
        del os.environ[f"OP_{kind}_LIST"]
        program()
        assert tool.counts()["applied"] > 15


def test_usage_list_of_random_operators(kind, monkeypatch):
    monkeypatch.setenv(f"OP_{kind}_LIST", "torch.rand_like,torch.bernoulli,torch.Tensor.(uniform|normal)_")
    assert applied(kind) == 4


def test_i14_alternatives_groups_and_blanks_match(kind, monkeypatch):
    monkeypatch.setenv(f"OP_{kind}_LIST", " torch.sort|torch.sortx , (torch).(bernoulli) ")
    assert applied(kind) == 2


def test_retired_names_of_observe(monkeypatch):
    monkeypatch.setenv("OP_DISPATCH_WATCH_LIST", "torch.sort")
    tool = OpDispatchWatcher()
    with tool:
        program()
    assert tool.counts()["applied"] == 1


@pytest.mark.parametrize("inner", [OpTimeMeasure, OpCapture, OpOverflowCheck])
def test_observe_around_another_tool(inner):
    with OpObserve() as outer, inner() as nested:
        x = torch.ones(3, device="cuda", requires_grad=True)
        y = x.to(torch.half)
        assert y.requires_grad
        (y * 2).sum().backward()
    assert outer.counts()["applied"] == nested.counts()["applied"] > 2


# test_op_tools: LeNet and more under each tool


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 5), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(256, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x.flatten(1))))))


def lenet():
    model = LeNet().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loss = F.cross_entropy(model(torch.randn(2, 1, 28, 28, device="cuda")), torch.tensor([1, 2], device="cuda"))
    loss.backward()
    optimizer.step()
    torch.bernoulli(torch.full((4,), 0.5, device="cuda"))
    x = torch.full((1_000_000,), 1.0, dtype=torch.half, device="cuda", requires_grad=True)
    (x + x).sum().backward()
    assert x.grad is not None and torch.ones(2, device=0).device.type == "cuda"


@pytest.mark.parametrize("tool", [OpCapture, OpObserve, OpOverflowCheck, OpTimeMeasure])
def test_lenet_training(tool):
    with tool() as watched:
        lenet()
    assert watched.counts()["applied"] > 30


# test_tool_with_special_op


def test_untyped_storage_is_survived_by_time_measure():
    x = torch.ones(1000, device="cuda")
    with OpTimeMeasure(), OpObserve():
        assert x.untyped_storage().nbytes() == 4000


@pytest.mark.parametrize("tool", [OpTimeMeasure, OpCapture, OpOverflowCheck])
def test_setitem_inplace_contiguous(tool):
    with tool() as watched:
        x = torch.ones(4, 4, device="cuda")
        x[1:3, 0] = 5
        x.add_(1).mul_(2).sub_(1).div_(2).pow_(2).sqrt_()
        for dtype in (torch.float32, torch.float64):
            y = x.to(dtype).t().contiguous()
            y.as_strided((2, 2), (4, 1)).contiguous()
        torch.exp(x, out=x)
    assert watched.counts()["applied"] >= 14 and torch.isfinite(x).all()


def test_overflow_findings_of_the_original_programs():
    with OpOverflowCheck() as check:
        x = torch.ones(4, device="cuda")
        divided = x / torch.zeros(4, device="cuda")
        assert torch.isinf(divided).all() and not torch.isnan(divided).any()
        largest = torch.full((3,), torch.finfo(torch.float32).max, device="cuda", requires_grad=True)
        double = largest + largest
        assert torch.isinf(double).all()
        assert torch.isfinite(largest + 1e-9).all()
        double.sum().backward()
    names = [finding["name"] for finding in check.findings()]
    assert names[:2] == ["torch.Tensor.div", "torch.Tensor.add"]
    assert [finding["inf"] for finding in check.findings()][:2] == [4, 3]


def test_embedding_with_max_norm_under_capture(clean):
    weight = torch.randn(10, 3, device="cuda", requires_grad=True)
    indices = torch.tensor([[1, 2, 4], [4, 3, 9]], device="cuda")
    with OpCapture():
        with torch.no_grad():
            table = weight.clone().requires_grad_()
        out = F.embedding(indices, table, max_norm=1.0)
        out.sum().backward()
    paths = sorted(clean.rglob("torch.nn.functional.embedding/**/*.pth"))
    assert {path.stem for path in paths} >= {"input", "output", "grad_outputs"}
    for path in paths:
        torch.load(path, weights_only=True, map_location="cpu")
