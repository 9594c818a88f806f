"""torch.distributed on a vendor's collectives: nccl is their name, and AVG is made of SUM where they have none.

The fakes' collectives are gloo under the vendor's name. They refuse AVG, so a reduction that is not emulated raises.
"""

import os
import socket
import subprocess
import sys
import textwrap

import pytest
from conftest import HERE, child_environment

FAKES = os.path.join(HERE, "fakes")

HEAD = """
import os, torch
import torch.distributed as dist
from torch.distributed import all_reduce as early_all_reduce, get_backend as early_get_backend
import ditorch
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
AVG, MAX, SUM = dist.ReduceOp.AVG, dist.ReduceOp.MAX, dist.ReduceOp.SUM

def make(r, shape=(5,), dtype=torch.float32):
    generator = torch.Generator().manual_seed(100 + r)
    value = torch.randn(shape, generator=generator, dtype=torch.float32) * 9
    return value.to(dtype)

def mean(ranks, *args, **kwargs):
    total = sum(make(r, *args, **kwargs).to(torch.float64) for r in ranks)
    return (total / len(ranks)).to(kwargs.get("dtype", torch.float32))

def same(mine, wanted, dtype=torch.float32):
    torch.testing.assert_close(mine, wanted, rtol=1.6e-2 if dtype == torch.bfloat16 else 1e-3 if dtype == torch.float16
                               else 1.3e-6, atol=1e-2 if dtype in (torch.float16, torch.bfloat16) else 1e-5)
"""


def start(program, size, **environment):
    """Run `program` in `size` processes; every one must end well."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    path = os.pathsep.join([child_environment()["PYTHONPATH"], FAKES])
    processes = []
    for rank in range(size):
        variables = child_environment(
            PYTHONPATH=path, RANK=rank, WORLD_SIZE=size, MASTER_ADDR="127.0.0.1", MASTER_PORT=port, **environment
        )
        command = [sys.executable, "-W", "ignore", "-c", HEAD + textwrap.dedent(program)]
        processes.append(
            subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
    answers = []
    try:
        answers = [process.communicate(timeout=600) for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, (out, error) in zip(processes, answers, strict=True):
        assert process.returncode == 0, out[-2000:] + error[-4000:]
    return [out for out, _ in answers]


AVERAGES = """
dist.init_process_group("nccl")
assert dist.get_backend() == "nccl" == early_get_backend() == dist.Backend.NCCL and dist.is_nccl_available()
everybody = range(size)

# all_reduce: dtypes, views, keywords, names imported before ditorch, other operators
for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
    t = make(rank, dtype=dtype)
    assert dist.all_reduce(t, op=AVG) is None
    same(t, mean(everybody, dtype=dtype), dtype)
t = make(rank)
early_all_reduce(t, AVG)
same(t, mean(everybody))
t = make(rank)
dist.all_reduce(op=MAX, tensor=t)
assert torch.equal(t, torch.stack([make(r) for r in everybody]).amax(0))
whole = make(rank, (4, 6))
dist.all_reduce(whole[1], op=AVG)
same(whole[1], mean(everybody, (4, 6))[1])
assert torch.equal(whole[2], make(rank, (4, 6))[2])
t = torch.empty(0)
dist.all_reduce(t, op=AVG)

# integers are divided towards zero, bool is refused
t = torch.tensor([7, -7, 3]) * (rank + 1)
dist.all_reduce(t, op=AVG)
total = size * (size + 1) // 2
assert t.tolist() == [int(7 * total / size), int(-7 * total / size), int(3 * total / size)] and t.dtype is torch.int64
try:
    dist.all_reduce(torch.ones(1, dtype=torch.bool), op=AVG)
except TypeError as error:
    assert "bool" in str(error)
else:
    raise AssertionError("AVG of bool was not refused")

# a parameter keeps being a leaf; an inference tensor stays one
p = torch.nn.Parameter(make(rank))
dist.all_reduce(p, op=AVG)
same(p.detach(), mean(everybody))
assert p.is_leaf and p.requires_grad
with torch.inference_mode():
    t = make(rank) * 1
    dist.all_reduce(t, op=AVG)
same(t, mean(everybody))

# async: the handle is kept, and divides once
t = make(rank)
work = dist.all_reduce(t, op=AVG, async_op=True)
assert isinstance(work, dist.Work)
work.wait()
work.wait()
same(t, mean(everybody))
assert work.is_completed()
t = make(rank)
work = dist.all_reduce(t, op=AVG, async_op=True)
while not work.is_completed():
    pass
same(t, mean(everybody))
t = make(rank)
future = dist.all_reduce(t, op=AVG, async_op=True).get_future()
future.wait()
same(t, mean(everybody))

# reduce: only the destination is divided (D1: other operators get dst, too)
t = make(rank)
dist.reduce(t, dst=1, op=AVG)
if rank == 1:
    same(t, mean(everybody))
other = make(rank)
dist.reduce(other, dst=1, op=SUM)
assert rank == 1 or torch.equal(t, other)
t = make(rank)
dist.reduce(t, 2, op=MAX)
if rank == 2:
    assert torch.equal(t, torch.stack([make(r) for r in everybody]).amax(0))

# D2, D3: lists and tensors, by keyword and by position, AVG and not
parts = [make(rank * 10 + i) for i in everybody]
for op in (AVG, SUM):
    out = torch.empty(5)
    dist.reduce_scatter(output=out, input_list=list(parts), op=op)
    wanted = sum(make(r * 10 + rank) for r in everybody) / (size if op == AVG else 1)
    same(out, wanted)
    out = torch.empty(5)
    dist.reduce_scatter_tensor(out, torch.cat(parts), op=op)
    same(out, wanted)
    out = torch.empty(5)
    work = dist._reduce_scatter_base(out, torch.cat(parts), op, None, True)
    work.wait()
    same(out, wanted)

# coalesced, both ways
tensors = [make(rank), make(rank, (2, 2))]
dist.all_reduce_coalesced(tensors, op=AVG)
same(tensors[0], mean(everybody))
same(tensors[1], mean(everybody, (2, 2)))
with dist._coalescing_manager():
    a, b = make(rank), make(rank, (3,))
    dist.all_reduce(a, op=AVG)
    dist.all_reduce(b, op=AVG)
same(a, mean(everybody))
same(b, mean(everybody, (3,)))

# groups: ranks of the group and of the world differ, its size counts (D3)
group = dist.new_group([1, 2], backend="nccl")
if rank in (1, 2):
    assert dist.get_backend(group) == "nccl"
    t = make(rank)
    dist.reduce(t, dst=2, op=AVG, group=group)
    if rank == 2:
        same(t, mean([1, 2]))
    t = make(rank)
    dist.all_reduce(t, op=AVG, group=group)
    same(t, mean([1, 2]))

# another backend is left alone, whatever it makes of AVG
plain = dist.new_group(list(everybody), backend="gloo")
assert dist.get_backend(plain) == "gloo"
t = make(rank)
work = dist.all_reduce(t, op=AVG, group=plain, async_op=True)
assert type(work).__module__.startswith("torch"), type(work)
work.wait()
objects = [None] * size
dist.all_gather_object(objects, {"rank": rank})
assert objects == [{"rank": r} for r in everybody]
dist.barrier()
dist.destroy_process_group()
ditorch.uninstall()
assert dist.get_backend.__module__.startswith("torch") and not dist.is_nccl_available()
print("done")
"""


def test_d1_d2_d3_average_of_every_kind():
    assert start(AVERAGES, 3, DITORCH_BACKEND="npu") == ["done\n"] * 3


PAIRS = """
dist.init_process_group("cpu:gloo,cuda:nccl")
assert dist.get_backend() == "cpu:gloo,cuda:nccl", dist.get_backend()
assert dist.distributed_c10d._world.pg_backend_config[dist.group.WORLD] == "cpu:gloo,cuda:succl"
t = make(rank)
dist.all_reduce(t)
same(t, mean(range(size)) * size)
dist.destroy_process_group()
print("done")
"""

DDP = """
dist.init_process_group("nccl")
torch.cuda.set_device(rank)
torch.manual_seed(5)
model = torch.nn.Linear(6, 3).cuda()
single = torch.nn.Linear(6, 3)
single.load_state_dict({k: v.cpu() for k, v in model.state_dict().items()})
wrapped = torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank])
data = torch.randn(8, 6, generator=torch.Generator().manual_seed(1))
for step in range(3):
    loss = wrapped(data[rank::2].cuda()).square().mean()
    loss.backward()
    alone = single(data).square().mean()
    alone.backward()
    t = loss.detach().clone()
    assert t.is_cuda
    dist.all_reduce(t, op=AVG)
    same(t.cpu(), alone.detach())
    with torch.no_grad():
        for mine, theirs in zip(model.parameters(), single.parameters()):
            same(mine.grad.cpu(), theirs.grad)
            mine.sub_(mine.grad, alpha=0.1)
            theirs.sub_(theirs.grad, alpha=0.1)
            mine.grad = theirs.grad = None
stream = torch.cuda.Stream()
with torch.cuda.stream(stream):
    t = make(rank).cuda()
    work = dist.all_reduce(t, op=AVG, async_op=True)
    work.wait()
stream.synchronize()
same(t.cpu(), mean(range(size)))
dist.destroy_process_group()
print("done")
"""


def test_pairs_of_device_and_backend():
    assert start(PAIRS, 1, DITORCH_BACKEND="biren") == ["done\n"]


def test_distributed_training_on_device_tensors():
    assert start(DDP, 2, DITORCH_BACKEND="npu", FAKE_COLLECTIVES="device") == ["done\n"] * 2


def test_vendor_without_collectives():
    program = """
    assert not dist.is_nccl_available()
    try:
        dist.init_process_group("nccl")
    except RuntimeError as error:
        print(error)
    """
    answer = start(program, 1, DITORCH_BACKEND="npu", FAKE_COLLECTIVES="none")[0]
    assert "torch_npu has registered no collectives for npu devices (looked for hccl)" in answer


def test_translate_touches_nccl_alone():
    from ditorch.vendors.collectives import translate

    table = {"nccl": "hccl", "NCCL": "hccl", "gloo": "gloo", None: None, "cpu:gloo,cuda:nccl": "cpu:gloo,cuda:hccl"}
    assert {key: translate(key, "nccl", "hccl") for key in table} == table


class Group:
    """What the emulation asks of a process group whose backend joins the calls of a coalescing block."""

    def rank(self):
        return 0

    def size(self):
        return 4


class Handle:
    def __init__(self, error=None):
        self.error, self.waits = error, 0

    def wait(self):
        self.waits += 1
        if self.error:
            raise self.error
        return True

    def is_completed(self):
        return True


def make_average(monkeypatch):
    from ditorch.vendors import collectives, probe, rows

    average = collectives.Average(probe.Stack(rows.find_row("npu"), probe.READY, device="npu"), "hccl")
    monkeypatch.setattr(average, "serves", lambda group, tensors: True)
    return average


def make_options():
    import torch.distributed as dist

    options = dist.AllreduceOptions()
    options.reduceOp = dist.ReduceOp.AVG
    return options


def test_calls_inside_a_coalescing_block_are_divided_by_its_handle(monkeypatch):
    import torch
    import torch.distributed as dist

    average, handle, seen = make_average(monkeypatch), Handle(), []
    call = average.make("allreduce", lambda group, tensors, options: seen.append(options.reduceOp == dist.ReduceOp.SUM))
    end = average.make_end(lambda group, device: handle)
    a, b, options = torch.full((2,), 8.0), torch.full((2,), 6), make_options()
    assert call(Group(), [a], options) is None and call(Group(), [b], options) is None
    assert seen == [True, True] and options.reduceOp == dist.ReduceOp.AVG
    assert a.tolist() == [8.0, 8.0]
    work = end(Group(), "cpu")
    assert a.tolist() == [8.0, 8.0] and handle.waits == 0
    work.wait()
    work.wait()
    assert a.tolist() == [2.0, 2.0] and b.tolist() == [1, 1]
    assert end(Group(), "cpu") is handle  # nothing is owed any more


def test_work_that_failed_is_not_divided_and_raises(monkeypatch):
    import torch

    average = make_average(monkeypatch)
    call = average.make("allreduce", lambda group, tensors, options: Handle(RuntimeError("rank 3 is gone")))
    tensor = torch.full((2,), 8.0)
    work = call(Group(), [tensor], make_options())
    assert work.is_completed()
    with pytest.raises(RuntimeError, match="rank 3 is gone"):
        work.wait()
    assert tensor.tolist() == [8.0, 8.0]
