"""What graphs are written with: tensors, elementwise operations and folds, as nodes that C fuses."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, statically_known_true

from ..compiler import is_on_device
from .words import DTYPES, POINT, REDUCE, UnsupportedGraph, Words

FUSED_DTYPES = {
    torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.int16, torch.int8,
    torch.uint8, torch.bool,
}  # fmt: skip
HOST = 8
"""DIT_GRAPH_HOST"""
HALVES = (torch.bfloat16, torch.float16)
ANY_DTYPE = {"CAST", "COPY", "ADD", "MUL", "MAXIMUM", "MINIMUM", "WHERE", "EQ", "NE", "LT", "LE", "GT", "GE"}
BITS = {"NOT", "AND", "OR", "XOR"}
NUMBERS = {"NEG", "ABS", "SIGN", "RELU", "SUB", "CLAMP_MIN", "CLAMP_MAX"}
"""Operations of integers too; what is in none of these is of floating dtypes alone."""


class Unfused(Exception):
    """This operator, as it is called here, is not written as elementwise nodes."""


class Refused(Unfused):
    """It could be, but the engine does not run one of them."""


@dataclasses.dataclass(eq=False)
class Value:
    """A tensor of the graph: its number, and the fake tensor that says what it is."""

    tensor_index: int
    storage: int
    base: Any  # storage offset where its storage begins
    shape: tuple
    strides: tuple
    dtype: torch.dtype
    on_device: bool
    is_contiguous: bool


def _is_contiguous(fake: torch.Tensor) -> bool:
    try:
        return fake.is_contiguous()
    except GuardOnDataDependentSymNode:
        return False


def contiguous_strides(sizes) -> tuple:
    strides: list[Any] = []
    step: Any = 1
    for size in reversed(sizes):
        strides.append(step)
        step = step * size
    return tuple(reversed(strides))


def is_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float, torch.SymInt))


class Nodes:
    """Writes nodes of one graph into `words`."""

    def __init__(self, operations: dict[str, int], supports: Any) -> None:
        """`supports` says whether the engine runs an operation on dtypes and a rank; None: there is no engine."""
        self.operations, self.supports = operations, supports
        self.fuses = supports is not None
        self.words = Words()

    def describe(self, fake: torch.Tensor, storage: int, base: Any, flags: int = 0) -> Value:
        if fake.layout is not torch.strided or fake.is_conj() or fake.is_neg():
            raise UnsupportedGraph(f"a tensor of layout {fake.layout}")
        sizes, strides = tuple(fake.shape), tuple(fake.stride())
        offset = fake.storage_offset() - base
        on_device = is_on_device(fake)
        flags |= 0 if on_device else HOST
        index = self.words.add_tensor(fake.dtype, sizes, strides, storage, offset, flags)
        return Value(index, storage, base, sizes, strides, fake.dtype, on_device, _is_contiguous(fake))

    def make(self, shape, dtype: torch.dtype, strides=None) -> Value:
        """A tensor for the result of a node."""
        shape = tuple(shape)
        dense = contiguous_strides(shape)
        strides = dense if strides is None else tuple(strides)
        storage = self.words.add_storage()
        index = self.words.add_tensor(dtype, shape, strides, storage)
        is_dense = all(statically_known_true(a == b) for a, b in zip(strides, dense, strict=True))
        return Value(index, storage, 0, shape, strides, dtype, True, is_dense)

    def ask(self, name: str, args: list[Any], dtype: torch.dtype, shape, folded: int = 0) -> None:
        """Unfused where the engine does not run the operation."""
        dtypes = [DTYPES[arg.dtype] if isinstance(arg, Value) else -1 for arg in args]
        if not self.supports(self.operations[name], folded, len(shape), (*dtypes, DTYPES[dtype])):
            work = next((arg.dtype for arg in reversed(args) if isinstance(arg, Value)), dtype)
            of = str(work) if work == dtype else f"{work} to {dtype}"
            raise Refused(f"the engine does not take {name} of {of.replace('torch.', '')}")

    def point(self, name: str, args: list[Any], dtype: torch.dtype, shape, strides=None) -> Value:
        for arg in args:
            if isinstance(arg, Value):
                if not arg.on_device or arg.dtype not in FUSED_DTYPES:
                    raise Unfused(f"a tensor of {arg.dtype}" if arg.on_device else "a tensor of the CPU")
            elif not is_number(arg):
                raise Unfused(f"an argument that is a {type(arg).__name__}")
        if dtype not in FUSED_DTYPES:
            raise Unfused(f"a result of {dtype}")
        work = next((arg.dtype for arg in reversed(args) if isinstance(arg, Value)), dtype)
        is_one = work.is_floating_point if name not in BITS else not work.is_floating_point
        if not is_one and name not in ANY_DTYPE and (name not in NUMBERS or work is torch.bool):
            raise Unfused(f"{name.lower()} of {work}")
        self.ask(name, args, dtype, shape)
        out = self.make(shape, dtype, strides)
        self.words.add_node(POINT, self.operations[name], 0, ("", "", ""), args, [out.tensor_index])
        return out

    def cast(self, value: Any, dtype: torch.dtype) -> Any:
        if isinstance(value, Value) and value.dtype != dtype:
            return self.point("CAST", [value], dtype, value.shape)
        return value

    def fold(self, name: str, value: Value, dims: list[int]) -> Value:
        """A reduction that keeps its dimensions, over the first or the last ones."""
        ndim = len(value.shape)
        dims = sorted({dim % ndim for dim in dims}) if ndim else []
        if not ndim:
            return value
        if dims == list(range(ndim - len(dims), ndim)):
            folded, kept = len(dims), ndim - len(dims)
        elif dims == list(range(len(dims))):
            folded, kept = -len(dims), ndim - len(dims)
        else:
            raise Unfused("a reduction over dimensions in the middle")
        if not value.is_contiguous and (len(dims) > 1 or (folded < 0 and kept > 1)):
            value = self.point("COPY", [value], value.dtype, value.shape)
        if value.dtype not in FUSED_DTYPES or not value.on_device:
            raise Unfused(f"a reduction of {value.dtype}")
        self.ask(name, [value], value.dtype, value.shape, folded)
        out = self.make([1 if dim in dims else size for dim, size in enumerate(value.shape)], value.dtype)
        self.words.add_node(REDUCE, self.operations[name], folded, ("", "", ""), [value], [out.tensor_index])
        return out

    def drop_dims(self, value: Value, dims: list[int]) -> Value:
        """The same memory without dimensions of size 1."""
        dims = [dim % max(len(value.shape), 1) for dim in dims]
        kept = [i for i in range(len(value.shape)) if i not in dims]
        shape, strides = [value.shape[i] for i in kept], [value.strides[i] for i in kept]
        index = self.words.add_tensor(value.dtype, shape, strides, value.storage)
        return dataclasses.replace(value, tensor_index=index, shape=tuple(shape), strides=tuple(strides))

    def spread(self, value: Value, like: Value) -> Value:
        """One element per channel as a view over the second dimension of `like`."""
        after = [1] * (len(like.shape) - 2)
        shape, strides = (value.shape[0], *after), (value.strides[0], *after)
        index = self.words.add_tensor(value.dtype, shape, strides, value.storage)
        self.words.tensors[index][4:6] = self.words.tensors[value.tensor_index][4:6]  # the offset
        return dataclasses.replace(value, tensor_index=index, shape=shape, strides=strides, is_contiguous=False)

    def _like(self, name: str, args: list[Any], out: torch.Tensor, work: torch.dtype | None = None) -> Value:
        """Arguments cast to the dtype of the result (or `work`, which is then rounded to it)."""
        dtype = work or out.dtype
        cast = [self.cast(arg, dtype) for arg in args]
        if not any(isinstance(arg, Value) for arg in cast):
            raise Unfused("numbers alone")
        if dtype == out.dtype:
            return self.point(name, cast, dtype, out.shape, out.stride())
        value = self.point(name, cast, dtype, out.shape)
        return self.point("CAST", [value], out.dtype, out.shape, out.stride())

    @staticmethod
    def _work(out: torch.Tensor) -> torch.dtype:
        """What several operations of one operator are computed in."""
        return torch.float32 if out.dtype in HALVES else out.dtype
