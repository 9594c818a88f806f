"""Which finding was first: one rule, in the summary of a run, the report and the merge."""

import json

from ditorch import report
from ditorch.command.run import find_first, read_runs
from ditorch.findings import order
from op_tools.merge import merge
from record_log import Unsigned
from report_runs import describe_process, make_log, write

WRONG = {"tool": "compare", "kind": "forward", "verdict": "wrong"}


def test_within_a_rank_the_call_across_ranks_the_time():
    rows = [
        {"rank": 0, "step": 1, "id": 1, "time": 1},
        {"rank": 0, "step": 0, "id": 9, "time": 10},
        {"rank": 0, "step": 0, "id": 8, "time": 30},  # its backward thread was late
        {"rank": 1, "step": 0, "id": 50, "time": 20},
        {"rank": 2, "step": 0, "id": 1, "time": 40},
    ]
    assert [(row["rank"], row["id"]) for row in order(rows)] == [(1, 50), (0, 8), (0, 9), (2, 1), (0, 1)]
    assert order([]) == [] and len(order([{"rank": "x", "step": None}, {"time": float("nan"), "id": "y"}])) == 2


def write_ranks(folder):
    """Rank 0 has the lower number, rank 1 was earlier."""
    for rank, number, time in ((0, 5, 900), (1, 70, 100)):
        log = make_log(rank, 100 + rank)
        fields = {"id": Unsigned(number), "name": f"op{rank}", "step": 2, "location": "train.py:7 main: y"}
        log.add("finding", time, {**WRONG, **fields})
        row = {"tool": "autocompare", "name": f"op{rank}", "kind": "forward", "step": 2, "id": number, "time": time}
        write(folder, log, describe_process(rank, 100 + rank, findings=[row]))
    return folder


def test_summary_report_and_merge_agree(tmp_path):
    folder = write_ranks(tmp_path / "run")
    finding, run = find_first(read_runs(str(folder)))
    assert (finding["name"], run["rank"]) == ("op1", 1)
    assert [row["name"] for row in report.make_numbers([folder])["findings"]] == ["op1", "op0"]
    assert [row["name"] for row in merge([folder]).as_dict()["findings"]] == ["op1", "op0"]
    for path in folder.glob("run-*.json"):  # killed: the logs alone
        path.unlink()
    assert [row["name"] for row in report.make_numbers([folder])["findings"]] == ["op1", "op0"]


def test_a_merge_of_one_kind_names_the_rank_that_was_first(tmp_path):
    for rank, calls in ((0, [(9, 200), (4, 300)]), (1, [(8, 250)])):
        log = make_log(rank, 100 + rank)
        for number, time in calls:
            place = f"train.py:{number} main: y"
            log.add("finding", time, {**WRONG, "id": Unsigned(number), "name": "op", "step": 2, "location": place})
        write(tmp_path / f"r{rank}", log)
    (row,) = json.loads(json.dumps(merge([tmp_path]).as_dict()["findings"]))
    assert (row["rank"], row["id"], row["time"] % 1000, row["location"]) == (1, 8, 250, "train.py:8 main: y")
    assert row["per_rank"] == {"0": 2, "1": 1} and row["count"] == 3
