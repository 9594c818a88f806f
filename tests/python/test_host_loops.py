"""The quick loops of the embedded device's library where they change their way: tails, pages, wide numbers, NaN."""

import ditorch  # noqa: F401
import pytest
import torch
import torch.nn.functional as F

HALF_SPECIAL = [0.0, -0.0, 1.5, -2.25, float("inf"), -float("inf"), float("nan"), -float("nan"), 3e38, -1e-40]


def same(mine, theirs):
    """Bit by bit, NaN of any kind being one value."""
    mine = mine.cpu()
    assert mine.dtype is theirs.dtype and mine.shape == theirs.shape
    if theirs.is_floating_point() or theirs.is_complex():
        mine, theirs = torch.nan_to_num(mine, nan=77.0), torch.nan_to_num(theirs, nan=77.0)
    assert torch.equal(mine, theirs)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bfloat16, torch.float32, torch.float64, torch.complex128])
@pytest.mark.parametrize("width", [5, 33, 1024, 2049])
def test_roll_and_pads_of_lines(dtype, width):
    x = torch.arange(3 * 4 * width).reshape(3, 4, width).remainder(251).to(dtype)
    for y in (x, x.transpose(0, 1), x[:, ::2], x[..., ::2]):
        for shift in (0, 1, 3, width - 2, -70):
            same(y.cuda().roll(shift, -1), y.roll(shift, -1))
        same(y.cuda().roll((2, 5), (1, 2)), y.roll((2, 5), (1, 2)))
        for pad in ((2, 3), (0, 1, 2, 0), (-1, 4, 0, -1), (1, 1, 1, 1, 1, 1), (0, 0, 3, 2)):
            same(F.pad(y.cuda(), pad, value=7), F.pad(y, pad, value=7))
    if dtype is not torch.uint8:
        for mode in ("reflect", "replicate", "circular"):
            same(F.pad(x.cuda(), (2, 1), mode=mode), F.pad(x, (2, 1), mode=mode))
            same(F.pad(x[None].cuda(), (1, 2, 3, 1), mode=mode), F.pad(x[None], (1, 2, 3, 1), mode=mode))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.int64])
def test_products_of_integers(dtype):
    low, high = (0, 256) if dtype is torch.uint8 else (torch.iinfo(dtype).min, torch.iinfo(dtype).max)
    for m, n, k in ((1, 1, 1), (3, 5, 2), (4, 8, 7), (5, 17, 9), (9, 16, 33), (6, 3, 0), (64, 40, 65)):
        a, b, c = (torch.randint(low, high, shape).to(dtype) for shape in ((m, k), (k, n), (m, n)))
        same(a.cuda() @ b.cuda(), a @ b)
        same(torch.addmm(c.cuda(), a.cuda(), b.cuda(), beta=3, alpha=2), torch.addmm(c, a, b, beta=3, alpha=2))
        same(b.t().cuda() @ a.t().cuda(), b.t() @ a.t())


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7, 8, 9, 1030])
def test_products_of_complex_numbers(dtype, count):
    x, y = (torch.randn(count, dtype=dtype) for _ in range(2))
    for function in (torch.mul, torch.add, torch.sub):
        torch.testing.assert_close(function(x.cuda(), y.cuda()).cpu(), function(x, y))
        torch.testing.assert_close(function(x.cuda()[::2], y.cuda()[::2]).cpu(), function(x[::2], y[::2]))
    z = x.cuda()
    torch.testing.assert_close(z.mul_(z).cpu(), x * x)
    whole = torch.complex(torch.arange(8.0), torch.arange(8.0) - 3).to(dtype)
    same(whole.cuda() * whole.cuda().flip(0), whole * whole.flip(0))


def bfloat16_functions():
    low, high = torch.tensor(0.3), torch.tensor(0.7)
    return {
        "relu": torch.relu,
        "leaky_relu": lambda x: F.leaky_relu(x, 0.1),
        "hardtanh": lambda x: F.hardtanh(x, -0.6, 1.1),
        "clamp": lambda x: x.clamp(-0.5, 0.7),
        "clamp_min": lambda x: x.clamp_min(0.1),
        "add number": lambda x: x + 1.125,  # the number is rounded to the dtype first, as in PyTorch
        "rsub": lambda x: 2 - x,
        "mul number": lambda x: x * 0.3,
        "div number": lambda x: x / 3,
        "square": torch.square,
        "pow 3": lambda x: x**3,
        "maximum": lambda x: torch.maximum(x, x.flip(0)),
        "minimum": lambda x: torch.minimum(x, x.flip(0)),
        "tanh": torch.tanh,
        "add alpha": lambda x: torch.add(x, x.flip(0), alpha=0.5),
        "addcmul": lambda x: torch.addcmul(x, x.flip(0), x, value=0.3),
        "addcdiv": lambda x: torch.addcdiv(x, x.flip(0), x, value=0.3),
        "lerp": lambda x: torch.lerp(x, x.flip(0), 0.3),
        "lerp far": lambda x: torch.lerp(x, x.flip(0), 0.8),
        "where": lambda x: torch.where(x > low.to(x), x, high.to(x)),
    }


@pytest.mark.parametrize("name", bfloat16_functions())
def test_bfloat16_is_computed_in_float_and_rounded_once(name):
    function = bfloat16_functions()[name]
    x = torch.cat([torch.tensor(HALF_SPECIAL), torch.randn(1000) * 3]).to(torch.bfloat16)
    for y in (x, x[::3], x[10:].reshape(10, 100).t()):
        wide = function(y.float())
        near = torch.tensor(2.0**-8) * wide.abs().nan_to_num(0, 0, 0) + 1e-38
        mine = function(y.cuda()).cpu()
        assert mine.dtype is torch.bfloat16
        assert torch.equal(mine.isnan(), wide.to(torch.bfloat16).isnan()), name
        ends = wide.to(torch.bfloat16).isinf()
        assert torch.equal(mine[ends], wide.to(torch.bfloat16)[ends]), name
        inner = ~(ends | wide.isnan())
        assert ((mine.float() - wide).abs()[inner] <= near[inner]).all(), name


def test_relu_of_bfloat16_keeps_nan_and_is_exact_for_all_numbers():
    x = torch.arange(-(1 << 15), 1 << 15).to(torch.int16).view(torch.bfloat16)
    mine, theirs = torch.relu(x.cuda()).cpu(), torch.relu(x)
    assert torch.equal(mine.isnan(), x.isnan())
    assert torch.equal(mine[~x.isnan()], theirs[~x.isnan()])
    for limits in ((float("nan"), 1.0), (0.0, float("nan"))):
        assert torch.ops.aten.hardtanh(x.cuda(), *limits).isnan().all()


def test_int64_to_float_of_wide_and_narrow_numbers():
    x = torch.arange(-2000, 2000)
    edges = [2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**53 + 1, 2**63 - 1, -(2**63), 2**24 + 1]
    for place in (0, 255, 256, 3000):
        y = x.clone()
        y[place : place + len(edges)] = torch.tensor(edges)
        for z in (y, y[::3], y[5:]):
            same(z.cuda().float(), z.float())
            same(z.cuda().to(torch.bfloat16), z.to(torch.bfloat16))
            same(z.cuda() * 0.5, z * 0.5)


def test_a_zero_divisor_is_found_anywhere():
    for dtype in (torch.uint8, torch.int16, torch.int32, torch.int64):
        x, y = torch.full((3000,), 7, dtype=dtype), torch.full((3000,), 2, dtype=dtype)
        for z in (y, y[::2]):
            same(x[: z.numel()].cuda() // z.cuda(), x[: z.numel()] // z)
        for place in (0, 1, 2999):
            z = y.clone()
            z[place] = 0
            with pytest.raises(RuntimeError, match="ZeroDivisionError"):
                x.cuda() // z.cuda()
            with pytest.raises(RuntimeError, match="ZeroDivisionError"):
                x.cuda() % z.cuda()


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.float64, torch.float32, torch.bfloat16])
def test_arange_into_dense_and_strided_memory(dtype):
    for count in (0, 1, 100, 5000 if dtype not in (torch.uint8, torch.bfloat16) else 200):
        same(torch.arange(3, 3 + count, dtype=dtype, device="cuda"), torch.arange(3, 3 + count, dtype=dtype))
        out, expected = torch.zeros(2 * count, dtype=dtype, device="cuda"), torch.zeros(2 * count, dtype=dtype)
        torch.arange(0, count, out=out[::2])
        torch.arange(0, count, out=expected[::2])
        same(out, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("mean", [0.0, 30.0, 1000.0])
def test_norms_with_a_large_mean(dtype, mean):
    x = (torch.randn(6, 8, 5003) + mean).to(dtype)
    rounding = torch.finfo(dtype).eps
    for function in (lambda t: F.layer_norm(t, t.shape[-1:]), lambda t: F.group_norm(t, 2)):
        wanted = function(x.double())
        allowed = rounding * 4 * (1 + wanted.abs()) + 2e-6 * (1 + mean)
        assert ((function(x.cuda()).cpu().double() - wanted).abs() <= allowed).all()
    constant = torch.full((4, 8, 700), 0.3).to(dtype).cuda()
    assert F.layer_norm(constant, (700,)).abs().max() < 1e-2 and not F.group_norm(constant, 2).isnan().any()


def test_moments_of_bfloat16_whose_first_elements_mislead():
    """A guess of the mean that is far off, and blocks of different means: nothing of the variance is lost."""
    x = torch.randn(4, 9000)
    x[:, :40] = 500.0
    x[2, 4000:] += 64.0
    x = x.to(torch.bfloat16)
    wanted = F.layer_norm(x.double(), (9000,))
    mine = F.layer_norm(x.cuda(), (9000,)).cpu().double()
    assert ((mine - wanted).abs() <= 2.0**-8 * (0.01 + wanted.abs())).all()
    y = torch.full((3, 5000), 3.0)
    y[1, ::2] = 3.015625
    y = y.to(torch.bfloat16)
    wanted = F.group_norm(y.view(1, 3, 5000).double(), 3)
    mine = F.group_norm(y.view(1, 3, 5000).cuda(), 3).cpu().double()
    assert ((mine - wanted).abs() <= 2.0**-8 * (0.01 + wanted.abs())).all()
    bad = x.clone()
    bad[0, 5], bad[1, 7] = float("nan"), float("inf")
    mine = F.layer_norm(bad.cuda(), (9000,)).cpu()
    assert mine[:2].isnan().all() and not mine[2:].isnan().any()


def test_division_of_wide_narrow_and_negative_integers():
    numbers = [0, 1, -1, 7, -7, 2**31 - 1, -(2**31), 2**32 - 1, 2**32, 2**40 + 3, -(2**40), 2**63 - 1, -(2**63) + 1]
    x, y = torch.tensor(numbers), torch.tensor([n for n in numbers if n != 0])
    x, y = x.repeat_interleave(len(y)), y.repeat(len(x))
    for mode in ("floor", "trunc"):
        same(torch.div(x.cuda(), y.cuda(), rounding_mode=mode), torch.div(x, y, rounding_mode=mode))
    same(x.cuda() % y.cuda(), x % y)
    small, divisor = x.to(torch.int8), y.to(torch.int8).masked_fill(y.to(torch.int8) == 0, 3)
    same(small.cuda() % divisor.cuda(), small % divisor)
    same(small.cuda() // divisor.cuda(), small // divisor)
