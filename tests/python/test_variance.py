"""var and std against float64: constants, large offsets, few and many elements."""

import ditorch  # noqa: F401
import pytest
import torch


def test_constants_have_no_spread():
    generator = torch.Generator().manual_seed(7)
    for number in (torch.rand(300, generator=generator) * 10 - 5).tolist():
        for count in (2, 10, 37, 1000, 5000):
            x = torch.full((count,), number, device="cuda")
            assert x.std().item() == 0 and x.var().item() == 0, (number, count)
    x = torch.full((6, 40), 0.3, device="cuda")
    for correction in (0, 1, 2):
        assert not x.std(dim=1, correction=correction).any()
    for function in (torch.var_mean, torch.std_mean):
        spread, mean = function(x, dim=0)
        assert not spread.any()
        torch.testing.assert_close(mean.cpu(), torch.full((40,), 0.3))
    assert not torch.full((3, 5), 0.1, dtype=torch.float64, device="cuda").var(dim=1).any()
    for dtype in (torch.float16, torch.bfloat16):
        assert torch.full((10,), 0.3, dtype=dtype, device="cuda").std().item() == 0


@pytest.mark.parametrize("offset", [0, 1, 100, 1e4, 1e6])
@pytest.mark.parametrize("count", [2, 3, 100, 4097, 100000])
def test_large_offsets(offset, count):
    """The reference is the spread of the very numbers that float32 holds."""
    generator = torch.Generator().manual_seed(count)
    x = (torch.randn(3, count, generator=generator) + offset).float()
    wanted = x.double().var(dim=1)
    torch.testing.assert_close(x.cuda().var(dim=1).cpu().double(), wanted, rtol=1e-5, atol=0)
    torch.testing.assert_close(x.cuda().std(dim=1).cpu().double(), wanted.sqrt(), rtol=1e-5, atol=0)
    torch.testing.assert_close(x.cuda().t().var(dim=0).cpu().double(), wanted, rtol=1e-5, atol=0)


def test_special_numbers():
    for values in ([1.0, float("inf")], [float("nan"), 1.0], [3e38, -3e38, 3e38], [1e20, -1e20, 3e20], [1e-42, 2e-42]):
        x = torch.tensor(values)
        torch.testing.assert_close(x.cuda().std().cpu(), x.std(), equal_nan=True)
