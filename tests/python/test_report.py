"""`ditorch report`: what is on the page, from logs and files of any kind. In a browser: test_report_page.py."""

import json
import re
import sys
import zlib
from base64 import b64decode

import pytest
from conftest import run_python
from ditorch import report
from ditorch.command import report as command
from ditorch.command.tree import Head
from ditorch.report import collected, page, series
from record_log import Log
from report_runs import EVIL, LINEAR, NORM, add_call, describe_process, make_log, write, write_hostile, write_run


def read_page(text):
    """The data in a page: what is read at once, and the details."""
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])
    details = re.search(r'id="details">(.*?)</script>', text, re.DOTALL)[1]
    return data, json.loads(zlib.decompress(b64decode(details)))


def find(rows, name):
    (row,) = [row for row in rows if row["name"] == name]
    return row


def test_the_verdict_says_what_how_sure_and_what_to_do(tmp_path):
    numbers = report.make_numbers([write_run(tmp_path / "run-001")])
    verdict = numbers["verdict"]
    assert (verdict["state"], verdict["sentence"]) == ("wrong", f"{NORM} gives wrong results")
    (answer,) = verdict["answers"]
    facts = dict(answer["facts"])
    assert answer["sure"] == "certain" and "20 times" in answer["why"]
    assert facts["error"] == "off by 0.5, 250,000 times the allowed 2e-06"
    assert facts["elements"] == "31 of 32, worst at [0, 3]: -2 instead of -2.5"
    assert facts["how often"] == "20 of 20 compared calls" and facts["module"] == "GPT.blocks.0.norm"
    commands = [text for _, text in answer["steps"]]
    assert commands[0] == "ditorch replay op_capture_results/x" and f"fallback.list={NORM}" in commands[2]


def test_sums_per_operator_module_step_and_rank(tmp_path):
    folder = write_run(tmp_path / "run-001")
    write_run(tmp_path / "run-001", rank=1)
    numbers = report.make_numbers([folder])
    row = find(numbers["operators"], LINEAR)
    assert (row["calls"], row["compared"], row["wrong"], row["forward_ns"]) == (40, 40, 0, 40_000_000)
    assert row["backward_ns"] == 40_000_000 and row["imbalance"] == 1
    assert numbers["operators"][0]["name"] == NORM and numbers["operators"][0]["wrong"] == 40
    assert [lane["calls"] for lane in numbers["lanes"]] == [60, 60]
    flame = numbers["flame"]
    assert flame["t"] == 240_000_000 and flame["k"][0]["n"] == "GPT"
    blocks = flame["k"][0]["k"][0]
    assert [child["n"] for child in blocks["k"]] == ["0", "1"] and sum(child["t"] for child in blocks["k"]) == blocks[
        "t"
    ]
    assert sum(ns for one in numbers["timeline"]["operators"] for _, ns in one["bins"]) == 240_000_000
    assert numbers["steps"][0]["operators"][3] == [3, 0.012] and len(numbers["memory"][0]["resident"]) == 10
    assert find(numbers["fallbacks"], "aten::kthvalue")["calls"] == 6


def test_what_was_not_looked_at(tmp_path):
    numbers = report.make_numbers([write_run(tmp_path / "run-001")])
    unseen = {what: why for what, why, _ in numbers["unseen"]}
    assert unseen["NaN and Inf"] == "nan was not on"
    assert unseen["10 calls, by autocompare"] == "of tensors on the CPU alone"
    assert unseen["4 calls, by autocompare"].startswith("random numbers")
    assert unseen["rank 1"].startswith("no log")
    assert any("no log of rank 1" in note for note in numbers["verdict"]["notes"])


def test_a_log_of_wrong_comparisons_alone_claims_no_share(tmp_path):
    log = make_log()
    log.add("tool", 1, {"tool": "compare", "event": "start", "text": "max_findings=1, rows=wrong"})
    log.add("tool", 1, {"tool": "time", "event": "start", "text": "module_paths=1"})
    add_call(log, 1, NORM, wrong=True)
    numbers = report.make_numbers([write(tmp_path, log)])
    (answer,) = numbers["verdict"]["answers"]
    assert dict(answer["facts"])["how often"].startswith("1 time; the log does not count")
    assert "rows=wrong" in numbers["verdict"]["notes"][0] and numbers["operators"][0]["compared"] is None


MEASURED = {
    "time": {"with": 0.05, "without": 0.02, "steps_with": 8, "steps_without": 9, "source": "steps of the baseline"},
    "loss": {"count": 9, "baseline_count": 9, "equal": True, "first": None},
    "memory": {"host_peak": [3 << 20, 1 << 20], "device_peak": [1 << 20, 1 << 20]},
}
CHANGED = {"count": 9, "baseline_count": 9, "equal": False, "first": 2, "values": ["1.5", "1.25"]}


def test_what_the_tools_changed(tmp_path):
    folder = write_run(tmp_path / "run-001")
    numbers = report.make_numbers([folder])
    assert numbers["effects"][0]["ratio"] is None and numbers["effects"][0]["loss"] == ""
    assert "what the tools changed was not measured (--baseline does that)" in numbers["verdict"]["notes"]
    file = folder / "run-r0-p100.json"
    process = json.loads(file.read_text())
    file.write_text(json.dumps({**process, "observer": MEASURED}))
    numbers = report.make_numbers([folder])
    (row,) = numbers["effects"]
    assert (row["ratio"], row["with_ns"], row["steps"]) == (2.5, 5e7, "8 beside 9 steps of the baseline")
    assert row["loss"] == "9 losses equal to the bit" and (row["host_peak"], row["device_peak"]) == (2 << 20, 0)
    (note,) = [note for note in numbers["verdict"]["notes"] if note.startswith("under the tools: ")]
    assert "2.50x the time" in note and "9 losses equal to the bit" in note and "host memory +2.0 MiB" in note
    file.write_text(json.dumps({**process, "observer": {**MEASURED, "loss": CHANGED}}))
    numbers = report.make_numbers([folder])
    (note,) = [note for note in numbers["verdict"]["notes"] if note.startswith("the tools CHANGED")]
    assert "loss 3 is 1.5, the baseline's 1.25" in note and numbers["effects"][0]["is_changed"]


@pytest.mark.parametrize(
    "observer",
    [7, {"time": 3, "loss": [], "memory": "x"}, {"time": {"with": "x", "without": 1}, "loss": {"first": "x"}},
     {"time": {"with": 1, "without": 0}, "memory": {"host_peak": [1, "x"], "device_peak": [1]}},
     {"loss": {"count": 1, "first": 0, "values": [EVIL]}, "memory": {EVIL: [1, 2]}}],
)  # fmt: skip
def test_what_is_no_measurement_is_none(tmp_path, observer):
    process = describe_process(0, 100, observer=observer)
    numbers = report.make_numbers([write(tmp_path, make_log(), process)])
    row = numbers["effects"][0]
    assert row["ratio"] is None and not row["is_changed"] and "host_peak" not in row and "device_peak" not in row


def test_a_killed_process_leaves_its_log(tmp_path):
    """No file about the run: the findings of the log are told."""
    folder = write_run(tmp_path / "run-001")
    (folder / "run-r0-p100.json").unlink()
    verdict = report.make_numbers([folder])["verdict"]
    assert verdict["state"] == "wrong" and len(verdict["answers"]) == 1


def test_sound_and_nobody_looked(tmp_path):
    log = make_log()
    add_call(log, 1, LINEAR)
    numbers = report.make_numbers([write(tmp_path / "a", log, describe_process())])
    assert numbers["verdict"]["state"] == "sound" and "end of this page" in numbers["verdict"]["notes"][-2]
    log = make_log()
    log.add("call", 5, {"id": 1, "name": LINEAR, "step": 0})
    verdict = report.make_numbers([write(tmp_path / "b", log)])["verdict"]
    assert verdict["state"] == "nothing" and "Nobody looked" in verdict["sentence"]


def test_nothing_of_a_log_becomes_markup(tmp_path):
    folder = write_hostile(tmp_path / "run-001")
    text, problems = report.make([folder])
    assert text.count("<script") == 3 and text.count("</script>") == 3 and "<img" not in text and "<!--" not in text
    assert any("fields of other kinds" in problem for problem in problems)
    data, details = read_page(text)
    assert data["operators"][0]["name"] == EVIL and EVIL in details["texts"]
    assert page.encode("</script><!-- &") == '"\\u003c/script\\u003e\\u003c!-- \\u0026"'


def test_broken_files_are_told_and_the_rest_counts(tmp_path):
    folder = write_run(tmp_path / "run-001")
    (folder / "run-r3-p1.json").write_text("{")
    (folder / "run-r4-p1.json").write_text('{"format": "other"}')
    (folder / "log/ops-r5-p1.dlog").write_bytes(b"no log")
    (folder / "log/ops-r6-p1.dlog").write_bytes(b"")
    whole = (folder / "log/ops-r0-p100.dlog").read_bytes()
    (folder / "log/ops-r0-p100.dlog").write_bytes(whole[:-20])
    problems = "\n".join(report.make([folder])[1])
    for part in ("run-r3-p1.json", "not of `ditorch run`", "ops-r5-p1.dlog", "torn end"):
        assert part in problems


def test_memory_is_bounded_by_names_modules_and_calls(tmp_path, monkeypatch):
    monkeypatch.setattr(collected, "MOST_OPERATORS", 10)
    monkeypatch.setattr(collected, "MOST_PLACES", 10)
    monkeypatch.setattr(collected, "MOST_SIGNATURES", 5)
    monkeypatch.setattr(collected, "MOST_SPANS", 3)
    log = make_log()
    for number in range(1, 60):
        add_call(log, number, f"op{number}", number // 20, f"m{number}")
    data, details = read_page(report.make([write(tmp_path, log)])[0])
    assert find(data["operators"], collected.REST)["calls"] == 59 - 10
    assert sum(row["total_ns"] for row in data["operators"]) == 59_000_000 == data["flame"]["t"]
    assert all(len(step["ns"]) <= 3 for step in details["spans"]) and len(details["signatures"]) == 5
    assert any("timeline" in what for what, _, _ in data["unseen"])


def test_series_keeps_sums_and_maxima_in_few_places():
    sums, tops = series.Series(is_sum=True, bins=8), series.Series(bins=8)
    for x in range(1000):
        sums.add(x, 1.0)
        tops.add(x, float(x))
    sums.add(-1, 5.0)
    assert sum(sums.values.values()) == 1000 and len(sums.values) <= 8
    assert tops.as_points()[-1][1] == 999 and tops.width == 128
    sums.add(2**63, 1.0)
    assert len(sums.values) == 2


def test_the_three_steps_that_are_kept():
    spans = collected.StepSpans()
    for step, ns in ((0, 5), (1, 3), (2, 9), (3, 4)):
        spans.add(step, (0, ns, "a", "", False, 1, step), ns)
    spans.finish()
    assert [(which, rows[0][6]) for which, rows in spans.get_steps()] == [("first", 0), ("slowest", 2), ("last", 3)]


def test_the_command(tmp_path, capsys, monkeypatch):
    folder = write_run(tmp_path / "run-001")
    assert command.main([str(folder)], Head()) == 0
    assert capsys.readouterr().out.startswith(f"{folder}/report.html: 0.")
    assert (folder / "report.html").read_text().startswith("<!doctype html>")
    assert command.main([str(folder), "--json"], Head()) == 0
    assert json.loads(capsys.readouterr().out)["verdict"]["state"] == "wrong"
    assert command.main([str(tmp_path / "nowhere")], Head()) == 2
    assert "does not exist" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert command.main([str(tmp_path / "empty")], Head()) == 1
    assert "no .dlog files and no results" in capsys.readouterr().err
    assert command.main([str(folder), "-o", str(tmp_path / "no/where.html")], Head()) == 1
    assert "Traceback" not in capsys.readouterr().err
    with pytest.raises(SystemExit):
        command.main([str(folder), "--outptu", "x"], Head())


def test_two_runs_side_by_side(tmp_path):
    first, second = write_run(tmp_path / "a/run-001"), write_run(tmp_path / "b/run-001")
    numbers = report.make_numbers([first, second])
    assert len({lane["label"] for lane in numbers["lanes"]}) == 2 and len(numbers["runs"]) == 2
    again = report.make_numbers([tmp_path, first])
    assert [lane["calls"] for lane in again["lanes"]] == [60, 60], "a log counts once"


def test_empty_log(tmp_path):
    Log().write(tmp_path / "ops-r0-p1.dlog")
    assert report.make_numbers([tmp_path])["verdict"]["sentence"] == "No operator call was recorded"


TRAIN = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU()).to("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    model(torch.randn(4, 8).cuda()).sum().backward()
    optimizer.step()
"""


@pytest.mark.parametrize("launcher", [(), ("--", sys.executable)])
def test_run_writes_the_report_at_its_end(tmp_path, launcher):
    (tmp_path / "train.py").write_text(TRAIN)
    words = ["run", "--tool", "autocompare,time", "--report", *launcher, "train.py"]
    words = ["-m", "ditorch", "--set", "fault=value:gelu,scale=0.1", *words]
    answer = run_python(*words, check=False, cwd=tmp_path, trains=True, DITORCH_BANNER=0, COLUMNS=80)
    assert answer.returncode == 0 and "report written" in answer.stderr, answer.stderr
    data, details = read_page((tmp_path / "ditorch_runs/run-001/report.html").read_text())
    assert data["verdict"]["sentence"] == "torch.nn.functional.gelu gives wrong results"
    assert len(data["memory"][0]["allocated"]) == 3 and {step["label"][-3:] for step in details["spans"]} >= {"(0)"}
    modules = {details["texts"][number] for step in details["spans"] for number in step["module"]}
    assert "Sequential.1" in modules, "times know their modules, forward and backward"
    assert "ditorch report" in answer.stderr
