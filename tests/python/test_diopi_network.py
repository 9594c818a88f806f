"""Network, indexing, shape and random operators of ATen run by DIOPI functions: values, sizes, strides and dtypes are
those of PyTorch on the CPU, arguments are changed in the same way, and the ledger says that C ran them.

A case is an overload, the DIOPI function it needs, and the arguments. Functions that the library lacks are skipped.
"""

import itertools

import ditorch
import pytest
import torch
from ditorch import diopi

aten = torch.ops.aten
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
SEED = 7


def contiguous(x):
    return x


def channels_last(x):
    return x.contiguous(memory_format=torch.channels_last)


def permuted(x):
    return x.transpose(-1, -2).contiguous().transpose(-1, -2)


def offset(x):
    room = x.new_zeros((x.shape[0] + 1, *x.shape[1:]))
    room[1:] = x
    return room[1:]


def strided(x):
    room = x.new_zeros((*x.shape[:-1], 2 * x.shape[-1]))
    room[..., ::2] = x
    return room[..., ::2]


LAYOUTS = [contiguous, channels_last, permuted, offset, strided]


def to_device(value):
    """The same strides and offset over a copy of the storage."""
    if isinstance(value, torch.Tensor):
        storage = torch.empty(0, dtype=value.dtype).set_(value.untyped_storage())
        return storage.to("cuda").as_strided(value.shape, value.stride(), value.storage_offset())
    if isinstance(value, (list, tuple)):
        return type(value)(map(to_device, value))
    return value


def copy(value):
    if isinstance(value, torch.Tensor):
        return value.clone()
    return type(value)(map(copy, value)) if isinstance(value, (list, tuple)) else value


def flatten(value):
    if isinstance(value, (list, tuple)):
        return [leaf for element in value for leaf in flatten(element)]
    return [value] if isinstance(value, torch.Tensor) else []


TOLERANCE = {torch.float16: 2e-3, torch.bfloat16: 1.6e-2, torch.float32: 1e-5, torch.float64: 1e-11}


def widen(value):
    """Floating tensors in float64: the reference for values. The CPU's own half kernels may be less exact than ours."""
    if isinstance(value, torch.Tensor):
        return value.to(torch.float64, copy=True) if value.dtype.is_floating_point else value.clone()
    return type(value)(map(widen, value)) if isinstance(value, (list, tuple)) else value


def check_equal(mine, wanted, exact, inputs, what):
    """`wanted` tells sizes, strides and dtypes, `exact` the values, `inputs` how exact the values can be. Strides of
    dimensions of size 1 say nothing."""
    mine, wanted, exact = flatten(mine), flatten(wanted), flatten(exact)
    assert len(mine) == len(wanted) == len(exact), what
    given = [tensor.dtype for tensor in flatten(inputs)]
    for number, (a, b, c) in enumerate(zip(mine, wanted, exact, strict=True)):
        where = f"{what}, tensor {number} (seed {SEED})"
        assert a.device.type == "cuda", where
        assert (a.dtype, a.shape) == (b.dtype, b.shape), where
        strides = [[s for s, size in zip(t.stride(), t.shape, strict=True) if size != 1] for t in (a, b)]
        assert strides[0] == strides[1], f"{where}: strides {a.stride()} instead of {b.stride()}"
        tolerance = max(TOLERANCE.get(dtype, 0) for dtype in (b.dtype, *given)) if b.dtype.is_floating_point else 0
        scale = c.double().nan_to_num(0, 0, 0).abs().max().item() if c.numel() else 0.0
        torch.testing.assert_close(
            a.cpu().to(c.dtype),
            c,
            rtol=tolerance,
            atol=tolerance * scale,
            equal_nan=True,
            msg=lambda t, w=where: f"{w}: {t}",
        )


@pytest.fixture(scope="module")
def library():
    return diopi.Library("host")


def run(library, overload, function, arguments, keywords=None, only=None):
    """Both runs, compared; `only` the results of a mask (the CPU also makes others). Returns device and CPU results."""
    if not library.has(function):
        pytest.skip(f"the host library has no {function}")
    keywords = keywords or {}
    mine = to_device(arguments), {k: to_device(v) for k, v in keywords.items()}
    inputs, reference = copy(arguments), widen(arguments)
    wanted, values = overload(*arguments, **keywords), overload(*reference, **keywords)
    ditorch.reset_counters()
    got = overload(*mine[0], **mine[1])
    name = overload.name()
    assert name in {row["operator"] for row in ditorch.operators()}, f"{name} did not run in C"
    assert name not in {row["operator"] for row in ditorch.fallbacks()}
    chosen = [[r for r, w in zip(some, only, strict=True) if w] if only else some for some in (got, wanted, values)]
    check_equal(*chosen, inputs, name)
    check_equal(mine[0], arguments, reference, inputs, f"arguments of {name}")
    return got, wanted


def make(*sizes, dtype=torch.float32, low=None, salt=0):
    generator = torch.Generator().manual_seed(SEED + len(sizes) + sum(sizes) + 1000 * salt)
    if low is not None:
        return (torch.rand(sizes, generator=generator) * (1 - 2 * low) + low).to(dtype)
    return torch.randn(sizes, generator=generator).to(dtype)


def integers(high, *sizes, dtype=torch.int64):
    return torch.randint(0, high, sizes, generator=torch.Generator().manual_seed(SEED + sum(sizes)), dtype=dtype)


# Convolution

CONVOLUTIONS = [
    # input, weight, bias, stride, padding, dilation, transposed, output padding, groups
    ((2, 3, 8, 7), (4, 3, 3, 3), True, [1, 1], [1, 1], [1, 1], False, [0, 0], 1),
    ((2, 4, 9, 9), (6, 2, 3, 3), False, [2, 2], [0, 1], [1, 2], False, [0, 0], 2),
    ((2, 4, 5, 5), (8, 4, 1, 1), True, [1, 1], [0, 0], [1, 1], False, [0, 0], 1),
    ((1, 4, 6, 6), (4, 1, 3, 3), True, [1, 1], [1, 1], [1, 1], False, [0, 0], 4),
    ((2, 3, 16, 16), (8, 3, 4, 4), True, [4, 4], [0, 0], [1, 1], False, [0, 0], 1),
    ((2, 3, 12), (5, 3, 3), True, [2], [1], [1], False, [0], 1),
    ((2, 4, 5, 5), (4, 3, 3, 3), True, [2, 2], [1, 1], [1, 1], True, [1, 1], 1),
    ((1, 2, 4, 5), (2, 3, 1, 1), False, [1, 1], [0, 0], [2, 2], True, [1, 0], 1),  # a line that no kernel reaches
    ((1, 2, 4, 5), (2, 3, 1, 1), True, [1, 1], [0, 0], [2, 2], True, [1, 1], 1),
]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("layout", [contiguous, channels_last, strided])
@pytest.mark.parametrize("case", CONVOLUTIONS, ids=lambda c: f"{c[0]}x{c[1]}")
def test_convolution(library, case, layout, dtype):
    sizes, weight_sizes, with_bias, *rest = case
    if layout is channels_last and len(sizes) != 4:
        pytest.skip("channels_last is of four dimensions")
    transposed, groups = rest[3], rest[5]
    outputs = weight_sizes[1] * groups if transposed else weight_sizes[0]
    x, w = layout(make(*sizes, dtype=dtype)), make(*weight_sizes, dtype=dtype)
    b = make(outputs, dtype=dtype) if with_bias else None
    function = "diopiConvTranspose2d" if transposed else "diopiConvolution2d"
    _, wanted = run(library, aten.convolution.default, function, (x, w, b, *rest))
    grad = layout(make(*wanted.shape, dtype=dtype, salt=1)).contiguous(
        memory_format=torch.channels_last if layout is channels_last else torch.contiguous_format
    )
    run(
        library,
        aten.convolution_backward.default,
        function + "Backward",
        (grad, x, w, [outputs] if with_bias else None, *rest, [True, True, with_bias]),
    )


def test_convolution_backward_makes_only_what_is_wanted(library):
    x, w, grad = make(2, 3, 6, 6), make(4, 3, 3, 3), make(2, 4, 4, 4)
    rest = ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    for mask in itertools.product([True, False], repeat=3):
        if any(mask):
            arguments = (grad, x, w, [4], *rest, list(mask))
            run(library, aten.convolution_backward.default, "diopiConvolution2dBackward", arguments, only=mask)


# Normalization


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("layout", [contiguous, permuted, strided])
@pytest.mark.parametrize("affine", [True, False])
def test_layer_norm(library, dtype, layout, affine):
    x = layout(make(3, 4, 5, 6, dtype=dtype))
    w, b = (make(5, 6, dtype=dtype), make(5, 6, dtype=dtype)) if affine else (None, None)
    _, (_, mean, rstd) = run(library, aten.native_layer_norm.default, "diopiLayerNorm", (x, [5, 6], w, b, 1e-5))
    for mask in ([True, affine, affine], [True, False, False], [False, affine, affine]):
        arguments = (layout(make(3, 4, 5, 6, dtype=dtype, salt=1)), x, [5, 6], mean, rstd, w, b, mask)
        run(library, aten.native_layer_norm_backward.default, "diopiLayerNormBackward", arguments)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_layer_norm_with_float_parameters(library, dtype):
    x, w, b = make(4, 8, dtype=dtype), make(8), make(8)
    _, (_, mean, rstd) = run(library, aten.native_layer_norm.default, "diopiLayerNorm", (x, [8], w, b, 1e-5))
    arguments = (make(4, 8, dtype=dtype, salt=1), x, [8], mean, rstd, w, b, [True] * 3)
    run(library, aten.native_layer_norm_backward.default, "diopiLayerNormBackward", arguments)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("weighted", [True, False])
def test_rms_norm(library, dtype, weighted):
    """PyTorch has the fused operator for CUDA alone: the CPU's composition and its gradients are the reference."""
    x, grad = make(3, 4, 6, dtype=dtype), make(3, 4, 6, dtype=dtype, salt=1)
    weight, results = make(4, 6, dtype=dtype) if weighted else None, []
    for device in ("cpu", "cuda"):
        leaves = [t.to(device).double() if device == "cpu" else t.to(device) for t in (x, weight) if t is not None]
        leaves = [t.detach().requires_grad_() for t in leaves]
        ditorch.reset_counters()
        out = torch.nn.functional.rms_norm(leaves[0], [4, 6], leaves[1] if weighted else None, 1e-5)
        results.append((out, *torch.autograd.grad(out, leaves, grad.to(device, out.dtype))))
    assert {"aten::_fused_rms_norm", "aten::_fused_rms_norm_backward"} <= {r["operator"] for r in ditorch.operators()}
    for a, b in zip(*results[::-1], strict=True):
        assert a.dtype == dtype and a.shape == b.shape
        torch.testing.assert_close(a.cpu().double(), b, rtol=TOLERANCE[dtype], atol=4 * TOLERANCE[dtype])


def test_rms_norm_with_parameters_of_another_dtype_is_composed(library):
    x, weight, results = make(3, 8, dtype=torch.float16), make(8), []
    for device in ("cpu", "cuda"):
        leaves = [t.to(device).requires_grad_() for t in (x, weight)]
        out = torch.nn.functional.rms_norm(leaves[0], [8], leaves[1], 1e-5)
        results.append((out, *torch.autograd.grad(out.sum(), leaves)))
    for a, b in zip(*results[::-1], strict=True):
        assert a.dtype == b.dtype
        torch.testing.assert_close(a.cpu(), b, rtol=4e-3, atol=4e-3)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("layout", [contiguous, channels_last])
@pytest.mark.parametrize("affine", [True, False])
def test_group_norm(library, dtype, layout, affine):
    x = layout(make(2, 6, 4, 5, dtype=dtype))
    w, b = (make(6, dtype=dtype), make(6, dtype=dtype)) if affine else (None, None)
    shape = (2, 6, 20, 3)
    _, (_, mean, rstd) = run(library, aten.native_group_norm.default, "diopiGroupNorm", (x, w, b, *shape, 1e-5))
    arguments = (layout(make(2, 6, 4, 5, dtype=dtype, salt=1)), x, mean, rstd, w, *shape, [True, affine, affine])
    run(library, aten.native_group_norm_backward.default, "diopiGroupNormBackward", arguments)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("layout", [contiguous, channels_last, permuted])
@pytest.mark.parametrize("dtypes", [(t, t) for t in FLOATS] + [(torch.float16, torch.float32)], ids=str)
def test_batch_norm(library, dtypes, layout, training):
    dtype, parameter = dtypes
    x, w, b = layout(make(4, 3, 5, 6, dtype=dtype)), make(3, dtype=parameter), make(3, dtype=parameter)
    running = torch.zeros(3, dtype=parameter), torch.ones(3, dtype=parameter)
    arguments = (x, w, b, *(r.clone() for r in running), training, 0.1, 1e-5)
    _, (_, mean, invstd) = run(library, aten.native_batch_norm.default, "diopiBatchNorm", arguments)
    arguments = (
        layout(make(4, 3, 5, 6, dtype=dtype, salt=1)),
        x,
        w,
        *running,
        mean,
        invstd,
        training,
        1e-5,
        [True] * 3,
    )
    run(library, aten.native_batch_norm_backward.default, "diopiBatchNormBackward", arguments)


def test_batch_norm_without_running_statistics(library):
    x = make(4, 3, 5)
    run(library, aten._native_batch_norm_legit.no_stats, "diopiBatchNorm", (x, None, None, True, 0.1, 1e-5))


# Pooling


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("layout", [contiguous, channels_last, permuted])
@pytest.mark.parametrize("ceil_mode", [False, True])
def test_max_pool(library, dtype, layout, ceil_mode):
    x = layout(make(2, 3, 9, 10, dtype=dtype))
    window = ([3, 2], [2, 2], [1, 0], [1, 1], ceil_mode)
    pooled = run(library, aten.max_pool2d_with_indices.default, "diopiMaxPool2dWithIndices", (x, *window))
    out, indices = pooled[1]
    arguments = (make(*out.shape, dtype=dtype, salt=1), x, *window, indices)
    run(library, aten.max_pool2d_with_indices_backward.default, "diopiMaxPool2dBackward", arguments)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("layout", [contiguous, channels_last])
@pytest.mark.parametrize("options", [(False, True, None), (True, False, None), (False, True, 3)])
def test_average_pool(library, dtype, layout, options):
    x = layout(make(2, 3, 9, 10, dtype=dtype))
    window = ([3, 2], [2, 2], [1, 1], *options)
    _, out = run(library, aten.avg_pool2d.default, "diopiAvgPool2d", (x, *window))
    arguments = (make(*out.shape, dtype=dtype, salt=1), x, *window)
    run(library, aten.avg_pool2d_backward.default, "diopiAvgPool2dBackward", arguments)


@pytest.mark.parametrize("layout", [contiguous, channels_last])
@pytest.mark.parametrize("sizes", [(2, 3, 7, 8), (3, 7, 8)])
def test_adaptive_pool(library, layout, sizes):
    if layout is channels_last and len(sizes) != 4:
        pytest.skip("channels_last is of four dimensions")
    x = layout(make(*sizes))
    _, out = run(library, aten._adaptive_avg_pool2d.default, "diopiAdaptiveAvgPool2d", (x, [3, 5]))
    grad = make(*out.shape, salt=1)
    run(library, aten._adaptive_avg_pool2d_backward.default, "diopiAdaptiveAvgPool2dBackward", (grad, x))
    function = "diopiAdaptiveMaxPool2d"
    _, (_, indices) = run(library, aten.adaptive_max_pool2d.default, function + "WithIndices", (x, [3, 5]))
    run(library, aten.adaptive_max_pool2d_backward.default, function + "Backward", (grad, x, indices))


# Losses


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("reduction", [0, 1, 2])
@pytest.mark.parametrize("layout", [contiguous, permuted])
def test_distance_losses(library, dtype, reduction, layout):
    x, y = layout(make(4, 6, dtype=dtype)), make(4, 6, dtype=dtype).flip(0)
    for loss, backward, function, more in (
        (aten.mse_loss.default, aten.mse_loss_backward.default, "diopiMSELoss", ()),
        (aten.smooth_l1_loss.default, aten.smooth_l1_loss_backward.default, "diopiSmoothL1Loss", (0.7,)),
    ):
        _, out = run(library, loss, function, (x, y, reduction, *more))
        run(library, backward, function + "Backward", (make(*out.shape, dtype=dtype, salt=1), x, y, reduction, *more))


@pytest.mark.parametrize("reduction", [0, 1, 2])
@pytest.mark.parametrize("weighted", [False, True])
def test_binary_cross_entropy(library, reduction, weighted):
    x, y = make(4, 6, low=0.1), make(4, 6, low=0.0)
    weight = make(4, 6, low=0.2) if weighted else None
    _, out = run(library, aten.binary_cross_entropy.default, "diopiBCELoss", (x, y, weight, reduction))
    arguments = (make(*out.shape, salt=1), x, y, weight, reduction)
    run(library, aten.binary_cross_entropy_backward.default, "diopiBCELossBackward", arguments)
    logits = (make(4, 6), y, weight, weight, reduction)
    run(library, aten.binary_cross_entropy_with_logits.default, "diopiBCEWithLogits", logits)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("reduction", [0, 1, 2])
@pytest.mark.parametrize("images", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_nll_loss(library, dtype, reduction, images, weighted):
    sizes = (3, 5, 4, 2) if images else (6, 5)
    x = make(*sizes, dtype=dtype).log_softmax(1)
    target = integers(5, sizes[0], *sizes[2:])
    weight = make(5, low=0.2, dtype=dtype) if weighted else None
    forward = aten.nll_loss2d_forward if images else aten.nll_loss_forward
    backward = aten.nll_loss2d_backward if images else aten.nll_loss_backward
    _, (out, total) = run(library, forward.default, "diopiNLLLossV2", (x, target, weight, reduction, 1))
    arguments = (make(*out.shape, dtype=dtype, salt=1), x, target, weight, reduction, 1, total)
    run(library, backward.default, "diopiNLLLossV2Backward", arguments)


# Attention


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("causal", [False, True])
def test_attention(library, dtype, causal):
    q, k, v = (make(2, 5, 3, 8, dtype=dtype).mul(scale).transpose(1, 2) for scale in (1, 0.5, 2))
    forward = aten._scaled_dot_product_flash_attention_for_cpu.default
    _, (out, lse) = run(library, forward, "diopiFlashAttention", (q, k, v, 0.0, causal))
    backward = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
    arguments = (make(2, 3, 5, 8, dtype=dtype, salt=1), q, k, v, out, lse, 0.0, causal)
    run(library, backward, "diopiFlashAttentionBackward", arguments)


@pytest.mark.parametrize("case", ["mask", "bool mask", "causal, other lengths", "a row without keys"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_attention_that_the_library_does_not_take_is_composed(library, case, dtype):
    """No CPU kernel runs, forward or backward, and gradients lie in memory as on the CPU."""
    if not library.has("diopiFlashAttention"):
        pytest.skip("the host library has no diopiFlashAttention")
    mask = {"mask": make(5, 7), "bool mask": make(5, 7) > 0}.get(case)
    if case == "a row without keys":
        mask = torch.arange(7) < torch.tensor([[3], [0], [7], [1], [7]])
    mask = mask.to(dtype) if case == "mask" else mask
    tensors = [make(2, 3, n, 8, dtype=dtype, salt=salt) for salt, n in enumerate((5, 7, 7))]
    grad, results = make(2, 3, 5, 8, dtype=dtype, salt=9), []
    for device in ("cpu", "cuda"):
        q, k, v = (t.to(device).requires_grad_() for t in tensors)
        ditorch.reset_counters()
        out = torch.nn.functional.scaled_dot_product_attention(
            q, k, v, mask if mask is None else mask.to(device), is_causal=mask is None
        )
        results.append((out, *torch.autograd.grad(out, (q, k, v), grad.to(device))))
    assert not [row["operator"] for row in ditorch.fallbacks()]
    for a, b in zip(*results[::-1], strict=True):
        assert a.stride() == b.stride()
        torch.testing.assert_close(a.cpu(), b, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


# Indexing

INDEX_DTYPES = [torch.float32, torch.float16, torch.int64, torch.bool, torch.uint8]


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int64])
@pytest.mark.parametrize("index_dtype", [torch.int64, torch.int32])
def test_embedding(library, dtype, index_dtype):
    weight, indices = make(7, 4, dtype=dtype), integers(7, 3, 5, dtype=index_dtype)
    run(library, aten.embedding.default, "diopiEmbedding", (weight, indices, 2, False, False))
    if dtype.is_floating_point:
        for by_frequency in (False, True):
            arguments = (make(3, 5, 4, dtype=dtype), indices, 7, 2, by_frequency)
            run(library, aten.embedding_dense_backward.default, "diopiEmbeddingBackward", arguments)


@pytest.mark.parametrize("dtype", INDEX_DTYPES)
@pytest.mark.parametrize("layout", [contiguous, permuted, strided])
def test_one_index(library, dtype, layout):
    x = layout(make(4, 5, 6).mul(9).to(dtype))
    index, many = integers(5, 3), integers(4, 2, 5, 6)
    source = layout(make(2, 5, 6).mul(9).to(dtype))
    run(library, aten.index_select.default, "diopiIndexSelect", (x, 1, index))
    run(library, aten.gather.default, "diopiGather", (x, 0, many))
    distinct = torch.stack([torch.randperm(4, generator=torch.Generator().manual_seed(i))[:2] for i in range(30)])
    distinct = distinct.t().reshape(2, 5, 6).contiguous()
    run(library, aten.scatter.src, "diopiScatter", (x, 0, distinct, source))
    run(library, aten.scatter_.src, "diopiScatterInp", (x.clone(), 0, distinct, source))
    run(library, aten.scatter.value, "diopiScatterScalar", (x, 0, many, 1))
    run(library, aten.scatter_.value, "diopiScatterInpScalar", (x.clone(), 0, many, 1))
    run(library, aten.index_fill.int_Scalar, "diopiIndexFillScalar", (x, 1, index, 1))
    run(library, aten.index_fill_.int_Scalar, "diopiIndexFillInpScalar", (x.clone(), 1, index, 1))
    run(library, aten.index_fill.int_Tensor, "diopiIndexFill", (x, 1, index, x[0, 0, 0].clone()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_scatter_adds(library, dtype):
    x, index, source = (
        make(4, 5).mul(9).to(dtype),
        integers(4, 6, 5),
        make(6, 5).mul(9).to(dtype),
    )
    run(library, aten.scatter_add.default, "diopiScatter", (x, 0, index, source))
    run(library, aten.scatter_add_.default, "diopiScatterInp", (x.clone(), 0, index, source))
    run(library, aten.scatter.reduce, "diopiScatter", (x, 0, index, source), {"reduce": "add"})
    run(library, aten.scatter_.value_reduce, "diopiScatterInpScalar", (x.clone(), 0, index, 2), {"reduce": "multiply"})


@pytest.mark.parametrize("dtype", INDEX_DTYPES)
@pytest.mark.parametrize("layout", [contiguous, permuted, strided])
def test_masks(library, dtype, layout):
    x = layout(make(4, 5, 6).mul(9).to(dtype))
    mask, row = make(4, 5, 6) > 0, make(6) > 0
    for m in (mask, row):
        run(library, aten.masked_fill.Scalar, "diopiMaskedFillScalar", (x, m, 1))
        run(library, aten.masked_fill_.Scalar, "diopiMaskedFillInpScalar", (x.clone(), m, 1))
        run(library, aten.masked_fill.Tensor, "diopiMaskedFill", (x, m, x[0, 0, 0].clone()))
        run(library, aten.masked_fill_.Tensor, "diopiMaskedFillInp", (x.clone(), m, x[0, 0, 0].clone()))
        run(library, aten.masked_select.default, "diopiMaskedSelect", (x, m))
    run(library, aten.nonzero.default, "diopiNonzero", (x,))
    run(library, aten.nonzero.default, "diopiNonzero", (x[:0],))


INDICES = {
    "rows": lambda: [integers(4, 3)],
    "columns": lambda: [None, integers(5, 3)],
    "last": lambda: [None, None, integers(6, 2, 3)],
    "neighbours": lambda: [None, integers(5, 3), integers(6, 3)],
    "apart": lambda: [integers(4, 3), None, integers(6, 3)],
    "broadcast": lambda: [integers(4, 3, 1), integers(5, 2)],
    "all": lambda: [integers(4, 3), integers(5, 3), integers(6, 3)],
    "negative": lambda: [integers(4, 3) - 4],
    "int32": lambda: [integers(4, 3, dtype=torch.int32)],
    "transposed": lambda: [integers(4, 2, 3).t()],
    "empty": lambda: [integers(4, 0)],
    "mask": lambda: [make(4) > 0],
    "mask two": lambda: [make(4, 5) > 0],
    "mask inside": lambda: [None, make(5) > 0],
    "mask and index": lambda: [make(4) > -9, None, integers(6, 4)],
    "mask none": lambda: [make(4) > 9],
}


@pytest.mark.parametrize("layout", [contiguous, permuted, strided])
@pytest.mark.parametrize("name", INDICES)
def test_index(library, name, layout):
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.bool):
        x, indices = layout(make(4, 5, 6).mul(9).to(dtype)), INDICES[name]()
        run(library, aten.index.Tensor, "diopiIndex", (x, indices))


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("layout", [contiguous, permuted, strided])
@pytest.mark.parametrize("name", INDICES)
def test_index_put(library, name, layout, accumulate):
    for dtype in (torch.float32, torch.int64):
        x, indices = layout(make(4, 5, 6).mul(9).to(dtype)), INDICES[name]()
        shape = x[tuple(slice(None) if i is None else i for i in indices)].shape
        values = make(1).mul(9).to(dtype) if not accumulate else make(*shape).mul(9).to(dtype)
        run(library, aten._index_put_impl_.default, "diopiIndexPutInp", (x.clone(), indices, values, accumulate))


def test_an_index_out_of_range_is_an_error_and_writes_nothing(library):
    x, bad = make(4, 5), torch.tensor([0, 4])
    for function, call in {
        "diopiIndex": lambda x, i: x[i],
        "diopiIndexSelect": lambda x, i: x.index_select(0, i),
        "diopiIndexPutInp": lambda x, i: x.index_put_((i,), torch.ones((), device=x.device)),
        "diopiIndexFillInpScalar": lambda x, i: x.index_fill_(0, i, 1.0),
        "diopiEmbedding": lambda x, i: torch.nn.functional.embedding(i, x),
    }.items():
        if library.has(function):
            mine = to_device(x)
            with pytest.raises((RuntimeError, IndexError)):
                call(mine, to_device(bad))
            torch.testing.assert_close(mine.cpu(), x, rtol=0, atol=0)


# Shape


@pytest.mark.parametrize("dtype", INDEX_DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_shapes(library, dtype, layout):
    x = layout(make(2, 3, 4, 5).mul(9).to(dtype))
    y = x.clone()
    for dim in (0, 2, -1):
        if layout in (contiguous, offset):  # others may keep a memory format: PyTorch's composition by cat
            run(library, aten.stack.default, "diopiStack", ([x, y, x], dim))
    for pad in ([1, 2], [1, 0, 2, 3], [0, 1, 0, 0, 1, 1], [-1, 2, 0, -1]):
        run(library, aten.constant_pad_nd.default, "diopiPad", (x, pad, 1))
    for dims in ([0], [1, 3], [-1], []):
        run(library, aten.flip.default, "diopiFlip", (x, dims))
    for shifts, dims in (([1], [0]), ([2, -1], [1, 3]), ([7], [])):
        run(library, aten.roll.default, "diopiRoll", (x, shifts, dims))
    for repeats in ([1, 2, 1, 3], [2, 1, 1, 1, 2]):
        run(library, aten.repeat.default, "diopiRepeat", (x, repeats))
    for diagonal in (0, 1, -2):
        run(library, aten.tril.default, "diopiTril", (x, diagonal))
        run(library, aten.triu.default, "diopiTriu", (x, diagonal))
        run(library, aten.triu_.default, "diopiTriuInp", (x.clone(), diagonal))


# Random numbers


def draw(call, seed=11):
    torch.manual_seed(seed)
    return call().cpu()


RANDOM = {
    "normal_": ("diopiNormalInp", lambda t: t(5000).normal_(1.0, 2.0)),
    "uniform_": ("diopiUniformInp", lambda t: t(5000).uniform_(-1.0, 3.0)),
    "random_": ("diopiRandomInp", lambda t: t(5000, dtype=torch.int64).random_(0, 10)),
    "random_to": ("diopiRandomInp", lambda t: t(5000, dtype=torch.int32).random_(10)),
    "bernoulli_": ("diopiBernoulliScalar", lambda t: t(5000).bernoulli_(0.3)),
    "bernoulli": ("diopiBernoulli", lambda t: torch.bernoulli(t(5000).fill_(0.3))),
    "normal": ("diopiNormalTensor", lambda t: torch.normal(t(5000).fill_(1.0), t(5000).fill_(2.0))),
    "randperm": ("diopiRandperm", lambda t: torch.randperm(5000, device=t(1).device)),
    "multinomial": ("diopiMultinomial", lambda t: torch.multinomial(t(8).fill_(1.0), 5000, replacement=True)),
}


@pytest.mark.parametrize("name", RANDOM)
def test_random_numbers(library, name):
    """Reproducible by the seed, different without it, and of the distribution of the CPU's."""
    function, call = RANDOM[name]
    if not library.has(function):
        pytest.skip(f"the host library has no {function}")

    def on(device):
        return lambda *sizes, dtype=torch.float32: torch.empty(*sizes, dtype=dtype, device=device)

    ditorch.reset_counters()
    first = draw(lambda: call(on("cuda")))
    assert not [row["operator"] for row in ditorch.fallbacks()]
    assert torch.equal(first, draw(lambda: call(on("cuda"))))
    assert not torch.equal(first, draw(lambda: call(on("cuda")), seed=12))
    wanted = draw(lambda: call(on("cpu")))
    assert (first.dtype, first.shape, first.stride()) == (wanted.dtype, wanted.shape, wanted.stride())
    if name == "randperm":
        assert torch.equal(first.sort().values, torch.arange(5000))
    a, b = first.double(), wanted.double()
    assert abs(a.mean() - b.mean()) <= 6 * b.std() / 5000**0.5
    assert abs(a.std() - b.std()) <= 0.1 * b.std()


def test_a_generator_advances_by_what_is_drawn(library):
    if not library.has("diopiNormalInp"):
        pytest.skip("the host library has no diopiNormalInp")
    generator = torch.Generator("cuda").manual_seed(3)
    a, b = (torch.empty(7, device="cuda").normal_(generator=generator).cpu() for _ in range(2))
    assert not torch.equal(a, b)
    generator.manual_seed(3)
    assert torch.equal(a, torch.empty(7, device="cuda").normal_(generator=generator).cpu())


# What C leaves to others


def test_a_missing_function_runs_in_its_composite_form(library):
    """stack of two dtypes is not DIOPI's: PyTorch composes it of operators of the device, and no CPU kernel runs."""
    x, y = torch.ones(2, 3, device="cuda"), torch.ones(2, 3, dtype=torch.float64, device="cuda")
    ditorch.reset_counters()
    assert torch.stack([x, y]).dtype == torch.float64
    assert "aten::stack" not in {row["operator"] for row in ditorch.fallbacks()}


def test_errors_are_pytorchs(library):
    for call in (
        lambda d: torch.nn.functional.conv2d(torch.ones(1, 3, 4, 4, device=d), torch.ones(2, 4, 3, 3, device=d)),
        lambda d: torch.nn.functional.max_pool2d(torch.ones(1, 1, 4, 4, device=d), 2, padding=2),
        lambda d: torch.empty(3, device=d).normal_(0, -1),
        lambda d: torch.empty(3, device=d).uniform_(2, 1),
        lambda d: torch.ones(3, 3, device=d).flip(5),
    ):
        texts = []
        for device in ("cpu", "cuda"):
            with pytest.raises((RuntimeError, IndexError)) as caught:
                call(device)
            texts.append((caught.type, str(caught.value)))
        assert texts[0] == texts[1]
