"""Linear algebra and torchvision's operators on the device, by DIOPI functions in C, against the CPU."""

import itertools

import ditorch
import pytest
import torch
from twice import draw, twice

aten = torch.ops.aten
DTYPES = (torch.float32, torch.float64, torch.complex64, torch.complex128)
LOOSE = {"rtol": 2e-4, "atol": 2e-4}
BATCHES = ((), (3,), (2, 1), (0,))


def systems(batch, n, dtype):
    """Positive-definite matrices, row-major and column-major."""
    a = draw((*batch, n, n), dtype)
    a = torch.empty(a.shape, dtype=dtype).copy_(a @ a.mH + n * torch.eye(n, dtype=dtype))
    return a, torch.empty(a.shape, dtype=dtype).mT.copy_(a)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("upper", [False, True])
def test_cholesky(dtype, upper):
    for batch, n in itertools.product(BATCHES, (0, 1, 5)):
        for a in systems(batch, n, dtype):
            twice(lambda a: torch.linalg.cholesky_ex(a, upper=upper), a, **LOOSE)
    a = systems((3,), 4, dtype)[0]
    out = torch.zeros_like(a), torch.zeros(3, dtype=torch.int32)
    twice(lambda a, out: torch.linalg.cholesky_ex(a, upper=upper, out=out), a, out, **LOOSE)


def test_cholesky_that_fails():
    a = torch.eye(3).repeat(2, 1, 1)
    a[1, 1, 1] = -1
    assert torch.linalg.cholesky_ex(a.cuda()).info.tolist() == [0, 2]
    for call in (torch.linalg.cholesky, lambda a: torch.linalg.cholesky_ex(a, check_errors=True)):
        with pytest.raises(torch.linalg.LinAlgError, match="leading minor of order 2"):
            call(a.cuda())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("left", [False, True])
def test_solve_triangular(dtype, left):
    for upper, unit, batch in itertools.product((False, True), (False, True), BATCHES):
        for a in systems(batch, 4, dtype):
            b = draw((2, 4, 3) if batch == () else (4, 3), dtype, seed=3)
            b = b if left else b.mT
            twice(
                lambda a, b, u=upper, o=unit: torch.linalg.solve_triangular(a, b, upper=u, left=left, unitriangular=o),
                a,
                b,
                **LOOSE,
            )
    a, b = systems((), 4, dtype)[0], draw((4, 4), dtype)
    twice(lambda a, b, out: torch.linalg.solve_triangular(a, b, upper=True, left=left, out=out), a, b, b.clone())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.filterwarnings("ignore:torch.triangular_solve")
def test_triangular_solve(dtype, transpose):
    for upper, unit, batch in itertools.product((False, True), (False, True), BATCHES):
        a, b = systems(batch, 4, dtype)[0], draw((2, 4, 3) if batch == () else (4, 3), dtype, seed=3)
        twice(lambda a, b, u=upper, o=unit: torch.triangular_solve(b, a, u, transpose, o), a, b, **LOOSE)


@pytest.mark.parametrize("dtype", DTYPES[:2])
def test_cholesky_solve(dtype):
    for upper, batch in itertools.product((False, True), BATCHES):
        a = torch.linalg.cholesky(systems(batch, 4, dtype)[0], upper=upper)
        twice(lambda a, b, u=upper: torch.cholesky_solve(b, a, upper=u), a, draw((4, 3), dtype), **LOOSE)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mode", ["reduced", "complete", "r"])
def test_qr(dtype, mode):
    for batch, (m, n) in itertools.product(BATCHES, ((5, 3), (3, 5), (4, 4), (0, 3), (3, 0))):
        x = draw((*batch, m, n), dtype)
        for a in (x, x.mT.contiguous().mT):
            twice(lambda a: tuple(torch.linalg.qr(a, mode=mode)), a, **LOOSE)
    with pytest.raises(RuntimeError, match="qr received unrecognized mode"):
        torch.linalg.qr(torch.ones(2, 2, device="cuda"), mode="other")


@pytest.mark.parametrize("dtype", DTYPES[:2])
@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 2.0, 3.0, float("inf")])
def test_cdist(dtype, p):
    def backward(x, y, g):
        x, y = x.detach().requires_grad_(), y.detach().requires_grad_()
        return torch.autograd.grad(torch.cdist(x, y, p, "donot_use_mm_for_euclid_dist"), (x, y), g)

    for left, right in (((5, 3), (4, 3)), ((2, 1, 5, 3), (4, 6, 3)), ((6, 3), (2, 5, 3)), ((0, 3), (4, 3))):
        x, y = draw(left, dtype), draw(right, dtype, seed=2)
        wanted = twice(lambda x, y: torch.cdist(x, y, p), x, y, **LOOSE)
        twice(lambda x, y: torch.cdist(x, y, p), x.mT.contiguous().mT, y, **LOOSE)
        if wanted.numel():
            twice(backward, x, y, draw(wanted.shape, dtype, seed=5), in_c=len(left) == len(right) == 2, **LOOSE)


# torchvision: its schemas, defined here where the library is not there


@pytest.fixture(scope="module")
def vision():
    """torch.ops.torchvision, with kernels of the device alone."""
    try:
        import torchvision  # noqa: F401
    except ImportError:
        library = torch.library.Library("torchvision", "DEF")
        size = "float spatial_scale, SymInt pooled_height, SymInt pooled_width"
        library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        library.define(f"roi_align(Tensor input, Tensor rois, {size}, int sampling_ratio, bool aligned) -> Tensor")
        library.define(
            f"_roi_align_backward(Tensor grad, Tensor rois, {size}, SymInt batch_size, SymInt channels, "
            "SymInt height, SymInt width, int sampling_ratio, bool aligned) -> Tensor"
        )
        yield torch.ops.torchvision
        library._destroy()
    else:
        yield torch.ops.torchvision


def in_c(name, function):
    ditorch.reset_counters()
    result = function()
    assert not ditorch.fallbacks()
    assert any(row["operator"] == name for row in ditorch.operators()), name
    return result


def overlap(a, b):
    low, high = torch.maximum(a[:2], b[:2]), torch.minimum(a[2:], b[2:])
    shared = (high - low).clamp(min=0).prod()
    return shared / ((a[2:] - a[:2]).prod() + (b[2:] - b[:2]).prod() - shared)


def keep(boxes, scores, threshold):
    """By its definition."""
    kept = []
    for i in scores.sort(descending=True, stable=True).indices.tolist():
        if all(overlap(boxes[i], boxes[j]) <= threshold for j in kept):
            kept.append(i)
    return kept


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_nms(vision, dtype):
    corner = draw((40, 2), dtype).abs() * 4
    boxes = torch.cat([corner, corner + 1 + draw((40, 2), dtype, seed=4).abs() * 3], 1)
    scores = draw((40,), dtype, seed=8)
    for threshold in (0.7, 0.0, 0.3):
        kept = in_c("torchvision::nms", lambda t=threshold: vision.nms(boxes.cuda(), scores.cuda(), t))
        assert kept.dtype is torch.int64
        assert kept.tolist() == keep(boxes, scores, threshold)
    assert 1 < kept.numel() < 40
    assert vision.nms(boxes[:0].cuda(), scores[:0].cuda(), 0.5).shape == (0,)


def align(x, rois, scale, height, width, samples):
    """roi_align with aligned=True, by its definition: means of bilinear samples."""
    rows = []
    for roi in rois:
        x1, y1, x2, y2 = (roi[1:] * scale - 0.5).tolist()

        def line(low, high, bins):
            step = (high - low) / (bins * samples)
            return low + step * (torch.arange(bins * samples, dtype=x.dtype) + 0.5)

        ys, xs = line(y1, y2, height), line(x1, x2, width)
        size_y, size_x = x.shape[2:]
        grid = torch.stack(torch.meshgrid(xs, ys, indexing="xy"), -1)
        grid = (grid + 0.5) / torch.tensor([size_x, size_y], dtype=x.dtype) * 2 - 1
        picked = x[int(roi[0]) : int(roi[0]) + 1]
        sampled = torch.nn.functional.grid_sample(picked, grid[None], align_corners=False, padding_mode="border")
        rows.append(torch.nn.functional.avg_pool2d(sampled, samples)[0])
    return torch.stack(rows)


def test_roi_align(vision):
    x = draw((2, 3, 9, 11), torch.float64)
    rois = torch.tensor([[0, 1, 1, 8, 9], [1, 2.5, 3, 14, 12], [1, 6, 2, 9, 16]], dtype=torch.float64)
    wanted = align(x.requires_grad_(), rois, 0.5, 3, 2, 2)
    mine = in_c("torchvision::roi_align", lambda: vision.roi_align(x.detach().cuda(), rois.cuda(), 0.5, 3, 2, 2, True))
    torch.testing.assert_close(mine.cpu(), wanted.detach())
    g = draw(wanted.shape, torch.float64, seed=3)
    mine = in_c(
        "torchvision::_roi_align_backward",
        lambda: vision._roi_align_backward(g.cuda(), rois.cuda(), 0.5, 3, 2, 2, 3, 9, 11, 2, True),
    )
    torch.testing.assert_close(mine.cpu(), torch.autograd.grad(wanted, x, g)[0])
