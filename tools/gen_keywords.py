"""Write python/op_tools/keywords.pyi, the tools' constructors for editors and mypy, from libdit's list of options."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import stub_file
from ditorch import settings
from op_tools import constructors

STUB = Path(__file__).resolve().parent.parent / "python" / "op_tools" / "keywords.pyi"
HEAD = '''"""Constructors of the tools. Written by tools/gen_keywords.py (make docs) from libdit's list of options."""

import os
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import torch

from .tool import Tool

'''


def name_class(tool: str) -> str:
    return f"{tool.title().replace('_', '')}Keywords"


def render_aliases() -> str:
    names = ["Condition", *dict.fromkeys(name for name, _ in constructors.TYPES.values() if name != "int")]
    source = Path(constructors.__file__).read_text().splitlines()
    lines = [next(line for line in source if line.startswith(f"{name} = ")) for name in names]
    return "\n".join(line.replace(" = ", ": TypeAlias = ", 1) for line in lines) + "\n"


def render_tool(tool: str) -> str:
    parameters = ["self", "*", "condition_func: Condition = None"]
    for row in constructors.list_keywords(tool):
        parameters.append(f"{row['name']}: {constructors.name_type(row)} | None = {constructors.read_default(row)!r}")
    kinds = dict.fromkeys(map(constructors.name_type, constructors.list_patterns(tool)))
    if kinds:
        parameters.append(f"**per_operator: {' | '.join(kinds)} | None")
    lines = [textwrap.fill(line, 110, subsequent_indent="    ") for line in constructors.describe(tool).splitlines()]
    text = textwrap.indent('"""' + "\n".join(lines) + '\n"""', " " * 8)
    signature = ",\n        ".join(parameters)
    return f"class {name_class(tool)}(Tool):\n    def __init__(\n        {signature},\n    ) -> None:\n{text}\n"


def render() -> str:
    """The whole stub, as the formatter would write it."""
    tools = [tool for tool in settings.tool_names() if tool != "process_monitor"]
    text = HEAD + render_aliases() + "\n".join(map(render_tool, tools))
    return stub_file.format_text(text, STUB)


def main() -> int:
    return stub_file.settle(STUB, render())


if __name__ == "__main__":
    sys.exit(main())
