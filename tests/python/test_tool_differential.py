"""The tools that act change nothing that a program can see: a sample of PyTorch's operator database, with and without.

`make test-tools-opinfo` runs all of it."""

import json
import os

TORCH_TESTS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "torch")
PROGRAM = os.path.join(TORCH_TESTS, "tool_differential.py")


def run(python, *arguments):
    return python(PROGRAM, *arguments, check=False, timeout=600, cwd=TORCH_TESTS)


def test_a_sample_under_the_tools(python, tmp_path):
    path = tmp_path / "results.json"
    answer = run(python, "--sample", "--tools", "fallback,wide,half,aten", "--max-samples", "2", "--json", str(path))
    assert answer.returncode == 0, answer.stdout[-4000:] + answer.stderr[-2000:]
    results = json.loads(path.read_text())["results"]
    for key in ("samples", "backward", "inplace", "out"):
        assert sum(row[key] for row in results) > 200, f"hardly any work: {key}"


def test_a_wrong_tool_is_found_and_a_wrong_expectation_too(python, tmp_path):
    """In-place results that are lost, tuples without names, wide dtypes; an entry that is listed but passes."""
    path = tmp_path / "expect.toml"
    path.write_text('[fail.same]\nadd = "it does not fail, so this is wrong"\n')
    answer = run(python, "--ops", "add,sort,exp", "--tools", "careless,same", "--jobs", "1",
                 "--expectations", str(path))  # fmt: skip
    wrong = [line.split(" ")[1].rstrip(":") for line in answer.stdout.splitlines() if line.startswith("FAILED")]
    assert answer.returncode == 1
    assert sorted(wrong) == ["careless:add", "careless:exp", "careless:sort", "same:add"]
    assert "it passes now: remove it" in answer.stdout
