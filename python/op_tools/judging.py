"""The rare parts of OpAutoCompare's verdict, called by C (python/ext/tools/compare_judge*.c) on suspicious results.

All tensors are on the CPU or readable there; nothing here is called for results that are right at first sight.
"""

from __future__ import annotations

import torch

from .traits import get_traits

# ---- indices


def point_alike(name: str, values: torch.Tensor, dim: int | None, device: torch.Tensor, cpu: torch.Tensor) -> bool:
    """Do the indices of the device point at values that equal those at the CPU's indices? `values` is the operator's
    first argument."""
    with torch.no_grad():
        values, device, cpu = values.detach(), device.detach().cpu().long(), cpu.detach().cpu().long()
        if "pool" in name:
            spatial = 2 if "2d" in name else 3
            values, device, cpu = (x.flatten(-spatial) for x in (values, device, cpu))
            dim = -1
        elif dim is None and "last" not in get_traits(name):
            values, device, cpu, dim = values.reshape(-1), device.reshape(-1), cpu.reshape(-1), 0
        else:
            dim = (0 if name == "msort" else -1) if dim is None else dim
            if device.dim() == values.dim() - 1:  # the dimension was reduced away
                device, cpu = device.unsqueeze(dim), cpu.unsqueeze(dim)
        if values.dim() == 0:
            return bool((device == cpu).all())
        size = values.shape[dim]
        if device.dim() != values.dim() or (device.numel() and not bool(((device >= 0) & (device < size)).all())):
            return False
        if "distinct" in get_traits(name):
            ordered = device.sort(dim).values
            if bool((ordered.diff(dim=dim) == 0).any()):
                return False
        at_device, at_cpu = values.gather(dim, device), values.gather(dim, cpu)
        same = (at_device == at_cpu) | (at_device.isnan() & at_cpu.isnan())
        return bool(same.all())


def has_repeats(name: str, args: tuple, kwargs: dict | None) -> bool:
    """Does the index of scatter(self, dim, index, ...) or index_copy name one place more than once?"""
    kwargs = kwargs or {}
    dim = kwargs.get("dim", args[1] if len(args) > 1 else 0)
    index = kwargs.get("index", args[2] if len(args) > 2 else None)
    if not isinstance(index, torch.Tensor) or not isinstance(dim, int):
        return True  # not known
    if index.numel() < 2 or index.dim() == 0:
        return False
    ordered = index.sort(0 if "index_copy" in name else dim).values
    return bool((ordered.diff(dim=0 if "index_copy" in name else dim) == 0).any())


def has_ties(name: str, values: torch.Tensor, dim: int | None) -> bool:
    """Are some values equal that the operator chooses among?"""
    with torch.no_grad():
        values = values.detach()
        if "pool" in name:  # windows overlap: any two of a plane may meet
            values, dim = values.flatten(-2 if "2d" in name else -3), -1
        elif dim is None and "last" not in get_traits(name):
            dim = 0 if name == "msort" else None
        elif dim is None:
            dim = -1
        if dim is None or values.dim() < 2:
            values, dim = values.reshape(-1), 0
        return bool((values.sort(dim).values.diff(dim=dim) == 0).any())


# ---- where roundings on the way may grow


def is_pointwise(name: str, gradient: bool = False) -> bool:
    """Does every element of the result (of the gradient) depend on one element of each argument, with no rounding on
    the way that could grow? The derivative of some is a difference (1 - y^2): where it is small, roundings of y are
    not."""
    traits = get_traits(name)
    return "pointwise" in traits and not ("cancels" in traits and (gradient or "_backward" in name))


# ---- NaN and infinities


def excuse(device: torch.Tensor, native: torch.Tensor, wide: torch.Tensor) -> torch.Tensor:
    """The wide reference with the device's values where they are the same NaN or infinity that the CPU makes in the
    program's dtype."""
    with torch.no_grad():
        device, native = device.detach().cpu(), native.detach()
        same = (device == native) | (device.isnan() & native.isnan())
        return torch.where(same & ~native.isfinite(), device.to(wide.dtype), wide)


# ---- errors per element


def add_moves(moves: torch.Tensor | None, x: torch.Tensor, reference: torch.Tensor, factor: float) -> torch.Tensor:
    """Element by element the largest `factor` * |x - reference| so far."""
    with torch.no_grad():
        wide = torch.complex128 if reference.is_complex() else torch.float64
        move = (x.detach().to(wide) - reference.detach().to(wide)).abs().mul_(factor).nan_to_num_(0.0, 0.0, 0.0)
        return move if moves is None else torch.maximum(moves, move)


def draw_nearer(device: torch.Tensor, wide: torch.Tensor, moves: torch.Tensor) -> torch.Tensor:
    """The device's result, every element brought nearer to the reference by as much as `moves` says."""
    with torch.no_grad():
        device = device.detach().cpu().to(wide.dtype)
        difference = device - wide
        size = difference.abs()
        left = torch.where(size > moves, 1 - moves / size, 0.0)
        return torch.where(size.isfinite(), wide + difference * left, device)


# ---- views that were written to


def describe_view(tensor: torch.Tensor, index: int) -> tuple | None:
    """(index, sizes and strides of the base, sizes, strides and offset of the view in it); None: no view."""
    base = tensor._base
    if base is None:
        return None
    offset = tensor.storage_offset() - base.storage_offset()
    return index, tuple(base.size()), base.stride(), tuple(tensor.size()), tensor.stride(), offset


def _place(gradient: torch.Tensor, view: tuple) -> tuple[torch.Tensor, torch.Tensor]:
    """A copy laid out as the base is, and the view's part of it."""
    _, sizes, strides, view_sizes, view_strides, offset = view
    copy = torch.empty_strided(sizes, strides, dtype=gradient.dtype).copy_(gradient)
    return copy, copy.as_strided(view_sizes, view_strides, offset)


def take_part(gradient: torch.Tensor, view: tuple) -> torch.Tensor:
    """The view's part of its base's gradient."""
    with torch.no_grad():
        return _place(gradient.detach(), view)[1].clone()


def put_part(gradient: torch.Tensor, view: tuple, part: torch.Tensor | None) -> torch.Tensor:
    """The gradient of the base before the call: that after it, but for the view's part."""
    with torch.no_grad():
        dtype = gradient.dtype if part is None else part.dtype
        whole, inside = _place(gradient.detach().to(dtype), view)
        inside.copy_(torch.zeros((), dtype=dtype) if part is None else part.detach())
        return whole


# ---- random numbers


def make_flat(tensor: torch.Tensor, step: int) -> torch.Tensor:
    """Every `step`-th element as packed float64, never the tensor's own memory."""
    with torch.no_grad():
        return tensor.detach().cpu().reshape(-1)[::step].to(torch.float64, copy=True).contiguous()


def find_kept(result: torch.Tensor) -> torch.Tensor:
    """Where a dropout's result is not 0."""
    with torch.no_grad():
        return (result.detach() != 0).cpu()


def make_dropout_gradient(
    device: torch.Tensor, gradient: torch.Tensor, x: torch.Tensor, kept: torch.Tensor, scale: float
) -> torch.Tensor:
    """The gradient of a dropout that kept these elements. Where x is 0 the result does not tell; there the device may
    have either."""
    with torch.no_grad():
        through = gradient.detach().cpu().to(torch.float64) * scale
        unknown = (x.detach() == 0) & (device.detach().cpu() == 0)
        return torch.where((kept | (x == 0)) & ~unknown, through, 0.0)


# ---- precision of the device


def get_input_roundoff(name: str) -> float:
    """The unit roundoff to which a CUDA device rounds float32 inputs of this contraction (TF32); 0: they stay."""
    try:
        if "conv" in name or name in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
            reduced = torch.backends.cudnn.enabled and torch.backends.cudnn.allow_tf32
        else:
            reduced = torch.backends.cuda.matmul.allow_tf32
    except RuntimeError:  # the program uses the newer fp32_precision alone
        backend = torch.backends.cudnn.conv if "conv" in name else torch.backends.cuda.matmul
        reduced = getattr(backend, "fp32_precision", "ieee") == "tf32"
    return 2.0**-11 if reduced else 0.0
