"""The host library's elementwise functions against PyTorch on the CPU: dtypes, layouts, broadcasting, in-place, errors.

Every function runs on every dtype that PyTorch's operator has; where PyTorch refuses a dtype, the library must refuse
it too. Inputs are seeded by the function's name.
"""

from __future__ import annotations

import ctypes
import zlib

import pytest

torch = pytest.importorskip("torch")
F = torch.nn.functional

from ditorch import diopi  # noqa: E402

INTS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
COMPLEX = (torch.complex64, torch.complex128)
DTYPES = (torch.bool, *INTS, *FLOATS, *COMPLEX)
A = torch.ops.aten


@pytest.fixture(scope="module")
def host():
    library = diopi.Library("host")
    yield library
    library.close()


def seed(name):
    number = zlib.crc32(name.encode())
    print(f"seed {number}")
    return torch.Generator().manual_seed(number)


def make(shape, dtype, generator, low=-3.0, high=3.0, special=False):
    """Random values; floating ones with a few special values among them when asked for."""
    if dtype is torch.bool:
        return torch.rand(shape, generator=generator) > 0.5
    if dtype in INTS:
        start = 0 if dtype is torch.uint8 or low >= 0 else -20
        return torch.randint(max(start, 1) if low > 0 else start, 20, shape, generator=generator).to(dtype)
    base = torch.rand(shape, generator=generator, dtype=torch.float64) * (high - low) + low
    if dtype.is_complex:
        base = torch.complex(base, torch.rand(shape, generator=generator, dtype=torch.float64) * (high - low) + low)
        return base.to(dtype)
    if special and base.numel() >= 8:
        flat = base.view(-1)
        values = [float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1.0]
        flat[: len(values)] = torch.tensor(values, dtype=torch.float64)
    return base.to(dtype)


def spread(tensor, layout):
    """The same values in another layout."""
    if layout == "strided" and tensor.dim() > 0:
        room = torch.zeros((*tensor.shape[:-1], tensor.shape[-1] * 2 + 1), dtype=tensor.dtype)
        view = room[..., 1::2][..., : tensor.shape[-1]]
        view.copy_(tensor)
        return view
    if layout == "transposed" and tensor.dim() > 1:
        return tensor.transpose(0, -1).contiguous().transpose(0, -1)
    return tensor.clone()


def check(host, name, out, arguments, want):
    """One call against the reference: a tensor, or the exception that PyTorch raised."""
    before = [item.clone() for item in arguments if isinstance(item, torch.Tensor)]
    code = host.invoke(name, out, *arguments)
    if isinstance(want, Exception):
        assert code != 0, f"{name}: PyTorch refuses it: {want}"
        return
    assert code == 0, f"{name}{[getattr(item, 'dtype', item) for item in arguments]}: {host.get_error()}"
    torch.testing.assert_close(out, want, equal_nan=True, msg=lambda text: f"{name}: {text}")
    for old, item in zip(before, (item for item in arguments if isinstance(item, torch.Tensor)), strict=True):
        assert torch.equal(torch.view_as_real(old) if old.is_complex() else old.nan_to_num(7), item.nan_to_num(7)) or (
            old.is_complex() and torch.equal(old, item)
        ), f"{name} changed an input"


def refer(function, *arguments):
    try:
        return function(*arguments)
    except (RuntimeError, TypeError, NotImplementedError) as error:
        return error


UNARY = {
    "Sign": torch.sign, "Abs": torch.abs, "Neg": torch.neg, "Floor": torch.floor, "Ceil": torch.ceil,
    "Sqrt": torch.sqrt, "Rsqrt": torch.rsqrt, "Sin": torch.sin, "Asin": torch.asin, "Cos": torch.cos,
    "Acos": torch.acos, "Tan": torch.tan, "Sinh": torch.sinh, "Cosh": torch.cosh, "Atan": torch.atan,
    "Asinh": torch.asinh, "Acosh": torch.acosh, "Atanh": torch.atanh, "Exp": torch.exp, "Expm1": torch.expm1,
    "Log": torch.log, "Log2": torch.log2, "Log10": torch.log10, "Log1p": torch.log1p, "Erf": torch.erf,
    "Reciprocal": torch.reciprocal, "Erfinv": torch.erfinv, "Sgn": torch.sgn, "IsNan": torch.isnan,
    "Relu": torch.relu, "Hardswish": F.hardswish, "Tanh": torch.tanh, "Sigmoid": torch.sigmoid, "Silu": F.silu,
    "LogicalNot": torch.logical_not, "BitwiseNot": torch.bitwise_not,
}  # fmt: skip
NO_IN_PLACE = {"Sign", "IsNan"}


@pytest.mark.parametrize("name", UNARY)
def test_unary(host, name):
    generator = seed(name)
    for dtype in DTYPES:
        for shape in ((3, 5, 7), (), (0, 4), (600,)):
            x = make(shape, dtype, generator, special=True)
            want = refer(UNARY[name], x)
            fallback = torch.float32 if not dtype.is_floating_point else dtype
            kind = want.dtype if isinstance(want, torch.Tensor) else fallback
            for layout in ("plain", "strided", "transposed"):
                out = spread(torch.zeros(shape, dtype=kind), layout)
                check(host, f"diopi{name}", out, (spread(x, layout),), want)
            if name not in NO_IN_PLACE and isinstance(want, torch.Tensor):
                y = spread(x, "strided")
                want_in = (
                    want if torch.can_cast(want.dtype, dtype) and not (name == "Abs" and dtype.is_complex) else None
                )
                code = host.invoke(f"diopi{name}Inp", y)
                assert (code == 0) == (want_in is not None), (name, dtype, host.get_error())
                if want_in is not None:
                    torch.testing.assert_close(y, want_in.to(dtype), equal_nan=True)


BINARY = {
    "Add": (torch.add, (1,)), "Sub": (torch.sub, (1,)), "Mul": (torch.mul, ()), "Maximum": (torch.maximum, ()),
    "Div": (torch.div, (0,)), "Minimum": (torch.minimum, ()), "RemainderTensor": (torch.remainder, ()),
    "PowTensor": (torch.pow, ()), "Eq": (torch.eq, ()), "Ne": (torch.ne, ()), "Ge": (torch.ge, ()),
    "Gt": (torch.gt, ()), "Le": (torch.le, ()), "Lt": (torch.lt, ()), "LogicalAnd": (torch.logical_and, ()),
    "LogicalOr": (torch.logical_or, ()), "BitwiseAnd": (torch.bitwise_and, ()), "BitwiseOr": (torch.bitwise_or, ()),
}  # fmt: skip
SHAPES = (((4, 1, 6), (5, 1)), ((), (4,)), ((3,), ()), ((0, 3), (1, 3)), ((300,), (300,)))


@pytest.mark.parametrize("name", BINARY)
def test_binary(host, name):
    reference, extra = BINARY[name]
    generator = seed(name)
    for index, first in enumerate(DTYPES):
        for second in DTYPES[index % 2 :: 2]:
            for sizes in SHAPES:
                x = make(sizes[0], first, generator)
                y = make(sizes[1], second, generator, low=0.5 if name in ("RemainderTensor", "PowTensor") else -3)
                if "complex32" in str(torch.result_type(x, y)):
                    continue
                want = refer(reference, x, y)
                kind = want.dtype if isinstance(want, torch.Tensor) else torch.result_type(x, y)
                out = torch.zeros(torch.broadcast_shapes(*sizes), dtype=kind)
                check(host, f"diopi{name}", out, (x, y, *extra), want)
                check(host, f"diopi{name}", out, (spread(x, "strided"), spread(y, "transposed"), *extra), want)


IN_PLACE = ("Add", "Sub", "Mul", "Div", "Eq", "Ne", "Ge", "Gt", "Le", "Lt", "LogicalAnd", "LogicalOr", "BitwiseAnd")


@pytest.mark.parametrize("name", IN_PLACE)
def test_binary_in_place(host, name):
    reference, extra = BINARY[name]
    generator = seed(name + "Inp")
    for dtype in DTYPES:
        for layout in ("plain", "strided", "transposed"):
            x, y = make((4, 5), dtype, generator), make((5,), dtype, generator)
            want = refer(reference, x, y)
            if isinstance(want, torch.Tensor) and not torch.can_cast(want.dtype, dtype):
                continue
            z = spread(x, layout)
            code = host.invoke(f"diopi{name}Inp", z, y, *extra)
            assert (code == 0) == isinstance(want, torch.Tensor), (name, dtype, want)
            torch.testing.assert_close(z, want.to(dtype) if code == 0 else x, equal_nan=True)


def test_alpha(host):
    generator = seed("alpha")
    for dtype in (*INTS, *FLOATS, *COMPLEX):
        for name, reference in (("diopiAdd", torch.add), ("diopiSub", torch.sub)):
            x, y = make((40,), dtype, generator), make((40,), dtype, generator)
            for alpha in (2, 3) if dtype in INTS else (2, 0.3):
                check(host, name, torch.zeros_like(x), (x, y, alpha), reference(x, y, alpha=alpha))
                check(host, name + "Scalar", torch.zeros_like(x), (x, 5, alpha), reference(x, 5, alpha=alpha))
    x = torch.ones(3, dtype=torch.int32)
    assert host.invoke("diopiAdd", x.clone(), x, x, 0.5) == 1 and "alpha" in host.get_error()
    flags = torch.tensor([True, False])
    check(host, "diopiAdd", torch.zeros_like(flags), (flags, flags, True), flags)


SCALAR = {
    "AddScalar": (torch.add, (1,)), "SubScalar": (torch.sub, (1,)), "MulScalar": (torch.mul, ()),
    "DivScalar": (torch.div, (0,)), "RemainderScalar": (torch.remainder, ()), "Pow": (torch.pow, ()),
    "EqScalar": (torch.eq, ()), "NeScalar": (torch.ne, ()), "GeScalar": (torch.ge, ()), "GtScalar": (torch.gt, ()),
    "LeScalar": (torch.le, ()), "LtScalar": (torch.lt, ()), "BitwiseAndScalar": (torch.bitwise_and, ()),
    "BitwiseOrScalar": (torch.bitwise_or, ()), "PowScalar": (lambda x, s: torch.pow(s, x), ()),
    "Remainder": (lambda x, s: torch.remainder(s, x), ()),
}  # fmt: skip


@pytest.mark.parametrize("name", SCALAR)
def test_scalar(host, name):
    reference, extra = SCALAR[name]
    generator = seed(name)
    for dtype in DTYPES:
        for shape in ((3, 50), (), (0,)):
            x = make(shape, dtype, generator, low=0.5)
            for number in (2, 3, 0.3, -0.5, True):
                want = refer(reference, x, number)
                kind = want.dtype if isinstance(want, torch.Tensor) else torch.result_type(x, number)
                arguments = (number, x) if name in ("PowScalar", "Remainder") else (x, number, *extra)
                for layout in ("plain", "strided"):
                    check(host, f"diopi{name}", spread(torch.zeros(shape, dtype=kind), layout), arguments, want)


def test_division_modes(host):
    generator = seed("modes")
    for dtype in (*INTS, *FLOATS):
        x, y = make((200,), dtype, generator, -50, 50), make((200,), dtype, generator, 0.5, 7)
        for mode, text in ((1, "trunc"), (2, "floor")):
            want = torch.div(x, y, rounding_mode=text)
            check(host, "diopiDiv", torch.zeros_like(x), (x, y, mode), want)
            check(host, "diopiDivScalar", torch.zeros_like(x), (x, 3, mode), torch.div(x, 3, rounding_mode=text))
    least = torch.tensor([-(2**31), 7], dtype=torch.int32)
    out = torch.full_like(least, 5)
    host.call("diopiDivScalar", out, least, -1, 1)
    assert out.tolist() == [-(2**31), -7]
    for name, extra in (("diopiDiv", (1,)), ("diopiDiv", (2,)), ("diopiRemainderTensor", ())):
        out = torch.full_like(least, 5)
        assert host.invoke(name, out, least, torch.tensor([1, 0], dtype=torch.int32), *extra) == 1
        assert "zero" in host.get_error() and out.tolist() == [5, 5]
    assert host.invoke("diopiDiv", out, least, least, 7) == 1 and "rounding_mode" in host.get_error()


GRADIENTS = {
    "Hardswish": (lambda g, x: A.hardswish_backward(g, x), ()),
    "Tanh": (lambda g, x: A.tanh_backward(g, x), ()),
    "Sigmoid": (lambda g, x: A.sigmoid_backward(g, x), ()),
    "Silu": (lambda g, x: A.silu_backward(g, x), ()),
    "Gelu": (lambda g, x: A.gelu_backward(g, x, approximate="none"), ("none",)),
    "Gelu tanh": (lambda g, x: A.gelu_backward(g, x, approximate="tanh"), ("tanh",)),
    "Hardtanh": (lambda g, x: A.hardtanh_backward(g, x, -1, 0.5), (-1, 0.5)),
    "Threshold": (lambda g, x: A.threshold_backward(g, x, 0.25), (0.25,)),
    "LeakyRelu": (lambda g, x: A.leaky_relu_backward(g, x, 0.1, False), (0.1, False)),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(host, name):
    reference, extra = GRADIENTS[name]
    generator = seed(name)
    for dtype in (*FLOATS, *COMPLEX):
        for shape in ((3, 70), (), (0,)):
            g, x = make(shape, dtype, generator), make(shape, dtype, generator)
            want = refer(reference, g, x)
            if isinstance(want, torch.Tensor) and not dtype.is_complex:
                want = reference(g.double(), x.double()).to(dtype)  # PyTorch rounds half types at every step
            for layout in ("plain", "strided", "transposed"):
                out = spread(torch.zeros(shape, dtype=dtype), layout)
                check(host, f"diopi{name.split()[0]}Backward", out, (spread(g, layout), x, *extra), want)


ACTIVATIONS = {
    "Gelu": (F.gelu, ("none",)), "Gelu tanh": (lambda x: F.gelu(x, approximate="tanh"), ("tanh",)),
    "Hardtanh": (lambda x: F.hardtanh(x, -1, 2), (-1, 2)), "Threshold": (lambda x: F.threshold(x, 1, 7), (1, 7)),
    "LeakyRelu": (lambda x: F.leaky_relu(x, 0.1), (0.1,)),
}  # fmt: skip


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(host, name):
    reference, extra = ACTIVATIONS[name]
    generator = seed(name)
    for dtype in DTYPES:
        if dtype is torch.uint8 and name == "Hardtanh":
            continue  # PyTorch refuses a negative limit
        x = make((3, 70), dtype, generator, special=True)
        want = refer(reference, x)
        if isinstance(want, torch.Tensor) and "Gelu" in name:
            want = reference(x.double()).to(dtype)  # PyTorch's float32 gelu makes infinity NaN
        check(host, f"diopi{name.split()[0]}", torch.zeros_like(x), (x, *extra), want)
        if isinstance(want, torch.Tensor) and "Gelu" not in name:
            y = spread(x, "transposed")
            host.call(f"diopi{name}Inp", y, *extra)
            torch.testing.assert_close(y, want, equal_nan=True)
    assert host.invoke("diopiGelu", torch.zeros(2), torch.zeros(2), "sigmoid") == 1
    assert "approximate" in host.get_error()


def test_clamp(host):
    generator = seed("clamp")
    for dtype in (*INTS, *FLOATS):
        x = make((4, 30), dtype, generator, special=True)
        low, high = make((30,), dtype, generator), make((4, 1), dtype, generator)
        for least, most in ((low, high), (low, None), (None, high)):
            want = torch.clamp(x, least, most)
            check(host, "diopiClamp", torch.zeros_like(want), (x, least, most), want)
        for least, most in ((1, 3), (None, 3), (1, None), (3, 1)):
            want = torch.clamp(x, least, most)
            check(host, "diopiClampScalar", torch.zeros_like(want), (x, least, most), want)
            y = spread(x, "strided")
            host.call("diopiClampInpScalar", y, least, most)
            torch.testing.assert_close(y, want, equal_nan=True)
        check(host, "diopiClampMin", torch.zeros_like(x), (x, low), torch.clamp_min(x, low))
        check(host, "diopiClampMax", torch.zeros_like(x), (x, high), torch.clamp_max(x, high))
        check(host, "diopiClampMinScalar", torch.zeros_like(x), (x, 2), torch.clamp_min(x, 2))
        check(host, "diopiClampMaxScalar", torch.zeros_like(x), (x, 2), torch.clamp_max(x, 2))
    x = torch.zeros(3)
    assert host.invoke("diopiClamp", x, x, None, None) == 1 and "both NULL" in host.get_error()


def test_addcmul_lerp_where(host):
    generator = seed("ternary")
    for dtype in DTYPES:
        x, y, z = (make(shape, dtype, generator, low=0.5) for shape in ((4, 30), (30,), (4, 1)))
        zeros, value = torch.zeros_like(x), 2 if dtype in INTS else 0.3
        for name, reference in (("Addcmul", torch.addcmul), ("Addcdiv", torch.addcdiv)):
            want = refer(lambda a, b, c, f=reference, k=value: f(a, b, c, value=k), x, y, z)
            if name == "Addcdiv" and dtype in INTS:
                want = RuntimeError("integer division")
            check(host, f"diopi{name}", zeros.clone(), (x, y, z, value), want)
            if isinstance(want, torch.Tensor):
                w = spread(x, "strided")
                host.call(f"diopi{name}Inp", w, y, z, value)
                torch.testing.assert_close(w, want)
        for weight in (0.25, 0.75):
            want = refer(torch.lerp, x, y.expand(4, 30), weight)
            check(host, "diopiLerpScalar", zeros.clone(), (x, y, weight), want)
        want = refer(torch.lerp, x, y.expand(4, 30), z.expand(4, 30))
        check(host, "diopiLerpTensor", zeros.clone(), (x, y, z), want)
        mask = make((4, 30), torch.bool, generator)
        check(host, "diopiWhere", zeros.clone(), (mask, y, z), torch.where(mask, y, z))
        other = torch.ones((), dtype=torch.float64)
        want = torch.where(mask, x, other)
        check(host, "diopiWhere", torch.zeros_like(want), (spread(mask, "transposed"), x, other), want)


def test_copy_cast_fill(host):
    generator = seed("copy")
    for source in DTYPES:
        x = make((3, 4, 5), source, generator, low=0.5)
        for target in DTYPES:
            if source.is_complex and not target.is_complex:
                continue
            check(host, "diopiCastDtype", torch.zeros_like(x, dtype=target), (x,), x.to(target))
            out = spread(torch.zeros((2, 3, 4, 5), dtype=target), "transposed")
            host.call("diopiCopyInp", spread(x, "strided"), out)
            assert torch.equal(out, x.to(target).expand(2, 3, 4, 5))
        for value in (0, 3, 0.75, True):
            y = spread(torch.ones((4, 7), dtype=source), "strided")
            host.call("diopiFill", y, value)
            assert torch.equal(y, torch.full((4, 7), value).to(source))
        host.call("diopiZeroInp", x)
        assert not x.any()
        host.call("diopiOnes", x, (3, 4, 5))
        assert bool((x == 1).all())
    assert host.invoke("diopiZeros", torch.ones(3), (4,)) == 1
    image = make((2, 3, 4, 5), torch.float32, generator)
    made = diopi.Required()
    host.call("diopiContiguous", made, image, 1)
    assert made.strides == (60, 1, 15, 3)
    got = torch.frombuffer(bytearray(made.data), dtype=torch.float32).view(2, 4, 5, 3).permute(0, 3, 1, 2)
    assert torch.equal(got, image)
    assert host.invoke("diopiContiguous", diopi.Required(), image, 2) == 1


def test_ranges(host):
    for dtype in (*INTS, *FLOATS):
        for bounds in ((0, 17, 1), (3, 40, 4), (20, 2, -3)):
            if dtype is torch.uint8 and bounds[2] < 0:
                continue
            want = torch.arange(*bounds, dtype=dtype)
            check_range(host, "diopiArange", want, bounds)
        for first, last, steps in ((0, 10, 11), (1, 2, 7), (5, 5, 1), (3, -3, 4), (0, 1, 0)):
            if dtype is torch.uint8 and last < 0:
                continue
            check_range(host, "diopiLinspace", torch.linspace(first, last, steps, dtype=dtype), (first, last, steps))
    for dtype in (torch.int16, torch.int32, torch.int64):  # the ends are integers before the steps are taken
        check_range(host, "diopiLinspace", torch.linspace(4.3, -3.7, 50, dtype=dtype), (4.3, -3.7, 50))
    check_range(host, "diopiArange", torch.arange(0.5, 3, 0.25), (0.5, 3.0, 0.25))
    assert host.invoke("diopiArange", torch.zeros(3), 0, 10, 1) == 1
    assert host.invoke("diopiArange", torch.zeros(3), 0, 10, 0) == 1


def check_range(host, name, want, arguments):
    out = spread(torch.zeros_like(want), "strided")
    host.call(name, out, *arguments)
    torch.testing.assert_close(out, want)


def test_equal(host):
    generator = seed("equal")

    def ask(x, y):
        flag = (ctypes.c_bool * 1)()
        host.call("diopiEqual", flag, x, y)
        return flag[0]

    for dtype in DTYPES:
        x = make((5, 300), dtype, generator)
        assert ask(x, spread(x, "transposed")) is True
        y = x.clone()
        y[4, 299] = ~y[4, 299] if dtype is torch.bool else y[4, 299] + 1
        assert ask(x, y) is False
        assert ask(x, x[:4]) is False
    nan = torch.tensor([float("nan")])
    assert ask(nan, nan) is False
    assert ask(torch.zeros(0), torch.zeros(0)) is True
    assert host.invoke("diopiEqual", None, nan, nan) == 1


def test_complex(host):
    generator = seed("complex")
    for real, pair in ((torch.float32, torch.complex64), (torch.float64, torch.complex128)):
        x, y = make((4, 30), real, generator), make((30,), real, generator)
        zeros = torch.zeros((4, 30), dtype=pair)
        check(host, "diopiComplex", zeros.clone(), (x, y), torch.complex(x, y.expand(4, 30)))
        check(host, "diopiPolar", zeros.clone(), (x.abs(), y), torch.polar(x.abs(), y.expand(4, 30)))
        z = make((4, 30), pair, generator)
        for layout in ("plain", "strided", "transposed"):
            check(host, "diopiConj", zeros.clone(), (spread(z, layout),), torch.conj_physical(z))
            check(host, "diopiReal", torch.zeros((4, 30), dtype=real), (spread(z, layout),), z.real.clone())
            check(host, "diopiImag", torch.zeros((4, 30), dtype=real), (spread(z, layout),), z.imag.clone())
    assert host.invoke("diopiImag", torch.zeros(3), torch.zeros(3)) == diopi.DTYPE_NOT_SUPPORTED


def test_errors(host):
    x = torch.arange(6.0).view(2, 3)
    kept = x.clone()
    for arguments, text in (
        ((torch.zeros(2, 4), x, x, 1), "shape"),
        ((torch.zeros(4, 2, 3), x, x, 1), "out"),
        ((torch.zeros(2, 3), x, torch.zeros(4), 1), "other"),
        ((None, x, x, 1), "out"),
        ((torch.zeros(2, 3), None, x, 1), "input"),
        ((torch.zeros(2, 3), x, x, None), "alpha"),
        ((torch.zeros(1, 3).expand(2, 3), x, x, 1), "several indices"),
        ((x.view(-1)[1:4].expand(2, 3), x, x, 1), ""),
    ):
        assert host.invoke("diopiAdd", *arguments) == 1
        assert text in host.get_error() and host.get_error().startswith("diopiAdd: ")
    flat = torch.arange(10.0)
    assert host.invoke("diopiAdd", flat[1:], flat[:-1], flat[:-1], 1) == 1 and "memory" in host.get_error()
    assert host.invoke("diopiAdd", torch.zeros(2, 3, dtype=torch.int32), x, x, 1) == diopi.DTYPE_NOT_SUPPORTED
    assert host.invoke("diopiExpInp", torch.ones(3, dtype=torch.int32)) == diopi.DTYPE_NOT_SUPPORTED
    assert host.invoke("diopiAdd", x, x, x, 1, has_context=False) == 1 and "ctx" in host.get_error()
    assert torch.equal(x, kept)


def test_large_and_channels_last(host):
    generator = seed("large")
    x = make((2, 64, 30, 40), torch.float32, generator).to(memory_format=torch.channels_last)
    y = make((64, 1, 1), torch.float32, generator)
    out = torch.empty_like(x)
    check(host, "diopiMul", out, (x, y), x * y)
    z = make((300_000,), torch.float32, generator)
    check(host, "diopiAdd", torch.empty_like(z), (z, z, 1), z + z)
    check(host, "diopiSin", torch.empty_like(z), (z * 1e5,), torch.sin(z * 1e5))
