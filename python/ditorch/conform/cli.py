"""`ditorch conform`: is an operator library right? run, list, show, pack, mutate, device.

Exit status: 0 no case failed, 1 one did (with --require also when a function is missing), 2 wrong use.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
import time
from typing import Any

from .. import diopi
from ..command.guard import explain
from ..command.parser import Parser
from ..progress import estimate_rest, show_rest
from ..worker_pool import add_ray_option, count_jobs
from . import pack, report, runner, selection, suite
from .names import DTYPE_NAMES, LAYOUTS, RUNS

_LAYOUTS = (*LAYOUTS, *RUNS, "inplace", "error")
Row = dict[str, Any]


class UsageError(Exception):
    """Wrong use of the command line."""


class _Parser(Parser):
    def __init__(self, prog: str, description: str = "", **options: Any):
        super().__init__(prog, description, **options)

    def error(self, message: str) -> Any:
        raise UsageError(f"{self.prog}: {self.improve(message)}")


def _share(text: str) -> float:
    value = float(text)
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r}: a number above 0, up to 1")
    return value


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: a number from 1")
    return value


def _add_choice(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--function", nargs="+", default=[], metavar="GLOB", help="functions, with or without diopi: Add* diopiSort")
    add("--dtype", nargs="+", default=[], choices=DTYPE_NAMES, metavar="DTYPE", help=f"of {', '.join(DTYPE_NAMES)}")
    add("--not-dtype", nargs="+", default=[], choices=DTYPE_NAMES, metavar="DTYPE", help="all dtypes but these")
    add("--layout", nargs="+", default=[], choices=_LAYOUTS, metavar="LAYOUT", help=f"of {', '.join(_LAYOUTS)}")
    add("--family", nargs="+", default=[], metavar="GLOB", help="families: pointwise_* loss")
    add("--case", nargs="+", default=[], metavar="GLOB", help="ids: 'diopiAdd/*/float32/strided/*'")
    add("--share", type=_share, default=1.0, help="part of the cases, the same every time (0.1: a tenth)")
    add("--quick", action="store_true", help="the few cases of each function that notice most (a minute)")
    add("--seed", type=int, default=0, help="other values in the same cases (default 0)")


def make_parser() -> Parser:
    parser = _Parser(
        "ditorch conform",
        "Is an operator library of the DIOPI standard right? Each command has its own --help.",
        examples=[
            ("ditorch conform run --library ./libdiopi_mychip.so --quick", "the cases that notice most"),
            ("ditorch conform run --function 'Add*' Softmax --junit conform.xml", "some functions"),
            ("ditorch conform list --function Softmax", "what there is"),
            ("ditorch conform pack --quick --out cases.pack", "cases for a machine without torch"),
        ],
        exits={
            0: "no case failed",
            1: "one did (with --require also when a function is missing)",
            2: "wrong use",
        },
    )
    verbs = parser.add_subparsers(
        dest="verb", required=True, metavar="run|list|show|pack|mutate|derive|device", parser_class=_Parser
    )

    def add_verb(name: str, text: str, *examples: tuple[str, str]) -> _Parser:
        return verbs.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.", examples=examples)

    run = add_verb(
        *("run", "run cases on a library"),
        ("ditorch conform run --quick", "the embedded device's own library, the cases that notice most"),
        ("ditorch conform run --library ./libdiopi_mychip.so --vendor mychip --jobs 8", "a library and its device"),
        ("ditorch conform run --function 'Add*' --dtype float32 --html out.html", "some cases, as a page"),
    )
    _add_choice(run)
    add = run.add_argument
    add("--library", default="host", metavar="NAME|PATH", help="operator library (default host)")
    add("--vendor", metavar="NAME|PATH", help="device functions; without it the device is host memory")
    add("--side-stream", action="store_true", help="call once more on another stream than the default (with --vendor)")
    add("--pack", metavar="FILE", help="run a pack instead (needs no torch)")
    add("--model", metavar="NAME", help="the calls of a model's training step instead (list --models)")
    add("--scale", type=_share, default=1.0, help="with --model: sizes above 8 become so much smaller (0.1: a tenth)")
    add("--memory", type=float, default=4.0, metavar="GIB", help="with --model: leave out calls that need more")
    add("--skip", metavar="FILE", help="JSON: cases to leave out, with reasons")
    add("--tolerance", metavar="FILE", help="JSON: factors on tolerances, with reasons")
    add("--jobs", type=_positive, default=min(2, os.cpu_count() or 1), help="processes (default 2)")
    add_ray_option(add)
    add("--timeout", type=float, default=60.0, metavar="S", help="seconds per case (default 60)")
    add("--json", metavar="FILE", help="write all results as JSON")
    add("--junit", metavar="FILE", help="write all results as JUnit XML")
    add("--html", metavar="FILE", help="write all results as one page: function by dtype, failures, what was not run")
    add("--journal", metavar="FILE", help="keep results in FILE as they come")
    add("--resume", action="store_true", help="go on where the journal ends")
    add("--require", action="store_true", help="a missing function makes the run fail")
    add("--perf", metavar="OTHER", help="time the calls of two libraries: the ratio per function")
    add("--failures", type=int, default=3, metavar="N", help="cases to print per function that fails; 0: all")
    add("--quiet", action="store_true", help="no table: totals and failures")
    listing = add_verb(
        *("list", "functions and numbers of cases"),
        ("ditorch conform list --function Softmax --ids", "the ids of a function's cases"),
        ("ditorch conform list --models", "models whose calls are recorded"),
    )
    _add_choice(listing)
    listing.add_argument("--ids", action="store_true", help="print the ids")
    listing.add_argument("--models", action="store_true", help="models and their calls instead")
    show = add_verb(
        *("show", "print a case: the call, its inputs, what must come out"),
        (
            'ditorch conform show "$(ditorch conform list --function Softmax --ids | head -1)"',
            "the first of a function",
        ),
    )
    show.add_argument("id")
    show.add_argument("--seed", type=int, default=0)
    packing = add_verb(
        *("pack", "write cases for a machine without torch"),
        ("ditorch conform pack --quick --out cases.pack", "the cases that notice most"),
    )
    _add_choice(packing)
    packing.add_argument("--out", required=True, metavar="FILE")
    mutate = add_verb(
        *("mutate", "break every function on purpose: does the suite notice?"),
        ("ditorch conform mutate --function Softmax", "one function"),
    )
    _add_choice(mutate)
    mutate.add_argument("--library", default="host", metavar="NAME|PATH", help="the sound library (default host)")
    mutate.add_argument("--jobs", type=_positive, default=min(2, os.cpu_count() or 1), help="processes (default 2)")
    mutate.add_argument("--json", metavar="FILE", help="write all results as JSON")
    mutate.add_argument("--markdown", metavar="FILE", help="write the scores as a page (docs/mutation.md)")
    mutate.add_argument("--write-quick", metavar="FILE", help="write the cases that noticed most (quick.json)")
    mutate.add_argument("--most", type=_positive, default=1000, metavar="N", help="cases per function (default 1000)")
    mutate.add_argument("--kinds", nargs="+", default=[], metavar="GLOB", help="these faults alone: 'dim_*' nan")
    mutate.add_argument("--journal", metavar="FILE", help="keep results in FILE as they come")
    mutate.add_argument("--resume", action="store_true", help="go on where the journal ends")
    mutate.add_argument("--again", action="store_true", help="try what survived in the journal on the chosen cases")
    mutate.add_argument("--seconds", type=float, default=math.inf, metavar="S", help="begin no function after so long")
    deriving = add_verb(
        *("derive", "make the cases by property anew from the ordinary ones"),
        ("ditorch conform derive --function Softmax --out derived", "of one function, into a folder"),
    )
    deriving.add_argument(
        "--out", default=os.path.join(os.path.dirname(__file__), "cases", "property"), metavar="FOLDER"
    )
    deriving.add_argument(
        "--function", nargs="+", default=[], metavar="GLOB", help="these anew, the others as they are"
    )
    deriving.add_argument("--property", nargs="+", default=[], metavar="NAME", help="these properties alone: rank tiny")
    deriving.add_argument("--new", action="store_true", help="only functions that have no such cases yet")
    deriving.add_argument("--prune", action="store_true", help="only drop what the rules leave out by now")
    deriving.add_argument("--jobs", type=_positive, default=min(2, os.cpu_count() or 1), help="processes (default 2)")
    device = add_verb(
        *("device", "test device, streams and error texts"),
        ("ditorch conform device --library ./libdiopi_mychip.so --vendor mychip", "of a library and its device"),
    )
    device.add_argument("--library", default="host", metavar="NAME|PATH")
    device.add_argument("--vendor", metavar="NAME|PATH")
    return parser


def _select(options: argparse.Namespace) -> selection.Selection:
    return selection.Selection(
        tuple(options.function),
        tuple(options.dtype),
        tuple(options.layout),
        tuple(options.family),
        tuple(options.case),
        options.share,
        tuple(options.not_dtype),
    )


def _choose(options: argparse.Namespace) -> list[Any]:
    from . import expand, schema

    found = _select(options).choose(expand.list_cases(schema.read_all()))
    if options.quick:
        from . import quick

        found = quick.select(found)
        if not found:
            raise selection.SelectionError("the quick selection has none of these cases; leave --quick out")
    return found


# Run


_begin: float | None = None
"""When the count that is shown began."""


def _show_progress(done: int, total: int, what: str = "cases") -> None:
    """A new count begins with a smaller number."""
    global _begin
    if not sys.stderr.isatty():
        return
    if done <= 1 or _begin is None:
        _begin = time.monotonic()
    rest = f", {show_rest(estimate_rest(_begin, done, total))}" if 1 < done < total else ""
    line = f"\r\x1b[K{done} of {total} {what}{rest}"
    print(line, end="\n" if done == total else "", file=sys.stderr, flush=True)


def _describe(options: argparse.Namespace) -> Row:
    """What this run is, for the journal and the reports."""
    import ditorch

    return {
        "ditorch": ditorch.__version__,
        "library": options.library,
        "vendor": options.vendor or "",
        "seed": options.seed,
        "pack": options.pack or "",
        **({"side stream": "yes"} if options.side_stream else {}),
    }


def _run_pack(options: argparse.Namespace, work: suite.Work) -> list[Row]:
    """The cases of a pack that the options mean."""
    chosen = _select(options)
    entries = list(pack.read_entries(options.pack))
    numbers = [entry.number for entry in entries if chosen.wants_packed(entry)]
    if not numbers and entries:
        raise selection.SelectionError(f"{options.pack} has no case that is meant by {chosen.describe()}")
    with tempfile.TemporaryDirectory(prefix="ditorch-conform-") as folder:
        path = options.pack
        if len(numbers) < len(entries):
            path = os.path.join(folder, "cases.pack")
            pack.extract(options.pack, numbers, path)
        return suite.run_pack(path, work, options.jobs, progress=lambda n, total, _: _show_progress(n, total))


def _run_model(options: argparse.Namespace, work: suite.Work) -> list[Row]:
    """The calls of a model as cases; what became none is told on standard output."""
    from ..models import corpus
    from . import model_cases

    found = corpus.read(options.model)
    chosen = _select(options).choose(model_cases.list_calls(found))
    diopi.Library(options.library).close()
    maker = model_cases.Maker(options.scale, int(options.memory * 2**30), options.seed)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="ditorch-conform-") as folder:
        path = os.path.join(folder, "cases.pack")
        for cases in maker.make_all(chosen):
            pack.write(path, cases)
            rows += suite.run_pack(path, work, options.jobs, folder)
            _show_progress(len(rows), len(chosen))
    _tell_left_out(found, maker)
    return rows


def _tell_left_out(found: Any, maker: Any) -> None:
    from . import model_cases

    for reason, operators in model_cases.list_without(found).items():
        names = ", ".join(f"{name} ({count})" for name, count in sorted(operators.items()))
        print(f"not of the standard: {sum(operators.values())} calls, {reason}: {names}")
    for item, reason in maker.problems:
        print(f"not made: {item}: {reason}")
    if maker.problems:
        print(f"{len(maker.problems)} calls were not made into cases\n")


def _run_cases(options: argparse.Namespace, rules: selection.Rules) -> list[Row]:
    work = suite.Work(
        options.library,
        options.seed,
        options.vendor,
        options.perf,
        rules.to_lines(),
        bool(options.perf),
        options.timeout,
        options.side_stream,
    )
    if options.side_stream and not options.vendor:
        raise UsageError("--side-stream needs --vendor: without device functions there are no streams (--vendor host)")
    if options.side_stream and options.perf:
        raise UsageError("--side-stream and --perf: calls are timed on the default stream; leave one of them out")
    other = next((name for name in ("pack", "model", "perf") if getattr(options, name)), "")
    if options.ray and other:
        raise UsageError(f"--ray and --{other}: workers make the suite's own cases; leave one of them out")
    if options.pack:
        return _run_pack(options, work)
    if options.model:
        return _run_model(options, work)
    cases = _choose(options)
    diopi.Library(options.library).close()  # a library that cannot be opened is told before cases are made
    journal = suite.Journal(options.journal, _describe(options), options.resume)
    return suite.run(cases, work, count_jobs(options), journal, _show_progress, options.ray)


def _add_reasons(rows: list[Row], rules: selection.Rules) -> None:
    for row in rows:
        rules.note_tolerance(row["id"])
        rule = rules.find_skip(row["id"])
        if row["verdict"] == "skipped" and rule is not None:
            row["reason"] = rule.reason


def _print_speed(rows: list[Row], options: argparse.Namespace) -> int:
    from ..table import format_table

    speeds = runner.compare_speed(rows)
    if not speeds:
        print("nothing was timed: no case passes in both libraries", file=sys.stderr)
        return 1
    columns = ("function", "cases", options.library, options.perf, "ratio", "worst", "worst case")
    table = [
        (s.function, s.cases, f"{s.seconds * 1e6:.1f} us", f"{s.against * 1e6:.1f} us", s.ratio, s.worst, s.worst_id)
        for s in speeds
    ]
    print(format_table(columns, table, sys.stdout))
    return 0


def _run(options: argparse.Namespace) -> int:
    rules = selection.read_rules(options.skip, options.tolerance)
    rows = _run_cases(options, rules)
    _add_reasons(rows, rules)
    about = _describe(options)
    if options.json:
        report.write_json(options.json, about, rows)
    if options.junit:
        report.write_junit(options.junit, about, rows)
    if options.html:
        from . import page

        page.write(options.html, about, rows)
    if options.perf:
        return _print_speed(rows, options)
    lines = report.summarize(rows)
    if not options.quiet:
        print(report.format_lines(lines, sys.stdout))
    failures = report.format_failures(rows, options.failures)
    if failures:
        print(f"\n{failures}")
    for pattern in rules.list_unused():
        print(f"rule {pattern!r} matches no case of this run", file=sys.stderr)
    print(f"\n{report.format_totals(lines)}\n{report.format_inference(rows)}")
    ways = report.format_ways(rows)
    if ways:
        print(ways)
    totals = report.count(lines)
    if not rows:
        print("no case ran", file=sys.stderr)
        return 1
    missing = totals["functions"]["missing"]
    if missing and options.require:
        print(f"--require: {missing} functions are missing", file=sys.stderr)
    return 1 if totals["cases"]["fail"] or (missing and options.require) else 0


# List, show, pack, device


def _list_models() -> int:
    from ..models import corpus
    from ..table import format_table
    from . import model_cases

    rows = []
    distinct: set[str] = set()
    for name in corpus.list_names():
        found = corpus.read(name)
        calls = model_cases.list_calls(found)
        distinct.update(str(call.call) for call in calls)
        without = sum(1 for entry in found.entries if entry.reason)
        functions = len({call.function for call in calls})
        rows.append((name, found.about["family"], len(found.entries), len(calls), functions, without))
    print(format_table(("model", "family", "operator calls", "cases", "functions", "without"), rows, sys.stdout))
    total = sum(row[3] for row in rows)
    print(f"\n{len(rows)} models, {total} cases, {len(distinct)} of them distinct")
    return 0


def _list(options: argparse.Namespace) -> int:
    if options.models:
        return _list_models()
    cases = _choose(options)
    if options.ids:
        print("\n".join(str(case) for case in cases))
        return 0
    from ..table import format_table

    counts: dict[tuple[str, str], int] = {}
    for case in cases:
        key = (case.function, case.entry.family)
        counts[key] = counts.get(key, 0) + 1
    table = [(*key, number) for key, number in counts.items()]
    print(format_table(("function", "family", "cases"), table, sys.stdout))
    print(f"\n{len(cases)} cases of {len(counts)} functions")
    return 0


def _pack(options: argparse.Namespace) -> int:
    from . import expand

    cases = _choose(options)
    number = pack.write(options.out, (expand.build(case, options.seed) for case in cases))
    print(f"{options.out}: {number} cases, {os.path.getsize(options.out)} bytes")
    return 0


def _device(options: argparse.Namespace) -> int:
    rows = runner.run_device(options.library, vendor=options.vendor)
    for row in rows:
        print(f"{row['verdict']:12s}{row['id']}{': ' + row['reason'] if row['reason'] else ''}")
    return 1 if any(row["verdict"] in runner.BAD for row in rows) else 0


def _mutate(options: argparse.Namespace) -> int:
    import json

    from . import mutation, mutation_page, quick

    rules = mutation.read_rules().choose(options.kinds)
    tasks = mutation.make_tasks(options.library, _choose(options), rules, options.most)
    head = {**_describe_library(options), "kinds": list(rules.kinds), "most": options.most, "seed": options.seed}
    journal = suite.Journal(options.journal, head, options.resume, "function")
    left = [task for task in tasks if task.function not in journal.rows]
    try:
        if options.again:
            found = mutation.retry(tasks, journal.rows, options.jobs, options.seconds)
        else:
            found = mutation.run(left, options.jobs, options.seconds)
        for answer in found:
            journal.keep([answer])
            _show_progress(len(journal.rows), len(tasks), "functions")
    finally:
        journal.close()
    answers = [mutation.restrict(journal.rows[task.function], task) for task in tasks if task.function in journal.rows]
    summary = mutation.summarise(answers, rules)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as stream:
            json.dump({**_describe_library(options), "summary": summary, "functions": answers}, stream, indent=1)
    if options.markdown:
        seconds = sum(answer["seconds"] for answer in answers)
        mutation_page.write(options.markdown, summary, options.library, seconds, len(tasks))
    if options.write_quick:
        before = quick.read(options.write_quick)  # of functions that were not tried this time
        kept = {task.function: before[task.function] for task in tasks if task.function in before}
        quick.write(options.write_quick, dict(sorted({**kept, **quick.choose(answers)}.items())))
    print(mutation.format_summary(summary))
    if len(answers) < len(tasks):
        on = " --resume goes on there" if options.journal else " with --journal a later run can go on there"
        print(f"the time is over: {len(tasks) - len(answers)} of {len(tasks)} functions were not tried;{on}")
        return 1
    return 0 if summary["score"] >= mutation.GOAL and not summary["problems"] else 1


def _derive(options: argparse.Namespace) -> int:
    from . import derive

    if options.prune:
        print(f"{options.out}: {derive.write(options.out, derive.prune(derive.read(options.out)))} entries")
        return 0
    chosen, before = selection.Selection(tuple(options.function)), derive.read(options.out)
    known = {table["functions"][0] for _, table in before} if options.new else set()

    unknown = set(options.property) - {p.name for p in derive.PROPERTIES}
    if unknown:
        names = ", ".join(p.name for p in derive.PROPERTIES)
        raise UsageError(f"no property is named {' '.join(sorted(unknown))}; they are {names}")

    def wants(function: str) -> bool:
        return function not in known and chosen.wants_function(function)

    def is_kept(table: Row) -> bool:
        other = bool(options.property) and table["name"].split("-")[0] not in options.property
        return other or not wants(table["functions"][0])

    tables = [(family, table) for family, table in before if is_kept(table)]
    for number, (function, found) in enumerate(derive.derive(wants, options.jobs, tuple(options.property))):
        tables += found
        if number % 20 == 19:
            derive.write(options.out, tables)  # what was found stays when the rest is not waited for
        print(f"{number + 1} {function}: {', '.join(table['name'] for _, table in found)}", file=sys.stderr, flush=True)
    print(f"{options.out}: {derive.write(options.out, tables)} entries")
    return 0


def _describe_library(options: argparse.Namespace) -> Row:
    import ditorch

    return {"ditorch": ditorch.__version__, "library": options.library}


def _show(options: argparse.Namespace) -> int:
    from . import expand, schema, show

    print(show.format_case(expand.build(expand.find_case(schema.read_all(), options.id), options.seed)))
    return 0


_VERBS = {
    "run": _run,
    "list": _list,
    "show": _show,
    "pack": _pack,
    "mutate": _mutate,
    "derive": _derive,
    "device": _device,
}


def main(words: list[str]) -> int:
    """Entry point of the verb; returns the exit status."""
    try:
        options = make_parser().parse_args(words)
        return _VERBS[options.verb](options)
    except UsageError as error:
        print(f"{error}\n(ditorch conform --help)", file=sys.stderr)
        return 2
    except BrokenPipeError:
        raise  # the command line is silent about it
    except OSError as error:
        print(f"ditorch conform: {explain(error)}", file=sys.stderr)
        return 2
    except (ValueError, runner.ConformError) as error:
        print(f"ditorch conform: {error}", file=sys.stderr)
        return 2
