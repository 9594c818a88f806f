"""ditorch doctor --diff: two machines' reports."""

from __future__ import annotations

import json

import pytest
from ditorch import cli

REPORT = {
    "ditorch": "0.1.0",
    "torch": "2.13.0",
    "libraries": {"libdit.so": "300 KiB"},
    "devices": ["dit, capability 8.0, 4.0 GiB, 1.0 GiB free"],
    "self_check": {"add": "ok"},
    "problems": [],
}


def diff(tmp_path, capsys, a, b, *words):
    for name, report in (("a.json", a), ("b.json", b)):
        (tmp_path / name).write_text(report if isinstance(report, str) else json.dumps(report))
    status = cli.main(["doctor", "--diff", str(tmp_path / "a.json"), str(tmp_path / "b.json"), *words])
    answer = capsys.readouterr()
    return status, answer.out, answer.err


def test_equal_reports_have_no_difference(tmp_path, capsys):
    other = {**REPORT, "devices": ["dit, capability 8.0, 4.0 GiB, 0.5 GiB free"]}
    status, out, _ = diff(tmp_path, capsys, REPORT, other)
    assert status == 0 and "no difference" in out


def test_every_different_fact_is_told(tmp_path, capsys):
    other = {**REPORT, "torch": "2.12.0", "self_check": {"add": "differs", "mm": "ok"}, "problems": ["x"]}
    status, out, _ = diff(tmp_path, capsys, REPORT, other, "--json")
    rows = {row["name"]: (row["a"], row["b"]) for row in json.loads(out)["facts"]}
    expected = {"torch": ("2.13.0", "2.12.0"), "self_check.add": ("ok", "differs"), "self_check.mm": (None, "ok")}
    assert status == 1 and rows == {**expected, "problems: x": (None, "x")}
    status, out, _ = diff(tmp_path, capsys, REPORT, other)
    assert "self_check.mm\n  A  (nothing)\n  B  ok" in out


@pytest.mark.parametrize(("text", "expected"), [("{", "is no JSON"), ("[]", "is no report"), ("{}", "is no report")])
def test_a_file_that_is_no_report_is_refused(text, expected, tmp_path, capsys):
    status, _, err = diff(tmp_path, capsys, REPORT, text)
    assert status == 2 and expected in err


def test_a_missing_file_is_told_with_the_nearest(tmp_path, capsys):
    (tmp_path / "here.json").write_text(json.dumps(REPORT))
    status = cli.main(["doctor", "--diff", str(tmp_path / "hera.json"), str(tmp_path / "here.json")])
    assert status == 2 and "did you mean 'here.json'?" in capsys.readouterr().err
