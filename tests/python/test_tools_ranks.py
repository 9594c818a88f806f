"""The tools under torchrun: every rank its own files, no collision, one merged summary."""

import csv
import glob
import json
import os

import pytest

PROGRAM = """
import torch, ditorch, op_tools
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
tools = [op_tools.OpObserve(), op_tools.OpTimeMeasure(), op_tools.OpOverflowCheck(save=True), op_tools.OpAutoCompare(),
         op_tools.OpCapture()]
if rank == 1:
    ditorch.fault("value:mm,scale=0.01")
for tool in tools:
    tool.start()
x = torch.ones(4, 4, device="cuda", requires_grad=True)
for step in range(2):
    (x @ x).relu().sum().backward()
    gathered = torch.ones(4)
    dist.all_reduce(gathered)
    op_tools.step()
if rank == 0:
    torch.log(torch.zeros(3, device="cuda") - 1)
for tool in reversed(tools):
    tool.stop()
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    from conftest import run_python

    folder = tmp_path_factory.mktemp("ranks")
    (folder / "job.py").write_text(PROGRAM)
    words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    run_python(*words, str(folder / "job.py"), cwd=folder, DITORCH_BANNER="0")
    return folder / "op_tools_results"


def test_every_rank_has_files_of_its_own(results):
    names = sorted(os.listdir(results))
    assert names == ["log", "rank0", "rank1"]
    logs = sorted(os.listdir(results / "log"))
    assert [sum(f"ops-r{rank}-" in name for name in logs) for rank in (0, 1)] == [1, 1] and len(logs) == 2
    for rank in (0, 1):
        tables = glob.glob(str(results / f"rank{rank}" / "op_time_measure_result" / "op_elasped_info_pid*.csv"))
        assert len(tables) == 1
        with open(tables[0], newline="", encoding="utf-8") as file:
            names = [row["name"] for row in csv.DictReader(file)]
        assert names.count("torch.Tensor.relu") == 2 and ("torch.log" in names) == (rank == 0)
        comparisons = glob.glob(str(results / f"rank{rank}" / "op_autocompare_result" / "*.csv"))
        assert len(comparisons) == 1
        assert os.path.isdir(results / f"rank{rank}" / "op_capture_results" / "torch.Tensor.matmul")
    assert os.path.isdir(results / "rank0" / "op_overflow_check_results" / "torch.log")
    assert not os.path.exists(results / "rank1" / "op_overflow_check_results")


def test_machines_that_share_a_folder_may_have_equal_process_ids(tmp_path):
    from op_tools.results import Log

    for name in (
        "ops-r1-p7.dlog",
        "ops-r1-p7.1.dlog",
        "ops-r2-p7.dlog",
        "ops-r1-p70.dlog",
        "ops-r11-p7.dlog",
        "old.dlog",
    ):
        (tmp_path / name).write_bytes(b"")
    log = Log(pid=7, rank=1, folder=str(tmp_path), others=frozenset({"ops-r1-p7.dlog"}))
    assert [os.path.basename(path) for path in log.get_files()] == ["ops-r1-p7.1.dlog"]


def test_one_summary_of_both(results, python):
    data = json.loads(python("-m", "ditorch", "merge", str(results), "--json").stdout)
    assert data["world_size"] == 2 and data["missing_ranks"] == [] and data["problems"] == []
    assert [len(rank["files"]) for rank in data["ranks"]] == [1, 1]
    operators = {row["name"]: row for row in data["operators"]}
    assert operators["torch.Tensor.matmul"]["calls"] == 4 and operators["torch.distributed.all_reduce"]["calls"] == 4
    assert operators["torch.Tensor.matmul"]["forward_ms"] > 0 and operators["torch.Tensor.matmul"]["backward_ms"] > 0
    findings = {(finding["name"], finding["tool"]): finding for finding in data["findings"]}
    wrong = findings["torch.Tensor.matmul", "compare"]
    assert wrong["rank"] == 1 and list(wrong["per_rank"]) == ["1"] and "job.py" in wrong["location"]
    nan = findings["torch.log", "overflow"]
    assert nan["rank"] == 0 and list(nan["per_rank"]) == ["0"] and nan["verdict"] == "producer"
    assert any(line.startswith("torch.log was called 1 on rank 0, 0 on rank 1") for line in data["disagreements"])
