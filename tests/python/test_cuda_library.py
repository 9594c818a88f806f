"""The CUDA operator library over the emulated driver: the conformance suite runs its kernels, compiled for the host.

Proves results, not speed and not races; `make test-cuda` does the same on a GPU.
"""

import ctypes
import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from conftest import run_python
from cuda_emulator import EMULATOR, LIBRARY, ROOT, needs_emulator


def run_suite(tmp_path, *choice, folders=(), is_wrong=False, **environment):
    """Results of the cases on the emulated device, by verdict. `folders`: more of the emulator's for the loader."""
    report, emulator = tmp_path / "report.json", EMULATOR[-1].parent
    places = [str(emulator), *(str(emulator / folder) for folder in folders), os.environ.get("LD_LIBRARY_PATH", "")]
    environment["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, places))
    # every thread of an emulated block is a stack of its own: large tensors are for a GPU
    large = tmp_path / "large.json"
    rules = [{"case": f"*/{name}-*", "reason": "large"} for name in ("size", "long", "border")]
    large.write_text(json.dumps({"skip": rules}))
    arguments = ["conform", "run", "--library", "cuda", "--vendor", "cuda", "--quiet", "--json", str(report)]
    arguments += ["--skip", str(large), *choice]
    answer = run_python("-m", "ditorch", *arguments, check=False, **environment)
    assert (answer.returncode != 0) == is_wrong, answer.stdout[-3000:] + answer.stderr[-3000:]
    verdicts = [row["verdict"] for row in json.loads(report.read_text())["cases"]]
    return {verdict: verdicts.count(verdict) for verdict in set(verdicts)}


def list_functions():
    return re.findall(r"^CUDA_FUNCTION\((\w+),", (ROOT / "vendors/cuda/functions.inc").read_text(), flags=re.MULTILINE)


@needs_emulator
def test_a_share_of_the_suite_passes(tmp_path):
    """Every family: pointwise, copies, reductions, softmax, norms, products, optimizers, random numbers, images."""
    counts = run_suite(tmp_path, "--share", "0.004", "--jobs", "1", "--function", *list_functions())
    assert counts.get("pass", 0) > 150, counts
    assert not counts.get("fail") and not counts.get("missing"), counts


@needs_emulator
@pytest.mark.full
def test_convolution_asks_cudnn(tmp_path):
    """Where a libcudnn.so.9 is found: here one of plain loops, which proves the arguments, not the real library."""
    functions = ["diopiConvolution2d", "diopiConvolution2dBackward", "diopiConvTranspose2d"]
    choice = ["--share", "0.3", "--function", *functions]
    counts = run_suite(tmp_path, *choice, folders=["cudnn"])
    assert counts.get("pass", 0) > 40 and not counts.get("fail"), counts
    counts = run_suite(tmp_path, *choice, folders=["cudnn"], is_wrong=True, EMULATED_CUDNN_WRONG="1")
    assert counts.get("fail", 0) > 20, counts


@needs_emulator
@pytest.mark.full
def test_everything_passes(tmp_path):
    counts = run_suite(tmp_path, "--function", *list_functions())
    assert counts.get("pass", 0) > 15000 and not counts.get("fail") and not counts.get("missing"), counts


PRODUCTS = ["diopiMm", "diopiBmm", "diopiAddmm", "diopiBaddbmm", "diopiLinear", "diopiMatmul"]


@needs_emulator
def test_products_by_cublaslt(tmp_path):
    """Layouts, transpose flags, batches and the bias as the library gets them; an emulated one computes."""
    choice = ["--share", "0.05", "--jobs", "1", "--function", *PRODUCTS]
    library = str(EMULATOR[-1].parent / "libcublasLt_emulated.so")
    counts = run_suite(tmp_path, *choice, DITORCH_CUDA_BLAS=library)
    assert counts.get("pass", 0) > 20 and not counts.get("fail"), counts
    broken = run_suite(tmp_path, *choice, is_wrong=True, DITORCH_CUDA_BLAS=library, EMULATED_CUBLASLT_ERROR="1")
    assert broken.get("fail", 0) > 10, broken


TRAINING = """
import json, torch, warnings, ditorch
def train(device):
    torch.manual_seed(0)
    layers = [torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4)]
    model, x, y = torch.nn.Sequential(*layers).to(device), torch.randn(32, 8).to(device), torch.arange(32) % 4
    y = y.to(device)
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=1e-2), []
    for _ in range(4):
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses
warnings.simplefilter("error")
wanted, got = train("cpu"), train("cuda")
print(json.dumps([wanted, got, torch.cuda.get_device_name(0), [row["operator"] for row in ditorch.operators()]]))
"""


@needs_emulator
def test_pytorch_trains_on_it():
    """The door, the kernels, and the fallback that copies for what has none."""
    path = str(EMULATOR[-1].parent)
    answer = run_python(TRAINING, LD_LIBRARY_PATH=path, DITORCH_BACKEND="nvidia", DITORCH_BANNER="0")
    wanted, got, name, operators = json.loads(answer.stdout)
    assert got == pytest.approx(wanted, rel=1e-4) and wanted[-1] < wanted[0]
    assert name.startswith("Emulated") and {"aten::addmm", "aten::gelu"} <= set(operators), operators


WRONG_INDEX = """
import torch, ditorch
table = torch.zeros(4, 3).to("cuda")
try:
    print(torch.nn.functional.embedding(torch.tensor([0, 99]).to("cuda"), table).cpu())
except Exception as error:
    print(type(error).__name__, error)
"""


@needs_emulator
def test_a_wrong_index_stops_the_device():
    """As in PyTorch: the next wait fails; with CUDA_LAUNCH_BLOCKING the call itself."""
    settings = {"LD_LIBRARY_PATH": str(EMULATOR[-1].parent), "DITORCH_BACKEND": "nvidia", "DITORCH_BANNER": "0"}
    late = run_python(WRONG_INDEX, **settings).stdout
    assert "CUDA_ERROR_LAUNCH_FAILED" in late, late
    soon = run_python(WRONG_INDEX, CUDA_LAUNCH_BLOCKING="1", **settings).stdout
    assert soon.startswith("IndexError"), soon


@needs_emulator
def test_the_list_of_functions_is_the_library():
    """functions.inc has exactly what the library exports."""
    symbols = subprocess.run(["nm", "-D", "--defined-only", LIBRARY], capture_output=True, text=True, check=True).stdout
    found = set(re.findall(r"\b(diopi[A-Z]\w*)", symbols))
    about = {"diopiGetVendorName", "diopiGetImplVersion", "diopiGetLastErrorString"}
    assert {name for name in found if not name.startswith("diopiExt")} - about == set(list_functions())


def has_driver():
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


@pytest.mark.skipif(has_driver(), reason="this machine has a CUDA driver")
@pytest.mark.skipif(not LIBRARY.exists(), reason="the CUDA vendor is not built")
def test_nvidia_without_a_driver_says_so():
    """The backend is chosen by name alone, and says what is missing."""
    answer = run_python("-c", "import ditorch", DITORCH_BACKEND="nvidia", check=False)
    assert answer.returncode != 0 and "no CUDA driver on this machine" in answer.stderr, answer.stderr


COPIES = """
import json, torch, ditorch
assert torch.cuda.device_count() == 2  # the driver's devices, whatever the option host_devices says
c = torch.randn(37, 53)
x, k = c.cuda(), torch.randn(6, 8, dtype=torch.complex64)
into, wanted = torch.zeros(5, 40, device="cuda"), torch.zeros(5, 40)
into[:, ::2], wanted[:, ::2] = x[:5, :20], c[:5, :20]
pairs = [(x.t().contiguous(), c.t()), (x.to(torch.float16), c.to(torch.float16)), (x.long(), c.long()), (into, wanted)]
pairs += [(x[::2, 1:].clone(), c[::2, 1:]), (k.cuda().t().contiguous(), k.t())]
pairs += [(torch.zeros(53, 37).cuda().copy_(x.t()), c.t())]
assert all(torch.equal(mine.cpu(), right) for mine, right in pairs)
print(json.dumps([[row["operator"] for row in rows] for rows in (ditorch.operators(), ditorch.fallbacks())]))
"""


@needs_emulator
def test_layouts_and_dtypes_change_on_the_device():
    """The vendor has no table of kernels: its operator library copies."""
    answer = run_python(COPIES, LD_LIBRARY_PATH=str(EMULATOR[-1].parent), DITORCH_BACKEND="nvidia")
    in_c, on_cpu = json.loads(answer.stdout)
    assert "aten::_copy_from" in in_c and not on_cpu
    assert "ditorch: nvidia ditorch:" in answer.stderr


@needs_emulator
def test_models_train_without_a_fallback():
    """Transformers, convolutions, experts; float32, and autocast with a scaler in half precision."""
    words = ["gpt", "llama", "images", "vit", "experts", "unet", "recurrent"]
    words += ["gpt:float16", "images:bfloat16", "experts:bfloat16"]
    script = str(Path(__file__).with_name("cuda_models.py"))
    settings = {"LD_LIBRARY_PATH": str(EMULATOR[-1].parent), "DITORCH_BACKEND": "nvidia"}
    answer = run_python(script, *words, **settings, check=False)
    lines = [json.loads(line) for line in answer.stdout.splitlines()]
    assert answer.returncode == 0 and [word for word, *_ in lines] == words, answer.stdout + answer.stderr[-3000:]
