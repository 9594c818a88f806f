"""Training programs on the operator library: which operators of each still run on the CPU.

The lists below may only shrink: an operator that falls back and is not listed fails the test, and so does a listed one
that no longer falls back. The GPT, the CNN, the ViT and the encoder-decoder train and evaluate without any.
"""

import json
import os

import pytest
from conftest import run_python

SCRIPTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "scripts")
ALLOWED = {
    "gpt_amp": set(),
    "resnet_cnn": set(),
    "vit": set(),
    "seq2seq": set(),
    "lstm_lm": set(),
    "vae": set(),
    "dcgan": set(),
    "dqn": set(),
    "multi_stream": set(),
    "checkpoint_resume": set(),
}

PROGRAM = """
import contextlib, io, json, os, runpy, sys
import torch, ditorch
torch.ones(1, device="cuda")
for name in {names!r}:
    path = os.path.join({scripts!r}, name + ".py")
    sys.argv = [path, "--device", "cuda"]
    ditorch.reset_counters()
    with contextlib.redirect_stdout(io.StringIO()):
        runpy.run_path(path, run_name="__main__")
    c, fallback = ditorch.operators(), ditorch.fallbacks()
    print(json.dumps({{
        "name": name,
        "fallbacks": sorted(row["operator"] for row in fallback),
        "operators": sorted(row["operator"] for row in c),
        "calls": [sum(row["calls"] for row in table) for table in (c, fallback)],
    }}))
"""


def launch(names, **environment):
    """{program: report}, all of them in one child process."""
    program = PROGRAM.format(names=names, scripts=SCRIPTS)
    answer = run_python(program, DITORCH_BACKEND="host", **environment)
    rows = [json.loads(line) for line in answer.stdout.splitlines() if line.startswith("{")]
    return {row["name"]: row for row in rows}


@pytest.fixture(scope="module")
def reports():
    return launch(list(ALLOWED))


@pytest.mark.parametrize("name", ALLOWED)
def test_nothing_new_falls_back(name, reports, record_property):
    report = reports[name]
    found = set(report["fallbacks"])
    record_property("operators in C", len(report["operators"]))
    record_property("calls in C and on the CPU", report["calls"])
    assert not found - ALLOWED[name], f"{name} falls back on operators that are not listed"
    assert not ALLOWED[name] - found, f"{name} no longer falls back on these: take them out of the list"
    assert report["calls"][0] > 100 and len(report["operators"]) > 10


def test_a_fallback_is_noticed():
    """Red: an operator that is made to fall back is in the report."""
    found = launch(["vit"], DITORCH_FORCE_FALLBACK="native_layer_norm")["vit"]
    assert found["fallbacks"] == ["aten::native_layer_norm"]
