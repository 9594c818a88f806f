"""`ditorch compare A B`: what A and B are decides what is compared."""

from __future__ import annotations

import json
import math
import sys
from argparse import ArgumentTypeError
from collections.abc import Sequence
from typing import Any

from ditorch import export
from ditorch.command.guard import explain
from ditorch.command.parser import Parser
from ditorch.output import write_whole
from ditorch.progress import Progress


def make_parser() -> Parser:
    parser = Parser(
        "ditorch compare",
        "Two runs, or two checkpoints, side by side. Runs are folders of `ditorch run`, or logs (*.dlog): their calls "
        "are aligned by module, operator and occurrence, whatever was inserted, left out, fused or recomputed, and "
        "what they wrote is compared by the statistics and hashes of the logs (record them with --tool observe "
        "--option observe.stats=1) and by captured tensors. Checkpoints are .safetensors, files of torch.save, index "
        "files (*.index.json) or folders of these; nothing in them is executed.",
        examples=[
            ("ditorch run --tool observe --option observe.stats=1 --out a train.py", "record a run; then one as b"),
            ("ditorch compare a b", "where they part, and how the error grows"),
            ("ditorch compare a b --steps 0-2 --json -o difference.json", "the first steps, for programs"),
            ("ditorch compare model.safetensors other.pt", "two checkpoints, tensor by tensor"),
        ],
        exits={
            0: "the same, within the tolerance",
            1: "they differ",
            2: "wrong use, or there is nothing at a path",
            3: "nothing could be compared (no values, nothing in common, nothing readable), or not be written",
        },
    )
    add = parser.add_argument
    add("a", metavar="A", help="run or checkpoint; the one to measure by")
    add("b", metavar="B", help="the other one")
    add("--tolerance", type=_parse_tolerance, metavar="X", help="largest relative error (default: by dtype)")
    add("--steps", metavar="STEPS", help="runs: only these steps: 0-2,9")
    add("--ranks", type=_parse_ranks, metavar="RANKS", help="runs: only these ranks: 0,4-7")
    add("--strict", action="store_true", help="calls of one run alone, other shapes, dtypes and places count too")
    add("--no-values", action="store_true", help="runs: order, operators and times alone")
    add("--no-captures", action="store_true", help="runs: do not read captured tensors")
    add("--memory", type=float, default=1.0, metavar="GIB", help="runs: most memory per run and rank (default: 1)")
    add("--top", type=int, default=10, metavar="N", help="rows of each table (default: 10)")
    add("--json", action="store_true", help="everything, as one JSON object")
    add("-o", "--output", metavar="OUT", help="a file instead of standard output")
    return parser


def _parse_tolerance(text: str) -> float:
    value = float(text)
    if not 0 <= value < math.inf:
        raise ArgumentTypeError(f"{text!r} is no tolerance; valid: 0 or more, such as 1e-4")
    return value


def _parse_ranks(text: str) -> list[int]:
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()) or int(last or first) - int(first) not in range(100000):
            raise ArgumentTypeError(f"{part!r} is no rank; expected numbers and ranges: 0,4-7")
        found += range(int(first), int(last or first) + 1)
    return found


def _say(text: str) -> None:
    print(f"ditorch: {text}", file=sys.stderr)


def main(words: Sequence[str]) -> int:
    """The exit status: see make_parser."""
    parser = make_parser()
    try:
        options = parser.parse_args(list(words))
    except SystemExit as end:
        return int(end.code or 0)
    try:
        return _compare(options)
    except export.ExportError as error:
        _say(str(error))
        return 2
    except MemoryError as error:
        _say(f"{error or 'there is not enough memory'}; or give more with --memory")
        return 3


def _compare(options: Any) -> int:
    from . import checkpoint, logs

    kinds = []
    for path in (options.a, options.b):
        kinds.append("run" if logs.has_logs(path) else "checkpoint" if checkpoint.find(path) else "")
        if not kinds[-1]:
            export.find([path])  # says that it does not exist
            raise export.ExportError(
                f"{path!r} holds neither logs (*{export.LOG}) nor tensors "
                f"({', '.join(checkpoint.SUFFIXES)}, *{checkpoint.INDEX})"
            )
    if kinds[0] != kinds[1]:
        raise export.ExportError(f"{options.a!r} is a {kinds[0]} and {options.b!r} a {kinds[1]}: not comparable")
    if kinds[0] == "checkpoint":
        refused = [name for name in ("steps", "ranks") if getattr(options, name) is not None]
        if refused:
            raise export.ExportError(f"--{refused[0]} is about runs; {options.a!r} is a checkpoint")
        result = checkpoint.compare(options.a, options.b, options.tolerance, options.strict)
        text, facts, status = checkpoint.format_result, checkpoint.as_dict, result.status
    else:
        result, text, facts, status = _compare_runs(options)
    for problem in result.problems:
        _say(problem)
    if options.json:
        told = json.dumps(facts(result), indent=1, allow_nan=False, default=str)
    else:
        told = text(result, max(options.top, 1))
    return _write(told + "\n", options.output) or status


def _compare_runs(options: Any) -> tuple[Any, Any, Any, int]:
    from . import logs, runs, text

    wanted = runs.Options(
        tolerance=options.tolerance,
        steps=options.steps,
        ranks=options.ranks,
        values=not options.no_values,
        strict=options.strict,
        captures=not options.no_captures and not options.no_values,
        limit=int(options.memory * (1 << 30)),
        progress=Progress("calls"),
    )
    a, b = logs.open_run(options.a), logs.open_run(options.b)
    if options.ranks is not None and (a.ranks or b.ranks):
        missing = sorted(set(options.ranks) - set(a.ranks) - set(b.ranks))
        if missing:
            known = ", ".join(map(str, sorted({*a.ranks, *b.ranks})))
            raise export.ExportError(f"--ranks: no run has rank {missing[0]}; there are {known}")
    with wanted.progress:
        result = runs.compare(a, b, wanted)
    return result, text.format_result, text.as_dict, result.status


def _write(text: str, path: str | None) -> int:
    if path in (None, "-"):
        sys.stdout.write(text)
        sys.stdout.flush()
        return 0
    try:
        write_whole(path, text)
    except OSError as error:
        _say(f"{path!r} cannot be written: {explain(error)}")
        return 3
    return 0
