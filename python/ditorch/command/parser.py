"""The argument parser of every command: help with examples and exit statuses, and the nearest name for a wrong one.

Depends on the standard library and terminal.py alone. The width is the terminal's (80 columns without one).
"""

from __future__ import annotations

import argparse
import difflib
import re
import shutil
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from .. import terminal

MOST_COLUMNS = 120
INTERRUPTED, CLOSED_PIPE = 130, 141


def get_width() -> int:
    """Columns to write: the terminal's, COLUMNS where that is set, else 80; never so many that lines are hard to
    read."""
    return max(40, min(shutil.get_terminal_size((80, 24)).columns, MOST_COLUMNS))


def wrap(text: str, indent: str = "", first: str | None = None) -> str:
    """Text broken at blanks to the width; words that are longer (paths) stay whole."""
    lead = indent if first is None else first
    lines = textwrap.wrap(
        text, get_width(), initial_indent=lead, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(lines) or lead.rstrip()


def suggest(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'doctor'?`, or nothing when no name is near."""
    near = difflib.get_close_matches(word, sorted(set(known)), n=2, cutoff=0.6)
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""


class _Formatter(argparse.HelpFormatter):
    """Descriptions wrapped paragraph by paragraph; what is indented in a text stays as it is written."""

    def __init__(self, prog: str):
        super().__init__(prog, max_help_position=28, width=get_width())

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        done = []
        for paragraph in text.split("\n\n"):
            raw = any(line.startswith(" ") for line in paragraph.splitlines())
            done.append(textwrap.indent(paragraph, indent) if raw else textwrap.fill(paragraph, width))
        return "\n\n".join(done)


class _Color(argparse.Action):
    """--color counts from the moment it is read, wherever it stands."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option: Any = None) -> None:
        terminal.choose(values)


class Parser(argparse.ArgumentParser):
    """`examples` are pairs (command, what it does), `exits` says what each exit status means."""

    def __init__(
        self,
        prog: str,
        description: str,
        *,
        examples: Sequence[tuple[str, str]] = (),
        exits: Mapping[int, str] | None = None,
        **options: Any,
    ):
        options = {"formatter_class": _Formatter, "allow_abbrev": False, **options}
        super().__init__(prog=prog, description=description, **options)
        self.examples, self.exits = list(examples), dict(exits or {})
        self.add_argument(
            "--color", action=_Color, choices=terminal.WHEN, help="colours: on a terminal (default), always, never"
        )

    def format_help(self) -> str:
        parts = [super().format_help().rstrip()]
        if self.examples:
            lines = [f"  {command}\n{wrap(text, ' ' * 6)}" for command, text in self.examples]
            parts.append("\n".join(["examples:", *lines]))
        if self.exits:
            lines = [wrap(text, " " * 7, f"  {number:<5}") for number, text in self.exits.items()]
            parts.append("\n".join(["exit status:", *lines]))
        return "\n\n".join(parts) + "\n"

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, unknown = self.parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found

    def list_flags(self) -> list[str]:
        """Every option string, also those of commands below this one."""
        flags = []
        for action in self._actions:
            flags += action.option_strings
            if isinstance(action, argparse._SubParsersAction):
                for parser in dict.fromkeys(action.choices.values()):
                    flags += parser.list_flags() if isinstance(parser, Parser) else []
        return flags

    def improve(self, message: str) -> str:
        """argparse's message, with the nearest valid name."""
        wrong = re.match(r"unrecognized arguments: (\S+)", message)
        if wrong and wrong[1].startswith("-"):
            return message + suggest(wrong[1].partition("=")[0], self.list_flags())
        choice = re.match(r"argument (\S+): invalid choice: '([^']*)' \(choose from (.*)\)", message)
        if choice:
            names = [name.strip(" '") for name in choice[3].split(",")]
            shown = ", ".join(names)
            return f"argument {choice[1]}: invalid choice: {choice[2]!r}{suggest(choice[2], names)} (valid: {shown})"
        return message

    def error(self, message: str) -> NoReturn:
        """Two lines on standard error, status 2."""
        self.exit(2, f"{self.prog}: {self.improve(message)}\n{self.prog} --help shows what there is\n")
