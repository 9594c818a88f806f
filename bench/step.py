"""One training step of a GPT under each watching tool, against the bare step, in one process, in turns.

The sizes are fixed: D=64, L=4, 4 heads, B=2, T=32 on the embedded device; D=256, L=8, 8 heads, B=4, T=128 on a GPU;
AdamW with foreach=False. Beside the tools: an empty Python mode, an empty C mode, the engine with nothing selected,
torch.profiler and torch's DebugMode. `--tools observe,time` measures some of them.
"""

import argparse
import contextlib
import io
import os
import shutil
import statistics
import sys
import tempfile
import time

import common

sys.path.insert(0, os.path.join(common.ROOT, "examples"))

GOALS = {"observe": 1.5, "time": 1.7, "overflow": 2.0, "capture packed": 2.0}


def make_step(gpu):
    import torch
    from gpt import GPT

    width, layers, heads, batch, length = (256, 8, 8, 4, 128) if gpu else (64, 4, 4, 2, 32)
    torch.manual_seed(0)
    model = GPT(128, length, width, layers, heads).to("cuda")
    tokens = torch.randint(0, 128, (batch, length + 1), device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False)
    return common.make_training_step(model, tokens, optimizer)


def empty_python():
    from torch.overrides import TorchFunctionMode

    class Empty(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    return Empty()


@contextlib.contextmanager
def empty_c():
    import torch
    from ditorch import _C

    mode = _C.EmptyMode()
    torch._C._push_on_torch_function_stack(mode)
    try:
        yield
    finally:
        torch._C._pop_torch_function_stack()


@contextlib.contextmanager
def profiler():
    import torch

    activities = [torch.profiler.ProfilerActivity.CPU]
    if torch.cuda.is_available() and not is_embedded():
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities, acc_events=True):
        yield


@contextlib.contextmanager
def debug_mode():
    from torch.utils._debug_mode import DebugMode

    with DebugMode():
        yield


class Quiet:
    """A tool of op_tools whose console is thrown away; start and stop are outside the measured time."""

    def __init__(self, kind, **options):
        self.kind, self.options = kind, options

    def __enter__(self):
        import op_tools

        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            self.tool = getattr(op_tools, self.kind)(**self.options)
            self.tool.start()
        return self

    def __exit__(self, *exc):
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            self.tool.stop()

    def step(self):
        self.tool.step()


def is_embedded():
    import ditorch

    return ditorch.backend == "host"


def sides(results):
    return {
        "bare": contextlib.nullcontext,
        "empty Python mode": empty_python,
        "empty C mode": empty_c,
        "engine (nothing selected)": lambda: Quiet("OpObserve", list="no.such.operator.*"),
        "observe": lambda: Quiet("OpObserve"),
        "time": lambda: Quiet("OpTimeMeasure"),
        "overflow": lambda: Quiet("OpOverflowCheck"),
        "capture packed": lambda: Quiet("OpCapture", layout="packed", cap_bytes="100TiB", cap_calls=10**9),
        "capture files": lambda: Quiet("OpCapture", layout="files", cap_bytes="100TiB", cap_calls=10**9),
        "torch.profiler": profiler,
        "DebugMode": debug_mode,
    }


def measure(names, rounds, steps, gpu, results):
    step, makers = make_step(gpu), sides(results)
    for _ in range(5):
        step()
    times = {name: [] for name in names}
    for index in range(rounds + 1):
        for name in names if index % 2 == 0 else reversed(names):
            with makers[name]() as side:
                after = getattr(side, "step", None)
                if index == 0:
                    step()
                start = time.perf_counter()
                for _ in range(steps):
                    step()
                    if after:
                        after()
                elapsed = (time.perf_counter() - start) / steps
            if index:
                times[name].append(elapsed)
            shutil.rmtree(os.path.join(results, "op_tools_results", "op_capture_results"), ignore_errors=True)
            for file in os.listdir(results) if os.path.isdir(results) else ():
                if file.endswith(".dpack"):
                    os.unlink(os.path.join(results, file))
    return times


def count_calls(gpu):
    """Calls of torch functions and operator calls (what a tool is shown) of one step."""
    from torch.overrides import TorchFunctionMode

    class Count(TorchFunctionMode):
        calls = 0

        def __torch_function__(self, func, types, args=(), kwargs=None):
            Count.calls += 1
            return func(*args, **(kwargs or {}))

    from ditorch import _C

    step = make_step(gpu)
    step()
    with Count():
        step()
    tool = _C.Tool("observe", {})
    tool.start()
    step()
    tool.stop()
    return Count.calls, tool.counts()["seen"]


def rows_of(times, operators):
    bare = times["bare"]
    rows = []
    for name, values in times.items():
        median, low, high = common.summary(values)
        figure = f"{median * 1e3:.2f} ms ({low * 1e3:.2f}-{high * 1e3:.2f})"
        goal, met = "", ""
        if name != "bare":
            ratio, small, large = common.ratio(values, bare)
            extra = (statistics.median(values) - statistics.median(bare)) / operators * 1e6
            figure = f"{ratio:.2f}x ({small:.2f}-{large:.2f}); {figure}; {extra:.2f} us per operator call"
            if name in GOALS:
                goal, met = f"at most {GOALS[name]}x", common.verdict(ratio <= GOALS[name])
            if name == "engine (nothing selected)" and "empty C mode" in times:
                above, _, _ = common.ratio(values, times["empty C mode"])
                figure += f"; {100 * (above - 1):+.1f} % of the step with an empty C mode"
                goal, met = "at most 5 % above an empty C mode", common.verdict(above <= 1.05)
        rows.append({"what": name, "figure": figure, "goal": goal, "met": met})
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--steps", type=int, default=3, help="steps of one measured block")
    parser.add_argument("--tools", help="comma list; default all")
    parser.add_argument("--gpu", action="store_true", help="the GPU's sizes (default on a real CUDA device)")
    options = parser.parse_args()
    results = tempfile.mkdtemp(prefix="ditorch-step-")
    os.chdir(results)
    import ditorch  # noqa: F401
    import torch

    gpu = options.gpu or not is_embedded()
    if not gpu:
        torch.set_num_threads(1)
    names = list(sides(results))
    if options.tools:
        wanted = options.tools.split(",")
        unknown = [name for name in wanted if name not in names]
        if unknown:
            raise SystemExit(f"unknown: {', '.join(unknown)}; valid: {', '.join(names)}")
        names = ["bare", *[name for name in wanted if name != "bare"]]
    functions, operators = count_calls(gpu)
    rounds = 3 if options.quick else options.rounds
    # The disk is busy long after a capture: those sides are measured apart, beside a bare step of their own.
    heavy = [name for name in names if name.startswith("capture")]
    light = [name for name in names if name not in heavy]
    try:
        rows = rows_of(measure(light, rounds, options.steps, gpu, results), operators) if light != ["bare"] else []
        if heavy:
            beside = rows_of(measure(["bare", *heavy], rounds, options.steps, gpu, results), operators)
            rows += [{**beside[0], "what": "bare, beside capture"}, *beside[1:]]
    finally:
        os.chdir("/")
        shutil.rmtree(results, ignore_errors=True)
    where = torch.cuda.get_device_name(0) if not is_embedded() else "the embedded device, 1 torch thread"
    note = (
        f"{options.rounds} rounds of {options.steps} steps a side on {where}; {functions} calls of torch functions, of "
        f"which {operators} are operators. Ratios to the bare step, round by round."
    )
    common.report("A GPT training step under the tools", "python bench/step.py", rows, note)


if __name__ == "__main__":
    main()
