"""Functions for detection, point clouds, sampling and sparse matrices against the best CPU implementation at hand.

    python bench/ops/detection.py [--threads 1] [--rounds N] [--only GLOB]

The other side is torchvision's or SciPy's function where those are installed, else the quickest way that ATen has. Each
row calls the host library through ditorch.diopi (sparse matrices: through PyTorch on the device); both results are
compared before anything is timed. Speed is the other's time over the library's: above 1 is faster.
"""

from __future__ import annotations

import argparse
import fnmatch
import importlib
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import common
import torch
import torch.nn.functional as F
from ditorch import diopi


def _import(name):
    """The module, or None where it is not installed or was built for another torch."""
    try:
        return importlib.import_module(name)
    except (ImportError, RuntimeError, OSError):
        return None


VISION, SPARSE = _import("torchvision"), _import("scipy.sparse")


def _rand(*shape):
    return torch.rand(shape, generator=torch.Generator().manual_seed(sum(shape)))


def _boxes(count, size):
    corner, extent = _rand(count, 2) * size, 4 + _rand(count, 2) * size / 8
    return torch.cat([corner, corner + extent], 1)


def _close(got, wanted):
    torch.testing.assert_close(got, wanted, rtol=2e-4, atol=2e-4)


def _iou(a, b, area):
    low, high = torch.maximum(a[:, None, :2], b[:, :2]), torch.minimum(a[:, None, 2:], b[:, 2:])
    common_ = (high - low).clamp_(min=0).prod(2)
    return common_ / (area(a)[:, None] + area(b) - common_)


def _area(x):
    return (x[:, 2:] - x[:, :2]).prod(1)


def _nms(host, count):
    boxes, scores = _boxes(count, 800), _rand(count)

    def mine():
        out = diopi.Required()
        host.call("diopiNms", out, boxes, scores, 0.5)
        return torch.frombuffer(bytearray(out.data), dtype=torch.int64)

    def aten():
        order = scores.argsort(descending=True)
        hits = _iou(boxes[order], boxes[order], _area).gt_(0.5).bool().numpy()
        gone, kept = hits[0] & False, []
        for i in range(count):
            if not gone[i]:
                kept.append(i)
                gone |= hits[i]
        return order[kept]

    if VISION:
        return mine, lambda: VISION.ops.nms(boxes, scores, 0.5), "torchvision", torch.testing.assert_close
    return mine, aten, "ATen", torch.testing.assert_close


def _samples(rois, side, ratio):
    """Places of all samples of aligned bins, (K, side * ratio, side * ratio, 2), in pixels."""
    at = (torch.arange(side * ratio) + 0.5) / (side * ratio)
    low, high = rois[:, 1:3] - 0.5, rois[:, 3:5] - 0.5
    x = low[:, :1] + (high - low)[:, :1] * at
    y = low[:, 1:] + (high - low)[:, 1:] * at
    return torch.stack(torch.broadcast_tensors(x[:, None], y[:, :, None]), 3)


def _roi_align(host, channels, size, count):
    side, ratio = 7, 2
    x, boxes = _rand(1, channels, size, size), _boxes(count, size * 0.8).clamp(max=size - 1.0)
    rois, out = torch.cat([torch.zeros(count, 1), boxes], 1), torch.empty(count, channels, side, side)

    def mine():
        host.call("diopiRoiAlign", out, x, rois, 1.0, side, side, ratio, True)
        return out

    def aten():
        places = _samples(rois, side, ratio)
        grid = (places / (size - 1) * 2 - 1).view(1, count * side * ratio, side * ratio, 2)
        found = F.grid_sample(x, grid, padding_mode="border", align_corners=True)
        found = found.view(channels, count, side * ratio, side * ratio).transpose(0, 1)
        return F.avg_pool2d(found, ratio)

    def vision():
        return VISION.ops.roi_align(x, rois, side, 1.0, ratio, True)

    return (mine, vision, "torchvision", _close) if VISION else (mine, aten, "ATen", _close)


def _overlaps(host, count):
    a, b, out = _boxes(count, 800), _boxes(count + 1, 800), torch.empty(count, count + 1)

    def mine():
        host.call("diopiBboxOverlapsMmcv", out, a, b, 0, 0, False)
        return out

    if VISION:
        return mine, lambda: VISION.ops.box_iou(a, b), "torchvision", _close
    return mine, lambda: _iou(a, b, _area), "ATen", _close


def _focal(host, rows, classes):
    x, target = _rand(rows, classes) * 4 - 2, torch.arange(rows) % (classes + 1)
    out, hot = torch.empty_like(x), F.one_hot(target, classes + 1)[:, :classes].float()

    def mine():
        host.call("diopiSigmoidFocalLossMmcv", out, x, target, torch.empty(0), 2.0, 0.25)
        return out

    def aten():
        p, loss = x.sigmoid(), F.binary_cross_entropy_with_logits(x, hot, reduction="none")
        return loss * (1 - torch.where(hot > 0, p, 1 - p)).square() * torch.where(hot > 0, 0.25, 0.75)

    if VISION:
        return mine, lambda: VISION.ops.sigmoid_focal_loss(x, hot, 0.25, 2.0), "torchvision", _close
    return mine, aten, "ATen", _close


def _deform(host, channels, size):
    x, weight = _rand(1, channels, size, size), _rand(channels, channels, 3, 3)
    offset, out = torch.zeros(1, 18, size, size), torch.empty(1, channels, size, size)
    columns, ones = torch.empty(channels * 9, size * size), torch.empty(size, size)

    def mine():
        host.call("diopiDeformConvMmcv", out, columns, ones, x, weight, offset, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1)
        return out

    def vision():
        return VISION.ops.deform_conv2d(x, offset, weight, padding=1)

    def aten():  # by nine bilinear samplings, as one writes it without an operator
        y, x_ = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
        parts = []
        for k in range(9):
            place = torch.stack([x_ + k % 3 - 1 + offset[0, 2 * k + 1], y + k // 3 - 1 + offset[0, 2 * k]], 2)
            parts.append(F.grid_sample(x, (place / (size - 1) * 2 - 1)[None], align_corners=True))
        return torch.einsum("kcn,ock->on", torch.stack(parts).view(9, channels, -1), weight.flatten(2)).view_as(out)

    return (mine, vision, "torchvision", _close) if VISION else (mine, aten, "ATen", _close)


def _deform_attention(host, queries, heads, width):
    levels = [(32, 32), (16, 16), (8, 8)]
    shapes = torch.tensor(levels)
    starts = torch.tensor([0, 1024, 1280])
    value = _rand(1, 1344, heads, width)
    places, weights = (
        _rand(1, queries, heads, 3, 4, 2),
        _rand(1, queries, heads, 12).softmax(-1).view(1, -1, heads, 3, 4),
    )

    def mine():
        out = diopi.Required()
        host.call("diopiMsDeformAttnMmcv", out, value, shapes, starts, places, weights, 64)
        return torch.frombuffer(bytearray(out.data), dtype=torch.float32).view(1, queries, heads * width)

    def aten():  # as the models' own sources do it where their operator is missing
        found = []
        for level, (rows, columns) in enumerate(levels):
            part = value[:, int(starts[level]) :][:, : rows * columns]
            image = part[0].permute(1, 2, 0).reshape(heads, width, rows, columns)
            grid = (2 * places[0, :, :, level] - 1).transpose(0, 1)
            found.append(F.grid_sample(image, grid, align_corners=False))
        weight = weights[0].permute(1, 0, 2, 3).reshape(heads, 1, queries, 12)
        return (torch.cat(found, 3) * weight).sum(3).permute(2, 0, 1).reshape(1, queries, heads * width)

    return mine, aten, "ATen", _close


def _knn(host, points, centres, count):
    xyz, new = _rand(1, points, 3), _rand(1, centres, 3)
    index, distance = torch.empty(1, centres, count, dtype=torch.int32), torch.empty(1, centres, count)

    def mine():
        host.call("diopiKnnMmcv", index, distance, xyz, new, 1, points, centres, count)
        return distance

    return mine, lambda: torch.cdist(new, xyz).square().topk(count, 2, largest=False).values, "ATen", _close


def _farthest(host, points, count):
    xyz, index = _rand(1, points, 3), torch.empty(1, count, dtype=torch.int32)

    def mine():
        host.call("diopiFurthestPointSamplingMmcv", torch.full((1, points), 1e10), index, xyz, 1, points, count)
        return index[0].long()

    def aten():
        nearest, found = torch.full((points,), 1e10), [0]
        for _ in range(count - 1):
            nearest = torch.minimum(nearest, (xyz[0] - xyz[0, found[-1]]).square().sum(1))
            found.append(int(nearest.argmax()))
        return torch.tensor(found)

    return mine, aten, "ATen", torch.testing.assert_close


def _group(host, channels, points, centres, count):
    x, out = _rand(1, channels, points), torch.empty(1, channels, centres, count)
    index = (_rand(1, centres, count) * points).int()
    wide = index.long()[0]

    def mine():
        host.call("diopiGroupPointsMmcv", out, x, index, 1, channels, points, centres, count)
        return out

    return mine, lambda: x[:, :, wide], "ATen", _close


def _top_k(host, batch, words, k):
    logits = _rand(batch, words) * 10
    ids, finished = torch.zeros(2, batch, dtype=torch.int64), torch.zeros(batch, dtype=torch.bool)
    lengths, ends = torch.ones(batch, dtype=torch.int32), torch.full((batch,), -1)
    ks, ps = torch.full((batch,), k, dtype=torch.int32), torch.ones(batch)
    generators = [diopi.Generator(i, 0) for i in range(batch)]

    def mine():
        words_ = (ids, logits.clone(), None, 0, 0, ends, finished, lengths, 1, batch, words, ks, ps, None, None, None)
        host.call("diopiTopKSampling", *words_, generators)
        return ids[1]

    def aten():
        value, place = logits.topk(k)
        return place.gather(1, value.softmax(1).multinomial(1))[:, 0]

    def are_likely(*sides):
        least = logits.topk(k).values[:, -1]
        assert all(bool((logits.gather(1, side[:, None])[:, 0] >= least).all()) for side in sides)

    return mine, aten, "ATen", are_likely


def _penalty(host, batch, words, count):
    logits, penalties = _rand(batch, words), torch.full((batch,), 1.2)
    ids = (_rand(batch, count) * words).long()
    ids = torch.stack([row.unique(sorted=False)[: count // 2] for row in ids])
    counts, zero = torch.ones_like(ids), torch.zeros(batch)
    work = logits.clone()

    def mine():
        work.copy_(logits)
        host.call("diopiApplyPenaltyV2", work, zero, zero, penalties, ids, counts)
        return work

    def aten():
        found = logits.gather(1, ids)
        return logits.scatter(1, ids, torch.where(found > 0, found / 1.2, found * 1.2))

    return mine, aten, "ATen", _close


def _sparse(host, rows, columns, share):
    a, b = _rand(rows, rows), _rand(rows, columns)
    dense = torch.where(a < share, a + 0.1, torch.zeros(()))
    csr = dense.to_sparse_csr()
    there, b_there = csr.cuda(), b.cuda()

    def mine():
        return there @ b_there

    def close(got, wanted):
        _close(got.cpu(), torch.as_tensor(wanted))

    if SPARSE:
        matrix, numbers = SPARSE.csr_array(dense.numpy()), b.numpy()
        return mine, lambda: matrix @ numbers, "SciPy", close
    return mine, lambda: csr @ b, "ATen", close


ROWS = {
    "nms 2000": (_nms, (2000,)),
    "roi_align 256x64x64 256 boxes": (_roi_align, (256, 64, 256)),
    "bbox_overlaps 1000x1001": (_overlaps, (1000,)),
    "sigmoid_focal_loss 8192x80": (_focal, (8192, 80)),
    "deform_conv 64x32x32": (_deform, (64, 32)),
    "ms_deform_attn 300x8x32": (_deform_attention, (300, 8, 32)),
    "knn 4096x512 k=16": (_knn, (4096, 512, 16)),
    "furthest_point_sampling 4096 to 256": (_farthest, (4096, 256)),
    "group_points 64x4096 512x16": (_group, (64, 4096, 512, 16)),
    "top_k_sampling 8x32000 k=50": (_top_k, (8, 32000, 50)),
    "apply_penalty 8x32000 x256": (_penalty, (8, 32000, 512)),
    "spmm 2048x2048 1% by 128": (_sparse, (2048, 128, 0.01)),
    "spmm 2048x2048 10% by 16": (_sparse, (2048, 16, 0.1)),
}


def measure(name, rounds):
    make, arguments = ROWS[name]
    mine, other, whose, check = make(diopi.Library("host"), *arguments)
    check(mine(), other())
    times = common.interleave({"mine": mine, "other": other}, rounds, 2)
    middle, low, high = common.ratio(times["other"], times["mine"])
    figure = f"{middle:.2f} ({low:.2f}-{high:.2f}) against {whose}"
    return {"what": name, "figure": figure, "goal": "", "met": ""}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", default="*", help=f"a shell pattern of {', '.join(ROWS)}")
    options = parser.parse_args()
    os.environ.setdefault("DITORCH_NUM_THREADS", str(options.threads))
    torch.set_num_threads(options.threads)
    names = [name for name in ROWS if fnmatch.fnmatchcase(name, options.only)]
    if not names:
        parser.error(f"--only {options.only!r} means no row; they are {', '.join(ROWS)}")
    rows = [measure(name, options.rounds) for name in names]
    common.report(
        "Detection, point clouds, sampling, sparse matrices",
        f"python bench/ops/detection.py --threads {options.threads}",
        rows,
        f"float32, {options.threads} thread a side, in turns; the other's time over the library's, above 1 is faster.",
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
