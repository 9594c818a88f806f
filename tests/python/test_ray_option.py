"""`--ray` without Ray, and with what it does not go with; clusters are in tests/ray (make test-ray)."""

from __future__ import annotations

import sys

import pytest
from ditorch import cli


def _run(capsys, *words):
    try:
        status = cli.main(list(words))
    except SystemExit as end:
        status = end.code
    answer = capsys.readouterr()
    return status, answer.err


@pytest.mark.parametrize(
    "words",
    [
        ("conform", "run", "--function", "Softmax"),
        ("test-device", "--ops", "add"),
        ("bench", "--model", "llama2"),
        ("bisect", "--fresh", "--out", "bisection"),
    ],
    ids=lambda words: words[0],
)
def test_without_the_package_one_sentence_says_so(words, capsys, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    status, err = _run(capsys, *words, "--ray", "local", *(["train.py"] if words[0] == "bisect" else []))
    assert status == 2 and "--ray needs the package ray: pip install ray" in err
    assert len(err.strip().splitlines()) <= 2 and "Traceback" not in err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("conform", "run", "--pack", "x.pack"), "--ray and --pack"),
        (("conform", "run", "--model", "llama2"), "--ray and --model"),
        (("test-device", "--suite", "nn"), "test cases run on this machine"),
        (("replay", ".", "--jobs", "0"), "--jobs 0 runs in this process"),
    ],
)
def test_what_it_does_not_go_with(words, text, capsys):
    status, err = _run(capsys, *words, "--ray", "local")
    assert status == 2 and text in err, err
