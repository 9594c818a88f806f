"""What `import ditorch` adds to `import torch`: fresh processes in turns."""

import argparse

import common

CODE = """
import json, time
a = time.perf_counter()
import torch
b = time.perf_counter()
{extra}
c = time.perf_counter()
print(json.dumps([b - a, c - b]))
"""
FIRST_USE = "import ditorch\ntorch.ones(1, device='cuda')"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=11)
    options = parser.parse_args()
    sides = {"import ditorch": "import ditorch", "import and first tensor": FIRST_USE}
    times, torch_times = {side: [] for side in sides}, []
    for _ in range(options.rounds):
        for side, extra in sides.items():
            base, added = common.run_child(["-c", CODE.format(extra=extra)], DITORCH_BANNER="0")
            times[side].append(added)
            torch_times.append(base)
    rows = []
    for side, values in times.items():
        middle, low, high = (v * 1e3 for v in common.summary(values))
        goal = side == "import ditorch"
        rows.append(
            {
                "what": side,
                "figure": f"{middle:.0f} ms ({low:.0f}-{high:.0f})",
                "goal": "at most 150 ms" if goal else "",
                "met": common.verdict(middle <= 150) if goal else "",
            }
        )
    middle, low, high = (v * 1e3 for v in common.summary(torch_times))
    rows.append(
        {"what": "import torch alone", "figure": f"{middle:.0f} ms ({low:.0f}-{high:.0f})", "goal": "", "met": ""}
    )
    common.report(
        "Import time over `import torch`",
        "python bench/bench_import.py",
        rows,
        f"{options.rounds} fresh processes a side, in turns; median (quartiles).",
    )


if __name__ == "__main__":
    main()
