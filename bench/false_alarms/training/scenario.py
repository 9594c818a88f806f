"""The list of scenarios, and how one is run.

A network is a function(wrap) that gives a model and a function for its loss; `wrap` puts checkpointing around a part of
it. It is trained in every autocast with every checkpointing, and without checkpointing once more at level aten. A call
is a function(dtype) that is run as it is, in each of its dtypes and levels. Names are
`network/autocast/checkpointing/level` and `call/dtype/level`; all of them can be chosen by --filter.

On the embedded device and on a real GPU alike: everything is asked of "cuda".
"""

import contextlib
import dataclasses
import os
import sys
import time
import warnings
from collections.abc import Callable

import torch
from torch.utils.checkpoint import checkpoint

from false_alarms.tally import Tally, limited

DEVICE = "cuda"
AUTOCASTS = {
    "none": (None, None),
    "float16-1024": (torch.float16, 1024.0),
    "float16-65536": (torch.float16, 65536.0),
    "bfloat16": (torch.bfloat16, None),
}
"""Name: dtype, and the scale that GradScaler begins with."""
CHECKPOINTS = ("none", "plain", "reentrant")
FLOATS = ("float32", "bfloat16", "float16")
LEVELS = ("torch", "aten")


@dataclasses.dataclass
class Scenario:
    name: str
    group: str
    level: str
    run: Callable  # function(tool, steps)


NETWORKS, CALLS = {}, {}


def network(make):
    """Adds function(wrap) -> (model, function that gives the loss)."""
    NETWORKS[make.__name__] = make
    return make


def call(dtypes=FLOATS, levels=LEVELS):
    """Adds function(dtype), run under the tool; what it yields first is made before the tool is on."""

    def add(function):
        CALLS[function.__name__] = (function, dtypes, levels)
        return function

    return add


def get_group(function):
    """The module that it is written in."""
    return function.__module__.rpartition(".")[2]


def list_scenarios():
    found = []
    for name, make in NETWORKS.items():
        for autocast in AUTOCASTS:
            for kind in CHECKPOINTS:
                for level in LEVELS if kind == "none" else LEVELS[:1]:
                    run = make_training(make, *AUTOCASTS[autocast], kind)
                    found.append(Scenario(f"{name}/{autocast}/{kind}/{level}", get_group(make), level, run))
    for name, (function, dtypes, levels) in CALLS.items():
        for dtype in dtypes:
            for level in levels:
                run = make_call(function, dtype)
                found.append(Scenario(f"{name}/{dtype}/{level}", get_group(function), level, run))
    return found


# One scenario


def make_wrap(kind):
    """Checkpointing of a part: function -> function."""

    def wrap(function):
        if kind == "none":
            return function

        def run(*args):
            if kind == "reentrant" and not any(isinstance(x, torch.Tensor) and x.requires_grad for x in args):
                args = [x.detach().requires_grad_() if is_floating(x) else x for x in args]
            return checkpoint(function, *args, use_reentrant=kind == "reentrant")

        return run

    return wrap


def is_floating(value):
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def make_training(make, dtype, scale, kind):
    def run(tool, steps):
        model, loss = make(make_wrap(kind))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
        scaler = torch.amp.GradScaler(DEVICE, init_scale=scale or 1.0, enabled=scale is not None)
        with tool:
            for _ in range(steps):
                with torch.autocast(DEVICE, dtype or torch.bfloat16, enabled=dtype is not None):
                    value = loss()
                scaler.scale(value).backward()
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()

    return run


def make_call(function, dtype):
    def run(tool, _):
        steps = function(getattr(torch, dtype))
        if steps is None:
            raise TypeError(f"{function.__name__} must yield once, when its data is made")
        next(steps)
        with tool:
            next(steps, None)

    return run


# All of them


def run_scenario(scenario, options):
    """A Tally of all seeds, and why it could not be run to its end, if so."""
    from op_tools import OpAutoCompare

    tally, problem = Tally(), ""
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        folder = os.path.join(options.tool["results"], f"{len(options.rows)}-{seed}")
        torch.manual_seed(seed)
        tool = OpAutoCompare(**{**options.tool, "level": scenario.level, "results": folder, "rows": "all"})
        try:
            with limited(120), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                scenario.run(tool, options.steps)
        except Exception as error:  # what this device or the CPU does not have
            problem = f"{type(error).__name__}: {str(error).splitlines()[0][:160] if str(error) else ''}"
        if tool.describe():
            tally.add(tool, f"{scenario.name} seed {seed}")
            tally.add_undecided(folder)
    return tally, problem


def run_training(options, tally):
    wanted = [scenario for scenario in list_scenarios() if options.filter in scenario.name]
    wanted = wanted[options.shard :: options.shards]
    if not wanted:
        raise SystemExit(f"no scenario has '{options.filter}' in its name, as {list_scenarios()[0].name} has it")
    begin = time.monotonic()
    for number, scenario in enumerate(wanted):
        if options.time and time.monotonic() - begin > options.time:
            options.notes.append(
                f"{len(wanted) - number} of {len(wanted)} scenarios not started within {options.time} s"
            )
            break
        with contextlib.redirect_stderr(open(os.devnull, "w")) if not options.progress else contextlib.nullcontext():
            start = time.monotonic()
            own, problem = run_scenario(scenario, options)
        tally.merge(own)
        options.rows.append(
            {
                "scenario": scenario.name,
                "group": scenario.group,
                "comparisons": own.compared,
                "accusations": own.accusations,
                "not_compared": own.not_compared,
                "undecided": own.undecided,
                "seconds": round(time.monotonic() - start, 2),
                "problem": problem,
                "accused": own.accused,
            }
        )
        if options.progress and number % 50 == 49:
            print(f"{number + 1} of {len(wanted)} scenarios, {tally.compared} comparisons", file=sys.stderr, flush=True)
