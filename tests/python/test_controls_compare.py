"""Autocompare of the controls: the judge's verdict on what an operator did, whatever ran inside, faults included; few
lines, all calls counted."""

import re
import subprocess
import sys
import threading

import ditorch
import pytest
import torch
from conftest import child_environment
from ditorch import controls
from torch import nn
from torch.nn import functional as F


@pytest.fixture(autouse=True)
def all_off():
    torch.ones(1, device="cuda")
    controls.reset_report()
    yield
    ditorch.fault("")
    controls.use(force_fallback="", autocompare="", dump_op_args=-1)


def counts(*names):
    """{operator: (compared, wrong, unknown)}"""
    return {
        row["operator"]: (row["compared"], row["wrong"], row["unknown"])
        for row in controls.rows()
        if not names or row["operator"] in names
    }


def random(*sizes, dtype=torch.float32):
    return torch.randn(*sizes, device="cuda").to(dtype)


# What is wrong is seen, and named


def add_out():
    torch.add(random(8, 9), random(8, 9), out=torch.empty(8, 9, device="cuda"))


def in_place_on_a_view():
    base = random(6, 8)
    base[:, 2:5].mul_(base[:, 3:6].clone())


def overlapping_views():
    base = random(40)
    base[:20].add_(base[20:])


CALLS = {
    "float32": ("mm", "aten::mm", lambda: random(8, 8) @ random(8, 8)),
    "float64": ("mul", "aten::mul.Tensor", lambda: random(9, 9, dtype=torch.float64) * 3.1),
    "bfloat16": ("mul", "aten::mul.Tensor", lambda: random(9, 9, dtype=torch.bfloat16) * 3),
    "float16": ("_softmax", "aten::_softmax", lambda: random(9, 9, dtype=torch.float16).softmax(1)),
    "int": ("add", "aten::add.Tensor", lambda: torch.arange(70, device="cuda") + 3),
    "bool": ("eq", "aten::eq.Tensor", lambda: torch.eq(random(9), random(9))),
    "complex": ("mul", "aten::mul.Tensor", lambda: random(9, 9, dtype=torch.complex64) * (1 + 2j)),
    "in-place": ("add_", "aten::add_.Tensor", lambda: random(9, 9).add_(random(9))),
    "out=": ("add", "aten::add.out", add_out),
    "foreach": (
        "_foreach_add",
        "aten::_foreach_add.List",
        lambda: torch._foreach_add([random(9)] * 2, [random(9)] * 2),
    ),
    "view": ("mul_", "aten::mul_.Tensor", in_place_on_a_view),
    "overlap": ("add_", "aten::add_.Tensor", overlapping_views),
    "strided": ("div", "aten::div.Tensor", lambda: random(9, 8).t() / random(8, 9)),
    "fallback": ("atan2", "aten::atan2", lambda: torch.atan2(random(9), random(9))),
    "composite": ("convolution", "aten::convolution", lambda: F.conv2d(random(1, 2, 6, 6), random(3, 2, 3, 3))),
}


@pytest.mark.parametrize("kind", CALLS)
@pytest.mark.parametrize("fault", ["value:{},scale=0.1", "nan:{}", "unwritten:{}"])
def test_a_broken_operator_is_named(kind, fault, capfd):
    pattern, name, call = CALLS[kind]
    with controls.use(autocompare=name):
        call()
        assert counts(name)[name] == (1, 0, 0), capfd.readouterr().out
        with ditorch.fault(fault.format(pattern)) as injected:
            call()
            assert injected.count == 1
    assert counts(name)[name] == (2, 1, 0)
    text = capfd.readouterr().out
    assert f"autocompare: {name}: allclose" in text
    wrong = re.search(rf"^autocompare:{re.escape(name)} result 0(\[0\])?: not_close, (\d+) of \d+", text, re.M)
    assert wrong and (wrong[2] == "1" or fault.startswith("unwritten"))  # and nothing else: the references are right


def test_a_modified_input_is_named(capfd):
    with controls.use(autocompare="mul"), ditorch.fault("input:mul"):
        random(9) * random(9)
    text = capfd.readouterr().out
    assert "autocompare:aten::mul.Tensor result 0: allclose" in text
    assert re.search(r"^autocompare:aten::mul\.Tensor self: not_close, 1 of 9", text, re.M)


def test_an_error_of_a_few_roundings_is_seen_and_the_cpus_own_error_is_told(capfd):
    x = random(64, 64)
    with controls.use(autocompare="mul"), ditorch.fault("value:mul,scale=1e-5"):
        x * x
    found = re.search(
        r"error: (\S+), allowed: (\S+), the CPU's own error: (\S+), index: \[0, 0\]", capfd.readouterr().out
    )
    error, allowed, own = map(float, found.groups())
    assert error > allowed > 0 and own > 0


def test_fixed_tolerances_would_not_do():
    """A sound bfloat16 product is off by far more than a broken float32 sum."""
    with controls.use(autocompare="mm,add"):
        x = random(64, 512, dtype=torch.bfloat16)
        x @ x.t()
        with ditorch.fault("precision:add,bits=20"):
            random(64, 64) + random(64, 64)
    assert counts() == {"aten::mm": (1, 0, 0), "aten::add.Tensor": (1, 1, 0)}


def test_running_statistics_are_written_once_per_run():
    norm = nn.BatchNorm2d(3).cuda()
    with controls.use(autocompare=".*batch_norm.*"):
        for _ in range(2):
            norm(random(4, 3, 5, 5))
    assert [row[1:] for row in counts().values()] == [(0, 0)] * len(counts()) and counts()


# What is right is right


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        q, k, v = self.qkv(self.norms[0](x)).view(*x.shape[:2], 3, 4, -1).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).tril().softmax(-1)
        x = x + self.out((weights @ v).transpose(1, 2).flatten(2))
        return x + self.mlp(self.norms[1](x))


def gpt():
    model = nn.Sequential(nn.Embedding(50, 32), Block(32), Block(32), nn.LayerNorm(32), nn.Linear(32, 50))
    return model.cuda(), torch.randint(50, (2, 16), device="cuda"), torch.randint(50, (2, 16), device="cuda")


def cnn():
    model = nn.Sequential(
        *(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.1)),
        *(nn.Conv2d(8, 8, 3, stride=2), nn.GroupNorm(2, 8), nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        nn.Linear(8, 10),
    )
    return model.cuda(), random(4, 3, 16, 16), torch.randint(10, (4,), device="cuda")


def train(make, dtype, foreach):
    model, x, y = make()
    optimizer = torch.optim.AdamW(model.parameters(), foreach=foreach)
    scaler = torch.amp.GradScaler("cuda", enabled=dtype == torch.float16)
    for _ in range(2):
        with torch.autocast("cuda", dtype, enabled=dtype != torch.float32):
            loss = F.cross_entropy(model(x).flatten(0, -2), y.flatten())
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("make", [gpt, cnn])
def test_sound_training_is_right(make, dtype, capfd):
    with controls.use(autocompare=".*"):
        train(make, dtype, foreach=dtype != torch.bfloat16)
    text = capfd.readouterr().out
    assert "not_close" not in text
    found = counts()
    assert sum(row[0] for row in found.values()) > 100 and not any(row[1] for row in found.values())
    assert not [row for row in controls.rows() if row["unknown"]], text
    assert len(text.splitlines()) <= 2 * len(controls.rows())


def test_one_broken_operator_among_all_of_a_training():
    with controls.use(autocompare=".*"), ditorch.fault("value:native_layer_norm_backward"):
        train(gpt, torch.float32, True)
    assert {name for name, row in counts().items() if row[1]} == {"aten::native_layer_norm_backward"}


# Lines, counts, threads


def test_few_lines_and_all_calls_counted(capfd):
    x = random(9, 9)
    with controls.use(autocompare="mm,add"):
        for _ in range(30):
            x @ x
        with ditorch.fault("value:add"):
            for _ in range(30):
                x + x
    text = capfd.readouterr().out
    assert text.count("autocompare: aten::mm: allclose\n") == 1 and "autocompare:aten::mm" not in text
    assert text.count("autocompare:aten::add.Tensor\n") == 10
    assert text.count("not_close again; from now on counted alone") == 1
    assert counts() == {"aten::mm": (30, 0, 0), "aten::add.Tensor": (30, 30, 0)}
    assert re.search(r"aten::add\.Tensor +30 +30 +0 +0 +0", controls.report())
    assert controls.report().startswith("autocompare: 60 calls of 2 operators compared, 30 wrong\n")


def test_a_fallback_says_so(capfd):
    with controls.use(autocompare="mm,atan2", force_fallback="mm"):
        random(3, 3) @ random(3, 3)
        torch.atan2(random(3), random(3))
    lines = capfd.readouterr().out.splitlines()
    assert lines == [f"autocompare: aten::{name}: allclose, ran on the CPU" for name in ("mm", "atan2")]
    assert all(row["on_cpu"] == 1 for row in controls.rows())


def test_a_result_that_is_not_unique_is_unknown(capfd):
    with controls.use(autocompare="linalg_qr"), ditorch.fault("value:linalg_qr,scale=0.1"):
        torch.linalg.qr(random(5, 5))
    assert counts()["aten::linalg_qr.out" if "aten::linalg_qr.out" in counts() else "aten::linalg_qr"] == (1, 0, 1)
    assert re.search(r"autocompare: aten::linalg_qr\S*: unknown, result 0: unknown, .*sign", capfd.readouterr().out)


def test_the_table_is_printed_at_exit(python):
    text = python(
        "import torch, ditorch\nx = torch.ones(3, 3, device='cuda')\nx @ x\n", DITORCH_AUTOCOMPARE="mm,uniform_"
    ).stdout
    assert re.search(r"autocompare: 1 calls of 1 operators compared, 0 wrong\n.*\n +aten::mm +1 +0 ", text)


def test_an_unknown_name_in_the_environment_is_told():
    answer = subprocess.run(
        [sys.executable, "-c", "import ditorch"],
        capture_output=True,
        text=True,
        env=child_environment(DITORCH_AUTOCOMPARE="sofmax"),
        check=True,
    )
    assert "'sofmax' matches no operator; the nearest are softmax" in answer.stderr


def test_blocks_of_threads_are_not_mixed(capfd):
    def work():
        x = random(20, 20)
        for _ in range(10):
            x @ x

    with controls.use(autocompare="mm", dump_op_args=1):
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    lines = [line for line in capfd.readouterr().out.splitlines() if not line.startswith("--[")]
    heads = ["", " result 0: allclose", " self: allclose", " mat2: allclose"]
    block = [re.compile(re.escape("autocompare:aten::mm" + heads[0]))]
    for head in heads[1:]:
        block += map(
            re.compile,
            [re.escape("autocompare:aten::mm" + head), "\tdevice: .*", r"\t\t\[.*", "\tcpu: .*", r"\t\t\[.*"],
        )
    assert len(lines) == 40 * len(block)
    for i, line in enumerate(lines):
        assert block[i % len(block)].fullmatch(line), (i, line)
    assert counts("aten::mm")["aten::mm"] == (40, 0, 0)
