"""Collectives on a side stream: wait() orders the stream, not the host; graphs that were captured with them."""

import socket
import subprocess
import textwrap

import ditorch  # noqa: F401
import pytest
import torch.distributed as dist
from conftest import child_environment, open_memory, warm_interpreter

pytestmark = pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="torch has no gloo")

PRELUDE = """
import datetime, sys
import torch, ditorch
import torch.distributed as dist
rank, port = int(sys.argv[1]), int(sys.argv[2])
torch.cuda.set_device(rank)
store = dist.TCPStore("127.0.0.1", port, 2, rank == 0)
dist.init_process_group("nccl", store=store, rank=rank, world_size=2, timeout=datetime.timedelta(seconds=300))
stream = torch.cuda.Stream()
"""


def run_both(code):
    """Two ranks; their outputs."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = str(found.getsockname()[1])
    code = PRELUDE + textwrap.dedent(code)
    environment = child_environment(DITORCH_HOST_DEVICES="2")
    command, options = [warm_interpreter(), "-c", code], {"stdout": -1, "stderr": -1, "text": True, "env": environment}
    ranks = [subprocess.Popen([*command, str(rank), port], **options) for rank in range(2)]
    outputs = [process.communicate(timeout=600) for process in ranks]
    assert [process.returncode for process in ranks] == [0, 0], outputs
    return [output.strip().splitlines()[-1] for output, _ in outputs]


@open_memory  # elsewhere the caller waits, as the collective copies over the device's own queues
def test_a_wait_on_a_side_stream_lets_the_host_go_on():
    # Rank 1 makes its call only after rank 0 is past its wait: over a side channel, as a server's ranks do.
    code = """
    x = torch.full((4,), float(rank + 1), device="cuda")
    with torch.cuda.stream(stream):
        x.add_(0)
        if rank == 1:
            store.wait(["past"], datetime.timedelta(seconds=300))
        dist.all_reduce(x, async_op=True).wait()
        if rank == 0:
            store.set("past", "1")
        y = x * 2
        print(y.tolist(), flush=True)
    dist.barrier()
    """
    assert run_both(code) == ["[6.0, 6.0, 6.0, 6.0]"] * 2


@open_memory
def test_a_failure_behind_a_stream_is_told():
    code = """
    x = torch.ones(3 if rank else 4, device="cuda")
    with torch.cuda.stream(stream):
        dist.all_reduce(x, async_op=True).wait()
    try:
        torch.cuda.synchronize()
        torch.cuda.synchronize()
        print("not told", flush=True)
    except dist.DistBackendError as error:
        print("told" if "all_reduce #1" in str(error) else error, flush=True)
    import os
    os._exit(0)
    """
    told = run_both(code)
    assert "told" in told, told


def test_a_graph_replays_its_collectives_in_order():
    code = """
    x, y = torch.zeros(1000, device="cuda"), torch.zeros(1000, device="cuda")
    with torch.cuda.stream(stream):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            z = x + 1
            dist.all_reduce(z)
            y.copy_(z * 2)
        good = True
        for step in range(30):
            x.fill_(float(step + rank))
            graph.replay()
            good &= y.tolist() == [2.0 * (2 * step + 3)] * 1000
    print(good, flush=True)
    dist.barrier()
    """
    assert run_both(code) == ["True", "True"]
