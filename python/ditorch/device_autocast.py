"""An operator on the CPU under the autocast of a device.

The lists of autocast differ between devices and the CPU, and composite operators cast inside: cross_entropy in float16
keeps its logarithms in float16 on CUDA, and makes them in float32 on the CPU. So the CPU's own error in the program's
precision can only be measured under the device's autocast. Tensors of the CPU are dressed as the device's; the
dispatcher then casts as it does there, and every operator below runs on the CPU's kernels. Called by C
(python/ext/tools/compare/run.c) for suspicious results under autocast alone. Depends on torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_map

# From here on the text is also in repros of calls under autocast (op_tools/repro), which need torch alone.
# begin
# The autocast of a device, on the CPU


class Guest(torch.Tensor):
    """A CPU tensor in the clothes of a device: `inner` holds its values."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor, device: torch.device) -> Guest:
        return torch.Tensor._make_wrapper_subclass(
            cls,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=device,
        )

    def __init__(self, inner: torch.Tensor, device: torch.device) -> None:
        self.inner = inner

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        device: list[torch.device] = []

        def undress(value: Any) -> Any:
            if isinstance(value, Guest):
                device.append(value.device)
                return value.inner
            return torch.device("cpu") if isinstance(value, torch.device) else value

        plain_args, plain_kwargs = tree_map(undress, (args, kwargs or {}))
        result = func(*plain_args, **plain_kwargs)
        place = device[0] if device else torch.device("cpu")
        return tree_map(lambda value: Guest(value, place) if isinstance(value, torch.Tensor) else value, result)


class _Enter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, device: torch.device) -> Guest:
        return Guest(tensor.detach(), device)

    @staticmethod
    def backward(ctx: Any, gradient: Guest) -> tuple[torch.Tensor, None]:
        return gradient.inner, None


class _Leave(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, guest: Guest) -> torch.Tensor:
        ctx.device = guest.device
        return guest.inner.detach()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Guest:
        return Guest(gradient, ctx.device)


def run_under_autocast(func: Callable, args: tuple, kwargs: dict | None, device: str, dtype: torch.dtype) -> Any:
    """func(*args, **kwargs) with the CPU's kernels and the casts of the device's autocast; autograd goes through."""
    place = torch.device(device)
    known: dict[int, Any] = {}  # one object for a tensor that is passed several times

    def enter(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) not in known:
            known[id(value)] = _Enter.apply(value, place)
        return known[id(value)]

    def leave(value: Any) -> Any:
        return _Leave.apply(value) if isinstance(value, Guest) else value

    dressed_args, dressed_kwargs = tree_map(enter, (args, kwargs or {}))
    with torch.autocast(place.type, dtype=dtype, cache_enabled=False):
        result = func(*dressed_args, **dressed_kwargs)
    return tree_map(leave, result)
