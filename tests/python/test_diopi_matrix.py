"""The host library's matrix products, convolution, pooling and attention against PyTorch on the CPU."""

from __future__ import annotations

import itertools

import pytest
import torch
from ditorch import diopi

HOST = diopi.Library("host")
SEED = 20
F = torch.nn.functional
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
ROUNDING = {torch.float16: 2e-3, torch.bfloat16: 1.6e-2, torch.float32: 2e-5, torch.float64: 1e-12}


def draw(shape, dtype=torch.float32, seed=SEED):
    """Random numbers of the dtype; the seed is the test's."""
    generator = torch.Generator().manual_seed(seed + sum(shape) + len(shape))
    if dtype.is_complex:
        return torch.randn(shape, generator=generator, dtype=dtype)
    if not dtype.is_floating_point:
        low = 0 if dtype == torch.uint8 else -9
        return torch.randint(low, 9, shape, generator=generator).to(dtype)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def restride(tensor, layout):
    """The same values in another memory layout."""
    if layout == "offset":
        room = torch.zeros(tensor.numel() + 3, dtype=tensor.dtype)
        return room[3:].view(tensor.shape).copy_(tensor)
    if layout == "strided":
        room = torch.zeros([*tensor.shape, 2], dtype=tensor.dtype)
        return room[..., 1].copy_(tensor)
    if layout == "permuted":
        order = list(reversed(range(tensor.dim())))
        return tensor.permute(order).contiguous().permute(order)
    if layout == "channels_last":
        return tensor.contiguous(memory_format=torch.channels_last)
    return tensor.contiguous()


LAYOUTS = ("contiguous", "offset", "strided", "permuted")


def check(actual, expected, depth=1, message=""):
    """Same shape, dtype and values: integers exactly, floating types within their rounding of a sum of `depth`."""
    dtype = actual.dtype
    assert actual.shape == expected.shape, message
    if not (dtype.is_floating_point or dtype.is_complex):
        assert torch.equal(actual, expected.to(dtype)), message
        return
    wide = torch.complex128 if dtype.is_complex else torch.float64
    rounding = ROUNDING[dtype.to_real() if dtype.is_complex else dtype]
    torch.testing.assert_close(
        actual.to(wide), expected.to(wide), rtol=rounding, atol=rounding * max(1.0, depth**0.5), equal_nan=True
    )


def refuse(function, *arguments, out, code=1, text=""):
    """The call fails with the code, says why, and leaves `out` as it was."""
    before = out.clone()
    with pytest.raises(diopi.Error) as caught:
        HOST.call(function, *arguments)
    assert caught.value.code == code and caught.value.text.startswith(function + ":"), caught.value
    assert text in caught.value.text
    assert torch.equal(out, before), f"{function} wrote although it refused"


# Matrix products


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, torch.complex64, torch.complex128], ids=str)
@pytest.mark.parametrize(
    "m,k,n",
    [
        (3, 4, 5),
        (1, 1, 1),
        (65, 130, 33),
        (0, 3, 4),
        (3, 0, 4),
        (3, 4, 0),
        (70, 0, 80),
        (1, 300, 7),
        (7, 260, 40),
        (90, 300, 4),
    ],
)
def test_mm(dtype, m, k, n):
    for left, right, result in (
        ("contiguous",) * 3,
        ("permuted", "offset", "strided"),
        ("strided", "permuted", "permuted"),
        ("offset", "strided", "offset"),
    ):
        a, b = restride(draw((m, k), dtype), left), restride(draw((k, n), dtype), right)
        out = restride(torch.full((m, n), 7).to(dtype), result)
        HOST.call("diopiMm", out, a, b)
        check(out, torch.mm(a.to(torch.int64), b.to(torch.int64)) if dtype in INTEGERS else torch.mm(a, b), k)


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int32, torch.complex64], ids=str)
@pytest.mark.parametrize("beta,alpha", [(1, 1), (0, 2), (-2, 3), (1, 0)])
def test_addmm_and_baddbmm(dtype, beta, alpha):
    for shape in ((6, 7), (7,), (1, 7), (6, 1), (), (1,)):
        x, a, b = draw(shape, dtype), draw((6, 5), dtype), restride(draw((5, 7), dtype), "permuted")
        out = torch.empty((6, 7), dtype=dtype)
        HOST.call("diopiAddmm", out, x, a, b, beta, alpha)
        check(out, torch.addmm(x, a, b, beta=beta, alpha=alpha), 5)
        a, b = draw((3, 6, 5), dtype), restride(draw((3, 5, 7), dtype), "strided")
        out = torch.empty((3, 6, 7), dtype=dtype)
        HOST.call("diopiBaddbmm", out, x, a, b, float(beta), float(alpha))
        check(out, torch.baddbmm(x, a, b, beta=beta, alpha=alpha), 5)
    inplace = restride(draw((3, 6, 7), dtype), "permuted")
    expected = torch.baddbmm(inplace, a, b, beta=beta, alpha=alpha)
    HOST.call("diopiBaddbmmInp", inplace, a, b, float(beta), float(alpha))
    check(inplace, expected, 5)


def test_products_ignore_an_addend_of_zero_weight():
    a, b = draw((4, 5)), draw((5, 6))
    out = torch.full((4, 6), float("nan"))
    HOST.call("diopiAddmm", out, torch.full((6,), float("nan")), a, b, 0, 1)
    check(out, a @ b, 5)
    HOST.call("diopiMm", out.fill_(float("nan")), a, b)
    check(out, a @ b, 5)
    a[1, 2] = float("nan")
    b[3, 4] = float("inf")
    HOST.call("diopiMm", out, a, b)
    check(out, a @ b, 5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.complex128], ids=str)
@pytest.mark.parametrize(
    "left,right",
    [
        ((5,), (5,)),
        ((5,), (5, 3)),
        ((4, 5), (5,)),
        ((4, 5), (5, 3)),
        ((2, 4, 5), (5, 3)),
        ((2, 4, 5), (5,)),
        ((5,), (2, 5, 3)),
        ((2, 3, 4, 5), (3, 5, 6)),
        ((2, 1, 4, 5), (1, 3, 5, 6)),
        ((0, 4, 5), (5, 6)),
        ((2, 4, 0), (2, 0, 6)),
        ((3, 1, 2, 4, 5), (2, 1, 5, 6)),
    ],
)
def test_matmul(dtype, left, right):
    for layout in LAYOUTS:
        a, b = restride(draw(left, dtype), layout), restride(draw(right, dtype), layout)
        expected = torch.matmul(a, b)
        out = restride(torch.zeros_like(expected).contiguous(), layout)
        HOST.call("diopiMatmul", out, a, b)
        check(out, expected, 5, layout)
        if not dtype.is_floating_point:
            continue
        a.requires_grad_(), b.requires_grad_()
        grad = restride(draw(tuple(expected.shape), dtype), layout)
        wide = [value.detach().double().requires_grad_() for value in (a, b)]
        grads = torch.autograd.grad(torch.matmul(*wide), wide, grad.double())
        for wanted in ((True, True), (True, False), (False, True)):
            results = [torch.full_like(value, 7) if want else None for value, want in zip((a, b), wanted, strict=True)]
            HOST.call("diopiMatmulBackward", *results, grad, a.detach(), b.detach())
            for result, true in zip(results, grads, strict=True):
                if result is not None:
                    check(result, true, 20, layout)


def test_expanded_operands():
    a, b = draw((1, 4, 5)).expand(3, 4, 5), draw((3, 5, 1)).expand(3, 5, 6)
    out = torch.empty((3, 4, 6))
    HOST.call("diopiBmm", out, a, b)
    check(out, a @ b, 5)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape", [(5,), (4, 5), (2, 3, 5), (0, 5), (2, 2, 2, 5)])
@pytest.mark.parametrize("has_bias", [True, False])
def test_linear(dtype, shape, has_bias):
    for layout in LAYOUTS:
        x, w = restride(draw(shape, dtype), layout), restride(draw((6, 5), dtype), layout)
        c = restride(draw((6,), dtype), layout) if has_bias else None
        out = restride(torch.empty((*shape[:-1], 6), dtype=dtype), layout)
        HOST.call("diopiLinear", out, x, w, c)
        wide = [None if value is None else value.double().requires_grad_() for value in (x, w, c)]
        expected = F.linear(*wide)
        check(out, expected.detach(), 5, layout)
        grad = restride(draw(tuple(out.shape), dtype), layout)
        given = [value for value in wide if value is not None]
        grads = torch.autograd.grad(expected, given, grad.double())
        results = [torch.full_like(value, 7) if value is not None else None for value in (x, w, c)]
        HOST.call("diopiLinearBackward", *results, grad, x, w)
        for result, true in zip([value for value in results if value is not None], grads, strict=True):
            check(result, true, 20, layout)


def test_products_refuse():
    a, b, out = draw((3, 4)), draw((4, 5)), draw((3, 5))
    refuse("diopiMm", out, None, b, out=out, text="'input' is NULL")
    refuse("diopiMm", out, a, a, out=out, text="4 columns")
    refuse("diopiMm", out[:2], a, b, out=out, text="'out' is 2 x 5")
    refuse("diopiMm", out, a, b.double(), out=out, text="float64")
    refuse("diopiMm", out, a[0], b, out=out, text="dimensions")
    refuse("diopiMm", out.bool(), a.bool(), b.bool(), out=out, code=diopi.DTYPE_NOT_SUPPORTED)
    refuse("diopiMm", torch.empty(1).expand(3, 5), a, b, out=out, text="several indices")
    square = draw((4, 4))
    refuse("diopiMm", square, square, draw((4, 4), seed=3), out=square, text="shares memory")
    refuse("diopiBmm", out, a, b, out=out, text="dimensions")
    refuse("diopiAddmm", out, draw((2,)), a, b, 1, 1, out=out, text="broadcast")
    whole = torch.ones(3, 5, dtype=torch.int32)
    refuse("diopiAddmm", whole, whole, a.int(), b.int(), 1, 0.5, out=whole, text="whole numbers")
    refuse("diopiMatmul", out, torch.tensor(1.0), b, out=out, text="at least 1")
    refuse("diopiMatmul", draw((2, 3, 5)), draw((2, 3, 4)), draw((3, 4, 5)), out=out, text="do not broadcast")
    refuse("diopiLinear", out, a, b, None, out=out, text="'weight' has")
    refuse("diopiLinear", out, a, b.t().contiguous(), draw((4,)), out=out, text="'bias'")
    refuse("diopiLinearBackward", draw((2, 4)), None, None, out, a, b.t(), out=out, text="'grad_input'")


# Convolution

CONVOLUTIONS = [
    # in channels, out channels, groups, kernel, stride, padding, dilation, spatial, batch
    (3, 4, 1, (3, 3), (1, 1), (1, 1), (1, 1), (7, 9), 2),
    (4, 6, 2, (3, 2), (2, 1), (0, 2), (1, 2), (8, 7), 3),
    (4, 4, 4, (3, 3), (1, 1), (1, 1), (1, 1), (6, 21), 2),
    (4, 8, 4, (3, 5), (2, 2), (1, 3), (2, 1), (9, 20), 2),
    (5, 7, 1, (1, 1), (1, 1), (0, 0), (1, 1), (5, 6), 2),
    (5, 7, 1, (1, 1), (2, 2), (0, 0), (1, 1), (5, 6), 1),
    (6, 2, 2, (1, 1), (1, 1), (0, 0), (1, 1), (17, 18), 2),
    (2, 3, 1, (2, 2), (3, 3), (4, 4), (1, 1), (3, 3), 2),
    (2, 3, 1, (1, 7), (1, 1), (0, 3), (1, 1), (1, 4), 5),
    (16, 33, 1, (3, 3), (1, 1), (1, 1), (1, 1), (20, 19), 2),
    (1, 2, 1, (3, 3), (1, 1), (2, 2), (1, 1), (300, 40), 1),
    (16, 17, 1, (3, 3), (1, 1), (0, 1), (1, 1), (60, 40), 1),
    (32, 34, 2, (3, 5), (1, 1), (2, 1), (2, 1), (30, 41), 2),
    (16, 16, 1, (5, 3), (1, 1), (4, 3), (1, 1), (12, 44), 1),
]


def apply(function, tensors, options, dtype):
    """The result in double, and its gradients for a random upstream gradient."""
    wide = [None if value is None else value.detach().double().requires_grad_() for value in tensors]
    result = function(*wide, **options)
    grad = draw(tuple(result.shape), dtype, seed=5)
    given = [value for value in wide if value is not None]
    grads = iter(torch.autograd.grad(result, given, grad.double()))
    return result.detach(), grad, [None if value is None else next(grads) for value in wide]


def compare_layer(forward, backward, tensors, lists, expected, grad, grads, layout, depth):
    """Forward, and backward for all gradients, and for each alone."""
    x, w, c = tensors
    out = restride(torch.full(expected.shape, 7, dtype=x.dtype), layout)
    HOST.call(forward, out, x, w, c, *lists["forward"])
    check(out, expected, depth, layout)
    for wanted in ((True, True, True), (True, False, False), (False, True, False), (False, False, True)):
        results = [
            torch.full_like(value, 7) if want and value is not None else None
            for value, want in zip(tensors, wanted, strict=True)
        ]
        HOST.call(backward, *results, grad, x, w, None if c is None else c.shape, *lists["backward"])
        for result, true in zip(results, grads, strict=True):
            if result is not None:
                check(result, true, depth * 8 + grad.numel(), layout)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_convolution2d(dtype, case):
    channels, made, groups, kernel, stride, padding, dilation, spatial, batch = case
    layouts = ("contiguous", "channels_last", "strided") if dtype == torch.float32 else ("permuted",)
    for layout, has_bias in zip(layouts, itertools.cycle((True, False)), strict=False):
        x = restride(draw((batch, channels, *spatial), dtype), layout)
        w = restride(draw((made, channels // groups, *kernel), dtype), layout)
        c = draw((made,), dtype) if has_bias else None
        options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        expected, grad, grads = apply(F.conv2d, (x, w, c), options, dtype)
        lists = dict.fromkeys(("forward", "backward"), (stride, padding, dilation, groups))
        depth = w[0].numel()
        compare_layer(
            "diopiConvolution2d", "diopiConvolution2dBackward", (x, w, c), lists, expected, grad, grads, layout, depth
        )


def test_convolution_of_many_small_images():
    x, w, c = draw((70, 9, 3, 3)), draw((11, 9, 3, 3)), draw((11,))
    options = {"padding": 1}
    expected, grad, grads = apply(F.conv2d, (x, w, c), options, x.dtype)
    lists = dict.fromkeys(("forward", "backward"), ((1,), (1,), (1,), 1))
    compare_layer(
        "diopiConvolution2d", "diopiConvolution2dBackward", (x, w, c), lists, expected, grad, grads, "contiguous", 81
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize(
    "case", [(2, 3, 1, 2, 1, 1, 1, 0), (4, 2, 2, 3, 2, 1, 2, 1), (3, 3, 3, 2, 2, 0, 1, 1)], ids=str
)
def test_transposed_and_3d(dtype, case):
    channels, made, groups, kernel, stride, padding, dilation, extra = case
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    for ndim in (2, 3):
        lists = [[value] * ndim for value in (stride, padding, dilation)]
        functions = {2: F.conv_transpose2d, 3: F.conv_transpose3d}
        x = draw((2, channels, *(5, 6, 4)[:ndim]), dtype)
        w = draw((channels, made // groups, *[kernel] * ndim), dtype)
        c = draw((made,), dtype)
        more = {**options, "output_padding": extra}
        expected, grad, grads = apply(functions[ndim], (x, w, c), more, dtype)
        order = {
            "forward": (lists[0], lists[1], [extra] * ndim, groups, lists[2]),
            "backward": (lists[0], lists[1], lists[2], [extra] * ndim, groups),
        }
        name = f"diopiConvTranspose{ndim}d"
        compare_layer(name, name + "Backward", (x, w, c), order, expected, grad, grads, "contiguous", 60)
    x, w = draw((2, channels, 6, 7, 8), dtype), draw((made, channels // groups, *[kernel] * 3), dtype)
    expected, grad, grads = apply(F.conv3d, (x, w, c), options, dtype)
    order = dict.fromkeys(("forward", "backward"), (*lists, groups))
    compare_layer(
        "diopiConvolution3d", "diopiConvolution3dBackward", (x, w, c), order, expected, grad, grads, "strided", 100
    )


def test_convolution3d_of_long_lines():
    x, w = draw((2, 16, 4, 12, 20)), draw((16, 16, 3, 3, 3))
    for stride in ((1, 1, 1), (2, 1, 1)):
        expected, grad, grads = apply(F.conv3d, (x, w, None), {"padding": 1, "stride": stride}, x.dtype)
        lists = dict.fromkeys(("forward", "backward"), (stride, (1,), (1,), 1))
        functions = ("diopiConvolution3d", "diopiConvolution3dBackward")
        compare_layer(*functions, (x, w, None), lists, expected, grad, grads, "contiguous", 432)


def test_convolution_edges():
    lists = ((1, 1), (1, 1), (1, 1), 1)
    w, c = draw((3, 2, 3, 3)), draw((3,))
    x = draw((2, 5, 6))
    out = torch.empty(3, 5, 6)
    HOST.call("diopiConvolution2d", out, x, w, c, *lists)
    check(out, F.conv2d(x, w, c, padding=1), 18)
    HOST.call("diopiConvolution2d", torch.empty(0, 3, 5, 6), torch.empty(0, 2, 5, 6), w, c, *lists)
    grads = [torch.full_like(w, 7), torch.full_like(c, 7)]
    HOST.call(
        "diopiConvolution2dBackward", None, *grads, torch.empty(0, 3, 5, 6), torch.empty(0, 2, 5, 6), w, None, *lists
    )
    assert not any(grad.any() for grad in grads)
    refuse("diopiConvolution2d", out, x, w, draw((2,)), *lists, out=out, text="'bias'")
    refuse("diopiConvolution2d", out, x, w, c, (0, 1), (1, 1), (1, 1), 1, out=out, text="'stride' has the entry 0")
    refuse("diopiConvolution2d", out, x, w, c, (1, 1), (-1, 1), (1, 1), 1, out=out, text="'padding' has the entry -1")
    refuse("diopiConvolution2d", out, x, w, c, (1, 1), (1, 1), (1, 1, 1), 1, out=out, text="'dilation' has 3 entries")
    refuse("diopiConvolution2d", out, x, w, c, (1, 1), (1, 1), (1, 1), 2, out=out, text="'groups' is 2")
    refuse("diopiConvolution2d", out, x, w, c, (1, 1), (1, 1), (1, 1), 0, out=out, text="'groups' is 0")
    refuse("diopiConvolution2d", out, x, w, c, (1, 1), (0, 0), (9, 9), 1, out=out, text="leaves no result")
    refuse("diopiConvolution2d", out, x, w, c, (2, 2), (1, 1), (1, 1), 1, out=out, text="'out' has size")
    refuse("diopiConvolution2d", out, x.int(), w.int(), None, *lists, out=out)
    refuse("diopiConvolution2d", out.int(), x.int(), w.int(), None, *lists, out=out, code=diopi.DTYPE_NOT_SUPPORTED)
    refuse("diopiConvolution2d", out, x, w, c, None, (1, 1), (1, 1), 1, out=out, text="'stride' has 0 entries")


# Pooling

MAX = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
MEAN = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
ADAPTIVE_MAX = {1: F.adaptive_max_pool1d, 2: F.adaptive_max_pool2d, 3: F.adaptive_max_pool3d}
ADAPTIVE_MEAN = {1: F.adaptive_avg_pool1d, 2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}
WINDOWS = [
    # kernel, stride, padding, dilation, ceil mode
    (2, 2, 0, 1, False),
    (3, 2, 1, 1, False),
    (3, 2, 1, 1, True),
    (2, None, 0, 1, True),
    (3, 1, 1, 2, False),
    (5, 3, 2, 1, True),
]


def grow(function, x, grad_dtype):
    """Result, upstream gradient and gradient of a pooling of one tensor, in double."""
    wide = x.detach().double().requires_grad_()
    result = function(wide)
    grad = draw(tuple(result.shape), grad_dtype, seed=6)
    return result.detach(), grad, torch.autograd.grad(result, wide, grad.double())[0]


@pytest.mark.parametrize("dtype", [*FLOATS, torch.uint8, torch.int64], ids=str)
@pytest.mark.parametrize("ndim", [1, 2, 3])
@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_max_pool(dtype, ndim, window):
    kernel, stride, padding, dilation, ceil_mode = window
    lists = (
        [kernel] * ndim,
        None if stride is None else [stride] * ndim,
        [padding] * ndim,
        [dilation] * ndim,
        ceil_mode,
    )
    spatial = (9, 10, 7)[:ndim]
    for layout, lead in (("contiguous", (2, 3)), ("permuted", (3,)), ("strided", (2, 1))):
        x = restride(draw((*lead, *spatial), dtype), layout)
        values, indices = MAX[ndim](
            x.contiguous(), kernel, stride, padding, dilation, ceil_mode=ceil_mode, return_indices=True
        )
        out, found = restride(torch.zeros_like(values), layout), restride(torch.zeros_like(indices), layout)
        HOST.call(f"diopiMaxPool{ndim}dWithIndices", out, found, x, *lists)
        assert torch.equal(out, values) and torch.equal(found, indices)
        HOST.call(f"diopiMaxPool{ndim}d", out.zero_(), x, *lists)
        assert torch.equal(out, values)
        if dtype.is_floating_point:
            function = MAX[ndim]
            _, grad, true = grow(
                lambda v, f=function: f(v, kernel, stride, padding, dilation, ceil_mode=ceil_mode), x, dtype
            )
            result = torch.full_like(x, 7)
            HOST.call(f"diopiMaxPool{ndim}dBackward", result, grad, x, *lists, found)
            check(result, true, 9, layout)


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int64], ids=str)
@pytest.mark.parametrize("ndim", [1, 2, 3])
@pytest.mark.parametrize("include", [True, False])
def test_avg_pool(dtype, ndim, include):
    for window, divisor in itertools.product(WINDOWS, (None, 5)):
        kernel, stride, padding, dilation, ceil_mode = window
        if dilation > 1 or (ndim == 1 and divisor):
            continue
        more = () if ndim == 1 else (divisor,)
        x = restride(draw((2, 3, *(9, 10, 7)[:ndim]), dtype), "permuted")
        lists = ([kernel], None if stride is None else [stride], [padding], ceil_mode, include, *more)

        def average(value, ndim=ndim, kernel=kernel, stride=stride, padding=padding, ceil=ceil_mode, more=more):
            return MEAN[ndim](value, kernel, stride, padding, ceil, include, *more)

        expected = average(x if dtype == torch.int64 else x.double())
        out = torch.full(expected.shape, 7, dtype=dtype)
        HOST.call(f"diopiAvgPool{ndim}d", out, x, *lists)
        check(out, expected, 9)
        if dtype.is_floating_point:
            _, grad, true = grow(average, x, dtype)
            result = torch.full_like(x, 7)
            HOST.call(f"diopiAvgPool{ndim}dBackward", result, grad, x, *lists)
            check(result, true, 9)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("ndim", [1, 2, 3])
@pytest.mark.parametrize("size", [1, 3, 7, 12])
def test_adaptive_pool(dtype, ndim, size):
    x = restride(draw((2, 3, *(9, 10, 7)[:ndim]), dtype), "strided")
    expected, grad, true = grow(lambda value: ADAPTIVE_MEAN[ndim](value, size), x, dtype)
    out, result = torch.full(expected.shape, 7, dtype=dtype), torch.full_like(x, 7)
    HOST.call(f"diopiAdaptiveAvgPool{ndim}d", out, x, [size] * ndim)
    check(out, expected, 9)
    HOST.call(f"diopiAdaptiveAvgPool{ndim}dBackward", result, grad, x)
    check(result, true, 9)
    values, indices = ADAPTIVE_MAX[ndim](x.contiguous(), size, return_indices=True)
    found = torch.zeros_like(indices)
    HOST.call(f"diopiAdaptiveMaxPool{ndim}dWithIndices", out, found, x, [size] * ndim)
    assert torch.equal(out, values) and torch.equal(found, indices)
    HOST.call(f"diopiAdaptiveMaxPool{ndim}d", out.zero_(), x, [size])
    assert torch.equal(out, values)
    _, grad, true = grow(lambda value: ADAPTIVE_MAX[ndim](value, size), x, dtype)
    HOST.call(f"diopiAdaptiveMaxPool{ndim}dBackward", result.fill_(7), grad, x, found)
    check(result, true, 9)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_pool_of_large_windows(dtype):
    x = draw((2, 3, 40, 75), dtype)
    expected, grad, true = grow(lambda value: F.adaptive_avg_pool2d(value, (2, 1)), x, dtype)
    out, result = torch.empty(expected.shape, dtype=dtype), torch.empty_like(x)
    HOST.call("diopiAdaptiveAvgPool2d", out, x, [2, 1])
    check(out, expected, 4)
    HOST.call("diopiAdaptiveAvgPool2dBackward", result, grad, x)
    check(result, true, 4)


def test_pool_by_mode():
    x = draw((2, 3, 8, 9))
    out = torch.empty(F.max_pool2d(x, 3, 2, 1).shape)
    lists = ([3, 3], [2, 2], [1, 1], [1, 1], False)
    HOST.call("diopiPool2d", out, x, "max", *lists, True, False, None)
    assert torch.equal(out, F.max_pool2d(x, 3, 2, 1))
    for exclusive in (True, False):
        HOST.call("diopiPool2d", out, x, "avg", *lists, exclusive, False, None)
        check(out, F.avg_pool2d(x, 3, 2, 1, count_include_pad=not exclusive), 9)
    small = torch.empty(2, 3, 2, 3)
    HOST.call("diopiPool2d", small, x, "avg", None, None, None, None, False, True, True, [2, 3])
    check(small, F.adaptive_avg_pool2d(x, (2, 3)), 9)
    _, grad, true = grow(lambda value: F.avg_pool2d(value, 3, 2, 1), x, x.dtype)
    result = torch.empty_like(x)
    HOST.call("diopiPool2dBackward", result, grad, x, "avg", *lists, False, False, None)
    check(result, true, 9)
    refuse("diopiPool2d", out, x, "min", *lists, True, False, None, out=out, text='"min"')
    refuse("diopiPool2d", out, x, None, *lists, True, False, None, out=out, text="NULL")


def test_pool_edges():
    nan, inf = float("nan"), float("inf")
    x = torch.tensor([[[1.0, nan, 3.0, nan], [-inf, -inf, -inf, -inf]]])
    for kernel in ([1, 4], [1, 2], [2, 2]):
        values, indices = F.max_pool2d(x, kernel, return_indices=True)
        out, found = torch.zeros_like(values), torch.zeros_like(indices)
        HOST.call("diopiMaxPool2dWithIndices", out, found, x, kernel, None, [0], [1], False)
        check(out, values)
        assert torch.equal(found, indices)
    lists = ([2, 2], [2, 2], [0, 0], [1, 1], False)
    x, out = draw((1, 2, 4, 4)), draw((1, 2, 2, 2))
    HOST.call("diopiMaxPool2d", torch.empty(0, 2, 2, 2), torch.empty(0, 2, 4, 4), *lists)
    grad, indices = torch.zeros_like(x), torch.zeros(1, 2, 2, 2, dtype=torch.int64)
    for bad in (-1, 16, 2**40):
        indices[0, 1, 1, 1] = bad
        refuse("diopiMaxPool2dBackward", grad, out, x, *lists, indices, out=grad, text="outside 0 to 15")
    refuse("diopiMaxPool2dBackward", grad, out, x, *lists, None, out=grad, text="'indices' is NULL")
    refuse("diopiMaxPool2dBackward", grad, out, x, *lists, indices.float(), out=grad, text="'indices' is float32")
    refuse("diopiMaxPool2d", out, x, [0, 2], *lists[1:], out=out, text="'kernel_size' has the entry 0")
    refuse("diopiMaxPool2d", out, x, [2, 2], [2, 2], [2, 2], [1, 1], False, out=out, text="half the kernel")
    refuse("diopiMaxPool2d", out, x, [5, 5], None, [0], [1], False, out=out, text="leaves no result")
    refuse("diopiMaxPool2d", out[..., :1], x, *lists, out=out, text="'out' has size 1")
    refuse("diopiMaxPool2d", out.bool(), x.bool(), *lists, out=out, code=diopi.DTYPE_NOT_SUPPORTED)
    refuse("diopiAvgPool2d", out, x, [2], None, [0], False, True, 0, out=out, text="'divisor_override' is 0")
    refuse("diopiAdaptiveAvgPool2d", out, x, [3, 3], out=out, text="'out' has size 2")
    refuse("diopiAdaptiveAvgPool2d", out, x, [-1, 2], out=out, text="'output_size' has the entry -1")


# Attention


def attend(q, k, v, scale, causal, left=-1, right=-1, slopes=None, keep=None):
    """Attention of (B, S, H, D) in the given precision with everything written out; also the logarithm of the sums."""
    heads, queries, keys = q.shape[2], q.shape[1], k.shape[1]
    k, v = (x.repeat_interleave(heads // x.shape[2], 2) for x in (k, v))
    scores = torch.einsum("bihd,bjhd->bhij", q, k) * scale
    own = torch.arange(queries)[:, None] + keys - queries
    other = torch.arange(keys)[None, :]
    if slopes is not None:
        slopes = slopes.double().reshape(-1, heads)
        scores = scores - slopes[:, :, None, None] * (own - other).abs()
    hidden = torch.zeros(queries, keys, dtype=torch.bool)
    if causal:
        right = 0
    if left >= 0:
        hidden |= other < own - left
    if right >= 0:
        hidden |= other > own + right
    scores = scores.masked_fill(hidden, -torch.inf)
    p = torch.softmax(scores, -1).masked_fill(hidden.all(-1)[:, None], 0)
    lse = torch.logsumexp(scores, -1)
    return torch.einsum("bhij,bjhd->bihd", p if keep is None else p * keep, v), lse


ATTENTIONS = [
    # queries, keys, heads, key heads, width, causal, left, right, slopes
    (5, 5, 2, 2, 8, False, -1, -1, None),
    (70, 300, 2, 1, 16, True, -1, -1, None),
    (300, 270, 4, 2, 32, True, -1, -1, "heads"),
    (130, 600, 1, 1, 5, False, 40, 3, None),
    (600, 90, 2, 2, 4, False, 10, -1, "all"),
    (1, 513, 3, 3, 64, True, -1, -1, None),
    (64, 256, 2, 2, 8, True, 17, -1, None),
]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("case", ATTENTIONS, ids=str)
def test_flash_attention(dtype, case):
    queries, keys, heads, key_heads, width, causal, left, right, kind = case
    for layout in ("contiguous", "strided", "heads_first") if dtype == torch.float32 else ("contiguous",):

        def make(rows, count, seed, layout=layout):
            x = draw((2, rows, count, width), dtype, seed)
            if layout == "heads_first":
                return x.transpose(1, 2).contiguous().transpose(1, 2)
            return restride(x, layout)

        q, k, v = make(queries, heads, 1), make(keys, key_heads, 2), make(keys, key_heads, 3)
        grad = make(queries, heads, 4)
        slopes = {None: None, "heads": torch.rand(heads), "all": torch.rand(2, heads)}[kind]
        scale = 0.3125
        wide = [x.double().requires_grad_() for x in (q, k, v)]
        expected, sums = attend(*wide, scale, causal, left, right, slopes)
        grads = torch.autograd.grad(expected, wide, grad.double())
        out, lse = torch.full_like(q, 7), torch.empty(2, heads, queries).transpose(1, 2).contiguous().transpose(1, 2)
        options = (slopes, 0.0, scale, causal, left, right)
        HOST.call("diopiFlashAttention", out, lse, None, q, k, v, *options)
        check(out, expected.detach(), 4, layout)
        torch.testing.assert_close(lse.double(), sums.detach(), rtol=1e-5, atol=1e-5)
        results = [torch.full_like(x, 7) for x in (q, k, v)]
        HOST.call("diopiFlashAttentionBackward", *results, grad, None, q, k, v, slopes, out, lse, *options[1:])
        for result, true in zip(results, grads, strict=True):
            if dtype.itemsize == 2:  # out was rounded, which the gradient sees
                torch.testing.assert_close(result.double(), true, rtol=0.05, atol=8 * ROUNDING[dtype])
            else:
                torch.testing.assert_close(result.double(), true, rtol=1e-4, atol=2e-4)


def test_flash_attention_dropout():
    q, k, v = draw((2, 70, 2, 8), seed=1), draw((2, 300, 2, 8), seed=2), draw((2, 300, 2, 8), seed=3)
    grad = draw((2, 70, 2, 8), seed=4)
    out, lse = torch.empty_like(q), torch.empty(2, 2, 70)
    generator = diopi.Generator(11, 3)
    HOST.call("diopiFlashAttention", out, lse, generator, q, k, v, None, 0.25, 0.5, True, -1, -1)
    assert (generator.seed, generator.offset) == (11, 3 + 2 * 2 * 70 * 300 // 4)
    # with values that name the keys the result shows which were kept
    keep = torch.empty(2, 2, 70, 300, dtype=torch.float64)
    plain, _ = torch.empty_like(q), lse
    for first in range(0, 300, 8):
        names = torch.zeros_like(v)
        for j in range(first, min(first + 8, 300)):
            names[:, j, :, j - first] = 1
        dropped = torch.empty_like(q)
        HOST.call(
            "diopiFlashAttention", dropped, lse, diopi.Generator(11, 3), q, k, names, None, 0.25, 0.5, True, -1, -1
        )
        HOST.call("diopiFlashAttention", plain, lse, None, q, k, names, None, 0.0, 0.5, True, -1, -1)
        ratio = torch.where(plain > 0, dropped / plain, torch.zeros_like(plain)).double()
        count = min(8, 300 - first)
        keep[..., first : first + count] = ratio.permute(0, 2, 1, 3)[..., :count]
    assert (torch.isclose(keep, torch.tensor(4 / 3).double(), rtol=1e-3) | (keep == 0)).all()
    seen = torch.ones(70, 300, dtype=torch.bool).tril(230)
    share = (keep[..., seen] > 0).double().mean().item()
    assert abs(share - 0.75) < 0.02, share
    keep = (keep > 0).double() / 0.75
    wide = [x.double().requires_grad_() for x in (q, k, v)]
    expected, _ = attend(*wide, 0.5, True, keep=keep)
    check(out, expected.detach(), 30)
    grads = torch.autograd.grad(expected, wide, grad.double())
    results = [torch.empty_like(x) for x in (q, k, v)]
    generator = diopi.Generator(11, 3)
    HOST.call(
        "diopiFlashAttentionBackward", *results, grad, generator, q, k, v, None, out, lse, 0.25, 0.5, True, -1, -1
    )
    assert generator.offset == 3
    for result, true in zip(results, grads, strict=True):
        torch.testing.assert_close(result.double(), true, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_flash_attention_of_packed_sequences(dtype):
    lengths = [(5, 9), (70, 70), (0, 3), (1, 300)]
    ends = [torch.tensor([sum(pair[i] for pair in lengths[:n]) for n in range(5)], dtype=torch.int32) for i in (0, 1)]
    q, grad = draw((76, 4, 8), dtype, 1), draw((76, 4, 8), dtype, 4)
    k, v = draw((382, 2, 8), dtype, 2), draw((382, 2, 8), dtype, 3)
    out, lse = torch.empty_like(q), torch.empty(4, 4, 70)
    options = (None, 70, 300, 0.0, 0.5, True, -1, -1)
    HOST.call("diopiFlashAttentionVarLen", out, lse, None, q, k, v, *ends, *options)
    results = [torch.full_like(x, 7) for x in (q, k, v)]
    HOST.call("diopiFlashAttentionVarLenBackward", *results, grad, None, q, k, v, *ends, None, out, lse, *options[1:])
    for n, (queries, keys) in enumerate(lengths):
        rows = slice(int(ends[0][n]), int(ends[0][n]) + queries)
        columns = slice(int(ends[1][n]), int(ends[1][n]) + keys)
        wide = [x[part].double()[None].requires_grad_() for x, part in ((q, rows), (k, columns), (v, columns))]
        expected, sums = attend(*wide, 0.5, True)
        check(out[rows], expected[0].detach(), 4)
        torch.testing.assert_close(lse[n, :, :queries].double(), sums[0].detach(), rtol=1e-5, atol=1e-5)
        assert (lse[n, :, queries:] == -torch.inf).all()
        grads = torch.autograd.grad(expected, wide, grad[rows].double()[None])
        for result, part, true in zip(results, (rows, columns, columns), grads, strict=True):
            torch.testing.assert_close(result[part].double(), true[0], rtol=0.05, atol=8 * ROUNDING[dtype])
    for bad in ([0, 5, 75, 75, 77], [0, 5, 4, 75, 76], [1, 5, 75, 75, 76], [0, 5, 76, 76, 76]):
        wrong = torch.tensor(bad, dtype=torch.int32)
        refuse(
            "diopiFlashAttentionVarLen", out, lse, None, q, k, v, wrong, ends[1], *options, out=out, text="must grow"
        )


def test_flash_attention_of_one_packed_tensor():
    packed, grad = draw((2, 30, 3, 2, 8)), draw((2, 30, 2, 8), seed=2)
    q, k, v = packed.unbind(2)
    out, lse = torch.empty(2, 30, 2, 8), torch.empty(2, 2, 30)
    HOST.call("diopiFlashAttention", out, lse, None, q, k, v, None, 0.0, 0.25, False, -1, -1)
    wide = packed.double().requires_grad_()
    expected, _ = attend(*wide.unbind(2), 0.25, False)
    check(out, expected.detach(), 8)
    result = torch.empty_like(packed)
    options = (None, out, lse, 0.0, 0.25, False, -1, -1)
    name = "diopiFlashAttentionBackward"
    HOST.call(name, *result.unbind(2), grad, None, q, k, v, *options)
    check(result, torch.autograd.grad(expected, wide, grad.double())[0], 30)
    one = torch.ones_like(grad)
    refuse(name, one, one, torch.empty_like(one), grad, None, q, k, v, *options, out=one, text="share memory")


def test_flash_attention_without_keys():
    q, k = draw((2, 3, 2, 8)), torch.empty(2, 0, 2, 8)
    out, lse, result = torch.ones_like(q), torch.zeros(2, 2, 3), torch.ones_like(q)
    HOST.call("diopiFlashAttention", out, lse, None, q, k, k, None, 0.0, 1.0, False, -1, -1)
    assert not out.any() and (lse == -torch.inf).all()
    none = [torch.empty_like(k) for _ in range(2)]
    options = (None, q, k, k, None, out, lse, 0.0, 1.0, False, -1, -1)
    HOST.call("diopiFlashAttentionBackward", result, *none, q, *options)
    assert not result.any()


def test_flash_attention_refuses():
    q, k = draw((2, 3, 4, 8)), draw((2, 5, 2, 8))
    out, lse = torch.ones_like(q), torch.empty(2, 4, 3)
    options = (None, 0.0, 1.0, False, -1, -1)
    name = "diopiFlashAttention"
    refuse(name, out, lse, None, q, k[:1], k[:1], *options, out=out, text="2 sequences")
    refuse(name, out, lse, None, q, k[..., :4], k[..., :4], *options, out=out, text="8 elements")
    refuse(name, out, lse, None, q[:, :, :3], k, k, *options, out=out, text="no multiple")
    refuse(name, out, lse, None, q, k, k[:, :4], *options, out=out, text="'v' has another shape")
    refuse(name, out, lse[:, :, :2], None, q, k, k, *options, out=out, text="'softmax_lse' must be 2 x 4 x 3")
    refuse(name, out, lse, None, q, k, k, None, 1.0, 1.0, False, -1, -1, out=out, text="'p_dropout' is 1")
    refuse(name, out, lse, None, q, k, k, None, 0.5, 1.0, False, -1, -1, out=out, text="'gen' is NULL")
    refuse(name, out, lse, None, q, k, k, torch.ones(3), *options[1:], out=out, text="'alibi_slopes'")
    refuse(name, out, lse, None, q, k, k.double(), *options, out=out, text="one dtype")
    whole = [x.int() for x in (out, q, k, k)]
    refuse(name, whole[0], lse, None, *whole[1:], *options, out=out, code=diopi.DTYPE_NOT_SUPPORTED)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary_embedding(dtype, interleaved):
    def turn(x, cos, sin):
        first, second = (x[..., ::2], x[..., 1::2]) if interleaved else x.chunk(2, -1)
        parts = (first * cos - second * sin, first * sin + second * cos)
        return torch.stack(parts, -1).flatten(-2) if interleaved else torch.cat(parts, -1)

    for layout, angles in zip(LAYOUTS, ((5, 1, 4), (2, 5, 3, 4), (4,), (1, 1, 4)), strict=True):
        x = restride(draw((2, 5, 3, 8), dtype), layout)
        cos, sin = (restride(draw(angles, dtype, seed), layout) for seed in (1, 2))
        out = torch.empty_like(x)
        HOST.call("diopiRotaryEmbedding", out, x, cos, sin, False, interleaved)
        check(out, turn(x.double(), cos.double(), sin.double()), 2)
        HOST.call("diopiRotaryEmbedding", out, x, cos, sin, True, interleaved)
        check(out, turn(x.double(), cos.double(), -sin.double()), 2)
        expected = turn(x.double(), cos.double(), sin.double())
        HOST.call("diopiRotaryEmbedding", x, x, cos, sin, False, interleaved)
        check(x, expected, 2)
    refuse("diopiRotaryEmbedding", out, x, draw((5, 1, 5), dtype), sin, False, False, out=out, text="'cos' ends with 5")
    refuse("diopiRotaryEmbedding", out, x, cos, draw((4, 1, 4), dtype), False, False, out=out, text="'sin' has size 4")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_rotary_embedding_in_place(dtype):
    cos, sin = draw((6, 1, 8), dtype, 1), draw((6, 1, 8), dtype, 2)
    expected = []
    tensors = [draw((6, 24), dtype, 3), draw((1, 6, 2, 8), dtype, 4)]
    for x in tensors:
        wide = x.double().reshape(6, -1, 8)
        turned = torch.cat((-wide[..., 4:], wide[..., :4]), -1)
        expected.append((wide * cos.double() + turned * sin.double()).reshape(x.shape))
    HOST.call("diopiRotaryEmbeddingV2", *tensors, cos, sin, 8)
    for x, true in zip(tensors, expected, strict=True):
        check(x, true, 2)
    refuse("diopiRotaryEmbeddingV2", *tensors, cos, sin, 7, out=tensors[0], text="'dim' is 7")


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_scaled_masked_softmax(dtype):
    x = restride(draw((2, 3, 5, 7), dtype), "permuted")
    grad = draw((2, 3, 5, 7), dtype, 2)
    mask = torch.rand(2, 1, 5, 7, generator=torch.Generator().manual_seed(SEED)) < 0.4
    mask[0, 0, 1] = True
    triangle = torch.ones(5, 7).triu(1).bool()
    for given, used, fixed in ((mask, mask, False), (mask[:1].to(dtype), mask[:1], False), (None, triangle, True)):
        wide = x.double().requires_grad_()
        expected = torch.softmax((wide * 0.5).masked_fill(used, -10000), -1)
        out, result = torch.empty_like(x), torch.empty_like(x)
        HOST.call("diopiScaledMaskedSoftmax", out, x, given, 0.5, fixed)
        check(out, expected.detach(), 4)
        true = torch.autograd.grad(expected, wide, grad.double())[0]
        HOST.call("diopiScaledMaskedSoftmaxBackward", result, grad, out, given, 0.5, fixed)
        check(result, true, 10)
    refuse("diopiScaledMaskedSoftmax", out, x, None, 0.5, False, out=out, text="'mask' is NULL")
    refuse("diopiScaledMaskedSoftmax", out, x, mask[:, :, :4], 0.5, False, out=out, text="broadcast")


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("case", [((2, 2), (1, 1), (0, 0), (1, 1)), ((3, 2), (2, 1), (2, 1), (2, 3))], ids=str)
def test_unfold_and_fold(dtype, case):
    for shape in ((2, 3, 9, 8), (3, 9, 8)):
        x = restride(draw(shape, dtype), "permuted")
        wide = x.double()
        expected = F.unfold(wide, *case)
        out = torch.empty(expected.shape, dtype=dtype)
        HOST.call("diopiIm2Col", out, x, *case)
        check(out, expected)
        image = torch.full(shape, 7, dtype=dtype)
        HOST.call("diopiCol2Im", image, restride(out, "strided"), (9, 8), *case)
        check(image, F.fold(expected, (9, 8), *case), 6)
    refuse("diopiIm2Col", out, x, (20, 2), *case[1:], out=out, text="no room")
    refuse("diopiCol2Im", image, out, (9, 7), *case, out=image, text="'output_size' is 9 x 7")


def test_multi_head_attention():
    q, k, v, grad = (draw((2, 40, 2, 8), seed=seed) for seed in range(4))
    wide = [x.double().requires_grad_() for x in (q, k, v)]
    expected, sums = attend(*wide, 0.4, True)
    grads = torch.autograd.grad(expected, wide, grad.double())
    out, lse = torch.empty_like(q), torch.empty(2, 2, 40)
    HOST.call("diopiMultiHeadAttention", q, k, v, 0.0, True, False, 0.4, out, lse, None, None)
    check(out, expected.detach(), 8)
    torch.testing.assert_close(lse.double(), sums.detach(), rtol=1e-5, atol=1e-5)
    results = [torch.empty_like(x) for x in (q, k, v)]
    HOST.call("diopiMultiHeadAttentionBackward", grad, q, k, v, out, lse, 0.0, True, None, 0.4, *results)
    for result, true in zip(results, grads, strict=True):
        check(result, true, 20)
    packed = [x.reshape(80, 2, 8) for x in (q, k, v, grad)]
    ends = torch.tensor([0, 40, 80], dtype=torch.int32)
    again, sums, name = torch.empty(80, 2, 8), torch.empty_like(lse), "diopiMultiHeadAttentionVarLen"
    HOST.call(name, *packed[:3], ends, ends, 40, 40, 0.0, True, False, 0.4, again, sums, None, None)
    assert torch.equal(again.view_as(out), out) and torch.equal(sums, lse)
    repeated = [torch.empty(80, 2, 8) for _ in range(3)]
    inputs = (packed[3], *packed[:3], again, sums, ends, ends, 40, 40, 0.0, True, None, 0.4)
    HOST.call(name + "Backward", *inputs, *repeated)
    for one, other in zip(results, repeated, strict=True):
        assert torch.equal(one, other.view_as(one))
    arguments = (q, k, v, 0.0, True, True, 0.4, out, lse, None, None)
    refuse("diopiMultiHeadAttention", *arguments, out=out, code=diopi.FORCE_FALLBACK, text="return_debug_mask")


# Images


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("mode", ["nearest", "linear", "bilinear", "trilinear", "bicubic"])
def test_upsample(dtype, mode):
    shapes = {"nearest": (1, 2, 3), "linear": (1,), "bilinear": (2,), "trilinear": (3,), "bicubic": (2,)}[mode]
    for ndim, align, size in itertools.product(shapes, (False, True), ((8, 3, 13), (10, 12, 6), (5, 6, 1))):
        if mode == "nearest" and align:
            continue
        x = restride(draw((2, 3, *(5, 6, 7)[:ndim]), dtype), "permuted")
        options = {} if mode == "nearest" else {"align_corners": align}
        wide = (x.float() if dtype.itemsize == 2 else x).detach().requires_grad_()
        expected = F.interpolate(wide, size[:ndim], mode=mode, **options)
        grad = draw(tuple(expected.shape), dtype, 3)
        true = torch.autograd.grad(expected, wide, grad.to(expected.dtype))[0]
        out, result = torch.empty(expected.shape, dtype=dtype), torch.empty_like(x)
        name = "diopiUpsampleNearest" if mode == "nearest" else "diopiUpsampleLinear"
        more = () if mode == "nearest" else (align, mode)
        HOST.call(name, out, x, size[:ndim], *more)
        check(out, expected.detach(), 2, str(size))
        HOST.call(name + "Backward", result, grad, size[:ndim], x.shape, *more)
        check(result, true, 9, str(size))
    if mode == "bicubic":
        refuse("diopiUpsampleLinear", out, x, size[:ndim], False, "area", out=out, text="'mode' is area")
        refuse("diopiUpsampleLinear", out, x, (4, 4), False, mode, out=out, text="'out' has size")
        refuse("diopiUpsampleLinear", out, x, (0, 4), False, mode, out=out, text="'size' has the entry 0")


def test_results_do_not_depend_on_the_number_of_threads():
    q = draw((2, 200, 4, 16))
    x, w, thin = draw((3, 16, 40, 40)), draw((32, 16, 3, 3)), draw((16, 1, 3, 3))
    found = []
    for threads in (1, 4):
        diopi._core.dit_parallel_set_threads(threads)
        results = [torch.empty_like(q), torch.empty(2, 4, 200)]
        HOST.call("diopiFlashAttention", *results, None, q, q, q, None, 0.0, 0.25, True, -1, -1)
        grads = [torch.empty_like(q) for _ in range(3)]
        HOST.call("diopiFlashAttentionBackward", *grads, q, None, q, q, q, None, *results, 0.0, 0.25, True, -1, -1)
        results += grads
        for kernel, groups, stride in ((w, 1, 1), (w, 1, 2), (thin, 16, 1)):
            lists = ((stride,), (1,), (1,), groups)
            out = torch.empty(F.conv2d(x, kernel, None, stride, 1, 1, groups).shape)
            HOST.call("diopiConvolution2d", out, x, kernel, None, *lists)
            grads = [torch.empty_like(x), torch.empty_like(kernel)]
            HOST.call("diopiConvolution2dBackward", *grads, None, out, x, kernel, None, *lists)
            results += [out, *grads]
        product = torch.empty(600, 600)
        HOST.call("diopiMm", product, x.view(-1)[:60000].view(600, 100), x.view(-1)[:60000].view(100, 600))
        results.append(product)
        pooled, indices = torch.empty(3, 16, 20, 20), torch.empty(3, 16, 20, 20, dtype=torch.int64)
        HOST.call("diopiMaxPool2dWithIndices", pooled, indices, x, (3,), (2,), (1,), (1,), False)
        found.append([*results, pooled, indices])
    diopi._core.dit_parallel_set_threads(0)
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)
