"""Complete training programs written for CUDA: their losses on the device follow plain PyTorch on the CPU, and their
operators run in the operator library.

Noise and initial weights are drawn on the CPU in both runs. Tolerances: 1e-4 relative for fp32; the mixed-precision
program is compared with the same program in fp32, at the accuracy of fp16. Programs with chaotic dynamics (GAN, Adam
with tiny second moments) get more.
"""

import itertools
import json
import os

import pytest
import torch
from conftest import run_python

SCRIPTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "scripts")
TOLERANCES = {
    "gpt_amp": (2e-2, 1e-3),  # fp16 against fp32
    "resnet_cnn": (1e-3, 1e-4),  # batch norm over few elements amplifies rounding
    "lstm_lm": (1e-4, 1e-6),
    "vae": (1e-4, 1e-6),
    "dcgan": (1e-3, 1e-4),
    "dqn": (1e-3, 1e-5),
    "vit": (1e-4, 1e-5),
    "seq2seq": (1e-4, 1e-5),
    "multi_stream": (1e-4, 1e-6),
    "checkpoint_resume": (1e-4, 1e-6),
    "data_parallel": (1e-4, 1e-6),
}
ALSO_WITH_PYTHON_ALIAS = ["gpt_amp", "checkpoint_resume", "multi_stream", "resnet_cnn"]
ALLOWED = {}
"""{program: operators that still run on the CPU}. It may only shrink."""

PROGRAM = """
import contextlib, io, json, os, runpy, sys
import torch
if {device!r} == "cuda":
    import ditorch
    torch.ones(1, device="cuda")
for name in {names!r}:
    path = os.path.join({scripts!r}, name + ".py")
    sys.argv = [path, "--device", {device!r}]
    report, text = {{"name": name}}, io.StringIO()
    if {device!r} == "cuda":
        ditorch.reset_counters()
    with contextlib.redirect_stdout(text):
        runpy.run_path(path, run_name="__main__")
    if {device!r} == "cuda":
        for kind, rows in (("operators", ditorch.operators()), ("fallbacks", ditorch.fallbacks())):
            report[kind] = {{row["operator"]: row["calls"] for row in rows}}
    print(json.dumps({{**report, "text": text.getvalue()}}))
assert {device!r} == "cuda" or "ditorch" not in sys.modules
"""


def launch(names, device, **environment):
    """{program: report}, all of them in one child process: what it printed, and its operators in C and on the CPU."""
    program = PROGRAM.format(names=list(names), device=device, scripts=SCRIPTS)
    answer = run_python(program, timeout=1800, **environment)
    rows = [json.loads(line) for line in answer.stdout.splitlines() if line.startswith("{")]
    return {row["name"]: row for row in rows}


def losses(text):
    return {str(line["step"]): line["loss"] for line in map(json.loads, text.splitlines()) if "step" in line}


@pytest.fixture(scope="module")
def on_cpu():
    """Losses of plain PyTorch, once per program; this child process never loads ditorch."""
    return {name: losses(report["text"]) for name, report in launch(TOLERANCES, "cpu").items()}


@pytest.fixture(scope="module")
def on_device(request):
    """{(program, alias): report} for every pair that the collected tests ask for: a child process per alias, and one
    for the program that needs two devices."""
    items = [item for item in request.session.items if item.path.name == os.path.basename(__file__)]
    params = [item.callspec.params for item in items if hasattr(item, "callspec")]
    pairs, reports = {(p["name"], p.get("alias", "binary")) for p in params if "name" in p}, {}
    for alias, devices in itertools.product(("binary", "python"), (1, 2)):
        names = [name for name in TOLERANCES if (name, alias) in pairs and (name == "data_parallel") == (devices == 2)]
        if names:
            environment = {"DITORCH_BACKEND": "host", "DITORCH_ALIAS": alias, "DITORCH_HOST_DEVICES": devices}
            found = launch(names, "cuda", **environment)
            reports.update({(name, alias): report for name, report in found.items()})
    return reports


def test_every_program_is_listed_and_never_mentions_us():
    files = [f for f in os.listdir(SCRIPTS) if f.endswith(".py") and not f.startswith("dist_")]  # test_distributed.py's
    names = {f.removesuffix(".py") for f in files}
    assert names == set(TOLERANCES)
    for name in names:
        with open(os.path.join(SCRIPTS, name + ".py")) as file:
            assert "ditorch" not in file.read().lower()


def compare(name, text, wanted):
    mine = losses(text)
    assert list(mine) == list(wanted) and len(wanted) >= 5
    rtol, atol = TOLERANCES[name]
    for step in wanted:
        a, b = (torch.tensor(side[step], dtype=torch.float64) for side in (mine, wanted))
        torch.testing.assert_close(
            a, b, rtol=rtol, atol=atol, msg=lambda text, step=step: f"{name}, step {step}: {text}"
        )


PAIRS = [(name, "binary") for name in TOLERANCES] + [
    pytest.param(name, "python", marks=() if name in ALSO_WITH_PYTHON_ALIAS else pytest.mark.full)
    for name in TOLERANCES
]


@pytest.mark.parametrize("name,alias", PAIRS)
def test_losses_follow_the_cpu(name, alias, on_device, on_cpu):
    compare(name, on_device[name, alias]["text"], on_cpu[name])


@pytest.mark.parametrize("name", ["gpt_amp", *(pytest.param(n, marks=pytest.mark.full) for n in list(TOLERANCES)[1:])])
def test_as_a_command(name, on_cpu):
    """A program as a user starts it, in a process of its own."""
    settings = {"DITORCH_HOST_DEVICES": 2} if name == "data_parallel" else {}
    answer = run_python("-m", "ditorch", os.path.join(SCRIPTS, name + ".py"), "--device", "cuda", **settings)
    compare(name, answer.stdout, on_cpu[name])


@pytest.mark.parametrize("name", [name for name in TOLERANCES if name != "data_parallel"])
def test_nothing_falls_back(name, on_device):
    """The programs train and evaluate in C alone, but for what is allowed here."""
    report = on_device[name, "binary"]
    assert set(report["fallbacks"]) == ALLOWED.get(name, set()), "take out what no longer falls back"
    assert sum(report["operators"].values()) > 100 and len(report["operators"]) > 10


def test_a_broken_operator_changes_the_losses_and_a_fallback_is_noticed(on_cpu):
    """The comparisons can fail."""
    broken = {"DITORCH_FAULT": "value:aten::native_layer_norm*,scale=0.1", "DITORCH_FORCE_FALLBACK": "gelu"}
    report = launch(["vit"], "cuda", DITORCH_BACKEND="host", **broken)["vit"]
    with pytest.raises(AssertionError, match="vit, step"):
        compare("vit", report["text"], on_cpu["vit"])
    assert set(report["fallbacks"]) == {"aten::gelu"}
