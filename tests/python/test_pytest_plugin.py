"""The pytest plugin: findings are failures, nothing is imported when it is off."""

import os
import subprocess
import sys

import pytest
from conftest import child_environment

TESTS = """
import pytest, torch

def work():
    return torch.nn.functional.gelu(torch.ones(4, device="cuda"))

def test_plain():
    work()

@pytest.mark.ditorch(tool="")
def test_left_out():
    work()

def test_nan():
    torch.zeros(3, device="cuda").log().div(0)

@pytest.mark.ditorch(tool="autocompare", include="torch.nn.functional.gelu")
def test_marked():
    work()

def test_fails_by_itself():
    work()
    assert False, "my own"
"""


def run_pytest(folder, *words, **changes):
    command = [sys.executable, "-m", "pytest", "-p", "ditorch_pytest", "-q", "-p", "no:cacheprovider", *words]
    environment = child_environment(DITORCH_BANNER="0", COLUMNS="100", **changes)
    answer = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    return answer.stdout + answer.stderr


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "conftest.py").write_text("import ditorch\n")
    return tmp_path


def test_findings_are_failures(folder):
    words = ["--ditorch-compare", "--ditorch-nan", "--junitxml", "j.xml", "test_it.py"]
    text = run_pytest(folder, *words, DITORCH_FAULT="value:gelu,scale=1")
    assert "4 failed, 1 passed" in text, text
    assert "OpAutoCompare: torch.nn.functional.gelu is wrong" in text
    assert "  place  test_it.py:5 (return torch.nn.functional.gelu" in text
    assert "OpOverflowCheck: torch.Tensor.log made 3 Inf" in text
    assert "AssertionError: my own" in text and "- Captured ditorch call -" in text
    assert 'message="Failed: OpAutoCompare: torch.nn.functional.gelu is wrong' in (folder / "j.xml").read_text()
    assert sorted(os.listdir(folder))[-1] != "op_tools_results"


def test_only_the_marker(folder):
    text = run_pytest(folder, "test_it.py", DITORCH_FAULT="value:gelu,scale=1")
    assert "2 failed, 3 passed" in text and "FAILED test_it.py::test_marked" in text, text


def test_nothing_is_imported_when_it_is_off(tmp_path):
    (tmp_path / "test_it.py").write_text(
        "import sys\ndef test_off():\n    assert not {'torch', 'ditorch', 'op_tools'} & set(sys.modules)\n"
    )
    assert "1 passed" in run_pytest(tmp_path, "test_it.py")


def test_a_marker_that_means_nothing_says_so(tmp_path):
    (tmp_path / "test_it.py").write_text(
        "import pytest\n@pytest.mark.ditorch(tool='autocomapre')\ndef test_it():\n    pass\n"
    )
    assert "did you mean 'autocompare'" in run_pytest(tmp_path, "test_it.py")
    assert "expected TOOL.NAME=VALUE" in run_pytest(tmp_path, "--ditorch-option", "x", "test_it.py")
