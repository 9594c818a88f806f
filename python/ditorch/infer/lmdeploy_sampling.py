"""Sampling in LMDeploy: `random_seed` counts, so that a request gives the same tokens alone and in any batch."""

from __future__ import annotations

from typing import Any

from torch import Tensor

_MASK = 0xFFFFFFFF


def uniform(seeds: Tensor, offsets: Tensor) -> Tensor:
    """A number in [0, 1) for each pair, always the same one: two rounds of a 32-bit mixing function."""
    mixed = (seeds.long() + offsets.long() * 0x9E3779B1) & _MASK
    for factor in (0x7FEB352D, 0x846CA68B):
        mixed = ((mixed ^ mixed // 65536) * factor) & _MASK
    mixed = mixed ^ mixed // 65536
    return (mixed // 256).float() / 2**24


def draw(scores: Tensor, seeds: Tensor, offsets: Tensor) -> Tensor:
    """The column of each row (probabilities, in falling order) at which the row's number falls."""
    ends = scores.float().cumsum(1)
    column = (ends <= uniform(seeds, offsets).unsqueeze(1) * ends[:, -1:]).sum(1)
    return column.minimum((scores > 0).sum(1) - 1).clamp_min(0)


def replace_forward(old: Any) -> Any:
    """LMDeploy's own form for devices without Triton draws without the seeds."""

    def forward(self: Any, scores: Tensor, seeds: Tensor, offsets: Tensor, indices: Tensor) -> Tensor:
        return indices.gather(1, draw(scores, seeds, offsets).unsqueeze(1)).view(-1)

    return forward
