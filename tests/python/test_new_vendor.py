"""`ditorch new-vendor`: a folder that builds with cc alone, passes the doctor and trains."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import child_environment
from ditorch import new_vendor


@pytest.mark.full  # the normal run does the same in test_vendor_walkthrough.py
@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")
def test_generate_build_doctor_train(python, tmp_path):
    answer = python("-m", "ditorch", "new-vendor", "tiny_chip", "--out", str(tmp_path / "chip"))
    assert "check.sh" in answer.stdout
    assert sorted(os.listdir(tmp_path / "chip")) == sorted(new_vendor.FILES)
    texts = "".join((tmp_path / "chip" / file).read_text() for file in new_vendor.FILES)
    assert "mychip" not in texts and "tiny_chip_memory_alloc" in texts
    environment = child_environment(PYTHON=sys.executable, DITORCH_BANNER="0", CFLAGS=None)
    environment["CC"] = "cc -Werror"
    run = subprocess.run(
        ["sh", str(tmp_path / "chip" / "check.sh")], capture_output=True, text=True, env=environment, timeout=600
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "checks passed, 0 were not made" in run.stdout and "wrong" not in run.stdout
    assert "device: tiny_chip 0" in run.stdout and "loss: " in run.stdout


@pytest.mark.parametrize("name", ["", "My Chip", "../x", "chip-1", "1chip", "host", "x" * 33, "chïp", "a;b"])
def test_bad_names_are_refused(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(new_vendor.NewVendorError, match="name"):
        new_vendor.create(name)
    assert os.listdir(tmp_path) == []


def test_names_of_our_own_libraries_are_refused():
    vendors = Path(__file__).resolve().parents[2] / "vendors"
    assert sorted(new_vendor.TAKEN) == sorted(folder.name for folder in vendors.iterdir() if folder.is_dir())


def test_nothing_is_overwritten(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "chip").mkdir()
    (tmp_path / "chip" / "vendor.c").write_text("mine")
    assert new_vendor.main(["chip"]) == 2
    assert "is there already" in capsys.readouterr().err
    assert (tmp_path / "chip" / "vendor.c").read_text() == "mine" and len(os.listdir(tmp_path / "chip")) == 1


def test_wrong_use(capsys):
    for words in ([], ["a", "b"], ["a", "--out"], ["a", "--outer", "x"], ["a", "--out="]):
        assert new_vendor.main(words) == 2 and "ditorch new-vendor: " in capsys.readouterr().err
    assert new_vendor.main(["--help"]) == 0
