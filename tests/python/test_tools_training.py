"""Real training under each watching tool: the numbers do not change by a bit, nothing leaks, and the program's own
exceptions, signals, threads and processes behave as without a tool."""

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import ditorch  # noqa: F401
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from conftest import child_environment, warm_interpreter
from op_tools import OpCapture, OpObserve, OpOverflowCheck, OpTimeMeasure

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "examples"))
from gpt import GPT

DEVICE = "cuda"
TOOLS = {
    "observe": lambda: OpObserve(console="off"),
    "time": lambda: OpTimeMeasure(console="off"),
    "overflow": lambda: OpOverflowCheck(console="off"),
    "capture": lambda: OpCapture(console="off", layout="packed"),
}
pytestmark = pytest.mark.usefixtures("results")


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


# models: each returns a function that makes one step and gives the loss


def gpt():
    model = GPT(32, 16, 32, 2, 2, dropout=0.1).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)

    def step():
        tokens = torch.randint(0, 32, (2, 17), device=DEVICE)
        _, loss = model(tokens[:, :-1], tokens[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    return step


def cnn():
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten(),
        nn.Dropout(0.2), nn.Linear(4 * 16, 5),
    ).to(DEVICE)  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def step():
        x, y = torch.randn(4, 1, 8, 8, device=DEVICE), torch.randint(0, 5, (4,), device=DEVICE)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def lstm():
    model = nn.ModuleDict({"embedding": nn.Embedding(20, 8), "lstm": nn.LSTM(8, 12, 2), "head": nn.Linear(12, 20)}).to(
        DEVICE
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    def step():
        tokens = torch.randint(0, 20, (6, 3), device=DEVICE)
        out, (hidden, _) = model["lstm"](model["embedding"](tokens))
        loss = F.cross_entropy(model["head"](out).flatten(0, 1), tokens.flatten()) + hidden.pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return step


def amp():
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 1)).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cuda", init_scale=2.0**10)

    def step():
        x = torch.randn(4, 8, device=DEVICE)
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = F.mse_loss(model(x), torch.zeros(4, 1, device=DEVICE))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss

    return step


def checkpointed(reentrant):
    from torch.utils.checkpoint import checkpoint

    block = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Dropout(0.1), nn.Linear(8, 8)).to(DEVICE)
    optimizer = torch.optim.SGD(block.parameters(), lr=0.01)

    def step():
        x = torch.randn(4, 8, device=DEVICE, requires_grad=True)
        optimizer.zero_grad()
        loss = checkpoint(block, x, use_reentrant=reentrant).pow(2).sum()
        loss.backward()
        optimizer.step()
        return loss

    return step


MODELS = {
    "gpt": gpt,
    "cnn": cnn,
    "lstm": lstm,
    "amp": amp,
    "checkpoint": lambda: checkpointed(False),
    "checkpoint reentrant": lambda: checkpointed(True),
}
_bare = {}


def train(name, tool=None, steps=10):
    torch.manual_seed(7)
    step = MODELS[name]()
    losses = []
    for _ in range(steps):
        if tool is not None:
            with tool:
                losses.append(step().item())
                tool.step()
        else:
            losses.append(step().item())
    return losses


def bare(name):
    if name not in _bare:
        _bare[name] = train(name)
    return _bare[name]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("tool", TOOLS)
def test_losses_are_bitwise_equal(tool, model):
    watched = TOOLS[tool]()
    assert train(model, watched) == bare(model)
    assert watched.counts()["applied"] > 0


def test_losses_are_bitwise_equal_under_all_tools_at_once():
    tools = [make() for make in TOOLS.values()]
    torch.manual_seed(7)
    step = MODELS["gpt"]()
    for tool in tools:
        tool.start()
    losses = [step().item() for _ in range(10)]
    for tool in tools:
        tool.stop()
    assert losses == bare("gpt")


@pytest.mark.parametrize("tool", TOOLS)
def test_losses_are_bitwise_equal_at_aten_level(tool):
    watched = {
        "observe": lambda: OpObserve(console="off", level="aten"),
        "time": lambda: OpTimeMeasure(console="off", level="aten"),
        "overflow": lambda: OpOverflowCheck(console="off", level="aten"),
        "capture": lambda: OpCapture(console="off", layout="packed", level="aten"),
    }[tool]()
    assert train("gpt", watched, 5) == bare("gpt")[:5]
    assert watched.counts()["applied"] > 100


@pytest.mark.parametrize("tool", TOOLS)
def test_two_tools_of_a_kind_and_restarts(tool):
    first, second = TOOLS[tool](), TOOLS[tool]()
    step = MODELS["cnn"]()
    step()  # the first one makes the momentum buffers
    first.start()
    step()
    second.start()
    step()
    first.end()
    step()
    second.stop()
    assert first.counts()["applied"] == second.counts()["applied"] > 0


@pytest.mark.parametrize("tool", TOOLS)
def test_exception_in_the_middle(tool):
    watched = TOOLS[tool]()
    a, b = torch.ones(2, 3, device=DEVICE), torch.ones(2, 3, device=DEVICE)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"), watched:
        a.mul(2)
        torch.mm(a, b)
    assert not watched.is_active and torch._C._len_torch_function_stack() == 0
    with watched:
        (a + b).sum()
    assert watched.counts()["applied"] == 2


@pytest.mark.parametrize("tool", TOOLS)
def test_exception_in_a_custom_backward(tool):
    class Broken(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            raise ZeroDivisionError("in the user's backward")

    watched = TOOLS[tool]()
    x = torch.ones(3, device=DEVICE, requires_grad=True)
    with pytest.raises(ZeroDivisionError, match="user's backward"), watched:
        Broken.apply(x).sum().backward()
    assert train("cnn", watched, 3) == bare("cnn")[:3]


@pytest.mark.parametrize("tool", TOOLS)
def test_threads(tool):
    watched = {
        "observe": lambda: OpObserve(console="off", threads="all"),
        "time": lambda: OpTimeMeasure(console="off", threads="all"),
        "overflow": lambda: OpOverflowCheck(console="off", threads="all"),
        "capture": lambda: OpCapture(console="off", layout="packed", threads="all"),
    }[tool]()
    failures = []

    def work():
        try:
            w = torch.ones(4, 4, device=DEVICE, requires_grad=True)
            for _ in range(20):
                (w @ w).relu().sum().backward()
        except Exception as error:
            failures.append(error)

    with watched:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures and watched.counts()["applied"] >= 4 * 20 * 3


def rss():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif("libasan" in os.environ.get("LD_PRELOAD", ""), reason="AddressSanitizer keeps freed memory")
@pytest.mark.parametrize("tool", TOOLS)
def test_many_uses_leak_nothing(tool):
    x = torch.ones(8, 8, device=DEVICE, requires_grad=True)

    def once():
        with TOOLS[tool]() as watched:
            (x @ x).relu().sum().backward()
            x.grad = None
            watched.step()

    for _ in range(100):
        once()
    gc.collect()
    objects, memory = len(gc.get_objects()), rss()
    for _ in range(250):
        once()
    gc.collect()
    assert len(gc.get_objects()) - objects < 50
    assert rss() - memory < 6 << 20


# Processes


def test_ctrl_c_ends_the_program_and_keeps_the_results(results):
    script = results / "loop.py"
    script.write_text(
        textwrap.dedent("""
        import signal, torch, ditorch
        from op_tools import OpObserve, OpTimeMeasure
        signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in background jobs of a shell
        x = torch.ones(64, 64, device="cuda")
        with OpObserve(), OpTimeMeasure():
            print("ready", flush=True)
            while True:
                (x @ x).sum()
        """)
    )
    child = subprocess.Popen(
        [warm_interpreter(), str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=child_environment(),
    )
    while "ready" not in child.stdout.readline():
        assert child.poll() is None, child.stderr.read()
    time.sleep(0.5)
    child.send_signal(signal.SIGINT)
    try:
        out, err = child.communicate(timeout=600)
    finally:
        child.kill()
    assert "KeyboardInterrupt" in err and child.returncode in (-signal.SIGINT, 130, 1)
    assert "OpObserve" in out + err and "OpTimeMeasure" in out + err
    from ditorch import export

    kinds = {record["type"] for record in export.read([str(results)])}
    assert {"call", "time", "tool"} <= kinds


def test_two_processes_by_torchrun(results):
    script = results / "ranks.py"
    script.write_text(
        textwrap.dedent("""
        import torch, ditorch
        import torch.distributed as dist
        from op_tools import OpCapture, OpObserve, OpOverflowCheck, OpTimeMeasure
        dist.init_process_group("gloo")
        torch.manual_seed(dist.get_rank())
        model = torch.nn.Linear(4, 4).to("cuda")
        with OpObserve(console="off"), OpTimeMeasure(console="off"), OpOverflowCheck(console="off"), \\
             OpCapture(console="off"):
            for _ in range(3):
                loss = model(torch.randn(2, 4, device="cuda")).pow(2).sum()
                loss.backward()
                for p in model.parameters():
                    grad = p.grad.cpu()
                    dist.all_reduce(grad)
                    p.data.sub_(grad.to("cuda") * 0.01)
                    p.grad = None
        dist.destroy_process_group()
        """)
    )
    command = [warm_interpreter(), "-m", "torch.distributed.run", "--nproc-per-node=2", "--master-port=0",
               "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", str(script)]  # fmt: skip
    settings = child_environment(PYTHON_EXEC=warm_interpreter())
    answer = subprocess.run(command, capture_output=True, text=True, timeout=900, env=settings)
    assert answer.returncode == 0, answer.stdout[-3000:] + answer.stderr[-3000:]
    logs = sorted(str(path) for path in results.rglob("*.dlog"))
    assert len(logs) == 2 and "-r0-" in logs[0] and "-r1-" in logs[1]
    from ditorch import export

    ranks = {record["rank"] for record in export.read(logs) if record["type"] == "call"}
    assert ranks == {0, 1}
    inputs = sorted(str(path) for path in results.rglob("input.pth"))
    assert any("rank0" in path for path in inputs) and any("rank1" in path for path in inputs)
    torch.load(inputs[0], weights_only=True)


def test_dataloader_workers_are_left_alone(results):
    script = results / "loader.py"
    script.write_text(
        textwrap.dedent("""
        import torch, ditorch
        from op_tools import OpObserve
        class Data(torch.utils.data.Dataset):
            def __len__(self): return 8
            def __getitem__(self, i): return torch.ones(3) * i
        tool = OpObserve(console="off")
        with tool:
            loader = torch.utils.data.DataLoader(Data(), 2, num_workers=2)
            total = sum(batch.to("cuda").sum().item() for batch in loader)
        print("total", total, tool.counts()["applied"])
        """)
    )
    answer = subprocess.run(
        [warm_interpreter(), str(script)], capture_output=True, text=True, timeout=900, env=child_environment()
    )
    assert answer.returncode == 0, answer.stderr[-3000:]
    assert "total 84.0" in answer.stdout
    assert len(list(results.rglob("*.dlog"))) == 1


def test_mode_first_active_during_compile_does_not_poison_the_model():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).to(DEVICE)
    compiled = torch.compile(model, backend="eager")
    x = torch.randn(2, 4, device=DEVICE)
    tool = OpObserve(console="off")
    with tool:
        first = compiled(x)
    assert tool.counts()["applied"] >= 2
    assert torch.equal(first, model(x)) and torch.equal(compiled(x), model(x))
    before = tool.counts()["applied"]
    compiled(x)
    assert tool.counts()["applied"] == before
