"""Small operators, (4, 4) float32: the device against ATen on the CPU, in one process, in turns."""

import argparse

import common


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=61)
    parser.add_argument("--calls", type=int, default=2000)
    options = parser.parse_args()
    import ditorch
    import torch

    torch.set_num_threads(1)
    a, b = torch.rand(4, 4), torch.rand(4, 4)
    c, d = a.cuda(), b.cuda()
    cases = {
        "add": (lambda: c + d, lambda: a + b),
        "mul": (lambda: c * d, lambda: a * b),
        "mm": (lambda: c @ d, lambda: a @ b),
        "add_ (in place)": (lambda: c.add_(0.0), lambda: a.add_(0.0)),
        "add with a number": (lambda: c + 1.5, lambda: a + 1.5),
        "fallback (cumsum)": (lambda: c.cumsum(0), lambda: a.cumsum(0)),
    }
    rows = []
    for name, (mine, base) in cases.items():
        ditorch.reset_counters()
        mine()
        where = "C" if list(ditorch.operators()) and not list(ditorch.fallbacks()) else "fallback"
        times = common.interleave({"device": mine, "cpu": base}, options.rounds, options.calls)
        middle, low, high = common.ratio(times["device"], times["cpu"])
        mine_us, base_us = (common.summary(times[side])[0] * 1e6 for side in ("device", "cpu"))
        has_goal = name in ("add", "mul", "mm")
        rows.append(
            {
                "what": f"{name} [{where}]",
                "figure": f"{middle:.2f}x ({low:.2f}-{high:.2f}); device {mine_us:.3f} us, CPU {base_us:.3f} us",
                "goal": "at most 1.0x" if has_goal else "",
                "met": common.verdict(middle <= 1.0) if has_goal else "",
            }
        )
    common.report(
        "Small operators against ATen CPU",
        "python bench/bench_small_ops.py",
        rows,
        f"{options.rounds} rounds of {options.calls} calls a side; median (quartiles) of the ratio. 1 thread.",
    )


if __name__ == "__main__":
    main()
