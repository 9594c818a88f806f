"""Every optimizer of torch.optim, in all its implementations, under the tools that act: the weights are the same to the
last bit under OpAutoCompare, which accuses nobody; OpFallback and OpDtypeCast move them as the device does."""

import inspect
import os

import ditorch
import pytest
import torch
import torch.nn as nn
from op_tools import OpAutoCompare, OpDtypeCast, OpFallback

OPTIONS = {
    "SGD": {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01, "nesterov": True},
    "Adam": {"lr": 0.01, "amsgrad": True, "weight_decay": 0.01},
    "LBFGS": {"lr": 0.5, "max_iter": 3, "line_search_fn": "strong_wolfe"},
    "RMSprop": {"lr": 0.01, "momentum": 0.5, "centered": True},
}
KINDS = sorted(
    name
    for name, value in vars(torch.optim).items()
    if inspect.isclass(value) and issubclass(value, torch.optim.Optimizer) and value is not torch.optim.Optimizer
)
MATRICES = {"Muon"}  # takes no vectors
SPARSE = {"SparseAdam"}  # takes sparse gradients only
LEVELS = ["torch", "aten"]


@pytest.fixture(autouse=True)
def results(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("OP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("OP_TOOLS_CONSOLE", "off")
    yield
    ditorch.fault("")


def variants():
    for name in KINDS:
        accepted = inspect.signature(getattr(torch.optim, name)).parameters
        yield name, {}
        for key in ("foreach", "fused"):
            if key in accepted:
                yield name, {key: True}
        if "foreach" in accepted:
            yield name, {"foreach": False}


def describe(value):
    return value if isinstance(value, str) else "-".join(f"{k}={x}" for k, x in value.items()) or "default"


def train(name, extra, tool=None, steps=2):
    """Weights and optimizer state after some steps."""
    torch.manual_seed(1)
    if name in SPARSE:
        table = nn.Embedding(9, 4, sparse=True)
        model = nn.Sequential(table, nn.Flatten())
        data, target = torch.randint(0, 9, (5, 2)).to("cuda"), torch.randn(5, 8).to("cuda")
    else:
        layers = [nn.Linear(6, 5, bias=name not in MATRICES), nn.Tanh(), nn.Linear(5, 2, bias=name not in MATRICES)]
        model = nn.Sequential(*layers)
        data, target = torch.randn(9, 6).to("cuda"), torch.randn(9, 2).to("cuda")
    model.to("cuda")
    optimizer = getattr(torch.optim, name)(model.parameters(), **{"lr": 0.01, **OPTIONS.get(name, {}), **extra})

    def closure():
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(data), target)
        loss.backward()
        return loss

    if tool is not None:
        tool.start()
    try:
        for _ in range(steps):
            optimizer.step(closure)
            if tool is not None:
                tool.step()
    finally:
        if tool is not None:
            tool.stop()
    values = [value for state in optimizer.state.values() for value in state.values() if torch.is_tensor(value)]
    return [value.detach().cpu() for value in [*model.parameters(), *values]]


_bare = {}


def bare(name, extra):
    key = name, describe(extra)
    if key not in _bare:
        try:
            _bare[key] = train(name, extra)
        except (RuntimeError, NotImplementedError) as error:
            _bare[key] = error
    if isinstance(_bare[key], Exception):
        pytest.skip(f"the device refuses it without a tool too: {_bare[key]}")
    return _bare[key]


every_variant = pytest.mark.parametrize("name,extra", list(variants()), ids=describe)


@pytest.mark.parametrize("level", LEVELS)
@every_variant
def test_compared_steps_are_bitwise_the_same_and_accuse_nobody(name, extra, level):
    wanted = bare(name, extra)
    tool = OpAutoCompare(level=level)
    got = train(name, extra, tool)
    assert len(got) == len(wanted) and all(torch.equal(a, b) for a, b in zip(got, wanted, strict=True))
    assert tool.ok, tool.table()
    facts = tool.describe()
    assert facts["forward"]["compared"] >= 10 and not facts["unable"]


@pytest.mark.parametrize("level", LEVELS)
@every_variant
def test_steps_on_the_cpu_move_the_weights_alike(name, extra, level):
    wanted = bare(name, extra)
    got = train(name, extra, OpFallback(level=level))
    near = {"rtol": 2e-2, "atol": 2e-3} if name in {"LBFGS", "Muon"} else {"rtol": 1e-4, "atol": 1e-6}
    for a, b in zip(got, wanted, strict=True):  # a line search and bfloat16 amplify rounding
        torch.testing.assert_close(a, b, **near)


@every_variant
def test_steps_in_float64_move_the_weights_alike(name, extra):
    wanted = bare(name, extra)
    got = train(name, extra, OpDtypeCast(dtype_cast_dict="torch.float32->torch.float64"))
    near = {"rtol": 2e-2, "atol": 2e-3} if name in {"LBFGS", "Muon"} else {"rtol": 1e-4, "atol": 1e-6}
    for a, b in zip(got, wanted, strict=True):
        torch.testing.assert_close(a, b, **near)


@pytest.mark.parametrize(
    "rule,extra,name",
    [
        ("value:addcdiv_,scale=0.2", {"foreach": False}, "torch.Tensor.addcdiv_"),
        ("value:lerp_*,scale=0.2", {"foreach": False}, "torch.Tensor.lerp_"),
        ("input:_foreach_addcdiv_*,scale=0.2", {"foreach": True}, "torch._foreach_addcdiv_"),
        ("input:_fused_adamw_*,scale=0.2", {"fused": True}, "torch._fused_adamw_"),
    ],
)
def test_a_broken_operator_of_adamw_is_named(rule, extra, name):
    bare("AdamW", extra)
    with ditorch.fault(rule) as fault:
        tool = OpAutoCompare()
        train("AdamW", extra, tool)
        assert fault.count > 0
    assert {finding["name"] for finding in tool.findings()} == {name}, tool.table()
