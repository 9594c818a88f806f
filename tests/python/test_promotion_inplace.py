"""Type promotion, in-place rules, overlap checks, memory formats: the device follows the CPU, errors included."""

# ruff: noqa: B023 - the lambdas given to outcome() are called at once
import itertools
import warnings

import ditorch  # noqa: F401
import pytest
import torch

DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.complex128,
]
BINARY = {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div}
SCALARS = [True, 3, 2.5, 1 + 2j]
HALF = {
    "rtol": 8e-3,
    "atol": 8e-3,
}  # one unit in the last place of bfloat16: the CPU rounds some scalars first, the device does not


def sample(dtype, shape=(2, 3), seed=0):
    generator = torch.Generator().manual_seed(seed)
    if dtype is torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    if dtype.is_complex:
        return torch.complex(*(torch.randn(shape, generator=generator) for _ in range(2))).to(dtype)
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator).to(dtype)
    return torch.randint(1, 9, shape, generator=generator).to(dtype)


def outcome(function):
    """The result, or the class and text of the error."""
    try:
        return function()
    except Exception as error:  # compared with the CPU's
        return type(error), str(error).replace("cuda:0", "cpu").replace("cuda", "cpu")


def same(mine, wanted, **tolerance):
    lacks = isinstance(wanted, tuple) and wanted[0] is NotImplementedError and "'ComplexHalf'" in wanted[1]
    if lacks and isinstance(mine, torch.Tensor):  # complex32 works as on CUDA where the CPU has no kernel
        assert mine.is_cuda and mine.dtype is torch.complex32
        return
    if isinstance(wanted, tuple) and isinstance(wanted[0], type):
        assert mine == wanted, f"{mine} instead of {wanted}"
        return
    assert isinstance(mine, torch.Tensor), mine
    assert mine.is_cuda and mine.dtype == wanted.dtype and mine.shape == wanted.shape
    assert mine.stride() == wanted.stride(), f"strides {mine.stride()}, CPU {wanted.stride()}"
    torch.testing.assert_close(mine.cpu(), wanted, equal_nan=True, **tolerance)


@pytest.mark.parametrize("name", BINARY)
def test_promotion_of_all_pairs(name):
    function = BINARY[name]
    for a, b in itertools.product(DTYPES, DTYPES):
        x, y = sample(a, seed=1), sample(b, seed=2)
        low = torch.float16 in (a, b) or torch.bfloat16 in (a, b)
        for left, right in ((x, y), (x, y[0, 0]), (x[0, 0], y)):
            wanted = outcome(lambda: function(left, right))
            same(outcome(lambda: function(left.cuda(), right.cuda())), wanted, **(HALF if low else {}))


@pytest.mark.parametrize("name", BINARY)
def test_promotion_with_python_numbers_and_cpu_scalars(name):
    function = BINARY[name]
    for a, number in itertools.product(DTYPES, SCALARS):
        x = sample(a, seed=3)
        low = a in (torch.float16, torch.bfloat16)
        same(outcome(lambda: function(x.cuda(), number)), outcome(lambda: function(x, number)), **(HALF if low else {}))
        zero_dim = torch.tensor(number)
        same(
            outcome(lambda: function(x.cuda(), zero_dim)),
            outcome(lambda: function(x, zero_dim)),
            **(HALF if low else {}),
        )
        same(
            outcome(lambda: function(zero_dim, x.cuda())),
            outcome(lambda: function(zero_dim, x)),
            **(HALF if low else {}),
        )


@pytest.mark.parametrize("name", ["add_", "sub_", "mul_", "div_"])
def test_in_place_keeps_the_dtype_or_refuses(name):
    for a, b in itertools.product(DTYPES, DTYPES):
        x, y = sample(a, seed=4), sample(b, seed=5)
        mine = x.cuda()
        wanted = outcome(lambda: getattr(x, name)(y))
        low = torch.float16 in (a, b) or torch.bfloat16 in (a, b)
        got = outcome(lambda: getattr(mine, name)(y.cuda()))
        same(got, wanted, **(HALF if low else {}))
        if isinstance(got, torch.Tensor):
            assert got is mine
        else:
            torch.testing.assert_close(mine.cpu(), x)


@pytest.mark.parametrize("alpha", [2, -1, 0.5, True])
@pytest.mark.parametrize("dtype", [torch.int32, torch.float32, torch.bool, torch.complex64])
def test_alpha(dtype, alpha):
    x, y = sample(dtype, seed=6), sample(dtype, seed=7)
    for function in (torch.add, torch.sub):
        same(outcome(lambda: function(x.cuda(), y.cuda(), alpha=alpha)), outcome(lambda: function(x, y, alpha=alpha)))


@pytest.mark.parametrize("mode", [None, "trunc", "floor"])
@pytest.mark.parametrize("dtype", [torch.int8, torch.int64, torch.float32, torch.bfloat16])
def test_rounding_modes(dtype, mode):
    x, y = sample(dtype, (40,), 8), sample(dtype, (40,), 9)
    same(torch.div(x.cuda(), y.cuda(), rounding_mode=mode), torch.div(x, y, rounding_mode=mode))


def test_integer_division_by_zero_is_an_error_not_a_crash():
    x = torch.arange(4)
    for mode in ("trunc", "floor"):
        wanted = outcome(lambda: torch.div(x, 0 * x, rounding_mode=mode))
        assert outcome(lambda: torch.div(x.cuda(), 0 * x.cuda(), rounding_mode=mode)) == wanted


def test_complex_numbers_to_the_power_of_zero_are_one():
    x = torch.tensor([complex("nan"), complex("inf"), 1 + 2j, 0])
    for exponent in (0, 0.0, -0.0, False, 0j):
        same(x.cuda() ** exponent, x**exponent)
        same(x.cuda().pow_(exponent), x.clone().pow_(exponent))
    same(x.cuda() ** torch.zeros(4, device="cuda"), x ** torch.zeros(4))


def test_addcdiv_divides_no_integers_whatever_they_are_added_to():
    for one, two in itertools.product((torch.uint8, torch.int64, torch.bool, torch.float32), repeat=2):
        values = torch.ones(3), torch.ones(3, dtype=one), torch.ones(3, dtype=two)
        on_device = [value.cuda() for value in values]
        wanted = outcome(lambda: torch.addcdiv(*values))
        mine = outcome(lambda: torch.addcdiv(*on_device))
        same(mine, wanted) if isinstance(wanted, torch.Tensor) else None
        assert isinstance(wanted, torch.Tensor) or mine == wanted


# Overlap


def test_overlapping_writes_are_refused_with_the_cpu_wording():
    cases = [
        lambda d: torch.arange(6.0, device=d)[:1].expand(6).add_(1),
        lambda d: (lambda x: x[1:].add_(x[:-1]))(torch.arange(6.0, device=d)),
        lambda d: (lambda x: torch.mul(x[:-1], 2, out=x[1:]))(torch.arange(6.0, device=d)),
        lambda d: torch.arange(3.0, device=d).as_strided((3, 3), (1, 1)).fill_(0) is not None,
        lambda d: (lambda x: torch.cat([x[:2], x[:2]], out=x))(torch.arange(4.0, device=d)),
        lambda d: (lambda x: torch.mm(x, x, out=x))(torch.ones(3, 3, device=d)),
        lambda d: torch.relu_(torch.zeros(1, device=d).expand(4)),
        lambda d: (lambda x: x.copy_(x[:, :1].expand(2, 2)))(torch.ones(2, 2, device=d)),
    ]
    for index, case in enumerate(cases):
        wanted, got = outcome(lambda: case("cpu")), outcome(lambda: case("cuda"))
        if isinstance(wanted, tuple):
            assert got == wanted, f"case {index}: {got} instead of {wanted}"
        elif isinstance(wanted, torch.Tensor):
            same(got, wanted)


def test_exact_overlap_is_allowed():
    x = torch.arange(6.0)
    y = x.cuda()
    same(y.add_(y), x.add_(x))
    same(y.mul_(y.view(6)), x.mul_(x.view(6)))
    same(torch.div(y, 2, out=y), torch.div(x, 2, out=x))


# Memory formats and strides

LAYOUTS = {
    "contiguous": lambda x: x,
    "channels_last": lambda x: x.to(memory_format=torch.channels_last),
    "transposed": lambda x: x.transpose(0, 3),
    "permuted": lambda x: x.permute(2, 0, 3, 1),
    "sliced": lambda x: x[:, 1:, ::2],
    "expanded": lambda x: x[:, :1].expand(-1, 3, -1, -1),
    "one element": lambda x: x[:1, :1, :1, :1],
    "empty": lambda x: x[:0],
    "zero-dim": lambda x: x[0, 0, 0, 0],
}
UNARY_AND_BINARY = {
    "x + 1": lambda x: x + 1,
    "x + x": lambda x: x + x,
    "x * row": lambda x: x * x[..., :1] if x.dim() else x * x,
    "relu": torch.relu,
    "gelu": torch.nn.functional.gelu,
    "clone": lambda x: x.clone(),
    "contiguous": lambda x: x.contiguous(),
    "double": lambda x: x.double(),
    "zeros_like": torch.zeros_like,
    "exp": torch.exp,
    "sum": lambda x: x.sum(),
    "sum last": lambda x: x.sum(-1, keepdim=True) if x.dim() else x.sum(),
    "mean first": lambda x: x.mean(0) if x.dim() else x.mean(),
    "softmax": lambda x: x.softmax(-1) if x.dim() else x.softmax(0),
    "softmax first": lambda x: x.softmax(0),
    "cat": lambda x: torch.cat([x, x], 0) if x.dim() else x + 0,
    "mixed": lambda x: x + x.contiguous(),
    "copy_": lambda x: torch.empty(x.shape, device=x.device).copy_(x),
    "fill_": lambda x: x.clone().fill_(3.5),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_strides_and_values_by_layout(layout):
    x = torch.randn(2, 3, 4, 5)
    for name, function in UNARY_AND_BINARY.items():
        view = LAYOUTS[layout](x)
        mine = LAYOUTS[layout](x.cuda())
        assert mine.stride() == view.stride()
        try:
            same(function(mine), function(view))
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from None


def test_moves_keep_strides_and_memory_format():
    x = torch.randn(2, 3, 4, 5)
    for make in LAYOUTS.values():
        view = make(x)
        assert view.cuda().stride() == view.to("cpu", copy=True).stride()
        assert view.cuda().cpu().stride() == view.to("cpu", copy=True).stride()
        assert torch.equal(view.cuda().cpu(), view)


# Out=


def test_out_is_resized_with_the_same_warning():
    texts = []
    for device in ("cpu", "cuda"):
        out = torch.ones(7, device=device)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torch.add(torch.ones(2, 3, device=device), 1, out=out)
        assert out.shape == (2, 3)
        texts.append([str(w.message)[:90] for w in caught])
    assert texts[0] == texts[1] and len(texts[0]) == 1


def test_out_of_another_dtype():
    for dtype in DTYPES:
        wanted = outcome(lambda: torch.add(torch.ones(3), torch.ones(3), out=torch.empty(3, dtype=dtype)))
        got = outcome(
            lambda: torch.add(torch.ones(3).cuda(), torch.ones(3).cuda(), out=torch.empty(3, dtype=dtype).cuda())
        )
        same(got, wanted)


# Matrix products

MATRIX_DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.complex64]


@pytest.mark.parametrize("dtype", MATRIX_DTYPES, ids=str)
def test_matrix_products(dtype):
    a, b = sample(dtype, (5, 7), 1), sample(dtype, (7, 4), 2)
    c = sample(dtype, (5, 4), 3)
    tolerance = {"rtol": 2e-2, "atol": 6e-2} if dtype in (torch.float16, torch.bfloat16) else {}
    for left, right in (
        (a, b),
        (a.t().contiguous().t(), b),
        (a, b.t().contiguous().t()),
        (a[:, ::2], b[::2]),
        (a[:0], b),
        (a[:, :0], b[:0]),
    ):
        same(left.cuda() @ right.cuda(), left @ right, **tolerance)
        same(
            torch.addmm(c[: left.shape[0]].cuda(), left.cuda(), right.cuda(), beta=2, alpha=3),
            torch.addmm(c[: left.shape[0]], left, right, beta=2, alpha=3),
            **tolerance,
        )
        batch = torch.stack([left, left]), torch.stack([right, right])
        same(torch.bmm(batch[0].cuda(), batch[1].cuda()), torch.bmm(*batch), **tolerance)
    same(torch.addmm(c[0].cuda(), a.cuda(), b.cuda()), torch.addmm(c[0], a, b), **tolerance)


def test_beta_zero_ignores_what_was_there():
    poison = torch.full((2, 2), float("nan"), device="cuda")
    one = torch.ones(2, 2, device="cuda")
    assert torch.equal(torch.addmm(poison, one, one, beta=0), one * 2)


def test_wrong_shapes_have_the_cpu_wording():
    for function in (
        lambda d: torch.mm(torch.ones(2, 3, device=d), torch.ones(2, 3, device=d)),
        lambda d: torch.ones(2, 3, device=d) + torch.ones(4, device=d),
        lambda d: torch.bmm(torch.ones(2, 3, 4, device=d), torch.ones(3, 4, 5, device=d)),
        lambda d: torch.cat([torch.ones(2, 3, device=d), torch.ones(2, 4, device=d)]),
        lambda d: torch.ones(2, 3, device=d).sum(5),
        lambda d: torch.ones(2, device=d).softmax(3),
        lambda d: torch.mm(torch.ones(2, 2, device=d), torch.ones(2, 2, dtype=torch.float64, device=d)),
        lambda d: torch.ones(2, dtype=torch.int64, device=d).mean(),
        lambda d: torch.ones(3, device=d).view(2),
    ):
        wanted = outcome(lambda: function("cpu"))
        assert isinstance(wanted, tuple)
        assert outcome(lambda: function("cuda")) == wanted


# Reductions, cat, copy, fill


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_reductions(dtype):
    x = sample(dtype, (4, 5, 6), 1)
    tolerance = {"rtol": 2e-2, "atol": 2e-2} if dtype in (torch.float16, torch.bfloat16) else {}
    for view in (x, x.transpose(0, 2), x[:, ::2], x[:0], x[:, :0]):
        for dims in (None, 0, (0, 2), -1, (0, 1, 2)):
            for keep in (False, True):
                arguments = {} if dims is None else {"dim": dims, "keepdim": keep}
                same(view.cuda().sum(**arguments), view.sum(**arguments), **tolerance)
                same(
                    outcome(lambda: view.cuda().mean(**arguments)), outcome(lambda: view.mean(**arguments)), **tolerance
                )
        same(view.cuda().sum(dtype=torch.float64), view.sum(dtype=torch.float64), **tolerance)


def test_long_reductions_stay_accurate():
    x = torch.rand(1 << 20)
    exact = x.double().sum().item()
    assert abs(x.cuda().sum().item() - exact) / exact < 1e-6
    half = torch.full((100000,), 0.01, dtype=torch.float16)
    assert abs(half.cuda().sum(dtype=torch.float32).item() - half.double().sum().item()) < 0.1


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_cat(dim):
    parts = [torch.randn(2, 3), torch.randn(2, 3).double(), torch.ones(2, 3, dtype=torch.int32), torch.empty(0)]
    same(torch.cat([p.cuda() for p in parts], dim), torch.cat(parts, dim))
    strided = [torch.randn(3, 2).t(), torch.randn(4, 6)[::2, ::2]]
    same(torch.cat([p.cuda() for p in strided], dim), torch.cat(strided, dim))


def test_copy_between_all_dtypes_and_layouts():
    for a, b in itertools.product(DTYPES, DTYPES):
        if a.is_complex and not b.is_complex:
            continue
        x = sample(a, (3, 4), 1)
        same(x.cuda().t().to(b), x.t().to(b))
        target, wanted = torch.zeros(4, 6, dtype=b, device="cuda"), torch.zeros(4, 6, dtype=b)
        target[:, ::2].copy_(x.cuda().t())
        wanted[:, ::2].copy_(x.t())
        same(target, wanted)
        target[:, ::2] = x.t()  # straight from the CPU
        same(target, wanted)
        back = torch.zeros(4, 3, dtype=b)
        back.copy_(x.cuda().t())
        torch.testing.assert_close(back, x.t().to(b))


def test_fill_zero_and_scalar_writes():
    for dtype in DTYPES:
        x = sample(dtype, (3, 4), 1)
        mine = x.cuda()
        for target in (x, mine):
            target[1] = 1
            target[:, 2].fill_(True)
            target[2:, ::2].zero_()
        same(mine, x)


def test_version_counter_and_aliases_follow():
    x = torch.zeros(4, device="cuda")
    view = x[1:3]
    version = x._version
    view.add_(1)
    assert x._version == version + 1
    assert x.tolist() == [0, 1, 1, 0]
    x.mul_(3)
    assert view.tolist() == [3, 3]
