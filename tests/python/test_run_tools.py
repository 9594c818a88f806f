"""`ditorch run --tool`, `ditorch nan`, DITORCH_TOOLS: tools on a program that does not know them."""

import json
import os
import re
import subprocess
import sys
import time
from xml.etree import ElementTree

import pytest
import torch
from conftest import child_environment, run_python
from ditorch import cli, export
from ditorch import launch as launcher
from ditorch.command.run import read_runs, wait_for_ranks
from ditorch.command.spec import Spec, SpecError, check_ranges, parse_budget, parse_option, parse_tools, read_wish
from ditorch.effect import describe
from op_tools import observer, program
from op_tools.overflow_check import hold_arguments

pytestmark = pytest.mark.usefixtures("warm_children")

TRAIN = """
import sys, torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4)).to("cuda")
first = torch.optim.SGD(model[0].parameters(), lr=0.1)
second = torch.optim.SGD(model[2].parameters(), lr=0.1)
x, y = torch.randn(32, 8).cuda(), torch.randint(0, 4, (32,)).cuda()
for step in range(9):
    out = model(x)
    if "nan" in sys.argv and step == 7:
        out = (out - out.max()).log()
    torch.nn.functional.cross_entropy(out, y).backward()
    first.step(), second.step()
print("done")
"""


@pytest.fixture
def place(tmp_path):
    (tmp_path / "train.py").write_text(TRAIN)
    return tmp_path


def ditorch(place, *words, **environment):
    environment = {"DITORCH_BANNER": 0, "COLUMNS": 80, **environment}
    return run_python("-m", "ditorch", *words, check=False, cwd=place, trains=True, **environment)


def read_run(place, folder):
    (name,) = [name for name in os.listdir(place / folder) if name.startswith("run-r")]
    return json.loads((place / folder / name).read_text())


def test_tools_on_an_unmodified_script(place):
    words = ["--tool", "autocompare,time", "--steps", "5-6", "--include", "torch.nn.*", "--budget", "1MiB", "--check"]
    answer = ditorch(place, "--set", "fault=value:gelu,scale=0.1", "run", *words, "train.py")
    assert answer.stdout == "done\n" and answer.returncode == 1, answer.stderr
    run = read_run(place, "ditorch_runs/run-001")
    assert run["steps"] == 9, "two optimizers are one step"
    (finding,) = run["findings"]
    assert (finding["name"], finding["step"]) == ("torch.nn.functional.gelu", 5) and finding["module"].endswith("1")
    block, _, summary = answer.stderr.partition("== ditorch run: ")
    assert "OpAutoCompare: torch.nn.functional.gelu is wrong\n" in block and "\n  place  train.py:9" in block
    lines = summary.splitlines()
    assert len(lines) <= 10 and lines[0].startswith("9 steps in ")
    assert "  found    torch.nn.functional.gelu is wrong, step 5, train.py:9" in lines
    replay = lines[-1].removeprefix("  next     ditorch replay ")
    assert os.path.isdir(place / replay), lines
    assert "OpAutoCompare: on" not in answer.stderr


def test_nan_names_the_producer_and_stops_there(place):
    answer = ditorch(place, "nan", "--", "train.py", "nan")
    assert answer.returncode == 1 and answer.stdout == "" and "Traceback" not in answer.stderr
    assert "torch.Tensor.log made 1 Inf, 127 NaN of 128 (inputs finite)\n  call   step 7" in answer.stderr
    assert "place  at train.py:11" in answer.stderr
    saved = answer.stderr.splitlines()[-1].removeprefix("  next     ditorch replay ")
    assert sorted(os.listdir(place / saved))[0].startswith("input")


BACKWARD = """
import torch
class Root(torch.nn.Module):
    def forward(self, x):
        return (x - x.detach()).abs().sqrt()
layer, root = torch.nn.Linear(4, 4).cuda(), Root()
root(layer(torch.randn(2, 4).cuda())).sum().backward()
"""


CAUSE = """
import torch
x = torch.full((4, 4), 300.0, device="cuda")
with torch.autocast("cuda", dtype=torch.float16):
    x @ x
"""


def test_the_cpu_tells_whose_fault_it_is(place):
    causes = {"the operator is right": "nan", "is wrong on this device": "fault", "the dtype cannot": "half"}
    (place / "half.py").write_text(CAUSE)
    for words, case in causes.items():
        program = ["half.py"] if case == "half" else ["train.py", case]
        answer = ditorch(place, "nan", *program, DITORCH_FAULT="nan:gelu,call=4" if case == "fault" else "")
        (cause,) = [line for line in answer.stderr.splitlines() if line.startswith("  cause    ")]
        assert words in cause, answer.stderr
    folder = answer.stderr.splitlines()[-1].removeprefix("  next     ditorch replay ")
    state = torch.load(place / folder / "input.pth", weights_only=True)["state"]
    assert state == {"autocast": {"cuda": {"enabled": True, "dtype": "float16"}}}


def test_nan_in_a_backward_saves_the_inputs_of_the_forward(place):
    (place / "backward.py").write_text(BACKWARD)
    answer = ditorch(place, "nan", "backward.py")
    assert answer.returncode == 1, answer.stderr
    assert "OpOverflowCheck: the backward of torch.Tensor.sqrt made 8 Inf" in answer.stderr
    assert "place  at backward.py:5" in answer.stderr and "\n  module Root\n" in answer.stderr
    saved = answer.stderr.splitlines()[-1].removeprefix("  next     ditorch replay ")
    names = {name for name in os.listdir(place / saved) if name.endswith(".pth")}
    assert names == {"input.pth", "grad_outputs.pth", "grad_inputs.pth"}
    case = torch.load(place / saved / "input.pth", weights_only=True)
    assert torch.equal(case["args"][0].cpu(), torch.zeros(2, 4)) and case["args"][0].requires_grad


def test_inputs_that_changed_since_are_told():
    x = torch.ones(3, requires_grad=True)
    held = hold_arguments((x * 2, [x]), {"out": None})
    assert not held.is_changed() and held.args[1][0].requires_grad and held.args[0].grad_fn is None
    x.detach().add_(1)
    assert held.is_changed()


def test_a_clean_program_is_clean_and_the_environment_is_enough(place):
    answer = ditorch(place, "train.py", DITORCH_TOOLS="nan")
    assert answer.returncode == 0 and answer.stdout == "done\n" and "no NaN or Inf was made" in answer.stderr
    assert read_run(place, "ditorch_runs/run-001")["steps"] == 9


SCALED = """
import torch
torch.manual_seed(0)
model = torch.nn.Linear(8, 8).to("cuda")
optimizer, scaler = torch.optim.SGD(model.parameters(), lr=1e-3), torch.amp.GradScaler("cuda", init_scale=2.0**18)
for step in range(8):
    with torch.autocast("cuda", dtype=torch.float16):
        out = model(torch.ones(4, 8, device="cuda"))
        if step == 6:
            out = (out - out.max()).log()
    scaler.scale(out.float().sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
print("skipped", sum(scaler.get_scale() < 2.0**power for power in range(19)))
"""


def test_a_gradient_scaler_at_work_is_no_finding_and_its_skipped_steps_are_steps(place):
    (place / "scaled.py").write_text(SCALED)
    answer = ditorch(place, "nan", "--out", "o", "scaled.py")
    (finding,) = read_run(place, "o")["findings"]
    assert (finding["name"], finding["kind"], finding["step"]) == ("torch.Tensor.log", "forward", 6), answer.stderr
    answer = ditorch(place, "run", "--tool", "nan", "--steps", "0-5", "--out", "all", "scaled.py")
    assert read_run(place, "all")["steps"] == 8 and not read_run(place, "all")["findings"], answer.stderr
    assert "none but what the gradient scaler is for (" in answer.stderr, answer.stderr


def test_a_program_that_is_not_there(place, monkeypatch):
    monkeypatch.chdir(place)
    assert launcher.check(["train.py"]) is None
    assert launcher.check(["tran.py"]).splitlines()[1] == "did you mean 'train.py'?"
    assert "\n" not in launcher.check(["nothing_like_it"]) and "\n" not in launcher.check(["none/train.py"])
    bin = place / "bin"
    bin.mkdir()
    (bin / "launcher").write_text("#!/bin/sh\n")
    (bin / "launcher").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(bin / "python"))  # an environment that is not active
    assert launcher.find_command("launcher") == str(bin / "launcher")
    assert launcher.find_command("bin/python") is None and launcher.find_command("no such command") is None
    assert (
        launcher.check(["launcher"]).splitlines()[1]
        == "launcher is a command: write it behind two dashes, -- launcher ..."
    )


def test_operators_of_one_name_are_one_in_the_summary():
    rows = [
        {"name": f"torch.{name}", "kind": "forward", "total_ns": ns} for name, ns in (("a", 40), ("b", 35), ("b", 25))
    ]
    facts = {"counts": {"time": {}}, "facts": {"time": {}}, "times": rows, "operators_ns": 100}
    assert program._tell_tool("time", facts).endswith("most time: b 60%, a 40%")


def test_every_fourth_step(place):
    answer = ditorch(place, "run", "--tool", "observe", "--every", "4", "--out", "o", "train.py")
    run = read_run(place, "o")
    assert run["selection"]["every"] == "4" and run["steps"] == 9, answer.stderr
    assert {record["step"] for record in export.read(str(place / "o"), types=["call"])} == {0, 4, 8}
    effect = run["observer"]["time"]
    assert (effect["steps_with"], effect["steps_without"], effect["source"]) == (2, 6, "steps not watched")


def test_a_selection_that_meant_nothing_is_said(place):
    answer = ditorch(place, "run", "--tool", "autocompare", "--steps", "50-51", "train.py")
    assert "9 steps" in answer.stderr and "nothing was compared" in answer.stderr
    assert "No selected step came: steps=50-51 against steps 0 to 9" in answer.stderr
    answer = ditorch(place, "run", "--tool", "time", "--include", "softmax,gelu", "train.py")
    assert "no call is meant by 'softmax'\n" in answer.stderr
    answer = ditorch(place, "run", "--tool", "time", "--include", "softmax", "train.py")
    assert "include is 'softmax'" in answer.stderr and "names that came: " in answer.stderr


RANKS = """
import os, torch
x = torch.ones(3).cuda() - int(os.environ["RANK"]) * 2
optimizer = torch.optim.SGD([torch.nn.Parameter(x.clone())], lr=0.1)
optimizer.step(), optimizer.step(), x.log()
"""
TORCHRUN = ["-m", "torch.distributed.run", "--nproc-per-node", "2"]


@pytest.mark.full
def test_a_launcher_and_its_ranks(place):
    (place / "ranks.py").write_text(RANKS)
    words = ["nan", "--go-on", "--out", "out", "--report", "--", sys.executable, *TORCHRUN, "ranks.py"]
    answer = ditorch(place, *words)
    assert answer.stderr.count("report written") == 1
    assert answer.returncode == 1 and "2 processes" in answer.stderr
    assert "first     rank 1, step 2: torch.Tensor.log made NaN or Inf" in answer.stderr


def launch(place, *words, **environment):
    """A launcher that starts `-m ditorch` itself."""
    (place / "ranks.py").write_text(RANKS)
    environment = child_environment(DITORCH_BANNER="0", COLUMNS="80", **environment)
    command = [sys.executable, *TORCHRUN, "-m", "ditorch", *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=place, env=environment, timeout=600)


@pytest.mark.full
def test_a_launcher_starts_ditorch(place):
    words = ["run", "--tool", "nan", "--out", "o", "--junit", "j.xml", "--json", "s.json", "--report", "ranks.py"]
    answer = launch(place, *words)
    summary = json.loads((place / "s.json").read_text())
    assert [process["rank"] for process in summary["processes"]] == [0, 1] and summary["findings"][0]["rank"] == 1
    assert answer.returncode == 0 and answer.stderr.count("report written") == 1, answer.stderr
    assert "rank 0 of 2" in answer.stderr and "rank 1 of 2" in answer.stderr
    root = ElementTree.parse(place / "j.xml").getroot()
    names = [(suite.get("name"), suite.get("failures")) for suite in root.iter("testsuite")]
    assert names == [("program", "0"), ("rank 0", "0"), ("rank 1", "1")]
    assert len([name for name in os.listdir(place / "o") if name.startswith("run-r")]) == 2
    page = (place / "o" / "report.html").read_text()
    assert '"label":"rank 0"' in page and '"label":"rank 1"' in page and '"tool":"nan"' in page


@pytest.mark.full
def test_a_launcher_with_tools_on_one_rank_and_by_the_environment(place):
    answer = launch(place, "run", "--tool", "nan", "--ranks", "0", "--check", "--out", "o", "ranks.py")
    assert answer.returncode == 0, answer.stderr
    runs = read_runs(str(place / "o"))
    assert [run["findings"] for run in runs] == [[], []], "the NaN is on rank 1"
    assert runs[0]["counts"]["nan"]["applied"] > 0 == runs[1]["counts"]["nan"]["applied"]
    answer = launch(place, "ranks.py", DITORCH_TOOLS="nan")
    assert answer.returncode == 0, answer.stderr
    (folder,) = (place / "ditorch_runs").iterdir()
    runs = read_runs(str(folder))
    assert [run["rank"] for run in runs] == [0, 1] and [len(run["findings"]) for run in runs] == [0, 1]


def test_a_baseline_of_one_rank_is_refused(place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    monkeypatch.setenv("WORLD_SIZE", "4")
    for rank, said in (("0", "put the launcher behind --, as in `ditorch run --baseline ... -- torchrun "), ("1", "")):
        monkeypatch.setenv("RANK", rank)
        assert cli.main(["run", "--tool", "time", "--baseline", "train.py"]) == 2
        error = capsys.readouterr().err
        assert said in error and bool(error) == bool(said)


def test_the_first_rank_waits_for_the_others(tmp_path, monkeypatch, capsys):
    for name, value in {"RANK": "0", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "run-r0-p1.json").write_text("{}")
    (tmp_path / "run-r1-p2.json").write_text("{}")
    wait_for_ranks(str(tmp_path), time.time() - 60)
    assert capsys.readouterr().err == ""
    os.utime(tmp_path / "run-r1-p2.json", (1, 1))  # of a run before
    wait_for_ranks(str(tmp_path), time.time() - 60, 0.3)
    assert "1 of 2 ranks have written what they found ([0]) after 0 s" in capsys.readouterr().err


def test_a_step_marker(place):
    answer = ditorch(place, "run", "--tool", "time", "--step-marker", "torch:Tensor.backward", "--out", "o", "train.py")
    shares = [
        int(number)
        for number in re.findall(r"(\d+)%", re.search(r"ms in operators; most time: (.*)", answer.stderr)[1])
    ]
    assert shares and shares[0] >= 20 and sum(shares) <= 101  # of the operators' own time, whatever else the run did
    assert answer.returncode == 0 and read_run(place, "o")["steps"] == 9, answer.stderr


@pytest.mark.parametrize(
    "words, expected",
    [
        (["--tool", "autocomapre", "x.py"], "no tool 'autocomapre'; did you mean 'autocompare'?"),
        (["--tool", "time", "--steps", "9-3", "x.py"], "--steps '9-3'"),
        (["--tool", "time", "--budget", "much", "x.py"], "such as 2GiB"),
        (["--tool", "time", "--option", "rows", "x.py"], "TOOL.NAME=VALUE"),
        (["--tool", "time", "--inclde", "x", "x.py"], "did you mean '--include'"),
        (["--tool", "time", "--every", "0", "x.py"], "--every '0': expected a whole number of at least 1"),
        (["--tool", "time", "--every", "second", "x.py"], "--every 'second'"),
        (["--steps", "1", "x.py"], "belongs to --tool"),
        (["--every", "2", "x.py"], "--every belongs to --tool"),
        (["--tool", "time"], "nothing to run"),
    ],
)
def test_wrong_use(words, expected, capsys):
    assert cli.main(["run", *words]) == 2
    assert expected in capsys.readouterr().err


def test_words_of_a_wish():
    assert parse_tools("OpAutoCompare, overflow,nan") == ["autocompare", "nan"]
    assert parse_budget("2GiB") == ("bytes", 2 << 30) and parse_budget("5%") == ("percent", 5)
    assert parse_budget("") == ("", 0) and parse_budget("512") == ("bytes", 512)
    assert parse_option("nan.save = 1") == ("nan", "save", "1")
    assert check_ranges("--steps", "1-2,9,20-") == "1-2,9,20-"
    assert Spec(tools=["time"], steps="3", every="2", out="o").make_options("time") == {
        "results": "o",
        "module_paths": True,
        "steps": "3",
        "every": "2",
    }


def test_a_wish_travels_by_file(tmp_path):
    spec = Spec(tools=["nan"], out=str(tmp_path), stop=True, options={"nan": {"save": "1"}})
    environment = spec.to_environment()
    assert read_wish(environment["DITORCH_RUN"], "") == spec and read_wish("", "") is None
    (tmp_path / "spec.json").write_text("{")
    with pytest.raises(SpecError, match="cannot be read"):
        read_wish(environment["DITORCH_RUN"], "")


def test_runs_do_not_share_a_folder(tmp_path, monkeypatch):
    for name in ("RANK", "MASTER_PORT", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    assert [os.path.basename(program.make_folder(str(tmp_path))) for _ in range(2)] == ["run-001", "run-002"]


# The observer effect


def test_losses_are_read_with_one_wait(monkeypatch):
    losses, waits, native = observer.Losses(), [], torch.Tensor.tolist
    weight = torch.ones(3, requires_grad=True)
    losses.start()
    try:
        for step in range(50):
            (weight * step).sum().backward()
        (weight.double().sum() * 0.1).reshape(1, 1).backward()
    finally:
        monkeypatch.setattr(torch.Tensor, "tolist", lambda tensor: waits.append(tensor) or native(tensor))
        monkeypatch.setattr(torch.Tensor, "item", None)
        bits = losses.stop()
    assert len(waits) == 2  # of a device and dtype
    assert [observer.from_bits(text) for text in bits] == [3.0 * step for step in range(50)] + [pytest.approx(0.3)]


def test_a_baseline_and_a_junit_file(place):
    words = ["--tool", "autocompare", "--baseline", "--junit", "j.xml", "--json", "s.json", "--out", "o", "train.py"]
    answer = ditorch(place, "--set", "fault=value:gelu,scale=0.1", "run", *words)
    assert answer.returncode == 0 and answer.stdout == "done\n", answer.stderr
    effect = read_run(place, "o")["observer"]
    assert effect["loss"] == {"count": 9, "baseline_count": 9, "equal": True, "first": None}
    assert effect["time"]["steps_with"] == effect["time"]["steps_without"] == 8 and effect["memory"]["host_peak"][1] > 0
    (line,) = [line for line in answer.stderr.splitlines() if line.startswith("  effect ")]
    assert "steps of the baseline); 9 losses equal to the bit; host memory " in line
    root = ElementTree.parse(place / "j.xml").getroot()
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("2", "1", "0")
    assert "torch.nn.functional.gelu is wrong" in root.find(".//failure").text
    summary = json.loads((place / "s.json").read_text())
    assert (summary["command"], summary["status"], summary["ended"]) == ("train.py", 0, "")
    assert [finding["name"] for finding in summary["findings"]] == ["torch.nn.functional.gelu"]
    (process,) = summary["processes"]
    assert process["steps"] == 9 and "9 losses equal to the bit" in process["effect"] and process["observer"] == effect
    assert summary["next"].startswith("ditorch replay ") and os.path.isdir(summary["results"])


@pytest.mark.full
def test_a_baseline_of_nan(place):
    answer = ditorch(place, "nan", "--baseline", "--out", "o", "train.py", "nan")
    assert answer.returncode == 1, answer.stderr
    assert "the first 7 losses equal to the bit, then 7 against the baseline's 9" in " ".join(answer.stderr.split())
    assert "--baseline" not in answer.stderr.partition("== ditorch run")[2]


def test_a_junit_file_of_a_program_that_fails(place):
    (place / "fails.py").write_text("import torch\ntorch.ones(2).cuda() + 1\nraise RuntimeError('no more')\n")
    answer = ditorch(place, "run", "--tool", "nan", "--junit", "j.xml", "fails.py")
    assert answer.returncode == 1 and "RuntimeError: no more" in answer.stderr
    root = ElementTree.parse(place / "j.xml").getroot()
    assert (root.get("tests"), root.get("errors")) == ("2", "1")
    assert root.find(".//error").text == "RuntimeError: no more"


def test_an_effect_is_told_as_far_as_it_was_measured(tmp_path):
    facts = {"step_seconds": [9.0, 1.0, 2.0, 1.0], "rank": 0, "out": str(tmp_path), "losses": [], "memory": {}}
    effect = observer.measure(facts, [True, False, True, False])
    assert effect["time"]["with"] == 2.0 and effect["time"]["without"] == 1.0 and "loss" not in effect
    text = describe(effect)
    assert text.startswith("a step takes 2.00x the time") and text.endswith("loss and memory not compared (--baseline)")
    assert "not measured" in describe(observer.measure(facts, [True] * 4))
    (tmp_path / "baseline" / "probes" / "001").mkdir(parents=True)
    bits = [observer.to_bits(1.5), observer.to_bits(float("nan"))]
    other = {"step_seconds": [9.0, 4.0], "losses": bits, "memory": {"host": 1 << 20}}
    (tmp_path / "baseline" / "probes" / "001" / "probe-r0-p1.json").write_text(json.dumps(other))
    mine = {**facts, "losses": [bits[0], observer.to_bits(2.0)], "memory": {"host": 3 << 20}}
    text = describe(observer.measure(mine, [True] * 4))
    assert "0.25x" in text and "loss 2 is 2.0, the baseline's nan" in text and text.endswith("host memory +2.0 MiB")
    assert observer.measure({**mine, "losses": bits}, [True] * 4)["loss"]["equal"]
    text = describe(observer.measure({**mine, "losses": bits[:1]}, [True] * 4))  # a run that ended earlier
    assert "the first 1 losses equal to the bit, then 1 against the baseline's 2" in text
