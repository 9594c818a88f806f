"""OpAutoCompare with reference=device: the first look is the operator in float64 on the device itself."""

import ditorch
import pytest
import torch
import torch.nn.functional as F
from op_tools import OpAutoCompare
from torch import nn


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
    with ditorch.fault("value:gelu,scale=0.05"):
        tool, _ = watch(lambda: train(steps=1))
    assert tool.ok  # documented: the CPU sees it, the device's own float64 has the same error


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
