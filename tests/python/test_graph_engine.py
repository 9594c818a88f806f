"""A chip that takes whole subgraphs (the test device's graph engine): the cases of graph_engine_cases.py, programs that
are kept on disk, and what it refuses."""

import json
import os
import subprocess
import sys

import pytest
from conftest import child_environment, run_python

pytestmark = pytest.mark.usefixtures("warm_children")

HERE = os.path.dirname(os.path.abspath(__file__))

PROGRAM = """
import json, sys, torch, ditorch
from ditorch import graph
torch.manual_seed(0)
kept = graph.keep()
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4)).cuda()
x = torch.randn(5, 8, device="cuda")
wanted = model(x)
wanted.square().mean().backward()
gradients = [p.grad.clone() for p in model.parameters()]
model.zero_grad()
got = torch.compile(model, backend="dit")(x)
torch.testing.assert_close(got, wanted)
got.square().mean().backward()
torch.testing.assert_close([p.grad for p in model.parameters()], gradients)
steps = [step for entry in kept for plan in entry.describe() for step in plan["steps"]]
refusals = [refusal["reason"] for entry in kept for plan in entry.describe() for refusal in plan["refusals"]]
counted = [row["operator"] for row in ditorch.operators() if "graph engine" in row["operator"]]
print(json.dumps({
    "kinds": [step["kind"] for step in steps], "from": [step["from"] for step in steps if "from" in step],
    "refusals": refusals, "refusal": [entry.refusal for entry in kept], "counted": counted,
    "refused": [entry.refused for entry in kept],
}))
"""


def run(cache, **environment):
    done = run_python(PROGRAM, DITORCH_VENDOR="opaque", DITORCH_GRAPH_CACHE=str(cache), **environment)
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


def test_programs_are_loaded_by_a_second_process(tmp_path):
    cache = tmp_path / "cache"
    first, _ = run(cache)
    assert set(first["kinds"]) == {"subgraph"} and set(first["from"]) == {"compiler"}
    files = sorted(cache.glob("*.graph"))
    assert len(files) == len(first["from"]) == len(list(cache.iterdir())) and cache.stat().st_mode & 0o77 == 0
    second, _ = run(cache)
    assert set(second["from"]) == {"disk"} and second["kinds"] == first["kinds"]
    data = files[0].read_bytes()
    files[0].write_bytes(data[: len(data) // 2] + b"?" + data[len(data) // 2 + 1 :])
    third, _ = run(cache)
    assert sorted(third["from"]) == sorted(["compiler"] + ["disk"] * (len(files) - 1))
    assert files[0].read_bytes() == data


def test_a_refused_compile_is_no_error(tmp_path):
    done, said = run(tmp_path / "cache", DITORCH_OPAQUE_GRAPH="compile")
    assert done["kinds"] and set(done["kinds"]) <= {"row", "island"} and not done["from"]
    assert all("makes no regions" in reason for reason in done["refusal"])
    assert said.count("refuses a subgraph") == 1 and "DITORCH_OPAQUE_GRAPH refuses programs" in said
    assert len(done["counted"]) == 1 and list((tmp_path / "cache").glob("*.graph"))  # refusals are kept
    after, _ = run(tmp_path / "cache")  # what it was told is a part of the key
    assert set(after["kinds"]) == {"subgraph"} and set(after["from"]) == {"compiler"}


@pytest.mark.full
def test_the_chip_is_told_to_refuse_more(tmp_path):
    done, said = run(tmp_path / "cache", DITORCH_OPAQUE_GRAPH="GELU,aten::mm")
    assert done["refused"][0] == {"aten::gelu": "the engine does not take GELU of float32"}
    assert "row" in done["kinds"] and "subgraph" in done["kinds"] and done["refusals"] == [] and "refuses" not in said
    none, _ = run(tmp_path / "cache", DITORCH_OPAQUE_GRAPH="none")
    assert "subgraph" not in none["kinds"]


@pytest.mark.full
def test_a_miscompiled_operation_is_named(tmp_path):
    program = """
    import torch, ditorch
    from ditorch.graph import check
    torch.manual_seed(0)
    x = torch.randn(4, 8, device="cuda")
    torch.compile(lambda a: torch.nn.functional.gelu(a * 2).sum(-1) + 1, backend="dit")(x)
    (finding,) = check.findings()
    print(finding.kind, finding.cause, finding.operator)
    """
    done = run_python(
        program, DITORCH_VENDOR="opaque", DITORCH_GRAPH_CACHE=str(tmp_path), DITORCH_OPAQUE_GRAPH="wrong:GELU",
        DITORCH_COMPILE_CHECK="1", DITORCH_COMPILE_CHECK_DIR=str(tmp_path / "found"),
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "subgraph value aten.gelu(mul)"


@pytest.mark.full
def test_explain_names_subgraphs_and_refusals(tmp_path):
    (tmp_path / "train.py").write_text(
        'import torch\nprint(torch.compile(lambda x: (x * 2).sin().exp() + 1)(torch.ones(3, device="cuda")).sum())\n'
    )
    environment = child_environment(
        DITORCH_BANNER="0", DITORCH_VENDOR="opaque", DITORCH_GRAPH_CACHE=str(tmp_path / "cache")
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "ditorch", "compile", "--explain", "train.py"],
        capture_output=True, text=True, timeout=300, cwd=tmp_path, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "0 regions, 2 subgraphs, 1 operators of the device" in done.stderr
    assert "subgraph of 2 nodes by box" in done.stderr and "EXP ADD" in done.stderr
    assert "operator aten::sin: the engine does not take SIN of float32" in done.stderr


@pytest.mark.full
def test_cases(tmp_path):
    done = run_python(
        "-m", "pytest", "-q", "-p", "no:cacheprovider", os.path.join(HERE, "graph_engine_cases.py"),
        check=False, DITORCH_VENDOR="opaque", DITORCH_GRAPH_CACHE=str(tmp_path / "cache"),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " skipped" not in done.stdout.splitlines()[-1]
