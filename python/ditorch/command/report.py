"""`ditorch report`: what the tools saw, as one HTML file."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from ..progress import Progress
from .guard import explain, say
from .parser import Parser
from .tree import Head

NAME = "report.html"


def make_parser() -> Parser:
    parser = Parser(
        "ditorch report",
        "What the tools saw in one or several runs, as one HTML file that any browser opens from disk: no server, no "
        "network. The verdict stands on top, what was not looked at at the end.",
        examples=[
            ("ditorch report ditorch_runs/run-001", "writes ditorch_runs/run-001/report.html"),
            ("ditorch report run-001 run-002 -o both.html", "two runs side by side"),
            ("ditorch report op_tools_results/log/ops-r0-p4711.dlog -o one.html", "one log alone"),
        ],
        exits={0: "written", 1: "nothing could be read, or the disk failed", 2: "wrong use"},
    )
    parser.add_argument("paths", nargs="+", metavar="RUN", help="folder of results, or a log (*.dlog)")
    parser.add_argument("-o", "--output", metavar="OUT", help=f"file (default: {NAME} in the first folder)")
    parser.add_argument("--json", action="store_true", help="the page's numbers as one JSON object instead of HTML")
    return parser


def choose_output(paths: list[str]) -> str:
    """Beside what was read."""
    first = paths[0]
    return os.path.join(first if os.path.isdir(first) else os.path.dirname(first) or ".", NAME)


def write(paths: list[str], output: str, progress: Any = None) -> list[str]:
    """Make the page, and say what could not be read. ExportError and OSError say what is in the way."""
    from .. import report
    from ..output import write_whole

    page, problems = report.make(paths, progress)
    write_whole(output, page)
    return problems


def main(words: list[str], head: Head) -> int:
    options = make_parser().parse_args(words)
    from ..export import ExportError

    progress = Progress()
    try:
        if options.json:
            return _write_numbers(options)
        output = options.output or choose_output(options.paths)
        problems = write(options.paths, output, progress)
    except ExportError as error:
        say(str(error))
        return 1 if "no .dlog" in str(error) or "could be read" in str(error) else 2
    except BrokenPipeError:
        raise
    except OSError as error:
        say(explain(error))
        return 1
    finally:
        progress.clear()
    for problem in problems:
        say(problem)
    print(f"{output}: {os.path.getsize(output) / 1e6:.1f} MB; open it in a browser")
    return 0


def _write_numbers(options: argparse.Namespace) -> int:
    import json

    from .. import report
    from ..output import write_whole

    text = json.dumps(report.make_numbers(options.paths), indent=1, allow_nan=False) + "\n"
    if options.output:
        write_whole(options.output, text)
    else:
        sys.stdout.write(text)
    return 0
