"""`ditorch compile`: what became of torch.compile in a program, and whether it is right."""

import json
import re

from conftest import run_python

PROGRAM = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16)).cuda()
@torch.compile
def step(x):
    y = model(x)
    print("said")
    return torch.cummax(y.sin(), 0).values.sum()
for n in (4, 4, 5):
    step(torch.randn(n, 8, device="cuda")).backward()
"""


def run(tmp_path, *words, program=PROGRAM):
    path = tmp_path / "train.py"
    path.write_text(program)
    return run_python("-m", "ditorch", "compile", *words, path, check=False, cwd=tmp_path, DITORCH_BANNER=0)


def test_explain(tmp_path):
    done = run(tmp_path, "--explain", "--json", "out.json", "--html", "out.html", "--sources", "kernels")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "said\n" * 3
    data = json.loads((tmp_path / "out.json").read_text())
    (first,) = data["breaks"]
    assert first["place"].endswith("train.py:7") and "print" in first["reason"]
    assert any("size mismatch" in row["reason"] for row in data["recompiles"])
    forward = next(row for row in data["graphs"] if row["kind"] == "forward")
    assert "train.py:6 (y = model(x))" in forward["place"] and forward["calls"] == 2
    assert forward["plans"][0]["regions"] == 1 and "GELU" in str(forward["plans"][0]["steps"])
    assert any(row["kind"] == "backward" for row in data["graphs"])
    assert "1 graph breaks" in done.stderr and "region pointwise" in done.stderr
    assert "island aten::" in done.stderr
    check_steps(data, tmp_path)
    assert re.search(r"region rows \[[0-9x]+\] by (vm|c) \([0-9,]+ bytes, [0-9.]+ us\): LOAD", done.stderr)
    page = (tmp_path / "out.html").read_text()
    assert "train.py:6 (y = model(x))" in page and "void region(" in page and "<script" not in page


def check_steps(data, folder):
    """Each step has its bytes and time; each region that code was written for names its source."""
    steps = [step for row in data["graphs"] for plan in row["plans"] for step in plan["steps"]]
    assert all(step["calls"] >= 1 and step["seconds"] > 0 for step in steps)
    linear = next(step for step in steps if step["name"].startswith("aten::addmm"))
    assert linear["bytes"] == 4 * (4 * 8 + 8 * 16 + 16 + 4 * 16)
    named = {step["source"] for step in steps if "source" in step}
    assert named and named == {path.name for path in (folder / "kernels").iterdir()}
    assert all("region" in (folder / "kernels" / name).read_text() for name in named)


def test_a_program_that_compiles_nothing_is_told(tmp_path):
    done = run(tmp_path, "--explain", program="raise SystemExit(3)")
    assert done.returncode == 3 and "nothing was compiled" in done.stderr


def test_check_counts(tmp_path):
    done = run(tmp_path, "--check")
    assert done.returncode == 0 and "0 wrong graphs of" in done.stderr, done.stderr


ON_BOTH = """
import torch, torch._inductor.compile_fx as inductor
inductor.compile_fx = lambda module, inputs, **options: print("left to Inductor") or module.forward
for device in ("cpu", "cuda"):
    print(torch.compile(lambda x: x.exp() + 1)(torch.zeros(3, device=device)).tolist())
"""


def test_graphs_of_the_cpu_are_left_to_inductor(tmp_path):
    done = run(tmp_path, "--explain", program=ON_BOTH)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "left to Inductor\n" + "[2.0, 2.0, 2.0]\n" * 2
    assert "1 graphs in" in done.stderr and "EXP" in done.stderr


def test_wrong_use(tmp_path):
    assert "give --explain or --check" in run(tmp_path).stderr
    assert run(tmp_path, "--check", "--json", "x.json").returncode == 2
