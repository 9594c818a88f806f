"""What a reference gets (Call) and gives (Result), and the table of references by function.

A reference takes the arguments of a case by name, computes in float64, complex128 or exact integers, and returns a
Result per output. An in-place function (diopiAddInp) without a reference of its own takes that of its namesake.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from ..tolerance import OPERATIONS, get_compute


@dataclass
class Result:
    """One output: `value` in a wide type. `exact`: must be equal after rounding to the dtype."""

    value: Any
    dtype: torch.dtype | None = None
    """None: the dtype of the case."""
    exact: bool = False
    scale: torch.Tensor | None = None
    terms: float = 1
    ops: float = OPERATIONS
    compute: torch.dtype | None = None
    check: str = "elements"
    bounds: tuple[float, ...] = ()
    source: str = ""
    required: bool = False
    """The library makes the tensor itself."""


@dataclass
class Call:
    """The arguments of a case by name: tensors with their values, lists of tensors, parameters."""

    function: str
    dtype: torch.dtype
    arguments: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.arguments.get(name)

    def number(self, name: str, default: Any = None) -> Any:
        """A scalar as a plain number: a typed one is (dtype, number)."""
        value = self.arguments.get(name, default)
        if isinstance(value, tuple):
            value = value[1]
        return default if value is None else value

    def wide(self, name: str) -> torch.Tensor | None:
        """A tensor's values: float64, complex128; integers and bools as they are."""
        return widen(self.arguments.get(name))

    def real(self, name: str) -> torch.Tensor | None:
        """The same, integers and bools as float64 too."""
        tensor = widen(self.arguments.get(name))
        return (
            tensor if tensor is None or tensor.is_floating_point() or tensor.is_complex() else tensor.to(torch.float64)
        )


def widen(tensor: torch.Tensor | None) -> torch.Tensor | None:
    """A row-major copy in the wide type; unsigned integers that PyTorch hardly computes with become int64."""
    if tensor is None:
        return None
    dtype = tensor.dtype
    if tensor.is_complex():
        dtype = torch.complex128
    elif tensor.is_floating_point():
        dtype = torch.float64
    elif dtype in (torch.uint16, torch.uint32, torch.uint64):
        dtype = torch.int64
    return tensor.to(dtype, copy=True).contiguous()


def make_number(value: Any, dtype: torch.dtype) -> torch.Tensor:
    """A number as a tensor of this dtype holds it, in the wide type."""
    if isinstance(value, bool):
        return widen(torch.tensor(value).to(dtype))
    kind = torch.float64 if isinstance(value, float) else torch.int64
    return widen(torch.tensor(value, dtype=kind).to(dtype))


def is_held(call: Call, *numbers: float) -> bool:
    """Can the case's dtype hold these numbers without rounding?"""
    if not call.dtype.is_floating_point:
        return True
    return all(float(torch.tensor(n, dtype=torch.float64).to(call.dtype)) == float(n) for n in numbers)


def get_float(dtype: torch.dtype) -> torch.dtype:
    """The dtype of a floating result of these inputs: float32 for integers."""
    return dtype if dtype.is_floating_point or dtype.is_complex else torch.float32


def get_statistics_dtype(dtype: torch.dtype) -> torch.dtype:
    """Saved statistics of half inputs are float32."""
    return get_compute(dtype)


Reference = Callable[[Call], dict[str, Result]]
REFERENCES: dict[str, Reference] = {}


def reference(*functions: str) -> Callable[[Reference], Reference]:
    """Register a reference for functions, named without their prefix "diopi"."""

    def register(function: Reference) -> Reference:
        for name in functions:
            if f"diopi{name}" in REFERENCES:
                raise ValueError(f"diopi{name} has two references")
            REFERENCES[f"diopi{name}"] = function
        return function

    return register


def _make_inplace(base: Reference) -> Reference:
    def run(call: Call) -> dict[str, Result]:
        results = dict(base(call))
        result = results.pop("out")
        name = "input" if "input" in call.arguments else "inout"
        result.dtype = call.arguments[name].dtype
        return {name: result, **results}

    return run


def find(function: str) -> Reference | None:
    """The reference of a function; None when there is none."""
    if function in REFERENCES:
        return REFERENCES[function]
    for end, other in (("InpScalar", "Scalar"), ("InpTensor", "Tensor"), ("Inp", "")):
        if function.endswith(end) and function[: -len(end)] + other in REFERENCES:
            return _make_inplace(REFERENCES[function[: -len(end)] + other])
    return None


# Helpers for gradients


def differentiate(
    function: Callable[..., torch.Tensor], inputs: list[torch.Tensor | None], grad: torch.Tensor
) -> list[torch.Tensor | None]:
    """Gradients of function(*inputs) for an upstream gradient, in the inputs' wide type; None for absent inputs."""
    with torch.enable_grad():
        leaves = [None if x is None else x.detach().clone().requires_grad_(True) for x in inputs]
        out = function(*leaves)
        wanted = [x for x in leaves if x is not None]
        found = iter(torch.autograd.grad(out, wanted, grad.to(out.dtype), allow_unused=True))
    return [None if x is None else _or_zeros(next(found), x) for x in leaves]


def _or_zeros(gradient: torch.Tensor | None, like: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(like) if gradient is None else gradient.detach()
