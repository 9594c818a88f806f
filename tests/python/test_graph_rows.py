"""Rows of a compiled graph: called in C without the dispatcher, with results in the plan's arena, and as in eager mode
whatever else is on."""

import threading
import types

import ditorch
import pytest
import torch
from conftest import run_python
from ditorch import graph
from ditorch.graph.words import ROW, Words

SIZE = 64


@pytest.fixture(autouse=True)
def kept():
    torch._dynamo.reset()
    yield graph.keep()
    graph.keep(False)


def draw(*sizes, seed=0):
    return torch.randn(*(sizes or (SIZE, SIZE)), generator=torch.Generator().manual_seed(seed)).cuda()


def compile_it(function):
    return torch.compile(function, backend="dit", dynamic=False)


def get_plan(kept):
    (plan,) = kept[-1].describe()
    return plan


def list_rows(plan):
    return [step for step in plan["steps"] if step["kind"] == "row"]


def chain(x, w):
    for _ in range(8):
        x = torch.mm(x, w)
    return x * 2


def test_results_lie_in_the_arena(kept):
    x, w = draw(), draw(seed=1) / 8
    compiled = compile_it(chain)
    for _ in range(3):
        torch.testing.assert_close(compiled(x, w), chain(x, w))
    plan = get_plan(kept)
    assert [step["direct"] for step in list_rows(plan)] == [True] * 8
    assert plan["unplanned"] == 8 * SIZE * SIZE * 4 and plan["arena"] == 2 * SIZE * SIZE * 4


@pytest.mark.parametrize(
    "between, units",
    [
        (lambda a: a * 2 + 1, 1),
        (lambda a: a - a.sum(-1, keepdim=True) * 0.5, 2),  # each row is read again behind its sum
        (lambda a: a + a.t(), 2),
        (lambda a: (a.t() * 2).contiguous(), 2),
        (lambda a: a.sin() * 2, 2),
    ],
    ids=["elementwise", "rows", "two walks", "another walk", "sine"],
)
def test_results_take_the_place_of_operands(between, units, kept):
    """Where nobody needs the operand any more and each element is read before it is written, by whatever runs it."""

    def function(x, w, v):
        return torch.mm(between(torch.mm(x, w)), v)

    given = draw(), draw(seed=1) / 8, draw(SIZE, 1, seed=2)
    compiled = compile_it(function)
    for _ in range(4):
        torch.testing.assert_close(compiled(*given), function(*given), rtol=1e-4, atol=1e-4)
        graph.settle()
    assert get_plan(kept)["arena"] // (SIZE * SIZE * 4) == units


def test_the_peak_of_memory_is_the_arena():
    x, w = draw(256, 256), draw(256, 256, seed=1) / 16
    compiled = compile_it(chain)
    compiled(x, w), compiled(x, w)
    torch.cuda.reset_peak_memory_stats()
    begin = torch.cuda.memory_allocated()
    compiled(x, w)
    assert torch.cuda.max_memory_allocated() - begin <= 3 * 256 * 256 * 4  # two in the arena, and the result


def test_a_view_that_leaves_the_graph_keeps_its_memory(kept):
    def function(x, w):
        first = torch.mm(x, w)
        second = torch.mm(first, w)
        third = torch.mm(second, w)
        return first.t(), second[3:, 1], torch.mm(third, w)

    w = draw(seed=1)
    compiled = compile_it(function)
    inputs = [draw(seed=seed) for seed in range(2, 6)]
    results = [compiled(x, w) for x in inputs]
    for x, result in zip(inputs, results, strict=True):
        for got, wanted in zip(result, function(x, w), strict=True):
            torch.testing.assert_close(got, wanted)
            assert got.stride() == wanted.stride()
    plan = get_plan(kept)
    assert plan["unplanned"] == SIZE * SIZE * 4 and len(list_rows(plan)) == 4  # the third alone


def test_views_of_a_place_in_the_arena():
    def function(x, w):
        made = torch.mm(x, w)
        return torch.mm(made.t()[5:, 2:], made[: SIZE - 2, 3:]).sum(0), torch.mm(made[1:].t(), made[1:]) + made

    x, w = draw(), draw(seed=1)
    compiled = compile_it(function)
    for _ in range(2):
        for got, wanted in zip(compiled(x, w), function(x, w), strict=True):
            torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-3)


def test_an_input_that_is_written_after_a_row_has_read_it():
    def function(x, w):
        first = torch.mm(x, w)
        x.add_(first)
        second = torch.mm(x, w)
        x.mul_(0.5)
        return torch.mm(second, x)

    w = draw(seed=1) / 8
    mine, other = draw(), draw()
    compiled = compile_it(function)
    for _ in range(3):
        torch.testing.assert_close(compiled(mine, w), function(other, w), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-4)


def run_words(strides, x, w):
    """(x @ w) @ w where the trace says that the first product has these strides; the results, and the plan then."""
    words = Words()
    tensors = []
    for given in (None, None, strides, None):
        tensors.append(words.add_tensor(torch.float32, x.shape, given or (SIZE, 1), words.add_storage()))
    arguments = [types.SimpleNamespace(tensor_index=index) for index in tensors]
    words.inputs = [(tensors[0], -1), (tensors[1], -1)]
    for left, out in ((0, 2), (2, 3)):
        words.add_node(ROW, 0, 0, ("aten::mm", "", ""), [arguments[left], arguments[1]], [tensors[out]])
    words.outputs.append((tensors[3], 0, 0, 0))
    number = torch.ops.ditorch.graph_load(words.pack())
    made = [torch.ops.ditorch.graph_run(number, [x, w], (), 0)[0][0] for _ in range(3)]
    return made, torch.ops.ditorch.graph_describe(number)


@pytest.mark.parametrize("strides, arena", [((SIZE, 1), SIZE * SIZE * 4), ((1, SIZE), 0)])
def test_strides_that_are_not_the_trace_s(strides, arena):
    x, w = draw(), draw(seed=1)
    made, described = run_words(strides, x, w)
    for result in made:
        torch.testing.assert_close(result, x @ w @ w, rtol=1e-4, atol=1e-3)
    assert f'"arena": {arena},' in described  # no place for what is not written there


def test_what_the_device_declines_runs_as_in_eager_mode(kept):
    x = torch.randint(-9, 9, (SIZE, SIZE)).cuda()
    compiled = compile_it(lambda a: torch.mm(torch.cumsum(a, 0), a) + 1)
    wanted = torch.mm(torch.cumsum(x, 0), x) + 1
    for _ in range(2):
        torch.testing.assert_close(compiled(x), wanted)


def count(name):
    return next((row["calls"] for row in ditorch.operators() if row["operator"] == name), 0)


def test_the_ledger_counts_as_in_eager_mode():
    x, w = draw(), draw(seed=1) / 8
    compiled = compile_it(chain)
    compiled(x, w)
    ditorch.reset_counters()
    compiled(x, w)
    assert count("aten::mm") == 8


def test_faults_reach_compiled_rows():
    x, w = draw(), draw(seed=1) / 8
    compiled = compile_it(chain)
    wanted = compiled(x, w)
    with ditorch.fault("nan:aten::mm") as rule:
        assert compiled(x, w).isnan().any()
    assert rule.count > 0
    with pytest.raises(RuntimeError, match="aten::mm"), ditorch.fault("error:aten::mm"):
        compiled(x, w)
    assert torch.equal(compiled(x, w), wanted)


def test_profilers_and_modes_see_compiled_rows():
    x, w = draw(), draw(seed=1) / 8
    compiled = compile_it(chain)
    wanted = compiled(x, w)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        assert torch.equal(compiled(x, w), wanted)
    assert sum(event.key == "aten::mm" and event.count for event in profiler.key_averages()) == 8


def test_random_rows_draw_what_eager_mode_draws():
    def function(x, w):
        made = torch.nn.functional.dropout(torch.mm(x, w), 0.4)
        return torch.mm(torch.nn.functional.dropout(made, 0.2), w)

    x, w = draw(), draw(seed=1) / 8
    compiled = compile_it(function)
    for seed in range(3):
        torch.manual_seed(seed)
        got, mine = compiled(x, w), torch.cuda.get_rng_state()
        torch.manual_seed(seed)
        torch.testing.assert_close(got, function(x, w))
        assert torch.equal(mine, torch.cuda.get_rng_state())


def test_streams_and_threads_share_a_plan():
    w = draw(seed=1) / 8
    compiled = compile_it(chain)
    inputs = [draw(seed=seed) for seed in range(4)]
    wanted = [chain(x, w) for x in inputs]
    compiled(inputs[0], w)
    torch.cuda.synchronize()
    wrong = []

    def work(number):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(20):
                got = compiled(inputs[number], w)
        stream.synchronize()
        if not torch.allclose(got, wanted[number], rtol=1e-5, atol=1e-5):
            wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


CLOSED = """
import ditorch, torch
from ditorch import graph
kept = graph.keep()
x, w = torch.randn(32, 32).cuda(), torch.randn(32, 32).cuda()
function = lambda a, b: torch.mm(torch.mm(torch.mm(a, b), b).t(), b).relu() + 1
compiled = torch.compile(function, backend="dit")
for _ in range(3):
    torch.testing.assert_close(compiled(x, w), function(x, w), rtol=1e-4, atol=1e-3)
print("right")
"""


def test_a_device_that_the_host_cannot_read():
    for engine in ("", "none"):
        assert "right" in run_python(CLOSED, DITORCH_VENDOR="opaque", DITORCH_OPAQUE_GRAPH=engine).stdout


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["layer_norm", "rms_norm"])
def test_the_backward_of_norms_is_regions(kind, dtype, kept):
    def function(x, *weights):
        return getattr(torch.nn.functional, kind)(x, (48,), *weights, eps=1e-5)

    count = 2 if kind == "layer_norm" else 1
    given = [draw(5, 7, 48).to(dtype), *(draw(48, seed=seed).to(dtype) for seed in range(1, 1 + count))]
    mine = [tensor.clone().requires_grad_() for tensor in given]
    other = [tensor.clone().requires_grad_() for tensor in given]
    exact = [tensor.cpu().double().requires_grad_() for tensor in given]
    gradient = draw(5, 7, 48, seed=9).to(dtype)
    compile_it(function)(*mine).backward(gradient)
    function(*other).backward(gradient)
    function(*exact).backward(gradient.cpu().double())
    for a, b, wanted in zip(mine, other, exact, strict=True):
        errors = [(found.grad.cpu().double() - wanted.grad).abs().max() for found in (a, b)]
        assert errors[0] <= 1.2 * errors[1] + 1e-6
    assert not list_rows(get_plan(kept)) and get_plan(kept)["regions"] >= 2
