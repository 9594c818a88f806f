"""One training step under each tool, against the bare step, in one process, in turns.

Two models of fixed sizes. `gpt`, which is bound by the host: D=64, L=4, 4 heads, B=2, T=32 on the embedded device;
D=256, L=8, 8 heads, B=4, T=128 on a GPU; float32, AdamW with foreach=False. `llama`, which keeps a GPU busy: D=2048,
L=6, 16 heads in 4 groups, B=2, T=2048, 32000 tokens on a GPU; D=64, L=2, B=2, T=32 on the embedded device; weights in
bfloat16, AdamW fused. Beside the tools of the GPT: an empty Python mode, an empty C mode, the engine with nothing
selected, torch.profiler and torch's DebugMode. `--tools observe,time` measures some of them.

    python bench/step.py [--model llama] [--tools observe,autocompare] [--reference device]
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


def make_gpt(gpu):
    import torch
    from gpt import GPT

    width, layers, heads, batch, length = (256, 8, 8, 4, 128) if gpu else (64, 4, 4, 2, 32)
    model = GPT(128, length, width, layers, heads).to("cuda")
    tokens = torch.randint(0, 128, (batch, length + 1), device="cuda")
    return model, tokens, torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False)


def make_llama(gpu):
    import torch
    from llama import Llama

    vocabulary, length = (32000, 2048) if gpu else (256, 32)
    sizes = (2048, 6, 16, 4, 5632) if gpu else (64, 2, 4, 2, 176)
    model = Llama(vocabulary, length, *sizes).to("cuda", torch.bfloat16)
    tokens = torch.randint(0, vocabulary, (2, length + 1), device="cuda")
    return model, tokens, torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)


MODELS = {"gpt": make_gpt, "llama": make_llama}
# What is measured when nothing is named.
TOOLS = {
    "gpt": None,
    "llama": ("bare", "observe", "time", "overflow", "capture packed", "autocompare"),
}


def make_step(name, gpu):
    import torch

    torch.manual_seed(0)
    return common.make_training_step(*MODELS[name](gpu))


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

    # Of the last capture: bytes of its tensors, and of those it had not to write again.
    facts: dict = {}

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
        if self.kind == "OpCapture":
            Quiet.facts = self.tool.describe()

    def step(self):
        self.tool.step()


def is_embedded():
    import ditorch

    return ditorch.backend == "host"


def sides(reference=None):
    judged = {"reference": reference} if reference else {}
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
        "autocompare": lambda: Quiet("OpAutoCompare", save=False, rows="none", **judged),
    }


def is_heavy(name):
    """The disk is busy long after a capture, and a comparison takes all cores: measured apart."""
    return name.startswith("capture") or name == "autocompare"


def time_block(step, side, steps, warm):
    """Seconds per step, and those of the first step where one is taken before, else None."""
    first = None
    with side as entered:
        after = getattr(entered, "step", None) or (lambda: None)
        if warm:
            start = time.perf_counter()
            step(), after()
            first = time.perf_counter() - start
        start = time.perf_counter()
        for _ in range(steps):
            step(), after()
        return (time.perf_counter() - start) / steps, first


def measure(step, makers, names, rounds, steps, results):
    """{name: seconds per step by round}. What OpAutoCompare learns in its first step is told apart."""
    times = {name: [] for name in names}
    for index in range(rounds + 1):
        for name in names if index % 2 == 0 else reversed(names):
            elapsed, first = time_block(step, makers[name](), steps, index == 0 or name == "autocompare")
            if index:
                times[name].append(elapsed)
                if name == "autocompare":
                    times.setdefault("autocompare, first step", []).append(first)
            shutil.rmtree(os.path.join(results, "op_tools_results", "op_capture_results"), ignore_errors=True)
    return times


def time_floor(results, size, rounds=5):
    """Seconds that the bytes of one step take when nothing else is done with them: copied once, as a snapshot must be,
    and written to a file by another thread meanwhile. The slower of the two; medians."""
    import torch

    source, target = torch.ones(size, dtype=torch.uint8), torch.empty(size, dtype=torch.uint8)
    content, path = memoryview(source.numpy()), os.path.join(results, "floor")
    copies, writes = [], []
    for _ in range(rounds):
        start = time.perf_counter()
        target.copy_(source)
        copies.append(time.perf_counter() - start)
        start = time.perf_counter()
        with open(path, "wb", buffering=0) as file:
            for begin in range(0, size, 1 << 20):
                file.write(content[begin : begin + (1 << 20)])
        writes.append(time.perf_counter() - start)
        os.unlink(path)
    return statistics.median(copies), statistics.median(writes)


def describe_floor(results, steps, bare, seconds):
    """What a capture of one step wrote, what that takes at least, and the ratio to it."""
    facts = Quiet.facts
    size = max((facts["bytes"] - facts["shared"]) // steps, 1)
    copy, write = time_floor(results, size)
    floor = bare + max(copy, write)
    return (
        f"; {facts['bytes'] / steps / 1e6:.1f} MB of tensors a step, {size / 1e6:.1f} MB written; floor "
        f"{floor * 1e3:.2f} ms (bare + copy {copy * 1e3:.2f} ms or write {write * 1e3:.2f} ms), "
        f"{seconds / floor:.2f}x of it"
    )


def count_calls(step):
    """Calls of torch functions and operator calls (what a tool is shown) of one step."""
    from torch.overrides import TorchFunctionMode

    class Count(TorchFunctionMode):
        calls = 0

        def __torch_function__(self, func, types, args=(), kwargs=None):
            Count.calls += 1
            return func(*args, **(kwargs or {}))

    from ditorch import _C

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


def choose(options):
    """The names of the sides, the bare step first."""
    names = list(sides())
    wanted = options.tools.split(",") if options.tools else TOOLS[options.model]
    if not wanted:
        return [name for name in names if name != "autocompare"]  # bench/act.py measures it on the GPT
    unknown = [name for name in wanted if name not in names]
    if unknown:
        raise SystemExit(f"unknown: {', '.join(unknown)}; valid: {', '.join(names)}")
    return ["bare", *[name for name in wanted if name != "bare"]]


def measure_all(options, gpu, results):
    """The rows of the table, calls of torch functions, operator calls."""
    names, makers, step = choose(options), sides(options.reference), make_step(options.model, gpu)
    for _ in range(5):
        step()
    functions, operators = count_calls(step)
    heavy, light = [name for name in names if is_heavy(name)], [name for name in names if not is_heavy(name)]
    rows = []
    if light != ["bare"]:
        rows += rows_of(measure(step, makers, light, options.rounds, options.steps, results), operators)
    for name in heavy:
        beside = measure(step, makers, ["bare", name], options.heavy_rounds, options.heavy_steps, results)
        more = rows_of(beside, operators)
        if name.startswith("capture"):
            bare, mine = (statistics.median(beside[key]) for key in ("bare", name))
            more[1]["figure"] += describe_floor(results, options.heavy_steps, bare, mine)
        rows += [{**more[0], "what": f"bare, beside {name}"}, *more[1:]]
    return rows, functions, operators


def make_parser():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=list(MODELS), default="gpt")
    parser.add_argument("--quick", action="store_true", help="three rounds")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--steps", type=int, default=3, help="steps of one measured block")
    parser.add_argument(
        "--heavy-rounds", type=int, help="of capture and autocompare; default: --rounds, or 3 on a GPU's llama"
    )
    parser.add_argument("--tools", help="comma list; default all")
    parser.add_argument("--reference", choices=["cpu", "device"], help="autocompare's option of this name")
    parser.add_argument("--gpu", action="store_true", help="the GPU's sizes (default on a real CUDA device)")
    return parser


def main():
    options = make_parser().parse_args()
    results = tempfile.mkdtemp(prefix="ditorch-step-")
    os.chdir(results)
    import ditorch  # noqa: F401
    import torch

    gpu = options.gpu or not is_embedded()
    if not gpu:
        torch.set_num_threads(1)
    options.rounds = 3 if options.quick else options.rounds
    large = gpu and options.model == "llama"
    options.heavy_rounds = options.heavy_rounds or (min(3, options.rounds) if large else options.rounds)
    options.heavy_steps = 1 if large else options.steps
    try:
        rows, functions, operators = measure_all(options, gpu, results)
    finally:
        os.chdir("/")
        shutil.rmtree(results, ignore_errors=True)
    where = torch.cuda.get_device_name(0) if not is_embedded() else "the embedded device, 1 torch thread"
    note = (
        f"{options.rounds} rounds of {options.steps} steps a side on {where}; {functions} calls of torch functions, of "
        f"which {operators} are operators. Ratios to the bare step, round by round."
    )
    if any(is_heavy(row["what"]) for row in rows) and large:
        note += f" Capture and autocompare: {options.heavy_rounds} rounds of {options.heavy_steps} step."
    title = "A GPT training step under the tools" if options.model == "gpt" else "A Llama training step under the tools"
    words = "".join(
        f" --{key} {value}"
        for key, value in (("model", options.model), ("reference", options.reference))
        if value not in (None, "gpt")
    )
    common.report(title, f"python bench/step.py{words}", rows, note)


if __name__ == "__main__":
    main()
