"""Operators of the device that map to DIOPI functions by small C adapters, against the CPU.

Upsampling, windows and borders, unique, losses' out= forms, operators composed of several functions, the pieces of
SyncBatchNorm, fused optimizers. Each call must run in C alone where it says so.
"""

import itertools

import ditorch
import pytest
import torch
import torch.nn.functional as F
from ditorch import _C
from twice import draw, layouts, twice

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
aten = torch.ops.aten

# Upsampling

MODES = (
    ("nearest", 1),
    ("nearest", 2),
    ("nearest", 3),
    ("linear", 1),
    ("bilinear", 2),
    ("bicubic", 2),
    ("trilinear", 3),
)


def pictures(ndim, dtype):
    """(N, C, spatial...) in row-major, channels-last and another layout; one without images."""
    x = draw((2, 3, *(4, 6, 8)[:ndim]), dtype)
    yield x
    yield x.transpose(0, 1).contiguous().transpose(0, 1)
    if ndim > 1:
        yield x.contiguous(memory_format=torch.channels_last if ndim == 2 else torch.channels_last_3d)
    yield x[:0]


@pytest.mark.parametrize(("mode", "ndim"), MODES)
@pytest.mark.parametrize("dtype", FLOATS)
def test_upsample(mode, ndim, dtype):
    size = (9, 4, 7)[:ndim]
    for x, align in itertools.product(pictures(ndim, dtype), (None,) if mode == "nearest" else (False, True)):
        for words in ({"size": size}, {"scale_factor": 2.0}, {"scale_factor": 0.5}):
            wanted = twice(lambda x, w=words, a=align: F.interpolate(x, mode=mode, align_corners=a, **w), x)
            if wanted is not None and x.numel():
                run_gradient(x, wanted.cpu(), mode, align, words)


def run_gradient(x, result, mode, align, words):
    def gradient(x, g):
        x = x.detach().requires_grad_()
        return torch.autograd.grad(F.interpolate(x, mode=mode, align_corners=align, **words), x, g)[0]

    twice(gradient, x, draw(result.shape, x.dtype, seed=7))


def test_upsample_scales_of_their_own():
    """A scale that is not the ratio of the sizes is PyTorch's to use: the CPU runs it."""
    x = draw((2, 3, 4, 4))
    for mode in ("nearest", "bilinear"):
        twice(lambda x, m=mode: F.interpolate(x, scale_factor=1.7, mode=m), x, in_c=False)
    twice(lambda x: F.interpolate(x, scale_factor=1.7, mode="bilinear", align_corners=True), x)
    twice(lambda x: F.interpolate(x, scale_factor=1.7, mode="nearest", recompute_scale_factor=True), x)


def test_upsample_out():
    x = draw((2, 3, 4, 5))
    for out in (torch.empty(2, 3, 8, 10), torch.empty(0), torch.empty(3), torch.empty(0, dtype=torch.float64)):
        in_c = out.dtype == x.dtype
        twice(lambda x, o: aten.upsample_nearest2d.out(x, [8, 10], out=o), x, out.clone(), in_c=in_c)
        twice(lambda x, o: aten.upsample_bilinear2d.out(x, [8, 10], False, out=o), x, out.clone(), in_c=in_c)
    twice(lambda x: aten.upsample_nearest2d(x, [0, 10]), x)  # refused
    twice(lambda x: aten.upsample_nearest2d(x, [8]), x)  # refused
    twice(lambda x: F.interpolate(x, scale_factor=2.0), draw((2, 3, 4, 5), torch.uint8), in_c=False)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_grid_sample(mode, dtype):
    grid = draw((2, 5, 4, 2)).mul(0.7).to(dtype)
    grid[0, 0] = torch.tensor([[-1, -1], [1, 1], [0, 0], [9, -9]], dtype=dtype)
    for x in pictures(2, dtype):
        for places in layouts(grid[: len(x)]):
            twice(lambda x, g: F.grid_sample(x, g, mode, align_corners=False), x, places)
    x = draw((2, 3, 4, 6), dtype)
    twice(lambda x, g: F.grid_sample(x, g, mode, "border", align_corners=False), x, grid, in_c=False)
    twice(lambda x, g: F.grid_sample(x, g, mode, align_corners=True), x, grid, in_c=False)
    twice(lambda x, g: F.grid_sample(x, g, mode, align_corners=False), x, grid[:1])  # refused


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_grid_sample_half(dtype):
    """Computed in float; the CPU computes places in the half type, which is coarser."""
    x, grid = draw((2, 3, 4, 6), dtype), draw((2, 5, 4, 2)).mul(0.7).to(dtype)
    mine = F.grid_sample(x.cuda(), grid.cuda(), align_corners=False).cpu()
    torch.testing.assert_close(mine, F.grid_sample(x.float(), grid.float(), align_corners=False).to(dtype))


# Windows and borders


@pytest.mark.parametrize("dtype", FLOATS)
def test_windows(dtype):
    words = {"kernel_size": (2, 3), "padding": 1, "stride": (2, 1), "dilation": (1, 2)}
    for x in pictures(2, dtype):
        twice(lambda x: F.unfold(x, **words), x, in_c=x.numel() > 0)
        twice(lambda x: F.unfold(x[0] if x.numel() else x, 2), x, in_c=x.numel() > 0)
    columns = F.unfold(draw((2, 3, 7, 8), dtype), **words)
    for part in (columns, columns[0]):
        twice(lambda c: F.fold(c, (7, 8), **words), part)
    twice(lambda c: F.fold(c, (9, 8), **words), columns)  # refused
    twice(lambda g: aten.unfold_backward(g, [3, 20], 1, 5, 2), draw((3, 8, 5), dtype))
    twice(
        lambda x, o: aten.im2col.out(x, [2, 2], [1, 1], [0, 0], [1, 1], out=o),
        draw((1, 2, 3, 3), dtype),
        columns[:0, 0, 0],
    )


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_borders(mode):
    for ndim, dtype in itertools.product((1, 2, 3), FLOATS):
        for x in pictures(ndim, dtype):
            for pad in ((1, 2, 3, 1, 2, 0), (0, 0, 0, 0, 0, 0), (-1, 2, 1, -1, 0, 1)):
                twice(lambda x, p=pad[: 2 * ndim]: F.pad(x, p, mode=mode), x, in_c=x.numel() > 0)
                if x.numel():
                    twice(lambda x, p=pad[: 2 * ndim]: F.pad(x, p, mode=mode), x[0])
    twice(lambda x: F.pad(x, (9, 9), mode="reflect"), draw((2, 3, 4)))  # refused
    twice(lambda x: F.pad(x, (1, 1), mode="replicate"), draw((2, 3, 4), torch.int64), in_c=False)


# Unique


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool, torch.bfloat16, torch.uint8])
def test_unique(dtype):
    x = draw((5, 7), torch.int64).remainder(6).to(dtype)
    for inverse, counts in itertools.product((False, True), repeat=2):
        words = {"return_inverse": inverse, "return_counts": counts}
        for view in layouts(x):
            twice(lambda x, w=words: torch.unique(x, **w), view)
            twice(lambda x, w=words: torch.unique(x, sorted=False, **w), view)
            twice(lambda x, w=words: torch.unique(x, dim=0, **w), view)
            twice(lambda x, w=words: torch.unique(x, dim=-1, **w), view)
        twice(lambda x, w=words: torch.unique(x, **w), x[0, 0])
        twice(lambda x, w=words: torch.unique(x, **w), x[:0], in_c=False)
    twice(lambda x: aten._unique(x, True, True), x)


# Operators composed of others


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32])
def test_composed(dtype):
    for x in layouts(draw((5, 6), dtype)):
        twice(torch.trace, x)
        for self in (draw((5,), dtype), draw((1,), dtype), draw((), dtype)):
            twice(torch.addmv, self, x, draw((6,), dtype))
        twice(lambda s, x, v: s.addmv_(x, v, beta=2, alpha=3), draw((5,), dtype), x, draw((6,), dtype))
        twice(lambda s, x, v, o: torch.addmv(s, x, v, out=o), draw((5,), dtype), x, draw((6,), dtype), x.new_empty(0))
        twice(
            torch.logical_xor,
            x,
            draw((6,), dtype, seed=3).clamp(0, 1).floor() if dtype.is_floating_point else x.flip(1),
        )
    twice(torch.vdot, draw((6,), dtype), draw((6,), dtype, seed=3))
    twice(torch.addmv, draw((4,), dtype), draw((5, 6), dtype), draw((6,), dtype))  # refused
    twice(torch.trace, draw((5,), dtype))  # refused


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int8, torch.int32, torch.int64])
def test_bitwise_xor(dtype):
    for x in layouts(draw((3, 4), dtype)):
        twice(torch.bitwise_xor, x, draw((3, 4), dtype, seed=5))
        twice(torch.bitwise_xor, x, draw((4,), dtype, seed=5))
        twice(lambda x, y: x.clone().bitwise_xor_(y), x, draw((3, 4), dtype, seed=5))
        twice(lambda x, y, o: torch.bitwise_xor(x, y, out=o), x.contiguous(), draw((3, 4), dtype), x.new_empty(0))
        twice(lambda x: x ^ x, x)
    twice(lambda x: x ^ 1, draw((3, 4), dtype), in_c=False)


@pytest.mark.parametrize("dtype", FLOATS)
def test_dropout_backward(dtype):
    for grad in layouts(draw((4, 5), dtype)):
        twice(lambda g, m: aten.native_dropout_backward(g, m, 1.7), grad, draw((4, 5), torch.bool))
    twice(lambda g, m: aten.native_dropout_backward(g, m, 1.7), draw((), dtype), torch.tensor(True))


# Losses


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_losses(reduction):
    x, target, weight = torch.sigmoid(draw((4, 5))), torch.sigmoid(draw((4, 5), seed=5)), torch.sigmoid(draw((5,)))
    number = {"none": 0, "mean": 1, "sum": 2}[reduction]
    for w in (None, weight, weight[:1], weight.expand(4, 5)):
        twice(lambda x, t, w: F.binary_cross_entropy(x, t, w, reduction=reduction), x, target, w)
        twice(
            lambda x, t, w: F.binary_cross_entropy_with_logits(x, t, w, None, None, reduction),
            x,
            target,
            w,
        )
        twice(lambda x, t, w: F.binary_cross_entropy_with_logits(x, t, None, None, None, reduction, w), x, target, w)
    classes, many = (
        torch.tensor([1, 4, 0, -100]),
        torch.randint(0, 5, (2, 3, 4), generator=torch.Generator().manual_seed(3)),
    )

    def forward(name):
        function = getattr(aten, name).output
        return lambda x, t, o, w: function(x, t, None, number, -100, output=o, total_weight=w)

    twice(forward("nll_loss_forward"), draw((4, 5)), classes, torch.empty(0), torch.empty(0))
    twice(forward("nll_loss2d_forward"), draw((2, 5, 3, 4)), many, torch.empty(0), torch.empty(0))
    each = draw((4,)) if reduction == "none" else draw(())
    twice(
        lambda g, x, t, w, o: aten.nll_loss_backward.grad_input(g, x, t, None, number, -100, w, grad_input=o),
        each,
        draw((4, 5)),
        classes,
        torch.tensor(3.0),
        torch.empty(0),
    )


# The pieces of SyncBatchNorm


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("last", [False, True])
def test_synchronised_batch_norm(dtype, last):
    """Two processes' halves of a batch together are batch norm of the whole."""
    form = torch.channels_last if last else torch.contiguous_format
    x, grad = (draw((6, 5, 4, 3), dtype, seed).contiguous(memory_format=form) for seed in (1, 2))
    parameter = torch.float32 if dtype == torch.bfloat16 else dtype
    weight, bias = draw((5,), parameter), draw((5,), parameter, seed=3)
    wide = [t.double().requires_grad_() for t in (x, weight, bias)]
    mean, var = torch.zeros(5).double(), torch.ones(5).double()
    wanted = F.batch_norm(wide[0], mean, var, wide[1], wide[2], True, 0.1, 1e-5)
    wanted.backward(grad.double())
    tolerance = {"rtol": 3e-2, "atol": 3e-2} if dtype == torch.bfloat16 else {"rtol": 1e-4, "atol": 1e-4}

    def check(mine, wanted):
        torch.testing.assert_close(mine.cpu().double(), wanted.detach(), **tolerance)

    halves, grads = ([t[:2].cuda(), t[2:].cuda()] for t in (x, grad))
    scale, shift = weight.cuda(), bias.cuda()
    ditorch.reset_counters()
    stats = [torch.batch_norm_stats(half, 1e-5) for half in halves]
    running = torch.zeros(5, dtype=parameter, device="cuda"), torch.ones(5, dtype=parameter, device="cuda")
    counts = torch.tensor([24, 48], dtype=parameter).cuda()
    means, scales = (torch.stack([pair[i] for pair in stats]) for i in (0, 1))
    m, s = torch.batch_norm_gather_stats_with_counts(halves[0], means, scales, *running, 0.1, 1e-5, counts)
    outs = [torch.batch_norm_elemt(half, scale, shift, m, s, 1e-5) for half in halves]
    sums = [
        torch.batch_norm_backward_reduce(g, h, m, s, scale, True, True, True)
        for g, h in zip(grads, halves, strict=True)
    ]
    total = [sums[0][i] + sums[1][i] for i in range(4)]
    numbers = torch.tensor([24, 48], dtype=torch.int32).cuda()
    back = [
        torch.batch_norm_backward_elemt(g, h, m, s, scale, total[0], total[1], numbers)
        for g, h in zip(grads, halves, strict=True)
    ]
    assert not list(ditorch.fallbacks())
    check(torch.cat(outs), wanted)
    check(torch.cat(back), wide[0].grad)
    check(total[2], wide[1].grad)
    check(total[3], wide[2].grad)
    check(running[0], mean)
    check(running[1], var)
    assert back[0].stride() == outs[0].stride() == halves[0].stride()
    assert torch.batch_norm_backward_reduce(grads[0], halves[0], m, s, None, True, False, False)[2] is None


# Fused optimizers

OPTIMIZERS = {
    "Adam": [{}, {"weight_decay": 0.1}, {"weight_decay": 0.1, "maximize": True}, {"amsgrad": True}],
    "AdamW": [{}, {"maximize": True, "amsgrad": True}],
    "SGD": [
        {},
        {"momentum": 0.9},
        {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
        {"momentum": 0.9, "dampening": 0.3, "maximize": True},
    ],
}


def train(device, dtype, name, words):
    generator = torch.Generator().manual_seed(3)
    parameters = [draw(shape, dtype).to(device).requires_grad_() for shape in ((7, 9), (9,), (1, 3, 1))]
    optimizer = getattr(torch.optim, name)(parameters, fused=True, **words)
    for _ in range(4):
        for parameter in parameters:
            parameter.grad = torch.randn(parameter.shape, generator=generator).to(dtype).to(device)
        optimizer.step()
    return parameters


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("lr", [0.01, torch.tensor(0.01)], ids=["number", "tensor"])
def test_fused_optimizers(name, dtype, lr):
    for words in OPTIMIZERS[name]:
        words = {**words, "lr": lr}
        wanted = train("cpu", dtype, name, words)
        ditorch.reset_counters()
        mine = train("cuda", dtype, name, words)
        assert not list(ditorch.fallbacks())
        for a, b in zip(mine, wanted, strict=True):
            torch.testing.assert_close(a.detach().cpu(), b.detach())


# Parts of tensors

PARTS = {
    "select_copy": lambda x: aten.select_copy.int(x, -1, -2),
    "slice_copy": lambda x: aten.slice_copy.Tensor(x, 1, -3, 2**62, 2),
    "slice_copy whole": lambda x: aten.slice_copy.Tensor(x, 0),
    "slice_copy empty": lambda x: aten.slice_copy.Tensor(x, 0, 2, 1),
    "transpose_copy": lambda x: aten.transpose_copy.int(x, 0, -1),
    "permute_copy": lambda x: aten.permute_copy(x, [2, -3, 1]),
    "expand_copy": lambda x: aten.expand_copy(x[:, :1], [2, -1, 5, -1]),
    "unfold_copy": lambda x: aten.unfold_copy(x, 1, 3, 2),
    "select_backward": lambda x: aten.select_backward(x, [4, 7, *x.shape[1:]], 1, -1) if len(x) == 4 else x * 1,
    "slice_backward": lambda x: aten.slice_backward(x, [x.shape[0], 20, x.shape[2]], 1, 2, 9 + 2**40, 3)[:, :2],
    "select_scatter": lambda x: aten.select_scatter(x, x[0] + x[0], 0, -1),
    "slice_scatter": lambda x: aten.slice_scatter(x, x[:, 1:4] + x[:, 1:4], 1, 0, 5, 2),
}


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("dtype", [*FLOATS, torch.int64, torch.bool, torch.complex64])
def test_parts(name, dtype):
    if dtype is torch.bool and name.endswith("scatter"):
        return
    x = draw((4, 6, 8), dtype)
    for y in (x, x.transpose(0, 2).contiguous().transpose(0, 2), x[:, :, ::2]):
        if name == "slice_backward":
            y = y[:, :6]
        twice(PARTS[name], y)


def test_parts_that_are_not_there():
    """PyTorch words the errors."""
    x = torch.ones(3, 4, device="cuda")
    for call, words in (
        (lambda: aten.select_copy.int(x, 1, 4), "index 4"),
        (lambda: aten.select_backward(x, [3, 4, 2], 2, 5), "out of range"),
        (lambda: aten.slice_copy.Tensor(x, 0, 0, 2, 0), "step must be positive"),
        (lambda: aten.permute_copy(x, [0, 0]), "duplicate dims|repeated dim"),
        (lambda: aten.expand_copy(x, [3, 5]), "must match the existing size"),
        (lambda: aten.unfold_copy(x, 1, 9, 1), "maximum size"),
        (lambda: aten.select_scatter(x, x, 0, 1), "expected src to have a size equal"),
    ):
        with pytest.raises((RuntimeError, IndexError), match=words):
            call()


def test_no_row_takes_the_derivative_away():
    """A kernel of the device replaces a CompositeImplicitAutograd one, and with it the derivative of what it is made
    of. These two have a formula of their own."""
    own = {"aten::silu_backward", "aten::_fused_rms_norm"}
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    rows = {name for name in _C.operators_diopi() if name.startswith("aten::")}
    assert {name for name in rows if has_kernel(name, "CompositeImplicitAutograd")} == own & rows
