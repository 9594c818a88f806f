"""The hot operators and what they are measured on: one list, name -> function that makes (call, bytes moved).

A maker gets a device and a dtype and returns a call without arguments. The same seed gives both sides equal numbers.
Operators that the CPU does not have in a dtype are not measured in it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

Call = Callable[[], object]
Maker = Callable[[str, torch.dtype], Call]

N = 1 << 20
ROWS, COLUMNS = 1024, 1024


def _random(device: str, dtype: torch.dtype, *shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    if not dtype.is_floating_point and not dtype.is_complex:
        return torch.randint(1, 100, shape, generator=generator).to(dtype).to(device)
    return torch.rand(*shape, generator=generator).add_(0.1).to(dtype).to(device)


def _unary(function: Callable[[torch.Tensor], object], shape: tuple[int, ...] = (N,)) -> Maker:
    def make(device: str, dtype: torch.dtype) -> Call:
        x = _random(device, dtype, *shape)
        return lambda: function(x)

    return make


def _binary(function: Callable[..., object], *shapes: tuple[int, ...]) -> Maker:
    def make(device: str, dtype: torch.dtype) -> Call:
        tensors = [_random(device, dtype, *shape, seed=i) for i, shape in enumerate(shapes)]
        return lambda: function(*tensors)

    return make


def _backward(function: Callable[..., torch.Tensor], *shapes: tuple[int, ...]) -> Maker:
    """Forward and backward together, as training does them."""

    def make(device: str, dtype: torch.dtype) -> Call:
        tensors = [_random(device, dtype, *shape, seed=i).requires_grad_() for i, shape in enumerate(shapes)]
        gradient = _random(device, dtype, *function(*tensors).shape, seed=99)

        def call() -> None:
            torch.autograd.grad(function(*tensors), tensors, gradient)

        return call

    return make


def _indexed(function: Callable[[torch.Tensor, torch.Tensor], object], rows: int, count: int) -> Maker:
    def make(device: str, dtype: torch.dtype) -> Call:
        table = _random(device, dtype, rows, 256)
        index = torch.randint(rows, (count,), generator=torch.Generator().manual_seed(1)).to(device)
        return lambda: function(table, index)

    return make


def _cross_entropy(device: str, dtype: torch.dtype) -> Call:
    logits = _random(device, dtype, 512, 4096).requires_grad_()
    target = torch.randint(4096, (512,), generator=torch.Generator().manual_seed(1)).to(device)
    return lambda: torch.autograd.grad(F.cross_entropy(logits, target), logits)


def _adamw(device: str, dtype: torch.dtype) -> Call:
    parameters = [torch.nn.Parameter(_random(device, dtype, 512, 512, seed=i)) for i in range(4)]
    for parameter in parameters:
        parameter.grad = torch.full_like(parameter, 0.01)
    optimizer = torch.optim.AdamW(parameters, lr=1e-4)
    return lambda: optimizer.step()


def _signed(function: Callable[[torch.Tensor], object], shape: tuple[int, ...] = (N,)) -> Maker:
    """Numbers of both signs."""

    def make(device: str, dtype: torch.dtype) -> Call:
        x = _random(device, dtype, *shape) - _random(device, dtype, *shape, seed=1)
        return lambda: function(x)

    return make


def _masked(function: Callable[..., object], *shapes: tuple[int, ...]) -> Maker:
    def make(device: str, dtype: torch.dtype) -> Call:
        tensors = [_random(device, dtype, *shape, seed=i) for i, shape in enumerate(shapes)]
        mask = (torch.rand(shapes[0], generator=torch.Generator().manual_seed(7)) > 0.5).to(device)
        return lambda: function(mask, *tensors)

    return make


def _whole(function: Callable[..., object], count: int, shape: tuple[int, ...] = (N,)) -> Maker:
    """Of integers alone."""

    def make(device: str, dtype: torch.dtype) -> Call:
        if dtype.is_floating_point or dtype.is_complex:
            raise NotImplementedError(f"not for {dtype}")
        return _binary(function, *([shape] * count))(device, dtype)

    return make


SQUARE = (ROWS, COLUMNS)
IMAGE = (8, 64, 56, 56)

MEMORY_BOUND: dict[str, tuple[Maker, int]] = {
    "add (16M)": (_binary(torch.add, (16 * N,), (16 * N,)), 3 * 16 * N * 4),
    "mul (16M)": (_binary(torch.mul, (16 * N,), (16 * N,)), 3 * 16 * N * 4),
    "relu (16M)": (_unary(torch.relu, (16 * N,)), 2 * 16 * N * 4),
    "neg (16M)": (_unary(torch.neg, (16 * N,)), 2 * 16 * N * 4),
    "sum (16M)": (_unary(torch.sum, (16 * N,)), 16 * N * 4),
    "where (16M)": (
        lambda device, dtype: (lambda x, y, m: lambda: torch.where(m, x, y))(
            _random(device, dtype, 16 * N), _random(device, dtype, 16 * N), _random(device, dtype, 16 * N) > 0.5
        ),
        3 * 16 * N * 4 + 16 * N,
    ),
    "fill_ (16M)": (_unary(lambda x: x.fill_(1.0), (16 * N,)), 16 * N * 4),
}
"""Large tensors: bytes that must be moved, read and written."""

HOT: dict[str, Maker] = {
    "add": _binary(torch.add, (N,), (N,)),
    "add broadcast row": _binary(torch.add, SQUARE, (COLUMNS,)),
    "add transposed": _binary(lambda a, b: a + b.t(), SQUARE, SQUARE),
    "mul": _binary(torch.mul, (N,), (N,)),
    "mul number": _unary(lambda x: x * 1.5),
    "div": _binary(torch.div, (N,), (N,)),
    "pow 2": _unary(lambda x: x.pow(2)),
    "pow 2.5": _unary(lambda x: x.pow(2.5)),
    "maximum": _binary(torch.maximum, (N,), (N,)),
    "neg": _unary(torch.neg),
    "abs": _unary(torch.abs),
    "exp": _unary(torch.exp),
    "log": _unary(torch.log),
    "sqrt": _unary(torch.sqrt),
    "rsqrt": _unary(torch.rsqrt),
    "sin": _unary(torch.sin),
    "tanh": _unary(torch.tanh),
    "sigmoid": _unary(torch.sigmoid),
    "erf": _unary(torch.erf),
    "relu": _unary(torch.relu),
    "gelu": _unary(F.gelu),
    "gelu tanh": _unary(lambda x: F.gelu(x, approximate="tanh")),
    "silu": _unary(F.silu),
    "gelu backward": _backward(F.gelu, (N,)),
    "silu backward": _backward(F.silu, (N,)),
    "clamp": _unary(lambda x: x.clamp(0.2, 0.8)),
    "eq": _binary(torch.eq, (N,), (N,)),
    "lt number": _unary(lambda x: x < 0.5),
    "addcmul": _binary(torch.addcmul, (N,), (N,), (N,)),
    "lerp": _binary(lambda a, b: torch.lerp(a, b, 0.3), (N,), (N,)),
    "sum": _unary(torch.sum),
    "sum last": _unary(lambda x: x.sum(1), SQUARE),
    "sum first": _unary(lambda x: x.sum(0), SQUARE),
    "mean last": _unary(lambda x: x.mean(1), SQUARE),
    "max last": _unary(lambda x: x.max(1), SQUARE),
    "argmax last": _unary(lambda x: x.argmax(1), SQUARE),
    "norm": _unary(lambda x: torch.linalg.vector_norm(x)),
    "cumsum": _unary(lambda x: x.cumsum(1), SQUARE),
    "softmax": _unary(lambda x: x.softmax(1), SQUARE),
    "softmax backward": _backward(lambda x: x.softmax(1), SQUARE),
    "log_softmax": _unary(lambda x: x.log_softmax(1), SQUARE),
    "layer_norm": _unary(lambda x: F.layer_norm(x, (COLUMNS,)), SQUARE),
    "layer_norm backward": _backward(lambda x, w, b: F.layer_norm(x, (COLUMNS,), w, b), SQUARE, (COLUMNS,), (COLUMNS,)),
    "batch_norm backward": _backward(
        lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), IMAGE, (64,), (64,)
    ),
    "group_norm": _unary(lambda x: F.group_norm(x, 8), IMAGE),
    "mm 512": _binary(torch.mm, (512, 512), (512, 512)),
    "mm skinny": _binary(torch.mm, (8, 1024), (1024, 1024)),
    "mm transposed": _binary(lambda a, b: a @ b.t(), (512, 512), (512, 512)),
    "addmm 512": _binary(torch.addmm, (512,), (512, 512), (512, 512)),
    "bmm": _binary(torch.bmm, (64, 64, 64), (64, 64, 64)),
    "linear backward": _backward(F.linear, (512, 512), (512, 512), (512,)),
    "conv2d 3x3": _binary(lambda x, w: F.conv2d(x, w, padding=1), IMAGE, (64, 64, 3, 3)),
    "conv2d 1x1": _binary(F.conv2d, IMAGE, (64, 64, 1, 1)),
    "conv2d 3x3 backward": _backward(lambda x, w: F.conv2d(x, w, padding=1), IMAGE, (64, 64, 3, 3)),
    "max_pool2d": _unary(lambda x: F.max_pool2d(x, 2), IMAGE),
    "avg_pool2d": _unary(lambda x: F.avg_pool2d(x, 2), IMAGE),
    "adaptive_avg_pool2d": _unary(lambda x: F.adaptive_avg_pool2d(x, 1), IMAGE),
    "attention": _binary(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), *([(2, 8, 256, 64)] * 3)
    ),
    "embedding": _indexed(lambda t, i: F.embedding(i, t), 10000, 4096),
    "index_select": _indexed(lambda t, i: t.index_select(0, i), 10000, 4096),
    "gather": _binary(lambda x: x.gather(1, torch.zeros(ROWS, COLUMNS, dtype=torch.int64, device=x.device)), SQUARE),
    "cat": _binary(lambda a, b: torch.cat([a, b], 1), SQUARE, SQUARE),
    "transpose copy": _unary(lambda x: x.t().contiguous(), SQUARE),
    "masked_fill": _unary(lambda x: x.masked_fill(x > 0.5, 0.0)),
    "tril": _unary(torch.tril, SQUARE),
    "sort last": _unary(lambda x: x.sort(1), SQUARE),
    "topk": _unary(lambda x: x.topk(10, 1), SQUARE),
    "cross_entropy backward": _cross_entropy,
    "dropout": _unary(lambda x: F.dropout(x, 0.1)),
    "AdamW step": _adamw,
    "sign": _signed(torch.sign),
    "relu both signs": _signed(torch.relu),
    "leaky_relu": _signed(lambda x: F.leaky_relu(x, 0.1)),
    "hardtanh": _signed(F.hardtanh),
    "floor": _signed(torch.floor),
    "reciprocal": _unary(torch.reciprocal),
    "cos": _unary(torch.cos),
    "log1p": _unary(torch.log1p),
    "square": _unary(torch.square),
    "sub": _binary(torch.sub, (N,), (N,)),
    "sub number": _unary(lambda x: 2 - x),
    "add_ number": _unary(lambda x: x.add_(1)),
    "mul column": _binary(torch.mul, SQUARE, (ROWS, 1)),
    "floor_divide": _binary(torch.floor_divide, (N,), (N,)),
    "remainder": _binary(torch.remainder, (N,), (N,)),
    "minimum": _binary(torch.minimum, (N,), (N,)),
    "where": _masked(torch.where, (N,), (N,)),
    "logical_and": _binary(torch.logical_and, (N,), (N,)),
    "isnan": _unary(torch.isnan),
    "xor": _whole(torch.bitwise_xor, 2),
    "bitwise_and": _whole(torch.bitwise_and, 2),
    "bitwise_not": _whole(torch.bitwise_not, 1),
    "left_shift": _whole(lambda x: x << 2, 1),
    "amax last": _unary(lambda x: x.amax(1), SQUARE),
    "amin last": _unary(lambda x: x.amin(1), SQUARE),
    "amin first": _unary(lambda x: x.amin(0), SQUARE),
    "amin": _unary(torch.amin),
    "max": _unary(torch.max),
    "nansum": _unary(torch.nansum),
    "nansum last": _unary(lambda x: x.nansum(1), SQUARE),
    "prod last": _unary(lambda x: x.prod(1), SQUARE),
    "mean": _unary(torch.mean),
    "mean middle": _unary(lambda x: x.mean((0, 2, 3)), IMAGE),
    "var last": _unary(lambda x: x.var(1), SQUARE),
    "any": _unary(lambda x: (x > 1000).any()),
    "all last": _unary(lambda x: x.all(1), SQUARE),
    "logsumexp": _unary(lambda x: x.logsumexp(1), SQUARE),
    "softmax first": _unary(lambda x: x.softmax(0), SQUARE),
    "batch_norm": _binary(lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), IMAGE, (64,), (64,)),
    "group_norm backward": _backward(lambda x, w, b: F.group_norm(x, 8, w, b), IMAGE, (64,), (64,)),
    "rms_norm": _binary(lambda x, w: F.rms_norm(x, (COLUMNS,), w), SQUARE, (COLUMNS,)),
    "max_pool2d backward": _backward(lambda x: F.max_pool2d(x, 2), IMAGE),
    "pad reflect": _unary(lambda x: F.pad(x, (2, 2, 2, 2), mode="reflect"), IMAGE),
    "pad replicate": _unary(lambda x: F.pad(x, (2, 2, 2, 2), mode="replicate"), IMAGE),
    "pad constant": _unary(lambda x: F.pad(x, (2, 2, 2, 2)), IMAGE),
    "pad reflect backward": _backward(lambda x: F.pad(x, (2, 2, 2, 2), mode="reflect"), IMAGE),
    "upsample nearest": _unary(lambda x: F.interpolate(x, scale_factor=2), (4, 64, 28, 28)),
    "clone": _unary(torch.clone),
    "copy_": _binary(lambda a, b: a.copy_(b), (N,), (N,)),
    "zero_": _unary(lambda x: x.zero_()),
    "fill_": _unary(lambda x: x.fill_(1)),
    "to float32": _unary(lambda x: x.to(torch.float32, copy=True)),
    "to float16": _unary(lambda x: x.to(torch.float16, copy=True)),
    "to bfloat16": _unary(lambda x: x.to(torch.bfloat16, copy=True)),
    "to int64": _unary(lambda x: x.to(torch.int64, copy=True)),
    "permute copy": _unary(lambda x: x.permute(0, 2, 3, 1).contiguous(), IMAGE),
    "cat first": _binary(lambda a, b: torch.cat([a, b]), (N,), (N,)),
    "stack last": _binary(lambda a, b: torch.stack([a, b], -1), SQUARE, SQUARE),
    "flip": _unary(lambda x: x.flip(1), SQUARE),
    "roll": _unary(lambda x: x.roll(3, 1), SQUARE),
    "arange": _unary(lambda x: torch.arange(N, dtype=x.dtype, device=x.device), (1,)),
}

SIZES: dict[str, tuple[int, ...]] = {"4x4": (4, 4), "64k": (256, 256)}
"""Other sizes of the operators below; HOT has a million elements."""

BY_SIZE: dict[str, Callable[[tuple[int, ...]], Maker]] = {
    "add": lambda shape: _binary(torch.add, shape, shape),
    "mul": lambda shape: _binary(torch.mul, shape, shape),
    "mul number": lambda shape: _unary(lambda x: x * 2, shape),
    "neg": lambda shape: _unary(torch.neg, shape),
    "abs": lambda shape: _unary(torch.abs, shape),
    "exp": lambda shape: _unary(torch.exp, shape),
    "relu": lambda shape: _unary(torch.relu, shape),
    "xor": lambda shape: _whole(torch.bitwise_xor, 2, shape),
    "eq": lambda shape: _binary(torch.eq, shape, shape),
    "where": lambda shape: _masked(torch.where, shape, shape),
    "sum": lambda shape: _unary(torch.sum, shape),
    "amin last": lambda shape: _unary(lambda x: x.amin(1), shape),
    "nansum last": lambda shape: _unary(lambda x: x.nansum(1), shape),
    "softmax": lambda shape: _unary(lambda x: x.softmax(1), shape),
    "cumsum": lambda shape: _unary(lambda x: x.cumsum(1), shape),
    "mm": lambda shape: _binary(torch.mm, shape, shape),
    "cat": lambda shape: _binary(lambda a, b: torch.cat([a, b]), shape, shape),
    "clone": lambda shape: _unary(torch.clone, shape),
    "transpose copy": lambda shape: _unary(lambda x: x.t().contiguous(), shape),
    "zero_": lambda shape: _unary(lambda x: x.zero_(), shape),
    "to float16": lambda shape: _unary(lambda x: x.to(torch.float16, copy=True), shape),
    "to float32": lambda shape: _unary(lambda x: x.to(torch.float32, copy=True), shape),
}
HOT.update({f"{name} {size}": make(SIZES[size]) for name, make in BY_SIZE.items() for size in SIZES})

LAST = {"memory_format": torch.channels_last}


def _last(function: Callable[..., object], shape: tuple[int, ...] = IMAGE) -> Maker:
    """Of an image whose channels lie together."""

    def make(device: str, dtype: torch.dtype) -> Call:
        x = _random(device, dtype, *shape).contiguous(**LAST)
        return lambda: function(x)

    return make


def _floating(make: Maker) -> Maker:
    def only(device: str, dtype: torch.dtype) -> Call:
        if not (dtype.is_floating_point or dtype.is_complex):
            raise NotImplementedError(f"not for {dtype}")
        return make(device, dtype)

    return only


def _masked_number(device: str, dtype: torch.dtype) -> Call:
    x, number = _random(device, dtype, *SQUARE), torch.ones((), dtype=dtype, device=device)
    mask = (torch.rand(SQUARE, generator=torch.Generator().manual_seed(7)) > 0.5).to(device)
    return lambda: x.index_put_((mask,), number)


def _by_rows(function: Callable[..., object]) -> Maker:
    """x and positions of its rows, the same along a row."""

    def make(device: str, dtype: torch.dtype) -> Call:
        x = _random(device, dtype, *SQUARE)
        index = torch.randint(ROWS, (ROWS,), generator=torch.Generator().manual_seed(1)).to(device)
        return lambda: function(x, index, index[:, None].expand(SQUARE))

    return make


HOT.update(
    {
        "batch_norm channels last": _last(lambda x: F.batch_norm(x, None, None, training=True)),
        "group_norm channels last": _last(lambda x: F.group_norm(x, 8)),
        "softmax channels last": _last(lambda x: x.softmax(1)),
        "interpolate channels last": _last(lambda x: F.interpolate(x, scale_factor=2), (4, 64, 28, 28)),
        "amax channels last": _last(lambda x: x.amax((2, 3))),
        "images by position": _last(lambda x: x[torch.arange(7, -1, -1, device=x.device)]),
        "softmax transposed": _floating(_unary(lambda x: x.t().softmax(1), SQUARE)),
        "softmax of 32": _floating(_unary(lambda x: x.softmax(1), (N // 32, 32))),
        "layer_norm of 32": _floating(_unary(lambda x: F.layer_norm(x, (32,)), (N // 32, 32))),
        "count_nonzero transposed": _unary(lambda x: x.t().count_nonzero(), SQUARE),
        "number under a mask": _masked_number,
        "gather rows": _by_rows(lambda x, index, wide: x.gather(0, wide)),
        "scatter_add rows": _by_rows(lambda x, index, wide: x.scatter_add(0, wide, x)),
        "index_add": _by_rows(lambda x, index, wide: x.index_add(0, index, x)),
        "to complex64": _unary(lambda x: x.to(torch.complex64, copy=True)),
        "dot": _binary(torch.dot, (N,), (N,)),
    }
)
"""Layouts and lengths that are easily forgotten."""

WITH_DNN = ("mm 512", "addmm 512", "bmm", "linear backward", "conv2d 3x3", "conv2d 1x1", "conv2d 3x3 backward")
"""Operators for which ATen's own figure depends on oneDNN."""
