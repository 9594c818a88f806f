"""`python -m ditorch doctor`."""

import functools
import json

import pytest
from conftest import run_python


@pytest.fixture
def python():
    """What it tells does not depend on who imported torch; the first test starts it as a user does."""
    return functools.partial(run_python, warm=True)


def test_report(python):
    text = python("-m", "ditorch", "doctor", DITORCH_BANNER="0", DITORCH_HOST_DEVICES="2", warm=False).stdout
    for word in (
        "torch:",
        "backend: host",
        "reason: backend=auto",
        "alias: binary",
        "libtorch_python.so: ",
        "libdit_torch.so",
        "host_devices: 2 (environment)",
        "mm: ok",
        "matrix products by",
        "problems:",
    ):
        assert word in text, text
    assert text.rstrip().endswith("none")


def test_json(python):
    report = json.loads(python("-m", "ditorch", "doctor", "--json", DITORCH_BANNER="0").stdout)
    assert report["backend"] == "host" and len(report["devices"]) == 1 and report["problems"] == []
    assert set(report["self_check"].values()) == {"ok"}


def test_a_wrong_device_is_noticed(python):
    answer = python("-m", "ditorch", "--set", "fault=value:mm,scale=1", "doctor", check=False, DITORCH_BANNER="0")
    assert answer.returncode == 1 and "self-check mm: differs from the CPU" in answer.stdout


def test_a_failed_installation_is_reported(python):
    answer = python("-m", "ditorch", "--set", "vendor=/nowhere/vendor.so", "doctor", check=False)
    assert answer.returncode == 1 and "installation failed" in answer.stdout and "/nowhere/vendor.so" in answer.stdout


def test_none(python):
    answer = python("-m", "ditorch", "--backend", "none", "doctor")
    assert "backend: none" in answer.stdout and "devices" not in answer.stdout


def test_diopi_names_every_function_and_what_it_takes(python):
    report = json.loads(python("-m", "ditorch", "doctor", "--diopi", "host", "--json", DITORCH_BANNER="0").stdout)
    states = {row["name"]: row["state"] for row in report["functions"]}
    assert report["vendor"] == "host" and len(states) == 541
    assert set(states.values()) == {"implemented"}, [name for name in states if states[name] != "implemented"]
    softmax = next(row for row in report["functions"] if row["name"] == "diopiSoftmax")
    assert softmax["dtypes"] == ["float16", "float32", "float64", "bfloat16"]
    own = [row for row in report["functions"] if row["state"] == "implemented" and row["family"] != "library_info"]
    untold = {row["name"] for row in own if not row["inference"]}
    assert untold == {"diopiNormal", "diopiBernoulliScalar"}, "their callers alone know; others need a row in infer.inc"
    assert f"for {len(own) - 2} of {len(own)} functions" in report["inference"]


def test_diopi_says_why_a_library_is_none(python):
    answer = python("-m", "ditorch", "doctor", "--diopi", "nothing", check=False, DITORCH_BANNER="0")
    assert answer.returncode == 2 and "'nothing' not found" in answer.stderr
    libc = python("-m", "ditorch", "doctor", "--diopi=./no.so", check=False, DITORCH_BANNER="0")
    assert libc.returncode == 2 and "cannot open operator library './no.so'" in libc.stderr
