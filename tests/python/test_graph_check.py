"""DITORCH_COMPILE_CHECK: compiled graphs beside eager ones; plans that are wrong on purpose are named."""

import os
import subprocess
import sys

import ditorch  # noqa: F401
import pytest
import torch
from conftest import child_environment
from ditorch.graph import check

pytestmark = pytest.mark.usefixtures("warm_children")

INDEX, TAIL, REUSE, ALIAS = 1, 2, 3, 4
NAMES = {INDEX: ["value"], TAIL: ["value"], REUSE: ["overwritten"], ALIAS: ["alias", "value"]}
"""A view that the step reads which makes its memory shows as a wrong value of the operator that reads it."""


@pytest.fixture(autouse=True)
def checking(monkeypatch, tmp_path):
    monkeypatch.setenv("DITORCH_COMPILE_CHECK", "1")
    monkeypatch.setenv("DITORCH_COMPILE_CHECK_DIR", str(tmp_path / "found"))
    torch._dynamo.reset()
    check.findings().clear()
    yield
    torch.ops.ditorch.graph_set_mistake(0, 0)


def normalize(x, w):
    y = torch.nn.functional.gelu(x * w + 1)
    z = y - y.mean(-1, keepdim=True)
    left, right = (z @ z.T).chunk(2, -1)
    total = torch.softmax(left, -1) + right.tanh()
    return total.sum(0), total * 2, (z.T + 1)[1:].exp()


def run(function, *sizes):
    torch.manual_seed(1)
    args = [torch.randn(*size, device="cuda") for size in sizes]
    return torch.compile(function, backend="dit", dynamic=False)(*args)


def test_right_graphs_say_nothing(capsys):
    run(normalize, (8, 8), (8,))
    assert check.findings() == []
    assert "something else" not in capsys.readouterr().err


def test_training_and_dropout_are_checked():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.5), torch.nn.LayerNorm(16)).cuda()
    x = torch.randn(4, 8, device="cuda")
    torch.compile(model, backend="dit")(x).square().mean().backward()
    assert check.findings() == []


def attention(x, w):
    scores = (x * w) @ x.transpose(-1, -2) / 3
    scores = torch.where(torch.arange(8, device=x.device) > 1, scores, float("-inf"))
    weights = torch.softmax(scores, -1)
    out = weights @ (x + 1)
    return out.relu() * w, weights.amax(-1), (out - x).square().mean(0)


def columns(x, w):
    y = (x * w).sigmoid()
    z = y.sum(0) + y.amax(0)
    u = (y @ y).exp() * z
    return u[2:].sum(1) + z[2:], u.T.reshape(-1)[8:] * 2, torch.nn.functional.layer_norm(u + y, (8,))


def count_named(function, kind, most):
    """(plans with the mistake that changed a result, those of them whose finding names the place)."""
    torch.ops.ditorch.graph_set_mistake(0, 0)
    torch._dynamo.reset()
    wanted = [t.clone() for t in run(function, (8, 8), (8,))]
    seen = named = 0
    for which in range(most):
        torch._dynamo.reset()
        check.findings().clear()
        torch.ops.ditorch.graph_set_mistake(kind, which)
        got = run(function, (8, 8), (8,))
        place = torch.ops.ditorch.graph_get_mistake()
        if place < 0:
            break
        if all(torch.allclose(a, b, rtol=1e-3, atol=1e-5, equal_nan=True) for a, b in zip(got, wanted, strict=True)):
            continue
        seen += 1
        found = check.findings()
        is_place = kind not in (INDEX, TAIL) or (found and place in [found[0].step, *found[0].spans])
        if found and found[0].cause in NAMES[kind] and is_place:
            named += 1
        else:
            print("not named:", function.__name__, kind, which, place, [(f.cause, f.step, f.why) for f in found])
    return seen, named


@pytest.mark.parametrize("kind", [INDEX, TAIL, REUSE, ALIAS])
def test_mistakes_are_named(kind):
    seen, named = count_named(normalize, kind, 4)
    assert seen > 0 and named == seen


@pytest.mark.full
def test_the_share_of_mistakes_that_are_named():
    counts = [count_named(f, k, 40) for f in (normalize, attention, columns) for k in NAMES]
    seen, named = (sum(column) for column in zip(*counts, strict=True))
    print(f"{named} of {seen} mistakes are named")
    assert seen > 40 and named >= 0.95 * seen


def test_the_finding_is_told_and_can_be_run_again(capsys):
    torch.ops.ditorch.graph_set_mistake(TAIL, 0)
    run(normalize, (8, 8), (8,))
    torch.ops.ditorch.graph_set_mistake(0, 0)
    (finding,) = check.findings()
    text = capsys.readouterr().err
    assert "computes something else than eager mode" in text and finding.node in text
    assert "test_graph_check.py" in text
    script = os.path.join(finding.folder, "repro.py")
    command, environment = [sys.executable, "-W", "ignore", script], child_environment()
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr  # without the mistake there is none
    assert "equal" in done.stdout


@pytest.mark.parametrize(("name", "value", "on"), [
    ("DICP_ASCEND_PRECISION_CHECK", "1", True), ("DICP_TOPS_CHECK_PRECISION", "True", True),
    ("DICP_TOPS_CHECK_PRECISION", "0", False), ("DITORCH_COMPILE_CHECK", "off", False),
])  # fmt: skip
def test_names(monkeypatch, name, value, on):
    monkeypatch.delenv("DITORCH_COMPILE_CHECK")
    monkeypatch.setenv(name, value)
    assert check.is_on() is on
