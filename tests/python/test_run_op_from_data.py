"""op_tools/run_op_from_data.py: the original's program, its flags, its output; broken cases; roles."""

import os
import re
import shutil
import subprocess
import sys

import ditorch
import pytest
import torch
from conftest import child_environment, run_python
from op_tools import OpCapture
from op_tools.reader import find_cases
from op_tools.run_op_from_data import join_flags, main, make_parser

pytestmark = pytest.mark.usefixtures("warm_children")


@pytest.fixture(scope="module")
def captured(tmp_path_factory):
    """A folder with linear, relu_ and sum, forward and backward."""
    folder = tmp_path_factory.mktemp("captured")
    torch.manual_seed(1)
    x, w = (torch.randn(3, 4, device="cuda", requires_grad=True) for _ in range(2))
    with OpCapture(results=str(folder), console="off", log=False):
        torch.nn.functional.linear(x, w).relu_().sum().backward()
    return folder


@pytest.fixture(autouse=True)
def results_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def list_folders(out):
    return [line.removeprefix("dir: ") for line in out.splitlines() if line.startswith("dir: ")]


def test_every_case_runs_and_says_where_it_is(captured, capsys):
    assert main([str(captured), "--run_times", "3"]) == 0
    out, err = capsys.readouterr()
    assert list_folders(out) == [ref.path for ref in find_cases(captured)]
    assert err == ""


def test_without_flags_every_run_is_a_line_with_its_time(captured, capsys):
    assert main([str(captured), "--run_times", "3"]) == 0
    times = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("dir: ")]
    pattern = re.compile(r"SyncExecuteTimer: (torch\S+) (forward|backward) elasped \d+\.\d{8} ms")
    found = [pattern.fullmatch(line).groups() for line in times]
    name = "torch.nn.functional.linear"
    assert [kind for operator, kind in found if operator == name] == ["forward", "backward"] * 3
    assert main([str(captured), "--run_times", "2", "--only_run_forward", "True"]) == 0
    assert "backward" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ["--acc_check", "DIR"],
        ["--sync_time_measure", "--only_run_forward", "DIR"],
        ["--only_run_forward", "True", "DIR"],
        ["DIR", "--acc_check"],
    ],
)
def test_flags_do_not_swallow_the_folder(captured, words, capsys):
    assert main([str(captured) if word == "DIR" else word for word in words] + ["--run_times", "1"]) == 0
    assert "dir: " in capsys.readouterr().out


@pytest.mark.parametrize(
    "words, wanted",
    [
        ([], (100, False, False, False)),
        (["--only_run_forward"], (100, True, False, False)),
        (["--only_run_forward", "True"], (100, True, False, False)),
        (["--only_run_forward", "False", "--run_times", "7"], (7, False, False, False)),
        (["--only_run_forward=1", "--acc_check", "0"], (100, True, False, False)),
        (["--sync_time_measure", "--acc_check"], (100, False, True, True)),
        (["--sync-time-measure", "--acc-check", "true", "--run-times=2"], (2, False, True, True)),
    ],
)
def test_flags_bare_or_with_a_value(words, wanted):
    options = make_parser().parse_args(join_flags(["folder", *words]))
    assert (options.run_times, options.only_run_forward, options.sync_time_measure, options.acc_check) == wanted


@pytest.mark.parametrize(
    "words, text",
    [
        (["--only_run_forward", "perhaps"], "unrecognized arguments: perhaps"),
        (["--only_run_forward=perhaps"], "'perhaps' is neither yes nor no; valid: True, False, 1, 0, or nothing"),
        (["--run_times", "0"], "'0' is no number of runs; valid: 1 or more"),
        (["--run_times", "x"], "'x' is no number of runs"),
        (["--role", "other"], "invalid choice: 'other'"),
    ],
)
def test_bad_flags_are_named(captured, capsys, words, text):
    assert main([str(captured), *words]) == 2
    assert text in capsys.readouterr().err


def test_nothing_there(tmp_path, capsys):
    assert main([str(tmp_path / "missing")]) == 2
    assert "missing' does not exist" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert main([str(tmp_path / "empty")]) == 2
    assert "there is no captured call below" in capsys.readouterr().err


@pytest.mark.parametrize("way", ["path", "module"])
def test_runs_by_its_path_and_as_a_module(captured, tmp_path, way):
    """By its path it finds its packages without help, as from a checkout."""
    home = os.path.dirname(os.path.dirname(os.path.abspath(ditorch.__file__)))
    script = os.path.join(home, "op_tools", "run_op_from_data.py")
    words = [script] if way == "path" else ["-m", "op_tools.run_op_from_data"]
    environment = child_environment(DITORCH_BANNER="0", **({"PYTHONPATH": None} if way == "path" else {}))
    answer = subprocess.run(
        [sys.executable, *words, str(captured), "--run_times", "2", "--sync_time_measure"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.count("dir: ") == 3
    assert "apply OpTimeMeasureHook on torch.nn.functional.linear" in answer.stdout
    assert answer.stdout.count("forward_elasped") == 3 * 2 + 1, "one table per run, one of all at the end"
    assert "torch.Tensor.relu_    forward_id: 1\n" in answer.stdout, "ids count from 1"
    assert "op elasped info saved to" in answer.stdout


def test_time_measure_without_backward(captured, capsys):
    assert main([str(captured), "--run_times", "2", "--sync_time_measure", "--only_run_forward"]) == 0
    out = capsys.readouterr().out
    assert "forward_elasped" in out and "grad_outputs" not in out


def test_acc_check_finds_a_broken_operator(captured, capsys):
    assert main([str(captured), "--run_times", "2", "--acc_check"]) == 0
    assert "max_relative_diff" in capsys.readouterr().out
    with ditorch.fault("value:relu_,scale=0.1") as fault:
        assert main([str(captured), "--run_times", "2", "--acc_check"]) == 1
        assert fault.count
    assert "False" in capsys.readouterr().out
    saved = [ref for ref in find_cases("op_tools_results") if ref.role != "plain"]
    assert {ref.operator for ref in saved} == {"torch.Tensor.relu_"} and {ref.role for ref in saved} == {
        "device",
        "cpu",
    }


def test_acc_check_that_compares_nothing_is_not_right(tmp_path, capsys):
    with OpCapture(results=str(tmp_path / "c"), console="off", log=False):
        torch.empty_like(torch.ones(3, device="cuda"))
    words = [str(tmp_path / "c"), "--run_times", "1", "--role", "all"]
    refs = [ref for ref in find_cases(tmp_path / "c") if ref.operator == "torch.empty_like"]
    assert main([refs[0].path, "--run_times", "1"]) == 0, "nobody asked for a comparison"
    capsys.readouterr()
    assert main([refs[0].path, "--run_times", "1", "--acc_check"]) == 3
    assert "run_op_from_data: nothing was compared: neither right nor wrong" in capsys.readouterr().err
    assert main([*words, "--acc_check"]) == 0, "torch.ones was compared"


def test_r1_a_broken_case_is_one_line_and_the_others_run(captured, tmp_path, capsys):
    folder = tmp_path / "copy"
    shutil.copytree(captured, folder)
    refs = list(find_cases(folder))
    with open(os.path.join(refs[0].path, "input.pth"), "r+b") as file:
        file.truncate(100)
    os.remove(os.path.join(refs[1].path, "output.pth"))  # which the original could not do without
    assert main([str(folder), "--run_times", "1"]) == 3
    out, err = capsys.readouterr()
    assert list_folders(out) == [ref.path for ref in refs[1:]]
    lines = err.splitlines()
    assert len(lines) == 2 and lines[0].startswith(f"run_op_from_data: {refs[0].path}: CaseError: ")
    assert lines[1] == "run_op_from_data: 1 of 3 cases could not be run"


def test_r6_the_cpu_side_of_a_comparison_is_no_device_case(captured, tmp_path, capsys):
    ref = next(find_cases(captured))
    place = tmp_path / "c" / "op_capture_results" / ref.operator / "7" / "autocompare" / "1" / "2024-10-09-11-42-15"
    for role in ("device", "cpu"):
        shutil.copytree(ref.path, place / role)
    ran = {}
    for role in ("device", "cpu", "all"):
        assert main([str(tmp_path / "c"), "--run_times", "1", "--role", role]) == 0
        ran[role] = [os.path.basename(path) for path in list_folders(capsys.readouterr().out)]
    assert ran == {"device": ["device"], "cpu": ["cpu"], "all": ["device", "cpu"]}
    assert main([str(tmp_path / "c"), "--run_times", "1"]) == 0
    (path,) = list_folders(capsys.readouterr().out)
    assert path.endswith("/device")


def test_other_devices(captured):
    answer = run_python(
        "-m",
        "op_tools.run_op_from_data",
        str(captured),
        *("--run_times", "1", "--device", "cuda:1"),
        check=False,
        DITORCH_HOST_DEVICES="2",
    )
    assert answer.returncode == 0 and answer.stdout.count("dir: ") == 3
    assert main([str(captured), "--run_times", "1", "--device", "cpu"]) == 0
