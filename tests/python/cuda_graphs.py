"""Compiled programs on the CUDA vendor equal eager ones, by kernels that NVRTC makes.

    python cuda_graphs.py [sample points rows folds places training]

Run by test_cuda_graph.py over the emulated CUDA driver, by tools/test_cuda.sh on a GPU. DITORCH_BACKEND=nvidia.
"""

import copy
import logging
import sys

import ditorch  # noqa: F401
import torch
from ditorch import graph
from torch.nn import functional as F

SPECIAL = [0.0, -0.0, float("nan"), float("inf"), -float("inf"), 1e-40, 3e38, -5000.0]
kept = graph.keep()


def get_steps():
    return [step for entry in kept for plan in entry.describe() for step in plan["steps"] if "runs" in step]


def check(function, *inputs, near=2e-6):
    """The kernels' names."""
    torch._dynamo.reset()
    kept.clear()
    compiled, wanted = torch.compile(function, backend="dit", dynamic=False), function(*inputs)
    for _ in range(2):
        torch.testing.assert_close(compiled(*inputs), wanted, rtol=near, atol=near, equal_nan=True)
    names = [step["runs"] for step in get_steps()]
    assert names and all(name.startswith("nvrtc ") for name in names), names
    return names


def make(rows, columns, special=True):
    torch.manual_seed(1)
    x, w = torch.randn(rows, columns), torch.randn(rows, columns)
    if special:
        x[:, : len(SPECIAL)] = torch.tensor(SPECIAL)
    return x.cuda(), w.cuda()


def sample():
    x, w = make(5, 24, False)
    check(lambda x, w: torch.softmax(torch.sigmoid(x) * w, -1) + (x * w).sum(0), x, w)


def points():
    for rows, columns in ((5, 24), (3, 301)):
        x, w = make(rows, columns)
        check(lambda x, w: torch.sigmoid(x) * w + torch.exp(-x * x) * x - torch.where(x > 0, w, x * 0.01), x, w)
        check(lambda x, w: F.gelu(x) + F.silu(w) * torch.tanh(x), x, w)
        check(lambda x, w: x.t() * w[0].unsqueeze(-1) + x[0, 9], x, w)
        check(lambda x, w: x.abs().sqrt() * w + x.relu() / 3 - x.sign(), x, w, near=0)
        check(lambda x, w: torch.sin(w) * torch.cos(w) + x, x, w)
        check(lambda x, w: (x[1:, 1:] * 2 + w[:-1, 1:]).relu(), x, w, near=0)
        check(lambda x, w: (x.bfloat16() * w.bfloat16() + 1).half().relu(), x, w, near=0)
        y, z = (x.nan_to_num(1, 2, 3) * 10).to(torch.int32), (w * 10).to(torch.int16)
        check(lambda y, z: ((y * 3 - 7) ^ z, (y > z) & (z != 3), y.clamp(-2, 5).to(torch.uint8)), y, z, near=0)


def rows():
    for lines, columns in ((5, 24), (3, 301), (2, 1024), (2, 8192)):
        x, w = make(lines, columns)
        check(lambda x: (x.amax(-1) + 1, x.amin(-1, keepdim=True) * x), x, near=0)
        x, w = make(lines, columns, False)
        check(lambda x: torch.softmax(x * 2, -1), x)
        check(lambda x: torch.softmax(x.bfloat16(), -1), x, near=1e-2)
        check(lambda x, w: F.layer_norm(x + w, (x.shape[-1],), w[0], w[1]) * 2, x, w, near=2e-5)
        check(lambda x, w: (torch.log_softmax(x, -1) * w).sum(-1), x, w, near=2e-4)


def folds():
    for lines, columns in ((5, 24), (300, 17), (64, 70)):
        x, w = make(lines, columns, False)
        check(lambda x, w: ((x * w).sum(0), x + w), x, w, near=1e-4)
        check(lambda x, w: (x * w).sum(), x, w, near=1e-3)
        check(lambda x, w: (x.amax(0), (w * 10).to(torch.int32).amin(0), (x > w).any(0)), x, w, near=0)
    x = torch.randn(3, 20_000).cuda()
    check(lambda x: ((x * 2).sum(-1), x.amax(-1), x + 1), x, near=1e-3)
    check(lambda x: (x * 2).double().sum(), x, near=1e-9)
    check(lambda x: (x[:, 1:] * 2).double().sum(), x, near=1e-9)
    x, w = make(700, 35, False)  # in parts
    check(lambda x, w: ((x * w).sum(0), x.amax(0), (w * 99).to(torch.int64).sum(0)), x, w, near=1e-4)


def update(x, w):
    x.mul_(2).add_(w)
    return torch.softmax(x, -1)


def places():
    base = torch.randn(1000).cuda()
    x, y = base[1:81].view(5, 16), base[84:164].view(5, 16)  # the first is at no multiple of 16 bytes
    check(lambda x, y: x * 2 + y, x, y, near=0)
    check(lambda x, y: (x + y).softmax(-1), x, y)
    check(lambda x: (x[:0] * 2 + 1, x[:, :0].sum(-1), x[:0].sum(0)), y, near=0)
    a, b = torch.randn(4, 40).cuda(), torch.randn(4, 40).cuda()
    twin = a.clone()
    torch.testing.assert_close(torch.compile(update, backend="dit")(a, b), update(twin, b))
    torch.testing.assert_close(a, twin, rtol=0, atol=0)
    with torch.cuda.stream(torch.cuda.Stream()):
        check(lambda x, y: x * 2 + y, x, y, near=0)

    def get_name(size, number):
        return check(lambda x: x * number + 1, torch.randn(size).cuda(), near=0)[0]

    assert len({get_name(40, 2), get_name(80, 2), get_name(80, 3)}) == 1  # sizes and numbers are arguments


def training():
    torch.manual_seed(0)
    layers = [torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4)]
    model = torch.nn.Sequential(*layers).cuda()
    twin = copy.deepcopy(model)
    compiled = torch.compile(twin, backend="dit", dynamic=True)
    for size in (5, 9):
        x = torch.randn(size, 8).cuda()
        model(x).pow(2).mean().backward()
        compiled(x).pow(2).mean().backward()
    for wanted, got in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(got.grad, wanted.grad, rtol=1e-4, atol=1e-6)
    assert get_steps()


CASES = {function.__name__: function for function in (sample, points, rows, folds, places, training)}

if __name__ == "__main__":
    logging.disable(logging.ERROR)
    for name in sys.argv[1:] or CASES:
        CASES[name]()
        print(f"{name}: as eager")
