"""A recorded call as a call of PyTorch: tensors for its metadata, made by whoever gives the function that makes them.

Depends on corpus.py and torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .corpus import Call, Tensor, Word

COMPOSITE = ("aten::scaled_dot_product_attention", "aten::ctc_loss.IntList")
"""Recorded as programs call them; their gradients belong to them."""


def find_operator(name: str) -> Any:
    """torch.ops.aten.add.Tensor of "aten::add.Tensor"."""
    space, _, rest = name.partition("::")
    operator, _, overload = rest.partition(".")
    return getattr(getattr(getattr(torch.ops, space), operator), overload or "default")


def is_view(name: str) -> bool:
    """Does the operator only show memory it was given?"""
    returns = find_operator(name)._schema.returns
    return any(r.alias_info is not None and not r.alias_info.is_write for r in returns)


def place(tensor: Tensor, make: Callable[..., torch.Tensor], device: str) -> torch.Tensor:
    """A tensor of this shape and these strides, over memory that `make` gives."""
    dtype = getattr(torch, tensor.dtype)
    if tensor.strides is None:
        return make(tensor.shape, dtype=dtype, device=device)
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.strides, strict=True))
    return make((last + 1,), dtype=dtype, device=device).as_strided(tensor.shape, tensor.strides)


def materialize(call: Call, device: str, make: Callable[..., torch.Tensor]) -> tuple[Any, list[Any], dict[str, Any]]:
    """(operator, args, kwargs) on a device."""

    def convert(value: Any) -> Any:
        if isinstance(value, Tensor):
            return place(value, make, device)
        if isinstance(value, Word):
            if value.kind == "device":
                return torch.device(device)
            return getattr(torch, value.value)
        if isinstance(value, tuple):
            return [convert(item) for item in value]
        return value

    return (
        find_operator(call.name),
        [convert(value) for value in call.args],
        {key: convert(value) for key, value in call.kwargs.items()},
    )


def run(made: tuple[Any, list[Any], dict[str, Any]], gradients: bool = False) -> Any:
    """Run it; of a composite call also the backward pass, whose gradients follow the result."""
    operator, args, kwargs = made
    if not gradients or operator.name() not in COMPOSITE:
        with torch.no_grad():
            return operator(*args, **kwargs)
    args = [x.detach().requires_grad_(x.is_floating_point()) if isinstance(x, torch.Tensor) else x for x in args]
    args = [x if place < 3 or not isinstance(x, torch.Tensor) else x.detach() for place, x in enumerate(args)]
    out = operator(*args, **kwargs)
    wanted = [x for x in args[:3] if isinstance(x, torch.Tensor) and x.requires_grad]
    return [out, *torch.autograd.grad(out, wanted, torch.ones_like(out))]
