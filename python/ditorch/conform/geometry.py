"""Boxes and points for cases of detection operators. Coordinates are multiples of 1/8, so that float16 holds them and
sums of them are exact in float32; low and high of the column bound the centres.

rois       (K, 5) picture, x1, y1, x2, y2        rrois   (K, 6) picture, x, y, w, h, angle; pictures are below `below`
boxes      (N, 4) x1, y1, x2, y2                 rboxes  (N, 5) x, y, w, h, angle
boxes3d    (N, 7) x, y, z, dx, dy, dz, heading   quads   (N, 8) four corners of a rotated box, one after another
points3d   (N, 3) points, all coordinates from low to high
rings      (N, 18) nine points around an ellipse of half axes 3 and 2, one after another
"""

from __future__ import annotations

import math
from typing import Any

import torch

WIDTHS = {"rois": 5, "rrois": 6, "boxes": 4, "rboxes": 5, "boxes3d": 7, "quads": 8, "points3d": 3, "rings": 18}


def _draw(stream: Any, count: int, low: float, high: float) -> torch.Tensor:
    """Multiples of 1/8 from low to high."""
    return torch.floor(stream.uniform(count) * (high - low) * 8) / 8 + low


def _angles(stream: Any, count: int) -> torch.Tensor:
    """Multiples of 1/64 between -1.5 and 1.5: no right angle, none of zero."""
    return (stream.below(count, 192).to(torch.float64) - 96 + 0.5) / 64


def make_corners(boxes: torch.Tensor) -> torch.Tensor:
    """(N, 4, 2) corners of (x, y, w, h, angle), in the order of a walk around the box."""
    x, y, w, h, angle = boxes.unbind(1)
    signs = torch.tensor([[-1, -1], [1, -1], [1, 1], [-1, 1]], dtype=torch.float64)
    dx, dy = w[:, None] / 2 * signs[:, 0], h[:, None] / 2 * signs[:, 1]
    cos, sin = angle.cos()[:, None], angle.sin()[:, None]
    return torch.stack([x[:, None] + dx * cos - dy * sin, y[:, None] + dx * sin + dy * cos], 2)


def make_values(kind: str, stream: Any, count: int, column: Any, row: int) -> torch.Tensor:
    """Flat float64 values of a generator."""
    number = -(-count // WIDTHS[kind])
    low = 0.0 if column.low is None else float(column.low)
    high = 32.0 if column.high is None else float(column.high)
    if kind == "rings":
        angle = (stream.uniform(9 * number).reshape(number, 9) * 0.7 + torch.arange(9)) * (2 * math.pi / 9)
        return torch.stack([3 * angle.cos(), 2 * angle.sin()], 2).reshape(-1)[:count]
    if kind == "points3d":
        return _draw(stream, count, low, high)
    x, y = _draw(stream, number, low, high), _draw(stream, number, low, high)
    w, h = (_draw(stream, number, (high - low) / 8, (high - low) / 2) + 0.125 for _ in range(2))
    if kind in ("rois", "boxes"):
        parts = [x - w / 2, y - h / 2, x + w / 2, y + h / 2]
    elif kind == "boxes3d":
        z, depth = _draw(stream, number, low, high), _draw(stream, number, (high - low) / 4, (high - low) / 2)
        parts = [x, y, z, w, h, depth, _angles(stream, number)]
    else:
        parts = [x, y, w, h, _angles(stream, number)]
    if kind in ("rois", "rrois"):
        pictures = column.below[row if len(column.below) > 1 else 0] if column.below else 1
        parts = [stream.below(number, pictures).to(torch.float64), *parts]
    found = torch.stack(parts, 1)
    if kind == "quads":
        found = torch.round(make_corners(found) * 8) / 8
    return found.reshape(-1)[:count]
