"""Programs written for CUDA on every vendor stack: fake packages over the embedded device, both ways of the alias."""

import json
import os

import pytest
from conftest import HERE, child_environment, run_python

FAKES = os.path.join(HERE, "fakes")
VENDORS = {
    "npu": ("ascend", "torch_npu", "npu", [8, 0]),
    "mlu": ("camb", "torch_mlu", "mlu", [8, 0]),
    "biren": ("biren", "torch_br", "supa", [8, 0]),
    "dipu": ("FAKECHIP", "torch_dipu", "dipu", [9, 1]),
    "musa": ("musa", "torch_musa", "musa", [3, 1]),
}

TRAIN = """
import torch

def train():
    torch.manual_seed(7)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.GELU(), torch.nn.Flatten(), torch.nn.Linear(144, 5))
    model = model.cuda()
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(16, 1, 8, 8, generator=generator).cuda(non_blocking=True)
    y = torch.randint(0, 5, (16,), generator=generator).to("cuda")
    losses = []
    for step in range(6):
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=step % 2 == 1):
            loss = torch.nn.functional.cross_entropy(torch.nn.functional.dropout(model(x), 0.1), y)
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.sub_(parameter.grad, alpha=0.1)
                parameter.grad = None
        losses.append(loss.item())
    return losses
"""

TOUR = """
import io, json
import torch, ditorch
answer = {"losses": train()}
a = ditorch.adapter
answer["adapter"] = [a.arch, a.framework, a.device, a.alias]
x = torch.ones(2, 3, device="cuda:1")
assert x.is_cuda and x.device == torch.device("cuda", 1) and x.get_device() == 1, x.device
answer["device"] = [str(x.device), repr(x.device), x.device.type, x.type(), str(torch.device("cuda", 0))]
assert repr(x.cpu().cuda()).endswith("device='%s:0')" % x.device.type), repr(x.cpu().cuda())
torch.cuda.set_device("cuda:1")
assert torch.cuda.current_device() == 1
torch.cuda.set_device(torch.device("cuda:0"))
with torch.cuda.device("cuda:1"):
    assert torch.ones(1).cuda().get_device() == 1
with torch.cuda.device(1):
    assert torch.empty(0, device="cuda").get_device() == 1
assert torch.cuda.current_device() == 0 and torch.cuda.device_count() == 2 and torch.cuda.is_available()
answer["name"] = torch.cuda.get_device_name("cuda:1")
answer["capability"] = [list(torch.cuda.get_device_capability(d)) for d in (None, 0, "cuda:1", torch.device("cuda"))]
try:
    torch.cuda.set_device("cpu")
except ValueError as error:
    answer["refused device"] = str(error)
torch.manual_seed(1)
first = torch.rand(4, device="cuda")
state = torch.cuda.get_rng_state("cuda")
second = torch.rand(4, device="cuda")
torch.cuda.set_rng_state(state, "cuda:0")
assert torch.equal(second, torch.rand(4, device="cuda"))
torch.cuda.manual_seed_all(1)
assert torch.equal(first, torch.rand(4, device="cuda"))
with torch.random.fork_rng(devices=[0]):
    torch.rand(3, device="cuda")
stream = torch.cuda.Stream()
event = torch.cuda.Event(enable_timing=True)
with torch.cuda.stream(stream):
    assert torch.cuda.current_stream() == stream
    y = x.cuda(0) + 1
    event.record(stream)
event.synchronize()
torch.cuda.current_stream().wait_stream(stream)
torch.cuda.synchronize()
assert y.sum().item() == 12 and isinstance(torch.cuda.current_stream(), torch.cuda.Stream)
file = io.BytesIO()
torch.save({"x": x}, file)
file.seek(0)
assert torch.load(file, map_location="cuda:0")["x"].get_device() == 0
assert isinstance(x, torch.cuda.FloatTensor) and torch.cuda.LongTensor([1]).is_cuda
assert x.cpu().type("torch.cuda.HalfTensor").dtype is torch.float16
assert torch.cuda.memory_allocated() > 0 and torch.cuda.memory.memory_allocated("cuda:1") > 0
assert torch.cuda.max_memory_allocated(0) >= torch.cuda.memory_allocated(0)
assert torch._C._cuda_getDeviceCount() == 2 and torch._C._cuda_getDevice() == 0
before = torch._C._cuda_exchangeDevice(1)
assert before == 0 and torch.cuda.current_device() == 1
torch._C._cuda_setDevice(0)
answer["stats"] = sorted(torch._C._cuda_memoryStats(0)["allocated_bytes"]["all"])
assert torch.backends.cuda.is_built() and torch.version.cuda
assert torch.nn.parallel.comm.gather([x, x.cuda(0)], destination=0).shape == (4, 3)
with torch.cuda.nvtx.range("part"):
    pass
assert x.__dlpack_device__() == (12, 1)
answer["refused"] = {}
for name, attempt in {
    "CUDAGraph": lambda: torch.cuda.CUDAGraph(),
    "utilization": lambda: torch.cuda.utilization(),
    "memory_snapshot": lambda: torch.cuda.memory.memory_snapshot(),
    "cuda array": lambda: x.__cuda_array_interface__,
    "share": lambda: x.untyped_storage()._share_cuda_(),
}.items():
    try:
        attempt()
    except (ditorch.NotSupportedError, AttributeError) as error:
        answer["refused"][name] = str(error)
assert not isinstance(3, torch.cuda.CUDAGraph)
def square(value):
    return torch.nn.functional.gelu(value).square().sum()
answer["compiled"] = []
for words in ({}, {"backend": "ascendgraph"}):
    torch._dynamo.reset()
    leaves = [x.detach().clone().requires_grad_() for _ in range(2)]
    results = [torch.compile(square, **words)(leaves[0]), square(leaves[1])]
    sum(results).backward()
    answer["compiled"].append(torch.equal(*results) and torch.equal(leaves[0].grad, leaves[1].grad))
import inspect
unanswered = [name for name in torch.cuda.__all__ if inspect.isfunction(getattr(torch.cuda, name))
              and getattr(torch.cuda, name).__module__.startswith("torch.cuda")]
answer["unanswered"] = unanswered
ditorch.uninstall()
assert not torch.cuda.is_available() and str(x.device) == a.device + ":1" and not x.is_cuda
assert (x + 1).sum().item() == 12 and torch.device("cuda") != x.device
assert torch.cuda.CUDAGraph.__new__ is object.__new__ or "ditorch" not in str(torch.cuda.CUDAGraph.__new__.__module__)
print(json.dumps(answer))
"""


@pytest.fixture(scope="module")
def host_losses():
    space = {}
    exec(TRAIN, space)
    import ditorch

    assert ditorch.backend == "host"
    return space["train"]()


def tour(backend, **environment):
    path = os.pathsep.join([child_environment()["PYTHONPATH"], FAKES])
    answer = run_python(TRAIN + TOUR, PYTHONPATH=path, DITORCH_BACKEND=backend, **environment)
    found = json.loads(answer.stdout.splitlines()[-1])
    found["said"] = [line for line in answer.stderr.splitlines() if "torch.compile" in line]
    return found


CASES = [(backend, alias) for backend in VENDORS for alias in ("binary", "python")]


@pytest.mark.parametrize("backend, alias", CASES, ids=["-".join(case) for case in CASES])
def test_program_for_cuda_runs_unchanged(backend, alias, host_losses):
    arch, package, device, capability = VENDORS[backend]
    answer = tour(backend, DITORCH_ALIAS=alias)
    assert answer["losses"] == host_losses
    assert answer["adapter"] == [arch, package, device, alias]
    shown = ["cuda:1", "device(type='cuda', index=1)", "cuda", "torch.cuda.FloatTensor", "cuda:0"]
    assert answer["device"] == shown
    assert answer["name"] == f"Fake {device} 1"
    assert answer["capability"] == [capability] * 4  # D4: it takes a device
    assert answer["refused device"] == f"Expected a {device} device, but got: cpu"
    assert "current" in answer["stats"] and answer["unanswered"] == ["check_error"]
    for name in ("CUDAGraph", "utilization"):
        text = f"torch.cuda.{name} is not supported on the {device} device of {package}"
        assert answer["refused"][name].startswith(text), answer["refused"][name]
    assert "torch.cuda.memory_snapshot" in answer["refused"]["memory_snapshot"]
    assert len(answer["refused"]) == 5
    assert answer["compiled"] == [True] * 2
    (said,) = answer["said"]  # once
    assert "operator by operator (aot_eager)" in said and f"this one belongs to {package}" in said


def test_real_name_is_printed_on_request(host_losses):
    answer = tour("npu", DITORCH_SHOW_DEVICE_AS_CUDA="0")
    assert answer["losses"] == host_losses
    assert answer["device"] == ["npu:1", "device(type='npu', index=1)", "npu", "torch.npu.FloatTensor", "npu:0"]


def test_alias_off_leaves_the_vendor_alone():
    path = os.pathsep.join([child_environment()["PYTHONPATH"], FAKES])
    answer = run_python(
        """
        import torch, ditorch
        print(ditorch.backend, torch.ones(2, device="npu").device, torch.cuda.is_available(), torch.device("cuda"))
        assert torch.compile(torch.sin, backend="ascendgraph")(torch.zeros(2, device="npu")).sum() == 0
        """,
        PYTHONPATH=path,
        DITORCH_BACKEND="npu",
        DITORCH_ALIAS="off",
    )
    assert answer.stdout.split() == ["npu", "npu:0", "False", "cuda"]


def test_compile_commands_say_that_there_is_no_engine(tmp_path):
    program = tmp_path / "train.py"
    program.write_text("import torch\nprint(torch.compile(torch.cos)(torch.zeros(2).cuda()).sum().item())\n")
    path = os.pathsep.join([child_environment()["PYTHONPATH"], FAKES])
    environment = {"PYTHONPATH": path, "DITORCH_BACKEND": "npu", "DITORCH_BANNER": 0}
    for word, status, said in (("--explain", 0, "graphs run operator by operator"), ("--check", 2, "nothing to check")):
        done = run_python("-m", "ditorch", "compile", word, program, check=False, **environment)
        assert done.returncode == status and done.stdout == "2.0\n" * (status == 0), done.stderr
        assert f"{said}: the graph engine runs devices of ditorch's own library" in done.stderr
        assert "this one belongs to torch_npu" in done.stderr and "Traceback" not in done.stderr
