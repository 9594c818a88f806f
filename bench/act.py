"""One training step of a GPT under each tool that acts, next to a plain script that does the same work by hand.

The step is that of bench/step.py (in bfloat16 for the cast). By hand means a Python torch-function mode that does what
the tool cannot avoid and nothing else. OpFallback: copies to the CPU, the operator there, copies back. OpDtypeCast:
casts of what goes in and out, write-back of in-place results. OpAutoCompare: copies of inputs and results to the CPU,
the operator there in the dtypes of the tool's maps, its backward by torch.autograd.grad. No names, lists, logs, checks
or comparisons. The floor of the cast has no Python in it: the step in float32, plus a loop over the casts of one step.
`--tools fallback,cast` measures some of them.
"""

import argparse
import contextlib
import functools
import os
import shutil
import sys
import tempfile
import time

import common
import step as bench_step

sys.path.insert(0, os.path.join(common.ROOT, "examples"))

GOALS = {"fallback": 1.3, "autocompare": 1.3, "cast": 1.6}
CLASSES = {"fallback": "OpFallback", "autocompare": "OpAutoCompare", "cast": "OpDtypeCast"}


def make_cast_step(gpu):
    """The step of bench/step.py with weights in bfloat16."""
    import torch
    from gpt import GPT

    width, layers, heads, batch, length = (256, 8, 8, 4, 128) if gpu else (64, 4, 4, 2, 32)
    torch.manual_seed(0)
    model = GPT(128, length, width, layers, heads).to("cuda", torch.bfloat16)
    tokens = torch.randint(0, 128, (batch, length + 1), device="cuda")
    return common.make_training_step(model, tokens, torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False))


# By hand


@functools.cache
def name_of(function):
    import torch

    return torch.overrides.resolve_name(function) or ""


@functools.cache
def computes(function):
    """Not a getter, a view or a transfer: an operator whose values matter."""
    from op_tools.dtype_cast import is_cast

    name = name_of(function)
    never = ("backward", "numel", "size", "dim", "stride", "is_floating_point", "item", "__len__", "__hash__")
    is_getter = name.endswith(("__get__", "__set__"))
    return bool(name) and not is_getter and is_cast(name) and name.rpartition(".")[2] not in never


def on_device(args, kwargs):
    import torch
    from torch.utils._pytree import tree_leaves

    return any(isinstance(x, torch.Tensor) and x.device.type != "cpu" for x in tree_leaves((args, kwargs)))


def is_inplace(function):
    last = name_of(function).rpartition(".")[2]
    return last == "__setitem__" or (last.endswith("_") and not last.endswith("__"))


def is_basic_index(function, args):
    kinds = (int, slice, type(None), type(Ellipsis))
    if not name_of(function).endswith(("__getitem__", "__setitem__")):
        return False
    return all(isinstance(x, kinds) for x in (args[1] if isinstance(args[1], tuple) else (args[1],)))


def by_hand(work):
    """A torch-function mode around `work(func, args, kwargs)`."""
    from torch.overrides import TorchFunctionMode

    class ByHand(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            kwargs = kwargs or {}
            if not computes(func) or is_basic_index(func, args):
                return func(*args, **kwargs)
            return work(func, args, kwargs)

    return ByHand()


def map_tensors(function, tree):
    """The few containers that the step uses."""
    import torch

    if isinstance(tree, torch.Tensor):
        return function(tree)
    if type(tree) in (tuple, list):
        return type(tree)(map_tensors(function, x) for x in tree)
    if type(tree) is dict:
        return {key: map_tensors(function, x) for key, x in tree.items()}
    return tree


def fallback_by_hand(func, args, kwargs):
    if not on_device(args, kwargs):
        return func(*args, **kwargs)
    cpu_args, cpu_kwargs = (map_tensors(lambda t: t.cpu(), x) for x in (args, kwargs))
    result = func(*cpu_args, **cpu_kwargs)
    if is_inplace(func):
        return args[0].copy_(cpu_args[0])
    return map_tensors(lambda t: t.to("cuda"), result)


def cast_by_hand(func, args, kwargs, casts=None):
    """`casts`: a list for (tensor, method) of every cast, those that the backward will do included."""
    import torch

    cast = False

    def note(tensor, there, back):
        if casts is not None:
            casts.append((tensor.detach(), there))
            if tensor.requires_grad and torch.is_grad_enabled():
                casts.append((there(tensor.detach()), back))

    def widen(tensor):
        nonlocal cast
        if tensor.dtype is torch.bfloat16:
            cast = True
            note(tensor, torch.Tensor.float, torch.Tensor.bfloat16)
            return tensor.float()
        return tensor

    def narrow(tensor):
        if tensor.dtype is torch.float32:
            note(tensor, torch.Tensor.bfloat16, torch.Tensor.float)
            return tensor.bfloat16()
        return tensor

    wide_args, wide_kwargs = (map_tensors(widen, x) for x in (args, kwargs))
    result = func(*wide_args, **wide_kwargs)
    if not cast:
        return result
    if is_inplace(func):
        note(wide_args[0].detach(), torch.Tensor.bfloat16, torch.Tensor.float)
        return args[0].copy_(wide_args[0])
    return map_tensors(narrow, result)


@functools.cache
def reference_dtype(function):
    """float64 for the operators that the tool's default maps name, else as it is."""
    import torch

    names = ("linear", "embedding", "normalize", "norm", "cross_entropy", "mul", "matmul")
    return torch.float64 if name_of(function).rpartition(".")[2].rstrip("_") in names else None


def compare_by_hand(func, args, kwargs):
    import torch

    if not on_device(args, kwargs):
        return func(*args, **kwargs)
    dtype = reference_dtype(func)
    leaves = []

    def copy(tensor):
        twin = tensor.detach().cpu()
        if dtype is not None and twin.is_floating_point():
            twin = twin.to(dtype)
        if tensor.requires_grad and torch.is_grad_enabled():
            leaves.append(twin.requires_grad_())
        return twin

    cpu_args, cpu_kwargs = (map_tensors(copy, x) for x in (args, kwargs))
    inplace = is_inplace(func)
    result = func(*args, **kwargs)
    if inplace and leaves:
        cpu_args = (cpu_args[0].clone(), *cpu_args[1:])
    reference = func(*cpu_args, **cpu_kwargs)
    map_tensors(lambda t: t.detach().cpu(), result)
    if leaves and isinstance(result, torch.Tensor) and result.requires_grad and reference.requires_grad:

        def differentiate(gradient):
            cpu = gradient.cpu().to(reference.dtype)
            torch.autograd.grad(reference, leaves, cpu, allow_unused=True)

        result.register_hook(differentiate)
    return result


WORK = {"fallback": fallback_by_hand, "autocompare": compare_by_hand, "cast": cast_by_hand}


# Measurement


def sides(tool):
    options = {"max_findings": 0, "save": 0} if tool == "autocompare" else {}
    return {
        "bare": contextlib.nullcontext,
        "by hand": lambda: by_hand(WORK[tool]),
        tool: lambda: bench_step.Quiet(CLASSES[tool], **options),
    }


def make_floor(step, gpu):
    """The step in float32, then every cast of one step by hand."""
    casts = []
    with by_hand(functools.partial(cast_by_hand, casts=casts)):
        step()
    plain = bench_step.make_step("gpt", gpu)

    def floor():
        plain()
        for tensor, method in casts:
            method(tensor)

    return floor


def measure(tool, rounds, steps, gpu):
    """{side: [seconds per step]}; the sides in turns."""
    step = make_cast_step(gpu) if tool == "cast" else bench_step.make_step("gpt", gpu)
    makers = sides(tool)
    for _ in range(3):
        step()
    works = dict.fromkeys(makers, step)
    if tool == "cast":
        makers = {"bare": makers["bare"], "floor": contextlib.nullcontext, **makers}
        works["floor"] = make_floor(step, gpu)
    times = {name: [] for name in makers}
    for index in range(rounds + 1):
        for name in makers if index % 2 == 0 else reversed(makers):
            with makers[name]() as side:
                after = getattr(side, "step", None) if name == tool else None
                work = works[name]
                if index == 0:
                    work()
                start = time.perf_counter()
                for _ in range(steps):
                    work()
                    if after:
                        after()
                elapsed = (time.perf_counter() - start) / steps
            if index:
                times[name].append(elapsed)
    return times


def rows_of(tool, times):
    rows = []
    for name, values in times.items():
        median, low, high = (figure * 1e3 for figure in common.summary(values))
        figure = f"{median:.2f} ms ({low:.2f}-{high:.2f})"
        goal, met = "", ""
        if name != "bare":
            ratio, small, large = common.ratio(values, times["bare"])
            figure = f"{figure}; {ratio:.2f}x bare ({small:.2f}-{large:.2f})"
        if name == tool:
            ratio, small, large = common.ratio(values, times["by hand"])
            figure = f"{ratio:.2f}x by hand ({small:.2f}-{large:.2f}); {figure}"
            goal, met = f"at most {GOALS[tool]}x by hand", common.verdict(ratio <= GOALS[tool])
            if "floor" in times:
                above, _, _ = common.ratio(values, times["floor"])
                figure = f"{figure}; {above:.2f}x the floor"
        rows.append(
            {"what": name if name == tool else f"{name}, for {tool}", "figure": figure, "goal": goal, "met": met}
        )
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=2, help="steps of one measured block")
    parser.add_argument("--tools", help=f"comma list of {', '.join(GOALS)}; default all")
    parser.add_argument("--gpu", action="store_true", help="the GPU's sizes (default on a real CUDA device)")
    options = parser.parse_args()
    names = options.tools.split(",") if options.tools else list(GOALS)
    unknown = [name for name in names if name not in GOALS]
    if unknown:
        raise SystemExit(f"unknown: {', '.join(unknown)}; valid: {', '.join(GOALS)}")
    results = tempfile.mkdtemp(prefix="ditorch-act-")
    os.chdir(results)
    import ditorch  # noqa: F401
    import torch

    gpu = options.gpu or not bench_step.is_embedded()
    if not gpu:
        torch.set_num_threads(1)
    rounds = 3 if options.quick else options.rounds
    rows = []
    try:
        for name in names:
            rows += rows_of(name, measure(name, rounds, options.steps, gpu))
    finally:
        os.chdir("/")
        shutil.rmtree(results, ignore_errors=True)
    where = torch.cuda.get_device_name(0) if not bench_step.is_embedded() else "the embedded device, 1 torch thread"
    note = (
        f"{rounds} rounds of {options.steps} steps a side on {where}; ratios round by round. `by hand` is a Python "
        "torch-function mode that does only the copies, casts and CPU operators that the tool cannot avoid. It pays "
        "Python's price for every call of a torch function (bench/step.py measures an empty one), which the tool, in "
        "C, does not: the ratio to the bare step says what the tool costs in all. The floor of the cast is the step in "
        "float32 plus the casts of one step in a loop, those of the backward included."
    )
    common.report("A GPT training step under the tools that act", "python bench/act.py", rows, note)


if __name__ == "__main__":
    main()
