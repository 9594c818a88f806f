"""The benches that judge OpAutoCompare: they count what is accused, and their faults do what they say."""

import json
import os
import subprocess
import sys

import ditorch  # noqa: F401
import pytest
import torch

pytestmark = pytest.mark.usefixtures("warm_children")

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path += [os.path.join(ROOT, "bench", "faultlab"), os.path.join(ROOT, "bench")]  # both have a run.py

import injector  # noqa: E402
import plan  # noqa: E402
import run as faultlab  # noqa: E402
from false_alarms.tally import bound  # noqa: E402
from injector import Injector  # noqa: E402


def run_alarms(tmp_path, *words, **environment):
    environment = {**os.environ, "PYTHONPATH": os.path.join(ROOT, "python"), **environment}
    command = [sys.executable, os.path.join(ROOT, "bench", "false_alarms.py"), "--only", "training", "--json", *words]
    answer = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    return answer.returncode, json.loads(answer.stdout)


def test_training_counts_accusations(tmp_path):
    words = ("--filter", "l1/none/", "--seeds", "1")
    status, right = run_alarms(tmp_path, *words)
    assert status == 0 and right["accusations"] == 0 and right["comparisons"] > 0
    assert {row["scenario"] for row in right["scenarios"]} >= {"l1/none/none/torch", "l1/none/reentrant/torch"}
    status, wrong = run_alarms(tmp_path, *words, DITORCH_FAULT="value:aten::addmm")
    assert status == 1 and wrong["accusations"] > 0
    rows = {row["scenario"]: row for row in wrong["scenarios"]}
    assert any("linear forward float32 ratio" in text for text in rows["l1/none/none/torch"]["accused"])


def test_training_stops_in_time_and_takes_shards(tmp_path):
    _, answer = run_alarms(tmp_path, "--filter", "huber/none/", "--seeds", "1", "--time", "1e-9")
    assert len(answer["scenarios"]) == 0 or "not started" in answer["notes"][0]
    names = []
    for shard in ("0", "1"):
        _, answer = run_alarms(tmp_path, "--filter", "huber/none/", "--seeds", "1", "--shards", "2", "--shard", shard)
        names.append({row["scenario"] for row in answer["scenarios"]})
    assert not names[0] & names[1] and len(names[0] | names[1]) == 4


def test_bound_is_exact_for_rare_and_for_many():
    assert bound(0, 100) == pytest.approx(1 - 0.05**0.01)
    assert bound(1395, 366882) == pytest.approx(0.003974, rel=1e-3)
    assert bound(5, 5) == 1.0


def damage(kind, operator, function, call=1):
    with Injector(f"{kind}:{operator},call={call}") as fault:
        result = function()
    return result, fault.count


def test_rows_are_replaced_and_swapped():
    x = torch.randn(4, 5, device="cuda")
    right = torch.exp(x)
    row, count = damage("row", "aten::exp", lambda: torch.exp(x))
    assert count == 1 and torch.equal(row[:-1], right[:-1]) and torch.equal(row[-1], right[0])
    swap, count = damage("swap", "aten::exp", lambda: torch.exp(x))
    assert count == 1 and torch.equal(swap[0], right[-1]) and torch.equal(swap[-1], right[0])
    assert torch.equal(swap[1:-1], right[1:-1])


def test_only_the_first_elements_are_written():
    x = torch.randn(70000, device="cuda")
    limited, count = damage("limit", "aten::exp", lambda: torch.exp(x))
    same = limited == torch.exp(x)
    assert count == 1 and bool(same[:65535].all()) and not bool(same[65535:].any())


def test_another_dimension_is_taken():
    x = torch.randn(3, 4, 5, device="cuda")
    wrong, count = damage("dim", "aten::_softmax", lambda: torch.softmax(x, -2))
    assert count == 1 and torch.equal(wrong, torch.softmax(x, -1))
    whole, count = damage("dim", "aten::_softmax", lambda: torch.softmax(x, 0))
    assert count == 0 and torch.equal(whole, torch.softmax(x, 0))


def test_nan_becomes_zero():
    x = torch.full((2, 3), float("-inf"), device="cuda")
    x[1] = 1.0
    wrong, count = damage("inf", "aten::_softmax", lambda: torch.softmax(x, -1))
    assert count == 1 and wrong[0].tolist() == [0, 0, 0] and bool(wrong[1].isfinite().all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_one_unit_in_the_last_place(dtype):
    x = torch.randn(8, 8).to("cuda", dtype)
    wrong, count = damage("ulp", "aten::cat", lambda: torch.cat([x]))
    other = (wrong != x).nonzero().tolist()
    assert count == 1 and other == [[0, 0]]
    step = (wrong[0, 0].float() / x[0, 0].float() - 1).item()
    assert 0 < step <= torch.finfo(dtype).eps


def test_kinds_are_offered_where_they_act():
    with injector.Counter() as counter:
        x = torch.randn(4, 70, device="cuda")
        torch.softmax(x, -2), torch.cat([x]), torch.exp(x[0, 0])
    assert "aten::_softmax" in counter.open["dim"] and "aten::cat" in counter.open["ulp"]
    assert "aten::exp" not in counter.open["row"] and not counter.open["limit"] and not counter.open["inf"]


def test_every_kind_is_named_by_the_tool():
    """One fault of each kind in the model that has all of them."""
    queues = plan.list_operators("wide", "float32")
    for kind in injector.CHIP_KINDS:
        assert queues[kind], kind
    operator = "aten::_softmax"
    scenario = {
        "model": "wide",
        "dtype": "float32",
        "level": "torch",
        "kind": "inf",
        "seed": 3,
        "text": f"inf:{operator},call={queues['inf'][operator][0]}",
    }
    answer = faultlab.run_scenario(scenario)
    assert answer["counts"] and answer["first"], answer
