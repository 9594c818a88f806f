"""backend="dit": compiled results equal eager ones, and the plan is fused as it should be."""

import copy
import os
import shutil

import ditorch  # noqa: F401
import pytest
import torch
from conftest import run_python
from ditorch import graph


@pytest.fixture(autouse=True)
def kept():
    torch._dynamo.reset()
    yield graph.keep()
    graph.keep(False)


def test_pointwise_and_reductions_are_regions(kept):
    def function(x, w):
        return torch.softmax(torch.nn.functional.gelu(x * 2 + w).sum(1, keepdim=True) + x, -1)

    x, w = torch.randn(8, 16, device="cuda"), torch.randn(16, device="cuda")
    torch.testing.assert_close(torch.compile(function, backend="dit")(x, w), function(x, w))
    (plan,) = kept[0].describe()
    assert plan["regions"] >= 1 and plan["rows"] == plan["islands"] == 0


def test_elements_are_walked_as_they_lie(kept):
    """channels_last and transposed tensors were walked in the order of their dimensions, with strides."""
    x = torch.randn(2, 3, 4, 5).cuda()
    last, bias = x.contiguous(memory_format=torch.channels_last), torch.randn(3, 1, 1).cuda()
    cases = [
        (lambda x: (x * 2 + 1).relu(), (last,), [120]),
        (lambda x: x.transpose(1, 3) * 2 + 1, (x,), [120]),
        (lambda x, b: (x + b).relu(), (last, bias), [40, 3]),
        (lambda x, y: x * y + 1, (last, x), None),
        (lambda x, y: x * y + 1, (x[:, :2], last[:, 1:]), None),
    ]
    for function, given, sizes in cases:
        kept.clear()
        got, wanted = torch.compile(function, backend="dit", dynamic=False)(*given), function(*given)
        assert got.stride() == wanted.stride()
        torch.testing.assert_close(got, wanted)
        (step,) = kept[0].describe()[0]["steps"]
        assert sizes is None or step["sizes"] == sizes


def test_numbers_beside_half_precision_are_rounded_as_in_eager_mode():
    """Sums, differences and comparisons took 0.3 as it is; eager mode rounds it to the dtype of the tensor."""

    def function(x):
        return x + 0.3, 0.3 - x, x >= -0.7, torch.sub(x, x * 2, alpha=0.3), x * 0.3

    x = torch.cat([torch.randn(500), torch.tensor([-0.7])]).cuda().bfloat16()
    for got, wanted in zip(torch.compile(function, backend="dit")(x), function(x), strict=True):
        assert torch.equal(got, wanted)


def test_a_maximum_keeps_nan():
    x = torch.tensor([[1.0, float("nan"), 2.0], [-0.0, float("-inf"), 3.0]], device="cuda")
    got = torch.compile(lambda a: a.amax(-1) + 1, backend="dit")(x)
    torch.testing.assert_close(got, x.amax(-1) + 1, equal_nan=True)


@pytest.mark.parametrize("dynamic", [False, True])
def test_training(dynamic, kept):
    torch.manual_seed(0)
    layers = [torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4)]
    model = torch.nn.Sequential(*layers).cuda()
    twin = copy.deepcopy(model)
    compiled = torch.compile(twin, backend="dit", dynamic=dynamic)
    x = torch.randn(5, 8, device="cuda")
    model(x).pow(2).mean().backward()
    compiled(x).pow(2).mean().backward()
    for wanted, got in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(got.grad, wanted.grad)
    assert len(kept) == 2 and not any(isinstance(entry, str) for entry in kept)


SPECIAL = [0.0, -0.0, float("nan"), float("inf"), -float("inf"), 1e-40, 3e38, -5000.0]
CASES = {
    "chain": lambda x, w: torch.sigmoid(x) * w + torch.exp(-x * x) * x - torch.where(x > 0, w, x * 0.01),
    "trigonometry": lambda x, w: torch.sin(x) * torch.cos(w) + 1,
    "softmax": lambda x, w: torch.softmax(x * 2, -1),
    "layer_norm": lambda x, w: torch.nn.functional.layer_norm(x + w, (x.shape[-1],), w[0], w[1]) * 2,
    "extremes": lambda x, w: (x.amax(-1), x.amin(0), (x > w).sum()),
    "columns": lambda x, w: ((x * w).sum(0), x + w),
    "broadcast": lambda x, w: x.t() * w[0].unsqueeze(-1) + x[0, 0],
    "all": lambda x, w: (x * w).sum(),
    "narrow": lambda x, w: (x.bfloat16() * w.bfloat16() + 1).half().relu(),
    "integers": lambda x, w: (x.to(torch.int32) * 3 - 7) ^ w.to(torch.int32),
}


def make_pair(rows, columns, special):
    torch.manual_seed(1)
    x, w = torch.randn(rows, columns), torch.randn(rows, columns)
    if special:
        x[:, : len(SPECIAL)] = torch.tensor(SPECIAL)
    return x.cuda(), w.cuda()


@pytest.mark.parametrize("name", CASES)
def test_generated_code_and_block_machine(name, kept):
    function = CASES[name]
    for rows, columns in ((5, 24), (64, 300)):
        special = name not in ("integers", "all", "columns", "layer_norm")
        x, w = make_pair(rows, columns, special)
        compiled = torch.compile(function, backend="dit", dynamic=False)
        wanted = function(x, w)
        for _ in range(3):
            got = compiled(x, w)
            torch.testing.assert_close(got, wanted, equal_nan=True)
        graph.settle()
        torch.testing.assert_close(compiled(x, w), wanted, equal_nan=True)
        if name not in ("extremes", "narrow"):
            torch.testing.assert_close(compiled(x, w), got, rtol=2e-6, atol=1e-6, equal_nan=True)
    has_compiler = shutil.which(os.environ.get("CC") or "cc") is not None
    steps = [step for plan in kept[-1].describe() for step in plan["steps"]]
    assert all(step["runs"] == "c" for step in steps) or not has_compiler


def test_rows_longer_than_any_block():
    x = torch.randn(3, 200_000, device="cuda")
    compiled = torch.compile(lambda a: ((a * 2).sum(-1), a.amax(-1), (a * a).mean()), backend="dit")
    wanted = ((x * 2).sum(-1), x.amax(-1), (x * x).mean())
    for _ in range(3):
        torch.testing.assert_close(compiled(x), wanted, rtol=1e-4, atol=1e-3)
        graph.settle()


def test_a_node_without_words_leaves_the_rest_fused(kept):
    def function(x):
        picked = torch.nonzero(torch.relu(x) * 2 > 0.5)
        return (picked.float() * 3 + 1).sum(0), x * 2 + 1

    x = torch.randn(6, 7, device="cuda")
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = torch.compile(function, backend="dit", fullgraph=True)
        torch.testing.assert_close(compiled(x), function(x))
        y = torch.randn(6, 7, device="cuda")
        torch.testing.assert_close(compiled(y), function(y))
    assert any(isinstance(entry, str) for entry in kept) and any(not isinstance(entry, str) for entry in kept)


def test_attention_leaves_its_graph_fused(kept):
    attention = torch.nn.functional.scaled_dot_product_attention
    q = torch.randn(2, 4, 8, 16, device="cuda", requires_grad=True)
    compiled = torch.compile(lambda a: attention(a * 2, a, a, is_causal=True) + 1, backend="dit")
    wanted = attention(q * 2, q, q, is_causal=True) + 1
    torch.testing.assert_close(compiled(q), wanted)
    assert kept and not any(isinstance(entry, str) for entry in kept)


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD])
def test_an_optimizer_is_one_plan(kind, kept):
    torch.manual_seed(0)
    ours = [torch.randn(n, 3, device="cuda", requires_grad=True) for n in (2, 5, 7)]
    theirs = [p.detach().clone().requires_grad_() for p in ours]
    mine, other = kind(ours, lr=0.01), kind(theirs, lr=0.01)
    step = torch.compile(mine.step, backend="dit")
    for _ in range(4):
        for a, b in zip(ours, theirs, strict=True):
            a.grad = torch.randn(a.shape, device="cuda")
            b.grad = a.grad.clone()
        step(), other.step()
        graph.settle()
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)
    assert not any(isinstance(entry, str) for entry in kept)


def test_dropout_draws_what_eager_draws():
    x = torch.ones(64, 64, device="cuda")
    compiled = torch.compile(lambda a: torch.nn.functional.dropout(a * 2, 0.3) + 1, backend="dit")
    torch.manual_seed(5)
    got = compiled(x)
    torch.manual_seed(5)
    torch.testing.assert_close(got, torch.nn.functional.dropout(x * 2, 0.3) + 1)


def test_twenty_batch_sizes_are_one_recompile(kept):
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16)).cuda()
    compiled = torch.compile(model, backend="dit")
    with torch.no_grad():
        for batch in range(2, 22):
            x = torch.randn(batch, 8, device="cuda")
            torch.testing.assert_close(compiled(x), model(x))
    assert len(kept) <= 2


WITHOUT = """
import ditorch, torch
from ditorch import graph
kept = graph.keep()
x = torch.randn(64, 64, device="cuda")
function = lambda a: torch.softmax(a * 2, -1) + 1
compiled = torch.compile(function, backend="dit")
for _ in range(4):
    torch.testing.assert_close(compiled(x), function(x))
    graph.settle()
print("runs", kept[0].describe()[0]["steps"][0]["runs"])
"""


@pytest.mark.parametrize("compiler", ["none", "false"])
def test_without_a_compiler_the_block_machine_goes_on(compiler, tmp_path):
    done = run_python(WITHOUT, DITORCH_HOST_COMPILER=compiler, DITORCH_HOST_CACHE=str(tmp_path / "cache"))
    assert "runs vm" in done.stdout


@pytest.mark.skipif(not shutil.which("cc"), reason="no compiler")
def test_a_damaged_library_is_made_again(tmp_path):
    cache = tmp_path / "cache"
    assert "runs c" in run_python(WITHOUT, DITORCH_HOST_CACHE=str(cache)).stdout
    (library,) = cache.glob("*.so")
    assert cache.stat().st_mode & 0o77 == 0 and len(list(cache.iterdir())) == 1
    data = library.read_bytes()
    library.write_bytes(data[:-100] + bytes(76) + data[-24:])
    assert "runs c" in run_python(WITHOUT, DITORCH_HOST_CACHE=str(cache)).stdout
    assert library.read_bytes()[-100:-24] != bytes(76)


def test_results_that_nobody_takes_may_have_other_shapes():
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU()).cuda().eval()
    x = torch.randn(2, 3, 8, 8, device="cuda")
    compiled = torch.compile(model, backend="dit")
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x))
    torch.testing.assert_close(compiled(x), model(x))  # what is kept for the backward is not the trace's either


def test_the_option_chooses_the_default():
    code = """
import ditorch, torch
from ditorch import graph
kept = graph.keep()
x = torch.randn(8, 8, device="cuda")
torch.testing.assert_close(torch.compile(lambda a: a.sin() + 1)(x), x.sin() + 1)
print("graphs", len(kept))
"""
    assert "graphs 0" in run_python(code, DITORCH_COMPILE_BACKEND="aot_eager").stdout
    done = run_python(code)
    assert "graphs 1" in done.stdout and done.stderr.count("uses dit") == 1
