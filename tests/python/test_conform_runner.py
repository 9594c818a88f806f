"""Packs, the program dit_conform, and the runner: every kind of defect in a library must be seen, and named.

The library is tests/c/vendors/odd_diopi.c: right unless ODD_DEFECT says otherwise.
"""

import json
import os
import shutil
import subprocess

import pytest
import torch
from ditorch.conform import pack, report, runner
from ditorch.conform.case import Case, GeneratorArgument, NumberArgument, RequiredArgument, TensorArgument

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
COMPILER = shutil.which("cc") or shutil.which("gcc")
pytestmark = [
    pytest.mark.usefixtures("warm_children"),
    pytest.mark.skipif(COMPILER is None, reason="the library under test is compiled here, and there is no compiler"),
    pytest.mark.skipif(not os.path.exists(runner.PROGRAM), reason="dit_conform is not built"),
]
WIDE = torch.float64


def make_abs(name, x, out=None, expected=None, tolerance=0.0, **more):
    """diopiAbs(out, x)."""
    expected = x.to(WIDE).abs() if expected is None else expected
    limit = None if tolerance is None else torch.tensor(tolerance, dtype=WIDE)
    first = TensorArgument(torch.empty_like(x) if out is None else out, "out", expected=expected, tolerance=limit)
    tags = {"dtype": str(x.dtype).removeprefix("torch."), "layout": "any"}
    return Case(f"diopiAbs/{name}", "diopiAbs", [first, TensorArgument(x)], tags=tags, **more)


def make_cases():
    """One case per way of judging, and per layout; numbers of elements tell them apart."""
    draw = torch.Generator().manual_seed(5)

    def normal(*shape):
        return torch.randn(*shape, generator=draw)

    sorted_input = torch.tensor([3.0, 1.0, 2.0, 1.0, 5.0])
    order = sorted_input.sort().values.to(WIDE)
    nonzero = torch.tensor([0.0, 1.0, 0.0, 2.0, 3.0, 0.0])
    aliased = normal(9)
    kept, limit = normal(21), torch.tensor(1e-5, dtype=WIDE)
    wrong = TensorArgument(torch.empty(4), "out", check="untouched")
    return [
        make_abs("plain", normal(3, 4), tolerance=1e-5),
        make_abs("strided", normal(6, 10)[::2, 1:10:2], out=torch.empty(8, 11)[1:4, 2:11:2]),
        make_abs("empty", normal(0, 3)),
        make_abs("scalar", torch.tensor(-2.0)),
        make_abs("expanded", normal(1, 5).expand(4, 5)),
        make_abs("int", torch.arange(7), expected=torch.arange(7), tolerance=None),
        Case(
            "diopiAbs/alias",
            "diopiAbs",
            [TensorArgument(aliased, "inout", expected=aliased.abs(), alias=1), TensorArgument(aliased)],
        ),
        Case("diopiAbs/error", "diopiAbs", [wrong, TensorArgument(normal(8))], expect="error"),
        Case("diopiAbs/null", "diopiAbs", [None, TensorArgument(normal(2))], expect="error"),
        Case(
            "diopiNonzero/some",
            "diopiNonzero",
            [RequiredArgument(torch.int64, torch.tensor([[1], [3], [4]])), TensorArgument(nonzero)],
        ),
        Case(
            "diopiEqual/no",
            "diopiEqual",
            [NumberArgument(False), TensorArgument(normal(13)), TensorArgument(normal(13))],
        ),
        Case(
            "diopiSort/ties",
            "diopiSort",
            [
                TensorArgument(torch.empty(5), "out", expected=order),
                TensorArgument(
                    torch.empty(5, dtype=torch.int64), "out", "selection", expected=order, source=2, bounds=(0.0,)
                ),
                TensorArgument(sorted_input),
                0,
                False,
                None,
            ],
        ),
        Case(
            "diopiRandperm/ten",
            "diopiRandperm",
            [
                TensorArgument(torch.empty(10, dtype=torch.int64), "out", "permutation", expected=torch.arange(10)),
                10,
                GeneratorArgument(3),
            ],
        ),
        Case(
            "diopiUniformInp/unit",
            "diopiUniformInp",
            [
                TensorArgument(torch.zeros(4000), "inout", "moments", bounds=(0.45, 0.55, 0.07, 0.1, 0.0, 1.0)),
                0.0,
                1.0,
                GeneratorArgument(11),
            ],
        ),
        Case(
            "diopiDropout/half",
            "diopiDropout",
            [
                TensorArgument(torch.empty(21), "out", "kept", expected=kept.to(WIDE) * 2, tolerance=limit, source=1),
                TensorArgument(
                    torch.empty(21, dtype=torch.bool), "out", "moments", bounds=(0.2, 0.8, 0.1, 0.3, 0.0, 1.0)
                ),
                TensorArgument(kept),
                0.5,
                True,
                GeneratorArgument(7),
            ],
        ),
        Case(
            "diopiNeg/missing",
            "diopiNeg",
            [TensorArgument(torch.empty(3), "out", expected=torch.zeros(3)), TensorArgument(torch.zeros(3))],
        ),
    ]


def compile_library(path, *definitions):
    command = [COMPILER, "-std=c11", "-D_GNU_SOURCE", "-fPIC", "-shared", "-I", os.path.join(ROOT, "include")]
    source = os.path.join(ROOT, "tests", "c", "vendors", "odd_diopi.c")
    subprocess.run([*command, *definitions, "-o", str(path), source, "-lm"], check=True)
    return str(path)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return compile_library(tmp_path_factory.mktemp("odd") / "libdiopi_odd.so")


@pytest.fixture(scope="module")
def telling_library(tmp_path_factory):
    """The same with diopiExtInferOutputs."""
    return compile_library(tmp_path_factory.mktemp("telling") / "libdiopi_telling.so", "-DODD_EXTENSION")


@pytest.fixture(scope="module")
def cases_pack(tmp_path_factory):
    path = tmp_path_factory.mktemp("pack") / "cases.pack"
    assert pack.write(path, make_cases()) == len(make_cases())
    return path


def run(path, library, defect="none", numel=None, **settings):
    environment = {"ODD_DEFECT": defect}
    if numel is not None:
        environment["ODD_NUMEL"] = str(numel)
    rows = runner.run(path, library, environment=environment, **settings)
    return {row["id"]: row for row in rows}


GOOD = {
    "diopiAbs/int": "unsupported",
    "diopiNeg/missing": "missing",
}


@pytest.mark.parametrize("behind", [None, "adapt", "faulty"])
def test_operators_of_the_host_refuse_memory_that_they_cannot_read(cases_pack, behind):
    """Directly the run ends in words; a library in front of them says it in every call."""
    if behind is None:
        with pytest.raises(runner.ConformError, match="cannot read that of the vendor's device"):
            runner.run(cases_pack, "host", vendor="opaque")
        return
    rows = runner.run(cases_pack, behind, vendor="opaque", environment={"DITORCH_ADAPT_LIB": "host"}, only="*abs*")
    assert not [row for row in rows if row["verdict"] in ("pass", "crash")]
    assert all("cannot read" in row["text"] + row["reason"] for row in rows)


@pytest.mark.parametrize("vendor", [None, "host"])
def test_right_library(cases_pack, library, vendor):
    rows = run(cases_pack, library, vendor=vendor, side_stream=vendor is not None)
    assert {name: row["verdict"] for name, row in rows.items()} == {
        case.id: GOOD.get(case.id, "pass") for case in make_cases()
    }
    assert rows["diopiAbs/error"]["code"] == 1 and "another number" in rows["diopiAbs/error"]["text"]


DEFECTS = [
    ("value", "diopiAbs/plain", "value", "out[2, 3] is "),
    ("value", "diopiAbs/strided", "value", "1 of 15 elements are wrong"),
    ("value", "diopiAbs/alias", "value", "out[8]"),
    ("nan", "diopiAbs/plain", "nan", "out[0, 0] is nan, expected "),
    ("unwritten", "diopiAbs/plain", "nan", "out[0, 1] is "),
    ("after", "diopiAbs/plain", "guard", "wrote outside 'out', at byte +52 of its storage of 48 bytes"),
    ("after", "diopiAbs/strided", "gap", "wrote outside the output 'out' at byte +"),
    ("before", "diopiAbs/plain", "guard", "wrote outside 'out', at byte -4 of its storage"),
    ("before", "diopiAbs/strided", "gap", "between its elements"),
    ("input", "diopiAbs/plain", "input", "modified input 'input' at byte +4 of its storage"),
    ("input", "diopiAbs/strided", "input", "modified input 'input'"),
    ("random", "diopiAbs/plain", "determinism", "the same call gave other bits: element 0 of 'out' differs"),
    ("scratch", "diopiAbs/plain", "guard", "wrote outside a scratch tensor of 24 bytes, at byte +24"),
    ("code", "diopiAbs/plain", "code", "returned diopiErrorOccurred (1): diopiAbs: out has another"),
    ("early", "diopiAbs/error", "written", "refused its arguments, but wrote 'out' at byte +0"),
    ("accepts", "diopiAbs/error", "accepted", "accepted arguments that are not valid"),
    ("silent", "diopiAbs/null", "text", "returned diopiErrorOccurred (1) without an error text"),
    ("shape", "diopiNonzero/some", "shape", "'out' has shape (4, 1), expected (3, 1)"),
    ("dtype", "diopiNonzero/some", "dtype", "'out' has dtype float64, expected int64"),
    ("handle", "diopiNonzero/some", "unwritten", "its handle is NULL"),
    ("value", "diopiNonzero/some", "value", "out[0, 0] is 2, expected 1 (tolerance 0); 3 of 3"),
    ("value", "diopiEqual/no", "value", "out is true, expected false"),
    ("unwritten", "diopiEqual/no", "value", "out is 255 (no bool), expected false"),
    ("value", "diopiSort/ties", "value", "indices[1] is 3, an index that is already there"),
    ("index", "diopiSort/ties", "value", "indices[0] is 5, which is no index into its source"),
    ("before", "diopiSort/ties", "guard", "wrote outside 'indices', at byte -8 of its storage of 40 bytes"),
    ("value", "diopiRandperm/ten", "value", "row 0 of out, put in order, has "),
    ("offset", "diopiUniformInp/unit", "generator", "left its generator at offset 0"),
    ("value", "diopiUniformInp/unit", "moments", "the mean of inout is 0.3"),
    ("value", "diopiDropout/half", "value", "for its mask is false there"),
]


def test_a_defect_of_other_streams_needs_the_side_stream(cases_pack, library):
    plain = "diopiAbs/plain"
    assert run(cases_pack, library, "stream", only=plain, vendor="host")[plain]["verdict"] == "pass"
    row = run(cases_pack, library, "stream", only=plain, vendor="host", side_stream=True)[plain]
    assert row["verdict"] == "fail" and row["reason"].startswith("on another stream than the default: out[0, 0] is -1")
    with pytest.raises(runner.ConformError, match="--side-stream needs --vendor"):
        run(cases_pack, library, side_stream=True)


def test_a_place_in_31_bits_is_noticed_where_elements_are_far(tmp_path, library):
    """`far`: more than 2^31 elements from the first to the last of a tensor; near, the defect does not show."""
    path, x = tmp_path / "far.pack", torch.arange(-6.0, 6.0).reshape(3, 4)
    near, far = make_abs("near", x), make_abs("far", x)
    far.tags["far"] = "far"
    pack.write(path, [near, far])
    assert {row["verdict"] for row in run(path, library).values()} == {"pass"}
    rows = run(path, library, "narrow")
    assert rows["diopiAbs/near"]["verdict"] == "pass"
    assert (rows["diopiAbs/far"]["verdict"], rows["diopiAbs/far"]["kind"]) == ("fail", "nan")
    rows = run(path, library, "input", numel=12)
    assert rows["diopiAbs/far"]["reason"].startswith("modified input 'input' at byte +6 of its storage")
    row = run(path, library, vendor="host")["diopiAbs/far"]
    assert row["verdict"] == "skipped" and "memory of the host" in row["reason"]


@pytest.mark.parametrize(("defect", "case", "kind", "reason"), DEFECTS)
def test_defect(cases_pack, library, defect, case, kind, reason):
    row = run(cases_pack, library, defect, only=case)[case]
    assert (row["verdict"], row["kind"]) == ("fail", kind), row
    assert reason in row["reason"]


def test_inference_is_compared_where_the_library_tells(cases_pack, telling_library, library):
    rows = run(cases_pack, telling_library)
    told = {name: row.get("inference") for name, row in rows.items() if row["verdict"] == "pass"}
    assert told["diopiAbs/strided"] == told["diopiNonzero/some"] == "judged" and told["diopiSort/ties"] == "untold"
    assert told["diopiAbs/error"] is None
    assert report.format_inference(rows.values()) == (
        "inference: results of 7 calls told before and compared, of 5 not told"
    )
    silent = run(cases_pack, library).values()
    assert not any("inference" in row for row in silent) and "not checked" in report.format_inference(silent)


@pytest.mark.parametrize(
    ("defect", "case", "reason"),
    [
        ("infer shape", "diopiAbs/plain", "result 0, 'out', has 2 dimensions (4, 5); its shape is (3, 4)"),
        ("infer rank", "diopiAbs/scalar", "result 0, 'out', has 1 dimensions"),
        ("infer dtype", "diopiAbs/plain", "'out', has dtype 6; it is float32 (9)"),
        ("infer count", "diopiNonzero/some", "there are 2 results; there are 1"),
        ("infer code", "diopiAbs/plain", "returned diopiErrorOccurred (1): diopiAbs: nothing can be inferred"),
    ],
)
def test_a_wrong_inference_is_a_failure(cases_pack, telling_library, defect, case, reason):
    row = run(cases_pack, telling_library, defect, only=case)[case]
    assert (row["verdict"], row["kind"]) == ("fail", "inference") and reason in row["reason"], row


def test_defect_is_all_that_fails(cases_pack, library):
    rows = run(cases_pack, library, "value", numel=12)
    assert [name for name, row in rows.items() if row["verdict"] == "fail"] == ["diopiAbs/plain"]


@pytest.mark.parametrize(
    ("expected", "tolerance", "verdict"),
    [
        ([1.0, 2.0, float("inf"), float("nan")], None, "pass"),
        ([1.0, 2.0, float("inf"), float("nan")], 1e30, "pass"),
        ([1.0, 2.5, float("inf"), float("nan")], 0.5, "pass"),
        ([1.0, 2.5, float("inf"), float("nan")], 0.49, "fail"),
        ([1.0, 2.0, 1e38, float("nan")], 1e30, "fail"),
        ([1.0, 2.0, float("-inf"), float("nan")], 1e30, "fail"),
        ([1.0, 2.0, float("inf"), 4.0], 1e30, "fail"),
        ([1.0, float("nan"), float("inf"), float("nan")], 1e30, "fail"),
        ([1.0, float("inf"), float("inf"), float("nan")], float("inf"), "fail"),
    ],
)
def test_tolerance(tmp_path, library, expected, tolerance, verdict):
    x = torch.tensor([-1.0, 2.0, float("-inf"), float("nan")])
    path = tmp_path / "one.pack"
    pack.write(path, [make_abs("one", x, expected=torch.tensor(expected, dtype=WIDE), tolerance=tolerance)])
    assert run(path, library)["diopiAbs/one"]["verdict"] == verdict


@pytest.mark.parametrize("defect", ["crash", "exit", "hang"])
def test_process_ends(cases_pack, library, defect, tmp_path):
    out = tmp_path / "rows.jsonl"
    limit = 5.0 if defect == "hang" else 300.0  # the others end by themselves
    rows = run(cases_pack, library, defect, numel=20, timeout=limit, out=out, jobs=2)
    bad = rows.pop("diopiAbs/expanded")
    assert bad["verdict"] == ("timeout" if defect == "hang" else "crash")
    assert {"crash": "signal 6 (SIGABRT)", "exit": "exit status 0", "hang": "within 5 s"}[defect] in bad["reason"]
    assert {name: row["verdict"] for name, row in rows.items()} == {
        case.id: GOOD.get(case.id, "pass") for case in make_cases() if case.id != "diopiAbs/expanded"
    }
    assert runner.judge_functions([bad, *rows.values()])["diopiAbs"] == bad["verdict"]


def test_resume(cases_pack, library, tmp_path):
    out = tmp_path / "rows.jsonl"
    whole = run(cases_pack, library, out=out)
    lines = out.read_text().splitlines(keepends=True)
    assert json.loads(lines[0])["cases"] == len(whole)
    out.write_text("".join(lines[:6]) + lines[6][:20])
    seen = []
    rows = run(cases_pack, library, out=out, resume=True, progress=lambda *what: seen.append(what))
    assert [row["id"] for _, _, row in seen] == list(whole)[5:]
    assert [done for done, _, _ in seen] == list(range(6, len(whole) + 1))
    strip = {"seconds": 0}
    assert {k: {**v, **strip} for k, v in rows.items()} == {k: {**v, **strip} for k, v in whole.items()}
    with pytest.raises(runner.ConformError, match="another run"):
        run(cases_pack, library, vendor="host", out=out, resume=True)


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({"only": "diopiEqual*"}, ["diopiEqual/no"]),
        ({"only": ["diopiAbs/plain", "diopiEqual"]}, ["diopiAbs/plain", "diopiEqual/no"]),
        ({"only": ["diopiAbs", "dtype=int64"]}, ["diopiAbs/int"]),
        ({"only": ["diopiAbs/*l*", "dtype=float32"]}, ["diopiAbs/plain", "diopiAbs/scalar"]),
        ({"only": "nothing"}, []),
    ],
)
def test_selection(cases_pack, library, settings, wanted):
    assert list(run(cases_pack, library, **settings)) == wanted


def test_rules(cases_pack, library, tmp_path):
    rules = tmp_path / "rules"
    rules.write_text("# known\nskip diopiAbs/plain\n\ntolerance diopiAbs/strided 1e9\n")
    rows = run(cases_pack, library, "value", rules=str(rules), only="diopiAbs/[ps]*")
    assert rows["diopiAbs/plain"]["verdict"] == "skipped"
    assert rows["diopiAbs/strided"]["verdict"] == "fail"  # its tolerance is 0
    rules.write_text("tolerance diopiAbs/strided none\n")
    with pytest.raises(runner.ConformError, match="line 1 begins with 'tolerance'; valid: 'skip PATTERN'"):
        run(cases_pack, library, rules=str(rules))


def test_no_library(cases_pack):
    with pytest.raises(runner.ConformError, match="nosuch"):
        runner.run(cases_pack, "nosuch")


@pytest.mark.parametrize("place", [3, 40, 200, -10])
def test_damaged_pack(cases_pack, library, tmp_path, place):
    data = bytearray(cases_pack.read_bytes())
    data[place] ^= 1
    path = tmp_path / "damaged.pack"
    path.write_bytes(data)
    with pytest.raises((runner.ConformError, pack.PackError), match=r"damaged|checksum|no conformance pack"):
        run(path, library)
    answer = subprocess.run(
        [runner.PROGRAM, "run", "--library", library, "--pack", str(path)], capture_output=True, text=True
    )
    assert answer.returncode == 2 and "dit_conform:" in answer.stderr


@pytest.mark.parametrize(
    "words",
    [[], ["fly"], ["run"], ["run", "--pack"], ["run", "--fast"], ["run", "--repeat", "0"], ["run", "--from", "x"]],
)
def test_wrong_use(words):
    answer = subprocess.run([runner.PROGRAM, *words], capture_output=True, text=True)
    assert answer.returncode == 2 and "dit_conform" in answer.stderr


def test_exit_status(cases_pack, library):
    command = [runner.PROGRAM, "run", "--library", library, "--pack", str(cases_pack)]
    for defect, status in (("none", 0), ("value", 1)):
        environment = {**os.environ, "ODD_DEFECT": defect}
        assert subprocess.run(command, capture_output=True, env=environment).returncode == status


def test_equal_bytes():
    first, second = [b"".join(pack.encode(case) for case in make_cases()) for _ in range(2)]
    assert first == second


def test_entries(cases_pack):
    entries = list(pack.read_entries(cases_pack))
    assert [(entry.id, entry.function, entry.expect) for entry in entries] == [
        (case.id, case.function, case.expect) for case in make_cases()
    ]
    assert entries[0].tags == {"dtype": "float32", "layout": "any"}
    listed = subprocess.run([runner.PROGRAM, "list", "--pack", str(cases_pack)], capture_output=True, text=True)
    assert [json.loads(line)["id"] for line in listed.stdout.splitlines()] == [entry.id for entry in entries]


@pytest.mark.parametrize(
    ("case", "part"),
    [
        (Case("a", "diopiNothing", []), "diopiNothing"),
        (Case("a", "diopiAbs", [None]), "takes 2 arguments after ctx, the case has 1"),
        (make_abs("a", torch.zeros(2), expected=torch.zeros(3, dtype=WIDE)), "3 values are expected"),
        (make_abs("a", torch.zeros(2, dtype=torch.int64), expected=torch.zeros(2)), "cannot be expected to be"),
        (make_abs("a", torch.zeros(2, dtype=torch.float8_e5m2), expected=torch.zeros(2)), "has no dtype float8"),
    ],
)
def test_unpackable(case, part):
    with pytest.raises(pack.PackError, match=part):
        pack.encode(case)


def test_every_dtype(tmp_path, library):
    """A result of each dtype is read right: a library that does nothing leaves the inout tensor as it is."""
    names = (
        "bool uint8 int8 int16 int32 int64 uint16 uint32 uint64 float16 bfloat16 float32 float64 complex64 complex128"
    )
    cases = []
    for name in names.split():
        values = torch.tensor([0, 1, 0, 1, 1]).to(getattr(torch, name))
        wide = values.to(getattr(torch, pack._wide_name(values.dtype)))
        for number, expected in enumerate((wide, torch.tensor([0, 1, 0, 0, 1]).to(wide.dtype))):
            arguments = [TensorArgument(values, "inout", "elements", expected), TensorArgument(torch.zeros(5))]
            cases.append(Case(f"{name}/{number}", "diopiAbs", arguments))
    odd = torch.tensor([1, 255], dtype=torch.uint8).view(torch.bool)  # a byte that is no bool
    arguments = [TensorArgument(odd, "inout", "elements", torch.tensor([True, True])), TensorArgument(torch.zeros(5))]
    cases.append(Case("byte/1", "diopiAbs", arguments))
    path = tmp_path / "dtypes.pack"
    pack.write(path, cases)
    rows = run(path, library, "nothing")
    assert {name: row["verdict"] for name, row in rows.items()} == {
        case.id: "pass" if case.id.endswith("0") else "fail" for case in cases
    }


def test_device(library):
    rows = {row["id"]: row for row in runner.run_device(library, vendor="host")}
    assert len(rows) == 8 and {row["verdict"] for row in rows.values()} <= {"pass", "unsupported"}, rows
    rows = {row["id"]: row for row in runner.run_device(library, environment={"ODD_DEFECT": "nameless"})}
    assert rows["library/names"]["verdict"] == "fail" and "device/copies" not in rows


def test_perf(cases_pack, library):
    rows = runner.run_perf(cases_pack, library, library, repeat=3)
    speeds = {speed.function: speed for speed in runner.compare_speed(rows)}
    assert "diopiAbs" in speeds and "diopiNeg" not in speeds
    assert all(speed.ratio > 0 and speed.seconds > 0 and speed.cases > 0 for speed in speeds.values())
