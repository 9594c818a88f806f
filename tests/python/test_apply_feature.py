"""apply_feature: what it accepts and refuses, several features, conditions, the way back, threads, copies."""

from __future__ import annotations

import copy
import gc
import inspect
import os
import pickle
import sys
import threading
import types
import weakref

import ditorch  # noqa: F401
import op_tools
import pytest
import torch
import torch.nn.functional as F
from ditorch import _C
from op_tools import OpObserve, apply_feature, console, list_features, remove_feature, results, tool
from op_tools import features as registry

ALL = [
    ("fallback", "OpFallback"),
    ("autocompare", "OpAutoCompare"),
    ("measure_op_time", "OpTimeMeasure"),
    ("dump_op_args", "OpObserve"),
    ("cast_dtype", "OpDtypeCast"),
    ("op_capture", "OpCapture"),
    ("overflow_check", "OpOverflowCheck"),
]


@pytest.fixture(autouse=True)
def clean(tmp_path, monkeypatch):
    for name in list(os.environ):
        if name.startswith("OP_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    console._said.clear()
    yield
    remove_feature()
    for active in tool.active_tools():
        active.stop()
    results.close_log()
    assert not registry.list_entries() and not registry._tools


@pytest.fixture
def x():
    return torch.ones(3, 4, device="cuda")


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A third-party package with a submodule that nobody has imported."""
    folder = tmp_path / "third_party_pkg"
    (folder / "sub").mkdir(parents=True)
    (folder / "__init__.py").write_text("import torch\ndef double(x, *, by=2):\n    'Doc.'\n    return x * by\n")
    (folder / "sub" / "__init__.py").write_text("")
    (folder / "sub" / "deep.py").write_text(
        "import torch\n"
        "from torch.nn.functional import relu\n"
        "CONSTANT = 3\n"
        "def half(x):\n    return x / 2\n"
        "def fact(x, n):\n    return x if n == 0 else fact(x * n, n - 1)\n"
        "def fails(x):\n    if x.dim() == 1: raise KeyError('mine')\n    return x + 1\n"
        "def use_relu(x):\n    return relu(x)\n"
        "class Thing:\n"
        "    size = 3\n"
        "    def scale(self, x):\n        return x * self.size\n"
        "    @staticmethod\n    def twice(x):\n        return x * 2\n"
        "    @classmethod\n    def named(cls, x):\n        return cls.__name__, x + 1\n"
        "    @property\n    def area(self):\n        return 9\n"
        "class Child(Thing):\n    size = 5\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "third_party_pkg"
    remove_feature()
    for name in [name for name in sys.modules if name.split(".")[0] == "third_party_pkg"]:
        del sys.modules[name]


def calls(feature="dump_op_args"):
    """Names that the feature's tool has recorded."""
    return [record["name"] for record in registry._tools[feature].records("call")]


def applied(feature="dump_op_args"):
    return registry._tools[feature].counts()["applied"]


def is_there(name):
    return name in op_tools._EXPORTS


# What may be given


def test_a_name(x):
    original = torch.add
    apply_feature("torch.add", "dump_op_args")
    assert torch.add(x, 1).sum() == 24
    assert calls() == ["torch.add"] and torch.add is not original


def test_dump_op_args_prints_the_arguments(x, capsys):
    """Without a word of the user about the console."""
    apply_feature("torch.add", "dump_op_args")
    torch.add(x, 54321)
    remove_feature("torch.add", "dump_op_args")
    torch.add(x, 98765)
    printed = capsys.readouterr().out
    assert "torch.add" in printed and "(3, 4)" in printed and "54321" in printed and "98765" not in printed


def test_blanks_around_the_parts_of_a_name(x):
    apply_feature(" torch . nn.functional. relu ", "dump_op_args")
    F.relu(x)
    assert calls() == ["torch.nn.functional.relu"]


def test_function_objects_with_a_duplicate_in_a_list(x):
    apply_feature([torch.add, torch.sub, torch.add, F.linear], "dump_op_args")
    torch.add(x, 1), torch.sub(x, 1), F.linear(x, x)
    assert calls() == ["torch.add", "torch.sub", "torch.nn.functional.linear"]


def test_a_function_and_a_module_by_themselves(x):
    apply_feature(torch.mul, "dump_op_args")
    apply_feature(torch.special, "dump_op_args")
    torch.mul(x, 2), torch.special.expit(x)
    assert calls() == ["torch.mul", "torch.special.expit"]


def test_nested_lists_and_tuples(x):
    apply_feature(["torch.add", ("torch.sub", [torch.mul, (["torch.div"],)])], "dump_op_args")
    torch.add(x, 1), torch.sub(x, 1), torch.mul(x, 1), torch.div(x, 1)
    assert len(calls()) == 4


def test_n1_methods_keep_their_self(x):
    apply_feature(["torch.Tensor.add", torch.Tensor.mul], "dump_op_args")
    assert torch.equal(x.add(1, alpha=2), torch.full_like(x, 3))
    assert torch.equal(torch.Tensor.mul(x, 2), torch.full_like(x, 2))
    assert calls() == ["torch.Tensor.add", "torch.Tensor.mul"]


def test_operators_and_in_place_methods(x):
    apply_feature(
        ["torch.Tensor.__add__", "torch.Tensor.__radd__", "torch.Tensor.add_", "torch.Tensor.to"], "dump_op_args"
    )
    y = 1 + (x + 1)
    assert y.add_(1) is y and y.to(torch.float64).dtype == torch.float64 and y.mean() == 4
    remove_feature()
    assert (x + 1).mean() == 2 and "__add__" not in vars(torch.Tensor)


def test_getitem_and_matmul_operators(x):
    apply_feature(["torch.Tensor.__getitem__", "torch.Tensor.__setitem__", "torch.Tensor.__matmul__"], "dump_op_args")
    x[0, 1] = 7
    assert x[0, 1] == 7 and (x @ x.T).shape == (3, 3)
    assert calls() == ["torch.Tensor.__setitem__", "torch.Tensor.__getitem__", "torch.Tensor.__matmul__"]


def test_a_tensor_does_not_become_a_sequence(x):
    """Python would take it for one as soon as the class itself has __getitem__, and for ever after."""
    below = torch.nn.Parameter(x.sum(), requires_grad=False)
    apply_feature(["torch.Tensor.__getitem__", "torch.Tensor.__setitem__"], "dump_op_args")
    assert torch.tensor([x.sum(), x.sum(), below]).shape == (3,) and x[0].shape == (4,)
    remove_feature()
    assert torch.tensor([x.sum(), x.sum(), below]).shape == (3,)


@pytest.mark.parametrize(
    "name", ["torch.linalg.inv", "torch.special.expit", "torch.fft.fft", "torch.nn.functional.gelu", "torch.norm"]
)
def test_n2_names_whose_c_name_differs(name):
    owner = sys.modules[name.rpartition(".")[0]]
    before = set(vars(owner))
    apply_feature(name, "dump_op_args")
    getattr(owner, name.rpartition(".")[2])(torch.eye(3, device="cuda") * 2)
    assert calls() == [name] and set(vars(owner)) == before  # no stray attribute
    remove_feature()
    apply_feature([getattr(owner, name.rpartition(".")[2])], "dump_op_args")
    getattr(owner, name.rpartition(".")[2])(torch.eye(3, device="cuda") * 2)
    assert len(calls()) == 1 and set(vars(owner)) == before


def test_n3_modules_get_the_condition_too(x):
    seen = []

    def big(*args, **kwargs):
        seen.append(1)
        return args[0].numel() > 10

    apply_feature([F], "dump_op_args", big)
    F.relu(x), F.relu(x[0]), F.softmax(x, -1)
    assert sorted(calls()) == ["torch.nn.functional.relu", "torch.nn.functional.softmax"] and len(seen) == 3


def test_a_module_hooks_what_computes_and_nothing_else(x):
    before = dict(vars(F))
    apply_feature("torch.nn.functional", "dump_op_args")
    names = {row.op.rpartition(".")[2] for row in list_features()}
    assert {"linear", "relu", "dropout", "conv2d", "cross_entropy", "scaled_dot_product_attention"} <= names
    assert not names & {"has_torch_function", "handle_torch_function", "boolean_dispatch", "_verify_batch_size"}
    torch.nn.Linear(4, 2, device="cuda")(x).relu()
    assert calls() == ["torch.nn.functional.linear"]
    remove_feature()
    assert all(vars(F)[name] is value for name, value in before.items())


def test_n4_again_by_function_object(x, capsys):
    apply_feature("torch.add", "dump_op_args")
    apply_feature([torch.add], "measure_op_time")  # torch.add is a hook by now
    apply_feature([torch.add], "dump_op_args", lambda *args: False)
    torch.add(x, 1)
    assert applied("measure_op_time") == 1 and applied() == 0
    assert "torch.add has dump_op_args already" in capsys.readouterr().err


def test_n5_several_features_stack(x):
    apply_feature("torch.add", "dump_op_args")
    apply_feature("torch.add", "measure_op_time")
    apply_feature("torch.add", "overflow_check")
    torch.add(x, 1)
    assert [row.feature for row in list_features()] == ["dump_op_args", "measure_op_time", "overflow_check"]
    assert applied() == applied("measure_op_time") == applied("overflow_check") == 1
    remove_feature("torch.add", "measure_op_time")
    torch.add(x, 1)
    assert applied() == applied("overflow_check") == 2 and "measure_op_time" not in registry._tools


def test_n5_removing_restores_the_very_same_objects(x, package):
    deep = __import__("third_party_pkg.sub.deep").sub.deep
    originals = (torch.add, F.linear, torch.Tensor.add, torch.linalg.inv, vars(deep.Thing)["twice"], deep.half)
    raw = dict(vars(torch.Tensor))
    names = ["torch.add", "torch.nn.functional.linear", "torch.Tensor.add", "torch.linalg.inv"]
    names += ["third_party_pkg.sub.deep.Thing.twice", "third_party_pkg.sub.deep.half", "torch.Tensor.__add__"]
    for feature in ("dump_op_args", "measure_op_time"):
        apply_feature(names, feature)
    remove_feature(feature="dump_op_args")
    assert torch.add is not originals[0]
    remove_feature(feature="measure_op_time")
    now = (torch.add, F.linear, torch.Tensor.add, torch.linalg.inv, vars(deep.Thing)["twice"], deep.half)
    assert all(new is old for new, old in zip(now, originals, strict=True))
    assert raw.keys() == vars(torch.Tensor).keys() and not tool.active_tools() and list_features() == []


def test_n7_packages_that_were_not_imported_yet(x, package):
    assert "third_party_pkg.sub" not in sys.modules
    apply_feature("third_party_pkg.sub.deep.half", "dump_op_args")
    sys.modules["third_party_pkg.sub.deep"].half(x)
    assert calls() == ["third_party_pkg.sub.deep.half"]


def test_third_party_functions_and_classes(x, package):
    import third_party_pkg
    import third_party_pkg.sub.deep as deep

    apply_feature(
        [third_party_pkg.double, deep, deep.Thing.scale, "third_party_pkg.sub.deep.Thing.twice"], "dump_op_args"
    )
    apply_feature([deep.Child.named], "dump_op_args")
    assert third_party_pkg.double(x, by=3).mean() == 3 and deep.half(x).mean() == 0.5
    assert deep.Thing().scale(x).mean() == 3 and deep.Child().scale(x).mean() == 5
    assert deep.Thing.twice(x).mean() == 2 and deep.Thing().twice(x).mean() == 2
    assert deep.Child.named(x)[0] == "Child" and deep.Thing.named(x)[0] == "Thing"
    names = calls()
    assert [name.rpartition(".")[2] for name in names] == [
        "double",
        "half",
        "scale",
        "scale",
        "twice",
        "twice",
        "named",
    ]
    remove_feature()
    assert isinstance(vars(deep.Thing)["twice"], staticmethod) and "named" not in vars(deep.Child)


def test_bound_methods_of_one_object(x):
    first, second = torch.nn.Linear(4, 4, device="cuda"), torch.nn.Linear(4, 4, device="cuda")
    apply_feature([first.forward], "dump_op_args")
    first(x), second(x)
    assert calls() == ["torch.nn.modules.linear.Linear.forward"]
    assert "of one object" in list_features()[0].place
    copied = copy.deepcopy(first)
    assert copied.forward.__self__ is copied
    remove_feature()
    assert "forward" not in vars(first) and first.forward.__self__ is first


def test_operators_of_torch_ops(x):
    packet, overload = torch.ops.aten.mul, torch.ops.aten.sub.Tensor
    apply_feature([packet, overload, "torch.ops.aten.neg"], "dump_op_args")
    torch.ops.aten.mul(x, 2), torch.ops.aten.sub.Tensor(x, x), torch.ops.aten.neg(x)
    assert calls() == ["aten.mul", "aten.sub.Tensor", "torch.ops.aten.neg"]
    assert torch.ops.aten.mul.default is packet.default if hasattr(packet, "default") else True
    remove_feature()
    assert torch.ops.aten.mul is packet and torch.ops.aten.sub.Tensor is overload


def test_one_object_under_several_names(x):
    assert torch.conv1d is F.conv1d
    apply_feature([F.conv1d], "dump_op_args")
    weight = torch.ones(1, 3, 2, device="cuda")
    torch.conv1d(x[None], weight), F.conv1d(x[None], weight)
    assert applied() == 2 and len({id(torch.conv1d), id(F.conv1d)}) == 2
    remove_feature([torch.conv1d])
    assert torch.conv1d is F.conv1d


# What is refused


def test_an_empty_name_is_a_value_error():
    with pytest.raises(ValueError, match="empty name"):
        apply_feature("", "fallback")
    with pytest.raises(ValueError, match="empty name"):
        apply_feature(["torch.add", " "], "dump_op_args")
    assert not list_features()


@pytest.mark.parametrize("name", ["torch.ad", "torch.nn.functionl.linear", "torch.add.nothing.at.all"])
def test_an_unknown_name_is_an_attribute_error_and_changes_nothing(name):
    with pytest.raises(AttributeError):
        apply_feature(["torch.add", name], "dump_op_args")
    assert not list_features() and not tool.active_tools()


def test_an_unknown_package_is_an_import_error():
    with pytest.raises(ModuleNotFoundError):
        apply_feature("no_such_package_at_all.f", "dump_op_args")


@pytest.mark.parametrize("feature", ["compare", "", None, 3, "OpCapture"])
def test_a_bad_feature_lists_the_valid_ones(feature):
    with pytest.raises(AssertionError) as caught:
        apply_feature("torch.add", feature)
    assert all(name in str(caught.value) for name, _ in ALL)


@pytest.mark.parametrize("ops", [3, None, {"torch.add"}, {"a": 1}])
def test_ops_of_the_wrong_kind(ops):
    with pytest.raises(AssertionError, match="ops is"):
        apply_feature(ops, "dump_op_args")


def test_a_condition_that_cannot_be_called():
    with pytest.raises(AssertionError, match="condition_func is 3"):
        apply_feature("torch.add", "dump_op_args", 3)


def test_things_that_cannot_be_hooked_are_said(x, package, capsys):
    import third_party_pkg.sub.deep as deep

    ops = [
        x.add,
        deep.Thing,
        "third_party_pkg.sub.deep.Thing.area",
        deep.Thing.area,
        "third_party_pkg.sub.deep.CONSTANT",
    ]
    ops += [3, lambda x: x, "torch.Tensor.grad", "torch.Tensor.size", "torch.Tensor.__new__", torch.nn.Linear(1, 1)]
    ops += ["torch._C.TensorBase.add", "op_tools.step", None]
    apply_feature(ops, "op_capture")
    text = capsys.readouterr().err
    lines = [line for line in text.splitlines() if line.startswith("can not apply OpCaptureHook to ")]
    assert len(lines) == len(ops), text
    for part in (
        "torch.Tensor.add",
        "is a class",
        "is a property",
        "CONSTANT",
        "int 3",
        "computes nothing",
        "type of C",
    ):
        assert part in text
    assert not list_features() and not tool.active_tools()


# Names imported before


def test_trap_names_imported_before_patching(x, package):
    import third_party_pkg.sub.deep as deep

    original = F.relu
    apply_feature("torch.nn.functional.relu", "dump_op_args")
    deep.use_relu(x)
    assert applied() == 0
    apply_feature("torch.nn.functional.relu", "measure_op_time", everywhere=True)
    deep.use_relu(x)
    assert applied() == applied("measure_op_time") == 1
    assert list_features()[0].references >= 1 and deep.relu is F.relu
    remove_feature()
    assert deep.relu is original and F.relu is original


def test_names_imported_while_hooked_come_back_too(x):
    original = F.silu
    apply_feature("torch.nn.functional.silu", "dump_op_args")
    late = types.ModuleType("late_importer")
    exec("from torch.nn.functional import silu", vars(late))
    sys.modules["late_importer"] = late
    try:
        held = late.silu
        late.silu(x)
        assert applied() == 1
        remove_feature()
        assert late.silu is original
        assert torch.equal(held(x), original(x))  # kept elsewhere: it calls straight through
    finally:
        del sys.modules["late_importer"]


def test_trap_function_identity(x):
    original = torch.add
    handled = {torch.add: "mine", F.dropout: "drop"}
    apply_feature(["torch.add", "torch.nn.functional.dropout"], "dump_op_args")
    assert torch.add == original and original == torch.add and (torch.add != original) is False
    assert handled[torch.add] == "mine" and handled[F.dropout] == "drop" and torch.add != torch.sub
    assert torch.add.__name__ == "add" and torch.add.__doc__ == original.__doc__ and inspect.isroutine(torch.add)
    assert inspect.signature(F.dropout) == inspect.signature(F.dropout.__wrapped__)
    assert torch.overrides.resolve_name(torch.add) == "torch.add"


# Conditions, lists, the CPU rule, the environment


def test_the_condition_decides_per_call(x):
    apply_feature("torch.add", "dump_op_args", lambda a, b, **kwargs: a.dtype == torch.float16)
    torch.add(x, 1), torch.add(x.half(), 1), torch.add(x.half(), 1, alpha=2)
    counts = registry._tools["dump_op_args"].counts()
    assert counts["applied"] == 2 and counts["condition"] == 1 and counts["seen"] == 3


def test_an_exception_of_the_condition_reaches_the_caller(x):
    def bad(*args, **kwargs):
        raise LookupError("from the condition")

    apply_feature("torch.add", "dump_op_args", bad)
    with pytest.raises(LookupError, match="from the condition"):
        torch.add(x, 1)
    remove_feature()
    torch.add(x, 1)


def test_torch_calls_inside_the_condition_are_not_seen(x):
    apply_feature("torch.add", "dump_op_args", lambda a, b: bool(torch.add(a, b).sum() > 0))
    torch.add(x, 1)
    assert applied() == 1


def test_a_condition_may_remove_the_feature(x):
    def once(*args, **kwargs):
        remove_feature()
        return True

    apply_feature("torch.add", "dump_op_args", once)
    assert torch.add(x, 1).mean() == 2
    assert list_features() == []


def test_cpu_calls_are_left_alone(x, monkeypatch):
    apply_feature("torch.add", "dump_op_args")
    torch.add(torch.ones(2), 1), torch.add(x, 1)
    assert applied() == 1
    monkeypatch.setenv("OP_OBSERVE_CPU", "1")
    torch.add(torch.ones(2), 1)
    assert applied() == 2


def test_lists_of_the_environment_count_at_the_next_call(x, monkeypatch):
    apply_feature(["torch.add", "torch.sub"], "dump_op_args")
    monkeypatch.setenv("OP_OBSERVE_DISABLE_LIST", "torch.add")
    torch.add(x, 1), torch.sub(x, 1)
    assert calls() == ["torch.sub"]
    monkeypatch.delenv("OP_OBSERVE_DISABLE_LIST")
    torch.add(x, 1)
    assert calls() == ["torch.sub", "torch.add"]
    counts = registry._tools["dump_op_args"].counts()
    assert counts["name"] == 1 and counts["seen"] == 3


def test_options_that_are_wrong_change_nothing(monkeypatch):
    original = torch.add
    monkeypatch.setenv("OP_OBSERVE_VIEW", "nonsense")
    with pytest.raises(ValueError, match="OP_OBSERVE_VIEW"):
        apply_feature("torch.add", "dump_op_args")
    assert torch.add is original and not registry._tools


def test_only_hooked_functions_reach_the_tool(x):
    apply_feature("torch.add", "dump_op_args")
    torch.sub(x, 1), x + 1, torch.add(x, 1)
    assert calls() == ["torch.add"]


def test_a_started_tool_sees_its_own_calls_once(x):
    apply_feature(["torch.Tensor.add", "torch.nn.functional.dropout", "torch.add"], "measure_op_time")
    with OpObserve() as observe:
        x.add(1), F.dropout(x, 0.5), torch.add(x, 1), x + 1
        names = [record["name"] for record in observe.calls()]
    assert names == ["torch.Tensor.add", "torch.nn.functional.dropout", "torch.add", "torch.Tensor.add"]
    assert observe.counts()["seen"] == 4
    assert applied("measure_op_time") == 3  # `x + 1` is not x.add


# Torch's own dispatch


class Tagged(torch.Tensor):
    handled: list = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.handled.append(getattr(func, "__name__", str(func)))
        return super().__torch_function__(func, types, args, kwargs or {})


def test_tensor_subclasses_still_dispatch_and_count_once(x):
    tagged = x.as_subclass(Tagged)
    apply_feature(["torch.add", "torch.Tensor.mul", "torch.nn.functional.dropout"], "dump_op_args")
    Tagged.handled.clear()
    assert type(torch.add(tagged, 1)) is Tagged and type(tagged.mul(2)) is Tagged
    assert type(F.dropout(tagged, 0.5)) is Tagged
    assert {"add", "mul", "dropout"} <= set(Tagged.handled)
    assert calls() == ["torch.add", "torch.Tensor.mul", "torch.nn.functional.dropout"]


def test_default_device_context_counts_once(x):
    apply_feature(["torch.nn.functional.dropout", "torch.Tensor.mul"], "dump_op_args")
    with torch.device("cuda"):
        F.dropout(x, 0.5), x.mul(2)
    assert calls() == ["torch.nn.functional.dropout", "torch.Tensor.mul"]


def test_recursion_of_a_users_function_is_seen_every_time(x, package):
    import third_party_pkg.sub.deep as deep

    apply_feature([deep.fact], "dump_op_args")
    assert deep.fact(x, 4).mean() == 24
    assert applied() == 5
    with OpObserve():
        deep.fact(x, 2)
    assert applied() == 8


def test_nested_hooks_are_both_seen(x, package):
    apply_feature(["third_party_pkg.double", "torch.Tensor.__mul__"], "dump_op_args")
    sys.modules["third_party_pkg"].double(x)
    assert calls() == ["torch.Tensor.__mul__", "third_party_pkg.double"]


# State per call


def test_i1_an_old_exception_does_not_come_back(x, package):
    import third_party_pkg.sub.deep as deep

    apply_feature([deep.fails], "dump_op_args")
    apply_feature([deep.fails], "measure_op_time")
    for _ in range(3):
        with pytest.raises(KeyError, match="mine"):
            deep.fails(x[0])
        assert deep.fails(x).mean() == 2
    assert applied() == 6


def test_i2_hooks_keep_nothing_of_a_call_alive(x):
    apply_feature(["torch.mul", "torch.add"], "dump_op_args")
    tensor = torch.mul(x, 2)
    gone = weakref.ref(tensor)
    torch.add(tensor, 1)
    del tensor
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("feature", [name for name, _ in ALL])
def test_n6_two_calls_before_backward(feature):
    if not is_there(dict(ALL)[feature]):
        pytest.skip(f"{dict(ALL)[feature]} is not there")
    apply_feature([torch.mul], feature)
    x = torch.full((3,), 2.0, device="cuda", requires_grad=True)
    y = torch.full((5,), 3.0, device="cuda", requires_grad=True)
    first, second = torch.mul(x, x), torch.mul(y, 4)
    with pytest.raises(RuntimeError):
        torch.mul(x, y)  # shapes do not match
    second.sum().backward()
    first.sum().backward()
    assert x.grad.tolist() == [4.0] * 3 and y.grad.tolist() == [4.0] * 5
    third = torch.mul(x, 2)
    third.sum().backward(retain_graph=True)
    third.sum().backward()
    assert x.grad.tolist() == [8.0] * 3
    assert applied(feature) >= 3


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return torch.mul(grad, 2)


def test_i7_hooks_work_inside_the_backward_pass(x):
    apply_feature(["torch.mul", "torch.add"], "dump_op_args")
    x.requires_grad_()
    Doubled.apply(x).sum().backward()
    torch.utils.checkpoint.checkpoint(lambda x: torch.add(x, 1).exp(), x, use_reentrant=False).sum().backward()
    assert calls() == ["torch.mul", "torch.add", "torch.add"]
    with OpObserve(console="off"):
        Doubled.apply(x).sum().backward()
    assert calls()[3:].count("torch.mul") >= 1 and applied() == 4


def test_eight_threads(x):
    apply_feature(["torch.add", "torch.Tensor.mul"], "dump_op_args", lambda *args, **kwargs: True)
    apply_feature("torch.add", "measure_op_time")
    wrong = []

    def work(number):
        mine = torch.full((16,), float(number), device="cuda")
        for i in range(50):
            if not torch.equal(torch.add(mine, i).mul(2), (mine + i) * 2):
                wrong.append((number, i))
            try:
                torch.add(mine, torch.ones(7, device="cuda"))
            except RuntimeError:
                continue
            wrong.append((number, "no error"))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not wrong and applied("measure_op_time") == 800 and applied() == 1200


def test_applying_and_removing_while_others_call(x):
    stop, wrong = threading.Event(), []

    def work():
        while not stop.is_set():
            if torch.add(x, 1).mul(2)[0, 0] != 4:
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(3)]
    [thread.start() for thread in threads]
    try:
        for _ in range(15):
            apply_feature(["torch.add", "torch.Tensor.mul"], "dump_op_args")
            apply_feature("torch.add", "measure_op_time", lambda *args, **kwargs: True)
            torch.add(x, 1)
            remove_feature()
    finally:
        stop.set()
        [thread.join() for thread in threads]
    assert not wrong


# Whole programs


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4)
        self.linear = torch.nn.Linear(4 * 6 * 6, 5)

    def forward(self, x):
        x = F.dropout(F.relu(self.norm(self.conv(x))), 0.3)
        return torch.log_softmax(self.linear(torch.flatten(x, 1)), -1)


def train(steps=3):
    torch.manual_seed(0)
    model = Net().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for _ in range(steps):
        inputs = torch.randn(2, 1, 8, 8, device="cuda")
        loss = F.nll_loss(
            torch.utils.checkpoint.checkpoint(model, inputs, use_reentrant=False), torch.ones(2).long().cuda()
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("feature", ["dump_op_args", "measure_op_time", "op_capture", "overflow_check", "autocompare"])
def test_training_is_bitwise_the_same_with_whole_modules_hooked(feature, monkeypatch):
    plain = train()
    monkeypatch.setenv("OP_TOOLS_CONSOLE", "off")
    methods = [
        "torch.Tensor.backward",
        "torch.Tensor.item",
        "torch.Tensor.__add__",
        "torch.Tensor.add_",
        "torch.Tensor.to",
    ]
    apply_feature([torch, F, methods, "torch.nn.Module.__call__"], feature)
    assert train() == plain
    assert applied(feature) > 50
    remove_feature()
    assert train() == plain and "__call__" in vars(torch.nn.Module)


def test_the_full_console_names_the_hook(x, monkeypatch, capfd):
    monkeypatch.setenv("OP_TOOLS_CONSOLE", "full")
    apply_feature("torch.lerp", "dump_op_args", lambda a, b, weight: weight < 0.5)
    torch.lerp(x, x, 0.7), torch.lerp(x, x, 0.2)
    remove_feature()
    said = capfd.readouterr().out
    assert "apply OpObserveHook on torch.lerp" in said and "skip OpObserveHook on torch.lerp" in said


# Copies, pickles, compilers


class Holder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.function, self.other = F.linear, F.dropout
        self.weight = torch.nn.Parameter(torch.ones(2, 4, device="cuda"))

    def forward(self, x):
        return self.function(self.other(x, 0.0), self.weight)


def test_modules_that_hold_a_hook_can_be_copied_and_pickled(x):
    original = F.linear, F.dropout
    apply_feature(["torch.nn.functional.linear", "torch.nn.functional.dropout", "torch.add"], "dump_op_args")
    holder = Holder()
    twin = copy.deepcopy(holder)
    assert twin.function is F.linear and torch.equal(twin(x), holder(x)) and copy.copy(F.linear) is F.linear
    assert applied() == 4
    texts = [pickle.dumps(function) for function in (F.linear, F.dropout, torch.add, torch.Tensor.add)]
    remove_feature()
    assert [pickle.loads(text) for text in texts] == [*original, torch.add, torch.Tensor.add]
    assert all(b"ditorch" not in text for text in texts)
    assert torch.equal(holder(x), twin(x))


def test_compiled_code_runs_eagerly_while_hooked(x):
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: F.gelu(x) + 1, backend="eager")
    expected = compiled(x)
    apply_feature("torch.nn.functional.gelu", "dump_op_args")
    assert torch.equal(compiled(x), expected) and applied() == 1
    remove_feature()
    assert torch.equal(compiled(x), expected)
    torch._dynamo.reset()


def scriptable(x):
    return torch.nn.functional.hardtanh(x) + 1


def scriptable_later(x):
    return torch.nn.functional.celu(x) + 1


def test_script_refuses_a_hooked_function_and_takes_it_back(x):
    before = torch.jit.script(scriptable)
    apply_feature("torch.nn.functional.hardtanh", "dump_op_args")
    assert torch.equal(before(x), scriptable(x)) and applied() == 1  # scripted code does not look names up
    apply_feature("torch.nn.functional.celu", "dump_op_args")
    with pytest.raises(RuntimeError):
        torch.jit.script(scriptable_later)
    remove_feature()
    assert torch.equal(torch.jit.script(scriptable_later)(x), scriptable_later(x))


# The documented tests of the original


@pytest.mark.parametrize("feature", [name for name, _ in ALL])
@pytest.mark.parametrize("grads", [(True, True), (True, False)])
def test_an_expression_forward_and_backward(feature, grads):
    """test_custom_apply_hook: fallback_op, dump_all_args, op_capture, measure_op_time, cast_dtype, overflow_check."""
    if not is_there(dict(ALL)[feature]):
        pytest.skip(f"{dict(ALL)[feature]} is not there")
    names = [f"torch.{name}" for name in ("add", "sub", "mul", "div")]
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(3)).half().cuda().requires_grad_(grads[0])
    y = torch.randn(3, 4, generator=torch.Generator().manual_seed(4)).half().cuda().requires_grad_(grads[1])

    def run():
        a = torch.add(x, y)
        b = torch.sub(a, x)
        c = torch.mul(b, y)
        d = torch.div(c, torch.add(y.abs(), 1))
        d.sum().backward()
        assert all(t.grad is None and not t.is_leaf for t in (a, b, c, d) if t.requires_grad)
        got = [t.detach().clone() for t in (a, b, c, d)] + [t.grad for t in (x, y)]
        x.grad = y.grad = None
        return got

    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # .grad of tensors that are no leaves
        plain = run()
        apply_feature(tuple(names), feature)
        hooked = run()
    assert applied(feature) == 5
    for old, new in zip(plain, hooked, strict=True):
        assert (old is None) == (new is None)
        if feature == "cast_dtype" and old is not None:
            assert old.dtype == new.dtype
            torch.testing.assert_close(new, old, atol=1e-2, rtol=1e-2)
        elif old is not None:
            assert torch.equal(old, new)


@pytest.mark.parametrize("feature", ["fallback", "autocompare"])
def test_a_condition_on_the_dtype(feature):
    if not is_there(dict(ALL)[feature]):
        pytest.skip(f"{dict(ALL)[feature]} is not there")
    apply_feature([torch.add, torch.mul], feature, lambda a, *rest, **kwargs: a.dtype == torch.float16 or a.dim() == 3)
    for dtype in (torch.float16, torch.float32):
        a = torch.ones(2, 3, device="cuda", dtype=dtype, requires_grad=True)
        torch.mul(torch.add(a, 1), a).sum().backward()
        assert a.grad.mean() == 3
    assert applied(feature) == 2


def test_autocompare_of_a_linear_layer():
    if not is_there("OpAutoCompare"):
        pytest.skip("OpAutoCompare is not there")
    apply_feature("torch.nn.functional.linear", "autocompare", lambda *args, **kwargs: args[0].dim() == 2)
    layer = torch.nn.Linear(4, 3, device="cuda")
    layer(torch.ones(2, 4, device="cuda")).sum().backward()
    assert layer.bias.grad.tolist() == [2.0] * 3 and applied("autocompare") == 1


def test_conditions_of_several_features_and_a_map_that_is_set_later(monkeypatch):
    """test_custom_condition_to_enable_hook_example."""
    apply_feature(["torch.add", "torch.sub"], "fallback", lambda a, b: a.dtype == torch.float16)
    apply_feature("torch.mul", "autocompare", lambda a, b: a.dim() == 2)
    apply_feature("torch.div", "op_capture", lambda a, b: a.is_contiguous())
    apply_feature("torch.matmul", "cast_dtype", lambda a, b: a.dtype == torch.float32)
    monkeypatch.setenv("OP_DTYPE_CAST_DICT", "torch.float32->torch.float16")
    for dtype in (torch.float16, torch.float32):
        a = torch.ones(4, 4, dtype=dtype, device="cuda", requires_grad=True)
        b = torch.sub(torch.add(a, a), a)
        c = torch.div(torch.mul(b, b), torch.add(b, 1).T)
        d = torch.matmul(c, a)
        assert d.dtype == dtype and d.mean() == 2
        d.sum().backward()
        assert a.grad.dtype == dtype
    assert [applied(name) for name in ("fallback", "autocompare", "op_capture", "cast_dtype")] == [3, 2, 2, 1]


def test_apply_and_remove_leave_nothing_behind(x):
    def cycle():
        apply_feature(["torch.add", torch.Tensor.mul, F.relu], "dump_op_args", lambda *args, **kwargs: True)
        torch.add(x, 1).mul(2)
        remove_feature()

    for _ in range(3):
        cycle()
    gc.collect()
    before = sys.getallocatedblocks()
    for _ in range(20):
        cycle()
    gc.collect()
    grown = sys.getallocatedblocks() - before
    assert grown < 200, f"{grown} blocks in 20 rounds"


def test_hooks_do_not_leak(x):
    def director(hook, args, kwargs):
        return hook.show(hook.func, args, kwargs, True)

    def use():
        hook = _C.Hook("torch.add", torch.add)
        hook.director, hook.open = director, True
        hook.features = [(registry._tools["dump_op_args"]._engine, lambda *args, **kwargs: True)]
        hook(x, 1), hook(x, other=2), hook.hide(torch.add, x, 1), hook.show(torch.sub, (x, 1), {"alpha": 2})
        hash(hook), hook == torch.add, hook != 3, repr(hook), hook.__doc__, hook.__name__, hook.op_name
        copy.copy(hook), copy.deepcopy(hook), pickle.dumps(hook), _C.Hook.is_operator_name("torch.add")
        with pytest.raises(RuntimeError):
            hook(x, torch.ones(7, device="cuda"))
        with pytest.raises(AttributeError):
            _ = hook.nothing
        hook.itself = hook  # a cycle

    apply_feature("torch.sub", "dump_op_args")
    grown = []
    for _ in range(10):  # the first rounds fill Python's free lists
        gc.collect()
        before = sys.getallocatedblocks()
        for _ in range(100):
            use()
        gc.collect()
        grown.append(sys.getallocatedblocks() - before)
        if grown[-1] < 50:
            break
    assert grown[-1] < 50, f"{grown} blocks per 100 rounds"


# The life of the process


def test_the_exit_says_what_was_seen(python, tmp_path):
    answer = python(
        """
        import torch, ditorch
        from op_tools import apply_feature
        apply_feature("torch.add", "overflow_check")
        apply_feature("torch.sub", "measure_op_time")
        torch.add(torch.ones(2, device="cuda"), 1)
        """,
        cwd=tmp_path,
    )
    assert "OpOverflowCheck: 1 call seen, 1 checked" in answer.stderr
    assert "OpTimeMeasure: nothing was" in answer.stderr and "No hooked function was called" in answer.stderr


@pytest.mark.parametrize("stay", [0, 1])
def test_fork(python, tmp_path, stay):
    answer = python(
        """
        import os, sys, torch, ditorch
        from op_tools import apply_feature, list_features, remove_feature, features
        original = torch.add
        apply_feature("torch.add", "dump_op_args")
        x = torch.ones(2)
        torch.add(x, 1)
        child = os.fork()
        if child == 0:
            torch.add(x, 1)
            row = list_features()[0]
            tool = features._tools["dump_op_args"]
            count = tool.counts()["applied"] if row.active else 0
            remove_feature()
            same = torch.add is original
            apply_feature("torch.add", "dump_op_args")
            torch.add(x, 1)
            again = features._tools["dump_op_args"].counts()["applied"]
            print("child", row.active, count, same, again, flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        torch.add(x, 1)
        print("parent", features._tools["dump_op_args"].counts()["applied"])
        """,
        cwd=tmp_path,
        OP_OBSERVE_CPU="1",
        OP_OBSERVE_FORK=str(stay),
    )
    assert f"child {bool(stay)} {stay} True 1" in answer.stdout and "parent 2" in answer.stdout


@pytest.mark.parametrize("due", [True, False])
def test_steps_and_due(x, monkeypatch, due):
    """A change of the steps is seen whether or not the step of the change was selected."""
    first = op_tools.step()
    monkeypatch.setenv("OP_OBSERVE_STEPS", str(first if due else first + 1000))
    apply_feature("torch.add", "dump_op_args")
    monkeypatch.setenv("OP_OBSERVE_STEPS", str(first + 1))
    torch.add(x, 1)
    op_tools.step()
    torch.add(x, 1), torch.add(x, 1)
    op_tools.step()
    torch.add(x, 1)
    assert applied() == 2


def test_a_step_selected_by_a_change_in_it(x, monkeypatch):
    first = op_tools.step()
    monkeypatch.setenv("OP_OBSERVE_STEPS", str(first + 1000))
    apply_feature("torch.add", "dump_op_args")
    torch.add(x, 1)
    monkeypatch.setenv("OP_OBSERVE_STEPS", str(first))
    torch.add(x, 1)
    assert applied() == 1


def test_the_table_of_features(x):
    def only_big(*args, **kwargs):
        return True

    apply_feature("torch.add", "dump_op_args", only_big)
    row = list_features()[0]
    assert (row.op, row.feature, row.condition, row.place) == ("torch.add", "dump_op_args", only_big, "torch.add")
    text = str(list_features())
    assert "only_big" in text and "torch.add" in text and text.splitlines()[0].startswith("op")


def test_a_place_that_somebody_else_replaced(x, capsys):
    original = torch.sub
    apply_feature("torch.sub", "dump_op_args")

    def theirs(*args):
        return "theirs"

    torch.sub = theirs
    try:
        remove_feature()
        assert torch.sub is theirs and "holds something else" in capsys.readouterr().err
        torch.sub = hooked_by_them = lambda *args: original(*args)
        apply_feature("torch.sub", "dump_op_args")
        assert torch.sub(x, 1).mean() == 0 and applied() == 1
        remove_feature()
        assert torch.sub is hooked_by_them
    finally:
        torch.sub = original


def test_hooks_of_c_refuse_bad_features():
    hook = _C.Hook("torch.add", torch.add)
    for bad in ([1], [(1, 2)], [(_C.Tool("observe"), 3)], 3):
        with pytest.raises(TypeError):
            hook.features = bad
    with pytest.raises(TypeError, match="cannot be called"):
        _C.Hook("name", 3)
    assert hook.show(torch.sub, (torch.ones(1), 1)).item() == 0
    with pytest.raises(TypeError):
        hook.show(torch.sub, [1])


# What the original's page shows


def test_dump_op_args_prints_arguments(x, capsys):
    apply_feature("torch.add", feature="dump_op_args")
    torch.add(x, x)
    remove_feature()
    out = capsys.readouterr().out
    assert "torch.add" in out and "float32" in out and str(tuple(x.shape)) in out, out


def test_dump_op_args_is_quiet_when_the_user_says_so(x, capsys, monkeypatch):
    monkeypatch.setenv("OP_TOOLS_CONSOLE", "off")
    apply_feature("torch.add", feature="dump_op_args")
    torch.add(x, x)
    remove_feature()
    assert capsys.readouterr().out == ""


def test_a_map_for_cast_dtype_is_no_matter_of_the_other_tools(x, capsys, monkeypatch):
    """The script of the original's page: all features on, then OP_DTYPE_CAST_DICT for the one that casts."""
    for name, feature in (
        ("torch.add", "fallback"),
        ("torch.sub", "autocompare"),
        ("torch.mul", "op_capture"),
        ("torch.div", "cast_dtype"),
    ):
        apply_feature(name, feature=feature)
    monkeypatch.setenv("OP_DTYPE_CAST_DICT", "torch.float32->torch.float16")
    y = torch.full((4, 2), 3.0, device="cuda")
    for function in (torch.div, torch.sub, torch.add, torch.mul):
        function(y, y)
    said = capsys.readouterr()
    remove_feature()
    assert "takes effect at the next start" not in said.err + said.out
    assert "float32->float16" in capsys.readouterr().err
