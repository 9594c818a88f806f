"""References of mmcv's operators on boxes and polygons.

The common area of two convex polygons is that of their common corners (corners inside the other one, crossings of
edges) sorted by angle; the edges of a hull are the pairs of points with all others on their left. Both are
differentiable, so gradients come from autograd. The scale of an area is the square of the extent of the coordinates.
"""

from __future__ import annotations

import math

import torch

from ..geometry import make_corners
from .base import Call, Result, differentiate, reference


def _cross(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]


def _area(corners: torch.Tensor) -> torch.Tensor:
    return _cross(corners, corners.roll(-1, 0)).sum() / 2


def _orient(corners: torch.Tensor) -> torch.Tensor:
    return corners.flip(0) if float(_area(corners.detach())) < 0 else corners


def _common_area(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Of two convex polygons (n, 2), counterclockwise."""
    found = []
    for first, second in ((a, b), (b, a)):
        edges = second.roll(-1, 0) - second
        sides = _cross(edges[None], (first[:, None] - second[None]).detach())
        found += [first[i] for i in range(len(first)) if bool((sides[i] >= 0).all())]
    for i in range(len(a)):
        p, r = a[i], a[(i + 1) % len(a)] - a[i]
        for j in range(len(b)):
            q, s = b[j], b[(j + 1) % len(b)] - b[j]
            slope = _cross(r, s)
            if abs(float(slope.detach())) < 1e-14:
                continue
            t, u = _cross(q - p, s) / slope, _cross(q - p, r) / slope
            if 0 < float(t.detach()) < 1 and 0 < float(u.detach()) < 1:
                found.append(p + t * r)
    if len(found) < 3:
        return 0 * (a.sum() + b.sum())
    corners = torch.stack(found)
    moved = (corners - corners.mean(0)).detach()
    return _area(corners[torch.atan2(moved[:, 1], moved[:, 0]).argsort()])


def _divide(common: float, first: float, second: float, mode: int) -> float:
    return common / (first + second - common if mode == 0 else first)


def _pairs(call: Call, first: list[torch.Tensor], second: list[torch.Tensor]) -> torch.Tensor:
    """Overlaps of polygons."""
    mode = call["mode"]

    def meet(a: torch.Tensor, b: torch.Tensor) -> float:
        return _divide(float(_common_area(a, b)), abs(float(_area(a))), abs(float(_area(b))), mode)

    if call["aligned"]:
        return torch.tensor([meet(a, b) for a, b in zip(first, second, strict=True)], dtype=torch.float64)
    rows = [[meet(a, b) for b in second] for a in first]
    return torch.tensor(rows, dtype=torch.float64).reshape(len(first), len(second))


def _extent(*tensors: torch.Tensor) -> float:
    return max([1.0, *(float(t.abs().max()) for t in tensors if t.numel())])


@reference("BboxOverlapsMmcv")
def run_upright(call: Call) -> dict[str, Result]:
    a, b, offset = call.wide("bboxes1"), call.wide("bboxes2"), call["offset"]
    if not call["aligned"]:
        a, b = a[:, None], b[None]
    sizes = [x[..., 2:] - x[..., :2] + offset for x in (a, b)]
    common = (torch.minimum(a[..., 2:], b[..., 2:]) - torch.maximum(a[..., :2], b[..., :2]) + offset).clamp(min=0)
    areas, common = [s.prod(-1) for s in sizes], common.prod(-1)
    base = areas[0] + areas[1] - common if call["mode"] == 0 else areas[0] + 0 * common
    value = common / base.clamp(min=offset)
    return {"ious": Result(value, scale=_extent(a, b) ** 2 / base.clamp(min=1e-3), ops=8)}


@reference("BoxIouRotatedMmcv", "BoxIouQuadriMmcv")
def run_rotated(call: Call) -> dict[str, Result]:
    a, b = call.wide("bboxes1"), call.wide("bboxes2")
    if "Rotated" in call.function:
        first, second = list(make_corners(a)), list(make_corners(b))
    else:
        first, second = ([_orient(q) for q in x.reshape(-1, 4, 2)] for x in (a, b))
    areas = [float(_area(p)) for p in first + second]
    scale = _extent(a, b) ** 2 / min([1e6, *areas])
    return {"ious": Result(_pairs(call, first, second), scale=torch.tensor(scale), ops=32)}


def _above(boxes: torch.Tensor) -> torch.Tensor:
    return make_corners(boxes[:, [0, 1, 3, 4, 6]])


@reference("Iou3dBoxesOverlapBevMmcv")
def run_above(call: Call) -> dict[str, Result]:
    a, b = call.wide("boxes_a"), call.wide("boxes_b")
    rows = [[float(_common_area(p, q)) for q in _above(b)] for p in _above(a)]
    value = torch.tensor(rows, dtype=torch.float64).reshape(len(a), len(b))
    return {"ans_overlap": Result(value, scale=torch.tensor(_extent(a, b) ** 2), ops=32)}


# Suppression


def _suppress(overlap: torch.Tensor, threshold: float) -> list[int]:
    """Of boxes by falling score, with the matrix of their overlaps."""
    kept: list[int] = []
    for i in range(len(overlap)):
        if not any(float(overlap[k, i]) > threshold for k in kept):
            kept.append(i)
    return kept


def _overlaps(polygons: torch.Tensor) -> torch.Tensor:
    count = len(polygons)
    areas = [abs(float(_area(p))) for p in polygons]
    rows = [
        [_divide(float(_common_area(polygons[i], polygons[k])), areas[i], areas[k], 0) for k in range(count)]
        for i in range(count)
    ]
    return torch.tensor(rows, dtype=torch.float64).reshape(count, count)


def _upright_overlaps(boxes: torch.Tensor, offset: float) -> torch.Tensor:
    low, high = boxes[:, :2], boxes[:, 2:]
    common = (torch.minimum(high[:, None], high) - torch.maximum(low[:, None], low) + offset).clamp(min=0).prod(-1)
    areas = (high - low + offset).prod(-1)
    return common / (areas[:, None] + areas - common)


@reference("NmsMmcv")
def run_nms(call: Call) -> dict[str, Result]:
    order = call.wide("scores").argsort(descending=True, stable=True)
    kept = _suppress(_upright_overlaps(call.wide("dets")[order], call["offset"]), call["iou_threshold"])
    return {"out": Result(order[kept], torch.int64, exact=True, required=True)}


@reference("NmsRotatedMmcv")
def run_nms_rotated(call: Call) -> dict[str, Result]:
    """The order, and the boxes in that order, are those that the scores say."""
    order = call.wide("scores").argsort(descending=True, stable=True)
    call["order"].copy_(order)
    call["dets_sorted"].copy_(call["dets"][order])
    dets = call.wide("dets")[order]
    overlap = _overlaps(make_corners(dets[:, :5]))
    if call["multi_label"]:
        labels = dets[:, 5] if dets.shape[1] == 6 else call["labels"][order]
        overlap = torch.where(labels[:, None] == labels, overlap, 0.0)
    return {"out": Result(order[_suppress(overlap, call["iou_threshold"])], torch.int64, exact=True, required=True)}


@reference("Iou3dNms3dMmcv", "Iou3dNms3dNormalMmcv")
def run_nms_above(call: Call) -> dict[str, Result]:
    boxes = call.wide("boxes")
    if "Normal" in call.function:
        flat = torch.cat([boxes[:, :2] - boxes[:, 3:5] / 2, boxes[:, :2] + boxes[:, 3:5] / 2], 1)
        overlap = _upright_overlaps(flat, 0)
    else:
        overlap = _overlaps(_above(boxes))
    kept = _suppress(overlap, call["nms_overlap_thresh"])
    keep = torch.zeros(len(boxes), dtype=torch.int64)
    keep[: len(kept)] = torch.tensor(kept, dtype=torch.int64)
    return {
        "keep": Result(keep, torch.int64, exact=True),
        "keep_num": Result(torch.tensor([len(kept)]), torch.int64, exact=True),
    }


# Polygons and hulls


@reference("PointsInPolygonsMmcv")
def run_inside(call: Call) -> dict[str, Result]:
    """By the angle that the corners turn around the point: a full one inside."""
    corners = call.wide("polygons").reshape(1, -1, 4, 2) - call.wide("points")[:, None, None]
    turned = corners.roll(-1, 2)
    angle = torch.atan2(_cross(corners, turned), (corners * turned).sum(-1)).sum(-1)
    return {"output": Result((angle.abs() > math.pi).to(torch.float64), exact=True)}


def _hull_edges(points: torch.Tensor) -> list[tuple[int, int]]:
    """Pairs (i, j) with all other points left of the way from i to j."""
    found = []
    for i in range(len(points)):
        for j in range(len(points)):
            others = [k for k in range(len(points)) if k not in (i, j)]
            if i != j and bool((_cross((points[j] - points[i])[None], points[others] - points[i]) > 0).all()):
                found.append((i, j))
    return found


def _hull(points: torch.Tensor) -> torch.Tensor:
    """Corners of the hull in their order, differentiable."""
    following = dict(_hull_edges(points.detach()))
    at = start = next(iter(following))
    order = [start]
    while following[at] != start:
        at = following[at]
        order.append(at)
    return points[order]


@reference("MinAreaPolygonsMmcv")
def run_smallest(call: Call) -> dict[str, Result]:
    sets = call.wide("pointsets").reshape(-1, 9, 2)
    value = torch.zeros(len(sets), 8, dtype=torch.float64)
    for n, points in enumerate(sets):
        best = math.inf
        for i, j in _hull_edges(points):
            edge = points[j] - points[i]
            angle = math.atan2(edge[1], edge[0]) % (math.pi / 2)
            cos, sin = math.cos(angle), math.sin(angle)
            axes = torch.tensor([[cos, sin], [-sin, cos]], dtype=torch.float64)
            turned = points @ axes.T
            (x1, y1), (x2, y2) = turned.min(0).values.tolist(), turned.max(0).values.tolist()
            if (x2 - x1) * (y2 - y1) < best:
                best = (x2 - x1) * (y2 - y1)
                box = torch.tensor([[x2, y1], [x1, y1], [x1, y2], [x2, y2]], dtype=torch.float64)
                value[n] = (box @ axes).flatten()
    return {"polygons": Result(value, scale=torch.tensor(4 * _extent(sets)), ops=32)}


def _giou(points: torch.Tensor, quad: torch.Tensor) -> torch.Tensor:
    hull = _hull(points)
    common = _common_area(hull, quad)
    united = _area(hull) + _area(quad) - common
    whole = _area(_hull(torch.cat([points, quad])))
    return common / united - (whole - united) / whole


@reference("ConvexIouMmcv")
def run_convex(call: Call) -> dict[str, Result]:
    sets, quads = call.wide("pointsets").reshape(-1, 9, 2), call.wide("polygons").reshape(-1, 4, 2)
    value = torch.zeros(len(sets), len(quads), dtype=torch.float64)
    for n, points in enumerate(sets):
        hull = _hull(points)
        for m, quad in enumerate(quads):
            quad = _orient(quad)
            value[n, m] = _divide(float(_common_area(hull, quad)), float(_area(hull)), float(_area(quad)), 0)
    return {"ious": Result(value, scale=torch.tensor(_extent(sets, quads) ** 2), ops=32)}


@reference("ConvexGiouMmcv")
def run_convex_giou(call: Call) -> dict[str, Result]:
    sets, quads = call.wide("pointsets").reshape(-1, 9, 2), call.wide("polygons").reshape(-1, 4, 2)
    rows = []
    for points, quad in zip(sets, quads, strict=True):
        quad = _orient(quad)
        grad = differentiate(lambda p, q=quad: _giou(p, q), [points], torch.tensor(1.0))[0]
        rows.append(torch.cat([grad.flatten(), _giou(points, quad).reshape(1)]))
    value = torch.stack(rows) if rows else torch.zeros(0, 19, dtype=torch.float64)
    return {"output": Result(value, scale=torch.tensor(_extent(sets, quads) ** 3), ops=64)}


@reference("DiffIouRotatedSortVerticesMmcv")
def run_sort(call: Call) -> dict[str, Result]:
    """The number of valid vertices is that of the mask, at most eight of them."""
    vertices, mask = call.wide("vertices"), call["mask"]
    mask &= mask.to(torch.int64).cumsum(2) <= 8
    call["num_valid"].copy_(mask.sum(2))
    value = torch.zeros(*vertices.shape[:2], 9, dtype=torch.int64)
    for b in range(vertices.shape[0]):
        for n in range(vertices.shape[1]):
            free = [k for k in range(8, vertices.shape[2]) if not mask[b, n, k]]
            value[b, n] = free[0]
            valid = mask[b, n].nonzero()[:, 0]
            if len(valid) >= 3:
                x, y = vertices[b, n, valid].unbind(1)
                order = valid[(torch.atan2(y, x) % (2 * math.pi)).argsort()]
                value[b, n, : len(order) + 1] = torch.cat([order, order[:1]])
    return {"out": Result(value, torch.int32, exact=True, required=True)}
