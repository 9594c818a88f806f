"""The device's operators against ATen on the CPU: speed (ATen's time over the device's, above 1 is faster), in turns.

    python bench/ops/run.py [--section operators memory steps] [--threads 1] [--only GLOB] [--dtype float32 ...]
                            [--rounds N] [--json FILE]

Both sides have the same number of threads. A figure is the ratio of the shortest of many short rounds; on one thread
they are timed by the thread's own processor time, which other programs do not lengthen. Matrix products and
convolutions are measured with and without oneDNN, on either side where it has one. Memory-bound operators are also
given as a share of the bandwidth of a plain copy.
Training steps run through the operator library and through the CPU fallback.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import math
import os
import re
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import cases
import common
import onednn
import steps

SLOWEST, BANDWIDTH = 0.8, 0.7
MEAN = {"float32": 1.0, "bfloat16": 1.3}
SECTIONS = ("operators", "memory", "steps")
JUDGED = ("float32", "bfloat16", "int64")


def measure(make, dtype, rounds, clock, seconds=0.004):
    """Speed (shortest against shortest), quartiles of the rounds' ratios, and the operators that fell back; None where
    the CPU does not have the operator in this dtype."""
    import ditorch
    import torch

    try:
        sides = {"cpu": make("cpu", dtype)}
        sides["cpu"]()
    except (NotImplementedError, RuntimeError):
        return None
    sides["device"] = make("cuda", dtype)
    ditorch.reset_counters()
    sides["device"]()
    torch.cuda.synchronize()
    fallen = sorted(row["operator"] for row in ditorch.fallbacks())
    once = max(min(common.per_call(sides["cpu"], 1, clock) for _ in range(2)), 1e-7)
    rounds = min(rounds, 2) if once > 0.5 else rounds  # ATen without oneDNN takes seconds for a bfloat16 convolution
    times = common.interleave(sides, rounds, max(1, int(seconds / once)), warm=int(once < 0.5), clock=clock)
    _, low, high = common.summary([b / a for a, b in zip(times["device"], times["cpu"], strict=True)])
    shortest = {name: min(values) for name, values in times.items()}
    return (shortest["cpu"] / shortest["device"], low, high), fallen, shortest["device"]


def copy_bandwidth(rounds):
    """Bytes per second of the fastest of a few copies of a large buffer, read and written, on this many threads."""
    import torch

    source = torch.rand(16 * cases.N)
    target = torch.empty_like(source)
    return 2 * source.nbytes / min(common.per_call(lambda: target.copy_(source), 2) for _ in range(rounds))


def list_variants(name, switch):
    """{label: (oneDNN on the device, oneDNN in ATen)}"""
    variants = {"": (True, True)}
    if name in cases.WITH_DNN:
        variants[" (ATen without oneDNN)"] = (True, False)
        if switch.found:
            variants[" (device without oneDNN)"] = (False, True)
            variants[" (both without oneDNN)"] = (False, False)
    return variants


def run_hot(options, dtype, switch, results):
    import torch

    clock = time.thread_time if options.threads == 1 else time.perf_counter
    for name, make in cases.HOT.items():
        if not fnmatch.fnmatch(name, options.only):
            continue
        for label, (mine, theirs) in list_variants(name, switch).items():
            with switch.use(mine), torch.backends.mkldnn.flags(enabled=theirs):
                figures = measure(make, dtype, options.rounds, clock)
            if not figures:
                continue
            (middle, low, high), fallen, seconds = figures
            results.append(
                {
                    "name": name + label,
                    "dtype": str(dtype).removeprefix("torch."),
                    "speed": middle,
                    "quartiles": [low, high],
                    "device_us": seconds * 1e6,
                    "fallbacks": fallen,
                    "counts": mine and theirs,
                }
            )
            row = results[-1]
            print(
                f"{row['dtype']:>9} {row['name']:<42} {middle:6.2f}x ({low:.2f}-{high:.2f}) {seconds * 1e6:10.1f} us "
                f"{'fallback ' + ' '.join(fallen) if fallen else ''}",
                file=sys.stderr,
            )


def run_memory_bound(options):
    import torch

    best = copy_bandwidth(options.rounds)
    rows = []
    for name, (make, size) in cases.MEMORY_BOUND.items():
        if not fnmatch.fnmatch(name, options.only):
            continue
        call = make("cuda", torch.float32)
        call()
        share = size / min(common.per_call(call, 2) for _ in range(options.rounds)) / best
        rows.append({"name": name, "share": share})
        print(f"{name:<52} {share:6.0%} of copy bandwidth ({best / 1e9:.1f} GB/s)", file=sys.stderr)
    return rows


def hide_path(text):
    """Without the folder: the page is for every machine."""
    return re.sub(r"\(.*/([^/]*)\)", r"(\1)", text)


def mean_of(results):
    return math.exp(sum(math.log(row["speed"]) for row in results) / len(results))


def summarise(results, memory):
    rows = []
    for dtype in dict.fromkeys(row["dtype"] for row in results):
        own = [row for row in results if row["dtype"] == dtype and row["counts"]]
        worst = min(own, key=lambda row: row["speed"])
        judged, goal = dtype in JUDGED, MEAN.get(dtype)
        rows += [
            {
                "what": f"{dtype}: geometric mean of {len(own)} operators",
                "figure": f"{mean_of(own):.2f}x",
                "goal": f"at least {goal}x" if goal else "",
                "met": common.verdict(mean_of(own) >= goal) if goal else "",
            },
            {
                "what": f"{dtype}: slowest",
                "figure": f"{worst['name']} {worst['speed']:.2f}x",
                "goal": f"none below {SLOWEST}x" if judged else "",
                "met": common.verdict(worst["speed"] >= SLOWEST) if judged else "",
            },
            {
                "what": f"{dtype}: run by fallback",
                "figure": str(sum(bool(row["fallbacks"]) for row in own)),
                "goal": "0" if judged else "",
                "met": common.verdict(not any(row["fallbacks"] for row in own)) if judged else "",
            },
        ]
        for row in results:
            if row["dtype"] == dtype and (not row["counts"] or row["speed"] < 0.8 or row["name"] in cases.WITH_DNN):
                low, high = row["quartiles"]
                figure = f"{row['speed']:.2f}x ({low:.2f}-{high:.2f})"
                rows.append({"what": f"{dtype}: {row['name']}", "figure": figure, "goal": "", "met": ""})
    for row in memory:
        met = common.verdict(row["share"] >= BANDWIDTH)
        rows.append(
            {
                "what": row["name"],
                "figure": f"{row['share']:.0%} of copy",
                "goal": f"at least {BANDWIDTH:.0%}",
                "met": met,
            }
        )
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--section", nargs="+", choices=SECTIONS, default=SECTIONS)
    parser.add_argument("--only", default="*")
    parser.add_argument("--dtype", nargs="+", default=["float32", "bfloat16", "float16", "int64", "complex64"])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = os.environ["DITORCH_NUM_THREADS"] = str(options.threads)
    os.environ.setdefault("DITORCH_BANNER", "0")
    import ditorch  # noqa: F401
    import torch

    torch.set_num_threads(options.threads)
    switch = onednn.Switch()
    print(f"the device's oneDNN: {switch.text}", file=sys.stderr)
    results, training = [], []
    memory = run_memory_bound(options) if "memory" in options.section else []
    for dtype in options.dtype if "operators" in options.section else []:
        run_hot(options, getattr(torch, dtype), switch, results)
    if "steps" in options.section and any(fnmatch.fnmatch(name, options.only) for name in steps.STEPS):
        training = steps.run(options.rounds, switch)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"machine": common.machine(), "operators": results, "memory": memory}, file, indent=1)
    common.report(
        "Operators against ATen CPU",
        f"python bench/ops/run.py --threads {options.threads}",
        summarise(results, memory) + training,
        f"Speed: ATen's time over the device's; {options.threads} thread(s) on both sides. Operators below 0.8x are "
        "listed, and those that oneDNN matters for; the rest is faster than that. The device's oneDNN: "
        f"{hide_path(switch.text)}. Steps: the fallback's time over the library's.",
    )


if __name__ == "__main__":
    main()
