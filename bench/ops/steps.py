"""One training step of a GPT and of a CNN: the device through its operator library against the same device with every
operator on the CPU (force_fallback), in turns."""

from __future__ import annotations

import bench_step
import common

STEPS = {"GPT step": bench_step.gpt_step, "CNN step": bench_step.resnet_step}


def measure(name, rounds):
    """Median and quartiles of the fallback's time over the library's, milliseconds of both, and operators that fell
    back although they need not."""
    import ditorch
    from ditorch import controls

    step = STEPS[name]("cuda")

    def fall_back():
        with controls.use(force_fallback=".*"):
            step()

    fall_back()
    ditorch.reset_counters()
    step()
    fallen = sum(row["calls"] for row in ditorch.fallbacks())
    times = common.interleave({"library": step, "fallback": fall_back}, rounds, calls=2, warm=1)
    speed = common.ratio(times["fallback"], times["library"])
    return speed, [common.summary(times[side])[0] * 1e3 for side in ("library", "fallback")], fallen


def run(rounds, switch):
    """Rows for the report."""
    rows = []
    for name in STEPS:
        for label, enabled in {"": True, " (device without oneDNN)": False}.items():
            if not enabled and not switch.found:
                continue
            with switch.use(enabled):
                (middle, low, high), (library, fallback), fallen = measure(name, rounds)
            rows.append(
                {
                    "what": f"{name}: library against fallback{label}",
                    "figure": f"{middle:.2f}x ({low:.2f}-{high:.2f}); library {library:.1f} ms ({fallen} calls fell "
                    f"back), fallback {fallback:.1f} ms",
                    "goal": "no slower",
                    "met": common.verdict(middle >= 1.0),
                }
            )
    return rows
