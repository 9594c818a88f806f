"""References of mmcv's operators on points: matrices of distances, gathers, and autograd for gradients.

Positions are exact: cases have no two neighbours whose distances float32 could confuse.
"""

from __future__ import annotations

import torch

from .base import Call, Result, differentiate, reference


def _distances(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """(..., N, M) squared distances of (..., N, D) and (..., M, D)."""
    return ((a[..., :, None, :] - b[..., None, :, :]) ** 2).sum(-1)


def _index(value: torch.Tensor) -> Result:
    return Result(value.to(torch.int64), torch.int32, exact=True)


# Neighbours


def _first_hits(hits: torch.Tensor, room: int) -> torch.Tensor:
    """(rows, room): positions of the first True of each row, filled up with the first one; 0 where there is none."""
    found = torch.zeros(hits.shape[0], room, dtype=torch.int64)
    for row, mask in enumerate(hits):
        places = mask.nonzero()[:room, 0]
        if len(places):
            found[row] = places[0]
            found[row, : len(places)] = places
    return found


@reference("BallQueryMmcv")
def run_ball(call: Call) -> dict[str, Result]:
    d = _distances(call.wide("center_xyz"), call.wide("xyz"))
    hits = (d == 0) | ((d >= call["min_radius"] ** 2) & (d < call["max_radius"] ** 2))
    rows = _first_hits(hits.flatten(0, 1), call["sample_num"])
    return {"idx": _index(rows.reshape(*d.shape[:2], -1))}


@reference("StackBallQueryMmcv")
def run_stack_ball(call: Call) -> dict[str, Result]:
    centres = call.wide("center_xyz").split(call["center_xyz_batch_cnt"].tolist())
    points = call.wide("xyz").split(call["xyz_batch_cnt"].tolist())
    parts = []
    for a, b in zip(centres, points, strict=True):
        hits = _distances(a, b) < call["max_radius"] ** 2
        rows = _first_hits(hits, call["sample_num"])
        rows[~hits.any(1), 0] = -1
        parts.append(rows)
    return {"idx": _index(torch.cat(parts))}


def _nearest(a: torch.Tensor, b: torch.Tensor, count: int, none: float) -> tuple[torch.Tensor, torch.Tensor]:
    d, places = _distances(a, b).sort(dim=-1, stable=True)
    missing = max(count - d.shape[-1], 0)
    d = torch.nn.functional.pad(d[..., :count], (0, missing), value=none)
    return d, torch.nn.functional.pad(places[..., :count], (0, missing))


@reference("KnnMmcv")
def run_knn(call: Call) -> dict[str, Result]:
    d, places = _nearest(call.wide("new_xyz_tensor"), call.wide("xyz_tensor"), call["nsample"], 1e10)
    return {"idx_tensor": _index(places), "dist2_tensor": Result(d, scale=d.abs() + 100, ops=8)}


@reference("ThreeNnMmcv")
def run_three(call: Call) -> dict[str, Result]:
    d, places = _nearest(call.wide("unknown"), call.wide("known"), 3, 1e40)
    return {"dist2": Result(d, scale=d.clamp(max=1e4) + 100, ops=8), "idx": _index(places)}


@reference("ChamferDistanceMmcv")
def run_chamfer(call: Call) -> dict[str, Result]:
    d = _distances(call.wide("xyz1"), call.wide("xyz2"))
    found = {}
    for side, dim in ((1, 2), (2, 1)):
        best = d.min(dim) if d.numel() else None
        shape = call[f"xyz{side}"].shape[:2]
        value = best.values if best else torch.zeros(shape, dtype=torch.float64)
        found[f"dist{side}"] = Result(value, scale=value + 100, ops=8)
        found[f"idx{side}"] = _index(best.indices if best else torch.zeros(shape))
    return found


@reference("ChamferDistanceBackwardMmcv")
def run_chamfer_backward(call: Call) -> dict[str, Result]:
    first, second = call["idx1"].to(torch.int64), call["idx2"].to(torch.int64)
    one, two = call.wide("grad_dist1"), call.wide("grad_dist2")

    def loss(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        near_b = b.gather(1, first[..., None].expand(-1, -1, a.shape[2]))
        near_a = a.gather(1, second[..., None].expand(-1, -1, a.shape[2]))
        return (((a - near_b) ** 2).sum(-1) * one).sum() + (((b - near_a) ** 2).sum(-1) * two).sum()

    points = [call.wide("xyz1"), call.wide("xyz2")]
    values = differentiate(loss, points, torch.tensor(1.0))
    size = torch.tensor(200.0 * float(one.abs().sum() + two.abs().sum()))
    return {f"grad_xyz{i + 1}": Result(v, scale=size, terms=max(one.numel(), 1)) for i, v in enumerate(values)}


def _farthest(call: Call, d: torch.Tensor) -> dict[str, Result]:
    temp, wanted = call.wide("temp_tensor"), call["num_points"]
    chosen = torch.zeros(d.shape[0], wanted, dtype=torch.int64)
    for b in range(d.shape[0]):
        for i in range(1, wanted):
            temp[b] = torch.minimum(temp[b], d[b, chosen[b, i - 1]])
            chosen[b, i] = temp[b].argmax()
    return {"temp_tensor": Result(temp, scale=temp.abs() + 100, ops=8), "idx_tensor": _index(chosen)}


@reference("FurthestPointSamplingMmcv")
def run_farthest(call: Call) -> dict[str, Result]:
    return _farthest(call, _distances(call.wide("points_xyz"), call.wide("points_xyz")))


@reference("FurthestPointSamplingWithDistMmcv")
def run_farthest_given(call: Call) -> dict[str, Result]:
    return _farthest(call, call.wide("points_dist"))


# Features by indices


def _gather(points: torch.Tensor, idx: torch.Tensor) -> torch.Tensor:
    flat = idx.to(torch.int64).flatten(1)
    out = points.gather(2, flat[:, None].expand(-1, points.shape[1], -1))
    return out.reshape(*points.shape[:2], *idx.shape[1:])


@reference("GatherPointsMmcv", "GroupPointsMmcv")
def run_gather(call: Call) -> dict[str, Result]:
    return {"out": Result(_gather(call.wide("points"), call["idx"]), exact=True)}


@reference("GatherPointsBackwardMmcv", "GroupPointsBackwardMmcv")
def run_gather_backward(call: Call) -> dict[str, Result]:
    grad = call.wide("grad_out")
    zeros = torch.zeros(call["b"], call["c"], call["n"], dtype=torch.float64)
    value, size = (differentiate(lambda x: _gather(x, call["idx"]), [zeros], g)[0] for g in (grad, grad.abs()))
    return {"grad_points": Result(value, scale=size, terms=max(grad.numel(), 1))}


def _interpolate(points: torch.Tensor, idx: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return (_gather(points, idx) * weight[:, None]).sum(-1)


@reference("ThreeInterpolateMmcv")
def run_interpolate(call: Call) -> dict[str, Result]:
    points, weight = call.wide("points"), call.wide("weight")
    value = _interpolate(points, call["idx"], weight)
    return {"out": Result(value, scale=_interpolate(points.abs(), call["idx"], weight.abs()), terms=3)}


@reference("ThreeInterpolateBackwardMmcv")
def run_interpolate_backward(call: Call) -> dict[str, Result]:
    grad, weight = call.wide("grad_out"), call.wide("weight")
    zeros = torch.zeros(call["b"], call["c"], call["m"], dtype=torch.float64)
    value = differentiate(lambda x: _interpolate(x, call["idx"], weight), [zeros], grad)[0]
    size = differentiate(lambda x: _interpolate(x, call["idx"], weight.abs()), [zeros], grad.abs())[0]
    return {"grad_points": Result(value, scale=size, terms=max(grad.numel(), 1))}


def _stack(call: Call, features: torch.Tensor) -> torch.Tensor:
    counts = call["features_batch_cnt_tensor"].to(torch.int64)
    firsts = torch.repeat_interleave(counts.cumsum(0) - counts, call["idx_batch_cnt_tensor"].to(torch.int64))
    return features[call["idx_tensor"].to(torch.int64) + firsts[:, None]].transpose(1, 2)


@reference("StackGroupPointsMmcv")
def run_stack(call: Call) -> dict[str, Result]:
    return {"out_tensor": Result(_stack(call, call.wide("features_tensor")), exact=True)}


@reference("StackGroupPointsBackwardMmcv")
def run_stack_backward(call: Call) -> dict[str, Result]:
    grad, zeros = call.wide("grad_out_tensor"), torch.zeros(call["n"], call["c"], dtype=torch.float64)
    value, size = (differentiate(lambda x: _stack(call, x), [zeros], g)[0] for g in (grad, grad.abs()))
    return {"grad_features_tensor": Result(value, scale=size, terms=max(grad.numel(), 1))}


def _score(call: Call, points: torch.Tensor, centers: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    """Rows of points by index; an index that is no point gives zeros."""
    idx = call["knn_idx"].to(torch.int64)
    inside = (idx >= 0) & (idx < points.shape[1])
    batch = torch.arange(idx.shape[0])[:, None, None]
    near = points[batch, torch.where(inside, idx, 0)]
    middle = centers[batch, idx[..., :1].expand_as(idx)]
    each = torch.einsum("bpkm,bpkmo->bopk", scores, near - middle)
    return torch.where(inside[:, None], each, 0.0)


@reference("AssignScoreWithkMmcv")
def run_score(call: Call) -> dict[str, Result]:
    inputs = [call.wide(name) for name in ("points", "centers", "scores")]
    size = _score(call, inputs[0].abs(), -inputs[1].abs(), inputs[2].abs())
    return {"output": Result(_score(call, *inputs), scale=size, terms=2 * call["M"])}


@reference("AssignScoreWithkBackwardMmcv")
def run_score_backward(call: Call) -> dict[str, Result]:
    grad = call.wide("grad_out")
    inputs = [call.wide(name) for name in ("points", "centers", "scores")]
    values = differentiate(lambda *x: _score(call, *x), inputs, grad)
    sizes = differentiate(lambda *x: _score(call, *x), [inputs[0].abs(), -inputs[1].abs(), inputs[2].abs()], grad.abs())
    names = ("grad_points", "grad_centers", "grad_scores")
    return {
        name: Result(value, scale=size.abs(), terms=max(grad.numel(), 1))
        for name, value, size in zip(names, values, sizes, strict=True)
    }


# Boxes


def _inside(boxes: torch.Tensor, points: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(..., P, M) whether boxes (..., M, 7) hold points (..., P, 3); places (..., P, M, 3) from the box's corner."""
    turn = torch.stack([boxes[..., 6].cos(), boxes[..., 6].sin()], -1)[..., None, :, :]
    moved = points[..., :, None, :] - boxes[..., None, :, :3]
    x = (moved[..., :2] * turn).sum(-1)
    y = moved[..., 1] * turn[..., 0] - moved[..., 0] * turn[..., 1]
    size = boxes[..., None, :, 3:6]
    place = torch.stack([x + size[..., 0] / 2, y + size[..., 1] / 2, moved[..., 2]], -1)
    flat = ((place[..., :2] > 0) & (place[..., :2] < size[..., :2])).all(-1)
    return flat & (place[..., 2] >= 0) & (place[..., 2] <= size[..., 2]), place


@reference("PointsInBoxesAllMmcv")
def run_inside_all(call: Call) -> dict[str, Result]:
    return {"box_idx_of_points": _index(_inside(call.wide("boxes"), call.wide("pts"))[0])}


@reference("PointsInBoxesPartMmcv")
def run_inside_part(call: Call) -> dict[str, Result]:
    inside = _inside(call.wide("boxes"), call.wide("pts"))[0].to(torch.int64)
    if not inside.shape[-1]:
        return {"box_idx_of_points": _index(torch.full(inside.shape[:-1], -1))}
    return {"box_idx_of_points": _index(torch.where(inside.any(-1), inside.argmax(-1), -1))}


@reference("RoiawarePool3dMmcv")
def run_aware(call: Call) -> dict[str, Result]:
    """The outputs' shapes, which the caller chooses, are those of given tensors."""
    rois, points, features = call.wide("rois"), call.wide("pts"), call.wide("pts_feature")
    lists = torch.zeros(call["pts_idx_of_voxels"].shape, dtype=torch.int64)
    cells, room = torch.tensor(lists.shape[1:4]), lists.shape[4]
    pooled = torch.zeros(*lists.shape[:4], features.shape[1], dtype=torch.float64)
    places = torch.full(pooled.shape, -1, dtype=torch.int64)
    inside, place = _inside(rois, points)
    for n in range(len(rois)):
        cell = torch.minimum((place[:, n] * cells / rois[n, 3:6]).floor().clamp(min=0).long(), cells - 1)
        for k in inside[:, n].nonzero()[:, 0].tolist():
            row = lists[(n, *cell[k].tolist())]
            if row[0] < room - 1:
                row[0] += 1
                row[row[0]] = k
    for at in lists[..., 0].nonzero().tolist():
        chosen = lists[tuple(at)][1 : lists[tuple(at)][0] + 1]
        best = features[chosen].max(0)
        pooled[tuple(at)] = features[chosen].mean(0) if call["pool_method"] else best.values
        places[tuple(at)] = chosen[best.indices]
    found = {
        "pts_idx_of_voxels": _index(lists),
        "pooled_features": Result(pooled, exact=call["pool_method"] == 0, scale=features.abs().max(), terms=room),
        "argmax": _index(places),
    }
    if call["pool_method"]:
        found["argmax"] = Result(places, check="anything")
    return found


@reference("RoiawarePool3dBackwardMmcv")
def run_aware_backward(call: Call) -> dict[str, Result]:
    grad, lists, places = call.wide("grad_out"), call["pts_idx_of_voxels"].to(torch.int64), call["argmax"]
    value = torch.zeros(call["grad_in"].shape, dtype=torch.float64)
    size = value.clone()
    for at in torch.cartesian_prod(*[torch.arange(s) for s in lists.shape[:4]]).tolist():
        row, part = lists[tuple(at)], grad[tuple(at)]
        if call["pool_method"]:
            for k in row[1 : row[0] + 1].tolist():
                value[k] += part / row[0]
                size[k] += part.abs() / row[0]
        else:
            for c, k in enumerate(places[tuple(at)].tolist()):
                if k >= 0:
                    value[k, c] += part[c]
                    size[k, c] += part[c].abs()
    return {"grad_in": Result(value, scale=size, terms=max(grad.numel(), 1))}


@reference("RoipointPool3dMmcv")
def run_point_pool(call: Call) -> dict[str, Result]:
    points, features = call.wide("xyz"), call.wide("pts_feature")
    inside = _inside(call.wide("boxes3d"), points)[0]
    rows = torch.cat([points, features], 2)
    value = torch.zeros(call["pooled_features"].shape, dtype=torch.float64)
    for b in range(value.shape[0]):
        for m in range(value.shape[1]):
            places = inside[b, :, m].nonzero()[: value.shape[2], 0]
            if len(places):
                value[b, m] = rows[b, places[torch.arange(value.shape[2]) % len(places)]]
    return {"pooled_features": Result(value, exact=True), "pooled_empty_flag": _index(~inside.any(1))}


# Voxels


def _voxels(call: Call) -> torch.Tensor:
    """(N, 3) z, y, x of each point's voxel, -1 outside."""
    size, range_ = call.wide("voxel_size"), call.wide("coors_range")
    cells = ((range_[3:] - range_[:3]) / size + 0.5).floor()
    found = ((call.wide("points")[:, :3] - range_[:3]) / size).floor()
    inside = ((found >= 0) & (found < cells)).all(1, keepdim=True)
    return torch.where(inside, found, -1.0).flip(1).to(torch.int64)


@reference("DynamicVoxelizeMmcv")
def run_dynamic(call: Call) -> dict[str, Result]:
    return {"coors": _index(_voxels(call))}


@reference("HardVoxelizeMmcv")
def run_hard(call: Call) -> dict[str, Result]:
    points, most, room = call.wide("points"), call["max_voxels"], call["max_points"]
    by_cell: dict[tuple[int, ...], list[int]] = {}
    for number, cell in enumerate(map(tuple, _voxels(call).tolist())):
        if cell[0] >= 0 and (cell in by_cell or len(by_cell) < most):
            by_cell.setdefault(cell, []).append(number)
    voxels = torch.zeros(most, room, points.shape[1], dtype=torch.float64)
    coors, numbers = torch.zeros(most, 3), torch.zeros(most)
    for number, (cell, members) in enumerate(by_cell.items()):
        members = members[:room]
        voxels[number, : len(members)] = points[members]
        coors[number], numbers[number] = torch.tensor(cell), len(members)
    return {
        "voxels": Result(voxels, exact=True),
        "coors": _index(coors),
        "num_points_per_voxel": _index(numbers),
        "voxel_num": _index(torch.tensor(len(by_cell)).reshape(1)),
    }


@reference("DynamicPointToVoxelMmcv")
def run_reduce(call: Call) -> dict[str, list[Result]]:
    feats, coors, kind = call.wide("feats"), call["coors"].to(torch.int64), call["reduce_type"]
    valid = (coors >= 0).all(1)
    cells, places, counts = torch.unique(coors[valid], dim=0, return_inverse=True, return_counts=True)
    where = torch.full((len(coors),), -1, dtype=torch.int64)
    where[valid] = places
    how = ("sum", "mean", "amax")[kind]
    index = places[:, None].expand(-1, feats.shape[1])
    zeros = torch.zeros(len(cells), feats.shape[1], dtype=torch.float64)
    value, size = (zeros.scatter_reduce(0, index, x[valid], how, include_self=False) for x in (feats, feats.abs()))
    parts = [
        Result(value, exact=kind == 2, scale=size * counts[:, None], terms=max(len(feats), 1)),
        Result(cells, call["coors"].dtype, exact=True),
        _index(where),
        _index(counts),
    ]
    for part in parts:
        part.required = True
    return {"outlist": parts}


@reference("DynamicPointToVoxelBackwardMmcv")
def run_reduce_backward(call: Call) -> dict[str, Result]:
    """What the caller passes is what the forward call gave: the largest values are put in here."""
    grad, feats, where = call.wide("grad_reduced_feats"), call.wide("feats"), call["coors_idx"].to(torch.int64)
    value = torch.zeros_like(feats)
    kind, counts = call["reduce_type"], call["reduce_count"]
    for voxel in range(len(grad)):
        members = (where == voxel).nonzero()[:, 0]
        if len(members) and kind == 2:
            best = feats[members].max(0)
            call["reduced_feats"][voxel] = best.values.to(call["reduced_feats"].dtype)
            first = (feats[members] == best.values).to(torch.int64).argmax(0)
            value[members[first], torch.arange(feats.shape[1])] = grad[voxel]
        elif len(members):
            value[members] = grad[voxel] / (int(counts[voxel]) if kind == 1 else 1)
    return {"grad_feats": Result(value)}
