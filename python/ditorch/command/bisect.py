"""`ditorch bisect`: the smallest set of operators that must leave the device for a run to be right."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import re
import shlex
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from ..worker_pool import PoolError, add_ray_option
from .guard import say
from .parser import Parser
from .run import USAGE, find_program
from .tree import Head

EXAMPLES = [
    ("ditorch bisect --metric 'loss<2.5' -- train.py", "which operator keeps the loss above 2.5?"),
    ("ditorch bisect --ref cpu --metric loss train.py", "which makes it differ from the CPU's?"),
    ("ditorch bisect --check './score.sh' -- torchrun --nproc-per-node 2 train.py", "your own judge"),
    ("ditorch bisect train.py", "the program crashes: which operator does it?"),
    ("ditorch bisect --how float32 --metric 'finite(loss)' train.py", "which operator needs float32?"),
    ("ditorch bisect --metric 'step_time<0.2' --repeat 3 train.py", "which one is slow?"),
]
EXITS = {
    0: "nothing to find: the run is good",
    1: "found: the block names the operators",
    2: "wrong use, or the program cannot be opened",
    3: "still wrong with every operator on the CPU: no operator of the device is at fault",
    130: "Ctrl-C: the same command goes on where it ended",
}


REFERENCES = (
    "accepted: a file with the output of a right run, a folder of `ditorch run` (the losses that backward() was "
    "called of), a folder of a bisection's run, or cpu"
)


class Plan(NamedTuple):
    """What `drive` needs; the names of the other commands' plans."""

    options: argparse.Namespace
    program: list[str]
    is_command: bool
    command: str


def make_parser() -> Parser:
    parser = Parser(
        "ditorch bisect",
        "Run a program again and again, with other operators on the CPU each time, until the smallest set is known "
        "that must be there for the run to be right; then which of its calls. A run is right by --metric, --check or "
        "--ref; without them, when it ends with status 0. Finished runs are remembered.",
        usage=USAGE.format("bisect"),
        examples=EXAMPLES,
        exits=EXITS,
    )
    add = parser.add_argument
    add(
        *("--metric",),
        default="",
        metavar="CONDITION",
        help="about numbers that the program prints as 'name value', 'name=value' or 'name: value' (the last one "
        "counts): 'loss<2.5 and finite(grad)'; with --ref names alone: loss,accuracy. step_time and seconds are known",
    )
    add("--pattern", default="", metavar="REGEX", help="finds the number in the output: one group, or (?P<name>...)")
    add("--result", default="", metavar="NAME", help="the metric is what this function returns: module:function")
    add("--check", default="", metavar="CMD", help="judge of a run: gets its output; status 0 right, 125 cannot tell")
    add("--ref", default="", metavar="RUN", help="a right run: a file with its output, a "
        "folder of `ditorch run` (its losses) or of a bisection's run, or cpu")  # fmt: skip
    add("--within", default="1%", metavar="PART", help="how far from --ref is right: 1%% (the default), 0 for equal")
    add("--how", choices=("cpu", "float32"), default="cpu", help="where operators go (default cpu)")
    add("--by", choices=("auto", "control", "tool"), default="auto", help="what moves them: the device's own control "
        "(force_fallback, the embedded device has it) or op_tools; auto takes the first that works")  # fmt: skip
    add("--depth", choices=("name", "signature", "module", "call"), default="call", help="how far to narrow it down")
    add("--repeat", type=int, default=1, metavar="N", help="the majority of N runs, for metrics that are not stable")
    add_ray_option(add)
    add("--timeout", type=float, default=0.0, metavar="S", help="a run that takes longer is wrong")
    add("--include", default="", metavar="GLOBS", help="suspect only these: 'addmm,aten::*norm*'")
    add("--exclude", default="", metavar="GLOBS", help="but not these")
    add("--step-marker", default="", metavar="NAME", help="as of `ditorch run`")
    add("--out", default="", metavar="DIR", help="what is remembered (default: a folder below ditorch_runs)")
    add("--fresh", action="store_true", help="forget what is remembered")
    add("--json", action="store_true", help="the answer as one JSON object on standard output")
    return parser


def parse(before: list[str], program: list[str]) -> Plan:
    """SystemExit for wrong use."""
    parser = make_parser()
    options = parser.parse_args(before)
    if options.repeat < 1:
        parser.error(f"--repeat {options.repeat}: at least 1")
    if options.check and (options.metric or options.ref or options.result):
        parser.error("--check judges alone: leave out --metric, --ref and --result")
    if (options.pattern or options.result) and not options.metric:
        parser.error("--pattern and --result say where a number is; --metric says what is right, such as 'loss<2.5'")
    match = re.fullmatch(r"(\d+(?:\.\d+)?(?:[eE]-?\d+)?)(%?)", options.within)
    if not match:
        parser.error(f"--within {options.within!r}: expected a part, such as 1%, 0.01 or 0")
    options.within = float(match[1]) / (100 if match[2] else 1)
    words, is_command = find_program(parser, program)
    try:
        options.question = _make_question(options)
    except ValueError as error:
        parser.error(str(error))
    return Plan(options, words, is_command, " ".join(map(shlex.quote, words)))


def _make_question(options: argparse.Namespace) -> Any:
    from ..bisect.metric import Condition, MetricError, compile_pattern
    from ..bisect.runner import Question

    question = Question(check=options.check, within=options.within, result=options.result)
    if options.ref:
        question.names = [name.strip() for name in (options.metric or "loss").split(",") if name.strip()]
        if bad := [name for name in question.names if not re.fullmatch(r"[\w./ -]+", name)]:
            raise MetricError(f"--metric {bad[0]!r}: with --ref only names, such as loss,accuracy")
    elif options.metric:
        question.condition = Condition(options.metric)
        question.names = question.condition.names
    if options.result and len(question.names) != 1:
        raise MetricError(f"--result gives one number; --metric has {len(question.names)} names")
    if options.pattern:
        question.pattern = compile_pattern(options.pattern, question.names)
    if options.ref and options.ref != "cpu":
        question.reference = _read_reference(options.ref, question)
    return question


def _read_reference(path: str, question: Any) -> dict[str, list[float]]:
    from ..bisect.metric import MetricError, read_values
    from ..bisect.runner import read_end

    if os.path.isdir(path) and not os.path.exists(os.path.join(path, "stdout.txt")):
        return _read_run(path, question)
    file = os.path.join(path, "stdout.txt") if os.path.isdir(path) else path
    try:
        values = read_values(read_end(file), question.names, question.pattern)
    except OSError as error:
        raise MetricError(f"--ref {path!r} cannot be read: {error.strerror}; {REFERENCES}") from None
    missing = [name for name, numbers in values.items() if not numbers]
    if missing:
        raise MetricError(f"--ref {path!r} has no value of {missing[0]!r}")
    return values


def _read_run(path: str, question: Any) -> dict[str, list[float]]:
    """The losses that `ditorch run` noted, of its first process; the runs are judged by theirs."""
    from ..bisect.metric import MetricError
    from ..effect import from_bits
    from .run import read_runs

    try:
        runs = read_runs(path)
        losses = [from_bits(text) for run in runs[:1] for text in run.get("losses") or ()]
    except (OSError, ValueError, TypeError) as error:
        raise MetricError(f"--ref {path!r} cannot be read: {error}; {REFERENCES}") from None
    if not runs:
        raise MetricError(f"--ref {path!r} has no output of a right run in it; {REFERENCES}")
    if not losses:
        raise MetricError(f"--ref {path!r} has no loss: its program called no backward() of a number; {REFERENCES}")
    if question.names != ["loss"] or question.pattern or question.result:
        raise MetricError(f"--ref {path!r} has the losses of a run alone: leave out --pattern and --result, and give "
                          "--metric loss, or the output of the run as a file")  # fmt: skip
    question.is_noted = True
    return {"loss": losses}


def describe(plan: Plan) -> dict[str, Any]:
    """What makes two bisections the same."""
    options = plan.options
    names = ("metric", "pattern", "result", "check", "ref", "within", "how", "by", "repeat", "timeout", "include")
    about = {name: getattr(options, name) for name in (*names, "exclude", "step_marker")}
    sums = {}
    for word in plan.program:
        if os.path.isfile(word) and os.path.getsize(word) < 64 << 20:
            with open(word, "rb") as file:
                sums[word] = hashlib.sha256(file.read()).hexdigest()[:16]
    return {**about, "command": plan.command, "folder": os.getcwd(), "files": sums}


def drive(plan: Plan, head: Head) -> int:
    """The exit status."""
    from ..bisect.answer import EXITS as STATUS
    from ..bisect.answer import format_answer, make_json
    from ..bisect.hunt import Hunt, Wish
    from ..bisect.state import BASE, State, make_name

    options, about = plan.options, describe(plan)
    folder = options.out or os.path.join(BASE, make_name(about))
    try:
        state = State(folder, about, options.fresh)
    except (ValueError, OSError) as error:
        say(str(error))
        return 2
    if state.runs:
        say(f"{len(state.runs)} finished runs are remembered in {folder} (--fresh forgets them)")
    wish = Wish(
        options.how,
        options.by,
        options.depth,
        options.repeat,
        _split(options.include),
        _split(options.exclude),
        options.ref == "cpu",
    )
    try:
        with _open_runner(plan, head, state.folder) as runner:
            runner.timeout, runner.step_marker = options.timeout, options.step_marker
            answer = Hunt(runner, state, wish, _tell).find()
    except (ValueError, PoolError) as error:
        say(str(error))
        return 2
    if options.json:
        print(json.dumps(make_json(answer, plan.command, options.how, folder), indent=1, allow_nan=False))
    else:
        print(format_answer(answer, plan.command, options.how, folder))
    return STATUS[answer.kind]


@contextlib.contextmanager
def _open_runner(plan: Plan, head: Head, folder: str) -> Iterator[Any]:
    from ..bisect.runner import Runner

    about = plan.program, plan.is_command, plan.options.question, head, folder
    if not plan.options.ray:
        yield Runner(*about)
        return
    from ..bisect.cluster import ClusterRunner, open_runs

    with open_runs(plan.options.ray) as pool:
        yield ClusterRunner(pool, *about)


def _split(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
