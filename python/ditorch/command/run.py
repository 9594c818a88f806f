"""`ditorch run`: a program, unchanged, on the device that is there, with tools on it.

A script, module or code runs in this process; a command behind `--` (torchrun, a shell script) as a child, whose
processes of Python find ditorch and the tools by their environment.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import time
from typing import Any, NamedTuple

from .. import effect, findings, launch
from .guard import say
from .parser import INTERRUPTED, Parser
from .spec import TOOLS, Spec, SpecError, check_count, check_ranges, parse_budget, parse_option, parse_tools
from .tree import Head

EXAMPLES = [
    ("ditorch run train.py --lr 0.1", "the program alone; the word run may be left out"),
    ("ditorch run --tool autocompare,time train.py", "which operators are wrong, which take the time?"),
    ("ditorch run --tool autocompare --steps 10-12 --include 'torch.nn.*' train.py", "some steps, some operators"),
    ("ditorch run --tool nan --ranks 0 -- torchrun --nproc-per-node 2 train.py", "a launcher; one of its ranks"),
    ("DITORCH_TOOLS=time python -m ditorch train.py", "by the environment"),
]
EXITS = {
    0: "the program's own exit status passes through",
    1: "with --check: the program ended well, and a tool found something",
    2: "wrong use, or the program cannot be opened",
}
USAGE = (
    "ditorch {0} [options] script.py | -m module | -c code | - [arguments]\n"
    "       ditorch {0} [options] -- COMMAND [arguments]"
)


NEED_TOOL = (
    *("steps", "every", "ranks", "include", "exclude", "out", "step_marker", "option", "budget", "stop"),
    *("check", "baseline", "junit", "json", "report"),
)
"""Options that mean nothing without one."""


class Plan(NamedTuple):
    """`is_command`: the program is no Python that runs in this process."""

    spec: Spec
    program: list[str]
    is_command: bool
    check: bool
    verb: str = "run"


def add_selection(parser: Parser) -> None:
    """What `run` and `nan` have in common."""
    add = parser.add_argument
    add("--steps", default="", metavar="STEPS", help="steps to look at: 10-12,20 or 100- (0 is the first)")
    add("--every", default="", metavar="N", help="of those every Nth step, from step 0: 1000")
    add("--ranks", default="", metavar="RANKS", help="ranks of a distributed program to look at: 0,2-3")
    add("--include", default="", metavar="GLOBS", help="only these operators: 'torch.nn.*' or re:EXPRESSION")
    add("--exclude", default="", metavar="GLOBS", help="but not these")
    add("--out", default="", metavar="DIR", help="results (default: a new folder below ditorch_runs)")
    add("--report", action="store_true", help="write report.html into the results at the end")
    add(
        *("--baseline",),
        action="store_true",
        help="run the program once more, before and without tools: what did they change (time, losses, memory)?",
    )
    add("--json", default="", metavar="FILE", help="the summary at the end as one JSON object, over all ranks")
    add(
        *("--step-marker",),
        default="",
        metavar="NAME",
        help="a step ends when this function returns: module:function, such as torch:Tensor.backward (default: the "
        "first optimizer's step)",
    )
    add(
        *("--option",),
        action="append",
        default=[],
        metavar="TOOL.NAME=VALUE",
        help="any option of a tool; `ditorch options TOOL` lists them",
    )


def make_parser() -> Parser:
    parser = Parser(
        "ditorch run",
        "Run a PyTorch program written for CUDA, unchanged, on the device that is there; --tool puts tools on it. "
        "Everything behind the program is the program's.",
        usage=USAGE.format("run"),
        examples=EXAMPLES,
        exits=EXITS,
    )
    names = "; ".join(f"{name}: {text}" for name, (_, text) in TOOLS.items())
    parser.add_argument("--tool", default="", metavar="NAMES", help=f"tools, separated by commas. {names}")
    add_selection(parser)
    add = parser.add_argument
    add("--budget", default="", metavar="SIZE|%%", help="most bytes to save (2GiB), or share of the time (5%%)")
    add("--stop", action="store_true", help="end the program at the first finding of autocompare or nan")
    add("--check", action="store_true", help="exit status 1 when a tool found something")
    add("--junit", default="", metavar="FILE", help="what was found as JUnit XML, a test per tool and rank")
    return parser


def make_spec(options: argparse.Namespace, tools: list[str]) -> Spec:
    """SpecError says what cannot be meant."""
    spec = Spec(tools=tools, out=os.path.abspath(options.out) if options.out else "", step_marker=options.step_marker)
    spec.report, spec.baseline = options.report, options.baseline
    spec.json = os.path.abspath(options.json) if options.json else ""
    spec.steps, spec.ranks = check_ranges("--steps", options.steps), check_ranges("--ranks", options.ranks)
    spec.every = check_count("--every", options.every)
    spec.include, spec.exclude = options.include, options.exclude
    for text in options.option:
        tool, name, value = parse_option(text)
        spec.options.setdefault(tool, {})[name] = value
    return spec


def find_program(parser: Parser, words: list[str]) -> tuple[list[str], bool]:
    """The program's words, and whether it is a command rather than a Python program."""
    explicit = words[:1] == ["--"]
    words = words[1:] if explicit else words
    if not words:
        parser.error("nothing to run: give a script, -m module or -c code")
    if words[0] in ("-m", "-c") and len(words) < 2:
        parser.error(f"argument expected for the {words[0]} option")
    first = words[0]
    is_python = first.startswith("-") or first.endswith(".py") or os.path.isdir(first)
    command = launch.find_command(first) if explicit and not is_python else None
    return [command or first, *words[1:]], command is not None


def parse(before: list[str], program: list[str]) -> Plan:
    """SystemExit for wrong use."""
    parser = make_parser()
    options = parser.parse_args(before)
    try:
        spec = make_spec(options, parse_tools(options.tool))
        parse_budget(options.budget)
    except SpecError as error:
        parser.error(str(error))
    spec.budget, spec.stop = options.budget, options.stop
    spec.junit = os.path.abspath(options.junit) if options.junit else ""
    unused = [f"--{name.replace('_', '-')}" for name in NEED_TOOL if getattr(options, name)]
    if unused and not spec.tools and not os.environ.get("DITORCH_TOOLS"):
        parser.error(f"{', '.join(unused)} belongs to --tool, such as --tool autocompare")
    words, is_command = find_program(parser, program)
    spec.command = " ".join(map(shlex.quote, words))
    return Plan(spec, words, is_command, options.check)


# Children


def make_environment(spec: Spec, head: Head) -> dict[str, str]:
    """For a child and all of its processes: torch finds ditorch as a backend that loads itself."""
    from .. import _C

    folder = os.path.join(spec.out, "path")
    about = os.path.join(folder, "ditorch_run-0.dist-info")
    os.makedirs(about, exist_ok=True)
    with open(os.path.join(about, "METADATA"), "w", encoding="utf-8") as file:
        file.write("Metadata-Version: 2.1\nName: ditorch-run\nVersion: 0\n")
    with open(os.path.join(about, "entry_points.txt"), "w", encoding="utf-8") as file:
        file.write("[torch.backends]\nditorch_run = ditorch:_autoload\n")
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    paths = [folder, package, *filter(None, [os.environ.get("PYTHONPATH")])]
    names = {row["name"]: row["environment"] for row in _C.options()}
    values = {names[name]: value for name, value in head.options.items() if name in names}
    if head.config:
        values["DITORCH_CONFIG"] = os.path.abspath(head.config)
    more = spec.to_environment() if spec.tools or spec.probe else {}
    return {**os.environ, **values, "PYTHONPATH": os.pathsep.join(paths), "DITORCH_AUTOLOAD": "1", **more}


def spawn(plan: Plan, head: Head) -> int:
    """Run a command, wait for it, and tell what its processes found."""
    from op_tools import program

    spec = plan.spec
    spec.out = spec.out or program.make_folder()
    os.makedirs(spec.out, exist_ok=True)
    if spec.baseline:
        run_baseline(plan, head)
    spec.quiet = True
    try:
        child = subprocess.Popen(plan.program, env=make_environment(spec, head))
    except OSError as error:
        say(f"{plan.program[0]!r} cannot be started: {error.strerror}")
        return 2
    status = _wait(child)
    if not spec.tools:
        return status
    runs = read_runs(spec.out)
    tell_runs(runs, spec.out)
    write_files(spec, runs, status)
    if spec.report and runs:
        write_report(spec.out)
    found = any(run["findings"] for run in runs)
    return 1 if found and ((plan.check and not status) or plan.verb == "nan") else status


def write_files(spec: Spec, runs: list[dict[str, Any]], status: int, text: str = "") -> None:
    """For --junit and --json."""
    if spec.junit:
        from .junit_run import write_junit

        write_junit(spec.junit, runs, spec.command, status, text)
    if spec.json:
        from .summary_json import write_summary

        write_summary(spec.json, runs, spec.command, spec.out, status, text)


def write_report(folder: str) -> None:
    """For --report: a page that cannot be written is said, and is not the program's failure."""
    from ..export import ExportError
    from . import report

    output = os.path.join(folder, report.NAME)
    try:
        problems = report.write([folder], output)
    except (ExportError, OSError) as error:
        problems = [f"no report: {error}"]
    else:
        print(f"ditorch: report written, open it in a browser: {output}", file=sys.stderr)
    for problem in problems:
        say(problem)


def run_baseline(plan: Plan, head: Head) -> None:
    """The program once without tools; what it says goes to files."""
    from ..bisect.runner import Choice, Question, Runner

    spec = plan.spec
    folder = os.path.join(spec.out, "baseline")
    runner = Runner(plan.program, plan.is_command, Question(), head, folder)
    runner.step_marker = spec.step_marker
    say(f"--baseline: the program runs without tools first, then with them; its output is in {folder}")
    outcome = runner.run(Choice(losses=True))
    if not outcome.is_good:
        say(f"--baseline: without tools the program {outcome.reason}")


def _wait(child: subprocess.Popen) -> int:
    interrupted = False
    while True:
        try:
            status = child.wait()
            break
        except KeyboardInterrupt:  # the child has it too: it writes what it has
            interrupted = True
    if interrupted:
        return INTERRUPTED
    return status if status >= 0 else 128 - status


def read_runs(folder: str) -> list[dict[str, Any]]:
    """What the processes of a run wrote, by rank; a file that is damaged is told and left out."""
    runs = []
    for name in sorted(os.listdir(folder)):
        if not (name.startswith("run-r") and name.endswith(".json")):
            continue
        path = os.path.join(folder, name)
        try:
            with open(path, encoding="utf-8") as file:
                value = json.load(file)
            if value.get("format") != "ditorch-run":
                raise ValueError("it is not of `ditorch run`")
            runs.append(value)
        except (OSError, ValueError, AttributeError) as error:
            say(f"{path}: {error}; left out")
    return sorted(runs, key=lambda run: (run["rank"], run["pid"]))


# Ranks of a launcher that starts `-m ditorch run` itself


def count_ranks() -> int:
    """Of the job that this process belongs to; 1 without a launcher."""
    text = os.environ.get("WORLD_SIZE", "")
    return int(text) if text.isdigit() and "RANK" in os.environ else 1


def is_first_rank() -> bool:
    """What is made once is made here."""
    return count_ranks() == 1 or os.environ["RANK"] == "0"


def wait_for_ranks(folder: str, since: float, seconds: float = 60.0) -> None:
    """Until every rank of this machine has written its file, from the time `since` on; ranks that do not are told."""
    local = os.environ.get("LOCAL_WORLD_SIZE", "")
    wanted = min(int(local) if local.isdigit() else count_ranks(), count_ranks())
    end = time.monotonic() + seconds
    while len(found := _list_ranks(folder, since)) < wanted and time.monotonic() < end:
        time.sleep(0.1)
    if len(found) < wanted:
        say(f"{len(found)} of {wanted} ranks have written what they found ({sorted(found)}) after {seconds:.0f} s")


def _list_ranks(folder: str, since: float) -> set[int]:
    found = set()
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        match = re.fullmatch(r"run-r(\d+)-p\d+\.json", name)
        if match and os.path.getmtime(os.path.join(folder, name)) >= since:
            found.add(int(match[1]))
    return found


def find_first(runs: list[dict[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """The first finding of all ranks (../findings.py), and its run."""
    found = findings.order({**one, "rank": run["rank"], "run": run} for run in runs for one in run["findings"])
    return (found[0], found[0]["run"]) if found else None


def tell_runs(runs: list[dict[str, Any]], folder: str) -> None:
    """The summary of one process, or of all ranks in ten lines."""
    from op_tools import program

    runs = [run for run in runs if any(counts.get("seen") for counts in run["counts"].values())]
    if not runs:
        say(f"no process of the program saw an operator; does it import torch? Results: {folder}")
        return
    if len(runs) == 1:
        print("\n".join(program.summarise(runs[0])), file=sys.stderr)
        return
    seconds = max(run["seconds"] for run in runs)
    lines = [f"== ditorch run: {len(runs)} processes, {seconds:.1f} s, tools {', '.join(runs[0]['tools'])}"]
    for run in runs[:4]:
        lines.append(
            f"  rank {run['rank']:<4} {run['steps']} steps, {len(run['findings'])} findings (pid {run['pid']})"
        )
    if len(runs) > 4:
        lines.append(f"  ... and {len(runs) - 4} more")
    first = find_first(runs)
    if first is not None:
        finding, run = first
        verb = "is wrong" if finding["tool"] == "autocompare" else "made NaN or Inf"
        lines.append(f"  first     rank {run['rank']}, step {finding['step']}: {finding['name']} {verb}")
        if finding.get("cause"):
            lines.append(f"  cause     {finding['cause']}")
    slowest = max(runs, key=lambda run: (run.get("observer", {}).get("time") or {"with": 0.0})["with"])
    lines.append(f"  effect    rank {slowest['rank']}: {effect.describe(slowest.get('observer', {}))}")
    lines.append(f"  results   {folder}")
    if first:
        lines.append(f"  report    ditorch report {folder}")
    lines.append(f"  next      {program.suggest_next(first[1]) if first else f'ditorch report {folder}'}")
    print("\n".join(lines), file=sys.stderr)
