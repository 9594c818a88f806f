"""Seeded tensors for cases: values from a stream of bytes that depends on text alone, and memory layouts.

The bytes come from SHAKE-128 of the seed text, and numbers from them by exact arithmetic, so they are the same on every
machine, with every version of Python and PyTorch. No state is kept.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any, NamedTuple

import torch

from . import geometry
from .names import DTYPE_NAMES, INTEGERS

DTYPES = {name: getattr(torch, name) for name in DTYPE_NAMES}


class Stream:
    """Numbers from a text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.drawn = 0

    def words(self, count: int) -> torch.Tensor:
        """int64 from 0 to 2^53 - 1."""
        self.drawn += 1
        seed = f"{self.text}#{self.drawn}".encode()
        data = bytearray(hashlib.shake_128(seed).digest(max(count, 1) * 8))
        return (torch.frombuffer(data, dtype=torch.int64)[:count] >> 11) & ((1 << 53) - 1)

    def uniform(self, count: int) -> torch.Tensor:
        """float64 in [0, 1)."""
        return self.words(count).to(torch.float64) * 2.0**-53

    def normal(self, count: int) -> torch.Tensor:
        """float64 with mean 0 and variance 1, between -3.47 and 3.47: the sum of four uniform numbers."""
        parts = self.uniform(4 * count).reshape(4, count)
        return (parts[0] + parts[1] + parts[2] + parts[3] - 2.0) * math.sqrt(3.0)

    def below(self, count: int, limit: int) -> torch.Tensor:
        return self.words(count) % limit

    def shuffle(self, count: int) -> torch.Tensor:
        """The numbers 0 .. count-1 in some order."""
        return torch.argsort(self.words(count), stable=True)


def _get_range(dtype: str, low: float | None, high: float | None) -> tuple[int, int]:
    least = 0 if dtype.startswith("uint") else -9
    return int(least if low is None else low), int(10 if high is None else high)


def _draw_integers(stream: Stream, count: int, dtype: str, low: float | None, high: float | None) -> torch.Tensor:
    first, last = _get_range(dtype, low, high)
    return stream.below(count, last - first + 1) + first


def _special_values(dtype: str) -> list[float]:
    if dtype in INTEGERS:
        info = torch.iinfo(DTYPES[dtype])
        return [0, 1, 2, 3, info.max, info.min, info.max - 1, info.min + 1, 7, 5]
    if dtype == "bool":
        return [0, 1]
    real = {"complex64": torch.float32, "complex128": torch.float64}.get(dtype, DTYPES[dtype])
    info = torch.finfo(real)
    least = info.smallest_normal * info.eps
    finite = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, info.max, info.min, info.smallest_normal, -info.eps]
    return [*finite, least, -least, math.inf, -math.inf, math.nan, 1 + info.eps, 1 - info.eps / 2, 100.0]


def _make_special(stream: Stream, count: int, dtype: str) -> torch.Tensor:
    """Every special value in turn, in an order of their own so that two tensors meet in many pairs."""
    values = _special_values(dtype)
    kind = torch.int64 if dtype in INTEGERS or dtype == "bool" else torch.float64
    pool = torch.tensor(values, dtype=kind)
    start = int(stream.below(1, len(values))[0])
    step = (1, 3, 7)[int(stream.below(1, 3)[0])]
    return pool[(torch.arange(count) * step + start) % len(values)]


_RANGES = {
    "uniform": (0.0, 1.0),
    "positive": (0.125, 3.0),
    "unit": (-0.96875, 0.96875),
    "above_one": (1.0, 4.0),
    "small": (-0.25, 0.25),
    "probability": (0.03125, 0.96875),
    "wide": (-80.0, 80.0),
    "range": (0.0, 1.0),
}
GENERATORS = {
    "normal",
    "integers",
    "special",
    "nonfinite",
    "index",
    "signed_index",
    "distinct",
    "ties",
    "bool",
    "ones",
    "zeros",
    "data",
    "nonzero",
    "large",
    "rows",
    "calm",
    "tiny",
    "unset",
    *_RANGES,
    *geometry.WIDTHS,
}


def _make_real(kind: str, stream: Stream, count: int, dtype: str, column: Any) -> torch.Tensor:
    """float64 or int64 values before the cast to the dtype."""
    low, high = column.low, column.high
    if kind in _RANGES:
        first, last = _RANGES[kind] if low is None else (low, high)
        if dtype in INTEGERS and low is None:
            first, last = (1, 6) if kind in ("positive", "above_one") else (0, 2)
            return stream.below(count, last - first + 1) + first
        return stream.uniform(count) * (last - first) + first
    if kind == "integers":
        return _draw_integers(stream, count, dtype, low, high)
    if kind == "nonzero":
        values = _draw_integers(stream, count, dtype, low, high) if dtype in INTEGERS else stream.normal(count)
        if dtype in INTEGERS:
            return torch.where(values == 0, 3, values)
        return torch.where(values.abs() < 0.25, values + torch.where(values < 0, -0.5, 0.5), values)
    if kind == "special":
        return _make_special(stream, count, dtype)
    if kind == "nonfinite":
        values = stream.normal(count)
        where = stream.below(count, 11)
        for number, value in enumerate((math.nan, math.inf, -math.inf)):
            values = torch.where(where == number, torch.tensor(value, dtype=torch.float64), values)
        return values
    if kind == "distinct":
        values = stream.shuffle(count)
        if dtype not in INTEGERS:
            return (values.to(torch.float64) - count // 2) * 0.1375
        return values - (0 if dtype.startswith("uint") else min(count // 2, 60))
    if kind == "ties":
        return stream.below(count, 5)
    if kind == "large":
        return stream.normal(count) * 1000.0
    if kind == "tiny":  # below the least number of float16; a product of two is a normal number of float32
        sizes = torch.exp2(-48.0 + 16.0 * stream.uniform(count))
        return torch.where(stream.below(count, 2) == 0, sizes, -sizes)
    if kind == "unset":  # what no random number is
        return torch.full((count,), torch.iinfo(DTYPES[dtype]).max if dtype in INTEGERS else math.nan)
    raise AssertionError(kind)


def _make_flat(kind: str, stream: Stream, count: int, dtype: str, column: Any, row: int) -> torch.Tensor:
    if kind in ("index", "signed_index"):
        limit = column.below[row if len(column.below) > 1 else 0]
        found = stream.below(count, limit)
        return found if kind == "index" else torch.where(stream.below(count, 2) == 0, found, found - limit)
    if kind in geometry.WIDTHS:
        return geometry.make_values(kind, stream, count, column, row)
    if kind == "data":
        data = column.data[row if len(column.data) > 1 else 0]
        kind_of = torch.complex128 if dtype.startswith("complex") else torch.float64
        kind_of = torch.int64 if dtype in INTEGERS or dtype == "bool" else kind_of
        return torch.tensor([math.inf if x == "inf" else math.nan if x == "nan" else x for x in data], dtype=kind_of)
    if kind in ("ones", "zeros"):
        return torch.full((count,), int(kind == "ones"), dtype=torch.int64)
    if kind == "bool" or (dtype == "bool" and kind != "special"):
        return stream.below(count, 2)
    if kind == "normal":
        if dtype in INTEGERS:
            return _draw_integers(stream, count, dtype, column.low, column.high)
        return stream.normal(count)
    return _make_real(kind, stream, count, dtype, column)


def _make_rows(kind: str, stream: Stream, shape: list[int], dtype: str) -> torch.Tensor:
    """Whole rows (along the last dimension) of what breaks reductions: -inf, NaN, +0, -0, subnormal numbers, ones,
    -inf but for one element, signs of zero in turn, +inf; every other row is ordinary. "calm": the finite ones."""
    info = torch.finfo({"complex64": torch.float32, "complex128": torch.float64}.get(dtype, DTYPES[dtype]))
    length = shape[-1] if shape else 1
    count = math.prod(shape) // max(length, 1)
    values = stream.normal(count * length).reshape(count, length)
    least = info.smallest_normal * info.eps
    constants = (-math.inf, math.nan, 0.0, -0.0, least, 1.0, -math.inf, 0.0, math.inf)
    turns = (2, 3, 4, 5, 7) if kind == "calm" else range(len(constants))
    start = int(stream.below(1, len(turns))[0])
    for row in range(0, count, 2):
        turn = turns[(row // 2 + start) % len(turns)]
        kept = values[row].clone()
        values[row] = constants[turn]
        if turn == 6:
            values[row, length // 2] = kept[length // 2]
        elif turn == 7:
            values[row, ::2] = -0.0
    return values.reshape(-1)


def make_values(kind: str, shape: list[int], dtype: str, text: str, column: Any, row: int) -> torch.Tensor:
    """A contiguous tensor with values of a generator, by the text alone."""
    stream = Stream(text)
    count = math.prod(shape)
    if kind in ("rows", "calm") and count and (dtype.startswith(("float", "bfloat", "complex"))):
        flat = _make_rows(kind, stream, shape, dtype)
    else:
        flat = _make_flat("normal" if kind in ("rows", "calm") else kind, stream, count, dtype, column, row)
    if dtype.startswith("complex") and not flat.is_complex():
        flat = torch.complex(
            flat.to(torch.float64), _make_flat(kind, stream, count, dtype, column, row).to(torch.float64)
        )
    if flat.numel() != count:
        raise ValueError(f"{text}: {flat.numel()} values given for shape {shape}")
    if flat.dtype == torch.int64 and dtype == "bool":
        flat = flat != 0
    return flat.to(DTYPES[dtype]).reshape(shape)


# Layouts


def _place(tensor: torch.Tensor, strides: list[int], offset: int, slack: int) -> torch.Tensor:
    """The same elements at these strides. What lies between them is filled with a value that no result should use."""
    last = offset + sum((size - 1) * stride for size, stride in zip(tensor.shape, strides, strict=True))
    total = (last + 1 if tensor.numel() else offset) + slack
    base = torch.full((max(total, 1),), 1, dtype=tensor.dtype)
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        base.fill_(math.nan)
    view = base.as_strided(tensor.shape, strides, offset)
    view.copy_(tensor)
    return view


def _dense_strides(shape: Any, order: list[int], gap: int = 1) -> list[int]:
    """Strides with the dimensions of `order` from the outermost to the innermost."""
    strides, step = [0] * len(shape), gap
    for dim in reversed(order):
        strides[dim] = step
        step *= max(int(shape[dim]), 1)
    return strides


def _transpose(tensor: torch.Tensor) -> torch.Tensor:
    order = list(range(tensor.dim()))
    order[-1], order[-2] = order[-2], order[-1]
    if tensor.dim() > 2:
        order = [order[-1], *order[:-1]]
    return _place(tensor, _dense_strides(tensor.shape, order), 0, 0)


def _spread(tensor: torch.Tensor, gap: int) -> torch.Tensor:
    """Gaps between elements, and a larger one between rows."""
    if tensor.dim() == 0:
        return _place(tensor, [], gap, gap)
    strides, step = [0] * tensor.dim(), gap
    for dim in reversed(range(tensor.dim())):
        strides[dim] = step
        step = step * max(tensor.shape[dim], 1) + gap
    return _place(tensor, strides, gap, gap)


def _expand(tensor: torch.Tensor) -> torch.Tensor:
    """The first dimension of more than one element becomes one element, repeated by stride 0."""
    for dim, size in enumerate(tensor.shape):
        if size > 1:
            return tensor.narrow(dim, 0, 1).clone().expand(tensor.shape)
    return tensor


def apply_layout(tensor: torch.Tensor, layout: str, number: int, is_written: bool) -> torch.Tensor:
    """The tensor in memory of a layout; `number` is its place in the call, so that neighbours differ.

    contiguous     row-major
    transposed     inputs with another order of dimensions in memory, outputs row-major
    strided        gaps between elements, other gaps for every tensor
    offset         row-major, begins inside its storage
    expanded       inputs with stride 0 in one dimension (the values change: all equal there)
    mixed          outputs in another order, inputs row-major and with gaps in turn
    channels_last  tensors of four dimensions with the channels innermost
    """
    if layout == "transposed" and not is_written and tensor.dim() > 1:
        return _transpose(tensor)
    if layout == "strided":
        return _spread(tensor, 2 + number % 3)
    if layout == "offset":
        return _place(tensor, _dense_strides(tensor.shape, list(range(tensor.dim()))), 3 + number % 5, 2)
    if layout == "expanded" and not is_written:
        return _expand(tensor)
    if layout == "mixed":
        if is_written:
            return _transpose(tensor) if tensor.dim() > 1 else _spread(tensor, 2)
        return _spread(tensor, 2) if number % 2 else tensor.contiguous()
    if layout == "channels_last" and tensor.dim() == 4:
        return _place(tensor, _dense_strides(tensor.shape, [0, 2, 3, 1]), 0, 0)
    return tensor.contiguous()


# Sparse matrices


class SparseMatrix(NamedTuple):
    """A matrix in CSR form; `whole` stands for it where a tensor is wanted: only its shape and dtype count."""

    whole: torch.Tensor
    rows: torch.Tensor
    columns: torch.Tensor
    values: torch.Tensor

    @property
    def parts(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return self.rows, self.columns, self.values

    def to_dense(self) -> torch.Tensor:
        """In float64; places that occur twice are added up."""
        out = torch.zeros(self.whole.shape, dtype=torch.float64)
        lengths = self.rows[1:].to(torch.int64) - self.rows[:-1].to(torch.int64)
        row = torch.repeat_interleave(torch.arange(out.shape[0]), lengths)
        return out.index_put((row, self.columns.to(torch.int64)), self.values.to(torch.float64), accumulate=True)


def make_sparse(tensor: torch.Tensor, index: str, text: str, layout: str) -> SparseMatrix:
    """About a third of a matrix's elements, rows without any among them; one place of the last row stands twice."""
    rows, columns = tensor.shape
    chosen = Stream(f"{text}/places").below(tensor.numel(), 3).reshape(rows, columns) == 0
    chosen[::4] = False
    starts, places = [0], []
    for row in chosen:
        here = row.nonzero().flatten().tolist()
        places += here
        starts.append(len(places))
    numbers = tensor[chosen]
    if places and starts[-1] > starts[-2]:
        places.append(places[-1])
        starts[-1] += 1
        numbers = torch.cat([numbers, numbers[:1]])
    parts = [torch.tensor(starts, dtype=DTYPES[index]), torch.tensor(places, dtype=DTYPES[index]), numbers]
    if layout != "expanded":
        parts = [apply_layout(part, layout, number, False) for number, part in enumerate(parts, 1)]
    return SparseMatrix(torch.zeros_like(tensor), *parts)
