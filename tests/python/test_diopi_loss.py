"""The host library's losses, scans and sorting against PyTorch on the CPU in float64."""

from __future__ import annotations

import math

import pytest
import torch
from ditorch import diopi
from torch.nn import functional

HOST = diopi.Library("host")
SEED = 11
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
ROUNDING = {torch.float16: 2e-3, torch.bfloat16: 1.6e-2, torch.float32: 1e-5, torch.float64: 1e-11}
REDUCTIONS = ("none", "mean", "sum")


def draw(shape, dtype=torch.float32, seed=SEED):
    """Random numbers of the dtype; the seed is the test's."""
    generator = torch.Generator().manual_seed(seed + sum(shape) + len(shape))
    if dtype == torch.bool:
        return torch.rand(shape, generator=generator) > 0.5
    if not dtype.is_floating_point:
        return torch.randint(0 if dtype == torch.uint8 else -9, 9, shape, generator=generator).to(dtype)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def permute(tensor):
    """The same values, the first dimension fastest."""
    order = list(reversed(range(tensor.dim())))
    return tensor.permute(order).contiguous().permute(order)


def close(got, want, factor=1.0):
    """Equal up to the rounding of the result's dtype."""
    limit = ROUNDING.get(got.dtype, 0) * factor
    torch.testing.assert_close(
        got.double(), want.double(), rtol=limit, atol=limit, equal_nan=True, msg=lambda m: f"seed {SEED}: {m}"
    )


def refuse(code, words, function, *arguments, untouched=()):
    """The call fails with a code and a text; outputs are as before."""
    before = [tensor.clone() for tensor in untouched]
    assert HOST.invoke(function, *arguments) == code, HOST.get_error()
    text = HOST.get_error()
    assert text.startswith(function) and all(word in text for word in words), text
    for old, new in zip(before, untouched, strict=True):
        assert torch.equal(old, new), function


def gradient(function, x, upstream):
    """Gradient by autograd in float64."""
    leaf = x.double().clone().requires_grad_()
    out = function(leaf)
    out.backward(upstream.double())
    return leaf.grad


def focal(x, t, alpha, gamma, reduction):
    """Formula of the focal loss as in torchvision."""
    p = torch.sigmoid(x)
    loss = functional.binary_cross_entropy_with_logits(x, t, reduction="none")
    loss = loss * (1 - (p * t + (1 - p) * (1 - t))) ** gamma
    if alpha >= 0:
        loss = loss * (alpha * t + (1 - alpha) * (1 - t))
    return {"none": lambda v: v, "mean": torch.mean, "sum": torch.sum}[reduction](loss)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_losses_between_elements(dtype, reduction):
    shape, code = (7, 130), REDUCTIONS.index(reduction)
    x, t = draw(shape, dtype), draw(shape, dtype, 3)
    p, chance = torch.sigmoid(x), torch.sigmoid(t)
    p[0, 0], p[0, 1] = 0, 1
    w, q = draw((130,), dtype, 4).abs(), draw((130,), dtype, 5).abs()
    wd, qd, td, cd = w.double(), q.double(), t.double(), chance.double()
    rows = [
        ("MSELoss", x, t, (), (), lambda v: functional.mse_loss(v, td, reduction=reduction)),
        ("SmoothL1Loss", x, t, (), (0.7,), lambda v: functional.smooth_l1_loss(v, td, reduction=reduction, beta=0.7)),
        ("BCELoss", p, chance, (w,), (), lambda v: functional.binary_cross_entropy(v, cd, wd, reduction=reduction)),
        ("BCELoss", p, chance, (None,), (), lambda v: functional.binary_cross_entropy(v, cd, reduction=reduction)),
        (
            "BCEWithLogits",
            x,
            chance,
            (w, q),
            (),
            lambda v: functional.binary_cross_entropy_with_logits(v, cd, wd, pos_weight=qd, reduction=reduction),
        ),
        (
            "BCEWithLogits",
            x,
            chance,
            (None, None),
            (),
            lambda v: functional.binary_cross_entropy_with_logits(v, cd, reduction=reduction),
        ),
    ]
    for name, a, b, before, after, reference in rows:
        want = reference(a.double())
        out = torch.full(want.shape, 9, dtype=dtype)
        HOST.call(f"diopi{name}", out, permute(a), b, *before, code, *after)
        close(out, want, factor=4)
        upstream = draw(want.shape, dtype, 8)
        grad = torch.full_like(a, 9)
        HOST.call(f"diopi{name}Backward", grad, upstream, a, permute(b), *before, code, *after)
        expected = gradient(reference, a, upstream)
        keep = torch.ones(shape, dtype=torch.bool)
        keep[0, :2] = name != "BCELoss"  # the ends of the interval have no slope in finite precision
        close(grad[keep], expected[keep], factor=16)
    for alpha, gamma in ((0.25, 2.0), (-1.0, 1.0), (0.5, 0.0)):
        want = focal(x.double(), cd, alpha, gamma, reduction)
        out = torch.full(want.shape, 9, dtype=dtype)
        HOST.call("diopiSigmoidFocalLoss", out, x, chance, alpha, gamma, code)
        close(out, want, factor=4)
        upstream, grad = draw(want.shape, dtype, 8), torch.full_like(x, 9)
        HOST.call("diopiSigmoidFocalLossBackward", upstream, x, chance, grad, gamma, alpha, code)
        close(grad, gradient(lambda v, a=alpha, c=gamma: focal(v, cd, a, c, reduction), x, upstream), factor=16)


def test_losses_broadcast_and_alias():
    x, t = draw((4, 6)), draw((6,), seed=3)
    out = torch.empty(4, 6)
    HOST.call("diopiMSELoss", out, x, t, 0)
    close(out, (x - t).double() ** 2)
    same = x.clone()
    HOST.call("diopiMSELoss", same, same, t, 0)
    assert torch.equal(same, out)
    same = x.clone()
    grad = torch.empty(4, 6)
    HOST.call("diopiBCEWithLogitsBackward", grad, torch.ones(()), x, x.abs(), None, None, 1)
    HOST.call("diopiBCEWithLogitsBackward", same, torch.ones(()), same, x.abs(), None, None, 1)
    assert torch.equal(same, grad)
    empty, out = torch.empty(0, 3), torch.full((), 9.0)
    HOST.call("diopiMSELoss", out, empty, empty, 1)
    assert math.isnan(out.item())
    HOST.call("diopiMSELoss", out, empty, empty, 2)
    assert out.item() == 0


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", ((9, 5), (5,), (3, 5, 4, 2), (300, 5)))
def test_losses_of_classes(shape, dtype, reduction):
    code, dim = REDUCTIONS.index(reduction), 0 if len(shape) == 1 else 1
    x = draw(shape, dtype)
    points = [size for d, size in enumerate(shape) if d != dim]
    target = torch.randint(0, 5, points, generator=torch.Generator().manual_seed(SEED))
    if len(shape) > 1:
        target.view(-1)[1] = 3 if len(points) == 0 else -100
    chances = torch.softmax(draw(shape, dtype, 4).double(), dim).to(dtype)
    logs = torch.log_softmax(x.double(), dim).to(dtype)
    for weight in (None, draw((5,), dtype, 6).abs() + 0.1):
        wd = None if weight is None else weight.double()
        for smoothing in (0.0, 0.3):
            for goal in (target, chances):
                gd = goal.double() if goal.is_floating_point() else goal
                reference = lambda v, g=gd, w=wd, s=smoothing: functional.cross_entropy(  # noqa: E731
                    v, g, w, reduction=reduction, label_smoothing=s
                )
                want = reference(x.double())
                out = torch.full(want.shape, 9, dtype=dtype)
                HOST.call("diopiCrossEntropyLoss", out, permute(x), goal, weight, code, -100, smoothing)
                close(out, want, factor=4)
                upstream, grad = draw(want.shape, dtype, 8), torch.full_like(x, 9)
                HOST.call("diopiCrossEntropyLossBackward", grad, upstream, x, goal, weight, code, -100, smoothing)
                close(grad, gradient(reference, x, upstream), factor=8)
        reference = lambda v, w=wd: functional.nll_loss(v, target, w, reduction=reduction)  # noqa: E731
        want = reference(logs.double())
        out, total = torch.full(want.shape, 9, dtype=dtype), torch.full((), 9, dtype=dtype)
        HOST.call("diopiNLLLoss", out, permute(logs), target, weight, code, -100)
        close(out, want, factor=4)
        HOST.call("diopiNLLLossV2", out, total, logs, target, weight, code, -100)
        close(out, want, factor=4)
        counted = target[target != -100]
        weights = counted.numel() if weight is None else weight.double()[counted].sum()
        close(total, torch.tensor(0.0 if reduction == "none" else float(weights), dtype=torch.float64), factor=4)
        upstream = draw(want.shape, dtype, 8)
        for name, extra in (("NLLLossBackward", ()), ("NLLLossV2Backward", (total,))):
            grad = torch.full_like(x, 9)
            HOST.call(f"diopi{name}", grad, upstream, logs, target, weight, *extra, code, -100)
            close(grad, gradient(reference, logs, upstream), factor=8)


def test_losses_refuse():
    x, t, out = draw((4, 5)), torch.tensor([0, 1, 5, 2]), torch.full((), 9.0)
    refuse(1, ("target", "5"), "diopiCrossEntropyLoss", out, x, t, None, 1, -100, 0.0, untouched=[out])
    refuse(1, ("target", "5"), "diopiNLLLossBackward", x, out, x, t, None, 1, -100, untouched=[x])
    refuse(
        1, ("label_smoothing",), "diopiCrossEntropyLoss", out, x, t.clamp(max=4), None, 1, -100, 2.0, untouched=[out]
    )
    refuse(1, ("weight", "3"), "diopiNLLLoss", out, x, t.clamp(max=4), torch.ones(3), 1, -100, untouched=[out])
    refuse(1, ("target", "shape"), "diopiNLLLoss", out, x, t[:2], None, 1, -100, untouched=[out])
    refuse(1, ("reduction", "7"), "diopiMSELoss", out, x, x, 7, untouched=[out])
    refuse(1, ("between 0 and 1",), "diopiBCELoss", out, torch.full((3,), 1.5), torch.ones(3), None, 1, untouched=[out])
    refuse(1, ("one",), "diopiMSELoss", torch.empty(4, 5), x, x, 1)
    refuse(1, ("beta", "-1"), "diopiSmoothL1Loss", out, x, x, 1, -1.0, untouched=[out])
    refuse(1000, ("int64",), "diopiMSELoss", out, t, t, 1, untouched=[out])


@pytest.mark.parametrize("dtype", (*FLOATS, *INTEGERS, torch.bool, torch.complex64))
def test_cumsum(dtype):
    x = torch.randn(5, 70, 6, dtype=dtype) if dtype.is_complex else draw((5, 70, 6), dtype)
    floating = dtype.is_floating_point or dtype.is_complex
    wide = torch.complex128 if dtype.is_complex else torch.float64 if floating else torch.int64
    for dim in (0, 1, -1):
        for view in (x, permute(x)):
            out = torch.full(x.shape, 9, dtype=dtype if floating else torch.int64)
            HOST.call("diopiCumsum", out, view, dim)
            want = x.to(wide).cumsum(dim)
            torch.testing.assert_close(out.to(wide), want, rtol=ROUNDING.get(dtype, 1e-5), atol=1e-4)
        if floating:
            same = x.clone()
            HOST.call("diopiCumsumBackward", same, same, dim)
            want = x.to(wide).flip(dim).cumsum(dim).flip(dim)
            torch.testing.assert_close(same.to(wide), want, rtol=ROUNDING.get(dtype, 1e-5), atol=1e-4)


@pytest.mark.parametrize("dtype", (*FLOATS, *INTEGERS, torch.bool))
@pytest.mark.parametrize("shape", ((3, 7), (4, 300, 3), (2, 1500), (0, 3), ()))
def test_sort(shape, dtype):
    x = draw(shape, dtype)
    if dtype.is_floating_point and x.numel() > 10:
        flat = x.view(-1)
        flat[2], flat[3], flat[4], flat[5] = math.nan, math.inf, -math.inf, -0.0
        flat[6] = 0.0
    for dim in range(max(len(shape), 1)):
        for descending in (False, True):
            view = permute(x) if len(shape) else x
            values, indices = torch.sort(x, dim=dim, descending=descending, stable=True)
            got, where = torch.full_like(values, 1), torch.full_like(indices, 99)
            HOST.call("diopiSort", got, where, view, dim, descending, True)
            assert torch.equal(where, indices), (dim, descending, SEED)
            assert torch.equal(got.nan_to_num(), values.nan_to_num())
            where.fill_(99)
            HOST.call("diopiArgsort", where, x, True, dim, descending)
            assert torch.equal(where, indices)
            if not shape or dtype == torch.bool:
                continue
            for k in {0, min(1, x.shape[dim]), x.shape[dim] // 20, x.shape[dim]}:
                values = torch.topk(x, k, dim, descending).values
                got, where = torch.full_like(values, 1), torch.full(values.shape, 99)
                HOST.call("diopiTopk", got, where, view, k, dim, descending, True)
                assert torch.equal(got.nan_to_num(), values.nan_to_num())
                assert torch.equal(torch.gather(x, dim, where).nan_to_num(), values.nan_to_num())
                assert (where.sort(dim).values.diff(dim=dim) > 0).all()


def test_sort_backward():
    x, g = draw((4, 6, 3)), draw((4, 6, 3), seed=2)
    for dim in range(3):
        indices = x.argsort(dim)
        out = torch.full_like(x, 9)
        HOST.call("diopiSortBackward", out, permute(g), dim, indices, x.shape, True)
        assert torch.equal(out, torch.zeros_like(x).scatter(dim, indices, g))
    best, g = x.max(1), draw((4, 3))
    out = torch.full_like(x, 9)
    HOST.call("diopiSortBackward", out, g, 1, best.indices, x.shape, False)
    assert torch.equal(out, torch.zeros_like(x).scatter(1, best.indices[:, None], g[:, None]))
    wrong = best.indices + 6
    refuse(1, ("indices",), "diopiSortBackward", out, g, 1, wrong, x.shape, False, untouched=[out])
    refuse(1, ("k",), "diopiTopk", x[:, :5], best.indices, x, 7, 1, True, True, untouched=[x])
    refuse(1000, ("complex64",), "diopiArgsort", wrong, torch.zeros(4, 3, dtype=torch.complex64), True, 0, False)


@pytest.mark.parametrize("dtype", (*FLOATS, *INTEGERS, torch.bool))
def test_unique(dtype):
    x = draw((6, 50), dtype)
    if dtype.is_floating_point:
        x = (x * 2).round()
        x[1, :3] = math.nan
        x[2, 4] = -0.0
    for dim in (None, 0, 1):
        source = permute(x)
        if dim is not None:
            source = torch.cat((x, x[:2]), 0) if dim == 0 else torch.cat((x, x[:, 3:20]), 1)
            source = source.nan_to_num(7)
        values, inverse, counts = torch.unique(source, return_inverse=True, return_counts=True, dim=dim)
        out, total, where = diopi.Required(), diopi.Required(), torch.full_like(inverse, 99)
        HOST.call("diopiUnique", out, source, dim, True, True, where, total)
        assert out.shape == tuple(values.shape) and total.shape == tuple(counts.shape)
        got = torch.frombuffer(bytearray(out.data), dtype=dtype).view(values.shape)
        assert torch.equal(got.nan_to_num(9), values.nan_to_num(9))
        assert torch.equal(torch.frombuffer(bytearray(total.data), dtype=torch.int64), counts)
        assert torch.equal(where, inverse)


def test_unique_slices_with_nan():
    """NaN is neither less nor greater than anything, and differs from itself."""
    nan = math.nan
    for rows in ([[nan], [0], [0], [nan], [nan], [1]], [[1, nan], [1, nan], [0, 3], [0, 3]], [[nan, 2], [nan, 1]]):
        x = torch.tensor(rows)
        values, inverse, counts = torch.unique(x, return_inverse=True, return_counts=True, dim=0)
        out, total, where = diopi.Required(), diopi.Required(), torch.full_like(inverse, 99)
        HOST.call("diopiUnique", out, x, 0, True, True, where, total)
        got = torch.frombuffer(bytearray(out.data), dtype=x.dtype).view(out.shape)
        torch.testing.assert_close(got, values, rtol=0, atol=0, equal_nan=True)
        assert torch.equal(where, inverse)
        assert torch.equal(torch.frombuffer(bytearray(total.data), dtype=torch.int64), counts)


def test_topk_of_ties_takes_the_first():
    for x, k in ((torch.tensor([1.0, 2, 2, 1, 2] * 300), 700), (torch.zeros(70000), 9), (torch.ones(8, 33), 5)):
        for largest in (True, False):
            values, indices = torch.topk(x.cuda(), k, largest=largest)
            order = torch.sort(x, descending=largest, stable=True)
            assert torch.equal(values.cpu(), order.values[..., :k])
            assert torch.equal(indices.cpu(), order.indices[..., :k])


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("dtype", (torch.float32, torch.float64))
def test_ctc(dtype, reduction):
    code, steps, classes = REDUCTIONS.index(reduction), 12, 6
    inputs, labels = torch.tensor([12, 9, 3, 5]), torch.tensor([4, 3, 3, 0])
    targets = torch.tensor([[1, 2, 2, 5], [3, 1, 4, 0], [2, 2, 2, 0], [0, 0, 0, 0]])  # the third cannot be reached
    logits = draw((steps, 4, classes), dtype)
    for flat in (False, True):
        goal = torch.cat([row[:n] for row, n in zip(targets, labels, strict=True)]) if flat else targets
        reference = lambda v, t=goal: functional.ctc_loss(  # noqa: E731
            torch.log_softmax(v, 2), t, inputs, labels, 0, reduction, True
        )
        logs = torch.log_softmax(logits, 2)
        want = reference(logits.double())
        out, nll = torch.full(want.shape, 9, dtype=dtype), torch.full((4,), 9, dtype=dtype)
        alpha = torch.full((4, steps, 9), 9, dtype=dtype)
        HOST.call("diopiCTCLoss", out, nll, alpha, permute(logs), goal, inputs, labels, 0, code, True)
        close(out, want, factor=4)
        upstream, grad = draw(want.shape, dtype, 8), torch.full_like(logs, 9)
        HOST.call("diopiCTCLossBackward", grad, upstream, logs, goal, inputs, labels, nll, alpha, 0, code, True)
        close(grad, gradient(reference, logits, upstream), factor=16)
    bad = targets.clone()
    bad[0, 1] = 6
    refuse(
        1, ("targets", "6"), "diopiCTCLoss", out, nll, alpha, logs, bad, inputs, labels, 0, code, True, untouched=[out]
    )
