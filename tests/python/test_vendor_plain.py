"""Vendors that lack something: an operator library, a table of kernels, or both. What they lack runs on the CPU's
kernels over the device's memory, with the results of the CPU."""

import shutil
from pathlib import Path

import pytest
from ditorch import library

PROGRAM = """
import ditorch, torch
from torch import nn

def build():
    torch.manual_seed(3)
    flat = [nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Dropout(0.0), nn.Unflatten(1, (2, 2, 2))]
    image = [nn.Conv2d(2, 3, 1, bias=False), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    return nn.Sequential(*flat, *image, nn.Linear(3, 4))

def train(device):
    torch.manual_seed(1)
    x, y = torch.randn(5, 6).to(device), torch.tensor([0, 1, 2, 3, 0], device=device)
    net = build().to(device)
    step = torch.optim.AdamW(net.parameters(), lr=0.01)
    for _ in range(3):
        step.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        step.step()
    return [loss.detach().cpu()] + [p.detach().cpu() for p in net.parameters()]

torch.testing.assert_close(train("cuda"), train("cpu"), rtol=1e-4, atol=1e-5)
q = torch.randn(2, 3, 4, 5)
attention = nn.functional.scaled_dot_product_attention
torch.testing.assert_close(attention(q.cuda(), q.cuda(), q.cuda()).cpu(), attention(q, q, q))
a = torch.arange(12, device="cuda").reshape(3, 4)
assert torch.equal((a.t().to(torch.float16) + 1).cpu(), a.cpu().t().to(torch.float16) + 1)  # copies between dtypes
assert torch.equal(a[a[:, 0] // 4].cpu(), a.cpu()) and torch.cat([a, a + 0.5]).dtype == torch.float32
a.fill_(7)
a[1:] = 2
assert a.sum().item() == 4 * 7 + 8 * 2
assert torch.equal(torch.full((3,), 2.5, device="cuda", dtype=torch.bfloat16).cpu(), torch.full((3,), 2.5).bfloat16())
assert 0 < torch.nn.functional.dropout(torch.ones(1000, device="cuda"), 0.5).count_nonzero().item() < 1000
with torch.cuda.stream(torch.cuda.Stream()):
    b = torch.ones(1000, device="cuda").mul_(3).to(torch.int32)
torch.cuda.synchronize()
assert b.sum().item() == 3000
for kind in nn.LSTM, nn.GRU:
    torch.manual_seed(5)
    cell, x = kind(3, 4), torch.randn(6, 2, 3)
    wanted = cell(x)[0]
    wanted.sum().backward()
    grads = [p.grad.clone() for p in cell.parameters()]
    cell.zero_grad()
    cell = cell.cuda()
    got = cell(x.cuda())[0]
    got.sum().backward()
    torch.testing.assert_close(got.cpu(), wanted, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close([p.grad.cpu() for p in cell.parameters()], grads, rtol=1e-4, atol=1e-5)
print(*sorted({row["operator"] for row in ditorch.operators()}))
"""


CELLS = [
    f"aten::_thnn_fused_{name}" for name in ("gru_cell", "gru_cell_backward", "lstm_cell", "lstm_cell_backward_impl")
]


@pytest.fixture
def run(python, tmp_path):
    """Run the program on the host device under another name, and tell the operators that ran in C."""

    def run(kernels, **environment):
        path = tmp_path / "libdit_vendor_plain.so"
        shutil.copy(Path(library.DIRECTORY) / "libdit_vendor_host.so", path)
        if not kernels:  # the same library with another name for its table: nobody finds it
            data = path.read_bytes()
            assert b"dit_vendor_get_kernels" in data
            path.write_bytes(data.replace(b"dit_vendor_get_kernels", b"dit_vendor_not_kernels"))
        return python(PROGRAM, DITORCH_VENDOR=path, **environment).stdout.split()

    return run


def test_no_operators(run):
    assert run(kernels=True) == ["aten::_copy_from", *CELLS, "aten::cat"]  # cat is copies


def test_nothing_but_a_device(run):
    assert run(kernels=False) == []


def test_no_kernels(run):
    ran_in_c = run(kernels=False, DITORCH_DIOPI_LIB="host")
    assert not set(CELLS) & set(ran_in_c)
    assert {"aten::addmm", "aten::index.Tensor", "aten::cat"} <= set(ran_in_c)
