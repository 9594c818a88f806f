"""`ditorch options`: what can be set, its value, and where that came from."""

from __future__ import annotations

import json
from typing import Any

from ..terminal import paint
from .guard import say
from .parser import Parser, suggest, wrap
from .tree import Head

EXAMPLES = [
    ("ditorch options", "the options of ditorch itself"),
    ("ditorch --set host_devices=2 options --changed", "those that are not at their default"),
    ("ditorch options autocompare capture --json", "those of two tools, for programs"),
]


def make_parser() -> Parser:
    parser = Parser(
        "ditorch options",
        "Every option with its value, where that came from, its environment variable and what it does. An option is "
        "set by --set NAME=VALUE before the command, by the variable, or in a TOML file (--config).",
        examples=EXAMPLES,
        exits={0: "told", 2: "wrong use, or a value that cannot be used"},
    )
    parser.add_argument("tools", nargs="*", metavar="TOOL", help="of an operator tool: autocompare, capture ...")
    parser.add_argument("--changed", action="store_true", help="only what is not at its default")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")
    return parser


def format_rows(rows: list[dict[str, Any]]) -> str:
    """Name, value, source and variable in one line, what it does below; no line longer than the terminal."""
    lines = []
    for row in rows:
        value = str(row["value"]) if str(row["value"]) else "''"
        line = wrap(f"{row['name']}  {value}  {row['source']}  {row['environment']}", " " * 8, "")
        lines.append(paint(row["name"], "head") + line.removeprefix(row["name"]))
        lines.append(wrap(row["help"], " " * 4))
    return "\n".join(lines)


def main(words: list[str], head: Head) -> int:
    options = make_parser().parse_args(words)
    from .. import settings

    try:
        settings.load(head.config, head.options)
        names = settings.tool_names()
        for tool in options.tools:
            if tool not in names:
                say(f"tool {tool!r} is unknown; valid: {', '.join(names)}{suggest(tool, names)}")
                return 2
        tables = {tool: settings.tool_options(tool) for tool in options.tools} or {"ditorch": settings.options()}
    except (ValueError, OSError, RuntimeError) as error:
        say(str(error))
        return 2
    if options.changed:
        tables = {name: [row for row in table if row["source"] != "default"] for name, table in tables.items()}
    if options.json:
        print(json.dumps({name: [dict(row) for row in table] for name, table in tables.items()}, indent=1))
        return 0
    for name, table in tables.items():
        if len(tables) > 1:
            print(f"== {name}")
        print(format_rows(table) if table else "every option is at its default")
    if not options.tools:
        print("\n" + wrap(f"of a tool: ditorch options {'|'.join(names)}".replace("|", " | ")))
    return 0
