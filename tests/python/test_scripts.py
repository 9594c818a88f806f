"""Complete training programs written for CUDA: their losses on the device follow plain PyTorch on the CPU.

Noise and initial weights are drawn on the CPU in both runs. Tolerances: 1e-4 relative for fp32; the mixed-precision
program is compared with the same program in fp32, at the accuracy of fp16. Programs with chaotic dynamics (GAN, Adam
with tiny second moments) get more.
"""

import concurrent.futures
import json
import os
import subprocess
import sys

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


def losses(text):
    return {str(line["step"]): line["loss"] for line in map(json.loads, text.splitlines()) if "step" in line}


@pytest.fixture(scope="module")
def on_cpu():
    """Losses of plain PyTorch, once per program, all in one child process that never loads ditorch."""
    code = f"""
import contextlib, io, json, os, runpy, sys, warnings
warnings.simplefilter("ignore")
results = {{}}
for name in {list(TOLERANCES)!r}:
    sys.argv = [name, "--device", "cpu"]
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        runpy.run_path(os.path.join({SCRIPTS!r}, name + ".py"), run_name="__main__")
    results[name] = text.getvalue()
assert "ditorch" not in sys.modules
print(json.dumps(results))
"""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("DITORCH")}
    answer = subprocess.run(
        [sys.executable, "-c", code], env={**environment, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True
    )
    assert answer.returncode == 0, answer.stderr
    return {name: losses(text) for name, text in json.loads(answer.stdout.splitlines()[-1]).items()}


def test_every_program_is_listed_and_never_mentions_us():
    files = [f for f in os.listdir(SCRIPTS) if f.endswith(".py") and not f.startswith("dist_")]  # test_distributed.py's
    names = {f.removesuffix(".py") for f in files}
    assert names == set(TOLERANCES)
    for name in names:
        with open(os.path.join(SCRIPTS, name + ".py")) as file:
            assert "ditorch" not in file.read().lower()


def launch(name, alias, **environment):
    if name == "data_parallel":
        environment["DITORCH_HOST_DEVICES"] = 2
    path = os.path.join(SCRIPTS, name + ".py")
    return run_python("-m", "ditorch", path, "--device", "cuda", DITORCH_ALIAS=alias, check=False, **environment)


@pytest.fixture(scope="module")
def on_device(request):
    """{(program, alias): child process} for every pair that the collected tests ask for; two at a time."""
    wanted = [
        item.callspec.params
        for item in request.session.items
        if item.function.__name__.startswith("test_losses_follow")
    ]
    pairs = [(p["name"], p["alias"]) for p in wanted]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return dict(zip(pairs, pool.map(lambda pair: launch(*pair), pairs), strict=False))


def compare(name, answer, wanted):
    assert answer.returncode == 0, answer.stdout[-2000:] + answer.stderr[-4000:]
    mine = losses(answer.stdout)
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
    compare(name, on_device[name, alias], on_cpu[name])


def test_a_broken_operator_changes_the_losses(on_cpu):
    """The comparison can fail: a wrong value in one operator is noticed."""
    with pytest.raises(AssertionError, match="vit, step"):
        compare("vit", launch("vit", "binary", DITORCH_FAULT="value:aten::native_layer_norm*,scale=0.1"), on_cpu["vit"])
