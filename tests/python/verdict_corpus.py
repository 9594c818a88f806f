"""A corpus of results, right and wrong, on which all that judge must give one verdict (test_verdict_corpus.py).

Each case is one call of an operator on the embedded device whose result, or gradient, was damaged in one way. Entries
are operators with their arguments, DAMAGES are the ways, and a consumer is one function: see test_verdict_corpus.py.
Everything follows from seeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

F64, F32, BF16, F16 = torch.float64, torch.float32, torch.bfloat16, torch.float16
I64, BOOL, C64 = torch.int64, torch.bool, torch.complex64
FLOATS = (F64, F32, BF16, F16)
WIDER = (F64, F32)
MOST = (F32, BF16)
ALL = (*FLOATS, I64, C64)


class Maker:
    """Arguments of one call."""

    def __init__(self, dtype: torch.dtype, seed: int) -> None:
        self.dtype, self.generator = dtype, torch.Generator().manual_seed(seed)

    def r(self, *shape: int, scale: float = 1.0) -> torch.Tensor:
        """Numbers of the dtype."""
        if self.dtype in (I64, BOOL):
            return torch.randint(-9 if self.dtype == I64 else 0, 10, shape, generator=self.generator).to(self.dtype)
        kind = torch.complex128 if self.dtype.is_complex else F64
        return (torch.randn(shape, dtype=kind, generator=self.generator) * scale).to(self.dtype)

    def p(self, *shape: int) -> torch.Tensor:
        """Positive ones."""
        return (self.r(*shape).abs() + (1 if self.dtype == I64 else 0.5)).to(self.dtype)

    def i(self, high: int, *shape: int) -> torch.Tensor:
        """Indices."""
        return torch.randint(high, shape, generator=self.generator)

    def few(self, *shape: int) -> torch.Tensor:
        """Numbers with many equal ones among them."""
        return self.i(4, *shape).to(self.dtype) / 2 if self.dtype != I64 else self.i(4, *shape)

    def spd(self, n: int) -> torch.Tensor:
        a = self.r(n, n)
        return a @ a.mT + n * torch.eye(n, dtype=self.dtype)


@dataclass
class Entry:
    name: str
    make: Callable[[Maker], Any]
    """The arguments: a tuple, or (tuple, dict)."""
    dtypes: tuple = MOST
    grad: bool = False
    targets: tuple = (0,)
    """Numbers of the results that are damaged."""
    is_exact: bool = True
    """Where the operator table calls it exact: it is so with these arguments."""
    overflows: bool = False
    """Partial sums leave float32: what is not finite may be right."""


def _with_nan(tensor: torch.Tensor) -> torch.Tensor:
    tensor.view(-1)[tensor.numel() // 2] = math.nan
    return tensor


def _entries() -> list[Entry]:
    functional = "torch.nn.functional."
    return [
        # pointwise
        Entry("torch.add", lambda m: (m.r(3, 5, 7), m.r(5, 1)), ALL, True),
        Entry("torch.mul", lambda m: (m.r(2, 3, 4, 2, 5), m.r(2, 3, 4, 2, 5)), ALL, True),
        Entry("torch.div", lambda m: (m.r(40), m.p(40)), FLOATS, True),
        Entry("torch.exp", lambda m: (m.r(9, 13),), (*FLOATS, C64), True),
        Entry("torch.sin", lambda m: (m.r(300)[::2],), WIDER),
        Entry("torch.tanh", lambda m: (m.r(6, 6).t(),), MOST, True),
        Entry("torch.Tensor.add_", lambda m: (m.r(4, 9), m.r(4, 9)), MOST),
        Entry("torch.Tensor.mul_", lambda m: (m.r(70), 1.7), MOST),
        Entry("torch.pow", lambda m: (m.p(33), 2.5), WIDER, True),
        Entry("torch.addcmul", lambda m: ((m.r(21), m.r(21), m.r(21)), {"value": 0.3}), MOST, True),
        Entry("torch.lerp", lambda m: (m.r(8, 9), m.r(8, 9), 0.3), MOST),
        Entry(functional + "gelu", lambda m: (m.r(5, 29),), FLOATS, True),
        Entry(functional + "silu", lambda m: (m.r(3),), MOST, True),
        Entry("torch.sqrt", lambda m: (m.p(1),), WIDER),
        Entry("torch.reciprocal", lambda m: (m.p(17, 5),), FLOATS),
        # copies, views, what rounds nothing
        Entry("torch.Tensor.clone", lambda m: (m.r(10, 11),), (*ALL, BOOL)),
        Entry("torch.cat", lambda m: ([m.r(3, 7), m.r(2, 7)],), ALL, True),
        Entry("torch.Tensor.view", lambda m: (m.r(6, 4), 8, 3), MOST),
        Entry("torch.transpose", lambda m: (m.r(5, 6, 2), 0, 2), MOST),
        Entry("torch.where", lambda m: (m.i(2, 9, 4).bool(), m.r(9, 4), m.r(4)), (*MOST, I64), True),
        Entry("torch.relu", lambda m: (m.r(12, 5),), FLOATS, True),
        Entry("torch.neg", lambda m: (m.r(2),), (*MOST, I64)),
        Entry("torch.index_select", lambda m: (m.r(9, 6), 1, m.i(6, 4)), MOST),
        Entry("torch.gather", lambda m: (m.r(5, 8), 1, m.i(8, 5, 3)), MOST),
        Entry("torch.flip", lambda m: (m.r(3, 2, 2, 2, 3), [0, 4]), MOST),
        Entry(functional + "pad", lambda m: (m.r(3, 4), (1, 2), "constant", 0.7), MOST, is_exact=False),
        Entry("torch.Tensor.to", lambda m: (m.r(7, 9), F16), (F32, F64)),
        # reductions and scans
        Entry("torch.sum", lambda m: (m.r(40, 30), 1), (*ALL,), True),
        Entry("torch.mean", lambda m: (m.r(2000),), FLOATS),
        Entry("torch.prod", lambda m: (m.p(6, 5), 0), WIDER),
        Entry("torch.var", lambda m: (m.r(9, 50), 1), MOST, True),
        Entry("torch.logsumexp", lambda m: (m.r(8, 20), 1), MOST),
        Entry("torch.cumsum", lambda m: (m.r(4, 64), 1), (*FLOATS, I64), True),
        Entry("torch.cumsum", lambda m: (m.p(2, 1).expand(2, 90).clone(), 1), MOST, True),
        Entry("torch.cumprod", lambda m: (m.p(3, 8), 1), WIDER),
        Entry("torch.logcumsumexp", lambda m: (m.r(3, 40), 1), (F32,)),
        Entry("torch.cumulative_trapezoid", lambda m: (m.r(2, 70),), (F32,), True),
        Entry("torch.linalg.vector_norm", lambda m: (m.r(300),), MOST, True),
        Entry("torch.all", lambda m: (m.r(6, 3), 1), (BOOL,)),
        # softmax, norms, losses
        Entry("torch.softmax", lambda m: (m.r(6, 33), -1), FLOATS, True),
        Entry(functional + "log_softmax", lambda m: (m.r(70, 9), 1), MOST, True),
        Entry(functional + "layer_norm", lambda m: (m.r(8, 16), [16], m.r(16), m.r(16)), MOST, True),
        Entry(functional + "group_norm", lambda m: (m.r(2, 6, 5), 3, m.r(6), m.r(6)), (F32,), True),
        Entry(functional + "mse_loss", lambda m: (m.r(30), m.r(30)), MOST, True),
        Entry(functional + "cross_entropy", lambda m: (m.r(12, 7), m.i(7, 12)), MOST, True),
        Entry(functional + "binary_cross_entropy_with_logits", lambda m: (m.r(20), m.i(2, 20).to(m.dtype)), (F32,)),
        # products
        Entry("torch.mm", lambda m: (m.r(7, 20), m.r(20, 12)), (*FLOATS, C64), True),
        Entry("torch.bmm", lambda m: (m.r(3, 4, 9), m.r(3, 9, 5)), MOST, True),
        Entry("torch.addmm", lambda m: (m.r(6), m.r(5, 40), m.r(40, 6)), MOST),
        Entry("torch.dot", lambda m: (m.r(100), m.r(100)), WIDER),
        Entry(functional + "linear", lambda m: (m.r(3, 4, 16), m.r(9, 16), m.r(9)), FLOATS, True),
        Entry("torch.einsum", lambda m: ("bij,bkj->bik", m.r(2, 4, 8), m.r(2, 5, 8)), (F32,)),
        Entry(functional + "conv2d", lambda m: (m.r(2, 3, 8, 8), m.r(4, 3, 3, 3), m.r(4)), MOST, True),
        Entry(functional + "conv1d", lambda m: (m.r(2, 3, 12), m.r(2, 3, 3)), (F32,)),
        Entry(
            functional + "scaled_dot_product_attention", lambda m: (m.r(2, 2, 5, 8), m.r(2, 2, 5, 8), m.r(2, 2, 5, 8)),
            MOST, True,
        ),
        # choices, with ties
        Entry("torch.sort", lambda m: (m.few(5, 12), 1), (F32, I64), True, (0, 1)),
        Entry("torch.topk", lambda m: (m.few(4, 15), 4, 1), MOST, True, (0, 1)),
        Entry("torch.topk", lambda m: ((m.r(4, 15), 4, 1), {"sorted": False}), MOST, True, (0, 1)),
        Entry("torch.topk", lambda m: (m.few(3, 9), 5, 1, False, False), (F32, I64), targets=(0, 1)),
        Entry("torch.mode", lambda m: (m.few(6, 14), 1), (F32, I64), True, (0, 1)),
        Entry("torch.msort", lambda m: (m.few(8, 3),), (F32,), True),
        Entry("torch.topk", lambda m: (m.r(4, 15), 4, 1), (F32,), True, (1,)),
        Entry("torch.sort", lambda m: (m.few(2, 40), 1), (F32, I64), targets=(1,)),
        Entry("torch.argmax", lambda m: (m.few(6, 9), 1), (F32, BF16, I64)),
        Entry("torch.max", lambda m: (m.few(7, 8), 0), MOST, True, (0, 1)),
        Entry("torch.argsort", lambda m: (m.r(30),), (F32, I64)),
        Entry(functional + "max_pool2d", lambda m: (m.r(2, 3, 6, 6), 2), MOST, True),
        Entry("torch.kthvalue", lambda m: (m.r(5, 9), 3, 1), (F32,), targets=(0, 1)),
        # scatters, with and without repeats
        Entry("torch.scatter", lambda m: (m.r(4, 9), 1, m.i(9, 4, 3), m.r(4, 3)), MOST),
        Entry("torch.scatter", lambda m: (m.r(3, 8), 1, torch.tensor([[0, 2, 5]] * 3), m.r(3, 3)), (F32,)),
        Entry("torch.index_copy", lambda m: (m.r(6, 4), 0, torch.tensor([1, 3, 1]), m.r(3, 4)), (F32,)),
        Entry("torch.index_add", lambda m: (m.r(6, 4), 0, m.i(6, 9), m.r(9, 4)), MOST),
        Entry("torch.scatter_add", lambda m: (m.r(4, 5), 1, m.i(5, 4, 7), m.r(4, 7)), (F32,)),
        Entry(functional + "embedding", lambda m: (m.i(11, 4, 3), m.r(11, 6)), MOST, True),
        # the rest
        Entry(functional + "avg_pool2d", lambda m: (m.r(1, 2, 6, 6), 3), MOST, True),
        Entry(
            functional + "interpolate", lambda m: ((m.r(1, 2, 5, 5), None, 2.0), {"mode": "bilinear"}), (F32,)
        ),
        Entry("torch.linalg.inv", lambda m: (m.spd(6),), WIDER),
        Entry("torch.linalg.solve", lambda m: (m.spd(5), m.r(5, 3)), (F32,)),
        Entry("torch.linalg.cholesky", lambda m: (m.spd(5),), WIDER),
        Entry("torch.linalg.eigh", lambda m: (m.spd(5),), (F32,), targets=(0, 1)),
        Entry("torch.linalg.qr", lambda m: (m.r(6, 4),), (F32,), targets=(0, 1)),
        Entry("torch.fft.fft", lambda m: (m.r(4, 32),), (F32, C64)),
        Entry("torch.view_as_real", lambda m: (m.r(9),), (C64,)),
        Entry("torch.abs", lambda m: (m.r(5, 9),), (I64, F32)),
        Entry("torch.abs", lambda m: (m.r(5, 9),), (C64,), is_exact=False),
        Entry("torch._foreach_add", lambda m: ([m.r(5), m.r(3, 4)], [m.r(5), m.r(3, 4)]), MOST, targets=(1,)),
        Entry("torch._foreach_mul", lambda m: ([m.r(70), m.r(3)], 0.3), (F32,)),
        Entry("torch.floor_divide", lambda m: (m.r(30), m.p(30)), (I64, F32)),
        Entry("torch.eq", lambda m: (m.few(40), m.few(40)), (F32, I64)),
        Entry("torch.bitwise_and", lambda m: (m.r(20), m.r(20)), (I64, BOOL)),
        # sums that leave float32 on the way, and a NaN that a convolution may spread
        Entry("torch.mm", lambda m: (m.r(6, 20, scale=1e19), m.r(20, 9, scale=1e19)), (F32, C64), overflows=True),
        Entry("torch.sum", lambda m: (m.r(7, 30, scale=3e37), 1), (F32, BF16), overflows=True),
        Entry(functional + "conv1d", lambda m: (_with_nan(m.r(2, 3, 12)), m.r(2, 3, 3)), (F32,)),
        Entry("torch.mm", lambda m: (_with_nan(m.r(6, 20)), m.r(20, 9)), (F32,)),
    ]  # fmt: skip


ENTRIES = _entries()


# damages: a tensor and a generator to a tensor; None where it does not apply


def _roundings(tensor: torch.Tensor, count: float, one: bool, generator: torch.Generator) -> torch.Tensor | None:
    if not (tensor.is_floating_point() or tensor.is_complex()) or not tensor.numel():
        return None
    wide = tensor.to(torch.complex128 if tensor.is_complex() else F64)
    size = count * torch.finfo(tensor.dtype).eps / 2 * (1 + 2.0**-30)
    if not one:
        return (wide * (1 + size)).to(tensor.dtype)
    made = wide.reshape(-1).clone()
    place = int(torch.randint(made.numel(), (1,), generator=generator))
    made[place] *= 1 + size
    return made.reshape(tensor.shape).to(tensor.dtype)


def _ulp(tensor: torch.Tensor, one: bool, generator: torch.Generator) -> torch.Tensor | None:
    """The next number away from zero, by the bits."""
    kinds = {8: torch.int64, 4: torch.int32, 2: torch.int16}
    if not tensor.is_floating_point() or not tensor.numel():
        return None
    bits = tensor.contiguous().clone().view(kinds[tensor.element_size()]).reshape(-1)
    if one:
        bits[int(torch.randint(bits.numel(), (1,), generator=generator))] += 1
    else:
        bits += 1
    return bits.view(tensor.dtype).reshape(tensor.shape)


def _put(value: Any, last: bool = False) -> Callable:
    def damage(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor | None:
        special = isinstance(value, float) and not math.isfinite(value)
        if not tensor.numel() or (special and not (tensor.is_floating_point() or tensor.is_complex())):
            return None
        made = tensor.reshape(-1).clone()
        made[-1 if last else int(torch.randint(made.numel(), (1,), generator=generator))] = value
        return made.reshape(tensor.shape)

    return damage


def _swap(tensor: torch.Tensor, _generator: torch.Generator) -> torch.Tensor | None:
    return tensor.roll(1, 0) if tensor.dim() and tensor.shape[0] > 1 else None


def _minus_zero(tensor: torch.Tensor, _generator: torch.Generator) -> torch.Tensor | None:
    return torch.where(tensor == 0, -tensor, tensor) if tensor.is_floating_point() else None


def _change_whole(step: int) -> Callable:
    def damage(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor | None:
        if tensor.is_floating_point() or tensor.is_complex() or not tensor.numel():
            return None
        made = tensor.reshape(-1).clone()
        place = int(torch.randint(made.numel(), (1,), generator=generator))
        made[place] = ~made[place] if tensor.dtype == BOOL else made[place] + step
        return made.reshape(tensor.shape)

    return damage


def _change_pair(swaps: bool) -> Callable:
    """The first two whole numbers along the last dimension: of sorts they often stand for equal values."""

    def damage(tensor: torch.Tensor, _generator: torch.Generator) -> torch.Tensor | None:
        if tensor.dtype != I64 or not tensor.dim() or tensor.shape[-1] < 2:
            return None
        made = tensor.clone()
        made[..., 1] = tensor[..., 0]
        made[..., 0] = tensor[..., 1 if swaps else 0]
        return made

    return damage


def _other_shape(tensor: torch.Tensor, _generator: torch.Generator) -> torch.Tensor | None:
    return tensor.unsqueeze(0).clone()


def _other_dtype(tensor: torch.Tensor, _generator: torch.Generator) -> torch.Tensor | None:
    other = {F32: F64, F64: F32, BF16: F32, I64: torch.int32}.get(tensor.dtype)
    return None if other is None else tensor.to(other)


DAMAGES: dict[str, Callable] = {
    "none": lambda tensor, generator: tensor,
    "ulp in one": lambda tensor, generator: _ulp(tensor, True, generator),
    "ulp in all": lambda tensor, generator: _ulp(tensor, False, generator),
    **{
        f"{count:g} roundings in {where}": lambda tensor, generator, count=count, one=where == "one": _roundings(
            tensor, count, one, generator
        )
        for count in (3, 16, 100, 1e4)
        for where in ("one", "all")
    },
    "1e-3 of all": lambda tensor, generator: (
        tensor * 1.001 if tensor.is_floating_point() or tensor.is_complex() else None
    ),
    "one zeroed": _put(0),
    "last unwritten": _put(0, last=True),
    "rows swapped": _swap,
    "nan": _put(math.nan),
    "inf": _put(math.inf),
    "minus zero": _minus_zero,
    "next whole number": _change_whole(1),
    "far whole number": _change_whole(-3),
    "two indices swapped": _change_pair(True),
    "an index twice": _change_pair(False),
    "reversed": lambda tensor, generator: tensor.flip(-1) if tensor.dim() else None,
    "shape": _other_shape,
    "dtype": _other_dtype,
}


# Calls and cases


@dataclass
class Call:
    """One entry with one dtype: on the CPU, as before the call."""

    entry: Entry
    dtype: torch.dtype
    args: tuple
    kwargs: dict
    what: str
    grads: list[torch.Tensor] = field(default_factory=list)
    """Of the tensors of the result; empty where gradients are not judged."""

    @property
    def tensors(self) -> list[torch.Tensor]:
        return [leaf for leaf in tree_leaves((self.args, self.kwargs)) if isinstance(leaf, torch.Tensor)]

    def __str__(self) -> str:
        return f"{self.entry.name}[{ENTRIES.index(self.entry)}] {str(self.dtype)[6:]} {self.what}"


@dataclass
class Judged:
    """One case: what was damaged, and what the device's value was then."""

    call: Call
    index: int
    damage: str
    value: torch.Tensor
    clean: torch.Tensor
    seed: int = 0
    verdicts: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.call} {self.index}: {self.damage}: {self.verdicts}"


def find(name: str) -> Callable:
    """torch.Tensor.add_ by its name."""
    found: Any = torch
    for part in name.split(".")[1:]:
        found = getattr(found, part)
    return found


def make_call(entry: Entry, dtype: torch.dtype, what: str, seed: int) -> Call:
    made = entry.make(Maker(dtype, seed))
    args, kwargs = made if len(made) == 2 and isinstance(made[1], dict) else (made, {})
    if what == "output":
        return Call(entry, dtype, args, kwargs, what)
    args, kwargs = tree_map_only(torch.Tensor, lambda t: t.requires_grad_(t.is_floating_point()), (args, kwargs))
    maker = Maker(dtype, seed + 1)
    results = [leaf for leaf in tree_leaves(find(entry.name)(*args, **kwargs)) if isinstance(leaf, torch.Tensor)]
    grads = [maker.r(*t.shape).to(t.dtype) if t.requires_grad else None for t in results]
    return Call(entry, dtype, args, kwargs, what, grads)


def list_calls(seed: int = 0) -> list[Call]:
    calls = []
    for number, entry in enumerate(ENTRIES):
        for dtype in entry.dtypes:
            calls.append(make_call(entry, dtype, "output", 1000 * seed + number))
            if entry.grad and dtype in (F32, BF16, F64):
                calls.append(make_call(entry, dtype, "grad", 1000 * seed + number))
    return calls


def get_expected(case: Judged, traits: frozenset) -> str:
    """ "wrong" or "not wrong" where that is certain, else nothing."""
    same = case.value.shape == case.clean.shape and torch.equal(
        torch.nan_to_num(case.value), torch.nan_to_num(case.clean)
    ) and torch.equal(case.value.isnan(), case.clean.isnan())  # fmt: skip
    if case.damage in ("none", "minus zero") or (same and case.damage != "dtype"):
        return "not wrong"
    if case.damage in ("shape", "dtype"):
        return "wrong"
    if case.damage == "nan":
        return "" if case.call.entry.overflows else "wrong"
    if case.damage == "inf" and case.clean.abs().max() < 1e4:
        return "wrong"
    unique = not traits & {"loose", "scatter", "ties"}
    if not unique:
        return ""
    if case.call.what == "output" and traits & {"exact", "view"} and case.call.entry.is_exact:
        kind = torch.complex128 if case.clean.is_complex() else F64
        moved = (case.value.to(kind) - case.clean.to(kind)).abs().max()
        return "wrong" if moved > 1e-6 else ""
    if case.damage == "1e-3 of all" and case.clean.dtype in (F32, F64) and case.clean.abs().max() > 0.1:
        return "wrong"
    return ""
