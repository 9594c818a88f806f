"""What bench/compile.py measures beside its rows: our share of a compiled call (`--only overhead`), and what a fresh
process spends until a compiled training step has run, without and with caches (`--only start`).

Run as a program this file is such a process: python bench/compile_more.py dit|inductor|eager
"""

import ctypes
import json
import os
import resource
import statistics
import sys
import tempfile
import time

import common

TENSORS = (1, 2, 4, 8, 16)
CALL_GOAL, TENSOR_GOAL = 1.5e-6, 0.3e-6
COLD_GOAL, WARM_GOAL = 0.1, 1.5


# A call


def make_graph(count):
    """A compiled graph that reads `count` tensors of four elements and makes one, and its arguments."""
    import torch
    from ditorch import graph

    torch._dynamo.reset()
    kept = graph.keep()
    given = [torch.randn(4).cuda() for _ in range(count)]
    compiled = torch.compile(lambda *tensors: sum(tensors) + 1, backend="dit", dynamic=False)
    for _ in range(3):
        compiled(*given)
    graph.settle()
    made = kept[0]
    graph.keep(False)
    return made, given


def count_allocations():
    """Of libdit in this process so far."""
    import ditorch

    library = ctypes.CDLL(os.path.join(os.path.dirname(ditorch.__file__), "lib", "libdit.so"))
    library.dit_alloc_get_count.restype = ctypes.c_int64
    return library.dit_alloc_get_count()


def measure_overhead(rounds):
    """Seconds of torch.ops.ditorch.graph_call on tiny tensors, all sizes in turns; allocations of one call."""
    import torch

    run = torch.ops.ditorch.graph_call.default._op  # as a compiled graph calls it
    sides, counts = {}, {}
    for count in TENSORS:
        made, given = make_graph(count)
        sides[count] = lambda made=made, given=given: run(made.graph, given)
    times = common.interleave(sides, rounds, 2000, clock=time.process_time)
    for count, call in sides.items():
        before = count_allocations()
        for _ in range(100):
            call()
        counts[count] = (count_allocations() - before) / 100
    rows = []
    for count in TENSORS:
        middle, low, high = common.summary(times[count])
        goal = CALL_GOAL + TENSOR_GOAL * (count + 1)  # the result is a tensor too
        figure = f"{middle * 1e6:.2f} us ({low * 1e6:.2f}-{high * 1e6:.2f}), {counts[count]:.1f} allocations of libdit"
        rows.append({
            "what": f"overhead, {count} tensors in, one out", "figure": figure,
            "goal": f"at most {goal * 1e6:.1f} us", "met": common.verdict(middle <= goal),
        })  # fmt: skip
    return rows


# A start


def spend():
    """Processor seconds of this process and of those that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def run_start(side):
    """In a process of its own: forward and backward of a small GPT."""
    import ditorch  # noqa: F401
    import torch

    sys.argv = sys.argv[:1]
    from compile import GPT

    device = "cpu" if side == "inductor" else "cuda"
    torch.manual_seed(0)
    model = GPT().to(device)
    tokens, targets = (torch.randint(0, 256, (4, 64)).to(device) for _ in range(2))
    model(tokens, targets).backward()  # what eager mode has to load is not counted
    begin = spend()
    compiled = model if side == "eager" else torch.compile(model, backend=side)
    for _ in range(3):
        compiled(tokens, targets).backward()
    if side == "dit":
        from ditorch import graph

        graph.settle()
    print(json.dumps({"seconds": spend() - begin}))


def measure_start(rounds):
    """Fresh processes, without caches and with those that the first one left; the sides in turns."""
    found = {(side, kind): [] for side in ("dit", "inductor") for kind in ("cold", "warm")}
    for _ in range(rounds):
        for side in ("dit", "inductor"):
            with tempfile.TemporaryDirectory() as folder:
                os.mkdir(os.path.join(folder, "code"), 0o700)
                settings = {
                    "TORCHINDUCTOR_CACHE_DIR": os.path.join(folder, "torch"),
                    "DITORCH_HOST_CACHE": os.path.join(folder, "code"),
                    "TORCHINDUCTOR_COMPILE_THREADS": "1", "OMP_NUM_THREADS": "1", "DITORCH_BANNER": "0",
                }  # fmt: skip
                for kind in ("cold", "warm"):
                    answer = common.run_child([os.path.abspath(__file__), side], **settings)
                    found[side, kind].append(answer["seconds"])
    middle = {key: statistics.median(values) for key, values in found.items()}
    share = middle["dit", "cold"] / middle["inductor", "cold"]
    rows = [
        ("cold", f"at most {COLD_GOAL:.0%} of Inductor's", share <= COLD_GOAL),
        ("warm", f"at most {WARM_GOAL} s", middle["dit", "warm"] <= WARM_GOAL),
    ]
    return [
        {
            "what": f"start, {kind}: processor seconds of a GPT's first steps",
            "figure": f"dit {middle['dit', kind]:.2f} s, inductor {middle['inductor', kind]:.2f} s",
            "goal": goal, "met": common.verdict(good),
        }
        for kind, goal, good in rows
    ]  # fmt: skip


if __name__ == "__main__":
    run_start(sys.argv[1])
