"""Every command of `ditorch`: its name, one line about it, how its parser is made and what runs it.

Parsers are made when they are asked for, so that `ditorch --help` imports nothing of the commands. A runner is
`module:function`, called with the words behind the command and the options before it (`Head`); names of packages above
ditorch stand here as text alone.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

from .parser import Parser


class Head(NamedTuple):
    """What stood before the command: the TOML file, and options by name."""

    config: str | None = None
    options: dict[str, str] = {}


class Command(NamedTuple):
    """`at_once`: nothing is kept of it, so Ctrl-C ends it on the spot (see guard.py)."""

    name: str
    group: str
    summary: str
    parser: str
    runner: str
    at_once: bool = False
    takes_head: bool = False

    def make_parser(self) -> Parser:
        return _find(self.parser)()

    def run(self, words: list[str], head: Head) -> int:
        if words[:1] in (["-h"], ["--help"]):  # without what the command itself needs
            self.make_parser().parse_args(["--help"])
        function = _find(self.runner)
        return function(words, head) if self.takes_head else function(words)


def _find(place: str) -> Callable[..., Any]:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


def _own(name: str, group: str, summary: str, module: str, **more: Any) -> Command:
    """A command of this package: `make_parser` and `main` of one module."""
    place = f"ditorch.command.{module}"
    return Command(name, group, summary, f"{place}:make_parser", f"{place}:main", takes_head=True, **more)


TRAIN, CHIP, FILES, REST = "a program", "a device or an operator library", "results", "ditorch itself"

COMMANDS = {
    command.name: command
    for command in (
        Command("run", TRAIN, "run a program, with tools on it (--tool)", "ditorch.command.run:make_parser", ""),
        _own("compile", TRAIN, "what torch.compile made of it, and is that right?", "compile"),
        Command("nan", TRAIN, "which operator made the first NaN or Inf?", "ditorch.command.nan:make_parser", ""),
        Command(
            "bisect", TRAIN, "the fewest operators that make a run wrong", "ditorch.command.bisect:make_parser", ""
        ),
        Command(
            *("replay", FILES, "captured operators once more: right, fast, small?"),
            *("op_tools.replay.options:make_parser", "op_tools.replay.command:main_with_head"),
            takes_head=True,
        ),
        _own("report", FILES, "one HTML file about a run: verdict, errors, times, ranks", "report"),
        Command(
            *("export", FILES, "logs as JSONL, CSV, trace, text or Parquet; captures as files"),
            *("ditorch.export:make_parser", "ditorch.export:main"),
        ),
        Command(
            *("merge", FILES, "one summary of the logs of all ranks"),
            *("op_tools.merge:make_parser", "op_tools.merge:main"),
        ),
        Command(
            *("compare", FILES, "two runs or two checkpoints: the same? where do they part?"),
            *("op_tools.compare.command:make_parser", "op_tools.compare.command:main"),
        ),
        Command(
            *("query", FILES, "SQL over the logs of all ranks (DuckDB)"),
            *("ditorch.query:make_parser", "ditorch.query:main"),
        ),
        Command(
            *("compare-modules", FILES, "layers of two runs that CompLayerAcc saved"),
            *("module_tools.arguments:make_parser", "module_tools.compare:main"),
        ),
        Command(
            *("conform", CHIP, "is an operator library (DIOPI) right?"),
            *("ditorch.conform.cli:make_parser", "ditorch.conform.cli:main"),
        ),
        Command(
            *("test-device", CHIP, "PyTorch's operator database and test suites on the device"),
            *("ditorch.device_suite.arguments:make_parser", "ditorch.device_suite.main:main_with_head"),
            takes_head=True,
        ),
        _own("bench", CHIP, "captured operators: how long, on which device?", "bench"),
        Command(
            *("new-vendor", CHIP, "a vendor library to start from: C, a build, a test"),
            *("ditorch.new_vendor:make_parser", "ditorch.new_vendor:main"),
        ),
        _own("monitor", TRAIN, "processor and memory of a running process, over time", "monitor"),
        _own("doctor", REST, "what is installed, what was chosen and why, a self-check", "doctor", at_once=True),
        _own("options", REST, "every option with its value and where it came from", "options", at_once=True),
        _own("include", REST, "folder of the C headers: cc -I$(ditorch include)", "include", at_once=True),
        _own("completion", REST, "completion for bash, zsh or fish", "completion", at_once=True),
        _own("man", REST, "the manual page, for man or a file", "man", at_once=True),
        _own("version", REST, "the version", "version", at_once=True),
    )
}
