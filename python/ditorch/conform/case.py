"""One conformance case in memory: the call of a DIOPI function, and what must come out.

A case is made from data (cases/*.json) and a seed alone, so its id is enough to make it again, bit for bit. Tensors are
CPU tensors of PyTorch with the layout under test: any strides, any storage offset.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

CHECKS = ("elements", "untouched", "moments", "permutation", "selection", "anything", "kept")
"""How the runner judges a tensor that the function may write:

elements     every element against `expected`: equal where `tolerance` is None, else |got - expected| <= tolerance[i];
             NaN where and only where `expected` is NaN, infinities equal
untouched    not a single byte may change
moments      mean, variance, smallest and largest value within `bounds` (random numbers)
permutation  the elements of `expected` in any order (along the last dimension)
selection    integer indices into another input: gathering them gives the expected values (sort, topk with ties)
anything     not judged (scratch)
kept         `expected` where another result, a mask, is true, and 0 elsewhere (dropout)
"""


@dataclass
class TensorArgument:
    """A tensor of the call. role: "in" (must not change), "out" (filled with a pattern before the call), "inout"."""

    tensor: torch.Tensor
    role: str = "in"
    check: str = "elements"
    expected: torch.Tensor | None = None
    """Reference of the result in a wide type (float64, complex128, int64, bool), with the tensor's shape."""
    tolerance: torch.Tensor | None = None
    """float64, the shape of `expected` (or a 0-d tensor): allowed distance per element."""
    bounds: tuple[float, ...] = ()
    """moments: (mean low, mean high, variance low, variance high, least value, largest value), and 1 where all numbers
    have one mean, so that repetitions can be told."""
    source: int | None = None
    """selection: number of the argument that the indices point into; `bounds` holds the dimension. kept: the mask."""
    alias: int | None = None
    """Number of the tensor argument whose memory this one shares exactly (out = input)."""
    on_host: bool = False
    """Its memory is the host's, not the device's."""


@dataclass
class SparseArgument(TensorArgument):
    """A sparse matrix in CSR form. `tensor` stands for the whole (its shape and dtype count), `parts` are what it is
    made of: row starts, columns, values."""

    parts: list[TensorArgument] = field(default_factory=list)


@dataclass
class RequiredArgument:
    """A result that the library makes itself (diopiTensorHandle_t *): dtype, shape and elements are judged."""

    dtype: torch.dtype
    expected: torch.Tensor
    tolerance: torch.Tensor | None = None
    check: str = "elements"


@dataclass
class NumberArgument:
    """A number that the function writes behind a pointer: bool * (diopiEqual), double * (diopiClipGradNorm)."""

    expected: bool | int | float
    tolerance: float = 0.0


@dataclass
class GeneratorArgument:
    """A random generator."""

    seed: int
    offset: int = 0


@dataclass
class Case:
    """The call and its judgement. `arguments` follow the function's parameters after ctx: TensorArgument or None for a
    tensor, a list of TensorArgument for a list, RequiredArgument, NumberArgument, GeneratorArgument, int, float, bool,
    str, a list of int for sizes, a number or (dtype name, number) for a scalar; None for what is absent."""

    id: str
    """function/entry/dtype/layout/number, such as "diopiAdd/broadcast/float32/strided/3"."""
    function: str
    arguments: list[Any]
    expect: str = "success"
    """"success", or "error": any code but success, and nothing written."""
    tags: dict[str, str] = field(default_factory=dict)
    """dtype, layout, entry: for selection on the command line."""
    deterministic: bool = True
    """The same call again must give the same bits."""
    no_context: bool = False
    """The context is NULL."""
