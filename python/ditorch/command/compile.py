"""`ditorch compile`: run a program and say what torch.compile made of it."""

from __future__ import annotations

import json
import sys

from .guard import say
from .parser import Parser
from .tree import Head

EXAMPLES = [
    ("ditorch compile --explain train.py --lr 0.1", "graphs, breaks, islands, recompiles, steps, bytes, time"),
    ("ditorch compile --explain --json out.json train.py", "the same as data"),
    ("ditorch compile --explain --html out.html --sources kernels train.py", "as a page; the kernels' sources"),
    ("ditorch compile --check train.py", "every compiled graph beside eager mode (docs/compile.md)"),
]
EXITS = {
    0: "the program's own exit status passes through",
    1: "with --check: the program ended well, and a graph was wrong",
    2: "wrong use, or the program cannot be opened; with --check: the device has no graph engine",
}


def make_parser() -> Parser:
    parser = Parser(
        "ditorch compile",
        'Run a program whose torch.compile uses the graph engine (backend "dit"), also where it names no backend, and '
        "say on standard error what became of it.",
        usage="ditorch compile --explain|--check [options]\n       script.py | -m module | -c code | - [arguments]",
        examples=EXAMPLES,
        exits=EXITS,
    )
    add = parser.add_argument
    add("--explain", action="store_true", help="graphs, breaks, islands, recompiles, steps, bytes and time")
    add("--check", action="store_true", help="compare every graph with eager mode and name the operator that is wrong")
    add("--json", metavar="FILE", help="with --explain: write it as JSON")
    add("--html", metavar="FILE", help="with --explain: write it as a page, with the sources of the kernels")
    add("--sources", metavar="DIR", help="with --explain: write the source of every kernel into a folder")
    return parser


def main(words: list[str], head: Head) -> int:
    from .. import cli, install, launch

    parser = make_parser()
    before, program = cli.split(parser, words)
    options = parser.parse_args(before)
    program = program[1:] if program[:1] == ["--"] else program
    if not options.explain and not options.check:
        parser.error("nothing to do: give --explain or --check")
    for name in ("json", "html", "sources"):
        if getattr(options, name) and not options.explain:
            parser.error(f"--{name} belongs to --explain")
    if not program:
        parser.error("nothing to run: give a script, -m module or -c code")
    problem = launch.check(program)
    if problem:
        say(problem)
        return 2
    more = {"compile_backend": "dit", **({"compile_check": "1"} if options.check else {})}
    try:
        install(head.config, **{**head.options, **more})
    except (ValueError, OSError, ImportError, RuntimeError) as error:
        say(str(error))
        return 2
    from ..compiler import find_lack

    lack = find_lack()
    if lack and options.check:
        say(f"there is nothing to check: {lack}")
        return 2
    return _run(program, options, lack)


def _write(explanation, options) -> None:
    from ..graph.explain_page import make_page

    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(explanation.to_json(), file, indent=1)
    if options.html:
        with open(options.html, "w", encoding="utf-8") as file:
            file.write(make_page(explanation, " ".join(sys.argv)))
    if options.sources:
        explanation.write_sources(options.sources)


def _run(program: list[str], options, lack: str) -> int:
    from .. import launch
    from ..graph import check, explain

    explanation = explain.Explanation(lack)
    explanation.begin()
    status: object = 0
    try:
        status = launch.run(program)
    except SystemExit as end:
        status = end.code
    finally:
        explanation.end()
        if options.explain:
            print(explanation.render(), file=sys.stderr)
        _write(explanation, options)
        found = len(check.findings())
        if options.check:
            say(f"{found} wrong graphs of {len(explanation.graphs)}")
    if isinstance(status, str):
        say(status)
        status = 1
    return int(status or 0) or (1 if options.check and found else 0)
