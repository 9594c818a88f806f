"""Copies of OpInfo samples: the same bits (same storage, strides, offset) on the CPU or on the device, or what one of
the judge's further runs wants.

Invariant: what runs on one side shares no memory with the sample or with the other side, so nothing leaks from one run
into the next. Depends on torch and ditorch.judge.
"""

from __future__ import annotations

import random
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ..judge import Request
from . import compare

SEED = 20240517


def seed_all(seed: int) -> None:
    """Every generator of torch, and Python's."""
    torch.manual_seed(seed)
    random.seed(seed)


def copy_tensor(tensor: torch.Tensor, device: str, storages: dict[int, Any]) -> torch.Tensor:
    """`storages`: those copied so far, by address, so that tensors that share memory go on sharing it. The originals
    belong to the sample, so an address stays theirs."""
    if not compare.is_strided(tensor):
        return tensor.detach().clone().to(device).requires_grad_(tensor.requires_grad)
    source = tensor.detach()
    is_conj, is_neg = source.is_conj(), source.is_neg()
    source = source.conj() if is_conj else source  # the same memory without the bit
    source = torch._neg_view(source) if is_neg else source
    key = source.untyped_storage().data_ptr() or id(tensor)
    if key not in storages:
        flat = torch.empty(0, dtype=torch.uint8, device=source.device).set_(source.untyped_storage())
        storages[key] = flat.clone().to(device).untyped_storage()
    out = torch.empty(0, dtype=source.dtype, device=device)
    out.set_(storages[key], source.storage_offset(), source.shape, source.stride())
    out = torch._neg_view(out) if is_neg else out
    out = out.conj() if is_conj else out
    return out.detach().requires_grad_(tensor.requires_grad)


def copy_generator(generator: torch.Generator, device: str) -> torch.Generator:
    out = torch.Generator(device=device)
    out.manual_seed(generator.initial_seed())
    return out


def copy_value(value: Any, device: str, storages: dict[int, Any]) -> Any:
    if isinstance(value, torch.nn.Parameter):
        return torch.nn.Parameter(copy_tensor(value, device, storages).detach(), value.requires_grad)
    if isinstance(value, torch.Tensor):
        return copy_tensor(value, device, storages)
    if isinstance(value, torch.device):
        return torch.device(device)
    if isinstance(value, torch.Generator):
        return copy_generator(value, device)
    return value


def change_sample(sample: Any, request: Request, exact: bool) -> tuple[Any, tuple, dict[str, Any]]:
    """input, args and kwargs for a further run of the judge; `exact`: see Request.move."""
    tensors = compare.leaves([sample.input, list(sample.args), sample.kwargs])
    places: dict[int, int] = {}
    for place, tensor in enumerate(tensors):
        places.setdefault(id(tensor), place)

    def move(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.is_quantized or value.is_nested:
            return value
        moved = request.move(value, places[id(value)], exact=exact)
        if isinstance(value, torch.nn.Parameter):
            return torch.nn.Parameter(moved, value.requires_grad)
        return moved.requires_grad_(value.requires_grad)

    double = any(tensor.dtype in (torch.float64, torch.complex128) for tensor in tensors)
    args, kwargs = request.change_arguments((sample.input, *sample.args), sample.kwargs, double=double, exact=exact)
    (first, *args), kwargs = pytree.tree_map(move, (list(args), kwargs))
    return first, tuple(args), kwargs


class Arguments:
    """input, args and kwargs of one sample on one device."""

    def __init__(
        self,
        sample: Any,
        device: str,
        keep_arguments: bool = False,
        request: Request | None = None,
        exact: bool = False,
    ) -> None:
        storages: dict[int, Any] = {}
        own = (sample.input, sample.args, sample.kwargs)
        if request is not None:
            own = change_sample(sample, request, exact)
        self._originals = own  # kept alive: see copy_tensor

        def copy(tree: Any) -> Any:
            return pytree.tree_map(lambda x: copy_value(x, device, storages), tree)

        self.input, self.kwargs = copy(own[0]), copy(own[2])
        self.args = own[1] if keep_arguments else copy(own[1])
        if isinstance(self.kwargs.get("device"), str):
            self.kwargs["device"] = device
        self._tensors = compare.leaves([self.input, () if keep_arguments else self.args, self.kwargs])

    def tensors(self) -> list[torch.Tensor]:
        """All tensors that were copied to the device."""
        return self._tensors

    def generators(self) -> list[torch.Generator]:
        return [g for g in pytree.tree_leaves([self.args, self.kwargs]) if isinstance(g, torch.Generator)]

    def generator_states(self) -> list[Any]:
        return [g.get_state().tolist() for g in self.generators()]

    def call(self, function: Any, **extra: Any) -> Any:
        return function(self.input, *self.args, **{**self.kwargs, **extra})


def gradients(
    result: Any, inputs: list[torch.Tensor], cotangents: list[torch.Tensor] | None, request: Request | None = None
) -> tuple[Any, Any]:
    """Gradients of all differentiable results for all inputs; the cotangents are drawn on the CPU when not given, and
    moved for a further run of the judge."""
    outs = [t for t in compare.leaves(result) if t.requires_grad and (t.is_floating_point() or t.is_complex())]
    wanted = [t for t in inputs if t.requires_grad and t.is_leaf]
    if not outs or not wanted:
        return None, None
    if cotangents is None:
        generator = torch.Generator().manual_seed(SEED)
        cotangents = [torch.randn(t.shape, dtype=t.dtype, generator=generator) for t in outs]
    given = cotangents
    if request is not None:
        moved = [request.move(c, place, gradient=True) for place, c in enumerate(cotangents)]
        given = [c.to(t.dtype) for c, t in zip(moved, outs, strict=True)]
    return list(torch.autograd.grad(outs, wanted, given, allow_unused=True)), cotangents


def out_like(reference: Any, kind: str, device: str) -> Any:
    """Tensors to be passed as out=: filled with a value that shows when it is left unwritten."""

    def make(tensor: torch.Tensor) -> torch.Tensor:
        shape, dtype = tensor.shape, tensor.dtype
        if kind == "to be resized":
            return torch.empty(0, dtype=dtype, device=device)
        if kind == "other layout" and tensor.dim() > 1:
            reversed_shape = torch.empty(tuple(reversed(shape)), dtype=dtype, device=device)
            out = reversed_shape.permute(*reversed(range(tensor.dim())))
        else:
            out = torch.empty_strided(shape, tensor.stride(), dtype=dtype, device=device)
        return out.fill_(1 if dtype is torch.bool else 77)

    if isinstance(reference, torch.Tensor):
        return make(reference)
    return tuple(make(t) for t in reference)
