"""Real training under the tools that act: OpAutoCompare changes no bit and names the operator that is broken,
OpFallback gets around it, OpDtypeCast trains in another dtype. The programs are in training.py."""

import os
import re

import ditorch
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
import training
from op_tools import OpAutoCompare, OpDtypeCast, OpFallback
from training import DEVICE, MODELS, is_same, train

LEVELS = ["torch", "aten"]
_bare = {}


@pytest.fixture(autouse=True)
def results(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("OP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("OP_TOOLS_CONSOLE", "off")
    yield tmp_path
    ditorch.fault("")


def bare(name, steps=3):
    if (name, steps) not in _bare:
        _bare[name, steps] = train(MODELS[name], steps=steps)
    return _bare[name, steps]


def is_near(losses, wanted, rtol):
    return all(abs(a - b) <= rtol * abs(b) for a, b in zip(losses, wanted, strict=True))


# OpAutoCompare

# What the CPU itself refuses, and so cannot be compared: operator, and what it says.
UNABLE = {
    "aten::_log_softmax_backward_data": "expected scalar type Float but found Half",
}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("model", MODELS)
def test_compared_training_is_bitwise_the_same_and_accuses_nobody(model, level):
    tool = OpAutoCompare(level=level)
    assert is_same(train(MODELS[model], tool), bare(model))
    facts = tool.describe()
    assert tool.ok and not tool.findings(), tool.table()
    assert facts["forward"]["compared"] > 5 and facts["forward"]["wrong"] == facts["backward"]["wrong"] == 0
    assert facts["backward"]["compared"] > 3 or level == "aten"
    assert facts["dropped"] == facts["saved"] == facts["failed"] == 0
    for name, (_, reason) in facts["unable"].items():
        assert re.search(UNABLE.get(name, "nothing"), reason), (name, reason)


# (program, fault, first finding at level torch, kind of finding, first finding at level aten)
FAULTS = [
    ("gpt", "value:addmm", "torch.nn.functional.linear", "forward", "aten::addmm"),
    ("gpt", "value:gelu_backward", "torch.nn.functional.gelu", "backward", "aten::gelu_backward"),
    ("gpt", "nan:native_layer_norm", "torch.nn.functional.layer_norm", "forward", "aten::native_layer_norm"),
    ("gpt", "input:_foreach_sqrt", "torch._foreach_sqrt", "forward", "aten::_foreach_sqrt"),
    ("cnn", "value:native_batch_norm", "torch.nn.functional.batch_norm", "forward", "aten::native_batch_norm"),
    ("cnn", "precision:convolution,bits=6", "torch.nn.functional.conv2d", "forward", "aten::convolution"),
    ("cnn", "value:max_pool2d_with_indices_backward", "torch.nn.functional.max_pool2d", "backward",
     "aten::max_pool2d_with_indices_backward"),
    ("cnn", "input:_foreach_add_*", "torch._foreach_add_", "forward", "aten::_foreach_add_"),
    ("lstm", "value:mm,call=1-4", "torch.lstm", "forward", "aten::mm"),
    (
        "lstm",
        "value:_thnn_fused_lstm_cell_backward_impl",
        "torch.lstm",
        "backward",
        "aten::_thnn_fused_lstm_cell_backward_impl",
    ),
    ("embedding", "value:embedding_renorm_", "torch.nn.functional.embedding", "forward", "aten::embedding_renorm_"),
    ("embedding", "unwritten:embedding_dense_backward", "torch.nn.functional.embedding", "backward",
     "aten::embedding_dense_backward"),
    ("embedding", "value:native_dropout", "torch.nn.functional.dropout", "forward", "aten::native_dropout"),
    ("amp float16", "value:addmm,dtype=float16", "torch.nn.functional.linear", "forward", "aten::addmm"),
    ("amp bfloat16", "value:native_layer_norm", "torch.nn.functional.layer_norm", "forward", "aten::native_layer_norm"),
    ("checkpoint", "value:tanh", "torch.tanh", "forward", "aten::tanh"),
    ("checkpoint", "value:tanh_backward", "torch.tanh", "backward", "aten::tanh_backward"),
    ("checkpoint reentrant", "value:tanh", "torch.tanh", "forward", "aten::tanh"),
    ("checkpoint reentrant", "value:tanh_backward", "torch.tanh", "backward", "aten::tanh_backward"),
    ("loader", "value:mse_loss", "torch.nn.functional.mse_loss", "forward", "aten::mse_loss"),
]  # fmt: skip


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("model,rule,name,kind,operator", FAULTS, ids=[f"{f[0]}-{f[1]}" for f in FAULTS])
def test_the_broken_operator_is_named_and_no_other(model, rule, name, kind, operator, level):
    rule += ",scale=0.2" if rule.startswith(("value", "input")) else ""
    with ditorch.fault(rule) as fault:
        tool = OpAutoCompare(level=level)
        train(MODELS[model], tool, steps=1)
        assert fault.count > 0, "the rule broke nothing"
    accused = {(finding["name"], finding["kind"]) for finding in tool.findings()}
    if level == "torch":
        assert accused == {(name, kind)}, tool.table()
    elif operator:
        assert accused == {(operator, "forward")}, tool.table()
    else:
        assert not accused
    for finding in tool.findings():
        assert os.path.isdir(finding["folder"])
        if level == "torch" and model != "checkpoint reentrant":  # whose backward runs without the program's frames
            assert re.search(r"(training|gpt)\.py:\d+ ", finding["location"]), finding["location"]


def test_attention_without_dropout_is_compared():
    """With dropout it draws numbers inside, and is said to be left out."""
    tool = OpAutoCompare()
    with ditorch.fault("value:_scaled_dot_product_flash_attention_for_cpu,scale=0.2"):
        train(lambda: training.gpt(dropout=0.0), tool, steps=1)
    assert tool.findings()[0]["name"] == "torch.nn.functional.scaled_dot_product_attention"
    assert tool.findings()[0]["kind"] == "forward" and tool.describe()["skipped"]["random"] == 0


# OpFallback


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("model", MODELS)
def test_training_on_the_cpu_gives_the_same_losses(model, level):
    tool = OpFallback(level=level, disable_list=".*dropout.*,.*scaled_dot_product.*")
    losses, state = train(MODELS[model], tool)
    # Checkpointing ends the second forward by an exception out of the last operator.
    failed = sum(row["failed"] for row in tool.rows())
    assert tool.counts()["applied"] > 10 and failed == 3 * (model == "checkpoint" and level == "torch")
    rounding = {"amp float16": 2e-3, "amp bfloat16": 2e-2}.get(model, 1e-5)
    assert is_near(losses, bare(model)[0], rounding)
    for name, wanted in bare(model)[1].items():
        assert state[name].dtype == wanted.dtype and state[name].shape == wanted.shape
        near = {"rtol": 0, "atol": 0.05} if "amp" in model else {"rtol": 1e-3, "atol": 1e-5}
        torch.testing.assert_close(state[name], wanted, **near)


# A fault of the device, and what OpFallback is to run elsewhere. The backward of what it runs is the CPU's too.
AROUND = [
    ("gpt", "value:native_layer_norm*", "torch.nn.functional.layer_norm"),
    ("gpt", "value:gelu*", "torch.nn.functional.gelu"),
    ("cnn", "value:native_batch_norm*", "torch.nn.functional.batch_norm"),
    ("cnn", "error:convolution*", "torch.nn.functional.conv2d"),
    ("lstm", "nan:_thnn_fused_lstm_cell*", "torch.lstm"),
    ("embedding", "value:embedding*", "torch.nn.functional.embedding"),
    ("amp float16", "nan:gelu*", "torch.nn.functional.gelu"),
    ("amp bfloat16", "value:native_layer_norm*", "torch.nn.functional.layer_norm"),
    ("checkpoint", "value:tanh*", "torch.tanh"),
    ("checkpoint reentrant", "value:tanh*", "torch.tanh"),
    ("loader", "value:mse_loss*", "torch.nn.functional.mse_loss"),
]


@pytest.mark.parametrize("model,rule,operator", AROUND, ids=[f"{a[0]}-{a[1]}" for a in AROUND])
def test_the_broken_operator_is_got_around(model, rule, operator):
    rule += ",scale=20" if rule.startswith("value") else ""
    sound = bare(model)
    with ditorch.fault(rule) as fault:
        if rule.startswith("error"):
            with pytest.raises(RuntimeError, match="injected fault"):
                train(MODELS[model])
        else:
            assert not is_near(train(MODELS[model])[0], sound[0], 1e-3), "the fault does not matter"
        hits = fault.count
        tool = OpFallback(list=operator)
        losses, _ = train(MODELS[model], tool)
        assert fault.count == hits, "the device ran it all the same"
    assert {row["name"] for row in tool.rows() if row["count"]} == {operator}
    assert is_near(losses, sound[0], {"amp float16": 2e-3, "amp bfloat16": 2e-2}.get(model, 1e-5))


def test_a_broken_operator_of_the_optimizer_is_got_around():
    sound = bare("cnn")
    with ditorch.fault("input:_foreach_add_*,scale=0.5") as fault:
        assert not is_near(train(MODELS["cnn"])[0], sound[0], 1e-3)
        hits = fault.count
        losses, _ = train(MODELS["cnn"], OpFallback(list="torch._foreach_.*"))
        assert fault.count == hits
    assert is_near(losses, sound[0], 1e-5)


@pytest.mark.parametrize("model", ["gpt", "cnn", "lstm"])
def test_what_is_got_around_is_not_accused(model):
    """Both tools at once: the comparison sees the program's call, whoever computes it."""
    rule, operator = next((rule, operator) for name, rule, operator in AROUND if name == model and "error" not in rule)
    with ditorch.fault(rule):
        compare = OpAutoCompare()
        with compare:
            losses, _ = train(MODELS[model], OpFallback(list=operator), steps=1)
    assert operator not in {finding["name"] for finding in compare.findings()}, compare.table()
    assert is_near(losses, bare(model)[0][:1], 1e-5)


# OpDtypeCast


def halves(make, dtype):
    """The program with weights in `dtype`, inputs following by hooks. The optimizer is made after the cast."""

    def build():
        model, _ = make()
        model.to(dtype)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

        def step():
            x, y = torch.randn(4, 1, 8, 8).to(DEVICE).to(dtype), torch.randint(0, 5, (4,)).to(DEVICE)
            optimizer.zero_grad()
            out = model(x)
            assert out.dtype == dtype
            loss = F.cross_entropy(out, y)
            assert loss.dtype == dtype
            loss.backward()
            assert all(p.grad.dtype == p.dtype == dtype for p in model.parameters())
            optimizer.step()
            assert all(p.dtype == dtype and p.is_leaf for p in model.parameters())
            assert all(s["momentum_buffer"].dtype == dtype for s in optimizer.state.values())
            return loss

        return model, step

    return build


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_a_half_model_trains_in_float32_and_keeps_its_dtypes(dtype, level):
    make = halves(training.cnn, dtype)
    tool = OpDtypeCast(level=level)
    losses, state = train(make, tool)
    wide, _ = train(training.cnn)
    ops = {row["op"] for row in tool.ledger() if row["cast"]}
    wanted = {"torch.nn.functional.conv2d", "torch.nn.functional.linear", "torch.nn.functional.batch_norm"}
    assert ops >= (wanted if level == "torch" else {"aten::convolution", "aten::native_batch_norm"})
    assert all(value.dtype == dtype for name, value in state.items() if "num_batches" not in name)
    assert not any(torch.equal(state[name], train(make, steps=0)[1][name]) for name in ("0.weight", "5.bias"))
    assert is_near(losses, wide, 0.1)


def gpt_half():
    model, _ = training.gpt()
    model.half()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        tokens = torch.randint(0, 32, (2, 17)).to(DEVICE)
        _, loss = model(tokens[:, :-1], tokens[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        assert all(p.grad.dtype == p.dtype == torch.half for p in model.parameters())
        optimizer.step()
        return loss

    return model, step


def test_a_half_transformer_trains_and_a_broken_half_kernel_is_got_around():
    sound, _ = train(gpt_half, steps=3)
    with ditorch.fault("value:gelu*,dtype=float16,scale=20") as fault:
        assert not is_near(train(gpt_half, steps=3)[0], sound, 1e-3)
        hits = fault.count
        tool = OpDtypeCast(list="torch.nn.functional.gelu")
        losses, _ = train(gpt_half, tool, steps=3)
        assert fault.count == hits
    assert [row["op"] for row in tool.ledger()] == ["torch.nn.functional.gelu"] and is_near(losses, sound, 2e-3)


@pytest.mark.parametrize("model", MODELS)
def test_a_map_for_other_dtypes_changes_no_bit(model):
    tool = OpDtypeCast(dtype_cast_dict="torch.complex64->torch.complex128")
    assert is_same(train(MODELS[model], tool), bare(model))
    assert not tool.ledger()


@pytest.mark.parametrize("model", ["gpt", "cnn", "lstm", "embedding", "checkpoint", "checkpoint reentrant"])
def test_float64_inside_moves_losses_by_rounding_only(model):
    tool = OpDtypeCast(dtype_cast_dict="torch.float32->torch.float64", disable_list=".*dropout.*")
    losses, state = train(MODELS[model], tool)
    assert sum(row["cast"] for row in tool.ledger()) > 10
    assert is_near(losses, bare(model)[0], 1e-5)
    assert all(state[name].dtype == value.dtype for name, value in bare(model)[1].items())


# All three at once


def test_three_tools_at_once():
    compare, fallback, cast = (
        OpAutoCompare(),
        OpFallback(list="torch.nn.functional.gelu"),
        OpDtypeCast(list="torch.nn.functional.conv2d"),
    )
    with compare, fallback, cast:
        losses, _ = train(MODELS["gpt"])
        train(MODELS["cnn"])
    assert compare.ok and fallback.rows()[0]["count"] > 0
    assert is_near(losses, bare("gpt")[0], 1e-5)


def test_an_exception_of_the_program_passes_through_each_tool():
    class Broken(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            raise ZeroDivisionError("in the user's backward")

    for make in (OpAutoCompare, OpFallback, OpDtypeCast):
        tool = make()
        x = torch.ones(3, device=DEVICE, requires_grad=True)
        with pytest.raises(ZeroDivisionError, match="user's backward"), tool:
            Broken.apply(x).sum().backward()
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"), tool:
            nn.Linear(3, 4).to(DEVICE)(torch.ones(2, 5, device=DEVICE))
        assert not tool.is_active and torch._C._len_torch_function_stack() == 0
