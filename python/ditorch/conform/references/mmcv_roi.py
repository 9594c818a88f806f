"""References of mmcv's RoI operators: samples by gathering, gradients by autograd.

The scale of a sample is the largest element times the extent of the coordinates: rounding a coordinate of size s moves
the weights by eps * s.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from .base import Call, Result, differentiate, reference


def sample(planes: torch.Tensor, y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """(C, H, W) at places (...): (C, ...). Beyond one pixel outside: 0; nearer: the border's value."""
    height, width = planes.shape[-2:]
    inside = (y >= -1) & (y <= height) & (x >= -1) & (x <= width)
    y, x = y.clamp(0, height - 1), x.clamp(0, width - 1)
    top, left = y.detach().floor().long(), x.detach().floor().long()
    bottom, right = (top + 1).clamp(max=height - 1), (left + 1).clamp(max=width - 1)
    dy, dx = y - top, x - left
    rows = planes[:, top, left] * (1 - dx) + planes[:, top, right] * dx
    below = planes[:, bottom, left] * (1 - dx) + planes[:, bottom, right] * dx
    return torch.where(inside, rows * (1 - dy) + below * dy, 0.0)


def _size(call: Call, values: torch.Tensor, extent: int) -> float:
    return float(values.abs().max()) * extent if values.numel() else 0.0


def _grid(ratio: int, size: float, bins: int) -> int:
    return ratio if ratio > 0 else max(math.ceil(size / bins), 0)


def _points(bins: int, size: float, grid: int, start: float) -> torch.Tensor:
    """(bins, grid) places along one axis."""
    numbers = torch.arange(bins, dtype=torch.float64)[:, None]
    within = (torch.arange(grid, dtype=torch.float64) + 0.5) / max(grid, 1)
    return start + (numbers + within) * (size / bins)


def _box(call: Call, roi: torch.Tensor, high: int, wide: int, ratio: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Places (high, wide, gh, gw) of a box's samples."""
    scale, aligned = call["spatial_scale"], call["aligned"]
    shift = 0.0 if aligned is False or "Riroi" in call.function else 0.5
    at_least = 1.0 if aligned is False or "Riroi" in call.function else -math.inf
    numbers = [float(value) for value in roi]
    if "Rotated" in call.function:
        x, y, w, h = (value * scale for value in numbers[1:5])
        w, h, angle = max(w, at_least), max(h, at_least), numbers[5]
        yy = _points(high, h, _grid(ratio, h, high), -h / 2)[:, None, :, None]
        xx = _points(wide, w, _grid(ratio, w, wide), -w / 2)[None, :, None, :]
        angle = -angle if call["clockwise"] else angle
        return (
            yy * math.cos(angle) - xx * math.sin(angle) + y - shift,
            yy * math.sin(angle) + xx * math.cos(angle) + x - shift,
        )
    x1, y1, x2, y2 = (value * scale - shift for value in numbers[1:5])
    w, h = max(x2 - x1, at_least), max(y2 - y1, at_least)
    yy = _points(high, h, _grid(ratio, h, high), y1)[:, None, :, None]
    xx = _points(wide, w, _grid(ratio, w, wide), x1)[None, :, None, :]
    return tuple(torch.broadcast_tensors(yy, xx))


def _samples(call: Call, x: torch.Tensor, high: int, wide: int, ratio: int) -> list[tuple[torch.Tensor, ...]]:
    """Per box: values (C, high, wide, points) and their places."""
    found = []
    for roi in call.wide("rois"):
        y, xx = _box(call, roi, high, wide, ratio)
        values = sample(x[int(roi[0])], y, xx).reshape(x.shape[1], high, wide, -1)
        found.append((values, y.reshape(high, wide, -1), xx.reshape(high, wide, -1)))
    return found


def _stack(parts: list[torch.Tensor], shape: tuple[int, ...]) -> torch.Tensor:
    return torch.stack(parts) if parts else torch.zeros(shape, dtype=torch.float64)


def _mean(values: torch.Tensor) -> torch.Tensor:
    return values.mean(-1) if values.shape[-1] else values.sum(-1)


def _align(call: Call, x: torch.Tensor, high: int, wide: int, ratio: int) -> torch.Tensor:
    parts = [_mean(values) for values, _, _ in _samples(call, x, high, wide, ratio)]
    return _stack(parts, (0, x.shape[1], high, wide)) + 0 * x.sum()


def _plain(call: Call) -> tuple[int, int, int]:
    return call["aligned_height"], call["aligned_width"], call["sampling_ratio"]


@reference("RoiAlignMmcv", "RoiAlignRotatedMmcv")
def run_align(call: Call) -> dict[str, Result]:
    x = call.wide("input")
    scale = torch.tensor(_size(call, x, sum(x.shape[2:])))
    high, wide, ratio = _plain(call)
    if call["pool_mode"] != 0 or "Rotated" in call.function:
        return {"output": Result(_align(call, x, high, wide, ratio), scale=scale, terms=64, ops=8)}
    values, ys, xs = [], [], []
    for sampled, y, xx in _samples(call, x, high, wide, ratio):
        best = sampled.max(-1)
        values.append(best.values)
        ys.append(y.expand_as(sampled).gather(-1, best.indices[..., None])[..., 0])
        xs.append(xx.expand_as(sampled).gather(-1, best.indices[..., None])[..., 0])
    shape, extent = (0, x.shape[1], high, wide), torch.tensor(float(sum(x.shape[2:])))
    return {
        "output": Result(_stack(values, shape), scale=scale, ops=8),
        "argmax_y": Result(_stack(ys, shape), scale=extent, ops=8),
        "argmax_x": Result(_stack(xs, shape), scale=extent, ops=8),
    }


def _backward(
    call: Call, name: str, grad: torch.Tensor, function: Callable[[torch.Tensor], torch.Tensor]
) -> dict[str, Result]:
    """The gradient with respect to a picture of the shape of output `name`."""
    zeros = torch.zeros(call[name].shape, dtype=torch.float64)
    value = differentiate(function, [zeros], grad)[0]
    size = differentiate(function, [zeros], grad.abs())[0]
    extent = sum(zeros.shape[-2:])
    return {name: Result(value, scale=size.abs() + _size(call, grad, extent), terms=max(grad.numel(), 1), ops=8)}


@reference("RoiAlignBackwardMmcv")
def run_align_backward(call: Call) -> dict[str, Result]:
    grad = call.wide("grad_output")
    if call["pool_mode"] == 1:
        return _backward(call, "grad_input", grad, lambda x: _align(call, x, *_plain(call)))
    ys, xs, rois = call.wide("argmax_y"), call.wide("argmax_x"), call.wide("rois")

    def pick(x: torch.Tensor) -> torch.Tensor:
        parts = []
        for k, roi in enumerate(rois):
            planes = x[int(roi[0])]
            parts.append(torch.stack([sample(planes[c : c + 1], ys[k, c], xs[k, c])[0] for c in range(x.shape[1])]))
        return _stack(parts, tuple(grad.shape)) + 0 * x.sum()

    return _backward(call, "grad_input", grad, pick)


@reference("RoiAlignRotatedBackwardMmcv")
def run_rotated_backward(call: Call) -> dict[str, Result]:
    return _backward(call, "bottom_grad", call.wide("top_grad"), lambda x: _align(call, x, *_plain(call)))


def _riroi(call: Call, x: torch.Tensor) -> torch.Tensor:
    """Channels (features, orientations): rolled by the whole part of the angle, and mixed with the next by the rest."""
    many = call["num_orientations"]
    plain = _align(call, x, call["pooled_height"], call["pooled_width"], call["num_samples"])
    plain = plain.reshape(plain.shape[0], x.shape[1] // many, many, *plain.shape[2:])
    parts = []
    for k, roi in enumerate(call.wide("rois")):
        turn = float(roi[5]) * many / (2 * math.pi)
        whole, part = math.floor(turn), turn - math.floor(turn)
        turned = plain[k].roll(whole, 1)
        parts.append(((1 - part) * turned + part * turned.roll(-1, 1)).flatten(0, 1))
    return _stack(parts, (0, x.shape[1], *plain.shape[-2:])) + 0 * x.sum()


@reference("RiroiAlignRotatedMmcv")
def run_riroi(call: Call) -> dict[str, Result]:
    x = call.wide("features")
    return {"output": Result(_riroi(call, x), scale=torch.tensor(_size(call, x, sum(x.shape[2:]))), terms=64, ops=16)}


@reference("RiroiAlignRotatedBackwardMmcv")
def run_riroi_backward(call: Call) -> dict[str, Result]:
    found = _backward(call, "bottom_grad", call.wide("top_grad"), lambda x: _riroi(call, x))
    found["bottom_grad"].ops = 16
    return found


def _deform(call: Call, x: torch.Tensor, offset: torch.Tensor | None) -> torch.Tensor:
    high, wide, ratio = call["pooled_height"], call["pooled_width"], call["sampling_ratio"]
    parts = []
    for k, roi in enumerate(call.wide("rois")):
        y, xx = _box(call, roi, high, wide, ratio)
        if offset is not None:
            width, height = (float(roi[i + 2] - roi[i]) * call["spatial_scale"] for i in (1, 2))
            xx = xx + call["gamma"] * width * offset[k, 0][:, :, None, None]
            y = y + call["gamma"] * height * offset[k, 1][:, :, None, None]
        parts.append(_mean(sample(x[int(roi[0])], y, xx).flatten(3)))
    return _stack(parts, (0, x.shape[1], high, wide)) + 0 * x.sum()


def _offset(call: Call) -> torch.Tensor | None:
    offset = call.wide("offset")
    return None if offset is None or offset.numel() == 0 else offset


@reference("DeformRoiPoolMmcv")
def run_deform(call: Call) -> dict[str, Result]:
    x = call.wide("input")
    scale = torch.tensor(_size(call, x, sum(x.shape[2:])))
    return {"output": Result(_deform(call, x, _offset(call)), scale=scale, terms=64, ops=8)}


@reference("DeformRoiPoolBackwardMmcv")
def run_deform_backward(call: Call) -> dict[str, Result]:
    x, offset, grad = call.wide("input"), _offset(call), call.wide("grad_output")
    by_x, by_offset = differentiate(lambda a, b: _deform(call, a, b), [x, offset], grad)
    extent = sum(x.shape[2:])
    terms = max(grad.numel(), 1)
    found = {"grad_input": Result(by_x, scale=torch.tensor(_size(call, grad, extent)), terms=terms, ops=8)}
    if by_offset is not None:
        size = _size(call, x, extent) * _size(call, grad, extent) * call["gamma"] * x.shape[1]
        found["grad_offset"] = Result(by_offset, scale=torch.tensor(size), terms=terms, ops=8)
    return found


# Whole bins


def _bins(call: Call, roi: torch.Tensor, shape: torch.Size) -> list[tuple[slice, slice]]:
    """Pixels of each bin, row by row."""
    scale, high, wide = call["spatial_scale"], call["pooled_height"], call["pooled_width"]
    x1, y1 = float(roi[1]) * scale, float(roi[2]) * scale
    w, h = (float(roi[3]) + 1) * scale - x1, (float(roi[4]) + 1) * scale - y1

    def cut(start: float, size: float, bins: int, number: int, pixels: int) -> slice:
        first, last = math.floor(start + number * size / bins), math.ceil(start + (number + 1) * size / bins)
        return slice(min(max(first, 0), pixels), min(max(last, 0), pixels))

    return [(cut(y1, h, high, i, shape[0]), cut(x1, w, wide, j, shape[1])) for i in range(high) for j in range(wide)]


@reference("RoiPoolMmcv")
def run_pool(call: Call) -> dict[str, Result]:
    x, rois = call.wide("input"), call.wide("rois")
    count, channels, width = call["pooled_height"] * call["pooled_width"], x.shape[1], x.shape[3]
    values = torch.zeros(len(rois), channels, count, dtype=torch.float64)
    places = torch.full((len(rois), channels, count), -1, dtype=torch.int64)
    for k, roi in enumerate(rois):
        for number, (rows, columns) in enumerate(_bins(call, roi, x.shape[2:])):
            part = x[int(roi[0]), :, rows, columns]
            if part.numel():
                best = part.flatten(1).max(1)
                values[k, :, number] = best.values
                wide = part.shape[2]
                y, xx = rows.start + best.indices // wide, columns.start + best.indices % wide
                places[k, :, number] = y * width + xx
    shape = (len(rois), channels, call["pooled_height"], call["pooled_width"])
    return {
        "output": Result(values.reshape(shape), exact=True),
        "argmax": Result(places.reshape(shape), torch.int32, exact=True),
    }


@reference("RoiPoolBackwardMmcv")
def run_pool_backward(call: Call) -> dict[str, Result]:
    grad, places, rois = call.wide("grad_output"), call["argmax"].to(torch.int64), call.wide("rois")
    value = torch.zeros(call["grad_input"].shape, dtype=torch.float64).flatten(2)
    size = value.clone()
    for k, roi in enumerate(rois):
        for c in range(value.shape[1]):
            at, parts = places[k, c].flatten(), grad[k, c].flatten()
            value[int(roi[0]), c].index_add_(0, at[at >= 0], parts[at >= 0])
            size[int(roi[0]), c].index_add_(0, at[at >= 0], parts[at >= 0].abs())
    shape = call["grad_input"].shape
    return {"grad_input": Result(value.reshape(shape), scale=size.reshape(shape), terms=max(grad.numel(), 1))}


def _hat_sum(u: torch.Tensor) -> torch.Tensor:
    """Integral of the hat max(0, 1 - |t|) up to u."""
    u = u.clamp(-1, 1)
    return torch.where(u < 0, (u + 1) ** 2 / 2, 1 - (1 - u) ** 2 / 2)


def _precise(call: Call, x: torch.Tensor, rois: torch.Tensor) -> torch.Tensor:
    """Integrals as products of matrices: (bins, rows) and (bins, columns) of integrals of hats."""
    scale, high, wide = call["spatial_scale"], call["pooled_height"], call["pooled_width"]

    def weigh(start: torch.Tensor, end: torch.Tensor, bins: int, pixels: int) -> torch.Tensor:
        edges = start + (end - start).clamp(min=0) * torch.arange(bins + 1, dtype=torch.float64) / bins
        sums = _hat_sum(edges[:, None] - torch.arange(pixels, dtype=torch.float64))
        width = (edges[1:] - edges[:-1])[:, None]
        return torch.where(width > 0, (sums[1:] - sums[:-1]) / torch.where(width > 0, width, 1.0), 0.0)

    parts = []
    for roi in rois:
        rows = weigh(roi[2] * scale, roi[4] * scale, high, x.shape[2])
        columns = weigh(roi[1] * scale, roi[3] * scale, wide, x.shape[3])
        parts.append(rows @ x[int(roi[0].detach())] @ columns.T)
    return _stack(parts, (0, x.shape[1], high, wide)) + 0 * x.sum() + 0 * rois.sum()


@reference("PrroiPoolMmcv")
def run_precise(call: Call) -> dict[str, Result]:
    x = call.wide("input")
    scale = torch.tensor(_size(call, x, sum(x.shape[2:])))
    return {"output": Result(_precise(call, x, call.wide("rois")), scale=scale, terms=64, ops=16)}


@reference("PrroiPoolbackwardMmcv")
def run_precise_backward(call: Call) -> dict[str, Result]:
    return _backward(call, "grad_input", call.wide("grad_output"), lambda x: _precise(call, x, call.wide("rois")))


@reference("PrroiPoolCoorBackwardMmcv")
def run_precise_coordinates(call: Call) -> dict[str, Result]:
    """The values that the caller passes as `output` are those of the forward pass."""
    x, rois, grad = call.wide("input"), call.wide("rois"), call.wide("grad_output")
    call["output"].copy_(_precise(call, x, rois))
    value = differentiate(lambda r: _precise(call, x, r), [rois], grad)[0]
    value[:, 0] = 0
    extent = sum(x.shape[2:])
    size = _size(call, x, extent) * _size(call, grad, 1) * x.shape[1]
    return {
        "grad_rois": Result(value, scale=torch.tensor(size), terms=max(grad.numel(), 1), ops=32, compute=call.dtype)
    }


# Borders and corners


def _border(box: torch.Tensor, border: int, part: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Places (..., steps) on a border of boxes (..., 4)."""
    x1, y1, x2, y2 = (box[..., i, None] for i in range(4))
    zero = torch.zeros_like(part)
    return (
        (y1 + zero, x1 + part * (x2 - x1)),
        (y1 + part * (y2 - y1), x1 + zero),
        (y2 + zero, x2 - part * (x2 - x1)),
        (y2 - part * (y2 - y1), x2 + zero),
    )[border]


def _border_values(call: Call, x: torch.Tensor) -> torch.Tensor:
    """(B, C, K, 4, steps)."""
    steps, boxes = call["pool_size"], call.wide("boxes")
    part = torch.arange(steps + 1, dtype=torch.float64) / steps
    groups = x.reshape(x.shape[0], 4, -1, *x.shape[2:])
    sides = []
    for border in range(4):
        y, xx = _border(boxes, border, part)
        sides.append(torch.stack([sample(groups[b, border], y[b], xx[b]) for b in range(x.shape[0])]))
    return torch.stack(sides, 3)


@reference("BorderAlignMmcv")
def run_border(call: Call) -> dict[str, Result]:
    x = call.wide("input")
    best = _border_values(call, x).max(-1)
    return {
        "output": Result(best.values, scale=torch.tensor(_size(call, x, sum(x.shape[2:]))), ops=8),
        "argmax_idx": Result(best.indices, torch.int32, exact=True),
    }


@reference("BorderAlignBackwardMmcv")
def run_border_backward(call: Call) -> dict[str, Result]:
    places = call["argmax_idx"].to(torch.int64)[..., None]
    return _backward(
        call, "grad_input", call.wide("grad_output"), lambda x: _border_values(call, x).gather(-1, places)[..., 0]
    )


def _feature(call: Call, x: torch.Tensor) -> torch.Tensor:
    boxes, scale = call.wide("best_bboxes"), call["spatial_scale"]
    y, xx, w, h = (boxes[..., i] * scale for i in range(4))
    cos, sin = boxes[..., 4].cos(), boxes[..., 4].sin()
    out = x
    for a, b in ((0, 0), (1, 1), (-1, 1), (-1, -1), (1, -1))[: call["points"]]:
        px = xx + cos * w / 2 * a - sin * h / 2 * b
        py = y + sin * w / 2 * a + cos * h / 2 * b
        out = out + torch.stack([sample(x[n], py[n], px[n]) for n in range(x.shape[0])])
    return out


@reference("RotatedFeatureAlignMmcv")
def run_feature(call: Call) -> dict[str, Result]:
    x = call.wide("features")
    return {"output": Result(_feature(call, x), scale=torch.tensor(_size(call, x, sum(x.shape[2:]))), ops=16)}


@reference("RotatedFeatureAlignBackwardMmcv")
def run_feature_backward(call: Call) -> dict[str, Result]:
    grad = call.wide("top_grad")
    call.arguments["bottom_grad"] = grad
    found = _backward(call, "bottom_grad", grad, lambda x: _feature(call, x))
    del call.arguments["bottom_grad"]
    return found
