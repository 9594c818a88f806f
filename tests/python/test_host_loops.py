"""The quick loops of the embedded device's library where they change their way: tails, pages, wide numbers, NaN."""

import ditorch  # noqa: F401
import pytest
import torch
import torch.nn.functional as F

LAST = {"memory_format": torch.channels_last}
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


# Layouts: what lies in another order than its result goes tile by tile


def layouts(x):
    """Views of a 4-d tensor in other orders, with gaps and with repetitions."""
    yield x.contiguous(**LAST)
    yield x.permute(0, 2, 1, 3)
    yield x.permute(3, 1, 2, 0)
    yield x.permute(3, 2, 1, 0)[1:]
    yield x[:, :, ::2, 1:]
    yield x[:, :1].expand_as(x)


def numbers(dtype, *shape):
    x = torch.randint(-90, 90, shape, generator=torch.Generator().manual_seed(3))
    if dtype.is_complex:
        return torch.complex(x.float(), x.flip(0).float()).to(dtype)
    return x.bool() if dtype is torch.bool else x.abs().to(dtype) if dtype is torch.uint8 else x.to(dtype)


PLAIN = (torch.bool, torch.uint8, torch.int16, torch.int64, torch.bfloat16, torch.float16, torch.float32, torch.float64)


@pytest.mark.parametrize("source", [*PLAIN, torch.complex64], ids=str)
def test_copies_that_turn_and_convert(source):
    for y in layouts(numbers(source, 5, 33, 40, 9)):
        for target in (*PLAIN, torch.complex64):
            if source.is_complex and not target.is_complex:
                continue
            same(
                torch.empty(y.shape, dtype=target, device="cuda").copy_(y.cuda()),
                torch.empty(y.shape, dtype=target).copy_(y),
            )


@pytest.mark.filterwarnings("ignore:Casting complex", "ignore:ComplexHalf")
@pytest.mark.parametrize("source", [torch.complex32, torch.complex64, torch.complex128], ids=str)
def test_conversions_of_complex_numbers(source):
    parts = [0.0, -0.0, 1.5, -2.5, 300.0, float("inf"), -float("inf"), float("nan"), 1e-30]
    x = torch.tensor([complex(a, b) for a in parts for b in parts] * 9, dtype=torch.complex128).to(source)
    for y in (x, x[::2]):
        for target in (torch.complex32, torch.complex64, torch.complex128, torch.float32, torch.bfloat16, torch.bool):
            got, want = y.cuda().to(target).cpu(), y.to(target)
            same(*(torch.view_as_real(z).float() if target.is_complex else z for z in (got, want)))
    for real in PLAIN:
        y = numbers(real, 700)
        got, want = y.cuda().to(source).cpu(), y.to(source)
        same(torch.view_as_real(got).float(), torch.view_as_real(want).float())


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_quotients_powers_and_signs_of_complex_numbers(dtype):
    x, y, z = (torch.randn(3, 37, dtype=dtype, generator=torch.Generator().manual_seed(i)) for i in range(3))
    scale = 1e30 if dtype is torch.complex64 else 1e200
    functions = (
        torch.div,
        lambda a, b: a * scale / (b * scale),  # no square overflows
        lambda a, b: b.reciprocal(),
        lambda a, b: a / 3,
        lambda a, b: a.square() + b**3,
        lambda a, b: a.sgn() + b.abs(),
        lambda a, b: torch.addcmul(a, a, b, value=0.5),
        lambda a, b: torch.addcdiv(a, a, b, value=0.5),
        lambda a, b: torch.lerp(a, b, 0.3) + torch.lerp(a, b, 0.8),
        lambda a, b: torch.lerp(a, b, b),
    )
    for function in functions:
        torch.testing.assert_close(function(x.cuda(), y.cuda()).cpu(), function(x, y))
        torch.testing.assert_close(function(x.cuda().t(), y.cuda().t()).cpu(), function(x.t(), y.t()))
    w = z.cuda()
    torch.testing.assert_close(w.div_(w).cpu(), torch.ones_like(z))
    ends = torch.tensor([complex(float("inf"), float("nan")), complex(float("nan"), 1), 0, complex(3e38, 3e38)]).to(
        dtype
    )
    same(ends.cuda().abs(), ends.abs())
    same(ends[2:3].cuda().sgn(), ends[2:3].sgn())
    assert not torch.isfinite((x.cuda() / torch.zeros_like(x.cuda())).cpu()).any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_softmax_of_short_lines_and_other_layouts(dtype):
    def compare(x, dim):
        for function in (torch.softmax, torch.log_softmax):
            got, want = function(x.cuda(), dim).cpu(), function(x.double(), dim)
            torch.testing.assert_close(got, want.to(dtype), rtol=None, atol=None, equal_nan=True)

    for length in (1, 2, 7, 15, 16, 17, 63, 64, 65, 127, 128, 129):
        x = torch.randn(37, length, dtype=torch.float64).to(dtype) * 4
        x[0, 0], x[1, -1], x[2] = float("nan"), float("inf"), -float("inf")
        compare(x, 1)
        compare(x[:, : max(1, length - 3)], 1)
    for y in layouts(torch.randn(5, 18, 12, 9).to(dtype)):
        for dim in range(4):
            compare(y, dim)
            y_ = y.cuda()
            got = torch.softmax(y_, dim, dtype=torch.float32) if dtype.itemsize == 2 else torch.softmax(y_, dim)
            torch.testing.assert_close(got.cpu(), torch.softmax(y.to(got.dtype), dim))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("channels", [1, 3, 16, 511, 512, 700])
def test_batch_norm_of_few_and_many_channels_that_lie_together(dtype, channels):
    x = (torch.randn(3, channels, 7, 5) * 2 + 3).to(dtype).contiguous(**LAST)
    weight, bias = torch.randn(channels), torch.randn(channels)
    sides = []
    for device, wide in (("cuda", dtype), ("cpu", torch.float64)):
        own, w, b = (
            t.to(device, wide if t is x else torch.promote_types(torch.float32, wide)).requires_grad_()
            for t in (x, weight, bias)
        )
        out = F.batch_norm(own, None, None, w, b, training=True)
        grad = torch.sin(torch.arange(out.numel(), dtype=torch.float32)).reshape(out.shape).to(dtype)
        sides.append([out, *torch.autograd.grad(out, (own, w, b), grad.to(device, wide))])
    for got, want in zip(*sides, strict=True):
        tolerance = 3e-2 if dtype is torch.bfloat16 else 2e-4
        torch.testing.assert_close(got.detach().cpu().double(), want.detach(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.uint8, torch.bfloat16, torch.float32, torch.int64, torch.complex128], ids=str
)
def test_rows_by_position_of_other_layouts(dtype):
    x = numbers(dtype, 6, 17, 12, 11)
    index = torch.tensor([4, 0, 4, 5, -1])
    for y in layouts(x):
        z, i = y.cuda(), index.cuda()
        same(z[i], y[index])
        same(z[:, i], y[:, index])
        same(z.index_select(0, i[:3]), y.index_select(0, index[:3]))
        if y.stride(1) != 0:
            new, mine = y.clone()[index[2:]] != 0, y.clone()
            mine[index[2:]] = new.to(dtype)
            z = y.cuda()
            z[i[2:]] = new.to(dtype).cuda()
            same(z, mine)
    wide = index[:4, None, None, None].expand(4, 17, 12, 11)
    same(x.cuda().gather(0, wide.cuda()), x.gather(0, wide))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("shape", [(5, 3), (40, 300), (700, 65), (3, 40000)], ids=str)
def test_sums_by_position_of_half_types_are_rounded_once(dtype, shape):
    x, y = (torch.randn(shape, generator=torch.Generator().manual_seed(i)).to(dtype) for i in range(2))
    index = torch.randint(shape[0], (shape[0],), generator=torch.Generator().manual_seed(2))
    wide = index[:, None].expand(shape)
    scattered = torch.randint(shape[0], shape, generator=torch.Generator().manual_seed(3))
    for i in (wide, scattered):
        same(x.cuda().scatter_add(0, i.cuda(), y.cuda()), x.float().scatter_add(0, i, y.float()).to(dtype))
        turned = x.t().cuda().scatter_add(1, i.t().cuda(), y.cuda().t())
        same(turned, x.float().scatter_add(0, i, y.float()).to(dtype).t())
    same(x.cuda().index_add(0, index.cuda(), y.cuda()), x.float().index_add(0, index, y.float()).to(dtype))


@pytest.mark.parametrize("dtype", [*PLAIN, torch.complex64], ids=str)
def test_reductions_of_other_layouts(dtype):
    x = numbers(dtype, 9, 18, 12, 5)
    if dtype.is_floating_point or dtype.is_complex:
        x = x % 3 - 1 if not dtype.is_complex else x
    names = ["sum", "prod", "any", "all", "amax", "amin"]
    for y in (x, *layouts(x)):
        z = y.cuda()
        for dim in (0, 1, 2, 3, (0, 2), (2, 3), (0, 2, 3), (0, 1, 2, 3)):
            for name in names:
                if (name in ("amax", "amin", "prod", "any", "all") and dtype.is_complex) or (
                    name == "prod" and isinstance(dim, tuple)
                ):
                    continue
                function = getattr(torch, name)
                got, want = function(z, dim).cpu(), function(y, dim)
                torch.testing.assert_close(
                    got, want, rtol=None, atol=None, msg=lambda text, n=name, d=dim: f"{n} {d}: {text}"
                )


@pytest.mark.parametrize(
    "dtype", [torch.uint8, torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.complex64], ids=str
)
@pytest.mark.filterwarnings("ignore:Casting complex")
@pytest.mark.parametrize("shape", [(7, 300), (8, 129), (40, 33), (129, 200), (300, 1000)], ids=str)
def test_operands_across_each_other(dtype, shape):
    a, b = numbers(dtype, *shape), numbers(dtype, shape[1], shape[0])
    same(a.cuda() + b.cuda().t(), a + b.t())
    same(b.cuda().t() * a.cuda(), b.t() * a)
    same(a.cuda() - b.cuda().t()[:1], a - b.t()[:1])
    same(torch.where(b.cuda().t() != 0, a.cuda(), b.cuda().t()), torch.where(b.t() != 0, a, b.t()))
    same(torch.where(b.cuda().t() != 0, a.cuda()[0], a.cuda()), torch.where(b.t() != 0, a[0], a))
    same(a.cuda() + b.cuda().t().to(torch.float64), a + b.t().to(torch.float64))
    mine, theirs = a.cuda(), a.clone()
    mine.t().add_(b.cuda())
    theirs.t().add_(b)
    same(mine, theirs)


def test_one_number_under_a_mask():
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.complex64, torch.bool):
        x, mask = numbers(dtype, 4, 5, 6), numbers(torch.bool, 5, 6)
        number = torch.ones((), dtype=dtype)
        for value in (number, number[None]):
            for at in (
                (slice(None), mask),
                (slice(None), mask[:, 0]),
                (mask[:4, 0],),
                (slice(None), slice(None), mask[0]),
            ):
                mine, theirs = x.cuda(), x.clone()
                mine[tuple(i.cuda() if torch.is_tensor(i) else i for i in at)] = value.cuda()
                theirs[at] = value
                same(mine, theirs)
    mine = torch.zeros(3, 4).cuda()
    with pytest.raises((IndexError, RuntimeError)):
        mine[torch.ones(4, dtype=torch.bool).cuda()] = torch.ones(()).cuda()


@pytest.mark.parametrize("dtype", [torch.complex64, torch.float32, torch.uint8], ids=str)
def test_running_sums_of_lines_side_by_side(dtype):
    for width in (1, 2, 3, 4, 5, 8, 9):
        x = numbers(dtype, 3, 50, width)
        same(x.cuda().cumsum(1), x.cumsum(1))
        same(x.cuda().cumsum(0), x.cumsum(0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_norms_of_short_rows_and_of_channels_that_lie_together(dtype):
    tolerance = {torch.float32: 2e-5, torch.float64: 1e-12, torch.bfloat16: 2e-2, torch.float16: 3e-3}[dtype]

    def compare(function, *tensors):
        got = function(*(t.cuda() for t in tensors))
        want = function(*(t.double() for t in tensors))
        torch.testing.assert_close(got.cpu().double(), want, rtol=tolerance, atol=tolerance, equal_nan=True)

    for length in (1, 2, 31, 32, 33, 100, 255, 256, 257):
        x = (torch.randn(70, length, dtype=torch.float64) + 9).to(dtype)
        w, b = torch.randn(2, length, dtype=torch.float64).to(dtype)
        compare(lambda x, w, b, n=length: F.layer_norm(x, (n,), w, b), x, w, b)
        compare(lambda x, w, n=length: F.layer_norm(x, (n,), w), x, w)
        compare(lambda x, w, n=length: F.rms_norm(x, (n,), w), x, w)
        x[3, -1] = float("nan")
        compare(lambda x, n=length: F.layer_norm(x, (n,)), x)
    for channels in (4, 6, 96, 600):
        x = (torch.randn(3, channels, 5, 6, dtype=torch.float64) * 2 + 5).to(dtype).contiguous(**LAST)
        w, b = torch.randn(2, channels, dtype=torch.float64).to(dtype)
        compare(lambda x, w, b: F.group_norm(x, 2, w, b), x, w, b)
        compare(lambda x: F.group_norm(x, 1), x)
        compare(lambda x: F.instance_norm(x), x)
        y = x.cuda()
        _, mean, scale = torch.ops.aten.native_group_norm(y, None, None, 3, channels, 30, 2, 1e-5)
        rows = x.double().reshape(3, 2, -1)
        torch.testing.assert_close(mean.cpu().double(), rows.mean(2), rtol=tolerance, atol=tolerance)
        wanted = (rows.var(2, correction=0) + 1e-5).rsqrt()
        torch.testing.assert_close(scale.cpu().double(), wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_nearest_neighbours_of_channels_that_lie_together(dtype):
    for channels in (1, 2, 4, 7, 8):
        x = torch.randn(2, channels, 5, 6).to(dtype).contiguous(**LAST)
        for size in ((5, 6), (10, 12), (7, 3)):
            same(F.interpolate(x.cuda(), size=size), F.interpolate(x, size=size))


def test_dot_of_long_lines():
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        for count in (1, 127, 128, 1000, 70001):
            x, y = (torch.randn(count, generator=torch.Generator().manual_seed(i)).to(dtype) for i in range(2))
            want = x.double().dot(y.double())
            near = (x.double() * y.double()).abs().sum() * {torch.float32: 1e-6, torch.float64: 1e-14}.get(dtype, 1e-2)
            assert (x.cuda().dot(y.cuda()).cpu().double() - want).abs() <= near
            assert (x.cuda() @ y.cuda()[:, None] - x.cuda().dot(y.cuda())).abs().max() <= near
