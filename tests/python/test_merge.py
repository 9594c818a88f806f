"""`ditorch merge`: one summary over ranks, from logs written byte by byte; broken logs are told and passed over."""

import csv
import io
import json

import pytest
from op_tools import merge
from op_tools.merge_summary import show_ranks
from record_log import Log

MS = 1_000_000


def fill(log, calls, milliseconds=2, steps=(0,), name="torch.mm"):
    """`calls` calls of one operator in each step, forward and backward."""
    for step in steps:
        for number in range(calls):
            base = {"id": number + 1, "name": name, "step": step}
            log.add("call", 10, base | {"tool": "observe"})
            times = {"begin_ns": 0, "duration_ns": 9 * MS, "signature": ""}
            log.add("time", 20, base | times | {"kind": "forward", "device_ns": milliseconds * MS})
            log.add("time", 30, base | times | {"kind": "backward", "duration_ns": MS})
    return log


def find(log, step, time, name="torch.mm", verdict="wrong", **more):
    log.add(
        "finding",
        time,
        {"id": 1, "name": name, "tool": "compare", "step": step, "kind": "forward", "verdict": verdict} | more,
    )
    return log


@pytest.fixture
def run(tmp_path, capsys):
    def run(*words, logs=()):
        for log, path in logs:
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            log.write(tmp_path / path)
        status = merge.main([str(tmp_path), *words])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


def two_ranks():
    zero = fill(Log(rank=0, pid=7, host="a"), 2, steps=(0, 1))
    one = fill(Log(rank=1, pid=7, host="b"), 2, milliseconds=6, steps=(0, 1))
    fill(one, 1, name="torch.relu")
    return [(zero, "log/ops-r0-p7.dlog"), (one, "log/ops-r1-p7.dlog")]


def test_operators_counts_and_times(run):
    status, out, err = run("--json", logs=two_ranks())
    data = json.loads(out)
    assert status == 0 and err == "" and data["world_size"] == 2 and data["missing_ranks"] == []
    product, relu = data["operators"]
    assert product["name"] == "torch.mm" and product["calls"] == 8 and product["ranks"] == [0, 1]
    assert product["forward_ms"] == 4 * 2 + 4 * 6 and product["backward_ms"] == 8
    assert product["slowest_rank"] == 1 and product["imbalance"] == pytest.approx(28 / 12)
    assert product["per_rank"]["0"]["calls"] == 4 and product["per_rank"]["1"]["forward_ns"] == 24 * MS
    assert relu["ranks"] == [1] and relu["per_rank"]["0"]["calls"] == 0
    assert [(rank["number"], rank["processes"], rank["calls"]) for rank in data["ranks"]] == [
        (0, ["7@a"], 4),
        (1, ["7@b"], 5),
    ]


def test_ranks_that_disagree_are_named(run):
    status, out, _ = run(logs=two_ranks())
    assert status == 0
    assert "ranks disagree" in out and "torch.relu was called 0 on rank 0, 1 on rank 1" in out
    assert "torch.mm was called" not in out and "the last step" not in out


def test_agreement_is_silent(run):
    logs = [(fill(Log(rank=rank, pid=rank + 1), 3), f"log/ops-r{rank}-p{rank + 1}.dlog") for rank in (0, 1)]
    assert "disagree" not in run(logs=logs)[1]


def test_a_rank_that_ended_early(run):
    logs = [
        (fill(Log(rank=0, pid=1), 1, steps=range(5)), "log/ops-r0-p1.dlog"),
        (fill(Log(rank=1, pid=2), 1, steps=range(2)), "log/ops-r1-p2.dlog"),
    ]
    out = run(logs=logs)[1]
    assert "the last step is 4 on rank 0, 1 on rank 1" in out and "torch.mm was called 5 on rank 0, 2 on rank 1" in out


def test_which_rank_was_first(run):
    zero = find(fill(Log(rank=0, pid=1), 1), step=4, time=5)
    one = find(fill(Log(rank=1, pid=2), 1), step=2, time=90, error_size=0.5, allowed=0.25, reason="too far")
    find(one, step=3, time=95)
    find(one, step=0, time=99, name="torch.log", verdict="producer", nan=3)
    logs = [(zero, "log/a.dlog"), (one, "log/b.dlog")]
    data = json.loads(run("--json", logs=logs)[1])
    first, second = data["findings"]
    assert first["name"] == "torch.log" and first["rank"] == 1 and "NaN 3" in first["text"]
    # the lower step counts, not the clock of the machine
    assert second["rank"] == 1 and second["step"] == 2 and second["count"] == 3
    assert second["per_rank"] == {"0": 1, "1": 2} and "error 0.5, allowed 0.25; too far" in second["text"]
    text = run()[1]
    assert "torch.mm forward: wrong (compare), first on rank 1 in step 2; 3 on rank 0-1" in text


def test_a_missing_rank_is_named(run):
    status, out, _ = run(logs=two_ranks()[:1])
    assert status == 0 and "1 rank of 2" in out and "no log of rank 1:" in out


def test_restarts_are_added_up(run):
    logs = [(fill(Log(rank=0, pid=pid), 2), f"log/ops-r0-p{pid}.dlog") for pid in (1, 2)]
    logs.append((fill(Log(rank=0, pid=2), 2), "log/ops-r0-p2.1.dlog"))  # the same process id again
    data = json.loads(run("--json", logs=logs)[1])
    assert data["ranks"][0]["calls"] == 6 and data["ranks"][0]["processes"] == ["1", "2"]
    assert len(data["ranks"][0]["files"]) == 3


def test_broken_logs_are_told_and_passed_over(run, tmp_path):
    logs = two_ranks()
    status, whole, _ = run("--json", logs=logs)
    assert status == 0
    (tmp_path / "log" / "not.dlog").write_bytes(b"nothing of the kind")
    (tmp_path / "log" / "empty.dlog").write_bytes(b"")
    path = tmp_path / "log" / "ops-r1-p7.dlog"
    path.write_bytes(path.read_bytes()[:-11])  # the process was killed while it wrote
    status, out, err = run("--json")
    data = json.loads(out)
    assert status == 0 and "not.dlog" in err and "empty.dlog" in err and "skipped" in err
    assert "ops-r1-p7.dlog" in err and "torn end" in err and len(data["problems"]) == 3
    before = json.loads(whole)
    assert data["ranks"][1]["records"] == before["ranks"][1]["records"] - 1
    assert data["ranks"][0]["records"] == before["ranks"][0]["records"]


def test_csv_has_a_row_per_operator_and_rank(run, tmp_path):
    assert run("--csv", "-o", str(tmp_path / "out.csv"), logs=two_ranks()) == (0, "", "")
    with open(tmp_path / "out.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["operator"], row["rank"], row["calls"]) for row in rows] == [
        ("torch.mm", "0", "4"),
        ("torch.mm", "1", "4"),
        ("torch.relu", "0", "0"),
        ("torch.relu", "1", "1"),
    ]
    assert float(rows[1]["forward_ms"]) == 24 and float(rows[1]["backward_ms"]) == 4
    assert [name.name for name in tmp_path.iterdir() if "part" in name.name] == []


def test_order_and_length(run):
    zero = Log(rank=0, pid=1)
    for number in range(30):
        fill(zero, 1, milliseconds=number + 1, name=f"torch.op{number:02}")
    fill(zero, 5, milliseconds=0, name="torch.many")
    out = run("--top", "3", logs=[(zero, "log/a.dlog")])[1]
    assert "torch.op29" in out and "torch.op26" not in out and "... and 28 more operators" in out
    assert run("--top", "0")[1].count("torch.op") == 30
    operators = json.loads(run("--json", "--sort", "calls")[1])["operators"]
    assert operators[0]["name"] == "torch.many"
    names = [row[0] for row in csv.reader(io.StringIO(run("--csv")[1]))][1:]
    assert names == sorted(names)


def test_wrong_use(run, capsys, tmp_path):
    status, _, err = run()
    assert status == 1 and "no readable .dlog" in err
    assert merge.main([str(tmp_path / "nowhere")]) == 2 and "does not exist" in capsys.readouterr().err
    assert merge.main([]) == 2 and merge.main([str(tmp_path), "--json", "--csv"]) == 2
    capsys.readouterr()
    status, _, err = run("-o", str(tmp_path / "no" / "such" / "folder"), logs=two_ranks())
    assert status == 1 and "cannot be written" in err
    assert merge.main(["--help"]) == 0


@pytest.mark.parametrize(
    "numbers, text", [([], ""), ([3], "3"), ([0, 1, 2, 5, 7, 8], "0-2,5,7-8"), ({4: 1, 3: 1}, "3-4")]
)
def test_ranks_in_short(numbers, text):
    assert show_ranks(numbers) == text
