"""OpCapture in processes of its own: crashes, full disks, caps, forks, the console and the log."""

import glob
import os
import re
import signal
import textwrap

import ditorch  # noqa: F401
import pytest
import torch
from captured import list_parts, load
from conftest import run_python
from ditorch.export import read
from op_tools.reader import find_cases, load_case

HEAD = """
import os, sys
import torch, ditorch
from op_tools import OpCapture
x = torch.arange(6.0, device="cuda", requires_grad=True)
"""


@pytest.fixture
def python(tmp_path):
    """python(program, check=True, **environment): run it in a process of its own, in an empty folder."""

    def run(program, check=True, folder=None, **environment):
        text = (
            "import os, sys\nimport torch, ditorch\nfrom op_tools import OpCapture\n" + HEAD + textwrap.dedent(program)
        )
        return run_python(text, check=check, cwd=folder or tmp_path, **environment)

    return run


@pytest.mark.parametrize("layout", ["files", "packed"])
def test_write_ahead_leaves_the_inputs_of_the_call_that_killed_the_process(python, tmp_path, layout):
    answer = python(
        f"""
    import signal
    def die(value):
        os.kill(os.getpid(), signal.SIGKILL)
    y = torch.arange(5.0)
    with OpCapture(layout="{layout}", write_ahead=True, cpu=True, console="off"):
        torch.mul(y, 2)
        y.apply_(die)
    """,
        check=False,
    )
    assert answer.returncode == -signal.SIGKILL
    (last,) = [load_case(ref) for ref in find_cases(tmp_path) if ref.operator == "torch.Tensor.apply_"]
    assert last.args[0].tolist() == [0, 1, 2, 3, 4]
    assert last.meta["parts"] == ["input"]
    assert not glob.glob(f"{tmp_path}/**/.*", recursive=True), "temporary files were left"


def test_write_ahead_of_the_backward(python, tmp_path):
    answer = python(
        """
    import signal
    class Die(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            return a * 2
        @staticmethod
        def backward(ctx, gradient):
            os.kill(os.getpid(), signal.SIGKILL)
    import torch.nn.functional as F
    with OpCapture(write_ahead=True, console="off"):
        y = torch.exp(Die.apply(x * 0.1))
        torch.sin(y).sum().backward()
    """,
        check=False,
    )
    assert answer.returncode == -signal.SIGKILL
    case = next(case for case in find_cases(tmp_path) if case.operator == "torch.exp")
    y = torch.exp(torch.arange(6.0) * 0.1 * 2)
    torch.testing.assert_close(load(case, "grad_outputs")["args"][0], torch.cos(y))


def test_cap_of_calls_is_said_once(python, tmp_path):
    answer = python(
        """
    for _ in range(2):
        with OpCapture(cap_calls=3) as tool:
            for _ in range(4):
                torch.mul(x, 2)
        print(tool.counts()["cap"], tool.describe()["calls"])
    """,
    )
    assert len(list(find_cases(tmp_path))) == 3
    assert answer.stdout.split() == ["1", "3", "4", "0"]
    assert len(re.findall(r"cap_calls of 3 calls is reached.*OP_CAPTURE_CAP_CALLS", answer.stderr)) == 2
    notes = [record["text"] for record in read(str(tmp_path), types=["note"])]
    assert sum("cap_calls of 3" in note for note in notes) == 2


def test_cap_of_bytes_counts_what_was_written(python, tmp_path):
    """A container stores equal bytes once, so that they count once."""
    answer = python(
        """
    y = torch.randn(25000, device="cuda")
    for layout in ("packed", "files"):
        with OpCapture(layout=layout, cap_bytes=500000, outputs=False) as tool:
            for _ in range(20):
                torch.neg(y)
                tool.flush()
        print(tool.describe()["items"], tool.describe()["capped"] > 0)
    """,
    )
    assert answer.stdout.split() == ["20", "False", "4", "True"]
    assert len(re.findall("cap_bytes of 500000 bytes is reached", answer.stderr)) == 1


def test_a_disk_that_takes_no_more_is_said_once_and_stops_nothing(python, tmp_path):
    """A limit on the size of files stands for a full disk."""
    answer = python(
        """
    import resource
    y = torch.randn(25000, device="cuda")
    with OpCapture(log=False) as tool:
        torch.add(y, 1)
        tool.flush()
        resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))
        for _ in range(5):
            y = torch.mul(y, 0.5)
        tool.flush()
    print(tool.describe()["lost"] > 0, bool(y.isfinite().all()))
    """,
    )
    assert answer.stdout.split() == ["True", "True"]
    assert len(re.findall("OpCapture: .*items were not kept", answer.stderr)) == 1
    assert [case.operator for case in find_cases(tmp_path)] == ["torch.add"]


def test_c4_a_failure_leaves_no_broken_file(python, tmp_path):
    python(
        """
    import resource
    y = torch.randn(25000, device="cuda")
    resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))
    with OpCapture(log=False):
        torch.add(y, 1)
    """,
    )
    left = [name for _, _, names in os.walk(tmp_path / "op_tools_results") for name in names]
    assert left == []


def test_the_folder_may_vanish(python, tmp_path):
    answer = python(
        """
    import shutil
    with OpCapture(log=False) as tool:
        torch.exp(x)
        tool.flush()
        shutil.rmtree("op_tools_results")
        open("op_tools_results", "w").close()
        for _ in range(3):
            y = torch.sin(x)
        tool.flush()
    print("went on", y.sum().item())
    """,
    )
    assert answer.stdout.startswith("went on")


def test_a_forked_child_writes_nothing(python, tmp_path):
    answer = python(
        """
    y = torch.arange(3.0)
    with OpCapture(cpu=True, log=False, layout="packed") as tool:
        torch.neg(y)
        child = os.fork()
        if child == 0:
            torch.neg(y)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        torch.neg(y)
    print(os.getpid())
    """,
    )
    cases = list(find_cases(tmp_path))
    assert {str(case.pid) for case in cases} == {answer.stdout.strip()} and len(cases) == 2


def test_a_child_may_start_its_own(python, tmp_path):
    python(
        """
    y = torch.arange(3.0)
    tool = OpCapture(cpu=True, log=False)
    with tool:
        torch.neg(y)
        child = os.fork()
        if child == 0:
            with OpCapture(cpu=True, log=False):
                torch.neg(y)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    """,
    )
    assert len({case.path.split("/")[-3] for case in find_cases(tmp_path)}) == 2


def test_golden_console(python, tmp_path):
    answer = python(
        """
    with OpCapture(console="full", list="torch.mul"):
        torch.mul(x, 2).sum().backward()
    """,
    )
    lines = [line for line in answer.stdout.splitlines() if "saved" in line or "forward_id" in line]
    key = r"(\d+/\d{4}(-\d\d){5})"
    pattern = rf"op_tools_results/op_capture_results/torch\.mul/\d+/{key}/(\w+)\.pth saved"
    saved = [re.fullmatch(pattern, line) for line in lines if "saved" in line]
    assert [match[3] for match in saved] == ["input", "output", "grad_inputs", "grad_outputs"]
    heads = [line for line in lines if "forward_id" in line]
    assert heads[0].startswith(f"torch.mul    forward_id:{saved[0][1]}    ") and heads[0].endswith(" ")
    assert heads[1] == f"torch.mul forward_id:{saved[0][1]}"
    for match in saved:
        assert (tmp_path / match[0].removesuffix(" saved")).exists()


def test_the_log_names_every_item(python, tmp_path):
    python(
        """
    with OpCapture(console="off", list="torch.mul"):
        torch.mul(x, 2).sum().backward()
    """,
    )
    records = list(read(str(tmp_path), types=["capture"]))
    assert [record["what"] for record in records] == ["input", "output", "grad_inputs", "grad_outputs"]
    for record in records:
        path = tmp_path / "op_tools_results" / record["path"]
        assert path.exists() and record["name"] == "torch.mul" and record["bytes"] > 100


def test_what_was_not_stopped_is_written_at_exit(python, tmp_path):
    python(
        """
    tool = OpCapture(log=False).start()
    torch.mul(x, 2)
    """,
    )
    assert [list_parts(case) for case in find_cases(tmp_path)] == [("input", "output")]


def test_relative_results_stay_where_the_program_started(python, tmp_path):
    python(
        """
    os.mkdir("elsewhere")
    with OpCapture(log=False):
        os.chdir("elsewhere")
        torch.mul(x, 2)
    """,
    )
    assert len(list(find_cases(tmp_path / "op_tools_results"))) == 1


def test_c3_ranks_do_not_collide(python, tmp_path):
    program = """
    with OpCapture(console="off", log=False):
        torch.exp(x)
    """
    python(program, RANK=3, WORLD_SIZE=4)
    python(program, RANK=0, WORLD_SIZE=1)
    roots = {case.path.split("/op_capture_results")[0] for case in find_cases(tmp_path)}
    assert roots == {f"{tmp_path}/op_tools_results/rank3", f"{tmp_path}/op_tools_results"}
