"""torch.compile(backend="dit") on the CUDA vendor: generated kernels, made by the emulated NVRTC and run by the
emulated driver, equal eager operators. Every test is a process of its own: the vendor is chosen once."""

from pathlib import Path

import pytest
from conftest import run_python
from cuda_emulator import EMULATOR, needs_emulator

pytestmark = needs_emulator
CASES = Path(__file__).with_name("cuda_graphs.py")


def get_settings(**more):
    folder = EMULATOR[-1].parent
    settings = {"LD_LIBRARY_PATH": str(folder), "DITORCH_BACKEND": "nvidia", "DITORCH_BANNER": "0"}
    return {**settings, "DITORCH_CUDA_NVRTC": str(folder / "libnvrtc_emulated.so"), **more}


def test_sample():
    run_python(CASES, "sample", **get_settings())


@pytest.mark.full
@pytest.mark.parametrize("case", ["points", "rows", "folds", "places", "training"])
def test_regions(case):
    run_python(CASES, case, **get_settings())


@pytest.mark.full
def test_random_programs():
    run_python(CASES.with_name("random_graphs.py"), "--seed", "40", "--count", "20", **get_settings())


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
