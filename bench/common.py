"""Shared by the benchmarks: interleaved timing, medians with spread, the machine in words, one JSON answer on stdout.

A figure is a median; its spread is the distance between the quartiles. Two sides are always measured in turns in one
run, so that a machine that slows down slows both.
"""

import json
import os
import platform
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def summary(values):
    """(median, first quartile, third quartile)"""
    values = sorted(values)
    if len(values) < 4:
        return statistics.median(values), values[0], values[-1]
    low, middle, high = statistics.quantiles(values, n=4)
    return middle, low, high


def per_call(function, calls, clock=time.perf_counter):
    """Seconds per call of one block."""
    start = clock()
    for _ in range(calls):
        function()
    return (clock() - start) / calls


def interleave(sides, rounds, calls, warm=2, clock=time.perf_counter):
    """{name: [seconds per call, one per round]} for functions measured in turns; the order flips every round."""
    names = list(sides)
    for _ in range(warm):
        for name in names:
            per_call(sides[name], calls)
    times = {name: [] for name in names}
    for index in range(rounds):
        for name in names if index % 2 == 0 else reversed(names):
            times[name].append(per_call(sides[name], calls, clock))
    return times


def ratio(mine, base):
    """Median and quartiles of the per-round ratios."""
    return summary([a / b for a, b in zip(mine, base, strict=False)])


def make_training_step(model, tokens, optimizer):
    """A function that trains a language model on one batch (inputs and targets shifted by one) and returns the loss."""

    def step():
        _, loss = model(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    return step


def machine():
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as file:
            names = [line.split(":", 1)[1].strip() for line in file if line.lower().startswith("model name")]
        model = names[0] if names else model
    except OSError:
        pass
    import torch

    try:
        load = f", load {os.getloadavg()[0]:.1f} at the start"
    except OSError:
        load = ""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return (
        f"{model}, {cores} cores{load}; {platform.system()} {platform.release().split('-')[0]}, "
        f"Python {platform.python_version()}, torch {torch.__version__}"
    )


def run_child(arguments, **environment):
    """A Python child process with ditorch importable; returns its last line, parsed as JSON."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("DITORCH_")}
    clean["PYTHONPATH"] = os.pathsep.join(filter(None, [os.path.join(ROOT, "python"), clean.get("PYTHONPATH")]))
    answer = subprocess.run(
        [sys.executable, "-W", "ignore", *arguments], env={**clean, **environment}, capture_output=True, text=True
    )
    if answer.returncode:
        raise SystemExit(f"{' '.join(arguments)} failed:\n{answer.stderr[-3000:]}")
    return json.loads(answer.stdout.splitlines()[-1])


def report(title, command, rows, note=""):
    """Print the one line that bench/run.py reads, and a table for people on standard error."""
    print(f"{title}", file=sys.stderr)
    for row in rows:
        print(f"  {row['what']:<28} {row['figure']}   goal: {row['goal'] or '-'}   {row['met']}", file=sys.stderr)
    print(json.dumps({"title": title, "command": command, "note": note, "rows": rows}))


def verdict(condition):
    return "met" if condition else "missed"
