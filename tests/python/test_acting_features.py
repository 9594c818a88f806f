"""The original's tests of apply_feature with the tools that act, with what they must show asserted."""

import os
import sys

import ditorch
import pytest
import torch
import torch.nn.functional as F
from op_tools import OpAutoCompare, OpFallback, apply_feature, list_features, remove_feature
from op_tools.tool import active_tools


@pytest.fixture(autouse=True)
def clean(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("OP_") or name.endswith("_OP_DTYPE_CAST_DICT")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("OP_TOOLS_CONSOLE", "off")
    yield tmp_path
    remove_feature()
    ditorch.fault("")


# test_custom_apply_hook and test_custom_condition_to_enable_hook_example

FEATURES = [
    "fallback", "autocompare", "dump_op_args", "op_capture", "measure_op_time", "cast_dtype", "overflow_check",
]  # fmt: skip
OPERATORS = ["torch.add", "torch.sub", "torch.mul", "torch.div"]


@pytest.mark.parametrize("requires", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("feature", FEATURES)
def test_feature_on_an_expression(feature, requires):
    apply_feature(OPERATORS, feature)
    x = torch.randn(3, 4, device="cuda", dtype=torch.half).requires_grad_(requires[0])
    y = (torch.randn(3, 4, device="cuda", dtype=torch.half) + 5).requires_grad_(requires[1])
    a, b = torch.add(x, y), torch.sub(x, y)
    c, d = torch.mul(a, b), torch.div(a, y)
    total = torch.add(c, d)
    assert [t.dtype for t in (a, b, c, d, total)] == [torch.half] * 5 and total.device.type == "cuda"
    if any(requires):
        total.sum().backward()
        assert not any(t.is_leaf for t in (a, b, c, d, total)) and not any(t.retains_grad for t in (a, b))
    assert [(t.grad is not None) for t in (x, y)] == list(requires)
    if requires[0]:
        hx, hy = x.detach().float(), y.detach().float()
        torch.testing.assert_close(x.grad.float(), 2 * hx + 1 / hy, rtol=2e-2, atol=2e-2)
    assert len(list_features()) == 4


def test_conditions_decide_per_call(monkeypatch):
    seen = []

    def is_half(a, b):
        seen.append(a.dtype)
        return a.dtype is torch.float16

    apply_feature(OPERATORS, "fallback", is_half)
    apply_feature("torch.mul", "autocompare", lambda a, b: a.dim() == 2)
    fallback = next(tool for tool in active_tools() if isinstance(tool, OpFallback))
    for dtype in (torch.float16, torch.float32):
        x = torch.randn(2, 2, device="cuda", dtype=dtype, requires_grad=True)
        torch.mul(torch.add(x, 1), x).sum().backward()
        assert x.grad.dtype is dtype
    assert {row["name"]: row["count"] for row in fallback.rows()} == {"torch.add": 1, "torch.mul": 1}
    assert seen.count(torch.float16) == seen.count(torch.float32) == 2


def test_conditions_of_a_dtype_map_that_is_set_later(monkeypatch):
    apply_feature("torch.nn.functional.linear", "cast_dtype", lambda x, *rest, **kwargs: x.dim() == 2)
    monkeypatch.setenv("OP_DTYPE_CAST_DICT", "torch.float32->torch.float16")
    weight = torch.full((3, 4), 1 + 2**-12, device="cuda")  # float16 rounds it to 1
    flat, deep = torch.ones(2, 4, device="cuda"), torch.ones(1, 2, 4, device="cuda")
    assert F.linear(flat, weight).max() == 4 and F.linear(deep, weight).max() > 4
    assert F.linear(flat, weight).dtype is torch.float32


def test_condition_autocompare_linear():
    apply_feature("torch.nn.functional.linear", "autocompare")
    x = torch.randn(2, 3, device="cuda", requires_grad=True)
    weight, bias = torch.randn(4, 3, device="cuda", requires_grad=True), torch.randn(4, device="cuda")
    F.linear(x, weight, bias).sum().backward()
    with ditorch.fault("value:addmm,scale=0.2"):
        F.linear(x, weight, bias).sum().backward()
    tool = next(tool for tool in active_tools() if isinstance(tool, OpAutoCompare))
    assert [(f["name"], f["kind"]) for f in tool.findings()] == [("torch.nn.functional.linear", "forward")]
    # The backward of a call that is wrong already is not judged.
    assert tool.describe()["backward"] == {"compared": 1, "close": 1, "wrong": 0}


def test_ops_as_tuples_lists_and_duplicates():
    apply_feature(("torch.add", "torch.sub"), "fallback")
    apply_feature([torch.mul, torch.div, torch.mul], "fallback")
    assert {row.op for row in list_features()} == set(OPERATORS)
    with pytest.raises(ValueError, match="name"):
        apply_feature("", "fallback")
    with pytest.raises(AssertionError, match="fall_back"):
        apply_feature("torch.add", "fall_back")
    with pytest.raises(AttributeError, match="ad"):
        apply_feature("torch.ad", "fallback")
    assert len(list_features()) == 4


def test_results_that_cannot_be_compared_accuse_nobody():
    """Objects without a comparison, or with one that raises, beside a tensor that is judged."""

    class Plain:
        pass

    class Touchy:
        def __eq__(self, other):
            raise TypeError("not comparable")

    sys.modules["making"] = module = type(sys)("making")
    module.make = lambda x: (x * 2, Plain(), Touchy(), x.dtype)
    apply_feature("making.make", "autocompare")
    try:
        module.make(torch.ones(2, device="cuda"))
        tool = active_tools()[0]
        assert tool.ok and tool.describe()["forward"]["compared"] == 1, tool.table()
        with ditorch.fault("value:mul*,scale=0.2"):
            module.make(torch.ones(2, device="cuda"))
        assert [(f["name"], f["index"]) for f in tool.findings()] == [("making.make", 0)]
    finally:
        remove_feature()
        del sys.modules["making"]


def test_f4_none_is_a_result_and_nothing_runs_twice():
    calls = []

    def note(x):
        calls.append(x.device.type)

    sys.modules["noting"] = module = type(sys)("noting")
    module.note = note
    apply_feature("noting.note", "fallback")
    try:
        assert module.note(torch.ones(2, device="cuda")) is None
        x = torch.ones(2, device="cuda")
        with OpFallback():
            torch._foreach_add_([x], 1)
        assert x.tolist() == [2, 2]
    finally:
        remove_feature()
        del sys.modules["noting"]
    assert calls == ["cpu"]
