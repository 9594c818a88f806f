"""The words of a graph (include/dit/graph.h): what the C loader reads. Everything is an int64."""

from __future__ import annotations

import operator
import struct
from typing import Any

import torch

MAGIC = 0x3147544944
MAX_DIMS = 8
ROW, ISLAND, POINT, REDUCE = 0, 3, 4, 5
NONE, TENSOR, INT, DOUBLE, BOOL, STRING, LIST, DTYPE, DEVICE = range(9)
CONST, SYMBOL, EXPR = range(3)
ADD, SUB, MUL, FLOORDIV, MOD, MIN, MAX = range(7)
DTYPES = {
    torch.uint8: 0, torch.int8: 1, torch.int16: 2, torch.int32: 3, torch.int64: 4, torch.float16: 5, torch.float32: 6,
    torch.float64: 7, torch.complex32: 8, torch.complex64: 9, torch.complex128: 10, torch.bool: 11, torch.bfloat16: 15,
    torch.float8_e5m2: 23, torch.float8_e4m3fn: 24, torch.uint16: 27, torch.uint32: 28, torch.uint64: 29,
}  # fmt: skip


class UnsupportedGraph(Exception):
    """The graph has something that the words cannot say: `node`, or the graph as a whole."""

    def __init__(self, reason: str, node: Any = None) -> None:
        super().__init__(reason)
        self.node = node


def _pack_text(text: str) -> list[int]:
    data = text.encode()[:4000]
    padded = data + bytes(-len(data) % 8)
    return [len(data), *struct.unpack(f"<{len(padded) // 8}q", padded)]


class Words:
    """Collects symbols, tensors, arguments and nodes, and writes them."""

    def __init__(self) -> None:
        self.symbols: dict[Any, int] = {}
        self.symbol_rows: list[tuple[int, int]] = []
        self.exprs: list[tuple] = []
        self.expr_of: dict[Any, tuple[int, int]] = {}
        self.tensors: list[list[int]] = []
        self.args: list[list[int]] = []
        self.nodes: list[list[int]] = []
        self.inputs: list[tuple[int, int]] = []
        self.outputs: list[tuple[int, int, int, int]] = []
        self.storages = 0

    def add_symbol(self, symbol: Any, place: int, dim: int) -> None:
        if symbol not in self.symbols:
            self.symbols[symbol] = len(self.symbol_rows)
            self.symbol_rows.append((place, dim))

    def note_symbols(self, value: Any, place: int) -> None:
        """The symbols that input number `place` tells: itself, or its sizes."""
        if isinstance(value, torch.SymInt) and value.node.expr.is_Symbol:
            self.add_symbol(value.node.expr, place, -1)
        elif isinstance(value, torch.Tensor) and value.layout is torch.strided:
            for dim, size in enumerate(value.shape):
                if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
                    self.add_symbol(size.node.expr, place, dim)

    def can_say(self, value: Any) -> bool:
        """Is it an integer, or a tensor of a kind and of sizes that the words have?"""
        if not isinstance(value, torch.Tensor):
            return True
        if value.layout is not torch.strided or value.is_conj() or value.is_neg():
            return False
        try:
            self.add_tensor(value.dtype, value.shape, value.stride(), 0)
        except UnsupportedGraph:
            return False
        return True

    def get_dim(self, value: Any) -> tuple[int, int]:
        """A number or a SymInt as a dimension."""
        if isinstance(value, int):
            return (CONST, int(value))
        if isinstance(value, torch.SymInt):
            return self._get_expr(value.node.expr)
        raise UnsupportedGraph(f"a size that is a {type(value).__name__}")

    def _get_expr(self, expr: Any) -> tuple[int, int]:
        if expr not in self.expr_of:
            self.expr_of[expr] = self._make_expr(expr)
        return self.expr_of[expr]

    def _add_expr(self, op: int, a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
        self.exprs.append((op, *a, *b))
        return (EXPR, len(self.exprs) - 1)

    def _make_expr(self, expr: Any) -> tuple[int, int]:
        if expr.is_Integer:
            return (CONST, int(expr))
        if expr.is_Symbol:
            if expr not in self.symbols:
                raise UnsupportedGraph(f"the size {expr}, which only a run of the program tells")
            return (SYMBOL, self.symbols[expr])
        name = type(expr).__name__
        if name == "Pow" and expr.exp.is_Integer and 0 < int(expr.exp) < 9:
            base = self._get_expr(expr.base)
            found = base
            for _ in range(int(expr.exp) - 1):
                found = self._add_expr(MUL, found, base)
            return found
        ops = {"Add": ADD, "Mul": MUL, "FloorDiv": FLOORDIV, "CleanDiv": FLOORDIV, "Mod": MOD, "PythonMod": MOD}
        ops.update({"Min": MIN, "Max": MAX})
        if name not in ops:
            raise UnsupportedGraph(f"a size that is computed by {name}")
        parts = [self._get_expr(part) for part in expr.args]
        found = parts[0]
        for part in parts[1:]:
            found = self._add_expr(ops[name], found, part)
        return found

    def add_storage(self) -> int:
        self.storages += 1
        return self.storages - 1

    def add_tensor(self, dtype: torch.dtype, sizes, strides, storage: int, offset: Any = 0, flags: int = 0) -> int:
        if dtype not in DTYPES or len(sizes) > MAX_DIMS:
            raise UnsupportedGraph(f"a tensor of {dtype} with {len(sizes)} dimensions")
        row = [DTYPES[dtype], len(sizes), storage, flags]
        for value in (offset, *sizes, *strides):
            row += self.get_dim(value)
        self.tensors.append(row)
        return len(self.tensors) - 1

    def encode(self, value: Any) -> list[int]:
        """One argument: a number, text, dtype, device, list of arguments, None, or a tensor by its `tensor_index`."""
        if value is None:
            return [NONE]
        if hasattr(value, "tensor_index"):
            return [TENSOR, value.tensor_index]
        if isinstance(value, bool):
            return [BOOL, int(value)]
        if isinstance(value, (int, torch.SymInt)):
            return [INT, *self.get_dim(value)]
        if isinstance(value, float):
            return [DOUBLE, struct.unpack("<q", struct.pack("<d", value))[0]]
        if isinstance(value, str):
            return [STRING, *_pack_text(value)]
        if isinstance(value, torch.dtype):
            return [DTYPE, DTYPES[value]]
        if isinstance(value, torch.device):
            if value.type not in ("cuda", "dit", "privateuseone"):
                raise UnsupportedGraph(f"a tensor made on {value}")
            return [DEVICE]
        if isinstance(value, torch.layout):
            if value is not torch.strided:
                raise UnsupportedGraph(f"a tensor of layout {value}")
            return [INT, CONST, 0]
        if isinstance(value, torch.memory_format):
            formats = [torch.contiguous_format, torch.preserve_format, torch.channels_last, torch.channels_last_3d]
            return [INT, CONST, formats.index(value)]
        if isinstance(value, (list, tuple)):
            rows = [self.encode(element) for element in value]
            first = len(self.args)
            self.args += rows
            return [LIST, len(rows), first]
        raise UnsupportedGraph(f"an argument that is a {type(value).__name__}")

    def add_node(self, kind: int, op: int, folded: int, texts: tuple[str, str, str], args, outs: list[int]) -> None:
        rows = [self.encode(arg) for arg in args]
        first = len(self.args)
        self.args += rows
        packed = [word for text in texts for word in _pack_text(text)]
        self.nodes.append([kind, op, folded, *packed, len(rows), first, len(outs), *outs])

    def pack(self) -> torch.Tensor:
        counts = [len(self.symbol_rows), len(self.exprs), len(self.tensors), self.storages, len(self.nodes)]
        counts += [len(self.inputs), len(self.outputs), len(self.args)]
        body = [row for rows in (self.symbol_rows, self.exprs, self.tensors, self.args, self.nodes) for row in rows]
        body += [*self.inputs, *self.outputs]
        words = [word for row in body for word in row]
        return torch.tensor(
            [MAGIC, 2 + len(counts) + len(words), *counts, *map(operator.index, words)], dtype=torch.int64
        )
