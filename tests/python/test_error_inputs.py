"""What PyTorch's operators refuse, the device refuses as the CPU does: a third of the database's error inputs.

`make test-opinfo-all` runs all of them."""

import json
import os
import sys

TORCH_TESTS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "torch")
PROGRAM = os.path.join(TORCH_TESTS, "error_inputs.py")


def test_a_third_of_the_database(python, tmp_path):
    """Only what was made wrong on purpose is called wrong: entries that differ and are not listed, and the reverse."""
    result, expect = tmp_path / "results.json", tmp_path / "expect.toml"
    with open(os.path.join(TORCH_TESTS, "error_expect.toml"), encoding="utf-8") as file:
        listed = [line for line in file.read().splitlines() if "=" in line]
    stale = [f'{name} = "it does not differ, so this is wrong"' for name in ("add", "cat", "gather")]
    expect.write_text("\n".join(["[fail]", *listed[:1], *stale]))
    answer = python(PROGRAM, "--sample", "--jobs", "1", "--json", str(result), "--expectations", str(expect),
                    check=False, timeout=900, cwd=TORCH_TESTS)  # fmt: skip
    results = {row["entry"]: row for row in json.loads(result.read_text())["results"]}
    broken = {line.split(" ")[0] for line in [*listed[1:], *stale]} & set(results)
    wrong = {name for name, row in results.items() if row["verdict"] == "wrong"}
    assert answer.returncode == 1 and len(broken) > 1
    assert wrong == broken, {name: results[name]["message"] for name in wrong ^ broken}
    for kind in ("cpu", "cuda"):
        assert sum(row["counts"][kind] for row in results.values()) > 150, f"hardly any work: {kind}"


def test_messages_are_alike_in_other_words_only(monkeypatch):
    monkeypatch.syspath_prepend(TORCH_TESTS)
    import error_inputs

    sys.modules.pop("error_inputs")
    theirs = "The size of tensor a (3) must match the size of tensor b (5) at non-singleton dimension 1"
    assert error_inputs.is_alike(theirs.replace("5", "4") + " on cuda:0", theirs + " on cpu")
    assert not error_inputs.is_alike("diopiAdd failed: diopiErrorOccurred", theirs)
    assert not error_inputs.is_alike("", theirs)
    assert not error_inputs.is_alike("Expected a tensor of 2 dimensions", "index 5 is out of bounds for dimension 0")
