"""Operators that the CPU refuses, composed of others; running sums as devices keep them."""

import ditorch
import pytest
import torch
from ditorch.other_ways import cumprod, cumsum, grouped_mm, run_instead, run_other_way
from op_tools import OpAutoCompare


@pytest.fixture(autouse=True)
def in_own_directory(tmp_path, monkeypatch, device):
    monkeypatch.chdir(tmp_path)
    yield
    ditorch.fault("")


def watch(function, fault=""):
    with ditorch.fault(fault), OpAutoCompare(console="off", save=False) as tool:
        function()
    return tool


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_histc_of_integers_is_compared(dtype):
    x = torch.randint(0, 10, (200,)).to("cuda", dtype)
    tool = watch(lambda: torch.histc(x, 10, 0, 9))
    assert tool.ok is True and not tool.describe()["unable"]
    assert watch(lambda: torch.histc(x, 10, 0, 9), "value:histc*").ok is False


@pytest.mark.parametrize(
    "a,b,ends", [((16, 32), (2, 32, 64), 16), ((2, 16, 32), (32, 16), 16), ((8, 16), (16, 64), 16)]
)
def test_grouped_products(a, b, ends):
    torch.manual_seed(0)
    a, b = torch.randn(a, dtype=torch.bfloat16), torch.randn(b, dtype=torch.bfloat16)
    offs = torch.tensor([6, ends], dtype=torch.int32)
    wanted, wide = torch._grouped_mm(a, b, offs=offs), grouped_mm(a.double(), b.double(), offs)
    assert wanted.shape == wide.shape
    torch.testing.assert_close(wanted.double(), wide, rtol=2**-8, atol=1e-3)

    def on_device():
        x, y = a.cuda().requires_grad_(), b.cuda().requires_grad_()
        torch._grouped_mm(x, y, offs=offs.cuda()).float().sum().backward()

    tool = watch(on_device)
    assert tool.ok is True and not tool.describe()["unable"], tool.findings()


def test_running_sums_and_products():
    torch.manual_seed(0)
    x = torch.randn(3, 50, 4, dtype=torch.float64, requires_grad=True)
    for dim in (-3, -2, -1, 0, 1, 2):
        torch.testing.assert_close(cumsum(x, dim), x.cumsum(dim))
        torch.testing.assert_close(cumprod(x, dim), x.cumprod(dim))
        gradient = torch.randn_like(x)
        mine, wanted = (torch.autograd.grad(y, x, gradient)[0] for y in (cumsum(x, dim), x.cumsum(dim)))
        torch.testing.assert_close(mine, wanted)
    empty = torch.zeros(0, 3)
    assert cumsum(empty, 0).shape == empty.shape and cumsum(torch.tensor(2.0), 0) == 2
    narrow = torch.full((1, 3000), 0.1)
    assert (cumsum(narrow, 1).double() - narrow.double().cumsum(1)).abs().max() > 1e-4  # as float32 keeps it


def test_words_without_another_way():
    assert run_instead("add", (), None) is NotImplemented
    with pytest.raises(NotImplementedError, match="no other way"):
        run_other_way("add", (), None)
