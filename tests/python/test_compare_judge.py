"""The auto verdict: what is right is not accused, what is more than four times off the CPU's own error is."""

import math

import ditorch
import pytest
import torch
import torch.nn.functional as F
from conftest import careful_device
from ditorch import _C
from op_tools import OpAutoCompare
from op_tools.comparison import compare_result

INF, NAN = float("inf"), float("nan")
HALVES = (torch.bfloat16, torch.float16)


@pytest.fixture(autouse=True)
def in_own_directory(tmp_path, monkeypatch, device):
    monkeypatch.chdir(tmp_path)
    yield
    ditorch.fault("")


def watch(function, fault="", **options):
    """The tool after the function ran under it."""
    tool = OpAutoCompare(**{"save": False, "rows": "none", "console": "off", **options})
    with ditorch.fault(fault), tool:
        function()
    return tool


def accused(tool):
    return [(finding["name"].rpartition(".")[2], finding["kind"]) for finding in tool.findings()]


def make(*shape, dtype=torch.float32, scale=1.0):
    return (torch.randn(*shape, dtype=torch.float64) * scale).to(dtype).cuda()


# Right results


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_the_loss_of_autocast_is_not_accused(dtype):
    """Its logarithms are in the dtype of the logits and larger than they are; a real fault is still one."""

    def run():
        for seed in range(60):
            torch.manual_seed(seed)
            x, y = make(6, 4, dtype=dtype, scale=0.2), torch.randint(4, (6,)).cuda()
            with torch.autocast("cuda", dtype=dtype):
                F.cross_entropy(x, y)

    assert watch(run).ok
    assert accused(watch(run, "value:aten::nll_loss_forward,scale=0.02"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, *HALVES], ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_clean_operators_are_not_accused(dtype, seed):
    torch.manual_seed(seed)
    x, w = make(33, 65, dtype=dtype), make(65, 17, dtype=dtype)

    def run():
        y = F.gelu(x @ w) + 0.5
        y = F.layer_norm(y, (17,))
        z = F.log_softmax(y, -1)
        z.exp().sum().sqrt()
        z.mean(0).norm()
        (x * 1e-3).sum()  # cancels
        torch.linalg.vector_norm(x - x.mean())
        x.t().cumsum(0)
        F.conv1d(x[None], make(7, 33, 3, dtype=dtype))
        x.var(0)
        torch.logsumexp(x, 1)

    tool = watch(run)
    assert tool.ok, tool.findings()
    assert tool.describe()["forward"]["compared"] > 15


def test_overflow_of_the_type_is_right():
    big = torch.tensor([300.0, -400.0, 7.0, 60000.0], device="cuda", dtype=torch.float16)
    assert watch(lambda: (big * big, big.exp(), big * 2, -(big * big))).ok


def test_a10_nan_and_equal_infinities_are_right():
    x = torch.tensor([NAN, INF, -INF, 0.0, 1.0], device="cuda")
    tool = watch(lambda: (x + 1, x * x, torch.cat([x, x]), x.sort(), torch.maximum(x, x.flip(0))))
    assert tool.ok, tool.findings()


def test_ties_of_indices_are_right():
    x = torch.tensor([[1.0, 3.0, 3.0, 3.0], [2.0, 2.0, 2.0, 0.0]]).repeat(4, 16).cuda()

    def run():
        torch.topk(x, 5)
        x.argmax(), x.argmax(1), x.max(0), x.sort(dim=1), x.argsort(), x.median(1), x.kthvalue(3), x.mode(1)

    tool = watch(run)
    assert tool.ok, tool.findings()


def test_wrong_indices_are_wrong():
    x = make(40, 40)
    for function in (lambda: x.argmax(1), lambda: torch.topk(x, 3, 1)[1], lambda: x.sort(1)):
        tool = watch(function, "value:argmax;value:topk,scale=0.1;value:sort,scale=0.1")
        assert not tool.ok


def no_run(*_):
    return "there is none"


def is_right(name, values, dim, device, cpu, index=1):
    """The verdict of the judge when the CPU has nothing but this."""
    given = None if dim is None else {"dim": dim}
    return _C.judge(name, device, cpu, no_run, inputs=(values,), kwargs=given, index=index)["verdict"] == "right"


def test_sort_indices_must_be_distinct():
    values = torch.tensor([5.0, 5.0, 1.0])
    cpu = torch.tensor([2, 0, 1])
    assert is_right("sort", values, 0, torch.tensor([2, 1, 0]), cpu)
    assert not is_right("sort", values, 0, torch.tensor([2, 0, 0]), cpu)
    assert not is_right("sort", values, 0, torch.tensor([1, 0, 2]), cpu)
    assert not is_right("argmax", values, None, torch.tensor(7), torch.tensor(0), index=0)
    assert is_right("max", values[None], 1, torch.tensor([1]), torch.tensor([0]))


def test_topk_may_come_in_any_order_when_it_is_told_so():
    x = make(40, 30).round()
    for _ in range(3):
        assert watch(lambda: (x.topk(7, 1, sorted=False), torch.topk(x, 5, dim=0, sorted=False))).ok
    assert watch(lambda: x.topk(7, 1, sorted=False), "value:topk*,scale=0.5").ok is False


def test_results_that_are_not_unique_are_left_undecided():
    x = make(6, 6)
    symmetric = x @ x.t()
    fault = "value:*eigh*,scale=0.1;value:*svd*,scale=0.1;value:*qr*,scale=0.1"
    assert watch(lambda: (torch.linalg.qr(x), torch.linalg.svd(x)), fault).ok
    assert not watch(lambda: torch.linalg.eigh(symmetric), fault).ok  # eigenvalues are unique
    assert not watch(lambda: torch.linalg.qr(x), "nan:*qr*").ok


def test_scatter_is_judged_when_no_index_is_repeated():
    x, source = torch.zeros(8, device="cuda"), make(8)
    once = torch.tensor([3, 1, 2, 0, 7, 6, 5, 4], device="cuda")
    twice = once.clone()
    twice[0] = 1
    assert not watch(lambda: x.scatter(0, once, source), "value:scatter*,scale=0.5").ok
    undecided = watch(lambda: x.scatter(0, twice, source), "value:scatter*,scale=0.5")
    assert undecided.ok is None and not undecided.findings()


# Four times the CPU's own error


def cpu_error(function, *tensors):
    """The largest error of the CPU in the tensors' own dtype, the largest number of the result, and where it is."""
    native = function(*[t.cpu() for t in tensors]).double()
    wide = function(*[t.cpu().double() for t in tensors])
    return (native - wide).abs().max().item(), native.abs().max().item(), native.abs().argmax().item()


@careful_device
@pytest.mark.parametrize("dtype", [torch.float32, *HALVES], ids=str)
@pytest.mark.parametrize("seed", range(4))
def test_an_error_beyond_four_times_the_cpus_is_seen_and_one_below_is_not(dtype, seed):
    torch.manual_seed(seed)
    a, b = make(48, 96, dtype=dtype), make(96, 32, dtype=dtype)
    for name, function, tensors in [
        ("mm", torch.mm, (a, b)),
        ("sum.dim_IntList", lambda t: t.sum(1), (make(70, 129, dtype=dtype),)),
        ("_softmax", lambda t: F.softmax(t, -1), (make(20, 30, dtype=dtype),)),
        ("add.Tensor", torch.add, (a, a.flip(0))),
    ]:
        error, largest, place = cpu_error(function, *tensors)
        assert error > 0
        low = watch(lambda f=function, t=tensors: f(*t), f"value:{name},index={place},scale={0.5 * error / largest}")
        assert low.ok, (name, low.findings())
        # A unit of rounding of the element itself, four times, is always allowed.
        roundoff = torch.finfo(dtype).eps / 2
        high = max(6 * error, 10 * roundoff * largest)
        found = watch(lambda f=function, t=tensors: f(*t), f"value:{name},scale={high / largest}")
        assert not found.ok, (name, error, largest)
        finding = found.findings()[0]
        assert finding["error"] > 4 * error and finding["at"] == [0] * len(finding["at"])
        assert finding["error"] > finding["allowed"]


@pytest.mark.parametrize("dtype", [torch.float32, *HALVES], ids=str)
def test_operators_that_round_nothing_must_be_exact(dtype):
    """Where the CPU's error is 0, one unit in the last place is wrong: relu, cat, embedding, max pooling."""
    x = make(4, 8, 12, 12, dtype=dtype)
    step = 3 * torch.finfo(dtype).eps  # of the largest element: at least a unit of every other
    table, rows = make(30, 16, dtype=dtype), torch.arange(30, device="cuda")
    for name, function in [
        ("relu", lambda: F.relu(x)),
        ("cat", lambda: torch.cat([x, x])),
        ("embedding", lambda: F.embedding(rows, table)),
        ("abs", lambda: x.abs()),
        ("clamp_min", lambda: x[0, 0, 0].clamp_min(-9)),  # few elements: proved at inputs nearby
    ]:
        assert watch(function).ok
        tool = watch(function, f"value:{name},scale={step}")
        assert not tool.ok, name


@pytest.mark.parametrize("kind", ["nan", "unwritten", "precision", "input", "stride", "value"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_every_kind_of_fault_is_seen(kind, dtype):
    x = make(24, 40, dtype=dtype).t()
    tool = watch(lambda: torch.exp(x), f"{kind}:exp" + (",scale=0.2" if kind in ("value", "input") else ""))
    assert accused(tool) == [("exp", "forward")]
    finding = tool.findings()[0]
    assert finding["reason"]
    if kind == "nan":
        assert math.isnan(finding["value"]) and finding["wrong"] == 1


@careful_device
def test_scalars_are_judged_by_inputs_nearby():
    """A loss: one element, on which the CPU's error says nothing."""
    torch.manual_seed(1)
    for dtype in (torch.float32, torch.bfloat16):
        for _ in range(20):
            x = make(500, dtype=dtype)
            assert watch(lambda t=x: (t.sum(), t.mean(), t.square().mean(), t.norm())).ok
        assert not watch(lambda t=x: t.sum(), "value:sum,scale=0.02").ok


def test_a_finite_value_in_the_place_of_nan_is_wrong():
    x = torch.tensor([-1.0, 4.0] * 40, device="cuda")
    tool = watch(lambda: x.sqrt(), "unwritten:sqrt")
    assert accused(tool) == [("sqrt", "forward")]


# Cost


def test_a_signature_that_was_judged_needs_no_further_runs():
    x, w = make(64, 64), make(64, 64)
    tool = OpAutoCompare(save=False, rows="none", console="off")
    with tool:
        for _ in range(4):
            F.gelu(x @ w)
        first = tool.describe()["runs"]
        for _ in range(10):
            F.gelu(x @ w)
        later = tool.describe()["runs"]
        ditorch._C.judge_forget()
        F.gelu(x @ w)
        anew = tool.describe()["runs"]
    assert tool.ok and later - first == 20, (first, later)  # one run per call
    assert anew - later > 2  # forgotten, so judged by full runs once more


# The legacy columns and verdict


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, *HALVES, torch.complex64], ids=str)
def test_legacy_columns_are_those_of_compare_result(dtype):
    x = make(50, 30, dtype=dtype)
    results = []
    tool = watch(lambda: results.append(torch.mul(x, x)), "value:mul.Tensor,scale=0.3", verdict="legacy")
    finding = tool.findings()[0]
    wide = {torch.complex64: torch.complex64}.get(dtype, torch.float64)
    want = compare_result("torch.mul", results[0].cpu(), (x.cpu().to(wide) * x.cpu().to(wide)))
    for key, mine in [("cos_similarity", "cosine"), ("max_abs_diff",) * 2, ("max_relative_diff",) * 2]:
        assert math.isclose(finding[mine], want[key], rel_tol=1e-6), key
    assert finding["allclose"] is False and not want["allclose"]


def test_a1_tolerances_of_one_operator_take_effect(monkeypatch):
    x, w = make(20, 30), make(10, 30)
    fault = "value:*mm*,scale=0.001"
    assert not watch(lambda: F.linear(x, w), fault, verdict="legacy").ok
    monkeypatch.setenv("LINEAR_AUTOCOMPARE_ERROR_TOLERANCE_FLOAT32", "1e-1,1e-1")
    assert watch(lambda: F.linear(x, w), fault, verdict="legacy").ok
    assert not watch(lambda: torch.mm(x, w.t()), fault, verdict="legacy").ok


def test_a2_gradients_are_judged_by_the_dtype_of_the_device():
    """bfloat16 gradients are rounded to bfloat16: 1e-3, not the 1e-5 of the CPU's float32."""
    x = make(8, 8, dtype=torch.bfloat16).requires_grad_()
    tool = watch(lambda: x.exp().backward(torch.ones_like(x)), verdict="legacy")
    assert tool.ok and tool.describe()["backward"]["compared"] == 1


def test_a10_unsigned_differences_do_not_wrap():
    x = torch.arange(200, device="cuda").to(torch.uint8)
    tool = watch(lambda: x + 1, "value:add*,index=7,scale=0.2")
    assert accused(tool)[0][0] in ("add", "__add__")
    assert 0 < tool.findings()[0]["max_abs_diff"] < 100


def test_legacy_and_auto_decide_apart():
    """A small error on small numbers: below the tolerances, far beyond the CPU's own error; and the other way round."""
    x = make(100, 20) * 1e-6
    assert watch(lambda: x * 3, "value:mul*,scale=0.1", verdict="legacy").ok
    assert not watch(lambda: x * 3, "value:mul*,scale=0.1").ok
    a, b = make(4, 2000, dtype=torch.bfloat16), make(2000, 4, dtype=torch.bfloat16)
    assert watch(lambda: a @ b).ok


@pytest.mark.parametrize(
    "name,gradient,wanted",
    [
        ("torch.add", False, True),
        ("torch.Tensor.__radd__", True, True),
        ("torch._foreach_addcdiv_", False, True),
        ("aten::mul.Tensor", False, True),
        ("torch.nn.functional.leaky_relu", True, True),
        ("torch.tanh", False, True),
        ("torch.tanh", True, False),
        ("aten::tanh_backward", False, False),
        ("torch.cumsum", False, False),
        ("torch.nn.functional.group_norm", False, False),
        ("torch._fused_adam_", False, False),
        ("mine.function", False, False),
    ],
)
def test_where_roundings_may_grow(name, gradient, wanted):
    traits = (_C.operator_find(name) or {"traits": ()})["traits"]
    derives = gradient or name.endswith("_backward")
    assert ("pointwise" in traits and not (derives and "cancels" in traits)) is wanted


def test_ties_are_seen_where_the_operator_chooses():
    x = torch.tensor([[1.0, 2.0], [1.0, 3.0]])

    def has_ties(name, values, dim):
        """A gradient that went elsewhere is right where values are equal, wrong elsewhere."""
        gradient = torch.zeros_like(values)
        gradient.view(-1)[0] = 1.0
        wide = lambda *_: [gradient.double()]  # noqa: E731
        given = None if dim is None else {"dim": dim}
        answer = _C.judge(name, gradient.flip(0), gradient, wide, inputs=(values,), kwargs=given, what="grad")
        return answer["verdict"] == "right"

    assert has_ties("msort", x, None) and has_ties("sort", x, 0)
    assert not has_ties("sort", x, None) and not has_ties("max", x, 1)
    assert has_ties("max", x, None) and not has_ties("sort", x[:, 1], None)


def test_an_optimizer_in_one_kernel_is_compared_with_what_it_wrote():
    """torch._fused_adamw_ raises no version counter: the twins must stay as they were before the call."""

    def step():
        tensors = [[torch.randn(20, device="cuda")] for _ in range(4)]
        tensors[3][0].abs_()
        torch._fused_adamw_(
            *tensors,
            [],
            [torch.ones((), device="cuda")],
            lr=0.1,
            beta1=0.9,
            beta2=0.999,
            weight_decay=0.1,
            eps=1e-8,
            amsgrad=False,
            maximize=False,
        )

    for level in ("torch", "aten"):
        assert watch(step, level=level).ok
        tool = watch(step, "input:_fused_adamw_*,scale=0.2", level=level)
        assert [f["what"] for f in tool.findings()] == ["input"], tool.table()
