"""Functions of torch.distributed under the tools: two processes on gloo with CPU tensors, one run for all questions."""

from __future__ import annotations

import json
import socket
import subprocess
import textwrap
import threading
import time

import ditorch  # noqa: F401
import pytest
import torch
import torch.distributed as dist
from conftest import child_environment, run_python, warm_interpreter
from ditorch import _C
from op_tools import OpObserve, apply_feature, collectives, list_features, remove_feature

pytestmark = pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="torch has no gloo")

PRELUDE = """
import json, os, sys, time, warnings
warnings.simplefilter("ignore")
import torch, ditorch
import torch.distributed as dist
import torch.nn.functional as F
torch.set_num_threads(1)
import op_tools
from op_tools import (OpAutoCompare, OpCapture, OpObserve, OpOverflowCheck, OpTimeMeasure, apply_feature, features,
                      list_features, remove_feature)
ORIGINAL = {name: getattr(dist, name) for name in dir(dist) if callable(getattr(dist, name))}
dist.init_process_group("gloo")
rank = dist.get_rank()
answers = {}
def values(seed, *shape, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)
def mine(seed, *shape, dtype=torch.float32):
    return values(seed + rank, *shape, dtype=dtype)
def applied(feature):
    return features._tools[feature].counts()["applied"]
def captured(step=-1):
    "Input and output of the newest captured call."
    from pathlib import Path
    features._tools["op_capture"].flush()
    folders = sorted((p.parent for p in Path("op_tools_results").rglob(f"rank{rank}/**/input.pth")),
                     key=lambda p: int(p.parent.name))
    folder = folders[step]
    return (torch.load(folder / "input.pth", weights_only=True), torch.load(folder / "output.pth", weights_only=True),
            folder.parts[-4])
def end():
    dist.barrier()
    with open(f"answers{rank}.json", "w") as file:
        json.dump(answers, file)
    dist.destroy_process_group()
"""


def _wait(ranks):
    """What they said; when one fails the other is not waited for."""
    files = [(rank.stdout, rank.stderr) for rank in ranks]
    said = [[], []]
    readers = [
        threading.Thread(target=lambda file=file, at=at: said[at].append(file.read()))
        for at, pair in enumerate(files)
        for file in pair
    ]
    [reader.start() for reader in readers]
    end = time.monotonic() + 600
    while any(rank.poll() is None for rank in ranks):
        if any(rank.poll() for rank in ranks) or time.monotonic() > end:
            time.sleep(0.5)
            [rank.kill() for rank in ranks]
        time.sleep(0.02)
    [reader.join() for reader in readers]
    return ["".join(parts) for parts in said]


def run_ranks(tmp_path, text, **environment):
    """The program on two ranks; returns their answers and what they said."""
    script = tmp_path / "program.py"
    script.write_text(PRELUDE + textwrap.dedent(text) + "\nend()\n")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = []
    for rank in range(2):
        variables = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "RANK": rank, "WORLD_SIZE": 2, **environment}
        ranks.append(
            subprocess.Popen(
                [warm_interpreter(), "-W", "ignore", str(script)],
                env=child_environment(**variables),
                cwd=tmp_path,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    said = _wait(ranks)
    assert all(rank.returncode == 0 for rank in ranks), "\n".join(text[-4000:] for text in said)
    answers = [json.loads((tmp_path / f"answers{rank}.json").read_text()) for rank in range(2)]
    return answers, said


# Every tool on sync and async calls

WATCH = """
for feature in ("dump_op_args", "measure_op_time", "op_capture", "overflow_check"):
    apply_feature("torch.distributed", feature)
answers["hooked"] = sorted({row.op for row in list_features()})

def total(seed, *shape, **options):
    return sum(values(seed + r, *shape, **options).double() for r in range(2))

# all_reduce, sync: what was captured is what went in and the sum in float64
t = mine(1, 5)
before = t.clone()
answers["sync result"] = dist.all_reduce(t) is None
given, got, name = captured()
answers["sync"] = [name, torch.equal(given["args"][0], before), torch.allclose(t.double(), total(1, 5), atol=1e-6)]
answers["sync output"] = str(got)
answers["sync output is the sum"] = any(torch.equal(x, t) for x in torch.utils._pytree.tree_leaves(got)
                                        if isinstance(x, torch.Tensor))

# all_reduce, async: nothing before wait, everything at it
t = mine(3, 7)
before = t.clone()
count = applied("dump_op_args")
work = dist.all_reduce(tensor=t, async_op=True)
answers["async type"] = isinstance(work, dist.Work)
answers["async before wait"] = applied("dump_op_args") - count
while torch.equal(t, before):  # the collective has overwritten the input before anybody waits
    time.sleep(0.01)
answers["async wait"] = work.wait()
answers["async after wait"] = applied("dump_op_args") - count
answers["async again"] = [work.wait(), work.is_completed(), applied("dump_op_args") - count]
given, got, name = captured()
answers["async captured"] = [name, torch.equal(given["args"][0], before),
                             any(torch.equal(x, t) for x in torch.utils._pytree.tree_leaves(got)
                                 if isinstance(x, torch.Tensor)),
                             torch.allclose(t.double(), total(3, 7), atol=1e-6)]

# is_completed and get_future are other ways to wait
work = dist.all_reduce(t, async_op=True)
while not work.is_completed():
    pass
answers["polled"] = applied("dump_op_args") - count
work = dist.all_reduce(t, async_op=True)
value = work.get_future().wait()
answers["future"] = [applied("dump_op_args") - count, type(value).__name__, torch.equal(value[0], t)]

# a work that nobody waits for is not looked at and does no harm
dropped = dist.all_reduce(mine(4, 3), async_op=True)
del dropped
dist.barrier()

# the others give what they give without hooks
def run():
    out = []
    x = mine(5, 4)
    dist.broadcast(x, src=1); out.append(x)
    x = mine(6, 4); dist.reduce(x, 0); out.append(x if rank == 0 else torch.zeros(4))
    x = [torch.zeros(4) for _ in range(2)]; dist.all_gather(x, mine(7, 4)); out += x
    x = torch.zeros(8); dist.all_gather_into_tensor(x, mine(8, 4)); out.append(x)
    x = torch.zeros(4); dist.reduce_scatter(x, [mine(9, 4), mine(11, 4)]); out.append(x)
    x = torch.zeros(2); dist.reduce_scatter_tensor(x, mine(13, 4)); out.append(x)
    x = torch.zeros(3); dist.scatter(x, [values(15, 3), values(16, 3)] if rank == 0 else None, src=0); out.append(x)
    x = [torch.zeros(3) for _ in range(2)] if rank == 1 else None; dist.gather(mine(17, 3), x, dst=1); out += x or []
    x = torch.zeros(4); dist.all_to_all_single(x, mine(19, 4)); out.append(x)
    x = [None, None]; dist.all_gather_object(x, {"rank": rank}); out.append(x)
    x = torch.zeros(3)
    if rank == 0: dist.send(values(21, 3), 1)
    else: dist.recv(x, 0)
    out.append(x)
    y = torch.zeros(3)
    works = [dist.irecv(y, 1 - rank), dist.isend(mine(22, 3), 1 - rank)]  # receives first on both ranks
    for work in works: work.wait()
    out.append(y)
    z = torch.zeros(3)
    ops = [dist.P2POp(dist.isend, mine(24, 3), 1 - rank), dist.P2POp(dist.irecv, z, 1 - rank)]
    for work in dist.batch_isend_irecv(ops): work.wait()
    out.append(z)
    dist.barrier()
    return out
count = applied("dump_op_args")
hooked = run()
names = [r["name"].rpartition(".")[2] for r in features._tools["dump_op_args"].records("call")][count:]
answers["names"] = names
answers["overflow"] = features._tools["overflow_check"].findings()
answers["times"] = applied("measure_op_time") == applied("dump_op_args") == applied("op_capture")
remove_feature()
plain = run()
answers["same"] = [a == b if isinstance(a, list) else torch.equal(a, b) for a, b in zip(hooked, plain)]
answers["restored"] = all(getattr(dist, name) is value for name, value in ORIGINAL.items())

# two groups in different orders on the ranks: a tool that waits at once would hang here
first, second = dist.new_group([0, 1]), dist.new_group([0, 1])
apply_feature(dist.all_reduce, "op_capture")
a, b = torch.ones(3), torch.ones(3)
works = [dist.all_reduce(t, group=g, async_op=True) for t, g in ([(a, first), (b, second)] if rank == 0 else
                                                                 [(b, second), (a, first)])]
for work in works: work.wait()
answers["two groups"] = [a.tolist(), b.tolist()]

# collectives that are collected into one are not looked at before they ran
if hasattr(dist, "_coalescing_manager"):
    t, u = torch.ones(2), torch.ones(2)
    count = applied("op_capture")
    try:
        with dist._coalescing_manager():
            dist.all_reduce(t); dist.all_reduce(u)
        answers["coalesced"] = [t.tolist(), u.tolist(), applied("op_capture") - count]
    except (RuntimeError, NotImplementedError) as error:
        answers["coalesced"] = str(error)

# an overflow is found; an exception is the program's own
apply_feature("torch.distributed.all_reduce", "overflow_check")
dist.all_reduce(torch.full((3,), 3e38))
answers["overflow found"] = [f["name"] for f in features._tools["overflow_check"].findings()]
remove_feature("torch.distributed.all_reduce", "overflow_check")
apply_feature("torch.distributed.all_reduce", "overflow_check")
dist.all_reduce(torch.tensor([1.0, float("inf") if rank == 0 else 1.0]))  # an Inf that rank 0 put in
answers["overflow of the other"] = [(f["name"], f["verdict"]) for f in features._tools["overflow_check"].findings()]
try:
    dist.all_reduce("not a tensor")
except Exception as error:
    answers["exception"] = type(error).__name__
remove_feature()

# started tools see them too, with the CPU rule in force for everything else
with OpObserve(console="off") as observe:
    dist.all_reduce(torch.ones(2)); torch.add(torch.ones(2), 1)
    dist.all_reduce(torch.ones(2), async_op=True).wait()
    answers["started"] = [r["name"] for r in observe.calls()]
with OpObserve(console="off", level="aten") as observe:
    dist.all_reduce(torch.ones(2)); dist.all_reduce(torch.ones(2), async_op=True).wait()
    answers["started aten"] = [r["name"] for r in observe.calls()]
answers["restored again"] = all(getattr(dist, name) is value for name, value in ORIGINAL.items())
answers["p2p"] = dist.P2POp.__init__.__module__
"""


@pytest.fixture(scope="module")
def watch(tmp_path_factory):
    return run_ranks(tmp_path_factory.mktemp("watch"), WATCH)[0]


def test_c8_sync_calls_are_captured(watch):
    for answer in watch:
        assert "torch.distributed.all_reduce" in answer["hooked"] and answer["sync result"]
        assert answer["sync"] == ["torch.distributed.all_reduce", True, True]
        assert answer["sync output is the sum"], answer["sync output"]


def test_trap_collective_before_wait(watch):
    for answer in watch:
        assert answer["async type"] is True and answer["async wait"] is True
        assert answer["async before wait"] == 0 and answer["async after wait"] == 1
        assert answer["async again"] == [True, True, 1]
        assert answer["async captured"] == ["torch.distributed.all_reduce", True, True, True]


def test_other_ways_to_wait(watch):
    for answer in watch:
        assert answer["polled"] == 2 and answer["future"] == [3, "list", True]


def test_every_function_gives_the_same_and_is_seen(watch):
    for rank, answer in enumerate(watch):
        assert all(answer["same"]) and len(answer["same"]) >= 13
        single = ["send"] if rank == 0 else ["recv"]
        expected = ["broadcast", "reduce", "all_gather", "all_gather_into_tensor", "reduce_scatter"]
        expected += ["reduce_scatter_tensor", "scatter", "gather", "all_to_all_single", "all_gather_object", *single]
        expected += ["irecv", "isend", "batch_isend_irecv", "batch_isend_irecv", "barrier"]
        assert answer["names"] == expected
        assert answer["times"] and not answer["overflow"]


def test_originals_come_back(watch):
    for answer in watch:
        assert answer["restored"] and answer["restored again"] and answer["p2p"].startswith("torch.distributed")


def test_tools_do_not_wait_for_others(watch):
    for answer in watch:
        assert answer["two groups"] == [[2.0] * 3, [2.0] * 3]


def test_coalesced_calls_are_left_alone(watch):
    for answer in watch:
        if isinstance(answer.get("coalesced"), str) or "coalesced" not in answer:
            pytest.skip(f"gloo does not coalesce: {answer.get('coalesced')}")
        assert answer["coalesced"] == [[2.0, 2.0], [2.0, 2.0], 0]


def test_overflow_and_exceptions(watch):
    for answer in watch:
        assert answer["overflow found"] == ["torch.distributed.all_reduce"]
        assert answer["exception"] in ("TypeError", "ValueError")
    verdicts = [[verdict for _, verdict in answer["overflow of the other"]] for answer in watch]
    assert verdicts == [["propagator"], ["producer"]]  # each rank judges by its own inputs


def test_started_tools_see_collectives(watch):
    for answer in watch:
        assert answer["started"] == ["torch.distributed.all_reduce"] * 2
        assert answer["started aten"] == ["torch.distributed.all_reduce"] * 2


# Comparison

COMPARE = """
def findings():
    return [(f["name"], f.get("op", f["name"])) for f in features._tools["autocompare"].findings()]
def compared():
    "Names of compared calls and their verdicts."
    tool = features._tools["autocompare"]
    return [(r["name"].rpartition(".")[2], r["verdict"]) for r in tool.records("compare") if r["what"] == "output"]
apply_feature("torch.distributed", "autocompare")
for dtype in (torch.float32, torch.bfloat16, torch.float64):
    dist.all_reduce(mine(1, 33, dtype=dtype))
dist.all_reduce(torch.arange(5) + rank)
dist.all_reduce(mine(2, 9), op=dist.ReduceOp.MAX)
dist.all_reduce(mine(2, 9), dist.ReduceOp.PRODUCT)
dist.all_reduce(mine(3, 3, 4).T)                       # not contiguous
dist.all_reduce(torch.zeros(0))
dist.all_reduce(mine(4, 6), async_op=True).wait()
dist.broadcast(mine(5, 4), 1)
dist.reduce(mine(6, 4), 0)
dist.all_gather([torch.zeros(4) for _ in range(2)], mine(7, 4))
dist.all_gather_into_tensor(torch.zeros(8), mine(8, 4))
dist.reduce_scatter(torch.zeros(4), [mine(9, 4), mine(11, 4)])
dist.reduce_scatter_tensor(torch.zeros(2), mine(13, 4))
dist.scatter(torch.zeros(3), [values(15, 3), values(16, 3)] if rank == 0 else None, src=0)
dist.gather(mine(17, 3), [torch.zeros(3) for _ in range(2)] if rank == 1 else None, dst=1)
dist.all_to_all_single(torch.zeros(4), mine(19, 4))
sub = dist.new_group([0, 1])
dist.all_reduce(mine(20, 4), group=sub)
dist.barrier()
answers["clean"] = findings()
answers["compared"] = compared()
remove_feature()

# a broken collective is named, by the rank that got the wrong result
real = dist.all_reduce
def all_reduce(tensor, *args, **kwargs):
    work = real(tensor, *args, **kwargs)
    if rank == 1:
        if work is not None: work.wait()
        tensor[2] *= 1.01
    return work
all_reduce.__signature__ = __import__("inspect").signature(real)
dist.all_reduce = all_reduce
apply_feature("torch.distributed.all_reduce", "autocompare")
dist.all_reduce(mine(30, 5))
answers["broken"] = findings()
remove_feature()
apply_feature("torch.distributed.all_reduce", "autocompare")
dist.all_reduce(mine(31, 5), async_op=True).wait()
answers["broken async"] = findings()
remove_feature()
dist.all_reduce = real

# only one rank compares: no hang, no accusation, a reason
if rank == 0:
    apply_feature("torch.distributed.all_reduce", "autocompare")
t = mine(40, 4)
dist.all_reduce(t)
dist.all_reduce(t, async_op=True).wait()
if rank == 0:
    answers["alone"] = [findings(), compared()]
    remove_feature()
dist.barrier()

# calls that only one rank had hooked: the ranks notice that they are at different calls
if rank == 1:
    apply_feature("torch.distributed.all_reduce", "autocompare")
dist.all_reduce(mine(50, 4))
if rank == 0:
    apply_feature("torch.distributed.all_reduce", "autocompare")
dist.all_reduce(mine(52, 4))
answers["late"] = [findings(), compared()]
remove_feature()

# too large for the exchange
from op_tools import collective_reference
collective_reference.MAX_BYTES = 64
apply_feature("torch.distributed.all_reduce", "autocompare")
dist.all_reduce(mine(60, 40))
dist.all_reduce(mine(60, 4))
answers["large"] = [findings(), compared()]
collective_reference.MAX_BYTES = 64 << 20
remove_feature()

# several chunks, and old ones are taken away
collective_reference._CHUNK = 32
apply_feature("torch.distributed.all_reduce", "autocompare")
for i in range(70):
    dist.all_reduce(mine(70 + i, 40))
answers["chunks"] = [findings(), len(compared()), len(collective_reference._kept)]
remove_feature()

with OpAutoCompare(console="off") as compare:
    dist.all_reduce(mine(80, 4))
    answers["started"] = [r["verdict"] for r in compare.records("compare") if r["what"] == "output"]
"""


@pytest.fixture(scope="module")
def compare(tmp_path_factory):
    import op_tools

    if "OpAutoCompare" not in op_tools._EXPORTS:
        pytest.skip("OpAutoCompare is not there")
    return run_ranks(tmp_path_factory.mktemp("compare"), COMPARE)


def test_clean_collectives_are_compared_and_not_accused(compare):
    answers, _ = compare
    for rank, answer in enumerate(answers):
        assert answer["clean"] == []
        names = [name for name, _ in answer["compared"]]
        assert names.count("all_reduce") >= 8, names
        wanted = {"broadcast", "all_gather", "all_gather_into_tensor", "reduce_scatter", "reduce_scatter_tensor"}
        wanted |= {"scatter", "all_to_all_single", "gather" if rank == 1 else "reduce"}
        assert wanted <= set(names) and ("reduce" in names) == (rank == 0)
        assert {verdict for _, verdict in answer["compared"]} == {"right"}


def test_a_broken_collective_is_named_by_the_rank_that_saw_it(compare):
    answers, said = compare
    assert answers[0]["broken"] == answers[0]["broken async"] == []
    for key in ("broken", "broken async"):
        assert [name for name, _ in answers[1][key]] == ["torch.distributed.all_reduce"]
    assert "torch.distributed.all_reduce" in said[1]


def test_one_rank_alone_does_not_hang(compare):
    answers, said = compare
    assert answers[0]["alone"] == [[], []]
    assert "rank 1 does not compare this call" in said[0]


def test_ranks_at_different_calls_notice(compare):
    answers, said = compare
    assert all(answer["late"] == [[], []] for answer in answers)
    assert "is at another call" in said[0] + said[1]


def test_large_tensors_are_left_out_with_the_reason(compare):
    answers, said = compare
    assert all(len(answer["large"][1]) == 1 and not answer["large"][0] for answer in answers)
    assert "are more than the 64 that are compared" in said[0]


def test_chunks_and_the_bound_of_what_is_kept(compare):
    answers, _ = compare
    assert all(answer["chunks"] == [[], 70, 64] for answer in answers)


def test_a_started_comparison(compare):
    answers, _ = compare
    assert all(answer["started"] == ["right"] for answer in answers)


# Data parallel training

TRAINING = """
import sys, warnings
warnings.simplefilter("ignore")
import torch, ditorch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from op_tools import OpCapture, OpObserve, OpTimeMeasure
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()

def shard(model):
    for part in (model[0], model[2], model):
        fully_shard(part, mesh=init_device_mesh("cpu", (2,)))
    return model

def train(wrap=DistributedDataParallel):
    torch.manual_seed(0)
    model = wrap(torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.GELU(), torch.nn.Linear(8, 2)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    data = torch.Generator().manual_seed(rank)
    losses = []
    for _ in range(4):
        loss = model(torch.randn(5, 6, generator=data)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean, op=dist.ReduceOp.SUM)
        losses.append(mean.item().hex())
    return losses

plain = train()
for tool in (OpObserve, OpTimeMeasure, OpCapture):
    with tool(console="off", cpu=True) as active:
        assert train() == plain, tool
    assert active.counts()["applied"] > 40, active.counts()
with OpObserve(console="off", cpu=True) as observe, OpTimeMeasure(console="off", cpu=True):
    assert train() == plain
    assert "torch.distributed.all_reduce" in {r["name"] for r in observe.calls()}
sharded = train(shard)
with OpCapture(console="off") as capture, OpTimeMeasure(console="off"):
    assert train(shard) == sharded
assert capture.counts()["applied"] >= 16, capture.counts()  # its gathers and scatters, all of them asynchronous
sys.stdout.write(" ".join(["losses", str(rank), *plain]) + "\\n")  # in one piece: the ranks share a pipe
dist.destroy_process_group()
"""


def test_data_parallel_losses_are_bitwise_equal(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(TRAINING)
    words = ["-m", "torch.distributed.run", "--nproc-per-node=2", "--master-port=0", "--rdzv-backend=c10d"]
    words += ["--rdzv-endpoint=localhost:0", script]
    answer = run_python(*words, check=False, cwd=tmp_path, warm=True, trains=True)
    assert answer.returncode == 0, answer.stdout[-3000:] + answer.stderr[-5000:]
    lines = [line.split()[2:] for line in answer.stdout.splitlines() if line.startswith("losses")]
    assert len(lines) == 2 and lines[0] == lines[1] and len(set(lines[0])) == 4


# Without other processes


def test_hooks_are_there_only_while_a_tool_is_on(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    original = dist.all_reduce
    with OpObserve(console="off"):
        assert type(dist.all_reduce) is _C.Hook and dist.all_reduce == original
        with OpObserve(console="off"):
            pass
        assert type(dist.all_reduce) is _C.Hook
        apply_feature("torch.distributed.all_reduce", "measure_op_time")
    assert type(dist.all_reduce) is _C.Hook and dist.broadcast.__module__.startswith("torch")
    assert [row.op for row in list_features()] == ["torch.distributed.all_reduce"]
    remove_feature()
    assert dist.all_reduce is original and not collectives._placed


def test_a_group_that_is_not_there_is_the_programs_error(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with OpObserve(console="off"), pytest.raises(ValueError, match="process group"):
        dist.all_reduce(torch.ones(2))


def test_what_others_wrote_is_checked_like_a_file():
    from op_tools import collective_reference as exchange

    good = [torch.arange(6, dtype=torch.float32).reshape(2, 3), torch.ones(0), torch.tensor(True)]
    header, data = exchange._encode({"function": "all_reduce"}, good)
    assert all(torch.equal(a, b) for a, b in zip(good, exchange._decode(header, data), strict=True))
    for tensors in (
        [["float32", [2, 4]]],
        [["float32", [-1]]],
        [["float32", [1 << 62, 4]]],
        [["pickle", [1]]],
        [["float32", "x"]],
    ):
        with pytest.raises((ValueError, KeyError)):
            exchange._decode({"tensors": tensors}, data[:24])
