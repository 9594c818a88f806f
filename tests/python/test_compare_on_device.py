"""OpAutoCompare with reference=device: the first look is the operator on the device itself, in a wider dtype."""

import os

import ditorch
import pytest
import torch
import torch.nn.functional as F
from op_tools import OpAutoCompare
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

# The first look needs a device's helpers; where there are none every call goes to the CPU.
pytestmark = pytest.mark.skipif(
    os.environ.get("DITORCH_VENDOR") == "opaque", reason="the closed test device has no helpers in C"
)


@pytest.fixture(autouse=True)
def in_own_directory(tmp_path, monkeypatch, device):
    monkeypatch.chdir(tmp_path)
    yield
    ditorch.fault("")


def train(dtype=torch.float32, autocast=False, steps=3):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Dropout(0.1), nn.Linear(32, 10))
    model = model.to("cuda", dtype)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    x, labels = torch.randn(8, 16).to("cuda", dtype), torch.randint(0, 10, (8,), device="cuda")
    losses = []
    for _ in range(steps):
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=autocast):
            loss = F.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def watch(function, **options):
    with OpAutoCompare(console="off", save=False, reference="device", **options) as tool:
        result = function()
    return tool, result


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("autocast", [False, True])
def test_a_training_is_right_and_unchanged(dtype, autocast):
    plain = train(dtype, autocast)
    tool, losses = watch(lambda: train(dtype, autocast))
    facts = tool.describe()
    assert losses == plain, "the tool changed the program"
    assert tool.ok and not facts["unable"], (tool.findings(), facts["unable"])
    assert facts["on_device"] > facts["forward"]["compared"] / 2


@pytest.mark.parametrize("fault", ["value:gelu,dtype=float32,scale=0.05", "nan:native_layer_norm,dtype=float32"])
def test_a_broken_operator_is_named(fault):
    with ditorch.fault(fault):
        tool, _ = watch(lambda: train(steps=1))
    word = "gelu" if "gelu" in fault else "layer_norm"
    assert tool.ok is False and word in tool.findings()[0]["name"]
    assert any(word in name for name in tool.describe()["suspects"])


def test_what_both_dtypes_share_is_not_seen():
    x = torch.rand(64, device="cuda") + 1
    with ditorch.fault("value:sqrt,scale=0.0625") as fault:  # rounded once in each dtype, as is what the fault adds
        tool, _ = watch(lambda: x.sqrt())
    assert fault.count == 2 and tool.ok, (
        tool.findings()
    )  # documented: the CPU sees it, the device's own float64 has the same error


def test_an_input_that_is_changed_is_found():
    with ditorch.fault("input:native_layer_norm"):
        tool, _ = watch(lambda: train(steps=1))
    finding = tool.findings()[0]
    assert "layer_norm" in finding["name"] and "must not write" in finding["reason"]


def test_in_place_operators_and_arguments_that_overlap():
    def work():
        x = torch.randn(6, 6, device="cuda")
        x.add_(1).mul_(x)
        x[1:].copy_(x[:-1].clone())
        torch._foreach_add_([x[0], x[1]], [x[2], x[3]])
        return x.sum().item()

    torch.manual_seed(1)
    plain = work()
    torch.manual_seed(1)
    tool, seen = watch(work)
    assert seen == plain and tool.ok, tool.findings()


def test_an_argument_that_changes_before_the_backward_is_not_judged():
    x = torch.randn(5, device="cuda", requires_grad=True)

    def work():
        buffer = torch.randn(5, device="cuda")
        y = (x + buffer).sum()
        buffer.zero_()
        y.backward()

    tool, _ = watch(work)
    assert tool.ok is not False


def test_a_wrong_word_is_refused():
    with pytest.raises(ValueError, match="cpu"):
        OpAutoCompare(reference="gpu", console="off").start()


@pytest.mark.parametrize("dtype, wide", [("bfloat16", "float32"), ("float16", "float32"), ("float32", "float64")])
def test_the_dtype_of_the_first_look(dtype, wide):
    x = torch.randn(64, 64).to("cuda", getattr(torch, dtype))
    other = "float64" if wide == "float32" else "float32"
    with ditorch.fault(f"value:gelu,dtype={wide},scale=0.5"):  # the look itself is broken: the CPU has to acquit
        tool, _ = watch(lambda: F.gelu(x))
    assert tool.describe()["suspects"] == {"torch.nn.functional.gelu": 1}
    if other != dtype:
        with ditorch.fault(f"value:gelu,dtype={other},scale=0.5"):
            tool, _ = watch(lambda: F.gelu(x))
        assert not tool.describe()["suspects"] and tool.ok


def test_sums_in_float32_have_a_float64_look():
    x = torch.randn(64, 64).to("cuda", torch.bfloat16)
    with ditorch.fault("value:sum,dtype=float64,scale=0.5"):
        tool, _ = watch(lambda: torch.sum(x, 0, dtype=torch.float32))
    assert tool.describe()["suspects"]


def test_the_switch_for_tf32_is_given_back():
    ask = torch._C._get_fp32_precision_getter
    x = torch.randn(32, 32, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    before = ask("cuda", "matmul")
    tool, _ = watch(lambda: (x @ x).sum().backward())
    assert tool.ok and ask("cuda", "matmul") == before


class Passing(TorchDispatchMode):
    """A mode of the program: its calls of torch.ops raise no version counter."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def test_what_a_mode_of_the_program_writes_in_place_is_no_damage():
    x, y = torch.randn(2, 6, 6, device="cuda")

    def work():
        with Passing():
            x.copy_(y).div_(3).add_(y)

    tool, _ = watch(work)
    assert tool.ok, tool.findings()


def test_a_gradient_scaler_counts_as_without_the_tool():
    def work():
        w = torch.ones(4, 4, device="cuda", requires_grad=True)
        optimizer, scaler = torch.optim.SGD([w], lr=0.1), torch.amp.GradScaler("cuda", 8.0, growth_interval=3)
        for _ in range(5):
            scaler.scale((w * w).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        return scaler.state_dict()

    plain = work()
    tool, seen = watch(work)
    assert seen == plain and tool.ok, (seen, plain, tool.findings())
