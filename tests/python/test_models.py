"""Models as test suites: corpora as text, calls at smaller sizes, `conform run --model`."""

from __future__ import annotations

import os
import subprocess

import pytest
from conftest import run_python
from ditorch.models import corpus, shrink

NAMES = corpus.list_names()


def _run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return run_python("-m", "ditorch", "conform", *words, check=False, **environment)


@pytest.mark.parametrize("name", NAMES[::6])
def test_corpus_is_written_as_it_was_read(name: str, tmp_path) -> None:
    path = tmp_path / "again.txt"
    corpus.write(corpus.read(name), str(path))
    with open(os.path.join(corpus.DIRECTORY, f"{name}.txt"), encoding="utf-8") as stream:
        assert path.read_text(encoding="utf-8").split() == stream.read().split()


def test_nothing_is_silently_dropped() -> None:
    for name in NAMES:
        for entry in corpus.read(name).entries:
            assert bool(entry.functions) != bool(entry.reason), f"{name}: {entry.call}"


def test_corpora_are_small() -> None:
    assert sum(os.path.getsize(os.path.join(corpus.DIRECTORY, f"{name}.txt")) for name in NAMES) < 10_000_000


def test_unknown_model_names_what_is_near() -> None:
    with pytest.raises(corpus.CorpusError, match="resnet50"):
        corpus.read("resnet5")


def test_shrink_keeps_what_belongs_together() -> None:
    call = corpus.parse_call("aten::mm float32[512,4096] float32[4096,128]{1,4096}")
    small = next(shrink.list_forms(call, 0.1))
    a, b = small.args
    assert a.shape[1] == b.shape[0] == 408
    assert b.strides == (1, 408)
    assert list(shrink.list_forms(call, 1.0)) == [call]


def test_sound_library_passes_and_broken_one_is_named() -> None:
    words = (
        "run",
        "--model",
        "resnet50",
        "--scale",
        "0.02",
        "--function",
        "ThresholdBackward",
        "AddInp",
        "--jobs",
        "1",
    )
    assert _run(*words).returncode == 0
    broken = _run(*words, "--library", "faulty", DITORCH_FAULTY="value:diopiThresholdBackward")
    assert broken.returncode == 1
    assert "fail    diopiThresholdBackward/resnet50/float32/model/0" in broken.stdout
    assert "diopiAddInp/" not in broken.stdout


def test_left_out_calls_are_listed() -> None:
    run = _run("run", "--model", "resnet50", "--memory", "0.0001", "--function", "ReluInp", "--jobs", "1")
    assert run.returncode == 1
    assert "not made: diopiReluInp/resnet50/float32/model/0: needs about" in run.stdout
    assert "not of the standard" in run.stdout


def test_values_that_point_somewhere_are_valid() -> None:
    words = ("--scale", "0.03", "--function", "RoiAlign*", "Scatter*", "Embedding*", "--jobs", "1")
    run = _run("run", "--model", "faster_rcnn_r50", *words)
    assert run.returncode == 0, run.stdout
    assert "diopiRoiAlignBackward" in run.stdout and "not made" not in run.stdout
