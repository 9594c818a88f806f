"""Process groups over a vendor's own collectives: vendor cuda with an emulated NCCL, whose ranks are threads of one
process with a device each."""

import json
import pathlib

import pytest
from conftest import run_python

ROOT = pathlib.Path(__file__).resolve().parents[2]
EMULATOR = ROOT / "build/dev/tests/cuda_emulator"
needs_emulator = pytest.mark.skipif(
    not (EMULATOR / "libnccl_emulated.so").exists(), reason="the emulated CUDA driver is not built (make build)"
)

PROGRAM = """
import datetime, json, threading, torch, ditorch
import torch.distributed as dist
from ditorch.distributed import _make_backend

binding, store, rows = torch._C._distributed_c10d, dist.HashStore(), {}

def arange(rank, size, dtype):
    return torch.arange(size, device="cuda", dtype=dtype) + 10 * rank

def run(rank):
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = datetime.timedelta(seconds=600)
    group = _make_backend(binding, store, rank, 2, options)
    torch.cuda.set_device(rank)
    row = rows[rank] = {}
    for op in ("SUM", "AVG", "MIN", "MAX"):
        x = arange(rank, 4, torch.float32)
        o = binding.AllreduceOptions()
        o.reduceOp = getattr(dist.ReduceOp, op)
        group.allreduce([x], o).wait()
        row[op] = x.tolist()
    x = (torch.arange(4) % 2 == rank).to("cuda")
    group.allreduce([x], binding.AllreduceOptions()).wait()
    row["bool"] = x.tolist()
    x, o = arange(rank, 3, torch.int16), binding.BroadcastOptions()
    o.rootRank = 1
    group.broadcast([x], o).wait()
    row["broadcast"] = x.tolist()
    x, o = arange(rank, 3, torch.float64), binding.ReduceOptions()
    o.rootRank = 1
    group.reduce([x], o).wait()
    row["reduce"] = x.tolist()
    out = torch.zeros(6, device="cuda", dtype=torch.int64)
    group._allgather_base(out, arange(rank, 3, torch.int64), binding.AllgatherOptions()).wait()
    row["gather"] = out.tolist()
    out = torch.zeros(2, device="cuda")
    group._reduce_scatter_base(out, arange(rank, 4, torch.float32), binding.ReduceScatterOptions()).wait()
    row["scatter"] = out.tolist()
    sent, received = ([1, 2], [1, 3]) if rank == 0 else ([3, 1], [2, 1])
    out = torch.zeros(sum(received), device="cuda")
    group.alltoall_base(out, arange(rank, sum(sent), torch.float32), received, sent, binding.AllToAllOptions()).wait()
    row["alltoall"] = out.tolist()

threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(json.dumps([rows[0], rows[1]]))
"""


def launch(**environment):
    environment = {"LD_LIBRARY_PATH": EMULATOR, "DITORCH_BACKEND": "nvidia", "DITORCH_BANNER": "0", **environment}
    answer = run_python(PROGRAM, EMULATED_NCCL_LOG="1", DITORCH_LOG_LEVEL="info", **environment)
    return json.loads(answer.stdout.splitlines()[-1]), answer.stderr


def check_results(rows):
    total = [10.0, 12.0, 14.0, 16.0]
    for row in rows:
        assert row["SUM"] == total and row["AVG"] == [n / 2 for n in total]
        assert row["MIN"] == [0, 1, 2, 3] and row["MAX"] == [10, 11, 12, 13]
        assert row["bool"] == [True] * 4 and row["broadcast"] == [10, 11, 12]
        assert row["gather"] == [0, 1, 2, 10, 11, 12]
    assert rows[0]["reduce"] == [0, 1, 2] and rows[1]["reduce"] == [10, 12, 14]
    assert rows[0]["scatter"] == total[:2] and rows[1]["scatter"] == total[2:]
    assert rows[0]["alltoall"] == [0, 10, 11, 12] and rows[1]["alltoall"] == [1, 2, 13]


def count_calls(text):
    return sum(line.startswith("emulated NCCL: ") for line in text.splitlines())


@needs_emulator
def test_the_vendors_library_carries_them():
    rows, text = launch(DITORCH_CUDA_NCCL=EMULATOR / "libnccl_emulated.so")
    check_results(rows)
    # four reductions, broadcast, reduce, gather, scatter, all-to-all, by two ranks; booleans are gloo's
    assert count_calls(text) == 18, text


@needs_emulator
@pytest.mark.parametrize("choice", [{"DITORCH_CUDA_NCCL": "none"}, {"DITORCH_COLLECTIVES": "gloo"}])
def test_without_it_they_go_through_the_host(choice):
    rows, text = launch(**{"DITORCH_CUDA_NCCL": EMULATOR / "libnccl_emulated.so", **choice})
    check_results(rows)
    assert count_calls(text) == 0, text
    assert ("collectives go through the host" in text) == ("DITORCH_CUDA_NCCL" in choice), text
