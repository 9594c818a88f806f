"""Complex numbers on the device against the CPU: arithmetic, functions, products, sums, conjugates, random numbers."""

import math

import pytest
import torch
from twice import draw, layouts, twice

COMPLEX = (torch.complex64, torch.complex128)
BINARY = ("add", "sub", "mul", "div", "pow", "eq", "ne")
UNARY = ["abs", "neg", "sqrt", "rsqrt", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh"]
UNARY += ["atanh", "exp", "expm1", "log", "log2", "log10", "log1p", "reciprocal", "tanh", "sigmoid", "sgn", "isnan"]
UNARY += ["logical_not", "conj_physical"]
LOOSE = {torch.complex64: {"rtol": 2e-5, "atol": 2e-5}, torch.complex128: {}}


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("dtype", COMPLEX)
def test_binary(name, dtype):
    function, x, y = getattr(torch, name), draw((4, 5), dtype), draw((4, 5), dtype, seed=5)
    for other in layouts(y):
        twice(function, x, other, **LOOSE[dtype])
    for other in (y[0], draw((4, 5)), torch.tensor(3 + 1j, dtype=dtype), draw((4, 5), torch.int32)):
        twice(function, x, other, **LOOSE[dtype])
        twice(lambda a, b: function(b, a), x, other, **LOOSE[dtype])
    twice(lambda x: function(x, 2.5), x, **LOOSE[dtype])
    twice(lambda x: function(x, 2j), x, in_c=name in ("add", "sub", "mul", "div"), **LOOSE[dtype])


def test_promotion_and_places():
    x, real = draw((4, 5), torch.complex64), draw((4, 5))
    twice(lambda r: r * 2j, real)
    twice(lambda r: r + (1 + 2j), real.double())
    twice(lambda r: r * 2j, draw((4,), torch.int64))
    twice(lambda x, y: torch.add(x, y, alpha=0.5), x, x.flip(0))
    twice(lambda x, y: x.add_(y), x.clone(), real)
    twice(lambda x, y: x.mul_(y), real.clone(), x)  # refused: a real tensor takes no complex result
    twice(lambda x, o: torch.mul(x, 2, out=o), real, x.clone())
    twice(lambda x, o: torch.abs(x, out=o), x, torch.empty(0))
    twice(lambda x: x.abs_(), x.clone())  # refused
    twice(lambda c, x, y: torch.where(c, x, y), real > 0, x, x.flip(0))
    twice(lambda c, x, y: torch.where(c, x, y), real > 0, x, real)
    with pytest.raises(RuntimeError, match="can't be cast"):
        real.cuda().add_(x.cuda())


@pytest.mark.parametrize("name", UNARY)
def test_unary(name):
    for dtype in COMPLEX:
        for x in layouts(draw((4, 5), dtype)):
            twice(getattr(torch, name), x, **LOOSE[dtype])


@pytest.mark.parametrize("dtype", COMPLEX)
def test_fill_and_masks(dtype):
    x, mask = draw((4, 5), dtype), draw((4, 5), torch.bool)
    twice(lambda x: x.clone().fill_(1 + 2j), x)
    twice(lambda x: torch.full_like(x, 3j), x)
    twice(lambda x: torch.full_like(x.t(), 3j), x)
    twice(lambda x, m: x.masked_fill(m, 1j), x, mask)
    twice(lambda x, i: x.index_fill(0, i, 1j), x, torch.tensor([1, 3]))
    twice(lambda x, y: x.fill_(y), x.clone(), torch.tensor(2 + 1j, dtype=dtype))


@pytest.mark.parametrize("dtype", COMPLEX)
def test_products_and_sums(dtype):
    x, y, batch = draw((4, 5), dtype), draw((5, 3), dtype, seed=5), draw((2, 4, 5), dtype)
    twice(torch.mm, x, y)
    twice(torch.bmm, batch, batch.transpose(1, 2))
    twice(lambda b, x, y: torch.addmm(b, x, y, beta=0.5, alpha=2), draw((4, 3), dtype), x, y)
    twice(torch.mv, x, draw((5,), dtype))
    for dims in (None, 0, 1, (0, 1)):
        twice(lambda x, dims=dims: x.sum(dims), x)
        twice(lambda x, dims=dims: x.mean(dims), x)
        twice(lambda x, dims=dims: x.sum(dims, keepdim=True), x.t())
    twice(lambda x: x.sum(dtype=torch.complex128), x, in_c=dtype == torch.complex128)


@pytest.mark.parametrize("dtype", COMPLEX)
def test_lazy_conjugates(dtype):
    """conj is a view with a bit; the copy that makes it real, and products of it, run in C."""
    x = draw((4, 5), dtype)
    for view in layouts(x):
        twice(lambda x: x.conj().clone(), view)
        twice(lambda x: x.conj().resolve_conj(), view)
        twice(lambda x: x @ x.mH, view)
        twice(lambda x: x.conj() * x, view)
        twice(lambda x: x.conj().imag.clone(), view)
        twice(lambda x, y: x.copy_(y.conj()), x.clone(), view)
    twice(lambda x, y: x.conj().copy_(y), x.clone(), x.flip(0))
    twice(lambda x: x.conj().t().contiguous(), x)


def test_from_parts():
    a, b = draw((3, 4)), draw((4,), seed=5)
    twice(torch.complex, a, b)
    twice(torch.polar, a, b)
    twice(torch.complex, a.double(), b.double())
    twice(torch.complex, a.t(), a.t())
    twice(torch.complex, a.half(), b.half(), in_c=False)
    twice(lambda a, b, o: torch.complex(a, b, out=o), a, b, torch.empty(0, dtype=torch.complex64))
    twice(lambda a, b, o: torch.complex(a, b, out=o), a, b, torch.empty(0), in_c=False)  # refused


def test_random_numbers():
    torch.manual_seed(5)
    x = torch.randn(200_000, dtype=torch.complex64, device="cuda")
    assert abs(x.mean().cpu()) < 0.02
    assert math.isclose(x.abs().pow(2).mean().item(), 1, rel_tol=0.02)
    assert math.isclose(x.real.var().item(), 0.5, rel_tol=0.02)
    torch.manual_seed(5)
    assert torch.equal(x, torch.randn(200_000, dtype=torch.complex64, device="cuda"))
    y = torch.empty(1000, dtype=torch.complex128, device="cuda").uniform_(2, 3)
    for part in (y.real, y.imag):
        assert part.min().item() >= 2
        assert part.max().item() < 3


def test_gradients():
    def run(device):
        x = draw((4, 5), torch.complex64).to(device).requires_grad_()
        y = draw((5, 3), torch.complex64, seed=5).to(device).requires_grad_()
        ((x @ y).exp() * (x.conj() @ y.conj())).abs().sum().backward()
        return x.grad, y.grad

    for mine, wanted in zip(run("cuda"), run("cpu"), strict=True):
        torch.testing.assert_close(mine.cpu(), wanted, rtol=1e-4, atol=1e-4)
