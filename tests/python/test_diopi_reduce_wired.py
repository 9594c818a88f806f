"""Reductions and pooling on the device against the CPU: operators made of several DIOPI functions, and the loops at
every length.

Everything must run in C (no fallback). Exact where the arithmetic is: extremes, counts, truth, sums of small whole
numbers.
"""

import math

import ditorch
import pytest
import torch

SEED = 11
FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
PLAIN = (*FLOATS, torch.int64, torch.int32, torch.uint8, torch.bool)
LENGTHS = (1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 47, 63, 64, 65, 95, 127, 129, 255, 257, 1000, 2048, 2049, 4100, 70000)
DIMS = (None, 0, -1, (0, 2), (1, 2), (0, 1, 2))
LAYOUTS = ("plain", "permuted", "strided", "expanded", "channels_last")


def draw(shape, dtype, seed=SEED):
    generator = torch.Generator().manual_seed(seed + sum(shape))
    values = torch.randint(-3, 4, shape, generator=generator)
    if dtype in (torch.uint8, torch.bool):
        return (values.clamp_min(0) if dtype == torch.uint8 else values > 0).to(dtype)
    return values.to(dtype)


def lay(tensor, layout):
    if layout == "permuted":
        return tensor.transpose(0, -1).contiguous().transpose(0, -1)
    if layout == "strided":
        return torch.stack([tensor, tensor], -1)[..., 1]
    if layout == "expanded":
        return tensor[:, :1].expand(tensor.shape)
    if layout == "channels_last" and tensor.dim() == 4:
        return tensor.contiguous(memory_format=torch.channels_last)
    return tensor


def to_device(tensor):
    """The same strides on the device."""
    if any(stride == 0 for stride in tensor.stride()):
        return tensor[:, :1].cuda().expand(tensor.shape)
    return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="cuda").copy_(tensor)


def check(function, *tensors, tolerance=0.0):
    """The same on the device as on the CPU, without a fallback."""
    wanted = function(*tensors)
    moved = [to_device(tensor) for tensor in tensors]
    ditorch.reset_counters()
    got = function(*moved)
    fallen = [row["operator"] for row in ditorch.fallbacks()]
    assert not fallen, fallen
    pairs = zip(got, wanted, strict=True) if isinstance(wanted, tuple) else [(got, wanted)]
    for mine, theirs in pairs:
        assert mine.dtype == theirs.dtype and mine.stride() == theirs.stride(), (mine.stride(), theirs.stride())
        torch.testing.assert_close(
            mine.cpu(), theirs, rtol=tolerance, atol=tolerance, equal_nan=True, msg=lambda m: f"seed {SEED}: {m}"
        )


def limit(dtype):
    return 4 * torch.finfo(dtype).eps


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", PLAIN)
def test_folds_of_dimensions(dtype, layout):
    """any, all, amin, aminmax, count_nonzero over any set of dimensions."""
    x = lay(draw((4, 3, 5, 2), dtype), layout)
    for dim in DIMS:
        for keep in (False, True):
            if dim is not None:
                check(lambda t, dim=dim, keep=keep: torch.any(t, dim, keepdim=keep), x)
                check(lambda t, dim=dim, keep=keep: torch.all(t, dim, keepdim=keep), x)
                check(lambda t, dim=dim, keep=keep: torch.amin(t, dim, keepdim=keep), x)
            if not isinstance(dim, tuple):
                check(lambda t, dim=dim, keep=keep: tuple(torch.aminmax(t, dim=dim, keepdim=keep)), x)
        check(lambda t, dim=dim: torch.count_nonzero(t, dim), x)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_spread(dtype, layout):
    """var, var_mean, std, std_mean with every correction that PyTorch does not warn about."""
    x = lay(draw((4, 3, 5, 2), dtype), layout)
    for dim in DIMS:
        for correction in (None, 0, 1):
            for name in ("var", "std", "var_mean", "std_mean"):

                def run(t, name=name, dim=dim, correction=correction):
                    function = getattr(torch, name)
                    if dim is None:
                        return function(t) if correction is None else function(t, correction=correction)
                    return function(t, dim, correction=1 if correction is None else correction, keepdim=True)

                check(run, x, tolerance=limit(dtype))


@pytest.mark.parametrize("dtype", FLOATS)
def test_nansum_and_norms(dtype):
    x = draw((4, 3, 5), dtype)
    x[1, 2, 3] = math.nan
    for dim in (None, 0, (0, 2)):
        check(lambda t, dim=dim: torch.nansum(t, dim), x)
    check(lambda t: torch.nansum(t, 1, keepdim=True, dtype=torch.float64), x)
    for p in (0, 1, 2, 3, math.inf, -math.inf):
        check(
            lambda t, p=p: torch.linalg.vector_norm(t, p, (0, 2), True), draw((4, 3, 5), dtype), tolerance=limit(dtype)
        )


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex_norm(dtype):
    x = torch.randn(6, 5, dtype=dtype, generator=torch.Generator().manual_seed(SEED))
    for p in (1, 2, math.inf):
        check(lambda t, p=p: torch.linalg.vector_norm(t, p, 1), x, tolerance=1e-6)


def test_given_results():
    x = draw((4, 3, 5), torch.float32).cuda()
    ditorch.reset_counters()
    for function, dtypes, argument in (
        (torch.ops.aten.any.dims_out, (torch.bool,), {"dim": [0, 2]}),
        (torch.ops.aten.all.dims_out, (torch.bool,), {"dim": [0, 2]}),
        (torch.ops.aten.amin.out, (torch.float32,), {"dim": [0, 2]}),
        (torch.ops.aten.nansum.out, (torch.float32,), {"dim": [0, 2]}),
        (torch.ops.aten.var.correction_out, (torch.float32,), {"dim": [0, 2], "correction": 1}),
        (torch.ops.aten.count_nonzero.dim_IntList_out, (torch.int64,), {"dim": [0, 2]}),
    ):
        out = torch.full((3,), 7, device="cuda").to(dtypes[0])
        wanted = torch.empty(3, dtype=dtypes[0])
        function(x, out=out, **argument)
        function(x.cpu(), out=wanted, **argument)
        torch.testing.assert_close(out.cpu(), wanted, rtol=1e-6, atol=1e-6)
    assert not ditorch.fallbacks()
    least, most = torch.empty(3, device="cuda"), torch.empty(3, device="cuda")
    y = draw((3, 9), torch.float32)
    torch.aminmax(y.cuda(), dim=1, out=(least, most))
    assert torch.equal(least.cpu(), y.amin(1)) and torch.equal(most.cpu(), y.amax(1))


def test_gradients():
    """The operators' derivatives run on the device too."""
    for function in (lambda t: t.var(1), lambda t: torch.var_mean(t, 0)[0], lambda t: t.amin((0, 1)), torch.nansum):
        x = torch.randn(5, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(SEED))
        mine, theirs = x.cuda().requires_grad_(), x.clone().requires_grad_()
        function(mine).sum().backward()
        function(theirs).sum().backward()
        torch.testing.assert_close(mine.grad.cpu(), theirs.grad)


def test_empty():
    for function in (
        lambda t: torch.any(t, (0, 1)),
        lambda t: torch.all(t, (0, 1)),
        lambda t: torch.count_nonzero(t, 1),
    ):
        check(function, torch.empty(3, 0, 2))
    with pytest.raises(IndexError):
        torch.empty(3, 0, device="cuda").amin(1)


@pytest.mark.parametrize("dtype", FLOATS)
def test_every_length(dtype):
    """Rows and columns around the borders of lanes, lines and sets: sums of whole numbers are exact."""
    for length in LENGTHS:
        rows = 3 if length > 5000 else 5
        small = draw((rows, length), torch.float32).clamp_(-1, 1).to(dtype)
        wanted = small.double().sum(1)
        got = small.cuda().sum(1, dtype=torch.float32 if dtype != torch.float64 else dtype)
        assert torch.equal(got.double().cpu(), wanted), length
        turned = small.t().contiguous()
        got = turned.cuda().sum(0, dtype=torch.float32 if dtype != torch.float64 else dtype)
        assert torch.equal(got.double().cpu(), wanted), length
        norm = torch.linalg.vector_norm(small.cuda(), dim=1).cpu()
        torch.testing.assert_close(norm, small.double().norm(dim=1).to(dtype), rtol=limit(dtype), atol=0)


@pytest.mark.parametrize("dtype", FLOATS)
def test_extremes_at_every_place(dtype):
    """The largest element, and a NaN, at the first, last and a middle place of rows and columns of every length."""
    for length in LENGTHS[:-1]:
        for place in {0, length - 1, length // 2, length // 3}:
            x = draw((4, length), dtype)
            x[1, place] = 9
            x[2, place] = -9
            x[3, place] = math.nan
            for turned in (False, True):
                t = (x.t().contiguous() if turned else x).cuda()
                dim = 0 if turned else 1
                what = (length, place, turned)
                most, least = t.amax(dim).cpu(), t.amin(dim).cpu()
                assert most[1] == 9 and least[2] == -9 and most[3].isnan() and least[3].isnan(), what
                assert torch.equal(most[:3], x[:3].amax(1)) and torch.equal(least[:3], x[:3].amin(1)), what
                assert t.argmax(dim)[1] == place and t.argmin(dim)[2] == place and t.argmax(dim)[3] == place, what


@pytest.mark.parametrize("shape", [(8, 6, 7, 9), (2, 3, 16, 64), (130, 2, 3, 3), (2, 300, 4, 4)])
def test_groups_of_dimensions(shape):
    """Runs of several dimensions, short and long, in both layouts."""
    x = draw(shape, torch.float32)
    for layout in ("plain", "channels_last", "permuted", "strided"):
        for dim in ((0, 2, 3), (2, 3), (0, 1), (1,), (1, 3), (0, 1, 2, 3)):
            t = lay(x, layout)
            check(lambda t, dim=dim: t.sum(dim), t)
            check(lambda t, dim=dim: t.amax(dim, keepdim=True), t)


def test_sum_is_accurate():
    """No worse than PyTorch's own on many equal signs, where errors add up."""
    x = torch.rand(3_000_001, generator=torch.Generator().manual_seed(SEED))
    exact = x.double().sum()
    mine, theirs = (x.cuda().sum().double().cpu() - exact).abs(), (x.sum().double() - exact).abs()
    assert mine <= max(theirs, 2e-7 * exact), (mine, theirs)


@pytest.mark.parametrize("layout", ["plain", "channels_last"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_mean_of_planes(dtype, layout):
    x = lay(draw((3, 70, 5, 6), dtype), layout)
    check(lambda t: torch.nn.functional.adaptive_avg_pool2d(t, 1).contiguous(), x, tolerance=limit(dtype))


@pytest.mark.parametrize("layout", ["plain", "channels_last"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64])
def test_pooling(dtype, layout):
    """Windows or channels side by side: values, indices (a NaN wins), padding, dilation, ceil_mode, divisors."""
    functional = torch.nn.functional
    for shape in ((2, 5, 9, 7), (1, 70, 6, 6), (2, 600, 3, 3), (1, 4, 4, 700)):
        x = lay(draw(shape, dtype), layout)
        if dtype.is_floating_point:
            x[0, 1, 2, 2] = math.nan
            x[0, 2, 1, 1] = -math.inf
        for options in (
            {"kernel_size": 2},
            {"kernel_size": 3, "stride": 2, "padding": 1},
            {"kernel_size": 3, "stride": (1, 3), "padding": 1},
            {"kernel_size": (2, 3), "stride": 1, "dilation": (2, 1), "padding": (1, 1), "ceil_mode": True}
            if shape[2] > 3
            else {"kernel_size": 3, "stride": 1},
        ):
            check(lambda t, o=options: functional.max_pool2d(t, return_indices=True, **o), x)
        if dtype == torch.int64:
            continue
        for options in (
            {"kernel_size": 2},
            {"kernel_size": 3, "stride": 2, "padding": 1, "count_include_pad": False},
            {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True},
            {"kernel_size": 2, "divisor_override": 3},
        ):
            check(lambda t, o=options: functional.avg_pool2d(t, **o), x, tolerance=limit(dtype))
        check(lambda t: functional.adaptive_avg_pool2d(t, 2), x, tolerance=limit(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_the_norm_of_one_number_is_its_magnitude(dtype):
    """As on the CPU: no power and no root round it."""
    x = torch.randn(3, 2, 1, 40).to(dtype)
    x[0, 0, 0, :3] = torch.tensor([0.0, float("nan"), float("-inf")])
    for order in (6, 2, 0.5, 1, -3, float("inf")):
        got = torch.linalg.vector_norm(x.cuda(), order, dim=2).cpu()
        assert torch.equal(got.nan_to_num(7), x[:, :, 0].abs().nan_to_num(7)), order


@pytest.mark.parametrize("width", [2, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int64])
def test_few_results_side_by_side(dtype, width):
    """Whole numbers, whose sums are exact in every order."""
    made = torch.randint(-3, 4, (3, 5000, width), generator=torch.Generator().manual_seed(width))
    x = made.to(dtype)
    for function in (torch.sum, torch.amax, torch.amin):
        for dims in (1, (0, 1)):
            assert torch.equal(function(x.cuda(), dims).cpu(), function(x, dims))
    long = torch.randint(-3, 4, (400_001, width)).to(dtype)
    expected = long.double().sum(0).to(dtype)
    assert torch.equal(long.cuda().sum(0).cpu(), expected)


@pytest.mark.parametrize("size", [1, 7, 8, 31, 32, 33, 500, 1031])
def test_extremes_of_int64(size):
    x = torch.randint(-(2**62), 2**62, (5, size))
    for function in (torch.amax, torch.amin):
        for dims in (0, 1, ()):
            assert torch.equal(function(x.cuda(), dims).cpu(), function(x, dims))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool])
def test_nansum_of_integers(dtype):
    x = torch.randint(0, 100, (7, 30)).to(dtype)
    ditorch.reset_counters()
    for options in ({}, {"dim": 1}, {"dim": 0, "keepdim": True}, {"dim": (0, 1)}, {"dim": 1, "dtype": torch.float32}):
        mine, expected = torch.nansum(x.cuda(), **options).cpu(), torch.nansum(x, **options)
        assert mine.dtype == expected.dtype
        assert torch.equal(mine, expected)
    assert not list(ditorch.fallbacks())
