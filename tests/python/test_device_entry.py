"""`ditorch test-device`: one entry of the operator database, compared in every way, and how close is close.

Fake entries that are wrong on the device in exactly one way must be found, each by its own check."""

import types

import pytest
import torch
from ditorch import judge
from ditorch.device_suite import compare, entry, expect, samples, tolerance

# How close


def check(got, wanted, wide=None, name="torch.mul", args=(), **widths):
    """settled, undecided"""
    comparison = compare.Comparison(tolerance.Tolerance(widths))
    reference = wanted if wide is None else wide

    def make(request):
        if request.kind not in ("wide", "native"):
            raise NotImplementedError("there are two runs")
        return [reference if request.kind == "wide" else wanted]

    comparison.check(got, wanted, "x", "cpu", compare.Call(name, args, {}, judge.Runs(make), careful=True))
    return comparison.settled, comparison.undecided


def test_the_rule_acquits_what_is_nearer_to_the_truth_or_as_far_as_the_cpu():
    wide = torch.linspace(0.5, 1.5, 64, dtype=torch.float64)
    exact = wide.half()
    cpu = exact + torch.tensor([0.0, 0.004]).repeat(32).half()  # the CPU is four roundings off here and there
    assert check(exact, cpu, wide) == (1, 0) and check(cpu, cpu, wide) == (0, 0)
    far = exact.clone()
    far[3] += 0.012
    assert check(far, cpu, wide) == (1, 0)
    far[3] += 0.1
    with pytest.raises(compare.Difference, match=r"values differ: .* at \[3\], .* allowed .*; 1 of 64 elements"):
        check(far, cpu, wide)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_the_rule_excuses_no_wrong_element(dtype):
    wide = torch.linspace(0.5, 1.5, 100, dtype=torch.float64)
    for bad in (2.0, float("nan"), float("inf")):
        got = wide.to(dtype)
        got[70] = bad
        with pytest.raises(compare.Difference, match=r"values differ|where the CPU has"):
            check(got, wide.to(dtype), wide)


def test_ties_are_right_and_what_is_not_unique_is_undecided():
    x = torch.tensor([2.0, 1.0, 1.0])
    assert check(torch.tensor([2, 1, 0]), torch.tensor([1, 2, 0]), name="torch.argsort", args=(x,)) == (1, 0)
    with pytest.raises(compare.Difference):
        check(torch.tensor([0, 1, 2]), torch.tensor([1, 2, 0]), name="torch.argsort", args=(x,))
    vector = torch.eye(3)
    assert check([torch.ones(3), -vector], [torch.ones(3), vector], name="torch.linalg.eigh", args=(vector,)) == (0, 1)


def test_integers_must_be_equal():
    with pytest.raises(compare.Difference, match="values differ: 3 at"):
        check(torch.tensor([1, 3]), torch.tensor([1, 2]))


def test_only_tolerances_of_the_user_decide_instead_of_the_rule():
    row = {"rtol": 0.25, "atol": 0.5}
    table = {"database": "cuda", "tolerance": {"float32": {"rtol": 1e-3, "atol": 1e-3}}}
    assert tolerance.choose(torch.float32, {"database": "cuda"}, None).find(torch.float32) is None
    assert tolerance.choose(torch.float32, table, None).find(torch.float32) == (1e-3, 1e-3)
    assert tolerance.choose(torch.float32, table, row).find(torch.float32) == (0.25, 0.5)
    assert tolerance.choose(torch.float32, table, row).find(torch.int64) is None
    x = torch.linspace(0.5, 1.5, 64)
    with pytest.raises(compare.Difference, match="values differ"):
        check(x + 5e-4, x)
    comparison = compare.Comparison(tolerance.choose(torch.float32, table, None))
    call = compare.Call("torch.mul", (), {}, judge.Runs(lambda request: pytest.fail("the tolerance decides")))
    comparison.check(x + 5e-4, x, "x", "cpu", call)
    with pytest.raises(compare.Difference, match="beyond the tolerance"):
        comparison.check(x + 5e-3, x, "x", "cpu", call)


# Copies of samples


@pytest.mark.parametrize("where", ["cpu", "cuda"])
def test_copies_have_the_bits_strides_and_shared_memory_of_the_sample(device, where):
    x = torch.randn(4, 3, dtype=torch.complex64)
    originals = [x.t().conj(), torch._neg_view(x), x.conj().imag, x[1:], torch.randn(2, 3).expand(5, 2, 3), x[:0]]
    sample = types.SimpleNamespace(input=originals[0], args=tuple(originals[1:]), kwargs={})
    copies = samples.Arguments(sample, where).tensors()
    for copy, original in zip(copies, originals, strict=True):
        assert torch.equal(copy.cpu(), original) and copy.stride() == original.stride()
        assert (copy.is_conj(), copy.is_neg()) == (original.is_conj(), original.is_neg())
        assert original.numel() == 0 or copy.data_ptr() != original.data_ptr()
    assert len({copy.untyped_storage().data_ptr() for copy in copies[:4]}) == 1


def test_copies_of_conjugates_are_not_mixed_up(device):
    """Each of them once became a temporary whose address the next one got."""
    originals = [torch.full((9, 9), complex(i, 1)).conj() for i in range(20)]
    for request in (None, judge.Request("wide")):
        sample = types.SimpleNamespace(input=originals[0], args=tuple(originals[1:]), kwargs={})
        copies = samples.Arguments(sample, "cpu", request=request).tensors()
        assert [copy[0, 0].item() for copy in copies] == [complex(i, -1) for i in range(20)]


# An entry that is wrong on the device in one way


class FakeOp:
    """An entry of the database as entry.py sees it; `broken` runs in the place of `right` on the device."""

    name, variant_test_name, supports_autograd, decorators = "fake", "", True, ()

    def __init__(self, right, broken=None, out=False, inplace=None, inputs=(6, 5)):
        self.right, self.broken, self.inplace, self.inputs = right, broken or right, inplace, inputs
        self.supports_out = out

    def __call__(self, x, **keywords):
        return (self.broken if x.is_cuda else self.right)(x, **keywords)

    def get_inplace(self):
        return self.inplace

    def supported_backward_dtypes(self, device):
        return {torch.float32, torch.float16}

    def sample_inputs(self, device, dtype, requires_grad):
        x = torch.randn(*self.inputs, requires_grad=False).to(dtype).requires_grad_(requires_grad)
        sample = {"input": x, "args": (), "kwargs": {}, "output_process_fn_grad": None, "broadcasts_input": False}
        return [types.SimpleNamespace(**sample)]


class ConstantGradient(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x * 2

    @staticmethod
    def backward(context, grad):
        return grad * 2.01


def add_one_to_input(x):
    result = x * 2
    x.detach().view(-1)[0].add_(1)
    return result


def raise_error(x):
    raise NotImplementedError("there is no such operator")


def noise(x):
    return torch.rand_like(x)


WRONG = {
    "values differ": FakeOp(lambda x: x * 2, lambda x: x * 2.01),
    "dtype torch.float64": FakeOp(lambda x: x * 2, lambda x: x.double() * 2),
    "shape (5, 6)": FakeOp(lambda x: x * 2, lambda x: (x * 2).t()),
    "strides (1, 6)": FakeOp(lambda x: x * 2, lambda x: (x * 2).t().contiguous().t().clone()),
    "result is on cpu": FakeOp(lambda x: x * 2, lambda x: (x * 2).cpu()),
    "structure": FakeOp(lambda x: (x * 2,), lambda x: x * 2),
    "aliasing": FakeOp(lambda x: x.view(-1), lambda x: x.clone().view(-1)),
    "requires_grad False": FakeOp(lambda x: x * 2, lambda x: x.detach() * 2),
    "gradient: values differ": FakeOp(lambda x: x * 2, ConstantGradient.apply),
    "inputs afterwards": FakeOp(lambda x: x * 2, add_one_to_input),
    "the device raised NotImplementedError: there is no such operator": FakeOp(lambda x: x * 2, raise_error),
    "two runs with the same seed differ": FakeOp(noise, lambda x: torch.rand(x.shape, generator=FREE).to(x.device)),
    "48 seeds give one and the same result": FakeOp(noise, lambda x: torch.linspace(0, 1, x.numel()).view_as(x).to(x)),
    "of 48 runs is": FakeOp(noise, lambda x: torch.rand_like(x) * 0.8),
    "in-place, sample 0: values differ": FakeOp(lambda x: x * 2, inplace=lambda x: x.mul_(2.01 if x.is_cuda else 2.0)),
    "in-place, sample 0[0]: aliasing": FakeOp(
        lambda x: x * 2, inplace=lambda x: x.mul_(2).detach().requires_grad_() if x.is_cuda else x.mul_(2)
    ),
    "out=, sample 0, same layout: values differ": FakeOp(
        lambda x, out=None: torch.mul(x, 2, out=out),
        lambda x, out=None: torch.mul(x, 2) if out is None else out,
        out=True,
    ),
    "the result was put into new memory": FakeOp(
        lambda x, out=None: torch.mul(x, 2, out=out),
        lambda x, out=None: torch.mul(x, 2) if out is None else out.set_(torch.mul(x, 2, out=torch.empty_like(out))),
        out=True,
    ),
}
FREE = torch.Generator().manual_seed(1)


def run_fake(op, **options):
    checks = entry.Entry(op, torch.float32, "cuda", tolerance.Tolerance({}), **options)
    checks.run()
    return checks.counts


@pytest.mark.parametrize("text", WRONG)
def test_an_entry_that_is_wrong_in_one_way_is_found(device, text):
    with pytest.raises(compare.Difference) as caught:
        run_fake(WRONG[text])
    assert text in str(caught.value)


def test_an_entry_that_is_right_passes_and_everything_was_compared(device):
    twice = lambda x, out=None: torch.mul(x, 2, out=out)  # noqa: E731
    counts = run_fake(FakeOp(twice, out=True, inplace=lambda x: x.mul_(2)))
    assert {name: counts[name] for name in ("samples", "backward", "inplace", "out")} == {
        "samples": 1, "backward": 1, "inplace": 1, "out": 3,
    }  # fmt: skip
    assert run_fake(FakeOp(noise))["random"] == 1


@pytest.mark.parametrize(
    ("check_name", "text"),
    [
        ("values", "values differ"),
        ("strides", "strides (1, 6)"),
        ("aliases", "aliasing"),
        ("gradients", "gradient: values differ"),
        ("inplace", "in-place, sample 0: values differ"),
        ("out", "out=, sample 0, same layout: values differ"),
        ("random", "of 48 runs is"),
    ],
)
def test_a_check_that_a_device_leaves_out_is_not_made(device, check_name, text):
    run_fake(WRONG[text], checks=[name for name in expect.CHECKS if name != check_name])


def test_an_entry_that_the_cpu_cannot_run_has_no_reference(device):
    with pytest.raises(entry.CpuFails, match="NotImplementedError: there is no such operator"):
        run_fake(FakeOp(raise_error))


def test_an_entry_of_which_nothing_can_be_said_is_undecided(device):
    op = FakeOp(lambda x: torch.linalg.svd(x)[0], lambda x: -torch.linalg.svd(x.cpu())[0].cuda(), inputs=(4, 4))
    op.name, op.supports_autograd = "linalg.svd", False
    checks = entry.Entry(op, torch.float32, "cuda", tolerance.Tolerance({}))
    checks.run()
    assert checks.is_undecided and checks.counts["undecided"] and "unique" in checks.comparison.reason
