"""The CPU fallback that copies (a device whose memory the host cannot read) against the one that does not.

Small: a fallback of (4, 4) on vendor=opaque against the embedded device, two processes measured in turns. Large: what
a copy of the same bytes through pinned memory takes, as a share of what the fallback takes beyond its kernel.
"""

import argparse
import json
import os
import subprocess
import sys

import common

SMALL_GOAL, LARGE_GOAL = 3.0, 0.8


def work():
    """The child: a line on standard input asks for a block, its seconds come back."""
    import ditorch
    import torch

    torch.set_num_threads(1)
    small = (torch.rand(4, 4) + 1).cuda()
    cpu = torch.rand(4 << 20) + 1
    large, pinned = cpu.cuda(), cpu.pin_memory()

    def fall_back():
        torch.special.bessel_j0(small)

    def fall_back_large():
        torch.nextafter(large, large)
        torch.cuda.synchronize()

    def compute_large():
        torch.nextafter(cpu, cpu)

    def copy_large():
        pinned.copy_(large, non_blocking=True)
        large.copy_(pinned, non_blocking=True)
        torch.cuda.synchronize()

    blocks = {
        "small": (fall_back, 200),
        "large": (fall_back_large, 1),
        "kernel": (compute_large, 1),
        "copy": (copy_large, 1),
    }
    for function, _ in blocks.values():
        function()
    print(json.dumps([row["operator"] for row in ditorch.fallbacks()]), flush=True)
    for line in sys.stdin:
        function, calls = blocks[line.strip()]
        print(common.per_call(function, calls), flush=True)


class Child:
    def __init__(self, vendor):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("DITORCH_")}
        environment.update(DITORCH_VENDOR=vendor, DITORCH_BANNER="0")
        environment["PYTHONPATH"] = os.path.join(common.ROOT, "python")
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", __file__, "--work"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.fallen = json.loads(self.process.stdout.readline())

    def measure(self, block):
        self.process.stdin.write(block + "\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work()
        return
    closed, embedded = Child("opaque"), Child("host")
    times = {"closed": [], "open": []}
    share = []
    for _ in range(options.rounds):
        times["open"].append(embedded.measure("small"))
        times["closed"].append(closed.measure("small"))
        large, kernel, copy = (closed.measure(block) for block in ("large", "kernel", "copy"))
        if large > kernel:
            share.append(copy / (large - kernel))
    middle, low, high = common.ratio(times["closed"], times["open"])
    mine, base = (common.summary(times[side])[0] * 1e6 for side in ("closed", "open"))
    part, part_low, part_high = common.summary(share)
    rows = [
        {
            "what": "(4, 4): copying against aliasing",
            "figure": f"{middle:.2f}x ({low:.2f} to {high:.2f}); {mine:.1f} us against {base:.1f} us",
            "goal": f"at most {SMALL_GOAL}x",
            "met": common.verdict(middle <= SMALL_GOAL),
        },
        {
            "what": "16 MiB: share of the copy bandwidth",
            "figure": f"{part:.2f} ({part_low:.2f} to {part_high:.2f})",
            "goal": f"at least {LARGE_GOAL}",
            "met": common.verdict(part >= LARGE_GOAL),
        },
    ]
    common.report("The CPU fallback that copies", "python bench/bench_fallback.py", rows, f"fell back: {closed.fallen}")


if __name__ == "__main__":
    main()
