"""torch.compile(backend="dit") on the CUDA vendor: generated kernels, made by the emulated NVRTC and run by the
emulated driver, equal eager operators. Every test is a process of its own: the vendor is chosen once."""

from pathlib import Path

import pytest
from conftest import run_python
from cuda_emulator import EMULATOR, needs_emulator

pytestmark = needs_emulator
CASES = Path(__file__).with_name("cuda_graphs.py")


@pytest.fixture
def settings(tmp_path):
    return get_settings(DITORCH_CUDA_CACHE=str(tmp_path / "cache"))


def get_settings(**more):
    folder = EMULATOR[-1].parent
    settings = {"LD_LIBRARY_PATH": str(folder), "DITORCH_BACKEND": "nvidia", "DITORCH_BANNER": "0"}
    return {**settings, "DITORCH_CUDA_NVRTC": str(folder / "libnvrtc_emulated.so"), **more}


def test_sample(settings):
    run_python(CASES, "sample", **settings)


@pytest.mark.full
def test_kernels_are_kept_on_disk(settings):
    settings["EMULATED_NVRTC_LOG"] = "1"
    assert "emulated nvrtc: compiled" in run_python(CASES, "sample", **settings).stderr
    assert "emulated nvrtc" not in run_python(CASES, "sample", **settings).stderr
    for file in Path(settings["DITORCH_CUDA_CACHE"]).iterdir():
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
    assert "emulated nvrtc: compiled" in run_python(CASES, "sample", **settings).stderr


@pytest.mark.full
@pytest.mark.parametrize("case", ["points", "rows", "folds", "places", "training"])
def test_regions(case, settings):
    run_python(CASES, case, **settings)


@pytest.mark.full
def test_random_programs(settings):
    run_python(CASES.with_name("random_graphs.py"), "--seed", "40", "--count", "20", **settings)


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
