"""`ditorch test-device`: expectations as data, choice of pairs, verdicts, reports; a device that is broken on purpose.

One run is real; the rest of the command is tested over a worker that needs no torch."""

import json
import os
from xml.etree import ElementTree

import pytest
from conftest import HERE
from ditorch import worker_notes
from ditorch.device_suite import arguments, expect, report, worker
from ditorch.device_suite import main as command

pytestmark = pytest.mark.usefixtures("warm_children")

REPORT = os.path.join(os.path.dirname(os.path.dirname(HERE)), "tools", "gen_opinfo_report.py")
GOOD = """
[device]
torch = "2.13"
database = "cpu"
dtypes = ["float32", "float16", "int32"]

[[fail]]
entries = ["to_sparse", "sparse.*"]
dtypes = ["float32"]
reason = "sparse tensors are not supported"

[[skip]]
entries = ["svd"]
reason = "the driver hangs in it"

[[tolerance]]
entries = ["cov"]
rtol = 1e-3
atol = 0
reason = "a difference of large sums"

[[samples]]
entries = ["exp"]
most = 3
reason = "its samples are large"
"""
CATALOG = {
    "entries": {
        "add": {"cpu": ["float32", "float16", "int32"], "cuda": ["float32", "float16"]},
        "exp": {"cpu": ["float32", "float16"], "cuda": ["float32"]},
        "svd": {"cpu": ["float32"], "cuda": ["float32"]},
        "sparse.mm": {"cpu": ["float32", "float64"], "cuda": ["float32"]},
    }
}


@pytest.fixture
def read(tmp_path):
    def write_and_read(text):
        path = tmp_path / "expect.toml"
        path.write_text(text)
        return expect.Expectations(str(path))

    return write_and_read


# The file


def test_rows_hold_for_names_patterns_and_dtypes(read):
    file = read(GOOD)
    assert file.find("fail", "sparse.mm", "float32").reason == "sparse tensors are not supported"
    assert file.find("fail", "sparse.mm", "float64") is None and file.find("fail", "add", "float32") is None
    assert file.find("tolerance", "cov", "float64").numbers == {"rtol": 1e-3, "atol": 0}


def test_the_last_row_that_holds_counts(read):
    row = '[[samples]]\nentries = ["{}"]\nmost = {}\nreason = "a good reason"\n'
    file = read(row.format("*", 9) + row.format("exp", 2))
    assert [file.find("samples", name, "bool").numbers["most"] for name in ("add", "exp")] == [9, 2]


@pytest.mark.parametrize("path", [expect.find_shipped("host"), expect.find_shipped("npu")], ids=os.path.basename)
def test_shipped_files_are_valid(path):
    assert expect.Expectations(path).device["dtypes"] == list(expect.USUAL)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1", ["unknown key 'x'", "valid: device, guard, skip"]),
        ("[device]\nnames = 1", ["'device.names'", "database"]),
        ("[device]\ndtypes = ['float33']", ["device.dtypes", "'float33'", "bfloat16"]),
        ("[device]\ndtypes = 'float32'", ["device.dtypes", "'float32'", "a list"]),
        ("[device]\ndtypes = []", ["device.dtypes", "empty"]),
        ("[device]\ndatabase = 'npu'", ["device.database", "'npu'", "cpu, cuda"]),
        ("[device]\nchecks = ['value']", ["device.checks", "'value'", "strides"]),
        ("[device]\ntimeout = 0", ["device.timeout", "0", "more than 0"]),
        ("[device]\ntimeout = true", ["device.timeout", "True", "seconds"]),
        ("[device]\nsamples = -1", ["device.samples", "-1"]),
        ("[device.tolerance]\nfloat16 = { rtol = 1 }", ["device.tolerance.float16", "no atol"]),
        ("[device.tolerance]\nfloat16 = { rtol = -1, atol = 0 }", ["device.tolerance.float16.rtol", "-1"]),
        ("[device.tolerance]\nfloat17 = { rtol = 1, atol = 0 }", ["'device.tolerance.float17'"]),
        ("[skip]\nadd = 'because'", ["skip", "[[skip]]"]),
        ("[[skip]]\nentries = ['add']", ["skip[0].reason", "add"]),
        ("[[skip]]\nreason = 'a good reason'", ["skip[0]", "no entries"]),
        ("[[fail]]\nentries = ['add']\ndtypes = []\nreason = 'a good reason'", ["fail[0].dtypes", "leave it out"]),
        ("[[fail]]\nentries = ['add']\nrtol = 1\nreason = 'a good reason'", ["'fail[0].rtol'", "reason"]),
        ("[[tolerance]]\nentries = ['add']\nrtol = 1\nreason = 'a good reason'", ["tolerance[0]", "no atol"]),
        (
            "[[tolerance]]\nentries = ['add']\nrtol = nan\natol = 0\nreason = 'a good reason'",
            ["tolerance[0].rtol", "nan"],
        ),
        ("[[samples]]\nentries = ['add']\nmost = 0\nreason = 'a good reason'", ["samples[0].most", "1 or more"]),
        ("[guard]\nreferences = 1", ["guard.references", "true or false"]),
        ("[guard.c_entries]\nfloat32 = 'many'", ["guard.c_entries.float32", "'many'"]),
        ("device = ", ["is no TOML"]),
    ],
)
def test_a_wrong_file_is_refused_with_file_key_and_value(read, text, words):
    with pytest.raises(expect.ExpectationError) as caught:
        read(text)
    assert "expect.toml" in str(caught.value)
    assert [word for word in words if word not in str(caught.value)] == []


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(expect.ExpectationError, match=r"none\.toml: cannot be read: No such file"):
        expect.Expectations(str(tmp_path / "none.toml"))


def test_unknown_entries_are_an_error_in_the_torch_of_the_file_else_a_note(read):
    file = read(GOOD.replace("svd", "svdd"))
    known = ["to_sparse", "sparse.mm", "cov", "exp", "svd"]
    with pytest.raises(expect.ExpectationError, match=r"skip\[0\]\.entries: 'svdd' .* near: svd"):
        file.check_entries(known, "2.13.0+cpu")
    assert len(file.check_entries(known, "2.11.0")) == 1
    assert read(GOOD).check_entries(known, "2.13.0") == []


# The choice of pairs


def pairs_of(read, *words):
    chosen = arguments.choose_pairs(arguments.parse(list(words)), CATALOG, read(GOOD))
    return [(pair.entry, pair.dtype, pair.samples, pair.complete) for pair in chosen]


def test_pairs_are_what_is_asked_for_and_supported(read):
    assert pairs_of(read, "--ops", "add,e*", "--dtypes", "float16,int32") == [
        ("add", "float16", 0, True),
        ("exp", "float16", 3, True),
        ("add", "int32", 0, True),
    ]
    assert pairs_of(read, "--ops", "exp", "--samples", "2")[0] == ("exp", "float32", 2, False)
    assert pairs_of(read, "--ops", "exp", "--samples", "5")[0] == ("exp", "float32", 3, False)
    assert pairs_of(read, "--ops", "exp", "--samples", "0")[0] == ("exp", "float32", 0, True)


def test_the_tables_of_cuda_narrow_the_choice(read, tmp_path):
    file = read(GOOD.replace('database = "cpu"', 'database = "cuda"'))
    chosen = arguments.choose_pairs(arguments.parse(["--ops", "add,exp"]), CATALOG, file)
    assert [(pair.entry, pair.dtype) for pair in chosen] == [
        ("add", "float32"),
        ("exp", "float32"),
        ("add", "float16"),
    ]


def test_quick_is_the_first_dtype_and_a_few_samples_of_one_other(read):
    chosen = pairs_of(read, "--quick")
    assert [row for row in chosen if row[1] == "float32"] == [
        ("add", "float32", 0, True),
        ("exp", "float32", 3, True),
        ("svd", "float32", 0, True),
        ("sparse.mm", "float32", 0, True),
    ]
    others = [row for row in chosen if row[1] != "float32"]
    assert sorted(row[0] for row in others) == ["add", "exp"]
    assert all(0 < row[2] <= arguments.QUICK_SAMPLES and not row[3] for row in others)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--ops", "ad"], "'ad'; near: add"),
        (["--dtypes", "float33"], "'float33' is no dtype; valid: float32"),
        (["--dtypes", "bool"], "none of the 4 chosen entries has a dtype of bool"),
        (["--dtypes", ","], "names none"),
        (["--jobs", "0"], "number (at least 1)"),
        (["--nonsense"], "--nonsense"),
        (["--json", "/no/such/folder/x.json"], "there is no folder '/no/such/folder'"),
    ],
)
def test_wrong_words_are_refused(read, words, message):
    with pytest.raises(arguments.UsageError) as caught:
        pairs_of(read, *words)
    assert message in str(caught.value)


# Verdicts


@pytest.mark.parametrize(
    ("entry", "dtype", "status", "complete", "verdict", "why"),
    [
        ("add", "float32", "pass", True, "pass", ""),
        ("add", "float32", "fail", True, "wrong", "values differ"),
        ("add", "float32", "crash", True, "wrong", "crash: values differ"),
        ("add", "float32", "timeout", True, "wrong", "timeout: values differ"),
        ("sparse.mm", "float32", "fail", True, "expected", ""),
        ("sparse.mm", "float32", "pass", True, "wrong", "fail[0] lists it, but it passes now: remove it there"),
        ("sparse.mm", "float32", "pass", False, "pass", ""),
        ("sparse.mm", "float16", "fail", True, "wrong", "values differ"),
        ("svd", "float32", "skip", True, "skipped", ""),
        ("svd", "float32", "fail", True, "expected", ""),
        ("svd", "float32", "pass", True, "wrong", "skip[0] lists it, but it passes now: remove it there"),
        ("add", "float32", "cpu_fails", True, "no_reference", ""),
    ],
)
def test_verdicts(read, entry, dtype, status, complete, verdict, why):
    answer = {"status": status, "message": "values differ"}
    result = report.judge(entry, dtype, answer, read(GOOD), complete)
    assert (result["verdict"], result["why"]) == (verdict, why)


def test_the_guards(read):
    file = read(GOOD + "[guard]\nreferences = true\nc_entries.float32 = 2\n")
    result = report.judge("add", "float32", {"status": "cpu_fails", "message": "no kernel"}, file, True)
    assert result["verdict"] == "wrong" and "[[no_reference]]" in result["why"] and "no kernel" in result["why"]
    ran = report.judge("add", "float32", {"status": "pass", "message": "", "c": {"aten::add": 1}}, file, True)
    assert "at least 2 are demanded" in report.Summary([ran], file, {"float32": True}).problems[0]
    assert report.Summary([ran], file, {"float32": False}).problems == []


# Reports


def test_junit_is_valid_and_counts_right(read, tmp_path):
    file = read(GOOD)
    answers = [
        ("add", "float32", "pass", ""),
        ("exp", "float32", "fail", "values differ: <a> & \x00\x1b[31m \ud800 \U0001f600"),
        ("cov", "float32", "crash", "killed by SIGSEGV"),
        ("svd", "float32", "skip", ""),
        ("sparse.mm", "float32", "fail", "no sparse"),
        ("add", "int32", "cpu_fails", "no kernel"),
    ]
    results = [report.judge(e, d, {"status": s, "message": m, "seconds": 0.5}, file, True) for e, d, s, m in answers]
    summary = report.Summary(results, file, {})
    about = dict.fromkeys(("ditorch", "torch", "backend", "device", "expect"), "x")
    path = tmp_path / "out.xml"
    report.write_junit(str(path), about, summary)
    check_junit(path)
    root = ElementTree.parse(path).getroot()
    assert {name: root.get(name) for name in ("tests", "failures", "errors", "skipped", "time")} == {
        "tests": "6",
        "failures": "1",
        "errors": "1",
        "skipped": "3",
        "time": "3.000",
    }
    assert [suite.get("name") for suite in root] == ["float32", "int32"]


def check_junit(path):
    """The schema that JUnit readers share: elements, their attributes, and totals that agree with the cases."""
    children = {
        "testsuites": {"testsuite"},
        "testsuite": {"properties", "testcase"},
        "properties": {"property"},
        "testcase": {"failure", "error", "skipped"},
    }
    needed = {
        "testsuites": {"name", "tests", "failures", "errors", "skipped", "time"},
        "testsuite": {"name", "tests", "failures", "errors", "skipped", "time"},
        "property": {"name", "value"},
        "testcase": {"classname", "name", "time"},
        "failure": {"message", "type"},
        "error": {"message", "type"},
        "skipped": {"message"},
    }
    root = ElementTree.parse(path).getroot()
    assert root.tag == "testsuites"
    for element in root.iter():
        assert set(element.attrib) == needed.get(element.tag, set()), element.tag
        assert {child.tag for child in element} <= children.get(element.tag, set()), element.tag
    for suite in [*root, root]:
        cases = list(suite.iter("testcase"))
        assert int(suite.get("tests")) == len(cases)
        for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert int(suite.get(name)) == sum(case.find(tag) is not None for case in cases)
        assert all(len(case) <= 1 for case in cases)


def test_the_page_of_a_whole_run(read, tmp_path, python):
    file = read(GOOD)
    answers = [
        ("add", "float32", {"status": "pass", "message": "", "samples": 3, "c": {"aten::add.Tensor": 5}}),
        ("sparse.mm", "float32", {"status": "fail", "message": "no | sparse", "fallback": {"aten::mm": 1}}),
        ("add", "int32", {"status": "cpu_fails", "message": "no kernel"}),
    ]
    results = [report.judge(entry, dtype, answer, file, True) for entry, dtype, answer in answers]
    for complete, status in (({"float32": True, "int32": True}, 0), ({"float32": True, "int32": False}, 1)):
        summary = report.Summary(results, file, complete)
        report.write_json(str(tmp_path / "in.json"), {"format": "ditorch-test-device"}, summary)
        answer = python(REPORT, "in.json", "--output", "out.md", check=False, cwd=tmp_path)
        assert answer.returncode == status, answer.stderr
    assert "is no whole run" in answer.stderr
    page = (tmp_path / "out.md").read_text().splitlines()
    for line in (
        "| float32 | 2 | 1 | 1 | 0 | 50.0 % | 0 |",
        "| **all** | 2 | 1 | 1 | 0 | 50.0 % | 1 |",
        "| `sparse.mm` | float32 | sparse tensors are not supported | no \\| sparse |",
        "| `add` | int32 | no kernel |",
        "| `aten::add.Tensor` | 1 | 5 |",
        "| `add` | pass | - |",
        "| `sparse.mm` | fails |  |",
    ):
        assert line in page, line


def test_notes_stay_in_their_slots(tmp_path):
    path = tmp_path / "notes"
    path.write_bytes(b"\0" * worker_notes.NOTE_BYTES * 3)
    notes = worker_notes.Notes(str(path))
    notes.write(1, "sample 1, a long text " * 20)
    notes.write(1, "sample 2")
    assert [notes.read(index) for index in range(3)] == ["", "sample 2", ""]
    notes.close()


# Whole runs


FAULTS = {
    "mul": ("float16", "value:mul.*,dtype=float16"),
    "sub": ("complex64", "value:sub.*,dtype=complex64"),
    "maximum": ("int32", "value:maximum*,dtype=int32"),
    "logical_xor": ("bool", "nan:logical_xor*,dtype=bool"),
    "flip": ("bfloat16", "unwritten:flip*,dtype=bfloat16"),
    "tanh": ("float64", "value:tanh_backward*,dtype=float64"),
    "ceil": ("float32", "value:ceil_,dtype=float32"),
    "atan": ("float64", "value:atan.out,dtype=float64"),
    "floor": ("float32", "input:floor,dtype=float32"),
}
"""Entry: the dtype that breaks, and the rule: results, gradients alone, in place alone, out= alone, arguments."""


def test_a_broken_operator_turns_its_pair_red_in_every_kind_of_dtype(python, tmp_path):
    """And no other: half, complex, integer and boolean faults, each in one dtype of one entry."""
    dtypes = ",".join({dtype: None for dtype, _ in FAULTS.values()})
    answer = python(
        "-m", "ditorch", "test-device", "--ops", ",".join(FAULTS), "--dtypes", dtypes, "--samples", "3", "--jobs", "1",
        "--json", "out.json", "--junit", "out.xml",
        check=False, cwd=tmp_path, DITORCH_FAULT=";".join(rule for _, rule in FAULTS.values()),
    )  # fmt: skip
    assert answer.returncode == 1, answer.stdout + answer.stderr
    data = json.loads((tmp_path / "out.json").read_text())
    wrong = {(row["entry"], row["dtype"]) for row in data["results"] if row["verdict"] == "wrong"}
    assert wrong == {(entry, dtype) for entry, (dtype, _) in FAULTS.items()}, answer.stdout
    assert data["totals"]["all"]["passing"] == data["totals"]["all"]["tried"] - len(FAULTS) > 10
    assert sum(row["backward"] for row in data["results"]) > 5 and sum(row["out"] for row in data["results"]) > 20
    check_junit(tmp_path / "out.xml")


# Crashes, hangs, resumption: the whole command over a worker without torch


STUB = """
import json, mmap, os, signal, sys, time
options = json.loads(sys.stdin.readline())
notes = mmap.mmap(os.open(options["notes"], os.O_RDWR), 0)
both = lambda *dtypes: {"cpu": list(dtypes), "cuda": list(dtypes)}
entries = {"add": both("float32", "float16"), "crash": both("float32"), "hang": both("float32"), "sub": both("bool")}
entries["poison"] = both("float16")
facts = {"device": "stub", "torch": "2.13.0", "backend": "stub", "entries": entries}
print(json.dumps({"ready": {"error": "no such device"} if options["device"] == "none" else facts}), flush=True)
for line in sys.stdin:
    task = json.loads(line)
    with open("log", "a") as log:
        log.write(task["entry"] + " " + task["dtype"] + chr(10))
    notes[task["index"] * 96 : task["index"] * 96 + 8] = b"sample 3"
    if task["entry"] == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if task["entry"] == "hang":
        time.sleep(1000)
    answer = {"index": task["index"], "status": "pass", "message": "", "samples": 2}
    if task["entry"] == "poison":
        print(json.dumps({**answer, "status": "fail", "message": "CUDA error", "last": True}), flush=True)
        break
    print(json.dumps(answer), flush=True)
"""


@pytest.fixture
def run(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(worker, "COMMAND", STUB)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "expect.toml").write_text('[device]\ndtypes = ["float32", "float16", "bool"]\n')

    def call(*words):
        status = command.main(["--expect", "expect.toml", "--jobs", "1", "--timeout", "5", *words])
        output = capsys.readouterr()
        return status, output.out, output.err

    return call


def test_a_crash_and_a_hang_cost_one_pair_each(run, tmp_path):
    status, out, _ = run("--ops", "add,crash,hang,sub", "--json", "out.json", "--junit", "out.xml")
    assert status == 1
    assert "WRONG crash [float32]: crash: the process was killed by SIGSEGV (sample 3)" in out
    assert "WRONG hang [float32]: timeout: no end after 5 s (--timeout) (sample 3)" in out
    data = json.loads((tmp_path / "out.json").read_text())
    verdicts = {(row["entry"], row["dtype"]): row["verdict"] for row in data["results"]}
    assert [pair for pair, verdict in verdicts.items() if verdict == "pass"] == [
        ("add", "float32"),
        ("add", "float16"),
        ("sub", "bool"),
    ]
    assert data["totals"]["all"] == {**data["totals"]["all"], "pairs": 5, "tried": 5, "passing": 3, "wrong": 2}
    check_junit(tmp_path / "out.xml")
    assert ElementTree.parse(tmp_path / "out.xml").getroot().get("errors") == "2"


def test_a_second_run_goes_on_and_another_batch_is_refused(run, tmp_path):
    words = ("--resume", "state", "--ops", "add,crash,sub")
    first = run(*words)
    assert len((tmp_path / "log").read_text().splitlines()) == 4
    lines = (tmp_path / "state").read_text().splitlines()
    (tmp_path / "state").write_text("\n".join(lines[:-1]) + "\n" + lines[-1][:20])  # a kill tore the last line
    assert run(*words)[:2] == first[:2]
    assert (tmp_path / "log").read_text().splitlines()[4:] == ["sub bool"]
    (tmp_path / "expect.toml").write_text('[device]\ndtypes = ["float32"]\n')
    status, _, err = run(*words)
    assert status == 2 and "--resume 'state' belongs to another batch: expect_sha256 was" in err


def test_exit_statuses_and_messages(run, tmp_path):
    assert run("--list", "--ops", "a*,s*") == (0, "add float32\nadd float16\nsub bool\n", "")
    assert run("--ops", "add")[0] == 0
    status, _, err = run("--ops", "nonsense")
    assert status == 2 and "no entry of the operator database is 'nonsense'" in err
    status, _, err = run("--device", "none")
    assert status == 2 and "no such device" in err
    status, _, err = run("--dtypes", "int")
    assert status == 2 and "'int' is no dtype" in err
    (tmp_path / "expect.toml").write_text("[device]\ntimeouts = 3\n")
    status, _, err = run()
    assert status == 2 and "expect.toml: unknown key 'device.timeouts'" in err


def test_a_package_that_the_database_needs_is_named(run, monkeypatch):
    monkeypatch.setattr(worker, "COMMAND", "import no_such_package")
    status, _, err = run()
    assert status == 2 and "No module named 'no_such_package'" in err and "pip install numpy expecttest" in err


def test_a_worker_whose_device_is_beyond_repair_is_replaced(run):
    status, out, _ = run("--ops", "poison,add,sub")
    assert status == 1 and out.count("WRONG") == 1 and "WRONG poison [float16]: CUDA error" in out


def test_skipped_pairs_do_not_run_unless_asked(run, tmp_path):
    with open(tmp_path / "expect.toml", "a") as file:
        file.write('[[skip]]\nentries = ["crash", "hang", "sub"]\nreason = "it takes the machine down"\n')
    assert run("--ops", "add,crash,hang,sub")[0] == 0
    assert (tmp_path / "log").read_text().splitlines() == ["add float32", "add float16"]
    status, out, _ = run("--run-skipped", "--ops", "add,crash,sub")
    assert status == 1 and "WRONG sub [bool]: skip[0] lists it, but it passes now" in out and "WRONG crash" not in out
