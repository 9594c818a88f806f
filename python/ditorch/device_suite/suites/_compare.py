"""What the suites have in common: the same thing on the CPU and on the device. Depends on torch alone."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree


def move(values: Any, device: Any) -> Any:
    """A copy of every tensor in `values` on the device: leaves of the graph with the same requires_grad and layout."""

    def copy(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        moved = value.detach().to(device=device, copy=True)
        return moved.requires_grad_(value.requires_grad)

    return pytree.tree_map(copy, values)


def get_tensors(values: Any) -> list[torch.Tensor]:
    return [value for value in pytree.tree_leaves(values) if isinstance(value, torch.Tensor)]


def differentiate(outputs: Any, inputs: list[torch.Tensor], seed: int = 5) -> list[torch.Tensor | None]:
    """Gradients of all outputs that have one, weighted with the same random numbers on every device."""
    found = [value for value in get_tensors(outputs) if value.requires_grad]
    if not found or not inputs:
        return []
    generator = torch.Generator().manual_seed(seed)
    weights = []
    for value in found:
        real = torch.rand(value.shape, generator=generator, dtype=torch.float64)
        weights.append(real.to(device=value.device, dtype=value.dtype))
    return list(torch.autograd.grad(found, inputs, weights, allow_unused=True))
