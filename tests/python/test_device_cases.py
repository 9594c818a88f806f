"""`ditorch test-device --pytorch` and `--suite`: files in the style of PyTorch's tests, with everything that a test can
do to its runner; a sample of the suites over what is in the wheel of torch."""

import csv
import json
import os
import textwrap
from xml.etree import ElementTree

import pytest
from conftest import run_python
from ditorch.device_suite import arguments
from ditorch.device_suite import expect as documents
from ditorch.device_suite.cases import expect, report, sources, worker

pytestmark = pytest.mark.usefixtures("warm_children")

ORDINARY = """
import subprocess
import sys
import unittest

import torch
from torch.testing._internal.common_device_type import dtypes, instantiate_device_type_tests, onlyCPU, onlyCUDA, ops
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_utils import TestCase, parametrize, run_tests


class TestGeneric(TestCase):
    @dtypes(torch.float32, torch.int64)
    def test_add(self, device, dtype):
        x = torch.ones(3, device=device, dtype=dtype)
        self.assertTrue(x.is_cuda)
        self.assertEqual(x + x, torch.full((3,), 2, dtype=dtype))

    @ops([op for op in op_db if op.name == "neg"], allowed_dtypes=(torch.float32,))
    def test_ops(self, device, dtype, op):
        for sample in op.sample_inputs(device, dtype):
            self.assertEqual(op(sample.input), -sample.input)

    @parametrize("n", [1, 2])
    def test_wrong(self, device, n):
        self.assertEqual(torch.ones(n, device=device), torch.zeros(n))

    def test_close(self, device):
        self.assertEqual(torch.tensor([1.0], device=device), torch.tensor([1.05]), rtol=1e-3, atol=1e-3)

    @onlyCUDA
    def test_only_cuda(self, device):
        pass

    @onlyCPU
    def test_only_cpu(self, device):
        raise AssertionError("made for the CPU alone")


class TestPlain(TestCase):
    def test_child(self):
        code = "import torch; print(torch.ones(2, device='cuda').sum().item())"
        self.assertEqual(subprocess.check_output([sys.executable, "-W", "ignore", "-c", code]).split()[-1], b"2.0")

    def test_reads_input(self):
        self.assertEqual(sys.stdin.read(), "")
        print("this is not an answer")

    @unittest.skip("not today")
    def test_skip(self):
        pass

    @unittest.expectedFailure
    def test_known(self):
        self.assertEqual(1, 2)

    @unittest.expectedFailure
    def test_better_than_known(self):
        self.assertEqual(1, 1)

    def test_parts(self):
        for n in range(3):
            with self.subTest(n=n):
                self.assertNotEqual(n, 1)

    def test_error(self):
        raise KeyError("no such thing")

    def test_exit(self):
        sys.exit(3)


class TestNotSetUp(TestCase):
    @classmethod
    def setUpClass(cls):
        raise RuntimeError("the class is out of order")

    def test_one(self):
        pass

    def test_two(self):
        pass


instantiate_device_type_tests(TestGeneric, globals())

if __name__ == "__main__":
    run_tests()
"""
HOSTILE = """
import os
import signal
import time
import unittest


def note(text):
    with open(os.environ["CASES_SEEN"], "a") as file:
        file.write(text + "\\n")


def sleep_aside():
    # a child that lives on, with all the pipes of its parent
    child = os.fork()
    if child == 0:
        time.sleep(3000)
    with open(os.environ["CASES_SEEN"] + ".children", "a") as file:
        file.write(f"{child}\\n")


class TestHostile(unittest.TestCase):
    def test_a_good(self):
        note("a")

    def test_b_crash(self):
        note("b")
        sleep_aside()
        os.kill(os.getpid(), signal.SIGSEGV)

    def test_c_hang(self):
        note("c")
        sleep_aside()
        time.sleep(3000)

    def test_d_good(self):
        note("d")
"""
EXPECT = """
[device]
timeout = 250

[[fail]]
files = ["test_ordinary.py"]
cases = ["TestGenericCUDA.test_wrong_n_1_*"]
reason = "ones are not zeros, here as elsewhere"

[[fail]]
cases = ["TestPlain.test_child"]
reason = "it passes, so this row is wrong"

[[skip]]
files = ["test_ordinary.py"]
cases = ["TestPlain.test_error"]
reason = "nothing is learned from it"

[[tolerance]]
cases = ["TestGenericCUDA.test_close_cuda"]
rtol = 0.1
atol = 0.1
reason = "the number is only almost one"

[[fail]]
files = ["test_ordinary.py"]
cases = ["TestPlain.test_chidl"]
reason = "a name with a mistake in it"
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pytorch")
    (folder / "test" / "nn").mkdir(parents=True)
    for name, text in (
        ("test_ordinary.py", ORDINARY),
        ("test_hostile.py", HOSTILE),
        ("test_broken.py", "import a_package_that_is_not_there\n"),
        ("nn/test_deep.py", "raise SystemExit('not a test today')\n"),
    ):
        (folder / "test" / name).write_text(text)
    (folder / "expect.toml").write_text(EXPECT)
    return folder


def command(*words, status=None, **environment):
    answer = run_python("-m", "ditorch", "test-device", *map(str, words), check=False, timeout=900, **environment)
    if status is not None:
        assert answer.returncode == status, answer.stdout[-3000:] + answer.stderr[-3000:]
    return answer


@pytest.fixture(scope="module")
def ordinary(tree):
    """One run over two files, with all its reports."""
    out = {name: tree / f"out.{name}" for name in ("json", "junit", "csv")}
    words = [word for name, path in out.items() for word in (f"--{name}", path)]
    files = "test_ordinary.py,test_broken,nn/test_deep"
    answer = command(
        "--pytorch", tree, "--files", files, "--expect", tree / "expect.toml", "--jobs", 1, *words, status=1
    )
    data = json.loads(out["json"].read_text())
    results = {f"{r['class']}.{r['case']}": r for r in data["results"] if r["file"] == "test_ordinary.py"}
    return answer, data, results, out


def test_cases_are_made_for_the_device(ordinary):
    _, _, results, _ = ordinary
    for name in ("add_cuda_float32", "add_cuda_int64", "ops_neg_cuda_float32", "only_cuda_cuda"):
        assert results[f"TestGenericCUDA.test_{name}"]["status"] == "passed", results
    assert results["TestGenericCUDA.test_only_cpu_cuda"]["status"] == "skipped"
    assert not [name for name in results if "CPU" in name]


def test_every_end_of_a_case_is_told_apart(ordinary):
    _, _, results, _ = ordinary
    wanted = {
        "TestGenericCUDA.test_wrong_n_2_cuda": ("failure", "wrong", "Tensor-likes are not close"),
        "TestPlain.test_child": ("passed", "pass", ""),
        "TestPlain.test_reads_input": ("passed", "pass", ""),
        "TestPlain.test_skip": ("skipped", "skipped", "not today"),
        "TestPlain.test_known": ("passed", "pass", "as its author expects"),
        "TestPlain.test_better_than_known": ("failure", "wrong", "unexpected success"),
        "TestPlain.test_parts": ("failure", "wrong", "(n=1)"),
        "TestPlain.test_exit": ("error", "wrong", "SystemExit: 3"),
        "TestNotSetUp.test_one": ("error", "wrong", "the class is out of order"),
        "TestNotSetUp.test_two": ("error", "wrong", "the class is out of order"),
    }
    for name, (status, verdict, text) in wanted.items():
        row = results[name]
        assert (row["status"], row["verdict"]) == (status, verdict) and text in row["message"], row
    line = ORDINARY.splitlines().index("        self.assertEqual(torch.ones(n, device=device), torch.zeros(n))") + 1
    assert results["TestGenericCUDA.test_wrong_n_2_cuda"]["line"] == line


def test_expectations_skip_excuse_and_widen(ordinary):
    answer, data, results, _ = ordinary
    row = results["TestGenericCUDA.test_wrong_n_1_cuda"]
    assert (row["status"], row["verdict"], row["reason"]) == (
        "failure",
        "expected",
        "ones are not zeros, here as elsewhere",
    )
    assert results["TestPlain.test_error"]["status"] == "not_run"
    assert results["TestGenericCUDA.test_close_cuda"]["status"] == "passed"
    assert any("fail[1]" in problem and "remove it there" in problem for problem in data["problems"])
    note = next(line for line in answer.stderr.splitlines() if "fail[2]" in line)
    assert "meets no case" in note and "near: TestPlain.test_child" in note


def test_a_file_that_cannot_be_imported_is_one_row(ordinary):
    _, data, _, _ = ordinary
    rows = {r["file"]: r for r in data["results"] if not r["case"]}
    assert "No module named 'a_package_that_is_not_there'" in rows["test_broken.py"]["message"]
    assert "not a test today" in rows[os.path.join("nn", "test_deep.py")]["message"]
    assert data["totals"]["all"]["cases"] == len(data["results"])


def test_reports_say_the_same(ordinary):
    answer, data, _, out = ordinary
    table = list(csv.DictReader(out["csv"].read_text().splitlines()))
    assert list(table[0]) == list(report.COLUMNS) and len(table) == len(data["results"])
    row = next(r for r in table if r["case"] == "test_wrong_n_1_cuda")
    assert row["result"] == "failure" and row["reason"].startswith("ones are not zeros, here as elsewhere: ")
    root = ElementTree.parse(out["junit"]).getroot()
    wrong = sum(r["verdict"] == "wrong" for r in data["results"])
    assert int(root.get("failures")) + int(root.get("errors")) == wrong and int(root.get("tests")) == len(table)
    shown = [line for line in answer.stdout.splitlines() if line.startswith("WRONG ")]
    assert len(shown) == wrong and any(line.startswith("all ") for line in answer.stdout.splitlines())


def is_alive(process):
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_crash_and_hang_cost_one_case_and_a_second_run_goes_on(tree, tmp_path):
    seen, state, out = tmp_path / "seen", tmp_path / "state", tmp_path / "out.json"
    words = ("--pytorch", tree, "--files", "test_hostile.py", "--jobs", 1, "--timeout", 15, "--resume", state)
    words += ("--json", out, "--csv", tmp_path)
    answer = command(*words, status=1, CASES_SEEN=seen)
    results = {r["case"]: r for r in json.loads(out.read_text())["results"]}
    assert [results[f"test_{n}"]["status"] for n in ("a_good", "b_crash", "c_hang", "d_good")] == [
        "passed",
        "crash",
        "timeout",
        "passed",
    ]
    assert "SIGSEGV" in results["test_b_crash"]["message"] and "15 s" in results["test_c_hang"]["message"]
    assert seen.read_text().split() == ["a", "b", "c", "d"]
    assert (tmp_path / "host_summary_of_pytorch_test_case_testing.csv").exists(), answer.stdout
    children = (tmp_path / "seen.children").read_text().split()
    assert len(children) == 2 and not [child for child in children if is_alive(child)]
    lines = state.read_text().splitlines(keepends=True)
    kept = [line for line in lines if 'test_d_good",' not in line]
    assert len(kept) == len(lines) - 1
    state.write_text("".join(kept))
    command(*words, status=1, CASES_SEEN=seen)
    assert seen.read_text().split() == ["a", "b", "c", "d", "d"]
    again = {r["case"]: r["status"] for r in json.loads(out.read_text())["results"]}
    assert again == {name: row["status"] for name, row in results.items()}


def test_a_sample_of_the_suites_of_the_wheel(tmp_path):
    """Each suite costs the import of torch's tests, so only those about computing are here; `make test-suites` runs
    them all. Autograd, autocast, serialization and collectives have tests of our own: test_autograd, test_amp,
    test_serialization, test_distributed."""
    names = ["modules", "nn", "optimizers"]
    words = ("--suite", ",".join(names), "--share", 0.03, "--jobs", 1, "--json", tmp_path / "out.json")
    answer = command(*words)
    data = json.loads((tmp_path / "out.json").read_text())
    assert answer.returncode == 0, data["problems"]
    assert [name for name in data["totals"] if name != "all"] == names
    assert data["totals"]["all"]["passed"] > 30


# Without a device


def test_files_and_suites_are_chosen_by_name(tree):
    names = [source.name for source in sources.find_files(str(tree), None)]
    assert names == ["test_broken.py", "test_hostile.py", "test_ordinary.py"]
    deep = os.path.join("nn", "test_deep.py")
    assert [s.name for s in sources.find_files(str(tree / "test"), "nn/*,test_hostile")] == ["test_hostile.py", deep]
    assert [s.name for s in sources.find_suites("distributed")] == ["distributed_gloo", "distributed_nccl"]
    with pytest.raises(arguments.UsageError, match=r"'test_hostil' is no test file.*near: test_hostile.py"):
        sources.find_files(str(tree), "test_hostil")
    with pytest.raises(arguments.UsageError, match="near: modules"):
        sources.find_suites("module")
    with pytest.raises(arguments.UsageError, match="no such folder"):
        sources.find_files(str(tree / "elsewhere"), None)


def test_the_list_of_suites_in_the_help_is_that_of_the_folder():
    assert sorted({name.partition("_")[0] for name in sources.list_suites()}) == sorted(arguments.SUITES)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--suite", "nn", "--ops", "add"], "--ops belongs to the operator database"),
        (["--cases", "x"], "--cases belongs to test cases"),
        (["--suite", "nn", "--pytorch", "x"], "give one of them"),
        (["--suite", "nn", "--files", "x"], "--files belongs to --pytorch"),
        (["--suite", "nn", "--share", "2"], "share"),
    ],
)
def test_options_of_another_run_are_refused(words, text):
    with pytest.raises(arguments.UsageError, match=text):
        arguments.parse(words)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[[skip]]\nreason = 'nothing is named here'", "neither files nor cases"),
        ("[[skip]]\ncases = ['a']\nreason = 'short'", "say in a sentence why a is listed"),
        ("[[fail]]\ncases = ['a']\nrtol = 1\nreason = 'long enough a reason'", "unknown key 'fail[0].rtol'"),
        ("[[tolerance]]\ncases = ['a']\nrtol = 1\nreason = 'long enough a reason'", "tolerance[0] has no atol"),
        ("[[skip]]\ncases = []\nreason = 'long enough a reason'", "skip[0].cases is empty"),
        ("[device]\ntimeout = 0", "more than 0 seconds"),
    ],
)
def test_mistakes_in_the_file_are_told(tmp_path, text, problem):
    path = tmp_path / "expect.toml"
    path.write_text(text)
    with pytest.raises(documents.ExpectationError) as error:
        expect.CaseExpectations(str(path))
    assert problem in str(error.value) and str(path) in str(error.value)


def test_shipped_files_are_good():
    for backend in ("host", "cuda", "torch_npu"):
        expect.CaseExpectations(expect.find_shipped(backend))


def test_the_last_row_that_holds_counts(tmp_path):
    path = tmp_path / "expect.toml"
    path.write_text(
        textwrap.dedent("""
        [[fail]]
        cases = ["TestA.*"]
        reason = "the whole class fails"
        [[fail]]
        files = ["test_a.py"]
        cases = ["TestA.test_b"]
        reason = "this one for another reason"
        """)
    )
    file = expect.CaseExpectations(str(path))
    assert file.find("fail", "test_a.py", "TestA.test_b").reason == "this one for another reason"
    assert file.find("fail", "test_b.py", "TestA.test_b").reason == "the whole class fails"
    assert file.find("fail", "test_a.py", "TestB.test_b") is None


def test_message_is_one_line():
    assert worker.describe(ValueError("a\n  b")) == "ValueError: a b"
