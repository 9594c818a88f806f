"""torch.compile(backend="dit") on the CUDA vendor: generated kernels, made by the emulated NVRTC and run by the
emulated driver, equal eager operators. Every test is a process of its own: the vendor is chosen once."""

import pytest
from conftest import run_python
from cuda_emulator import EMULATOR, needs_emulator

pytestmark = needs_emulator

START = """
import logging, sys, torch, ditorch
from ditorch import graph
logging.disable(logging.ERROR)
kept = graph.keep()
SPECIAL = [0.0, -0.0, float("nan"), float("inf"), -float("inf"), 1e-40, 3e38, -5000.0]
def check(function, *inputs, near=2e-6):
    torch._dynamo.reset()
    kept.clear()
    compiled, wanted = torch.compile(function, backend="dit", dynamic=False), function(*inputs)
    for _ in range(2):
        torch.testing.assert_close(compiled(*inputs), wanted, rtol=near, atol=near, equal_nan=True)
    steps = [step for entry in kept for plan in entry.describe() for step in plan["steps"] if "runs" in step]
    assert steps and all(step["runs"].startswith("nvrtc ") for step in steps), steps
    return steps
def make(rows, columns, special=True):
    torch.manual_seed(1)
    x, w = torch.randn(rows, columns), torch.randn(rows, columns)
    if special:
        x[:, : len(SPECIAL)] = torch.tensor(SPECIAL)
    return x.cuda(), w.cuda()
"""

POINTS = """
for rows, columns in ((5, 24), (3, 301)):
    x, w = make(rows, columns)
    check(lambda x, w: torch.sigmoid(x) * w + torch.exp(-x * x) * x - torch.where(x > 0, w, x * 0.01), x, w)
    check(lambda x, w: torch.nn.functional.gelu(x) + torch.nn.functional.silu(w) * torch.tanh(x), x, w)
    check(lambda x, w: x.t() * w[0].unsqueeze(-1) + x[0, 9], x, w)
    check(lambda x, w: x.abs().sqrt() * w + x.relu() / 3 - x.sign(), x, w, near=0)
    check(lambda x, w: torch.sin(w) * torch.cos(w) + x, x, w)
    check(lambda x, w: (x[1:, 1:] * 2 + w[:-1, 1:]).relu(), x, w, near=0)
    check(lambda x, w: (x.bfloat16() * w.bfloat16() + 1).half().relu(), x, w, near=0)
    y, z = (x.nan_to_num(1, 2, 3) * 10).to(torch.int32), (w * 10).to(torch.int16)
    check(lambda y, z: ((y * 3 - 7) ^ z, (y > z) & (z != 3), y.clamp(-2, 5).to(torch.uint8)), y, z, near=0)
"""

ROWS = """
for rows, columns in ((5, 24), (3, 301), (2, 1024), (2, 8192)):
    x, w = make(rows, columns)
    check(lambda x: (x.amax(-1) + 1, x.amin(-1, keepdim=True) * x), x, near=0)
    x, w = make(rows, columns, False)
    check(lambda x: torch.softmax(x * 2, -1), x)
    check(lambda x: torch.softmax(x.bfloat16(), -1), x, near=1e-2)
    check(lambda x, w: torch.nn.functional.layer_norm(x + w, (x.shape[-1],), w[0], w[1]) * 2, x, w, near=2e-5)
    check(lambda x, w: (torch.log_softmax(x, -1) * w).sum(-1), x, w, near=2e-4)
"""

FOLDS = """
for rows, columns in ((5, 24), (300, 17), (64, 70)):
    x, w = make(rows, columns, False)
    check(lambda x, w: ((x * w).sum(0), x + w), x, w, near=1e-4)
    check(lambda x, w: (x * w).sum(), x, w, near=1e-3)
    check(lambda x, w: (x.amax(0), (w * 10).to(torch.int32).amin(0), (x > w).any(0)), x, w, near=0)
x = torch.randn(3, 20_000).cuda()
check(lambda x: ((x * 2).sum(-1), x.amax(-1), x + 1), x, near=1e-3)
check(lambda x: (x * 2).double().sum(), x, near=1e-9)
"""

PLACES = """
base = torch.randn(1000).cuda()
x, y = base[1:81].view(5, 16), base[84:164].view(5, 16)  # the first is at no multiple of 16 bytes
check(lambda x, y: x * 2 + y, x, y, near=0)
check(lambda x, y: (x + y).softmax(-1), x, y)
check(lambda x: (x[:0] * 2 + 1, x[:, :0].sum(-1), x[:0].sum(0)), y, near=0)
def update(x, w):
    x.mul_(2).add_(w)
    return torch.softmax(x, -1)
a, b = torch.randn(4, 40).cuda(), torch.randn(4, 40).cuda()
twin = a.clone()
compiled = torch.compile(update, backend="dit")
torch.testing.assert_close(compiled(a, b), update(twin, b))
torch.testing.assert_close(a, twin, rtol=0, atol=0)
with torch.cuda.stream(torch.cuda.Stream()):
    check(lambda x, y: x * 2 + y, x, y, near=0)
# one source for two sizes and two numbers
def get_name(size, number):
    return check(lambda x: x * number + 1, torch.randn(size).cuda(), near=0)[0]["runs"]
assert len({get_name(40, 2), get_name(80, 2), get_name(80, 3)}) == 1
"""


def get_settings(**more):
    folder = EMULATOR[-1].parent
    settings = {"LD_LIBRARY_PATH": str(folder), "DITORCH_BACKEND": "nvidia", "DITORCH_BANNER": "0"}
    return {**settings, "DITORCH_CUDA_NVRTC": str(folder / "libnvrtc_emulated.so"), **more}


SAMPLE = """
x, w = make(5, 24, False)
check(lambda x, w: torch.softmax(torch.sigmoid(x) * w, -1) + (x * w).sum(0), x, w)
"""


def test_sample():
    run_python("-c", START + SAMPLE, **get_settings())


@pytest.mark.full
@pytest.mark.parametrize("work", [POINTS, ROWS, FOLDS, PLACES], ids=["points", "rows", "folds", "places"])
def test_regions(work):
    run_python("-c", START + work, **get_settings())


WITHOUT = """
import torch, ditorch
from ditorch import graph
kept = graph.keep()
x = torch.randn(4, 5).cuda()
torch.testing.assert_close(torch.compile(torch.nn.Softmax(-1), backend="dit")(x), torch.softmax(x, -1))
assert all(plan["regions"] == 0 for entry in kept for plan in entry.describe())
"""


def test_without_nvrtc_rows_run():
    answer = run_python("-c", WITHOUT, **get_settings(DITORCH_CUDA_NVRTC="/nothing/libnvrtc.so"))
    assert answer.stderr.count("cuda_nvrtc: /nothing/libnvrtc.so") == 1
