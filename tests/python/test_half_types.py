"""Half types that CUDA has and the CPU lacks or rounds too roughly: float32 inside, rounded at the end."""

import warnings

import ditorch  # noqa: F401
import pytest
import torch
import torch.nn.functional as F


def sample(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(5)).half()


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="ComplexHalf support is experimental")
        yield


@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "ihfft", "fft2", "rfft2", "fftn", "ifftn", "rfftn"])
def test_fourier(name):
    x = sample(4, 8)
    function = getattr(torch.fft, name)
    mine, wanted = function(x.cuda()), function(x.float())
    assert mine.dtype is torch.complex32
    torch.testing.assert_close(mine.cpu().to(torch.complex64), wanted, rtol=2e-3, atol=2e-3)


def test_fourier_backward():
    x = sample(16).cuda().requires_grad_()
    y = x.detach().cpu().float().requires_grad_()
    for t in (x, y):
        torch.view_as_real(torch.fft.rfft(t)).float().square().sum().backward()
    assert x.grad.dtype is torch.float16
    torch.testing.assert_close(x.grad.cpu().float(), y.grad, rtol=1e-2, atol=5e-2)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align", [False, True])
def test_grid_sample(mode, padding, align):
    """As the float32 result of the same numbers, rounded."""
    x, grid = sample(2, 3, 8, 9), (sample(2, 5, 6, 2) * 0.7).half()
    mine = F.grid_sample(x.cuda(), grid.cuda(), mode, padding, align)
    wanted = F.grid_sample(x.float(), grid.float(), mode, padding, align)
    torch.testing.assert_close(mine.cpu().float(), wanted, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_kernels_that_the_cpu_lacks(dtype):
    x = sample(1, 2, 4, 4, 4).to(dtype)
    y = x.cuda().requires_grad_()
    pooled = F.avg_pool3d(y, 2)
    torch.testing.assert_close(pooled.cpu().float(), F.avg_pool3d(x.float(), 2), rtol=8e-3, atol=8e-3)
    pooled.sum().backward()
    assert y.grad.dtype is dtype and y.grad.float().sum().item() == pytest.approx(16, rel=1e-2)
    scores, target = sample(3, 4).to(dtype), torch.tensor([[3, 0, -1, 1], [1, -1, 0, 0], [2, 1, -1, 0]])
    mine = F.multilabel_margin_loss(scores.cuda(), target.cuda())
    torch.testing.assert_close(
        mine.cpu().float(), F.multilabel_margin_loss(scores.float(), target), rtol=8e-3, atol=8e-3
    )
    assert mine.dtype is dtype


def test_uniform_has_as_many_values_as_the_cpu():
    """The CPU draws 24 bits and rounds last; the end of the range never comes."""
    for dtype in (torch.float16, torch.bfloat16):
        for low, high in ((0, 1), (3, 7), (-0.1, 0.1)):
            mine = torch.empty(400000, dtype=dtype, device="cuda").uniform_(low, high).cpu()
            wanted = torch.empty(400000, dtype=dtype).uniform_(low, high)
            assert 0.9 < mine.unique().numel() / wanted.unique().numel() < 1.1
            assert mine.max() == wanted.max() and mine.min() >= torch.tensor(low, dtype=dtype)
            assert mine.float().mean().item() == pytest.approx((low + high) / 2, abs=0.01 * (high - low))


def test_complex_nansum():
    x = torch.tensor([[1 + 1j, complex("nan")], [2 - 1j, 3]])
    assert x.cuda().nansum().cpu() == 6
    assert x.cuda().nansum(0).tolist() == [3, 3]
    assert x.cuda().nanmean(1).tolist() == [1 + 1j, 2.5 - 0.5j]
    assert torch.nansum(x.cuda(), 1, keepdim=True).shape == (2, 1)


def test_kaiser_window():
    for arguments in ((12,), (12, False), (12, True, 8.5)):
        torch.testing.assert_close(
            torch.kaiser_window(*arguments, device="cuda").cpu(), torch.kaiser_window(*arguments)
        )
