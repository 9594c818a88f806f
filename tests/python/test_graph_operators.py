"""The operators of DICP's own tests, compiled, with fixed sizes and with sizes as symbols (`ditorch test-device`)."""

import json
import subprocess
import sys

import pytest
from conftest import child_environment
from dicp_operators import ENTRIES

pytestmark = pytest.mark.usefixtures("warm_children")

DYNAMO = {"argmax", "argmin", "gather", "scatter", "sort"}
"""Dynamo itself fails where these have `out=` and sizes that are symbols, before a backend sees a graph."""
FEW = ["addcmul", "nn.functional.silu", "softmax", "slice_scatter"]


def run(folder, entries, *words, known=frozenset()):
    """The results; every one as it should be, but for `out=` of those that are known."""
    path = folder / "results.json"
    command = [sys.executable, "-W", "ignore", "-m", "ditorch", "test-device", "--compiled", "dit", "--jobs", "2"]
    command += ["--dtypes", "float32", "--samples", "2", "--ops", ",".join(entries), "--json", str(path), *words]
    done = subprocess.run(command, capture_output=True, text=True, env=child_environment(DITORCH_BANNER="0"))
    assert done.returncode == 0 or known, done.stdout[-3000:] + done.stderr[-3000:]
    results = json.loads(path.read_text())["results"]
    wrong = [row for row in results if row["status"] != "pass"]
    assert all(row["entry"] in known and row["message"].startswith("out=") for row in wrong), wrong
    return results


def check(results, entries):
    assert {row["entry"] for row in results} >= set(entries)
    compiled = [row["compiled"] for row in results if row.get("compiled")]
    assert sum(made["graphs"] for made in compiled) >= len(entries)
    assert sum(made["regions"] + made["rows"] for made in compiled) >= len(entries)


def test_a_few_with_symbols(tmp_path):
    check(run(tmp_path, FEW, "--dynamic"), FEW)


@pytest.mark.full
@pytest.mark.parametrize("words", [[], ["--dynamic"]], ids=["static", "dynamic"])
def test_all_of_them(words, tmp_path):
    results = run(tmp_path, ENTRIES, *words, known=DYNAMO if words else frozenset())
    assert len({row["entry"] for row in results}) >= 100


def test_dynamic_belongs_to_compiled():
    command = [sys.executable, "-W", "ignore", "-m", "ditorch", "test-device", "--dynamic"]
    done = subprocess.run(command, capture_output=True, text=True, env=child_environment(DITORCH_BANNER="0"))
    assert done.returncode == 2 and "--dynamic belongs to --compiled" in done.stderr
