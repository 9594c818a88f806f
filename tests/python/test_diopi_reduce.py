"""The host library's reductions, softmax, scans and norms against PyTorch on the CPU in float64."""

from __future__ import annotations

import math

import pytest
import torch
from ditorch import diopi

HOST = diopi.Library("host")
SEED = 7
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
ROUNDING = {torch.float16: 2e-3, torch.bfloat16: 1.6e-2, torch.float32: 1e-5, torch.float64: 1e-11}
LAYOUTS = ("plain", "strided", "permuted", "offset")


def draw(shape, dtype=torch.float32, seed=SEED):
    """Random numbers of the dtype; the seed is the test's."""
    generator = torch.Generator().manual_seed(seed + sum(shape) + len(shape))
    if dtype == torch.bool:
        return torch.rand(shape, generator=generator) > 0.5
    if dtype.is_complex:
        return torch.randn(shape, generator=generator, dtype=dtype)
    if not dtype.is_floating_point:
        return torch.randint(0 if dtype == torch.uint8 else -9, 9, shape, generator=generator).to(dtype)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def restride(tensor, layout):
    """The same values in another memory layout."""
    if layout == "strided":
        room = torch.zeros([*tensor.shape, 2], dtype=tensor.dtype)
        return room[..., 1].copy_(tensor)
    if layout == "permuted":
        order = list(reversed(range(tensor.dim())))
        return tensor.permute(order).contiguous().permute(order)
    if layout == "offset":
        room = torch.zeros(tensor.numel() + 3, dtype=tensor.dtype)
        return room[3:].view(tensor.shape).copy_(tensor)
    if layout == "channels_last":
        return tensor.contiguous(memory_format=torch.channels_last)
    return tensor.contiguous()


def room(tensor, layout="plain", dtype=None):
    """An output of this shape, filled with a value that no result has."""
    dtype = dtype or tensor.dtype
    fill = torch.full(tensor.shape, 77 if dtype != torch.bool else 1, dtype=dtype)
    return restride(fill, layout)


def close(got, want, dtype=None, factor=1.0):
    """Equal up to the rounding of the result's dtype."""
    limit = ROUNDING.get(dtype or got.dtype, 0) * factor
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


def grads(function, *tensors, upstream):
    """Gradients by autograd in float64."""
    leaves = [None if t is None else t.double().clone().requires_grad_() for t in tensors]
    out = function(*leaves)
    out.backward(upstream.double().reshape(out.shape))
    return [t if t is None else torch.zeros_like(t) if t.grad is None else t.grad for t in leaves]


DIMS = ([], [0], [1], [2], [0, 2], [0, 1, 2], [-1])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", (*FLOATS, *INTEGERS, torch.bool, torch.complex64, torch.complex128))
def test_sum_mean(dtype, layout):
    x = restride(draw((5, 33, 12), dtype), layout)
    floating = dtype.is_floating_point or dtype.is_complex
    out_dtype = dtype if floating else torch.int64
    wide = torch.complex128 if dtype.is_complex else torch.float64 if floating else torch.int64
    for dims in DIMS:
        for keep in (False, True):
            want = torch.sum(x.to(wide), dims, keepdim=keep) if dims else x.to(wide).sum()
            out = room(want, layout if want.dim() else "plain", out_dtype)
            HOST.call("diopiSum", out, x, dims)
            if dtype.is_complex:
                torch.testing.assert_close(out.to(wide), want, rtol=1e-5, atol=1e-5)
            else:
                close(out, want, factor=8)
            if floating:
                want = torch.mean(x.to(wide), dims, keepdim=keep) if dims else x.to(wide).mean()
                out = room(want, "plain", out_dtype)
                HOST.call("diopiMean", out, x, dims)
                torch.testing.assert_close(out.to(wide), want, rtol=ROUNDING.get(dtype, 1e-5), atol=1e-3)


def test_long_sums_do_not_drift():
    x = torch.rand(1 << 22, generator=torch.Generator().manual_seed(SEED)) + 1
    for view, dims in ((x, []), (x.view(-1, 4), [0]), (x.view(4, -1), [1]), (x.view(2, -1, 8), [1])):
        want = view.double().sum(dims) if dims else view.double().sum()
        out = torch.empty(want.shape)
        HOST.call("diopiSum", out, view, dims)
        assert ((out.double() - want).abs() / want).max() < 3e-7
    ones = torch.ones(70000, dtype=torch.float16)
    out = torch.empty((), dtype=torch.float32)
    HOST.call("diopiSum", out, ones, [])
    assert out.item() == 70000


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", (*FLOATS, *INTEGERS, torch.bool))
def test_extremes(dtype, layout):
    x = restride(draw((5, 300, 9), dtype), layout)
    if dtype.is_floating_point:
        x[1, 20, 3] = math.nan
        x[2, 21, 4] = -math.inf
        x[3, 22, 5] = math.inf
    for dims in DIMS:
        want = torch.amax(x, dims)
        out = room(want)
        HOST.call("diopiAmax", out, x, dims, False)
        assert torch.equal(torch.nan_to_num(out), torch.nan_to_num(want))
        want = torch.amax(x, dims, keepdim=True)
        out = room(want)
        HOST.call("diopiAmax", out, x, dims, True)
        assert torch.equal(torch.isnan(out), torch.isnan(want))
    for name, reference in (("Max", torch.max), ("Min", torch.min)):
        for dim in (0, 1, 2, -1):
            values, indices = reference(x, dim)
            got_values, got_indices = room(values, layout), room(indices, layout)
            HOST.call(f"diopi{name}", got_values, got_indices, x, dim)
            assert torch.equal(got_indices, indices), (name, dim, SEED)
            assert torch.equal(torch.nan_to_num(got_values), torch.nan_to_num(values))
        want, out = reference(x), room(reference(x))
        HOST.call(f"diopi{name}All", out, x)
        assert torch.equal(torch.nan_to_num(out), torch.nan_to_num(want))
    if dtype != torch.bool:
        for name, reference in (("Argmax", torch.argmax), ("Argmin", torch.argmin)):
            for dim in (None, 0, 1, 2):
                for keep in (False, True):
                    want = reference(x, dim, keepdim=keep)
                    out = room(want)
                    HOST.call(f"diopi{name}", out, x, dim, keep)
                    assert torch.equal(out, want), (name, dim)


@pytest.mark.parametrize("dtype", (*FLOATS, *INTEGERS, torch.bool, torch.complex64))
def test_logical(dtype):
    x = draw((4, 70, 3), dtype)
    x = x * (draw((4, 70, 3), torch.bool, 3).to(dtype)) if dtype != torch.bool else x
    x[1] = 0
    x[2] = 1
    for layout in LAYOUTS:
        for name, reference in (("Any", torch.any), ("All", torch.all)):
            for dim in (None, 0, 1, 2):
                view = restride(x, layout)
                want = (reference(view) if dim is None else reference(view, dim)).bool()
                out = room(want)
                HOST.call(f"diopi{name}", out, view, dim)
                assert torch.equal(out, want), (name, dim)


@pytest.mark.parametrize("dtype", (*FLOATS, torch.int64))
def test_prod_std(dtype):
    x = draw((4, 9, 6), dtype)
    for dim in (None, 0, 1, -1):
        want = x.double().prod() if dim is None else x.double().prod(dim)
        if dtype == torch.int64:
            want = x.prod() if dim is None else x.prod(dim)
        out = room(want, "plain", dtype)
        HOST.call("diopiProd", out, x, dim)
        close(out, want, factor=4)
    if dtype == torch.int64:
        return
    for layout in LAYOUTS:
        view = restride(x + 100, layout)
        for dims in DIMS:
            for correction in (None, 0, 2):
                value = 1 if correction is None else correction
                want = torch.std(view.double(), dims or None, correction=value)
                out = room(want, "plain", dtype)
                HOST.call("diopiStd", out, view, dims, correction)
                close(out, want, factor=4)


@pytest.mark.parametrize("dtype", (*FLOATS, torch.complex64))
@pytest.mark.parametrize("p", (2.0, 1.0, 0.0, math.inf, -math.inf, 3.0, 0.5, 1.5))
def test_norm(p, dtype):
    x = draw((4, 50, 6), dtype)
    wide = x.to(torch.complex128 if dtype.is_complex else torch.float64)
    real = torch.float32 if dtype.is_complex else dtype
    for dims in ([], [1], [0, 2]) if p != 0.5 else ([2],):  # sums of roots leave the range of half precision
        want = torch.linalg.vector_norm(wide, p, dims or None)
        out = room(want, "plain", real)
        HOST.call("diopiNorm", out, restride(x, "permuted"), p, dims)
        close(out, want, factor=4)
        want = torch.linalg.vector_norm(wide, p, dims or None, keepdim=True)
        out = room(want, "plain", real)
        HOST.call("diopiLinalgVecNorm", out, x, p, dims, True)
        close(out, want, factor=4)
        if dtype.is_complex:
            continue
        upstream = draw(want.shape, dtype, 5)
        (want_grad,) = grads(lambda t, d=dims: torch.norm(t, p, d or None, True), x, upstream=upstream)
        grad = room(x)
        HOST.call("diopiNormBackward", grad, upstream, x, want.to(dtype), dims, p)
        if not (math.isinf(p) and dtype in (torch.float16, torch.bfloat16)):
            close(grad, want_grad, factor=40 if p < 1 else 8)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("p", (2.0, 1.0, 3.0, math.inf))
def test_normalize(p, dtype):
    x = draw((4, 7, 6), dtype)
    x[0, :, 0] = 0
    upstream = draw((4, 7, 6), dtype, 3)
    for dim in (0, 1, -1):
        reference = lambda t, d=dim: torch.nn.functional.normalize(t, p, d, 1e-3)  # noqa: E731
        out = room(x, "strided")
        HOST.call("diopiNormalize", out, restride(x, "permuted"), p, dim, 1e-3)
        close(out, reference(x.double()), factor=4)
        (want,) = grads(reference, x, upstream=upstream)
        out = room(x)
        HOST.call("diopiNormalizeBackward", out, upstream, x, p, dim, 1e-3)
        want[torch.isnan(want)] = 0
        scale = 1000 if dim == 1 else 1  # a zero vector divides by eps
        torch.testing.assert_close(
            out.double(),
            want,
            rtol=8 * ROUNDING[dtype],
            atol=8 * ROUNDING[dtype] * (scale if dtype != torch.float64 else 1),
        )


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_softmax(dtype, layout):
    x, g = restride(draw((5, 40, 7), dtype), layout), restride(draw((5, 40, 7), dtype, 3), layout)
    for dim in (0, 1, -1):
        for name, reference in (("Softmax", torch.softmax), ("LogSoftmax", torch.log_softmax)):
            out = room(x, layout)
            HOST.call(f"diopi{name}", out, x, dim)
            close(out, reference(x.double(), dim))
            y = reference(x.double(), dim)
            (want,) = grads(lambda t, r=reference, d=dim: r(t, d), x, upstream=g)
            grad = room(x, layout)
            HOST.call(f"diopi{name}Backward", grad, g, y.to(dtype), dim)
            close(grad, want, factor=8)
            same = g.clone()
            HOST.call(f"diopi{name}Backward", same, same, y.to(dtype), dim)
            close(same, want, factor=8)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_layer_norm(dtype, layout):
    shape, inner = (9, 5, 17), (5, 17)
    x, g = restride(draw(shape, dtype), layout), restride(draw(shape, dtype, 2), layout)
    stats = torch.float64 if dtype == torch.float64 else torch.float32
    for weight, bias in ((draw(inner, dtype, 3), draw(inner, dtype, 4)), (draw(inner, dtype, 3), None), (None, None)):
        reference = lambda a, w, b: torch.nn.functional.layer_norm(a, inner, w, b, 1e-5)  # noqa: E731
        mean, scale, out = torch.empty(9, 1, 1, dtype=stats), torch.empty(9, 1, 1, dtype=stats), room(x, layout)
        HOST.call("diopiLayerNorm", out, mean, scale, x, weight, bias, inner, 1e-5)
        wide = [None if t is None else t.double() for t in (weight, bias)]
        close(out, reference(x.double(), *wide))
        close(mean, x.double().mean((1, 2), keepdim=True))
        close(scale, (x.double().var((1, 2), correction=0, keepdim=True) + 1e-5).rsqrt())
        want = grads(reference, x, weight, bias, upstream=g)
        got = [room(x, layout), None if weight is None else room(weight), None if bias is None else room(bias)]
        HOST.call("diopiLayerNormBackward", *got, g, x, weight, bias, mean, scale, inner)
        for a, b in zip(got, want, strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                close(a, b, factor=16)
        again = room(x)
        HOST.call("diopiLayerNormGB", again, mean, scale, x, weight, bias, 1e-5, 1)
        assert torch.equal(again, out)
        again = room(x)
        HOST.call("diopiLayerNormGBBackward", again, None, None, g, x, weight, bias, mean, scale, 1)
        assert torch.equal(again, got[0])


@pytest.mark.parametrize("dtype", FLOATS)
def test_rms_norm(dtype):
    x, g, w, b = draw((6, 4, 130), dtype), draw((6, 4, 130), dtype, 2), draw((130,), dtype, 3), draw((130,), dtype, 4)
    reference = lambda a, s, t: torch.nn.functional.rms_norm(a, (130,), s, 1e-6) + t  # noqa: E731
    out, scale = room(x), torch.empty(6, 4, 1, dtype=torch.float64 if dtype == torch.float64 else torch.float32)
    HOST.call("diopiRMSNorm", out, scale, x, (130,), w, b, 1e-6)
    close(out, reference(x.double(), w.double(), b.double()))
    got = [room(x), room(w), room(b)]
    HOST.call("diopiRMSNormBackward", *got, g, x, w, b, scale, (130,), 1e-6)
    for a, c in zip(got, grads(reference, x, w, b, upstream=g), strict=True):
        close(a, c, factor=16)


@pytest.mark.parametrize("layout", (*LAYOUTS, "channels_last"))
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("training", (True, False))
def test_batch_norm(training, dtype, layout):
    shape = (6, 5, 7, 3)
    x, g = restride(draw(shape, dtype) + 3, layout), restride(draw(shape, dtype, 2), layout)
    stats = torch.float64 if dtype == torch.float64 else torch.float32
    w, b = draw((5,), dtype, 3), draw((5,), dtype, 4)
    running = draw((5,), stats, 5), draw((5,), stats, 6).abs() + 0.5
    want_running = [t.double().clone() for t in running]
    reference = lambda a, s, t: torch.nn.functional.batch_norm(  # noqa: E731
        a, *[r.clone() for r in want_running], s, t, training, 0.1, 1e-5
    )
    old = [t.clone() for t in running]
    mean, scale, out = torch.full((5,), 9, dtype=stats), torch.full((5,), 9, dtype=stats), room(x, layout)
    HOST.call("diopiBatchNorm", out, mean, scale, x, w, b, *running, training, 0.1, 1e-5)
    close(out, reference(x.double(), w.double(), b.double()), factor=2)
    want = grads(reference, x, w, b, upstream=g)
    if training:
        torch.nn.functional.batch_norm(x.double(), *want_running, None, None, True, 0.1, 1e-5)
        close(mean, x.double().mean((0, 2, 3)))
        close(scale, (x.double().var((0, 2, 3), correction=0) + 1e-5).rsqrt())
    else:
        assert torch.equal(mean, torch.full((5,), 9, dtype=stats))
    for a, c in zip(running, want_running, strict=True):
        close(a, c)
    got = [room(x, layout), room(w), room(b)]
    HOST.call("diopiBatchNormBackward", *got, g, x, w, *old, mean, scale, training, 1e-5)
    for a, c in zip(got, want, strict=True):
        close(a, c, factor=32)


@pytest.mark.parametrize("shape", ((40, 5), (8, 5, 6), (2, 5, 3, 2, 2)))
def test_batch_norm_ranks(shape):
    x, g = draw(shape), draw(shape, seed=3)
    mean, scale, out = torch.empty(5), torch.empty(5), room(x)
    HOST.call("diopiBatchNorm", out, mean, scale, x, None, None, None, None, True, 0.1, 1e-5)
    reference = lambda a: torch.nn.functional.batch_norm(a, None, None, training=True)  # noqa: E731
    close(out, reference(x.double()))
    out = room(x)
    HOST.call("diopiBatchNormBackward", out, None, None, g, x, None, None, None, mean, scale, True, 1e-5)
    close(out, grads(reference, x, upstream=g)[0], factor=4)


@pytest.mark.parametrize("layout", ("plain", "channels_last"))
def test_sync_batch_norm_pieces(layout):
    """Two processes with unequal batches give what one process with all of it gives."""
    x, g = restride(draw((7, 4, 5, 3)), layout), restride(draw((7, 4, 5, 3), seed=2), layout)
    w, b = draw((4,), seed=3), draw((4,), seed=4)
    parts = [(x[:3], g[:3]), (x[3:], g[3:])]
    means, scales = torch.empty(2, 4), torch.empty(2, 4)
    for i, (part, _) in enumerate(parts):
        HOST.call("diopiBatchNormStats", means[i], scales[i], part, 1e-5)
    counts = torch.tensor([3 * 15, 4 * 15], dtype=torch.int32)
    mean, scale, running = torch.empty(4), torch.empty(4), [torch.zeros(4), torch.ones(4)]
    HOST.call("diopiBatchNormGatherStatsWithCounts", mean, scale, x, means, scales, *running, 0.1, 1e-5, counts)
    want_running = [torch.zeros(4, dtype=torch.float64), torch.ones(4, dtype=torch.float64)]
    reference = lambda a, s, t: torch.nn.functional.batch_norm(a, None, None, s, t, True, 0.1, 1e-5)  # noqa: E731
    torch.nn.functional.batch_norm(x.double(), *want_running, None, None, True, 0.1, 1e-5)
    for a, c in zip(running, want_running, strict=True):
        close(a, c)
    out = room(x, layout)
    HOST.call("diopiBatchNormElemt", out, x, w, b, mean, scale, 1e-5)
    close(out, reference(x.double(), w.double(), b.double()))
    total = [torch.zeros(4) for _ in range(4)]
    for part, grad in parts:
        sums = [torch.empty(4) for _ in range(4)]
        HOST.call("diopiBatchNormBackwardReduce", *sums, grad, part, mean, scale, w, True, True, True)
        for a, c in zip(total, sums, strict=True):
            a += c
    want = grads(reference, x, w, b, upstream=g)
    close(total[2], want[1], factor=8)
    close(total[3], want[2], factor=8)
    out = room(x, layout)
    HOST.call("diopiBatchNormBackwardElemt", out, g, x, mean, scale, w, total[0], total[1], counts)
    close(out, want[0], factor=8)


@pytest.mark.parametrize("layout", (*LAYOUTS, "channels_last"))
@pytest.mark.parametrize("dtype", FLOATS)
def test_group_norm(dtype, layout):
    shape = (3, 6, 5, 4)
    x, g = restride(draw(shape, dtype), layout), restride(draw(shape, dtype, 2), layout)
    stats = torch.float64 if dtype == torch.float64 else torch.float32
    w, b = draw((6,), dtype, 3), draw((6,), dtype, 4)
    for groups in (1, 2, 6):
        reference = lambda a, s, t, n=groups: torch.nn.functional.group_norm(a, n, s, t, 1e-5)  # noqa: E731
        mean, scale, out = torch.empty(3, groups, dtype=stats), torch.empty(3, groups, dtype=stats), room(x, layout)
        HOST.call("diopiGroupNorm", out, mean, scale, x, w, b, groups, 1e-5)
        close(out, reference(x.double(), w.double(), b.double()), factor=2)
        close(mean, x.double().reshape(3, groups, -1).mean(2))
        want = grads(reference, x, w, b, upstream=g)
        got = [room(x, layout), room(w), room(b)]
        HOST.call("diopiGroupNormBackward", *got, g, x, w, mean, scale, groups)
        for a, c in zip(got, want, strict=True):
            close(a, c, factor=16)
    out = room(x, layout)
    HOST.call("diopiInstanceNorm", out, x, 1, w, b, 1e-5)
    reference = lambda a, s, t: torch.nn.functional.instance_norm(a, None, None, s, t)  # noqa: E731
    close(out, reference(x.double(), w.double(), b.double()), factor=2)
    last, out = x.movedim(1, -1), room(x.movedim(1, -1))
    HOST.call("diopiInstanceNorm", out, last, -1, w, b, 1e-5)
    close(out.movedim(-1, 1), reference(x.double(), w.double(), b.double()), factor=2)
    got = [room(x, layout), room(w), room(b)]
    HOST.call("diopiInstanceNormBackward", *got, g, x, w, b, 1, 1e-5)
    for a, c in zip(got, grads(reference, x, w, b, upstream=g), strict=True):
        close(a, c, factor=16)


def test_empty_and_scalars():
    empty, one = torch.empty(0, 4), torch.tensor(3.0)
    for name, want in (("diopiSum", 0.0), ("diopiMean", math.nan)):
        out = torch.full((4,), 9.0)
        HOST.call(name, out, empty, [0])
        close(out, torch.full((4,), want))
        out = torch.full((), 9.0)
        HOST.call(name, out, one, [])
        assert out.item() == 3
    out = torch.full((4,), 9.0)
    HOST.call("diopiProd", out, empty, 0)
    assert torch.equal(out, torch.ones(4))
    logical = torch.zeros(4, dtype=torch.bool)
    HOST.call("diopiAll", logical, empty, 0)
    assert logical.all()
    HOST.call("diopiAny", logical, empty, 0)
    assert not logical.any()
    index, value = torch.full((), 9), torch.full((), 9.0)
    HOST.call("diopiMax", value, index, one, 0)
    assert (value.item(), index.item()) == (3, 0)
    HOST.call("diopiArgmax", index, one, None, False)
    HOST.call("diopiSoftmax", value, one, 0)
    HOST.call("diopiSoftmaxBackward", value, one, torch.ones(()), 0)
    assert value.item() == 0
    HOST.call("diopiLayerNorm", torch.empty(0, 4), torch.empty(0, 1), torch.empty(0, 1), empty, None, None, (4,), 1e-5)
    weight = torch.full((4,), 9.0)
    HOST.call(
        "diopiLayerNormBackward", torch.empty(0, 4), weight, None, empty, empty, torch.ones(4), None,
        torch.empty(0, 1), torch.empty(0, 1), (4,),
    )  # fmt: skip
    assert torch.equal(weight, torch.zeros(4))


def test_refusals():
    x, out = torch.randn(3, 4), torch.full((4,), 9.0)
    fail, dtype = 1, diopi.DTYPE_NOT_SUPPORTED
    refuse(fail, ("out", "shape"), "diopiSum", torch.empty(5), x, [0])
    refuse(fail, ("dim", "2"), "diopiSum", out, x, [2], untouched=[out])
    refuse(fail, ("dim", "twice"), "diopiMean", out, x, [0, 0], untouched=[out])
    refuse(fail, ("input", "NULL"), "diopiMean", out, None, [0], untouched=[out])
    refuse(fail, ("share",), "diopiSum", x[0], x, [0], untouched=[x])
    refuse(dtype, ("int64",), "diopiMean", torch.empty(4, dtype=torch.int64), x, [0])
    refuse(dtype, ("complex64",), "diopiAmax", out, x.to(torch.complex64), [0], False, untouched=[out])
    refuse(fail, ("no elements",), "diopiMaxAll", torch.empty(()), torch.empty(0, 3))
    refuse(fail, ("size 0",), "diopiMax", torch.empty(3), torch.empty(3, dtype=torch.int64), torch.empty(0, 3), 0)
    refuse(dtype, ("int32",), "diopiMax", out, torch.empty(4, dtype=torch.int32), x, 0, untouched=[out])
    refuse(fail, ("no elements",), "diopiArgmax", torch.empty((), dtype=torch.int64), torch.empty(0), None, False)
    refuse(fail, ("norm",), "diopiNorm", torch.empty(()), torch.empty(0), math.inf, [])
    refuse(fail, ("normalized_shape",), "diopiLayerNorm", x, None, None, x, None, None, (3,), 1e-5, untouched=[x])
    refuse(fail, ("weight", "4"), "diopiLayerNorm", x, None, None, x, torch.ones(3), None, (4,), 1e-5, untouched=[x])
    refuse(fail, ("num_groups", "3"), "diopiGroupNorm", x, None, None, x, None, None, 3, 1e-5, untouched=[x])
    refuse(fail, ("running_mean",), "diopiBatchNorm", x, None, None, x, *[None] * 4, False, 0.1, 1e-5, untouched=[x])
    refuse(fail, ("output",), "diopiSoftmaxBackward", x, x, torch.ones(3, 5), 1, untouched=[x])
    refuse(
        dtype, ("int64",), "diopiSoftmax", torch.zeros(3, 4, dtype=torch.int64), torch.ones(3, 4, dtype=torch.int64), 0
    )


def test_results_do_not_depend_on_threads():
    import ctypes
    import os

    core = ctypes.CDLL(os.path.join(diopi.DIRECTORY, "libdit.so"))
    x, g = draw((300, 700)), draw((300, 700), seed=2)
    big = draw((2, 16, 90, 50))
    results = []
    for threads in (1, 3):
        core.dit_parallel_set_threads(threads)
        found = []
        for dims in ([], [0], [1]):
            out = torch.empty(()) if not dims else torch.empty(x.shape[1 - dims[0]])
            HOST.call("diopiSum", out, x, dims)
            found.append(out)
        stats = torch.empty(300, 1), torch.empty(300, 1)
        out, weight, bias = torch.empty_like(x), torch.empty(700), torch.empty(700)
        HOST.call("diopiLayerNorm", out, *stats, x, None, None, (700,), 1e-5)
        HOST.call("diopiLayerNormBackward", out, weight, bias, g, x, torch.ones(700), None, *stats, (700,))
        found += [out, weight, bias]
        for layout in ("plain", "channels_last"):
            view = restride(big, layout)
            out, mean, scale = torch.empty_like(view), torch.empty(16), torch.empty(16)
            HOST.call("diopiBatchNorm", out, mean, scale, view, None, None, None, None, True, 0.1, 1e-5)
            found += [out, mean, scale]
        results.append(found)
    core.dit_parallel_set_threads(0)
    for a, b in zip(*results, strict=True):
        assert torch.equal(a, b)
