"""Gradients under OpAutoCompare: by the CPU's autograd, aligned by the arguments of the call."""

import ditorch
import pytest
import torch
import torch.nn.functional as F
from op_tools import OpAutoCompare
from torch.utils.checkpoint import checkpoint


@pytest.fixture(autouse=True)
def in_own_directory(tmp_path, monkeypatch, device):
    monkeypatch.chdir(tmp_path)
    yield
    ditorch.fault("")


def watch(function, fault="", **options):
    tool = OpAutoCompare(**{"save": False, "rows": "none", "console": "off", **options})
    with ditorch.fault(fault), tool:
        function()
    return tool


def accused(tool):
    return [(finding["name"].rpartition(".")[2], finding["kind"]) for finding in tool.findings()]


def leaf(*shape, dtype=torch.float32):
    return torch.randn(*shape, dtype=torch.float64).to(dtype).cuda().requires_grad_()


def check(function, least=1, **options):
    """Clean: nothing is accused, and at least so many backwards were compared."""
    tool = watch(function, **options)
    assert tool.ok, tool.findings()
    facts = tool.describe()
    assert facts["backward"]["compared"] >= least, facts
    return facts


DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)


@DTYPES
def test_a5_several_outputs(dtype):
    x = leaf(6, 8, dtype=dtype)

    def run():
        a, _, c = x.split([1, 2, 3])
        (a.sum() * 2 + c.square().sum()).backward()  # the second is not used
        for part in x.chunk(2, 1):
            part.exp().sum().backward()
        sum(part.sum() * i for i, part in enumerate(x.unbind())).backward()
        values, _ = x.max(1)  # a result without a gradient
        values.sum().backward()
        q, r = torch.linalg.qr(x.float())
        (q.square().sum() + r.sum()).backward()

    check(run, least=8)


@DTYPES
def test_a6_composite_operators(dtype):
    torch.manual_seed(3)
    attention = torch.nn.MultiheadAttention(16, 4).to("cuda", dtype)
    lstm = torch.nn.LSTM(12, 10, 2).to("cuda", dtype)
    x, y = leaf(5, 3, 16, dtype=dtype), leaf(7, 2, 12, dtype=dtype)

    def run():
        attention(x, x, x)[0].float().square().mean().backward()
        lstm(y)[0].float().sum().backward()
        F.scaled_dot_product_attention(x, x, x).sum().backward()

    check(run, least=6)


def test_the_same_tensor_twice():
    x = leaf(7, 7)
    check(lambda: ((x * x).sum() + torch.add(x, x, alpha=3).sum() + (x @ x).sum()).backward(), least=3)


def test_broadcast_gradients_are_sums():
    x, bias = leaf(300, 40), leaf(40)
    check(lambda: ((x + bias) * bias).sum().backward(), least=2)
    check(lambda: bias.expand(500, 40).square().sum().backward(), least=2)


def test_a_wrong_gradient_is_named_backward():
    x, w = leaf(12, 20), leaf(20, 9)
    y = x @ w
    del y
    tool = watch(lambda: (x @ w).backward(torch.ones(12, 9, device="cuda")), "value:mm,call=2+,scale=0.05")
    assert accused(tool) == [("matmul", "backward")] or accused(tool) == [("__matmul__", "backward")]
    tool = watch(lambda: F.gelu(x).sum().backward(), "nan:gelu_backward")
    assert accused(tool)[0] == ("gelu", "backward")


def test_only_the_culprit_of_a_chain_is_accused():
    x, w = leaf(12, 20), leaf(20, 9)

    def run():
        F.log_softmax(F.silu(x @ w), -1).mean().backward()

    tool = watch(run, "value:silu_backward,scale=0.2")
    assert accused(tool) == [("silu", "backward")]


def test_in_place():
    x = leaf(5, 6)

    def run():
        y = x * 2
        y.mul_(x)
        y[1] = x[0]
        y.clamp_(-1, 1)
        z = torch.zeros(5, 6, device="cuda")
        z.add_(y)
        z[:, 2] = y[:, 3] * 5
        F.relu(z * 1, inplace=True).sum().backward()

    assert not check(run, least=6)["unable"]


def test_what_a_call_wrote_to_counts_as_its_output():
    """__setitem__ returns nothing; its gradient comes through the tensor that it changed."""
    x, value = leaf(6, 5), leaf(5)

    def run():
        y = x * 1
        y[2] = value
        y.exp().sum().backward()

    assert not check(run, least=4)["unable"]


def test_written_through_a_view():
    """The gradient goes to the view's base, and is right there."""
    x = leaf(4, 5)

    def run():
        y = x * 1
        y[1:3].mul_(3.0)
        y.view(-1)[2:7].add_(x.view(-1)[:5])
        y.sum().backward()

    assert not check(run, least=6)["unable"]
    want = torch.ones(4, 5)
    want[1:3] = 3
    want.view(-1)[:5] += 1
    assert torch.equal(x.grad.cpu(), want)


def test_retain_graph_is_compared_each_time():
    x = leaf(9)

    def run():
        y = x.exp().sum()
        y.backward(retain_graph=True)
        y.backward()

    assert check(run)["backward"]["compared"] == 4


def test_double_backward():
    x = leaf(6, 6)

    def run():
        y = x.sigmoid().square().sum()
        (gradient,) = torch.autograd.grad(y, x, create_graph=True)
        gradient.square().sum().backward()

    check(run, least=3)


def test_some_inputs_only():
    x, w, b = leaf(5, 4), leaf(3, 4), torch.randn(3, device="cuda")

    def run():
        F.linear(x, w, b).sum().backward()
        torch.autograd.grad(F.linear(x, w, b).sum(), w)

    check(run, least=2)


def test_custom_functions_and_checkpoints():
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            return gradient * 2

    x, w = leaf(6, 6), leaf(6, 6)

    def run():
        Twice.apply(x).exp().sum().backward()
        checkpoint(lambda t: torch.tanh(t @ w), x, use_reentrant=False).sum().backward()
        checkpoint(lambda t: torch.tanh(t @ w), x, use_reentrant=True).sum().backward()

    check(run, least=4)


@DTYPES
def test_results_are_the_same_bits_with_and_without(dtype):
    torch.manual_seed(9)
    x, w = leaf(20, 30, dtype=dtype), leaf(30, 10, dtype=dtype)

    def run():
        x.grad = w.grad = None
        F.cross_entropy(F.gelu(x @ w).float(), torch.arange(20, device="cuda") % 10).backward()
        return x.grad.clone(), w.grad.clone()

    bare = run()
    watched = []
    check(lambda: watched.extend(run()), least=3)
    assert all(torch.equal(a, b) for a, b in zip(bare, watched, strict=True))


def test_complex_gradients():
    x = torch.randn(6, 6, dtype=torch.complex64).cuda().requires_grad_()
    check(lambda: (x @ x.mH).abs().sum().backward(), least=2)


def test_expected_amount_of_runs():
    """The kept graph serves the legacy gradients: one CPU run per call, forward and backward together."""
    x = leaf(40, 40)

    def run():
        for _ in range(3):
            x.sin().sum().backward()

    facts = check(run, least=6)
    assert facts["runs"] <= facts["forward"]["compared"] + 6, facts


def test_a_wrong_gradient_through_a_written_view_is_found():
    x, z = leaf(4, 5), leaf(2, 5)

    def run():
        y = x * 1
        part = y[1:3]
        part.mul_(z)
        (y.exp().sum() + part.sum()).backward()

    facts = check(run, least=6)
    assert not facts["unable"]
    tool = watch(run, "value:mul.Tensor,call=3+,scale=0.3")  # after y and the gradient of exp
    assert ("mul_", "backward") in accused(tool)
