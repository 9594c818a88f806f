"""What the alias costs per call: the same work with the alias on ("cuda") and off ("dit"), processes taking turns."""

import argparse
import json

import common

OPERATIONS = ("empty", "add", ".to", ".device", "empty on cpu")


def measure(device, calls):
    import ditorch  # noqa: F401
    import torch

    torch.set_num_threads(1)
    x, cpu = torch.ones(4, 4, device=device), torch.ones(4, 4)
    work = {
        "empty": lambda: torch.empty(4, 4, device=device),
        "add": lambda: x + x,
        ".to": lambda: cpu.to(device),
        ".device": lambda: x.device,
        "empty on cpu": lambda: torch.empty(4, 4, device="cpu"),
    }
    times = common.interleave(work, rounds=9, calls=calls)
    print(json.dumps({name: common.summary(values)[0] for name, values in times.items()}))


def show(figures):
    middle, low, high = (value * 1e6 for value in figures)
    return f"{middle:.3f} us ({low:.3f}-{high:.3f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--child", help="measure this device and print JSON")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--calls", type=int, default=4000)
    options = parser.parse_args()
    if options.child:
        measure(options.child, options.calls)
        return
    sides = {"on": ("cuda", "binary"), "off": ("dit", "off")}
    results = {side: {name: [] for name in OPERATIONS} for side in sides}
    for index in range(options.rounds):
        for side in sides if index % 2 == 0 else reversed(sides):
            device, alias = sides[side]
            answer = common.run_child(
                [__file__, "--child", device, "--calls", str(options.calls)], DITORCH_ALIAS=alias, DITORCH_BANNER="0"
            )
            for name in OPERATIONS:
                results[side][name].append(answer[name])
    rows = []
    for name in OPERATIONS:
        on, off = common.summary(results["on"][name]), common.summary(results["off"][name])
        spread = max(on[2] - on[1], off[2] - off[1])
        rows.append(
            {
                "what": name,
                "figure": f"on {show(on)}, off {show(off)}",
                "goal": "no difference beyond the spread",
                "met": common.verdict(on[0] - off[0] <= spread),
            }
        )
    common.report(
        "Cost of the alias",
        "python bench/bench_alias.py",
        rows,
        f"{options.rounds} pairs of processes in turns; median (quartiles) of the processes' medians.",
    )


if __name__ == "__main__":
    main()
