"""OpDtypeCast: values, dtypes, in-place effects, aliasing and gradients are those of a program that casts by hand."""

import collections
import contextlib
import io
import os
import sys
import threading
import types

import pytest
import torch
import torch.utils.checkpoint
from ditorch import _C
from op_tools import OpDtypeCast, OpObserve, dtype_cast
from torch.nn import functional

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden", "console", "cast.txt")
HALF, FLOAT = torch.float16, torch.float32
WIDE = "torch.float32->torch.float64"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.endswith("DTYPE_CAST_DICT") or name.startswith("OP_DTYPE_CAST"):
            monkeypatch.delenv(name)


def quiet(**options):
    return OpDtypeCast(**{"console": "off", "log": 0, **options})


def draw(*shape, dtype=HALF, grad=False, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to("cuda", dtype).requires_grad_(grad)


@contextlib.contextmanager
def scratch_module(name, functions):
    """A module of functions, importable by its name."""
    module = types.ModuleType(name)
    for key in ("scale", "ask"):
        setattr(module, key, getattr(functions, key))
    sys.modules[name] = module
    try:
        yield module
    finally:
        del sys.modules[name]


def row_of(tool, name):
    return next(row for row in tool.describe()["ops"] if row["name"] == name)


# The reference's own tests


def test_op_dtype_cast_linear_gradients_keep_their_dtype():
    x, weight = draw(4, 8, grad=True), draw(3, 8, grad=True, seed=1)
    with quiet() as tool:
        result = functional.linear(x, weight)
        result.sum().backward()
    assert result.dtype == x.grad.dtype == weight.grad.dtype == HALF
    by_hand = functional.linear(x.detach().float(), weight.detach().float()).half()
    assert torch.equal(result, by_hand)
    row = row_of(tool, "torch.nn.functional.linear")
    assert (row["calls"], row["casts"], row["backs"]) == (1, 2, 1)


def test_op_dtype_cast_requires_grad_stays_a_leaf():
    with quiet():
        x = torch.randn(4, 4).to("cuda").half().requires_grad_()
        assert x.is_leaf
        (x * x).sum().backward()
    assert x.grad.dtype == HALF


@pytest.mark.parametrize("options", [{"dtype_cast_dict": "torch.bfloat16->torch.float32"}, {"list": ""},
                                     {"disable_list": "torch.nn.functional.linear"}])  # fmt: skip
def test_op_dtype_cast_map_without_the_dtype_or_lists(options):
    x = draw(4, 4)
    wanted = functional.linear(x, x)
    with quiet(**options) as tool:
        assert torch.equal(functional.linear(x, x), wanted)
    assert not any(row["calls"] for row in tool.describe().get("ops", ()))


def test_op_dtype_cast_start_stop_repeatedly():
    tool, x = quiet(), draw(4, 4)
    for _ in range(3):
        tool.start()
        assert (x + x).dtype == HALF
        tool.stop()
        assert row_of(tool, "torch.Tensor.add")["calls"] == 1


# K1: in place and out=


IN_PLACE = {
    "add_": lambda t, o: t.add_(o),
    "mul_ of a view": lambda t, o: t.view(-1).mul_(o.view(-1)),
    "a row": lambda t, o: t[1].mul_(o[1]),
    "transposed": lambda t, o: t.t().sub_(o),
    "basic setitem": lambda t, o: t.__setitem__(slice(0, 2), 3.0),
    "advanced setitem": lambda t, o: t.__setitem__(torch.tensor([0, 2], device="cuda"), o[:2]),
    "mask setitem": lambda t, o: t.__setitem__(o > 0, 1.5),
    "index_add_": lambda t, o: t.index_add_(0, torch.tensor([1, 1, 0, 3], device="cuda"), o),
    "copy_": lambda t, o: t.copy_(o),
    "relu inplace": lambda t, o: functional.relu(t, inplace=True),
    "addcmul_": lambda t, o: t.addcmul_(o, o, value=0.5),
    "+=": lambda t, o: t.__iadd__(o),
    "clamp_": lambda t, o: t.clamp_(-0.5, 0.5),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_k1_in_place_reaches_the_original(name):
    target, other = draw(4, 4), draw(4, 4, seed=1)
    wide = target.float()
    IN_PLACE[name](wide, other.float())
    storage, version = target.data_ptr(), target._version
    with quiet():
        result = IN_PLACE[name](target, other)
    assert torch.equal(target, wide.half())
    assert target.dtype == HALF and target.data_ptr() == storage and target._version > version
    if isinstance(result, torch.Tensor) and result.shape == target.shape and "view" not in name:
        assert result.dtype == HALF and result.untyped_storage().data_ptr() == target.untyped_storage().data_ptr()


@pytest.mark.parametrize("grad", [False, True])
def test_k1_in_place_on_a_view_has_the_right_gradient(grad):
    def compute(x, y):
        base = x * 1
        base[1].mul_(y)
        base.t().add_(x)
        return (base * y).sum(), base

    results = []
    for dtype, tool in ((HALF, quiet()), (FLOAT, contextlib.nullcontext())):
        x = draw(4, 4).to(dtype).requires_grad_()
        y = draw(4, seed=1).to(dtype).requires_grad_(grad)
        with tool:
            loss, base = compute(x, y)
            loss.backward()
        results.append((base.detach().float(), x.grad.float(), y.grad.float() if grad else torch.zeros(1)))
    for mine, wanted in zip(*results, strict=True):
        torch.testing.assert_close(mine, wanted, rtol=4e-3, atol=4e-3)


def test_k1_out_same_other_layout_and_resized():
    x, y = draw(3, 5), draw(3, 5, seed=1)
    wanted = (x.float() + y.float()).half()
    same, other = torch.zeros(3, 5, dtype=HALF, device="cuda"), torch.zeros(5, 3, dtype=HALF, device="cuda").t()
    resized, padded = torch.empty(0, dtype=HALF, device="cuda"), torch.zeros(3, 10, dtype=HALF, device="cuda")[:, ::2]
    wider = torch.zeros(3, 5, device="cuda")
    with quiet():
        for out in (same, other, resized, padded):
            strides = out.stride()
            assert torch.add(x, y, out=out) is out
            assert torch.equal(out, wanted) and (out is resized or out.stride() == strides)
        assert torch.add(x, y, out=wider) is wider
        torch.exp(x, out=x)
        values, indices = torch.empty(0, dtype=HALF, device="cuda"), torch.empty(0, dtype=torch.int64, device="cuda")
        result = torch.max(y, 1, out=(values, indices))
    assert resized.shape == (3, 5)
    assert torch.equal(wider, wanted.float()) or torch.allclose(wider, wanted.float(), rtol=1e-3)
    assert torch.equal(x, draw(3, 5).float().exp().half())
    assert result.values is values and result.indices is indices and torch.equal(indices, y.max(1).indices)


def test_k1_out_that_an_operator_fills_through_a_hidden_view():
    x = draw(2, 3)
    out = torch.zeros(4, 9, dtype=HALF, device="cuda")
    with quiet():
        torch.kron(x, x, out=out)
    assert torch.equal(out, torch.kron(x.float(), x.float()).half())


@pytest.mark.parametrize("name", ["SGD", "AdamW", "Adagrad"])
@pytest.mark.parametrize("foreach", [False, True])
def test_k1_optimizers_move_the_weights(name, foreach):
    def train(dtype, tool):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Tanh(), torch.nn.Linear(6, 1)).to("cuda", dtype)
        options = {"momentum": 0.9} if name == "SGD" else {}
        optimizer = getattr(torch.optim, name)(model.parameters(), lr=1e-2, foreach=foreach, **options)
        x = draw(5, 6).to(dtype)
        with tool:
            for _ in range(3):
                model(x).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
        return [p.detach().float() for p in model.parameters()], [p.dtype for p in model.parameters()]

    mine, dtypes = train(HALF, quiet())
    wanted, _ = train(FLOAT, contextlib.nullcontext())
    assert set(dtypes) == {HALF}
    for a, b in zip(mine, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=2e-2, atol=4e-3)


def test_k1_running_statistics_of_normalisations():
    for training in (True, False):
        norm, plain = (torch.nn.BatchNorm1d(4).to("cuda", dtype).train(training) for dtype in (HALF, FLOAT))
        x = draw(16, 4) * 3 + 1
        with quiet():
            result = norm(x)
        wanted = plain(x.float())
        torch.testing.assert_close(result.float(), wanted, rtol=4e-3, atol=4e-3)
        assert torch.equal(norm.running_mean, plain.running_mean.half())
        assert torch.equal(norm.running_var, plain.running_var.half())
        assert (norm.running_mean.abs().sum() > 0) == training


def test_k1_embedding_renormalises_its_leaf():
    weight = (draw(5, 3) * 4).requires_grad_()
    index = torch.tensor([0, 2], device="cuda")
    plain = weight.detach().float()
    functional.embedding(index, plain, max_norm=1.0)
    with quiet():
        functional.embedding(index, weight, max_norm=1.0).sum().backward()
    assert torch.equal(weight.detach(), plain.half()) and weight.grad.dtype == HALF


def test_k1_in_place_in_inference_mode():
    x, outside = draw(4), draw(4)
    with torch.inference_mode(), quiet():
        inside = x.clone()
        inside.add_(1)
        outside.mul_(2)
        result = inside * 2
    assert inside.is_inference() and result.is_inference() and not outside.is_inference()
    assert torch.equal(inside, x + 1) and torch.equal(outside, x * 2)


def test_k1_lists_of_tensors_in_place():
    tensors = [draw(3, seed=i) for i in range(40)]
    wanted = [(t.float() * 2).half() for t in tensors]
    with quiet() as tool:
        torch._foreach_mul_(tensors, 2.0)
        doubled = torch._foreach_add(tensors, tensors)
    assert all(torch.equal(a, b) for a, b in zip(tensors, wanted, strict=True))
    assert all(t.dtype == HALF for t in doubled)
    assert row_of(tool, "torch._foreach_add")["casts"] == 40


def test_k1_arguments_that_share_memory_are_not_separated():
    base = draw(4)
    wanted = base.clone()
    torch._foreach_add_([wanted, wanted[:2]], 1.0)
    with quiet() as tool:
        torch._foreach_add_([base, base[:2]], 1.0)
    assert torch.equal(base, wanted)
    assert row_of(tool, "torch._foreach_add_")["left"] == {"view": 1}


# K2: places


def test_k2_nothing_moves():
    x = draw(4, 4)
    index = torch.tensor([0, 2])
    with quiet():
        assert x.cpu().device.type == "cpu" and x.to("cpu").device.type == "cpu"
        assert x.to("cuda").data_ptr() == x.data_ptr()
        assert x.cpu().dtype == HALF and x.float().dtype == FLOAT and x.to(torch.float64).dtype == torch.float64
        taken = x[index]
        assert taken.device == x.device and torch.equal(taken.cpu(), x.cpu()[index])
        scaled = x * torch.tensor(2.0, dtype=HALF)
        assert scaled.device == x.device
        x.copy_(torch.zeros(4, 4, dtype=HALF))
    assert index.device.type == "cpu" and not x.any()


# K3: result dtypes


def test_k3_result_dtype_is_the_promotion_of_the_originals():
    half, brain, single = draw(3), draw(3, dtype=torch.bfloat16), draw(3, dtype=FLOAT)
    zero = torch.tensor(2.0, device="cuda")
    number = torch.tensor(2.0, dtype=HALF, device="cuda")
    cases = {
        "half and float": lambda: half + single,
        "half and bfloat16": lambda: half + brain,
        "half and a number": lambda: half * 2.5,
        "half and 0-d float": lambda: half * zero,
        "0-d half and float": lambda: number * single,
        "half and int": lambda: half * torch.arange(3, device="cuda"),
        "half and complex": lambda: half * 1j,
        "comparison": lambda: half > brain,
        "argmax": lambda: half.argmax(),
        "sum": lambda: half.sum(),
        "where": lambda: torch.where(half > 0, half, zero),
        "mse of two dtypes": lambda: functional.mse_loss(half, single),
        "frexp": lambda: torch.frexp(single),
        "list": lambda: torch.cat([half, single]),
        "masked": lambda: half.masked_select(half > 0),
    }
    wanted = {name: case() for name, case in cases.items()}
    with quiet():
        got = {name: case() for name, case in cases.items()}
    for name, value in got.items():
        flat = zip(torch.utils._pytree.tree_leaves(value), torch.utils._pytree.tree_leaves(wanted[name]), strict=True)
        for a, b in flat:
            assert a.dtype == b.dtype and type(value) is type(wanted[name]), name
            torch.testing.assert_close(a, b, rtol=2e-2, atol=1e-2)


def test_k3_an_operator_with_its_own_rule():
    """Mixed batch norm: half in, half out, although its parameters are float32; promotion alone would say float32."""
    x, mean, variance = draw(8, 4), torch.zeros(4, device="cuda"), torch.ones(4, device="cuda")
    wanted = functional.batch_norm(x, mean.clone(), variance.clone(), mean + 1, mean, training=True)
    with quiet():
        result = functional.batch_norm(x, mean, variance, mean + 1, mean.clone(), training=True)
    assert wanted.dtype == result.dtype == HALF and mean.abs().sum() > 0
    torch.testing.assert_close(result, wanted, rtol=4e-3, atol=4e-3)


def test_k3_outputs_that_are_wide_anyway_stay():
    x = draw(3, dtype=FLOAT)
    with quiet(dtype_cast_dict=WIDE):
        assert torch.float_power(x, 2).dtype == torch.float64
        assert x.double().dtype == torch.float64
        assert torch.sum(x, dtype=torch.float64).dtype == torch.float64
        assert torch.view_as_complex(draw(3, 2, dtype=FLOAT)).abs().dtype == FLOAT
        assert (x.double() + x).dtype == torch.float64


# K4, K5: maps


def test_k4_maps_of_single_operators_come_first(monkeypatch):
    monkeypatch.setenv("MUL_OP_DTYPE_CAST_DICT", "torch.float16->torch.float64")
    monkeypatch.setenv("SUB_OP_DTYPE_CAST_DICT", "")
    x = draw(4)
    with quiet(dtype_cast_dict="torch.float16->torch.bfloat16") as tool:
        x * x, x + x, x - x
        x.clone().mul_(2)
    maps = {row["name"]: row["config"] for row in tool.describe()["ops"]}
    assert maps["torch.Tensor.mul"] == maps["torch.Tensor.mul_"] == "torch.float16->torch.float64"
    assert maps["torch.Tensor.add"] == "torch.float16->torch.bfloat16"
    assert "torch.Tensor.sub" not in maps


def test_a16_in_place_operators_need_no_second_underscore():
    maps = dtype_cast.Maps("", {"add": "torch.float16->torch.float64", "MUL_": "torch.float16->torch.float32"})
    assert maps.find("torch.Tensor.add_")[1] == maps.find("aten::add")[1] == {HALF: torch.float64}
    assert maps.find("torch.Tensor.mul_")[1] == {HALF: FLOAT}
    assert maps.find("torch.Tensor.mul")[1] == {}


def test_a16_an_empty_map_casts_nothing(monkeypatch):
    monkeypatch.setenv("OP_DTYPE_CAST_DICT", "")
    x = draw(4)
    wanted = (x * x).exp()
    with quiet() as tool:
        assert torch.equal((x * x).exp(), wanted)
    assert tool.describe()["ops"] == []


def test_maps_change_while_the_tool_is_on(monkeypatch):
    x = draw(4, dtype=FLOAT)
    with quiet() as tool:
        x.exp()
        monkeypatch.setenv("OP_DTYPE_CAST_DICT", "torch.float32->torch.float16")
        result = x.exp()
        monkeypatch.setenv("OP_DTYPE_CAST_DICT", "")
        x.exp()
        monkeypatch.setenv("OP_DTYPE_CAST_DICT", WIDE)
        x.exp()
        assert row_of(tool, "torch.Tensor.exp")["calls"] == 2
    assert result.dtype == FLOAT and torch.equal(result, x.half().exp().float())


def test_k5_tensors_by_keyword_only():
    x = draw(4, 4)
    with quiet() as tool:
        result = torch.add(input=x, other=x, alpha=2)
        functional.linear(x, weight=x, bias=x[0])
    assert result.dtype == HALF and torch.equal(result, (x.float() * 3).half())
    assert row_of(tool, "torch.add")["casts"] == 1  # the same tensor twice
    assert row_of(tool, "torch.nn.functional.linear")["casts"] == 2


@pytest.mark.parametrize(
    "text", ["torch.float16", "torch.float16->torch.nothing", "float16=>float32", "torch.add->torch.float32"]
)
def test_bad_maps_name_variable_and_value(monkeypatch, text):
    monkeypatch.setenv("OP_DTYPE_CAST_DICT", text)
    with pytest.raises(ValueError, match="OP_DTYPE_CAST_DICT") as caught:
        OpDtypeCast().start()
    assert text.partition("->")[0] in str(caught.value)
    monkeypatch.delenv("OP_DTYPE_CAST_DICT")
    monkeypatch.setenv("MUL_OP_DTYPE_CAST_DICT", text)
    with pytest.raises(ValueError, match="MUL_OP_DTYPE_CAST_DICT"):
        OpDtypeCast().start()


def test_maps_may_be_dictionaries():
    x = draw(3)
    with quiet(dtype_cast_dict={HALF: torch.float64}, exp_op_dtype_cast_dict={HALF: FLOAT}) as tool:
        x.log()
        x.exp()
    assert row_of(tool, "torch.Tensor.log")["config"] == "torch.float16->torch.float64"
    assert row_of(tool, "torch.Tensor.exp")["config"] == "torch.float16->torch.float32"


# What is cast, and what the program gets


def test_i11_return_types_survive():
    x = draw(4, 4)
    wanted = x.max(dim=1)
    with quiet():
        result = x.max(dim=1)
        parts = torch.linalg.svd(x.float())
    assert type(result) is type(wanted) and result.values.dtype == HALF and result.indices.dtype == torch.int64
    assert torch.equal(result.values, wanted.values) and parts.S.dtype == FLOAT


def test_i12_named_tuples_as_arguments():
    pair = collections.namedtuple("Pair", "first second")
    x = draw(3)
    with quiet() as tool:
        assert torch.stack(pair(x, x * 2)).dtype == HALF
    assert row_of(tool, "torch.stack")["casts"] == 2


def test_views_stay_views():
    x = draw(4, 4)
    with quiet():
        shown = [x.view(16), x[1:3], x[..., None], x.t(), torch.einsum("ij->ji", x), x.contiguous(), x.expand(2, 4, 4),
                 functional.dropout(x, 0.5, False), x.positive()]  # fmt: skip
        shown[4][0, 1] = 77
        assert functional.dropout(x, 0.5, False) is x and x.contiguous() is x
    assert all(t.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() and t.dtype == HALF for t in shown)
    assert x[1, 0] == 77


def test_strides_of_results():
    channels_last = draw(2, 3, 4, 4).to(memory_format=torch.channels_last)
    cases = [lambda: channels_last * 2, lambda: draw(4, 3).t() + draw(3, 4), lambda: draw(3, 1).expand(3, 4) * 2,
             lambda: draw(8, 4)[::2] * draw(4, 4), lambda: torch.linalg.qr(draw(4, 3, dtype=FLOAT)).Q]  # fmt: skip
    wanted = [case().stride() for case in cases]
    for text in (dtype_cast.OpDtypeCast().options["dtype_cast_dict"].text, WIDE):
        with quiet(dtype_cast_dict=text):
            assert [case().stride() for case in cases] == wanted


def test_same_tensor_twice_is_cast_once():
    x = draw(4, grad=True)
    with quiet() as tool:
        (x * x).sum().backward()
    assert row_of(tool, "torch.Tensor.mul")["casts"] == 1
    assert torch.equal(x.grad, (x.detach().float() * 2).half())


def test_random_numbers_are_those_without_the_tool():
    def numbers():
        torch.manual_seed(3)
        x = draw(64)
        drawn = [torch.rand_like(x), torch.randn_like(x), x.clone().normal_(), x.clone().uniform_(), x.bernoulli(0.3)]
        return [*drawn, functional.dropout(x, 0.5), torch.cuda.get_rng_state()]

    wanted = numbers()
    with quiet():
        got = numbers()
    assert all(torch.equal(a, b) for a, b in zip(got, wanted, strict=True))


def test_questions_are_answered_about_the_programs_own_tensors():
    x = draw(4)
    with quiet():
        assert x.element_size() == 2 and x.untyped_storage().nbytes() == 8 and x.is_floating_point()
        seen = []
        y = (x * 2).requires_grad_()
        y.register_hook(seen.append)
        (y * 3).sum().backward()
        assert torch.equal(x, x) and torch.allclose(x, x) and isinstance(x.sum().item(), float)
    assert len(seen) == 1 and seen[0].dtype == HALF


def test_errors_are_those_of_the_program():
    x, leaf = draw(3, 4), draw(3, grad=True)
    for attempt in (lambda: torch.mm(x, x), lambda: leaf.add_(1), lambda: x.view(5), lambda: torch.cat([]),
                    lambda: torch.add(leaf, leaf, out=draw(3)), lambda: x.float_power_(2)):  # fmt: skip
        with pytest.raises((RuntimeError, ValueError)) as wanted:
            attempt()
        with quiet(), pytest.raises(type(wanted.value)) as got:
            attempt()
        assert str(got.value) == str(wanted.value)
    assert torch.equal(leaf.detach(), draw(3))


def test_interrupts_are_not_swallowed():
    class Interrupting(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            if func is torch.exp:
                raise KeyboardInterrupt
            return func(*args, **(kwargs or {}))

    with Interrupting(), quiet(), pytest.raises(KeyboardInterrupt):
        torch.exp(draw(3))


def test_no_warning_that_the_program_would_not_get(recwarn):
    x, out = draw(3, 5), torch.empty(0, dtype=HALF, device="cuda")
    with quiet():
        torch.add(x, x, out=out)
        torch.max(
            x, 1, out=(torch.empty(0, dtype=HALF, device="cuda"), torch.empty(0, dtype=torch.int64, device="cuda"))
        )
        x * 2
    assert [str(warning.message) for warning in recwarn] == []


def test_a_dtype_that_an_operator_does_not_have():
    x = draw(4, dtype=FLOAT).abs()
    wanted = x.log()
    with quiet(dtype_cast_dict="torch.float32->torch.float8_e4m3fn") as tool:
        for _ in range(5):
            assert torch.equal(x.log(), wanted)
    assert row_of(tool, "torch.Tensor.log")["left"] == {"refused": 5}


def test_functions_of_others_run_once():
    from op_tools.custom_apply_hook import apply_feature, remove_feature

    calls = []

    class Library:
        @staticmethod
        def scale(x, fail=False):
            calls.append(x.dtype)
            if fail:
                raise RuntimeError("no")
            return x * 2

        @staticmethod
        def ask(x):
            calls.append(x.dtype)
            return 7

    with scratch_module("cast_library", Library) as module:
        apply_feature(["cast_library.scale", "cast_library.ask"], "cast_dtype")
        try:
            x = draw(3)
            assert module.scale(x).dtype == HALF and module.ask(x) == 7
            with pytest.raises(RuntimeError, match="no"):
                module.scale(x, fail=True)
        finally:
            remove_feature(["cast_library.scale", "cast_library.ask"])
    assert calls == [FLOAT] * 3


def test_subclasses_are_left_alone():
    class Mine(torch.Tensor):
        pass

    x = draw(4).as_subclass(Mine)
    with quiet():
        assert type(x + x) is Mine and (x + x).dtype == HALF


def test_autocast_decides_alone():
    x, weight = draw(4, 4), draw(4, 4, dtype=FLOAT)
    with torch.autocast("cuda", dtype=torch.bfloat16), quiet():
        assert functional.linear(x, weight).dtype == torch.bfloat16


def test_checkpointed_training():
    def train(tool):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.GELU(), torch.nn.Linear(6, 2)).cuda().half()
        x = draw(3, 6, grad=True)
        with tool:
            torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False).float().square().sum().backward()
        return [x.grad, *(p.grad for p in model.parameters())]

    for mine, plain in zip(train(quiet()), train(contextlib.nullcontext()), strict=True):
        assert mine.dtype == HALF
        torch.testing.assert_close(mine, plain, rtol=2e-2, atol=5e-3)


def test_backward_after_stop_and_at_level_aten():
    for level in ("torch", "aten"):
        x, norm = draw(4, 6, grad=True), torch.nn.LayerNorm(6).cuda().half()
        with quiet(level=level):
            loss = functional.softmax(norm(x) @ x.t(), -1).square().sum()
        loss.backward()
        wide = x.detach().float().requires_grad_()
        functional.softmax(functional.layer_norm(wide, (6,)) @ wide.t(), -1).square().sum().backward()
        torch.testing.assert_close(x.grad.float(), wide.grad, rtol=2e-2, atol=2e-2)


def test_level_aten_casts_the_backward_too():
    x, weight, target = draw(4, 6, grad=True), draw(6, 6, grad=True, seed=1), draw(4)
    with quiet(level="aten") as tool:
        (x @ weight).sum().backward()
        target.add_(1).mul_(2)
        torch.exp(target, out=target)
        torch._foreach_mul_([target], 2.0)
    assert row_of(tool, "aten::mm")["calls"] == 3
    wanted = ((draw(4).float() + 1).half().float() * 2).half().float().exp().half()
    assert torch.equal(target, (wanted.float() * 2).half())
    assert x.grad.dtype == HALF


def test_threads():
    results, tool = {}, quiet(threads="all")

    def work(index):
        x = draw(8, 8, seed=index)
        y = x.clone()
        for _ in range(20):
            y = (y @ x).tanh()
            y.add_(1)
        results[index] = y

    wanted = {}
    for index in range(3):
        x = draw(8, 8, seed=index)
        y = x.clone()
        for _ in range(20):
            y = (y.float() @ x.float()).half().float().tanh().half()
            y = (y.float() + 1).half()
        wanted[index] = y
    with tool:
        threads = [threading.Thread(target=work, args=(index,)) for index in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert all(torch.equal(results[index], wanted[index]) for index in range(3))
    assert row_of(tool, "torch.Tensor.matmul" if "torch.Tensor.matmul" in str(tool.describe()) else
                  "torch.Tensor.__matmul__")["calls"] == 60  # fmt: skip


def test_beside_an_observing_tool():
    x = draw(4)
    with OpObserve(console="off") as watch, quiet():
        x.exp()
    call = next(iter(watch.records("call")))
    assert call["name"] == "torch.Tensor.exp"
    assert (call["args.0"]["dtype"], call["out"]["dtype"]) == ("float16", "float16")


# What is told


def test_ledger_log_and_summary(capsys):
    x, y = draw(4, 4), draw(4, 4, dtype=FLOAT)
    tool = OpDtypeCast()
    with tool:
        for _ in range(2):
            torch.matmul(x, x)
        x.add_(1)
        y.exp()
    table = {row["op"]: row for row in tool.ledger()}
    assert table["torch.matmul"]["calls"] == 2 and table["torch.matmul"]["cast"] == 2
    assert table["torch.matmul"]["bytes"] == 2 * (16 * 4 + 16 * 2)
    assert (table["torch.Tensor.add_"]["written"], table["torch.Tensor.add_"]["back"]) == (1, 0)
    assert row_of(tool, "torch.Tensor.exp")["left"] == {"nothing": 1}
    records = [record for record in tool.records("call") if record["name"] == "torch.matmul"]
    assert [record["cast"] for record in records] == ["torch.float16->torch.float32 x1"] * 2
    assert records[0]["cast_back"] == 1 and records[0]["bytes"] == 96 and "test_op_dtype_cast" in records[0]["location"]
    said = capsys.readouterr()
    text = said.out + said.err
    assert "3 calls cast: 3 tensors on the way in, 2 back, 1 written back" in text


def console_text():
    x = torch.ones(2, 2, dtype=HALF, device="cuda")
    said = io.StringIO()
    with contextlib.redirect_stdout(said), OpDtypeCast(console="full", log=0):
        torch.stack([x, x + 1], dim=0)
        torch.sum(x, (0, 1)), torch.add(input=x, other=x)
        x.max(dim=1)
        x.add_(1)
        x.view(4)
        x.float() + 1
    said = [line for line in said.getvalue().split("\n") if not line.startswith(("apply ", "skip "))]
    text = "\n".join("<location>" if "console_text: " in line else line for line in said)
    first = int(text.partition("forward_id: ")[2].partition("\n")[0])
    for number in range(first, first + 12):  # which counts on through the process
        text = text.replace(f"forward_id: {number}\n", f"forward_id: {number - first + 1}\n")
    return text


def test_full_console_is_the_originals():
    with open(GOLDEN) as file:
        assert console_text() == file.read()


def test_operators_that_are_not_cast():
    left = "torch.Tensor.view,torch.Tensor.to,torch.Tensor.half,torch.empty_like,torch.Tensor.copy_,torch.zeros_like"
    left += ",torch.Tensor.normal_,torch.distributed.all_reduce,aten::_to_copy"
    cast = "torch.add,torch.Tensor.add_,aten::mm,torch.nn.functional.dropout,torch.multinomial"
    assert not any(map(dtype_cast.is_cast, left.split(",")))
    assert all(map(dtype_cast.is_cast, cast.split(",")))


def test_the_engine_refuses_a_plan_that_is_none():
    with pytest.raises(TypeError, match="plan"):
        _C.Tool("cast", {"plan": 3})
    tool = _C.Tool("cast", {"plan": lambda name: ("text", {HALF: 3})})
    tool.start()
    try:
        with pytest.raises(ValueError, match="16 pairs"):
            draw(3).exp()
    finally:
        tool.stop()
    assert torch.equal(draw(3).exp(), draw(3).exp())
