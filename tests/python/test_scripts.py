"""Complete training programs written for CUDA: their losses on the device follow plain PyTorch on the CPU.

Noise and initial weights are drawn on the CPU in both runs. Tolerances: 1e-4 relative for fp32; the mixed-precision program is compared
with the same program in fp32, at the accuracy of fp16. Programs with chaotic dynamics (GAN, Adam with tiny second moments) get more.
"""

import json
import os
import subprocess
import sys

import pytest
import torch

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
    answer = subprocess.run([sys.executable, "-c", code], env={**environment, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    return {name: losses(text) for name, text in json.loads(answer.stdout.splitlines()[-1]).items()}


def test_every_program_is_listed_and_never_mentions_us():
    names = {f.removesuffix(".py") for f in os.listdir(SCRIPTS) if f.endswith(".py")}
    assert names == set(TOLERANCES)
    for name in names:
        with open(os.path.join(SCRIPTS, name + ".py")) as file:
            assert "ditorch" not in file.read().lower()


def compare(name, python, on_cpu, **environment):
    if name == "data_parallel":
        environment["DITORCH_HOST_DEVICES"] = 2
    answer = python("-m", "ditorch", os.path.join(SCRIPTS, name + ".py"), "--device", "cuda", **environment)
    mine, wanted = losses(answer.stdout), on_cpu[name]
    assert list(mine) == list(wanted) and len(wanted) >= 5
    rtol, atol = TOLERANCES[name]
    for step in wanted:
        torch.testing.assert_close(torch.tensor(mine[step], dtype=torch.float64), torch.tensor(wanted[step], dtype=torch.float64),
                                   rtol=rtol, atol=atol, msg=lambda text, step=step: f"{name}, step {step}: {text}")


@pytest.mark.parametrize("name", TOLERANCES)
def test_losses_follow_the_cpu(name, python, on_cpu):
    compare(name, python, on_cpu, DITORCH_ALIAS="binary")


@pytest.mark.parametrize("name", ALSO_WITH_PYTHON_ALIAS)
def test_losses_follow_the_cpu_with_the_python_alias(name, python, on_cpu):
    compare(name, python, on_cpu, DITORCH_ALIAS="python")


@pytest.mark.full
@pytest.mark.parametrize("name", [n for n in TOLERANCES if n not in ALSO_WITH_PYTHON_ALIAS])
def test_losses_follow_the_cpu_with_the_python_alias_others(name, python, on_cpu):
    compare(name, python, on_cpu, DITORCH_ALIAS="python")


def test_a_broken_operator_changes_the_losses(python, on_cpu):
    """The comparison can fail: a wrong value in one operator is noticed."""
    with pytest.raises(AssertionError, match="vit, step"):
        compare("vit", python, on_cpu, DITORCH_FAULT="value:aten::native_layer_norm*,scale=0.1")
