"""The `ditorch` command that `make demo` leaves in the virtual environment."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def venv(tmp_path):
    """Something like a virtual environment, at a place with a blank in it."""
    home = tmp_path / "a venv"
    (home / "bin").mkdir(parents=True)
    (home / "bin/python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (home / "bin/python").chmod(0o755)
    return home


def make(venv):
    return subprocess.run([sys.executable, ROOT / "tools/make_command.py", venv / "bin/ditorch"], capture_output=True)


def test_it_runs_from_anywhere_with_the_cpu_environment(venv, tmp_path):
    (venv / "cpu-environment").write_text("DITORCH_BANNER=0\nSOME_SETTING=a b=c\n")
    assert make(venv).returncode == 0
    words = [
        str(venv / "bin/ditorch"),
        "-c",
        "import os, torch; print(os.environ['SOME_SETTING'], torch.ones(2).cuda().device)",
    ]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    answer = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=300)
    assert (answer.stdout, answer.stderr) == ("a b=c cuda:0\n", "")


def test_another_command_is_left_alone(venv):
    (venv / "bin/ditorch").write_text("#!/usr/bin/python\nfrom ditorch.__main__ import main\n")
    assert b"left alone" in make(venv).stderr
    assert "main" in (venv / "bin/ditorch").read_text()
    (venv / "bin/ditorch").unlink()
    assert make(venv).stderr == b"" and make(venv).stderr == b"", "its own is written anew"
