"""The original's own tool tests, as far as they concern the tools that act: the same programs, run the same ways, with
what they must show asserted. Options are set through os.environ between calls, as users do."""

import os
import subprocess
import sys

import ditorch
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from conftest import child_environment
from op_tools import (
    OpAutoCompare,
    OpCapture,
    OpDtypeCast,
    OpFallback,
    OpObserve,
    OpTimeMeasure,
    remove_feature,
)
from op_tools.utils import traverse_container
from training import LeNet

pytestmark = pytest.mark.usefixtures("warm_children")

TOOLS = {"AUTOCOMPARE": OpAutoCompare, "FALLBACK": OpFallback, "DTYPE_CAST": OpDtypeCast}


@pytest.fixture(autouse=True)
def clean(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("OP_") or name.endswith("_OP_DTYPE_CAST_DICT")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("OP_TOOLS_CONSOLE", "off")
    yield tmp_path
    remove_feature()
    ditorch.fault("")


@pytest.fixture(params=list(TOOLS))
def kind(request):
    return request.param


def program():
    x = torch.randn(3, 4, dtype=torch.half).cuda()
    x.requires_grad_()
    y = torch.tensor(2.5, device="cuda")
    noise = torch.rand_like(x).detach() + torch.empty_like(x).uniform_() + torch.empty_like(x).normal_()
    z = x + noise
    z = z * 2 - x / y.half() + torch.bernoulli(torch.full_like(x, 0.5))
    order = torch.randperm(4, device="cuda")
    values, indices = torch.sort(z[:, order])
    assert indices.dtype is torch.long and not values.is_cpu and not indices.is_cpu
    linear = nn.Linear(4, 5).cuda().half()
    out = F.silu(linear(values))[:, 1:4]
    both = torch.cat((out, out))
    assert not both.is_cpu and both.shape == (6, 3) and torch.arange(3, device="cuda").device.type == "cuda"
    assert x.cpu().is_cpu and x.cpu().cuda().device.type == "cuda"
    both.sum().backward()
    assert x.grad.dtype is linear.weight.grad.dtype is torch.half and x.grad.shape == x.shape
    assert not x.grad.is_cpu and x.is_leaf
    return out


def applied(kind, **options):
    """How many calls the tool took while the program ran."""
    tool = TOOLS[kind](**options)
    with tool:
        program()
    if kind == "AUTOCOMPARE":
        assert tool.ok is not False, tool.table()
    return tool.counts()["applied"]


# test_op_autocompare, test_op_dtype_cast, test_op_fallback: the seven usages


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
    monkeypatch.setenv(f"OP_{kind}_DISABLE_LIST", "torch.nn.functional.silu,torch.sort")
    assert applied(kind) == everything - 2


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


def test_usage_list_of_random_operators(monkeypatch):
    monkeypatch.setenv(
        "OP_AUTOCOMPARE_LIST", "torch.rand_like,torch.bernoulli,torch.randperm,torch.Tensor.(uniform|normal)_"
    )
    tool = OpAutoCompare()
    with tool:
        program()
    assert tool.ok and tool.counts()["applied"] == 5 and tool.describe()["forward"]["compared"] == 5


def test_usage_enable_list_of_an_excluded_operator(monkeypatch):
    monkeypatch.setenv("OP_AUTOCOMPARE_LIST", "torch.Tensor.uniform_")
    assert applied("AUTOCOMPARE") == 1


def test_usage_fallback_of_a_transfer_stays_a_transfer(monkeypatch):
    monkeypatch.setenv("OP_FALLBACK_LIST", "torch.Tensor.cpu,torch.Tensor.cuda,torch.Tensor.to")
    x = torch.ones(3, device="cuda")
    with OpFallback() as tool:
        assert x.cpu().is_cpu and x.to("cpu").is_cpu and not x.cpu().cuda().is_cpu
    # What comes from the CPU is no call of the device.
    assert {row["name"]: row["count"] for row in tool.rows()} == {"torch.Tensor.cpu": 0, "torch.Tensor.to": 0}


def test_usage_cast_map_without_the_dtype(monkeypatch):
    monkeypatch.setenv("OP_DTYPE_CAST_DICT", "torch.bfloat16->torch.float32")
    with OpDtypeCast() as tool:
        program()
    assert not tool.ledger()


# test_op_tools: LeNet and more


def lenet():
    model = LeNet().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    before = model.conv1.weight.detach().clone()
    loss = F.cross_entropy(model(torch.randn(2, 1, 28, 28, device="cuda")), torch.tensor([1, 2], device="cuda"))
    loss.backward()
    optimizer.step()
    assert not torch.equal(before, model.conv1.weight)
    torch.bernoulli(torch.full((4,), 0.5, device="cuda"))
    x = torch.full((1_000_000,), 1.0, dtype=torch.half, device="cuda", requires_grad=True)
    (x + x).sum().backward()
    assert (x.grad == 2).all() and torch.ones(2, device=0).device.type == "cuda"


def test_lenet_training(kind):
    with TOOLS[kind]() as tool:
        lenet()
    assert tool.counts()["applied"] > 20 and (kind != "AUTOCOMPARE" or tool.ok)


def test_inplace_op_and_requires_grad():
    x = torch.randn(3, 4, device="cuda", requires_grad=True)
    with OpAutoCompare() as tool:
        y = x * 2
        y.div_(4)
        z = y.view(-1)
        z.div_(2).mul_(8)
        y[0:2] = 1.0
        (y * y).sum().backward()
    assert tool.ok and tool.describe()["backward"]["compared"] >= 3
    wanted = 2 * (2 * x.detach()) * 2
    wanted[0:2] = 0
    torch.testing.assert_close(x.grad, wanted)
    assert torch.equal(y.detach()[:2], torch.ones(2, 4, device="cuda"))


def test_inplace_view_of_a_leaf_is_refused_as_without_the_tool():
    x = torch.randn(3, device="cuda", requires_grad=True)
    with pytest.raises(RuntimeError) as bare:
        x.view(-1).mul_(2)
    with OpAutoCompare() as tool, pytest.raises(RuntimeError) as watched:
        x.view(-1).mul_(2)
    assert str(watched.value) == str(bare.value) and tool.ok


def test_mul_of_a_tensor_by_itself():
    x = torch.randn(5, device="cuda", requires_grad=True)
    with OpAutoCompare() as tool:
        (x * x).sum().backward()
    assert tool.ok and torch.equal(x.grad, 2 * x.detach())


def test_copy_op():
    with OpAutoCompare() as tool:
        host, device = torch.ones(3), torch.ones(3).to("cuda")
        assert device.device.type == "cuda" and device.device.index == 0
        assert (host + 1).is_cpu and (device + 1).device.type == "cuda"
        assert device.cpu().is_cpu and torch.equal(device.cpu(), host)
        device.copy_(host * 3)
    assert tool.ok and device.tolist() == [3, 3, 3]


def test_op_dtype_cast_keeps_leaves_and_dtypes():
    with OpDtypeCast() as tool:
        x = torch.randn(2, 3, device="cuda", dtype=torch.half).requires_grad_()
        assert x.is_leaf
        linear = nn.Linear(3, 4).cuda().half()
        linear(x).sum().backward()
        assert x.grad.dtype is linear.weight.grad.dtype is linear.bias.grad.dtype is torch.half
    assert "torch.nn.functional.linear" in [row["op"] for row in tool.ledger()]


@pytest.mark.parametrize("inner", [OpFallback, OpAutoCompare, OpDtypeCast, OpTimeMeasure, OpCapture])
def test_observe_around_another_tool(inner):
    with OpObserve() as outer, inner() as nested:
        x = torch.ones(3, device="cuda", requires_grad=True)
        y = x.to(torch.half)
        assert y.requires_grad
        (y * 2).sum().backward()
    left = inner is OpDtypeCast  # which leaves conversions alone
    assert outer.counts()["applied"] == nested.counts()["applied"] + left > 2 and x.grad.dtype is torch.float32


# test_tool_with_special_op


@pytest.mark.parametrize("other", [None, OpTimeMeasure])
def test_untyped_storage(other):
    x = torch.arange(1000, device="cuda", dtype=torch.float32)
    with OpAutoCompare() as tool:
        if other:
            with other():
                storage = x.untyped_storage()
        else:
            storage = x.untyped_storage()
    assert storage.nbytes() == 4000 and tool.ok is None  # nothing to compare
    assert list(traverse_container(storage)) == [storage]  # one item, where the original has one per byte


def test_containers_of_results():
    assert len(list(traverse_container(torch.sort(torch.ones(3, device="cuda"))))) == 2
    assert list(traverse_container(torch.ones(2).dtype)) == [torch.float32]
    assert list(traverse_container(torch.ones(2, 3).shape)) == [2, 3]


@pytest.mark.parametrize("other", [None, OpTimeMeasure])
def test_setitem_inplace_contiguous_exp(other):
    tool = OpAutoCompare()
    with tool:
        nested = other() if other else OpObserve()
        with nested:
            x = torch.ones(4, 4, device="cuda")
            x[1:3, 0] = 5
            x.add_(1).mul_(2).sub_(1).div_(2).pow_(2).sqrt_()
            for dtype in (torch.float32, torch.float64):
                y = x.to(dtype).t().contiguous()
                assert y.as_strided((2, 2), (4, 1)).contiguous().shape == (2, 2)
            y = torch.randn(6, device="cuda", requires_grad=True)
            torch.exp(y).sum().backward()
            torch.exp(x, out=x)
    assert tool.ok, tool.table()
    wanted = torch.full((4, 4), 1.5)
    wanted[1:3, 0] = 5.5
    torch.testing.assert_close(x.cpu(), wanted.exp())
    torch.testing.assert_close(y.grad, y.detach().exp())


@pytest.mark.parametrize("place", [0, "cuda", "cuda:0"])
def test_torch_tensor(kind, place):
    with TOOLS[kind]():
        x = torch.tensor([1.0, 2.0], device=place)
        assert x.device.type == "cuda" and x.device.index == 0 and x.tolist() == [1, 2]


def test_torch_tensor_device(kind):
    with TOOLS[kind]():
        assert torch.device("cuda").type == "cuda"
        for place in ("cuda", "cuda:0"):
            made = torch.ones(2, device=torch.device(place))
            assert made.device.type == "cuda" and made.device.index == 0
        assert torch.ones(2, device="meta").device.type == "meta"
        assert (torch.ones(2, device="meta") + 1).device.type == "meta"


def test_input_is_output(kind):
    with TOOLS[kind]() as tool:
        x = torch.ones(3, device="cuda")
        assert torch.exp(x, out=x) is x
    torch.testing.assert_close(x.cpu(), torch.ones(3).exp())
    assert kind != "AUTOCOMPARE" or tool.ok


# test_embedding


def test_embedding_on_the_cpu_is_untouched():
    table = nn.Embedding(10, 3, max_norm=1.0, padding_idx=0)
    indices = torch.tensor([[0, 2, 4, 5], [4, 3, 2, 9]])
    with OpAutoCompare() as tool:
        out = table(indices)
        out.sum().backward()
        with torch.no_grad():
            table.weight[0] = torch.ones(3)
    assert tool.counts()["applied"] == 0 and out.is_cpu
    assert torch.equal(table.weight.grad[0], torch.zeros(3)) and torch.equal(table.weight[0], torch.ones(3))


@pytest.mark.parametrize("options", [{}, {"padding_idx": 2}, {"max_norm": 1.0}, {"max_norm": 0.5, "padding_idx": 0}])
def test_embedding_on_the_device(kind, options):
    torch.manual_seed(3)
    host = nn.Embedding(10, 3, **options)
    device = nn.Embedding(10, 3, **options).cuda()
    device.load_state_dict(host.state_dict())
    indices = torch.tensor([[1, 2, 4, 5], [4, 3, 2, 9]])
    with TOOLS[kind]() as tool:
        out = device(indices.cuda())
        out.pow(2).sum().backward()
        with torch.no_grad():
            device.weight[1] = torch.ones(3, device="cuda")
    wanted = host(indices)
    wanted.pow(2).sum().backward()
    with torch.no_grad():
        host.weight[1] = 1.0
    for mine, theirs in ((out, wanted), (device.weight, host.weight), (device.weight.grad, host.weight.grad)):
        torch.testing.assert_close(mine.cpu(), theirs)
    assert kind != "AUTOCOMPARE" or (tool.ok and tool.describe()["forward"]["compared"] >= 3)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_initialisation_of_modules_accuses_nobody(device):
    """Bounds of distributions come by position and by keyword."""
    for seed in range(8):
        torch.manual_seed(seed)
        with OpAutoCompare(cpu=device == "cpu") as tool:
            nn.Linear(4, 3, device=device)
            nn.LSTM(3, 4, device=device)
            table = nn.Embedding(4, 3, device=device)
            nn.init.uniform_(table.weight, -7, -6)
            nn.init.uniform_(table.weight, a=6, b=7)
            nn.init.trunc_normal_(table.weight, 2.0, 0.1, 1.9, 2.1)
            nn.init.orthogonal_(table.weight)
        assert tool.ok, (seed, tool.table())


# test_run_op_from_data: the CLI over what the other tools left


@pytest.mark.parametrize(
    "flags",
    [["--sync_time_measure", "--run_times", "3"], ["--run_times", "2", "--acc_check"]],
    ids=["time", "accuracy"],
)
def test_run_op_from_data(flags, clean):
    with OpCapture():
        program()
    with ditorch.fault("value:silu,scale=0.2"), OpAutoCompare():
        program()
    answer = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "op_tools.run_op_from_data", "op_tools_results", *flags],
        capture_output=True, text=True, timeout=600, env=child_environment(), cwd=clean,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stdout[-3000:] + answer.stderr[-3000:]
    assert answer.stdout.count("dir:") > 15 and "torch.nn.functional.silu" in answer.stdout
