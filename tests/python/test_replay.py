"""`ditorch replay`: three verdicts per case, broken cases, crashes, hangs, resume, devices, JSON, exit status.

Most tests run in this process (--jobs 0); those about workers start them.
"""

import io
import json
import math
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time

import ditorch
import pytest
import torch
import torch.nn.functional as F
from conftest import HERE, child_environment, open_memory, run_python
from ditorch import _C, batch_state, worker_pool
from ditorch.judge import Runs
from op_tools import OpAutoCompare, OpCapture
from op_tools.capture import save_item
from op_tools.op_runner import OpRunner
from op_tools.reader import Case, find_cases, load_item
from op_tools.replay import command, measure, report
from op_tools.replay import judge as judging
from op_tools.replay.accuracy import References, judge_captured
from torch import nn

pytestmark = pytest.mark.usefixtures("warm_children")

QUICK = ("--run-times", "2", "--warm-up", "1")
VICTIMS = """
import os, signal, time

def crash(x):
    os.kill(os.getpid(), signal.SIGSEGV)

def hang(x):
    while True:
        time.sleep(0.05)

def noise(x):
    print("words on standard output", flush=True)
    os.write(1, b"{}\\n")
    return x + 1

def slow(x):
    with open(os.environ["VICTIMS_LOG"], "a") as file:
        file.write(f"{int(x.sum())}\\n")
    time.sleep(0.15)
    return x + 1
"""


@pytest.fixture(scope="module")
def captured(tmp_path_factory):
    """{layout: folder}: a training step with conv, batch norm, in-place relu, linear, loss; sort, empty memory."""
    root = tmp_path_factory.mktemp("captured")
    torch.manual_seed(2)
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(48, 3))
    model.cuda()
    x = torch.randn(2, 2, 6, 6, device="cuda")
    target = torch.tensor([0, 2], device="cuda")
    folders = {}
    for layout in ("files", "packed"):
        folders[layout] = root / layout
        with OpCapture(results=str(folders[layout]), console="off", layout=layout):
            F.cross_entropy(model(x), target).backward()
            torch.sort(x[0, 0], dim=1)
            torch.empty_like(x)
    return folders


@pytest.fixture
def case_folder(tmp_path):
    """make(number, name, *args, **kwargs): a captured call with its result (`output=`), where captures lie."""

    def make(number, name, *args, output=None, **kwargs):
        folder = tmp_path / "made" / "op_capture_results" / name / "7" / str(number) / "2024-10-09-11-42-15"
        folder.mkdir(parents=True)
        key = f"{number}/2024-10-09-11-42-15"
        save_item(folder / "input.pth", {"name": name, "args": args, "kwargs": kwargs, "identifier": f"{key}/input"})
        if output is not None:
            item = {"name": name, "args": (output,), "kwargs": {}, "identifier": f"{key}/output"}
            save_item(folder / "output.pth", item)
        return folder

    make.root = tmp_path / "made"
    return make


@pytest.fixture
def victims(tmp_path):
    """A package with functions that misbehave, for worker processes: the variables that show them the way."""
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "replay_victims.py").write_text(VICTIMS)
    path = os.pathsep.join([str(tmp_path / "modules"), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    return {"PYTHONPATH": path, "VICTIMS_LOG": str(tmp_path / "log.txt")}


def run_here(*words):
    """In this process."""
    return command.main([*map(str, words), "--jobs", "0"])


def run_json(tmp_path, *words, **options):
    """Exit status and the JSON of a run in this process."""
    file = tmp_path / f"result{len(os.listdir(tmp_path))}.json"
    status = run_here(*words, "--json", file, **options)
    return status, json.loads(file.read_text(), parse_constant=pytest.fail)


def by_name(result, device="cuda"):
    return {entry["name"]: entry["results"].get(device) for entry in result["cases"]}


def get_environment(victims):
    """Of a child that sees the victims and this ditorch."""
    environment = child_environment(VICTIMS_LOG=victims["VICTIMS_LOG"])
    environment["PYTHONPATH"] = os.pathsep.join([environment["PYTHONPATH"], victims["PYTHONPATH"]])
    return environment


def start(*words, environment=None):
    command = [sys.executable, "-W", "ignore", "-m", "ditorch", "replay", *map(str, words)]
    return subprocess.Popen(
        command, env=environment or child_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


# The three verdicts


@pytest.mark.parametrize("layout", ["files", "packed"])
def test_a_training_step_is_right_fast_and_small(captured, tmp_path, capsys, layout):
    status, result = run_json(tmp_path, captured[layout], *QUICK)
    assert status == 0 and result["exit_status"] == 0
    assert result["summary"] == {"cases": 10, "pass": 9, "wrong": 0, "skip": 1, "error": 0, "allowed": 0}
    results = by_name(result)
    assert results["torch.empty_like"]["accuracy"][0]["reason"] == "uninitialised memory"
    linear = results["torch.nn.functional.linear"]
    assert linear["accuracy"][0]["against"] == "fp64" and linear["accuracy"][0]["compared"] == 4
    assert {value["what"] for value in linear["accuracy"][0]["values"]} == {"output", "grad[0]", "grad[1]", "grad[2]"}
    assert linear["speed"]["forward"]["runs"] == linear["speed"]["backward"]["runs"] == 2
    assert linear["speed"]["forward"]["clock"] == "device" and linear["speed"]["forward"]["median_us"] > 0
    assert linear["memory"]["peak_bytes"] >= linear["memory"]["forward_peak_bytes"] >= linear["memory"]["output_bytes"]
    assert linear["memory"]["output_bytes"] == 2 * 3 * 4
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[0] == "case"
    for head in ("operator", "accuracy", "error/CPU's", "fwd us", "fwd p90", "bwd us", "bwd p90", "memory"):
        assert head in lines[0]
    assert lines[-1] == "10 cases on cuda: 9 right, 1 not judged"


def test_one_case_one_file_and_a_log_can_be_named(captured, capsys):
    ref = next(ref for ref in find_cases(captured["files"]) if ref.operator.endswith("linear"))
    for path in (ref.path, os.path.join(ref.path, "input.pth")):
        assert run_here(path, "--memory") == 0
        assert "1 case on cuda: 1 right" in capsys.readouterr().out
    (log,) = os.listdir(captured["files"] / "log")
    assert run_here(captured["files"] / "log" / log, "--memory", "--op", "*linear") == 0
    assert "1 case on cuda: 1 right" in capsys.readouterr().out
    packed = next(ref for ref in find_cases(captured["packed"]) if ref.operator.endswith("linear"))
    assert "#" in packed.path and run_here("--dir", packed.path, "--memory") == 0


def test_parts_can_be_chosen(captured, tmp_path, capsys):
    status, result = run_json(tmp_path, captured["files"], "--op", "*linear", "--speed", "--forward-only", *QUICK)
    (entry,) = result["cases"]
    assert status == 0 and set(entry["results"]["cuda"]) == {"error", "speed"}
    assert set(entry["results"]["cuda"]["speed"]) == {"forward"}
    heads = capsys.readouterr().out.splitlines()[0]
    assert "accuracy" not in heads and "memory" not in heads and "result" in heads


def test_a_fault_is_found_and_named(captured, tmp_path, capsys):
    with ditorch.fault("value:relu_,scale=0.1") as fault:
        status, result = run_json(tmp_path, captured["files"], "--accuracy", "--against", "fp64", "--against", "stored")
        assert fault.count
    assert status == 1
    wrong = [entry["name"] for entry in result["cases"] if report.get_status(entry["results"]["cuda"]) == "wrong"]
    assert wrong == ["torch.nn.functional.relu"]
    verdicts = by_name(result)["torch.nn.functional.relu"]["accuracy"]
    assert [verdict["verdict"] for verdict in verdicts] == ["wrong", "wrong"]
    worst = verdicts[1]["worst"]
    assert worst["what"] == "output" and worst["error"] > worst["allowed"] and len(worst["index"]) == 4
    out = capsys.readouterr().out
    line = next(line for line in out.splitlines() if line.startswith("wrong: "))
    assert line.startswith("wrong: torch.nn.functional.relu on cuda: against fp64: output at [")
    assert ": off by 0." in line and ", allowed " in line and "elements wrong; case " in line
    assert out.splitlines()[-1] == "10 cases on cuda: 8 right, 1 wrong, 1 not judged"


def test_a_fault_in_the_backward_alone_is_found(captured, tmp_path):
    with ditorch.fault("value:native_batch_norm_backward,scale=0.1") as fault:
        status, result = run_json(tmp_path, captured["files"], "--accuracy", "--against", "cpu", "--against", "fp64")
        assert fault.count
    assert status == 1
    verdicts = by_name(result)["torch.nn.functional.batch_norm"]["accuracy"]
    assert [verdict["verdict"] for verdict in verdicts] == ["wrong", "wrong"]
    assert verdicts[0]["worst"]["what"].startswith("grad")
    with ditorch.fault("value:native_batch_norm_backward,scale=0.1"):
        assert run_here(captured["files"], "--accuracy", "--forward-only", "--op", "*batch_norm") == 0


def test_a_fault_of_the_command_line_reaches_the_workers(captured):
    words = ["--set", "fault=nan:relu_", "replay", str(captured["files"]), "--op", "*relu", "--accuracy"]
    answer = run_python("-m", "ditorch", *words, check=False)
    assert answer.returncode == 1 and "wrong: torch.nn.functional.relu on cuda" in answer.stdout


def test_wrong_captured_results_are_found(case_folder, tmp_path, capsys):
    x = torch.arange(6.0).view(2, 3)
    wrong = x + 1
    wrong[1, 2] = 6.5
    case_folder(1, "torch.add", x, 1, output=wrong)
    case_folder(2, "torch.add", x, 1, output=x + 1)
    case_folder(3, "torch.add", x, 1, output=(x + 1).double())
    case_folder(4, "torch.add", x, 1, output=x[:1] + 1)
    case_folder(5, "torch.add", x, 1)
    case_folder(6, "torch.gt", x, 1, output=x > 2)
    assert run_here(case_folder.root, "--accuracy") == 0
    capsys.readouterr()
    status, result = run_json(tmp_path, case_folder.root, "--accuracy", "--against", "stored")
    assert status == 0
    reasons = {entry["ref"]["id"]: entry["results"]["cuda"]["accuracy"][0] for entry in result["cases"]}
    verdicts = [reasons[number]["verdict"] for number in range(1, 7)]
    assert verdicts == ["pass", "pass", "pass", "pass", "skip", "pass"], "the device is right in all of them"
    start = "the captured result is wrong, this one is right: "
    assert reasons[1]["reason"].startswith(f"{start}at [1, 2] is 6.5, the reference 6: off by 0.5, allowed ")
    assert reasons[1]["worst"]["largest_error"] == 0.5 and reasons[2]["reason"] == ""
    assert reasons[3]["reason"] == f"{start}dtype torch.float64, the CPU has torch.float32"
    assert reasons[4]["reason"] == f"{start}shape (1, 3), the CPU has (2, 3)"
    assert reasons[5]["reason"] == "no reference: the capture has no results"
    assert reasons[6]["reason"].startswith(f"{start}at [0, 2] is 0, the reference 1: ")
    assert capsys.readouterr().out.count("note: torch.add on cuda: against stored: output: the captured result") == 3


def test_captured_results_are_judged_without_a_device(case_folder, tmp_path, capsys):
    x = torch.arange(6.0).view(2, 3)
    wrong = x + 1
    wrong[1, 2] = 6.5
    for number, output in enumerate((wrong, x + 1, (x + 1).double(), x[:1] + 1, None), 1):
        case_folder(number, "torch.add", x, 1, output=output)
    status, result = run_json(tmp_path, case_folder.root, "--device", "stored")
    found = {entry["ref"]["id"]: entry["results"]["stored"] for entry in result["cases"]}
    verdicts = [found[number]["accuracy"][0]["verdict"] for number in range(1, 6)]
    assert status == 1 and verdicts == ["wrong", "pass", "wrong", "wrong", "skip"]
    assert set(found[1]) == {"error", "accuracy"} and "[1, 2] is 6.5" in found[1]["accuracy"][0]["reason"]
    assert "wrong: torch.add on stored: against fp64: output at [1, 2]" in capsys.readouterr().out


def test_the_cpu_and_other_devices_as_references(captured, tmp_path):
    status, result = run_json(tmp_path, captured["files"], "--accuracy", "--against", "cpu", "--against", "cuda:0")
    assert status == 0
    for name, found in by_name(result).items():
        wanted = "skip" if name.endswith("empty_like") else "pass"
        assert [verdict["verdict"] for verdict in found["accuracy"]] == [wanted] * 2, name
    status, result = run_json(tmp_path, captured["files"], "--device", "cpu", *QUICK)
    found = by_name(result, "cpu")["torch.nn.functional.linear"]
    assert status == 0 and found["memory"] is None and found["speed"]["forward"]["clock"] == "host"


def test_two_devices_side_by_side(captured, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("DITORCH_HOST_DEVICES", "2")
    words = ["--device", "cuda:0", "--device", "cuda:1", "--op", "*linear", "--op", "*conv2d", *QUICK]
    assert command.main([str(captured["files"]), *words, "--json", str(tmp_path / "json")]) == 0
    result = json.loads((tmp_path / "json").read_text())
    assert list(result["devices"]) == ["cuda:0", "cuda:1"] and all(result["devices"].values())
    assert [set(entry["results"]) for entry in result["cases"]] == [{"cuda:0", "cuda:1"}] * 2
    groups, heads, _, *rows = capsys.readouterr().out.splitlines()
    assert groups.split() == ["cuda:0", "cuda:1"] and heads.endswith("cuda:1/cuda:0")
    assert heads.index("accuracy") == groups.index("cuda:0") and heads.rindex("accuracy") == groups.index("cuda:1")
    assert heads.count("fwd us") == 2 and rows[0].split()[1] == "torch.nn.functional.conv2d"
    assert rows[-1] == "2 cases on cuda:0, cuda:1: 2 right"


# Judging


@open_memory  # the libraries host and faulty compute with the host's loops on the addresses that tensors carry
def test_two_operator_libraries_side_by_side(captured, tmp_path):
    """The library behind the device that is wrong is named; the other is not. Workers have the choice to themselves."""
    words = [captured["files"], "--op", "*linear", "--accuracy", "--jobs", "1", "--json", "-"]
    words += ["--library", "host", "--library", "faulty"]
    answer = start(*words, environment=child_environment(DITORCH_FAULTY="value:diopi*,scale=0.5"))
    output, _ = answer.communicate(timeout=600)
    (case,) = json.loads(output)["cases"]
    verdicts = {name: {row["verdict"] for row in rows["accuracy"]} for name, rows in case["results"].items()}
    assert answer.returncode == 1 and verdicts["cuda@host"] == {"pass"} and verdicts["cuda@faulty"] == {"wrong"}


def test_a_library_needs_a_device_and_a_file(captured, capsys):
    assert run_here(captured["files"], "--device", "cpu", "--library", "host") == 2
    assert "the CPU has no operator library" in capsys.readouterr().err
    assert run_here(captured["files"], "--library", "nowhere") == 2
    assert "'nowhere' not found" in capsys.readouterr().err


def judge(value, wanted):
    runs = Runs(lambda request: [request.move(wanted, 0)])
    call = judging.Call("torch.add", (), {}, [], lambda what: runs)
    return judging.judge_value(call, "output", 0, "x", value, wanted, wanted, False)


def test_shapes_dtypes_and_other_values():
    z = torch.tensor([1 + 2j, 3 - 1j])
    assert judge(z.clone(), z).verdict == "pass"
    found = judge(z + torch.tensor([0, 0.5j]), z)
    assert found.verdict == "wrong" and found.facts["index"] == [1] and "1 of 2 elements wrong" in found.reason
    assert judge(torch.empty(0, 3), torch.empty(0, 3)).verdict == "pass"
    assert judge(torch.tensor(3), torch.tensor(4)).verdict == "wrong"
    assert judge(torch.ones(2), torch.ones(3)).reason == "shape (2,), the CPU has (3,)"
    assert judge(torch.ones(2), torch.ones(2).double()).reason == "dtype torch.float32, the CPU has torch.float64"
    assert judge(None, None).verdict == "pass" and judge(None, z).verdict == "wrong"
    assert judge(2.5, 2.5).verdict == "pass" and judge(2.5, 2.6).verdict == "wrong"
    assert judge(math.nan, math.nan).verdict == "pass" and judge("a", "b").verdict == "wrong"
    assert judge(torch.device("cuda"), torch.device("cpu")).verdict == "pass"


def test_differences_of_large_tensors_are_taken_piece_by_piece(monkeypatch):
    monkeypatch.setattr(judging, "_CHUNK", 7)
    reference = torch.arange(50.0).view(5, 10)
    value = reference.clone()
    value[3, 4] += 1
    value[1, 1] = math.nan
    assert judging.measure_difference(value, reference) == 1.0
    assert judging.measure_difference(value.to(torch.complex64) + 2j, reference.to(torch.complex64)) == 2.0
    assert judging.measure_difference(value, reference[:2]) is None


def test_cancellation_and_short_sums_are_judged_by_what_rounded_inputs_do():
    """The CPU may be exact by chance where the device is off by a rounding of its inputs."""
    x = torch.tensor([1.0, 2.0**-24, -1.0])
    verdicts = []
    for off in (0.0, 2.0**-18):
        case = Case("torch.sum", (x,), {}, output=x.double().sum().float() + off)
        verdicts.append(judge_captured(case, References(case, False))["verdict"])
    assert verdicts == ["pass", "wrong"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["mm", "softmax", "sum", "exp", "batch_norm", "sort", "cumsum"])
def test_the_verdict_is_that_of_autocompare(tmp_path, name, dtype):
    """Faults of any size: both call the same ones wrong, forward and backward."""
    torch.manual_seed(11)
    x = torch.randn(24, 24, device="cuda", dtype=dtype, requires_grad=True)
    call = {
        "mm": lambda: torch.mm(x, x),
        "softmax": lambda: torch.softmax(x, 1),
        "sum": lambda: torch.sum(x, 0),
        "exp": lambda: torch.exp(x),
        "batch_norm": lambda: F.batch_norm(x, None, None, training=True),
        "sort": lambda: torch.sort(x, 1)[0],
        "cumsum": lambda: torch.cumsum(x, 1),
    }[name]
    with OpCapture(results=str(tmp_path / "c"), console="off", log=False):
        call().sum().backward()
    (ref,) = (ref for ref in find_cases(tmp_path / "c") if ref.operator in (f"torch.{name}", F.__name__ + f".{name}"))
    seen = set()
    kernel = {"softmax": "_softmax", "batch_norm": "native_batch_norm"}.get(name, name)
    for scale in (0.3, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7):
        with ditorch.fault(f"value:{kernel},scale={scale}"):
            with OpAutoCompare(save=False, console="off", log=False) as tool:
                call()
            _, result = run_json(tmp_path, ref.path, "--accuracy", "--forward-only")
        (verdict,) = result["cases"][0]["results"]["cuda"]["accuracy"]
        if 0.6 < verdict["worst"]["margin"] < 1.6:
            continue  # the inputs of further runs are random: on the border they decide
        assert (verdict["verdict"] == "pass") == tool.ok, scale
        seen.add(tool.ok)
    assert False in seen


def test_calls_that_draw_random_numbers_are_not_judged(case_folder, tmp_path):
    """Whatever their name is: a generator's state tells."""
    x = torch.ones(4, 8)
    case_folder(1, "torch.nn.functional.scaled_dot_product_attention", x, x, x, dropout_p=0.5, output=x * 7)
    case_folder(2, "torch.nn.functional.scaled_dot_product_attention", x, x, x, dropout_p=0.0, output=x * 7)
    words = ["--accuracy", "--against", "stored", "--against", "cpu"]
    status, result = run_json(tmp_path, case_folder.root, *words)
    found = [[v["verdict"] for v in entry["results"]["cuda"]["accuracy"]] for entry in result["cases"]]
    assert status == 0 and found == [["skip", "skip"], ["pass", "pass"]]
    assert "the captured result is wrong" in result["cases"][1]["results"]["cuda"]["accuracy"][0]["reason"]


def test_memory_and_times_of_known_work(monkeypatch):
    monkeypatch.setattr(measure, "FLUSH_BYTES", 1 << 16)
    x = torch.randn(1000)
    runner = OpRunner(Case("torch.add", (x, 1), {}), quiet=True)
    memory = measure.measure_memory(runner)
    assert memory["output_bytes"] == 4000 and memory["peak_bytes"] >= 4000
    numbers = measure.describe_times([3e-6, 1e-6, 2e-6, 10e-6], "host")
    assert numbers["median_us"] == pytest.approx(2.5) and numbers["p90_us"] == pytest.approx(10)
    assert numbers["min_us"] == pytest.approx(1) and numbers["runs"] == 4 and numbers["mean_us"] == pytest.approx(4)
    in_place = OpRunner(Case("torch.Tensor.add_", (x, 1), {}), quiet=True)
    found = measure.measure_speed(in_place, 5, 2, flush_cache=True)
    assert found["forward"]["runs"] == 5 and "backward" not in found
    assert torch.equal(in_place.result.cpu(), x + 1), "every run had fresh values"


# Broken cases


def test_r1_broken_cases_are_rows_and_the_batch_goes_on(captured, case_folder, tmp_path, capsys):
    shutil.copytree(captured["files"], case_folder.root, dirs_exist_ok=True)
    x = torch.ones(2)
    case_folder(901, "torch.no_such_operator", x)
    case_folder(902, "torch.mm", x, x)
    target = tmp_path / "touched"
    case_folder(903, "os.mkdir", str(target))
    with open(case_folder(904, "torch.exp", x) / "input.pth", "r+b") as file:
        file.truncate(90)
    os.remove(case_folder(905, "torch.exp", x, output=x) / "input.pth")
    status, result = run_json(tmp_path, case_folder.root, *QUICK)
    assert status == 3 and result["summary"]["error"] == 5 and result["summary"]["pass"] == 9
    errors = {entry["ref"]["id"]: entry["results"]["cuda"]["error"] for entry in result["cases"]}
    assert "no operator 'torch.no_such_operator'" in errors[901]["text"] and errors[901]["stage"] == "run"
    assert errors[902]["type"] == "RuntimeError" and errors[904]["stage"] == errors[905]["stage"] == "load"
    assert "os.mkdir" in errors[903]["text"] and not target.exists()
    out = capsys.readouterr().out
    assert "error: torch.mm on cuda: RuntimeError: " in out
    assert out.splitlines()[-1] == "15 cases on cuda: 9 right, 1 not judged, 5 could not be run"


def test_a_call_that_failed_when_it_was_captured_may_fail_again(tmp_path):
    x = torch.ones(2, 3, device="cuda")
    with OpCapture(results=str(tmp_path / "c"), console="off", log=False), pytest.raises(RuntimeError):
        torch.mm(x, x)
    status, result = run_json(tmp_path, tmp_path / "c", *QUICK)
    assert status == 0
    verdict = by_name(result)["torch.mm"]["accuracy"][0]
    assert verdict["verdict"] == "pass" and verdict["reason"].startswith("raises RuntimeError: ")


def test_crashes_hangs_and_faults_cost_their_own_row(case_folder, victims, tmp_path, monkeypatch):
    x = torch.ones(3)
    for number, name in enumerate(("crash", "hang", "noise"), 1):
        case_folder(number, f"replay_victims.{name}", x)
    case_folder(9, "torch.exp", x)
    monkeypatch.setenv("PYTHONPATH", victims["PYTHONPATH"])
    monkeypatch.setenv("DITORCH_FAULT", "value:exp,scale=0.1")
    words = [case_folder.root, "--allow-module", "replay_victims", "--accuracy", "--timeout", "6"]
    assert command.main([*map(str, words), "--json", str(tmp_path / "json")]) == 1
    result = json.loads((tmp_path / "json").read_text())
    errors = {entry["ref"]["id"]: entry["results"]["cuda"]["error"] for entry in result["cases"]}
    assert errors[1]["stage"] == "crash" and "SIGSEGV" in errors[1]["text"]
    assert errors[2] == {"stage": "timeout", "type": "timeout", "text": "no end after 6 s (--timeout)"}
    assert errors[3] is None and errors[9] is None
    assert result["summary"] == {"cases": 4, "pass": 1, "wrong": 1, "skip": 0, "error": 2, "allowed": 0}


# Resume


def read_log(victims):
    try:
        with open(victims["VICTIMS_LOG"]) as file:
            return [int(line) for line in file]
    except FileNotFoundError:
        return []


def test_a_killed_batch_goes_on_where_it_was(case_folder, victims, tmp_path, monkeypatch):
    for number in range(1, 13):
        case_folder(number, "replay_victims.slow", torch.tensor([float(number)]))
    state = tmp_path / "state.jsonl"
    words = [case_folder.root, "--allow-module", "replay_victims", "--accuracy", "--forward-only", "--against", "cpu"]
    words += ["--resume", state]
    environment = get_environment(victims)
    process = start(*words, environment=environment)
    limit = time.monotonic() + 600
    while not state.exists() or state.read_bytes().count(b"\n") < 4:
        assert process.poll() is None and time.monotonic() < limit
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    done = state.read_bytes().count(b"\n") - 1
    with open(state, "ab") as file:
        file.write(b'{"case": "torn')
    time.sleep(0.5)  # the worker sees the end of its input
    before = set(read_log(victims))
    assert done >= 3
    os.remove(victims["VICTIMS_LOG"])
    monkeypatch.setenv("PYTHONPATH", environment["PYTHONPATH"])
    monkeypatch.setenv("VICTIMS_LOG", victims["VICTIMS_LOG"])
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(worker_pool, "MOST_TASKS", 6)  # the worker is replaced under way
    assert command.main([*map(str, words), "--json", str(tmp_path / "json")]) == 0
    result = json.loads((tmp_path / "json").read_text())
    assert result["summary"]["pass"] == 12 and all(entry["results"]["cuda"]["accuracy"] for entry in result["cases"])
    again = set(read_log(victims))
    assert len(again) == 12 - done and len(before & again) <= 1, "only the case that was under way ran twice"
    lines = [json.loads(line) for line in state.read_text().splitlines()]
    assert lines[0]["format"] == "ditorch-replay-state" and len(lines) == 13


def test_finished_cases_are_not_run_again_unless_their_files_changed(captured, tmp_path):
    shutil.copytree(captured["files"], tmp_path / "c")
    words = [tmp_path / "c", "--accuracy", "--op", "*linear", "--op", "*relu", "--resume", tmp_path / "state"]
    assert run_here(*words) == 0
    with ditorch.fault("value:relu_,scale=0.1"):
        assert run_here(*words) == 0, "everything is known already"
        ref = next(ref for ref in find_cases(tmp_path / "c") if ref.operator.endswith("relu"))
        os.utime(os.path.join(ref.path, "input.pth"))
        assert run_here(*words) == 1


def test_trap_a_state_file_left_behind_changes_no_later_run(captured, tmp_path, capsys):
    state = tmp_path / "state"
    words = [captured["files"], "--op", "*linear", "--accuracy"]
    assert run_here(*words, "--resume", state) == 0
    content = state.read_bytes()
    capsys.readouterr()
    for more, text in (
        (["--forward-only"], "forward_only was False, now True"),
        (["--device", "cpu"], "device was ['cuda'], now ['cpu']"),
        (["--against", "stored"], "against was ['fp64'], now ['stored']"),
    ):
        assert run_here(*words, *more, "--resume", state) == 2
        err = capsys.readouterr().err
        assert "belongs to another batch" in err and text in err and "remove it, or give another file" in err
        assert state.read_bytes() == content
    (tmp_path / "other").write_text("something else")
    assert run_here(*words, "--resume", tmp_path / "other") == 2
    assert "is no state file of ditorch replay" in capsys.readouterr().err
    assert (tmp_path / "other").read_text() == "something else"
    assert run_here(*words, "--resume", tmp_path / "no" / "such" / "folder") == 2
    with ditorch.fault("value:addmm,scale=0.1"):
        assert run_here(*words) == 1, "without --resume nothing is remembered"


def test_damaged_lines_of_a_state_are_passed_over(tmp_path):
    path = str(tmp_path / "state")
    state = batch_state.State(path, {"a": 1})
    state.add("x", "s", {"answer": 1})
    state.add("y", "s", {"answer": 2})
    state.close()
    lines = (tmp_path / "state").read_bytes().splitlines(keepends=True)
    for damage in (b"\n", b"{}\n", b"[1]\n", b"\xff\xfe\n", b"null\n"):
        with open(path, "wb") as file:
            file.writelines([lines[0], damage, lines[2]])
        state = batch_state.State(path, {"a": 1})
        assert state.get("x", "s") is None and state.get("y", "s") == {"answer": 2} and state.get("y", "t") is None
        state.close()
    with open(path, "wb") as file:
        file.write(lines[0].replace(b'"version": 1', b'"version": 99'))
    with pytest.raises(batch_state.StateError, match="version 99, this is 1"):
        batch_state.State(path, {"a": 1})


# Choice of cases


def test_choice_by_operator_id_and_number(captured, capsys):
    def count(*words):
        status = run_here(captured["files"], "--memory", *words)
        out = capsys.readouterr().out
        return int(out.splitlines()[-1].split()[0]) if status == 0 else status

    assert count() == 10
    assert count("--op", "torch.nn.functional.*") == 5
    assert count("--op", "re:.*(sort|linear)") == 2
    assert count("--op", "*sort", "--op", "*relu") == 2
    assert count("--limit", "3") == 3
    ids = [ref.id for ref in find_cases(captured["files"])]
    assert count("--id", f"{min(ids)},{max(ids)}-") == 2
    assert count("--op", "nothing") == 2


def test_r6_the_cpu_side_of_a_comparison_is_no_device_case(captured, tmp_path, capsys):
    ref = next(ref for ref in find_cases(captured["files"]) if ref.operator.endswith("linear"))
    place = tmp_path / "c" / "op_capture_results" / ref.operator / "7" / "autocompare" / "1" / "2024-10-09-11-42-15"
    for role in ("device", "cpu"):
        shutil.copytree(ref.path, place / role)
    labels = {}
    for role in ("device", "cpu", "all"):
        assert run_here(tmp_path / "c", "--memory", "--role", role) == 0
        labels[role] = [line.split()[0] for line in capsys.readouterr().out.splitlines()[2:-2]]
    assert labels == {"device": ["1"], "cpu": ["1"], "all": ["1/device", "1/cpu"]}
    assert run_here(place / "cpu", "--memory") == 0, "it was named"


def test_tensors_of_the_cpu_stay_there(tmp_path):
    x, index = torch.randn(4, 5, device="cuda"), torch.tensor([2, 0])
    with OpCapture(results=str(tmp_path / "c"), console="off", log=False):
        x[index]
    assert run_here(tmp_path / "c", "--accuracy", "--against", "fp64", "--against", "stored") == 0


def test_every_older_layout_is_replayed(tmp_path):
    """The fixtures are written from the documented formats; two hold results that were wrong on their device."""
    folder = os.path.join(HERE, "fixtures", "cases")
    status, result = run_json(tmp_path, folder, "--accuracy", "--against", "fp64", "--against", "stored")
    found = {
        (e["ref"]["layout"], e["name"]): [v["verdict"] for v in e["results"]["cuda"]["accuracy"]]
        for e in result["cases"]
    }
    assert {layout for layout, _ in found} >= {
        "files",
        "compared",
        "time-first",
        "device-first",
        "name-first",
        "mismatch",
    }
    assert status == 0 and all("wrong" not in verdicts for verdicts in found.values())
    noted = {
        e["ref"]["layout"]
        for e in result["cases"]
        if e["results"]["cuda"]["accuracy"][1]["reason"].startswith("the captured result is wrong, this one is right")
    }
    assert noted == {"compared", "mismatch"}


# Export


def test_export_writes_a_folder_that_runs_with_torch_alone(captured, case_folder, tmp_path, capsys):
    assert run_here(captured["packed"], "--op", "*linear", "--export", tmp_path / "one") == 0
    assert sorted(os.listdir(tmp_path / "one")) == ["README.md", "data.pt", "repro.py"]
    out = capsys.readouterr().out
    assert f"python {tmp_path / 'one' / 'repro.py'}" in out
    words = ["-E", str(tmp_path / "one" / "repro.py"), "--device", "cpu"]
    assert subprocess.run([sys.executable, *words], cwd=tmp_path, timeout=600, capture_output=True).returncode == 0
    case_folder(1, "torch.exp", torch.ones(2))
    case_folder(2, "torch.exp", torch.ones(3))
    case_folder(3, "torch.no_such_operator", torch.ones(2))
    assert run_here(case_folder.root, "--export", tmp_path / "many") == 3
    assert sorted(os.listdir(tmp_path / "many")) == ["torch.exp-1", "torch.exp-2"]
    assert "torch.no_such_operator" in capsys.readouterr().err


# Use


@pytest.mark.parametrize(
    "words, text",
    [
        ([], "nothing to replay: give a capture folder"),
        (["missing"], "'missing' does not exist"),
        ([".", "--dir", "."], "both PATH"),
        (["."], "there is no captured call in '.'"),
        ([".", "--device", "GPU 1"], "'GPU 1' is no device; valid: cuda, cpu"),
        (
            [".", "--against", "fp 64"],
            "'fp 64' is no device; valid: cuda, cpu, cuda:1 ..., and for --against also fp64",
        ),
        ([".", "--op", "re:("], "--op 're:(' is no regular expression"),
        ([".", "--id", "7-3"], "--id '7-3': the range '7-3' is empty"),
        ([".", "--id", "x"], "--id 'x': 'x' is no id"),
        ([".", "--run-times", "0"], "--run-times/--run_times: 0 is out of range; valid: 1 or more"),
        ([".", "--timeout", "nan"], "--timeout: nan is out of range"),
        ([".", "--jobs", "-1"], "--jobs: -1 is out of range; valid: 0 or more"),
        ([".", "--unknown"], "unrecognized arguments: --unknown"),
    ],
)
def test_wrong_use_is_told(words, text, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert command.main(words) == 2
    assert text in capsys.readouterr().err


def test_a_device_that_is_not_there(captured, capsys):
    for jobs in ("0", "1"):
        assert command.main([str(captured["files"]), "--device", "cuda:9", "--jobs", jobs]) == 2
        assert "device 'cuda:9' cannot be used: " in capsys.readouterr().err


def test_failures_may_be_allowed(case_folder, capsys):
    x = torch.ones(2)
    case_folder(1, "torch.mm", x, x)
    case_folder(2, "torch.exp", x, output=x.exp())
    case_folder(3, "torch.sin", x, output=x.sin())
    words = [case_folder.root, "--accuracy", "--against", "stored"]
    with ditorch.fault("value:exp,scale=0.1"):
        assert run_here(*words) == 1
        assert run_here(*words, "--allow-failed", "torch.exp") == 3
        capsys.readouterr()
        assert run_here(*words, "--allow-failed", "torch.exp", "--allow-failed-pattern", "*/torch.mm/*") == 0
    out = capsys.readouterr().out
    assert "wrong (allowed): torch.exp" in out and "error (allowed): torch.mm" in out
    assert out.splitlines()[-1].endswith("1 right, 1 wrong, 1 could not be run; 2 of them allowed to fail")


def test_help_and_the_verb():
    answer = run_python("-m", "ditorch", "replay", "--help")
    assert "0    everything right" in answer.stdout and "1    wrong results" in answer.stdout
    assert "replay" in run_python("-m", "ditorch", "--help").stdout


def test_json_goes_to_files_and_pipes(captured, tmp_path, capsys):
    words = [captured["files"], "--memory", "--op", "*linear", "--json"]
    assert run_here(*words, tmp_path / "no" / "folder") == 2 and run_here(*words, tmp_path) == 2
    assert "cannot be written; give a file in a folder that exists" in capsys.readouterr().err
    os.mkfifo(tmp_path / "pipe")
    got = []
    reader = threading.Thread(target=lambda: got.append((tmp_path / "pipe").read_text()))
    reader.start()
    assert run_here(*words, tmp_path / "pipe") == 0
    reader.join()
    assert json.loads(got[0])["summary"]["pass"] == 1 and stat.S_ISFIFO(os.stat(tmp_path / "pipe").st_mode)
    capsys.readouterr()
    assert run_here(*words, "-") == 0
    assert json.loads(capsys.readouterr().out)["format"] == "ditorch-replay"


# Reports


def test_json_has_everything_and_is_strict(captured, tmp_path):
    status, result = run_json(tmp_path, captured["files"], "--op", "*linear", *QUICK)
    assert status == 0
    assert set(result) == {
        *("format", "version", "time", "ditorch", "torch", "python", "machine", "devices", "options", "cases"),
        *("summary", "exit_status"),
    }
    assert result["format"] == "ditorch-replay" and result["version"] == 1
    assert result["torch"] == torch.__version__ and result["ditorch"] == _C.version()
    assert result["options"]["run_times"] == 2 and result["options"]["against"] == ["fp64"]
    (entry,) = result["cases"]
    assert set(entry) == {"ref", "label", "name", "allowed", "results", "path"}
    assert set(entry["results"]["cuda"]) == {"error", "accuracy", "speed", "memory"}
    assert os.path.isdir(entry["path"]) and entry["ref"]["operator"] == entry["name"]
    dirty = {"a": [math.nan, -math.inf, math.inf, 1.5], 3: (1, None, True, 2j, torch.float32)}
    assert report.clean(dirty) == {
        "a": ["nan", "-inf", "inf", 1.5],
        "3": [1, None, True, "2j", "torch.float32"],
    }


def test_long_tables_show_failures_first():
    def entry(number, verdict):
        results = {"cuda": {"error": None, "accuracy": [{"against": "fp64", "verdict": verdict, "values": []}]}}
        return {"label": str(number), "name": "x", "ref": {"operator": "x", "path": "p"}, "results": results}

    entries = [entry(number, "wrong" if number in (4, 7) else "pass") for number in range(10)]
    rows, left = report.choose_rows(entries, 4)
    assert [row["label"] for row in rows] == ["0", "1", "4", "7"] and left == 6
    assert report.choose_rows(entries, 0) == (entries, 0)
    assert report.get_exit_status(entries) == 1 and report.summarise(entries)["wrong"] == 2


@pytest.mark.parametrize(
    "verdicts, wanted",
    [
        (["skip", "skip"], 3),
        (["skip", "pass"], 0),
        (["skip", "wrong"], 1),
        ([None, None], 0),
        (["skip", None], 0),
        ([], 0),
    ],
)
def test_nothing_compared_has_an_exit_status_of_its_own(verdicts, wanted):
    entries = []
    for verdict in verdicts:
        accuracy = [{"against": "fp64", "verdict": verdict, "values": []}] if verdict else None
        entries.append({"name": "x", "results": {"cuda": {"error": None, "accuracy": accuracy}}})
    assert report.get_exit_status(entries) == wanted


def test_times_are_taken_by_one_worker_alone(captured):
    options = command.parse([str(captured["files"]), "--jobs", "3"])
    batch = command.Batch(options, command.choose_cases(options), None, {})
    phases = [(tasks[0]["parts"], len(tasks), jobs) for tasks, jobs in batch._plan()]
    assert phases == [(["accuracy", "memory"], 10, 3), (["speed"], 10, 1)]
    options = command.parse([str(captured["files"]), "--jobs", "3", "--accuracy"])
    assert [jobs for _, jobs in command.Batch(options, command.choose_cases(options), None, {})._plan()] == [3]
    options = command.parse([str(captured["files"])])
    assert [jobs for _, jobs in command.Batch(options, command.choose_cases(options), None, {})._plan()] == [1]


def test_progress_on_a_terminal_and_elsewhere(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(command.time, "monotonic", lambda: now[0])
    for terminal in (False, True):
        stream = io.StringIO()
        stream.isatty = lambda terminal=terminal: terminal
        progress = command.Progress(40, stream)
        for _ in range(30):
            now[0] += 0.5
            progress.step("torch.mm")
        progress.close()
        text = stream.getvalue()
        if terminal:
            assert text.count("\r") == 30 and "30 of 40, 2.0/s, 5 s to go  torch.mm" in text and text.endswith("\x1b[K")
        else:
            assert text == "replay: 20 of 40, 2.0/s, 10 s to go\n"


def test_labels_tell_cases_apart():
    from op_tools.reader import CaseRef

    def label(*refs):
        return command.make_labels([CaseRef("p", *facts) for facts in refs])

    assert label(("a", 7, 1), ("b", 7, 1), ("a", 7, 2)) == ["1", "1", "2"]
    assert label(("a", 7, 1), ("a", 8, 1)) == ["7/1", "8/1"]
    assert label(("a", 7, 1, "", "device"), ("a", 7, 1, "", "cpu")) == ["1/device", "1/cpu"]
    assert label(("a", None, None), ("a", 7, 1)) == ["1", "2"]


def test_captures_are_only_read(captured):
    before = {path: os.stat(path).st_mtime_ns for path in map(str, captured["files"].rglob("*"))}
    assert run_here(captured["files"], *QUICK) == 0
    assert {path: os.stat(path).st_mtime_ns for path in map(str, captured["files"].rglob("*"))} == before
    ref = next(find_cases(captured["files"]))
    assert load_item(os.path.join(ref.path, "input.pth"))["name"] == ref.operator
