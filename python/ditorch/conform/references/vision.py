"""References of detection: boxes that stay, regions of images. Samples of a region lie in a grid, so that a bin is a
row of weights times the image times a column of weights.
"""

from __future__ import annotations

import math

import torch

from .base import Call, Result, reference


def _overlap(a: list[float], b: list[float]) -> float:
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    shared = max(width, 0.0) * max(height, 0.0)
    whole = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared
    return shared / whole if whole else math.nan


@reference("Nms")
def run_nms(call: Call) -> dict[str, Result]:
    boxes, order = call.wide("boxes").tolist(), torch.argsort(call.wide("confidence"), descending=True, stable=True)
    kept: list[int] = []
    for number in order.tolist():
        if all(not _overlap(boxes[number], boxes[other]) > call["iou_threshold"] for other in kept):
            kept.append(number)
    return {"out": Result(torch.tensor(kept, dtype=torch.int64), torch.int64, exact=True, required=True)}


def _weigh(call: Call, start: float, end: float, bins: int, size: int) -> torch.Tensor:
    """(bins, size): how much of each pixel a bin has along one side, as the sum over its samples."""
    scale, shift, samples = call["spatial_scale"], 0.5 if call["aligned"] else 0.0, call["sampling_ratio"]
    first, length = start * scale - shift, (end - start) * scale
    length = length if call["aligned"] else max(length, 1.0)
    count = samples if samples > 0 else max(math.ceil(length / bins), 0)
    weights = torch.zeros(bins, size, dtype=torch.float64)
    for number in range(bins):
        for sample in range(count):
            at = first + (number + (sample + 0.5) / count) * length / bins
            if at < -1 or at > size:
                continue
            at = min(max(at, 0.0), size - 1.0)
            low = int(at)
            weights[number, low] += 1 - (at - low)
            weights[number, min(low + 1, size - 1)] += at - low
    return weights / max(count, 1)


def _regions(call: Call, height: int, width: int) -> list[tuple[int, torch.Tensor, torch.Tensor]]:
    found = []
    for image, x1, y1, x2, y2 in call.wide("rois").tolist():
        rows = _weigh(call, y1, y2, call["pooled_height"], height)
        columns = _weigh(call, x1, x2, call["pooled_width"], width)
        found.append((int(image), rows, columns))
    return found


@reference("RoiAlign")
def run_roi_align(call: Call) -> dict[str, Result]:
    x = call.wide("input")
    shape = (call["rois"].shape[0], x.shape[1], call["pooled_height"], call["pooled_width"])
    value, scale = torch.zeros(shape, dtype=torch.float64), torch.zeros(shape, dtype=torch.float64)
    for number, (image, rows, columns) in enumerate(_regions(call, *x.shape[2:])):
        value[number] = rows @ x[image] @ columns.T
        scale[number] = x[image].abs().amax((-1, -2)).reshape(-1, 1, 1)
    # places have errors of their size, up to the image's, which weights turn into errors of the pixels
    return {"out": Result(value, scale=scale * (1 + max(x.shape[2:], default=1)), terms=64)}


@reference("RoiAlignBackward")
def run_roi_align_backward(call: Call) -> dict[str, Result]:
    grad = call.wide("grad")
    shape = (call["batch_size"], call["channels"], call["height"], call["width"])
    value, scale = torch.zeros(shape, dtype=torch.float64), torch.zeros(shape, dtype=torch.float64)
    for number, (image, rows, columns) in enumerate(_regions(call, *shape[2:])):
        value[image] += rows.T @ grad[number] @ columns
        scale[image] += grad[number].abs().sum((-1, -2)).reshape(-1, 1, 1)
    return {"out": Result(value, scale=scale * (1 + max(shape[2:])), terms=64)}
