"""`ditorch man`: the manual page, made from the parsers."""

from __future__ import annotations

import argparse

from .parser import Parser
from .tree import COMMANDS, Head


def make_parser() -> Parser:
    return Parser(
        "ditorch man",
        "The manual page of every command, in the format of man(7).",
        examples=[
            ("ditorch man > ditorch.1 && man ./ditorch.1", "read it"),
            ("ditorch man > ~/.local/share/man/man1/ditorch.1", "install it"),
        ],
        exits={0: "told"},
    )


def escape(text: str) -> str:
    """Text that roff does not read as a request."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join("\\&" + line if line[:1] in (".", "'") else line for line in text.splitlines())


def _format_action(action: argparse.Action) -> list[str]:
    if action.help == argparse.SUPPRESS:
        return []
    names = ", ".join(action.option_strings) or str(action.metavar or action.dest)
    value = f" {action.metavar or action.dest.upper()}" if action.option_strings and action.nargs != 0 else ""
    text = (action.help or "").replace("%%", "%")
    return [".TP", f".B {escape(names + value)}", escape(text) or "\\&"]


def _format_parser(parser: Parser) -> list[str]:
    lines = [escape(parser.description or "")]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                lines += [f".SS {escape(name)}", *_format_parser(below)]
        elif "--help" not in action.option_strings:
            lines += _format_action(action)
    if parser.exits:
        lines += [".PP", "Exit status:"]
        for number, text in parser.exits.items():
            lines += [".TP", f".B {number}", escape(text)]
    if parser.examples:
        lines += [".PP", "Examples:"]
        for command, text in parser.examples:
            lines += [".TP", f".B {escape(command)}", escape(text) or "\\&"]
    return lines


def make_page() -> str:
    from .. import _C, cli

    parser = cli.make_parser()
    lines = [f'.TH DITORCH 1 "" "ditorch {_C.version()}"', ".SH NAME"]
    lines += [escape("ditorch - PyTorch programs written for CUDA on the device that is there"), ".SH SYNOPSIS"]
    lines += [".B ditorch", escape("[options] COMMAND | script.py [arguments]"), ".SH DESCRIPTION"]
    lines += _format_parser(parser)
    for command in COMMANDS.values():
        lines += [f".SH {escape(command.name.upper())}", *_format_parser(command.make_parser())]
    return "\n".join(lines)


def main(words: list[str], head: Head) -> int:
    make_parser().parse_args(words)
    print(make_page())
    return 0
