"""ditorch/judge.py: the inputs of further runs, and the verdict on values of every kind. The rule itself is tested in C
(tests/c/test_verdict.c) and through OpAutoCompare (test_compare_judge.py)."""

import math

import pytest
import torch
from ditorch import _C, judge
from ditorch.judge import Request, Runs

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64]
LAYOUTS = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.transpose(0, -1),
    "strided": lambda x: x[..., ::2],
    "expanded": lambda x: x[:1].expand(3, *x.shape[1:]),
    "five dims": lambda x: x.reshape(2, 1, 2, 3, 4),
    "empty": lambda x: x[:0],
    "0-d": lambda x: x.flatten()[0],
}


def make(dtype, layout="contiguous"):
    torch.manual_seed(5)
    return LAYOUTS[layout](torch.randn(4, 3, 4).to(dtype) * 3 + 0.1)


def judge_function(function, value, *inputs, name="torch.mul", index=0, what="output", asked=None, **options):
    """The verdict on a value of function(*inputs), whose further runs are made here."""

    def run(request):
        if asked is not None:
            asked.append(request.kind)
        result = function(*(request.move(x, place) for place, x in enumerate(inputs)))
        return list(result) if isinstance(result, tuple) else [result]

    first = run(Request("native"))[index]
    options = {"args": inputs, "inputs": inputs, "what": what, "index": index, "careful": True, **options}
    return judge.judge(name, value, first, Runs(run), **options)


# Requests


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_the_inputs_of_every_kind_of_run(dtype, layout):
    x = make(dtype, layout)
    wide, roundoff = judge.WIDE.get(dtype, torch.float64), torch.finfo(dtype).eps / 2
    for kind in ("native", "other"):
        assert torch.equal(Request(kind).move(x, 0), x) and Request(kind).move(x, 0).dtype == dtype
    assert torch.equal(Request("wide").move(x, 0), x.to(wide))
    shaken = Request("shaken", 0.0, False, 9).move(x, 0)
    assert shaken.dtype == wide and shaken.shape == x.shape
    if x.numel() > 1:
        off = ((shaken - x.to(wide)) / x.to(wide)).abs().max()
        assert 0 < off <= roundoff * (2 if dtype in (torch.complex64, torch.float64) else 1)
    jitter, again = (Request(kind, 4.0, False, 9).move(x, 2) for kind in ("jitter", "jitter_wide"))
    assert jitter.dtype == dtype and again.dtype == wide and torch.equal(jitter.to(wide), again)
    if x.numel() > 1 and dtype != torch.float64:
        assert not torch.equal(jitter, x) and torch.allclose(jitter.to(wide), x.to(wide), rtol=12 * roundoff, atol=0)
    narrow = Request("jitter", 4.0, True, 9).move(x, 0)
    assert narrow.dtype == (torch.complex64 if dtype.is_complex else torch.float32)


def test_moves_are_those_of_c():
    x = torch.linspace(0.1, 0.9, 12, dtype=torch.float64)
    for place, gradient in ((0, False), (3, False), (3, True)):
        wanted = x.clone()
        _C.judge_move(wanted, 2.0**-20, 77, place, gradient)
        assert torch.equal(Request("shaken", 2.0**-20, False, 77).move(x, place, gradient=gradient), wanted)
    assert not torch.equal(*(Request("shaken", 2.0**-20, False, 77).move(x, place) for place in (0, 1)))
    assert not torch.equal(*(Request("shaken", 2.0**-20, False, seed).move(x, 0) for seed in (1, 2)))


def test_labels_and_integers_are_not_moved():
    request = Request("shaken", 0.5, False, 3)
    labels = torch.tensor([0.0, -1.0, 16.0, 3.0])
    assert torch.equal(request.move(labels, 0), labels.double())
    assert not torch.equal(request.move(torch.tensor([17.0]), 0), torch.tensor([17.0]).double())
    index = torch.tensor([1, 2])
    assert torch.equal(request.move(index, 0), index) and request.move(index, 0).dtype == torch.int64


def test_operators_that_compute_nothing_keep_their_inputs_in_wide_runs():
    assert judge.keeps_dtypes("torch.Tensor.view") and judge.keeps_dtypes("torch.Tensor.to")
    assert not judge.keeps_dtypes("torch.mul")
    x = make(torch.float16)
    for kind in ("wide", "shaken"):
        assert Request(kind, 0.0).move(x, 0, exact=True).dtype == torch.float16
    assert Request("jitter_wide", 4.0).move(x, 0, exact=True).dtype == torch.float64


def test_numbers_and_dtypes_among_the_arguments():
    args, kwargs = (0.3, 2.0, (0.9, 0.999), 5, [0.3]), {"eps": 1e-8, "dtype": torch.float16, "flag": True}
    for kind in ("native", "other", "jitter"):
        assert Request(kind, 4.0).change_arguments(args, kwargs) == (args, kwargs)
    assert Request("wide").change_arguments(args, kwargs) == (args, {**kwargs, "dtype": torch.float64})
    assert Request("wide").change_arguments(args, kwargs, exact=True) == (args, kwargs)
    assert Request("jitter", 4.0, True).change_arguments(args, kwargs)[1]["dtype"] == torch.float32
    moved, named = Request("shaken", 0.0, False, 3).change_arguments(args, kwargs)
    assert moved[1] == 2.0 and moved[3:] == (5, [0.3]) and named["flag"] is True
    for new, old in ((moved[0], 0.3), (moved[2][0], 0.9), (moved[2][1], 0.999), (named["eps"], 1e-8)):
        assert 0 < abs(new / old - 1) <= 2**-24
    double, _ = Request("shaken", 0.0, False, 3).change_arguments(args, kwargs, double=True)
    assert abs(double[0] / 0.3 - 1) <= 2**-52


def test_runs_are_made_once_and_failures_are_texts():
    asked = []

    def make(request):
        asked.append(request.kind)
        if request.kind == "wide":
            raise TypeError("no such dtype\nand more")
        return [request.kind]

    runs = Runs(make)
    for kind in ("native", "native", "other", "other", "jitter", "jitter"):
        assert runs(kind) == [kind]
    assert runs("wide") == runs("wide") == "TypeError: no such dtype"
    assert asked == ["native", "other", "jitter", "jitter", "wide"] and runs.count == 5


# Verdicts


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name != "empty"])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_roundings_are_right_and_errors_are_wrong(dtype, layout):
    x = make(dtype, layout)
    right = torch.exp(x.to(judge.WIDE.get(dtype, torch.float64))).to(dtype)
    assert judge_function(torch.exp, right, x, name="torch.exp").verdict == "right"
    wrong = right.contiguous().clone()
    wrong.view(-1)[wrong.numel() // 2] *= 1 + 200 * torch.finfo(dtype).eps
    found = judge_function(torch.exp, wrong, x, name="torch.exp")
    assert found.is_wrong and found.wrong == 1 and found.index == wrong.numel() // 2 and found.error > found.allowed


def test_equal_values_ask_for_nothing():
    asked = []
    x = make(torch.float32)
    assert judge_function(torch.exp, torch.exp(x), x, asked=asked).verdict == "right"
    assert asked == ["native"], "the one that is at hand"
    empty = torch.empty(0, 3)
    assert judge_function(torch.exp, empty.clone(), empty).verdict == "right"


def test_shapes_and_special_values():
    x = torch.linspace(-1, 1, 80).double().float()
    assert judge_function(torch.exp, torch.ones(3), x).is_wrong
    for bad in (math.nan, math.inf, -math.inf):
        value = torch.exp(x)
        value[7] = bad
        found = judge_function(torch.exp, value, x, name="torch.exp")
        assert found.is_wrong and found.index == 7 and "where the CPU has" in found.reason
    big = torch.full((80,), 300.0).half()
    assert judge_function(torch.square, torch.full((80,), math.inf).half(), big).verdict == "right"
    assert judge_function(torch.square, torch.full((80,), -math.inf).half(), big).is_wrong
    assert judge_function(torch.log, torch.log(-x.abs() - 1), -x.abs() - 1).verdict == "right", "NaN is NaN"


def test_integers_and_bool_must_be_equal():
    x = torch.tensor([3, 4, 5])
    assert judge_function(torch.square, x * x, x).verdict == "right"
    found = judge_function(torch.square, x * x + torch.tensor([0, 1, 0]), x)
    assert found.is_wrong and (found.index, found.value, found.reference) == (1, 17, 16)
    assert judge_function(torch.logical_not, torch.tensor([True]), torch.tensor([True])).is_wrong


def test_an_operator_that_rounds_nothing_must_be_exact():
    x = make(torch.float32)
    off = torch.relu(x)
    place = int(off.flatten().argmax())
    off.view(-1)[place] = torch.nextafter(off.view(-1)[place], torch.tensor(math.inf))
    assert judge_function(torch.relu, off, x, name="torch.relu").is_wrong
    assert judge_function(lambda x: torch.exp(torch.relu(x)), torch.exp(off), x, name="torch.exp").verdict == "right"


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_indices_of_equal_values_may_differ(dim):
    x = torch.tensor([[2.0, 1.0, 1.0], [1.0, 1.0, 2.0], [2.0, 2.0, 2.0]])
    sort = lambda x: tuple(torch.sort(x, dim=dim, stable=True))  # noqa: E731
    other = torch.sort(x.flip(dim), dim=dim, stable=True).indices.mul(-1).add(x.shape[dim] - 1)
    options = {"name": "torch.sort", "index": 1, "args": (x, dim)}
    assert judge_function(sort, other, x, **options).verdict == "right"
    assert judge_function(sort, other.flip(dim), x, **options).is_wrong
    assert judge_function(sort, torch.zeros_like(other), x, **options).is_wrong, "they must be distinct"
    assert judge_function(sort, other + 3, x, **options).is_wrong


def test_equal_values_may_exchange_their_gradients():
    x, given = torch.tensor([[2.0, 1.0, 2.0, 3.0]]), torch.tensor([[0.5, 0.25, 4.0, 8.0]])
    options = {"what": "grad", "args": (x, 1)}

    def verdict(name, gradient, **more):
        return judge_function(lambda _: given, torch.tensor([gradient]), x, name=name, **{**options, **more}).verdict

    assert verdict("torch.sort", [4.0, 0.25, 0.5, 8.0]) == "right"
    assert verdict("torch.sort", [0.25, 0.5, 4.0, 8.0]) == "wrong", "values that differ"
    assert verdict("torch.sort", [4.5, 0.25, 0.0, 8.0]) == "wrong", "each place of a sort is chosen once"
    assert verdict("torch.cummax", [4.5, 0.25, 0.0, 8.0]) == "unknown", "one place may be chosen twice"
    assert verdict("torch.topk", [0.25, 0.5, 8.0, 4.0], args=(x, 4, 1, True, False)) == "right", "in any order"
    assert verdict("torch.topk", [0.25, 0.5, 8.0, 4.5], args=(x, 4, 1, True, False)) == "wrong"
    assert verdict("torch.topk", [0.25, 0.5, 8.0, 4.0], args=(x, 4, 1)) == "wrong"


def test_integers_that_were_sorted_are_no_places():
    x = torch.tensor([1, 0, 1, 5])
    options = {"name": "torch.sort", "args": (x,)}
    sort = lambda x: tuple(torch.sort(x))  # noqa: E731
    assert judge_function(sort, torch.tensor([2, 1, 1, 5]), x, index=0, **options).is_wrong
    assert judge_function(sort, torch.tensor([1, 2, 0, 3]), x, index=1, **options).verdict == "right"


def test_a_scatter_with_repeated_indices_keeps_any_of_its_values():
    x, source = torch.zeros(4), torch.tensor([1.0, 2.0, 3.0])

    def verdict(index, value):
        scatter = lambda x, index, source: torch.scatter(x, 0, index, source)  # noqa: E731
        options = {"name": "torch.scatter", "args": (x, 0, index, source)}
        return judge_function(scatter, torch.tensor(value), x, index, source, **options)

    repeated, once = torch.tensor([1, 1, 2]), torch.tensor([1, 0, 2])
    assert (
        verdict(repeated, [0.0, 1.0, 3.0, 0.0]).verdict == verdict(repeated, [0.0, 7.0, 3.0, 0.0]).verdict == "unknown"
    )
    assert verdict(repeated, [0.0, math.nan, 3.0, 0.0]).is_wrong, "a NaN is wrong all the same"
    assert verdict(once, [2.0, 1.0, 3.0, 0.0]).verdict == "right" and verdict(once, [2.0, 2.0, 3.0, 0.0]).is_wrong


def test_results_that_are_not_unique_are_undecided():
    x = torch.randn(4, 4, generator=torch.Generator().manual_seed(1))
    x = x @ x.T
    values, vectors = torch.linalg.eigh(x)
    eigh = lambda x: tuple(torch.linalg.eigh(x))  # noqa: E731
    options = {"name": "torch.linalg.eigh"}
    assert judge_function(eigh, -vectors, x, index=1, **options).verdict == "unknown"
    assert judge_function(eigh, values * 1.1, x, **options).is_wrong


def test_without_a_reference_nothing_is_decided():
    x = make(torch.float32)

    def run(request):
        raise NotImplementedError("only the device has it")

    found = judge.judge("torch.mul", x * 2, x, Runs(run))
    assert found.verdict == "unknown" and "only the device has it" in found.reason


def test_a_value_without_numbers_is_not_comparable():
    bits = torch.arange(4, dtype=torch.uint8).view(torch.bits8)
    found = judge.judge("torch.mul", bits, bits, Runs(lambda request: []))
    assert found.verdict == "unknown" and found.reason.startswith("not comparable: ")


def test_exceptions_and_wrong_use_come_through():
    x = torch.ones(70) * 1.5

    def run(*request):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        judge.judge("torch.mul", x * 2, x, run)
    with pytest.raises(ValueError, match="valid: input, output, grad"):
        judge.judge("torch.mul", x, x, Runs(lambda request: []), what="result")


def test_the_embedded_device_is_careful_and_the_cpu_is_not_it():
    assert judge.is_careful("cuda") and judge.is_careful("cuda:0") and not judge.is_careful("cpu")


def test_a_careful_device_may_not_round_its_inputs():
    x = torch.randn(40, 70, generator=torch.Generator().manual_seed(3)).bfloat16()
    w = torch.randn(70, 40, generator=torch.Generator().manual_seed(4)).bfloat16()
    product = lambda a, b: (a.float() @ b.float()).to(a.dtype) if a.dtype != torch.float64 else a @ b  # noqa: E731
    rough = product(x * (1 + 2.0**-8), w)
    verdicts = {c: judge_function(product, rough, x, w, name="torch.mm", careful=c).verdict for c in (True, False)}
    assert verdicts == {True: "wrong", False: "right"}
