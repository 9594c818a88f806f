"""`ditorch conform`: selection, rules, verdicts, reports, exit status; on the host library and on one that lies."""

import json
from xml.etree import ElementTree

import pytest
from conftest import run_python
from ditorch.conform import cli, expand, report, runner, schema, selection, suite

BASIC = ("--function", "Softmax", "--dtype", "float32", "--jobs", "1")


@pytest.fixture(scope="module")
def cases():
    return expand.list_cases(schema.read_all())


def call(capsys, *words):
    status = cli.main(list(words))
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def write(path, table):
    path.write_text(json.dumps(table))
    return str(path)


# Run


def test_run_passes_and_tells_totals(capsys):
    status, out, _ = call(capsys, "run", *BASIC)
    assert status == 0
    assert "diopiSoftmax  pass" in out and "1 functions: 1 pass" in out


def test_a_library_that_lies_fails(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("DITORCH_FAULTY", "value:diopiSoftmax")
    path = tmp_path / "out.json"
    status, out, _ = call(
        capsys, "run", *BASIC, "--library", "faulty", "--layout", "contiguous", "--json", str(path), "--failures", "1"
    )
    assert status == 1
    assert "fail    diopiSoftmax/basic/float32/contiguous/0: out[0, 0] is" in out and "more; --json FILE" in out
    table = json.loads(path.read_text())
    assert table["functions"]["diopiSoftmax"]["verdict"] == "fail"
    assert table["totals"]["cases"]["fail"] == sum(row["verdict"] == "fail" for row in table["cases"])
    assert table["about"]["library"] == "faulty"


def test_a_crash_is_a_verdict_and_the_run_goes_on(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("DITORCH_FAULTY", "crash:diopiSoftmax,call=1")
    path = tmp_path / "out.xml"
    status, out, _ = call(
        capsys, "run", *BASIC, "--library", "faulty", "--case", "*/basic/*/contiguous/[01]", "--junit", str(path)
    )
    assert status == 1 and "crash   diopiSoftmax/basic/float32/contiguous/0: ended the process by signal 11" in out
    root = ElementTree.parse(path).getroot()
    assert (root.get("tests"), root.get("errors")) == ("2", "2")  # each process counts its calls from one


def test_missing_functions_fail_only_when_required(capsys):
    words = ("run", "--function", "Missing", "--jobs", "1")
    rows = [{"id": "diopiX/a/float32/contiguous/0", "function": "diopiX", "verdict": "missing", "seconds": 0.0}]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cli, "_run_cases", lambda options, rules: [dict(row) for row in rows])
        assert call(capsys, *words)[0] == 0
        status, out, err = call(capsys, *words, "--require")
    assert status == 1 and "1 functions are missing" in err and "1 functions: 1 missing" in out


def test_two_workers_give_the_rows_of_one(cases):
    chosen = selection.Selection(functions=("Softmax",), dtypes=("float32",)).choose(cases)
    work = suite.Work("host")
    first = suite.run(chosen, work, 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(suite, "PIECE", 30)
        second = suite.run(chosen, work, 2)
    assert [row["id"] for row in first] == [row["id"] for row in second] == [str(case) for case in chosen]
    assert {row["verdict"] for row in second} == {"pass"}


def test_journal_and_resume(capsys, tmp_path):
    path = tmp_path / "journal.jsonl"
    words = ("run", *BASIC, "--layout", "contiguous", "--journal", str(path))
    assert call(capsys, *words)[0] == 0
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[:4]) + "\n" + lines[4][:20])
    status, out, _ = call(capsys, *words, "--resume")
    assert status == 0 and f"{len(lines) - 1} cases" in out
    assert sorted(path.read_text().splitlines()[1:], key=len)[0]
    status, _, err = call(capsys, *words, "--resume", "--seed", "5")
    assert status == 2 and "results of another run" in err


def test_packs(capsys, tmp_path):
    path = str(tmp_path / "some.pack")
    status, out, _ = call(capsys, "pack", "--function", "Softmax", "--dtype", "float32", "--out", path)
    assert status == 0 and "cases" in out
    status, out, _ = call(capsys, "run", "--pack", path, "--jobs", "1", "--quiet")
    assert status == 0 and "1 functions: 1 pass" in out


def test_a_damaged_pack_is_told(capsys, tmp_path):
    path = tmp_path / "bad.pack"
    path.write_bytes(b"DITCONF\n" + bytes(100))
    status, _, err = call(capsys, "run", "--pack", str(path))
    assert status == 2 and "bad.pack" in err


def test_perf_compares_two_libraries(capsys):
    status, out, _ = call(
        capsys, "run", "--case", "diopiSoftmax/basic/float32/contiguous/[01]", "--perf", "host", "--jobs", "1"
    )
    assert status == 0 and "ratio" in out and "diopiSoftmax" in out


def test_side_stream(capsys, monkeypatch, tmp_path):
    """The option reaches the program: with it, the faulty library's damage to the third call is seen."""
    path = tmp_path / "out.json"
    words = ("run", *BASIC, "--case", "*/basic/float32/contiguous/0", "--library", "faulty", "--vendor", "host")
    monkeypatch.setenv("DITORCH_FAULTY", "value:diopiSoftmax,call=3")
    assert call(capsys, *words)[0] == 0
    status, out, _ = call(capsys, *words, "--side-stream", "--json", str(path))
    assert status == 1 and ": on another stream than the default: out[" in out
    assert json.loads(path.read_text())["about"]["side stream"] == "yes"
    status, _, err = call(capsys, "run", *BASIC, "--side-stream")
    assert status == 2 and "--side-stream needs --vendor" in err
    status, _, err = call(capsys, *words, "--side-stream", "--perf", "host")
    assert status == 2 and "--side-stream and --perf" in err


def test_device(capsys):
    status, out, _ = call(capsys, "device")
    assert status == 0 and "pass" in out


# List and show


def test_list(capsys):
    status, out, _ = call(capsys, "list", "--family", "softmax")
    assert status == 0 and "diopiLogSoftmaxBackward  softmax" in out and "of 4 functions" in out
    status, out, _ = call(capsys, "list", "--case", "diopiExp/basic/float32/strided/*", "--ids")
    assert out.split() == ["diopiExp/basic/float32/strided/0", "diopiExp/basic/float32/strided/1"]


def test_show(capsys):
    status, out, _ = call(capsys, "show", "diopiSoftmax/basic/float32/strided/0")
    assert status == 0
    for text in ("out: out float32 (3, 5), strides", "input: in float32", "dim: 1", "tolerance: ", "expected: tensor"):
        assert text in out
    assert "input: NULL" in call(capsys, "show", "diopiAdd/basic/float32/error/3")[1]
    status, _, err = call(capsys, "show", "diopiSoftmax/none")
    assert status == 2 and "cases of diopiSoftmax look like" in err


# Selection and rules


def test_share_is_stable_and_keeps_every_function(cases):
    tenth = selection.Selection(share=0.1).choose(cases)
    assert [str(case) for case in tenth] == [str(case) for case in selection.Selection(share=0.1).choose(cases)]
    assert 0.08 * len(cases) < len(tenth) < 0.13 * len(cases)
    assert {case.function for case in tenth} == {case.function for case in cases}
    fifth = {str(case) for case in selection.Selection(share=0.2).choose(cases)}
    first = {case.function: str(case) for case in reversed(cases)}
    assert all(str(case) in fifth or str(case) == first[case.function] for case in tenth)


def test_selection(cases):
    chosen = selection.Selection(("Add", "diopiSub*"), ("int32",), ("strided",), ("pointwise_*",)).choose(cases)
    assert {case.function for case in chosen} >= {"diopiAdd", "diopiSubInp"}
    assert {(case.dtype, case.layout) for case in chosen} == {("int32", "strided")}
    with pytest.raises(selection.SelectionError, match="conform list"):
        selection.Selection(functions=("Nothing",)).choose(cases)


def test_skip_and_tolerance_files(capsys, tmp_path, monkeypatch):
    skip = write(tmp_path / "skip.json", {"skip": [{"case": "diopiSoftmax/wide/*", "reason": "the chip is cold"}]})
    path = tmp_path / "out.json"
    assert call(capsys, "run", *BASIC, "--skip", skip, "--json", str(path))[0] == 0
    reasons = {row["reason"] for row in json.loads(path.read_text())["cases"] if row["verdict"] == "skipped"}
    assert reasons == {"the chip is cold"}
    monkeypatch.setenv("DITORCH_FAULTY", "precision:diopiSoftmax,bits=12")
    words = ("run", *BASIC, "--library", "faulty", "--case", "*/basic/*/contiguous/0")
    assert call(capsys, *words)[0] == 1
    rules = {"tolerance": [{"case": "diopiSoftmax/*", "factor": 10000, "reason": "12 bits"}]}
    assert call(capsys, *words, "--tolerance", write(tmp_path / "wide.json", rules))[0] == 0
    rules["tolerance"][0]["case"] = "diopiSort"
    status, _, err = call(capsys, *words, "--tolerance", write(tmp_path / "wide.json", rules))
    assert status == 1 and "rule 'diopiSort' matches no case" in err


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ([], "must be an object"),
        ({"skips": []}, "must be an object"),
        ({"skip": {}}, "skip must be a list"),
        ({"skip": ["diopiAdd"]}, r"skip\[0\]: must be an object with case, reason"),
        ({"skip": [{"case": "diopiAdd"}]}, r"skip\[0\]: reason is None"),
        ({"skip": [{"case": "diopiAdd", "reason": "x", "until": 1}]}, r"skip\[0\]: unknown key 'until'"),
        ({"skip": [{"case": "a b", "reason": "x"}]}, r"skip\[0\]: case is 'a b'; a pattern has no spaces"),
        ({"tolerance": [{"case": "a", "reason": "x"}]}, r"tolerance\[0\]: factor is None"),
        ({"tolerance": [{"case": "a", "reason": "x", "factor": -1}]}, r"tolerance\[0\]: factor is -1"),
        ({"tolerance": [{"case": "a", "reason": "x", "factor": True}]}, r"tolerance\[0\]: factor is True"),
    ],
)
def test_rule_files_are_checked(tmp_path, table, text):
    with pytest.raises(selection.SelectionError, match=text):
        selection.read_rules(write(tmp_path / "rules.json", table))


def test_a_rule_file_that_is_no_json(tmp_path):
    path = tmp_path / "rules.json"
    path.write_text("{")
    with pytest.raises(selection.SelectionError, match=r"rules\.json"):
        selection.read_rules(str(path))


# Wrong use


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((), "required"),
        (("dance",), "invalid choice"),
        (("run", "--share", "2"), "above 0, up to 1"),
        (("run", "--jobs", "0"), "a number from 1"),
        (("run", "--dtype", "float31"), "invalid choice"),
        (("run", "--function", "Nothing"), "no case is meant"),
        (("run", "--library", "/nowhere/lib.so", "--function", "Softmax"), "/nowhere/lib.so"),
        (("run", "--library", "nobody", "--function", "Softmax"), "nobody"),
        (("run", "--skip", "/nowhere/skip.json"), "/nowhere/skip.json"),
        (("pack", "--function", "Softmax"), "--out"),
    ],
)
def test_wrong_use(capsys, words, text):
    status, _, err = call(capsys, *words)
    assert status == 2 and text in err


def test_the_command():
    answer = run_python("-m", "ditorch", "conform", "list", "--family", "scan", DITORCH_BACKEND=None)
    assert "diopiCumsumBackward" in answer.stdout
    answer = run_python("-m", "ditorch", "conform", "run", "--nonsense", check=False)
    assert answer.returncode == 2 and "--nonsense" in answer.stderr


# Reports


def make_row(case, verdict, **more):
    function = case.split("/")[0]
    return {"id": case, "function": function, "verdict": verdict, "reason": "", "text": "", "seconds": 0.5, **more}


def test_lines_and_totals():
    rows = [
        make_row("diopiA/e/float32/contiguous/0", "pass"),
        make_row("diopiA/e/bfloat16/contiguous/0", "unsupported"),
        make_row("diopiB/e/float32/contiguous/0", "timeout", reason="slow"),
        make_row("diopiC/e/float32/contiguous/0", "missing"),
        make_row("diopiD/e/bool/contiguous/0", "unsupported"),
    ]
    lines = report.summarize(rows)
    assert [line.verdict for line in lines] == ["pass", "fail", "missing", "unsupported"]
    assert "without bfloat16" in report.format_lines(lines)
    assert report.format_totals(lines).splitlines() == [
        "4 functions: 1 pass, 1 fail, 1 missing, 1 unsupported",
        "5 cases: 1 pass, 1 fail, 1 missing, 2 unsupported",
    ]
    assert runner.judge_functions(rows)["diopiB"] == "timeout"
    assert report.format_failures(rows, 3) == "timeout diopiB/e/float32/contiguous/0: slow"


def test_junit_survives_odd_characters(tmp_path):
    rows = [make_row("diopiA/e/float32/contiguous/0", "fail", reason="bad \x00\x1b <&>", kind="value")]
    path = tmp_path / "out.xml"
    report.write_junit(str(path), {"library": "x\x01"}, rows)
    failure = ElementTree.parse(path).getroot().find(".//failure")
    assert failure is not None and failure.get("message") == "bad \ufffd\ufffd <&>"
