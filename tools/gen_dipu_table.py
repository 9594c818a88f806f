#!/usr/bin/env python3
"""Write the tables of docs/dipu.md from ditorch.dipu.support and ditorch.dipu_variables; with --check only say whether
the file is current. The text around the tables is written by hand and stays."""

from __future__ import annotations

import argparse
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PATH = os.path.join(ROOT, "docs", "dipu.md")
ACTIONS = {
    "honoured": "honoured",
    "mapped": "sets `{option}`",
    "warning": "no effect: warning",
    "build only": "of a build",
}


def render_variables() -> str:
    """One row per variable."""
    from ditorch.dipu_variables import TABLE

    rows = ["| variable | default in DIPU | here | |\n|---|---|---|---|\n"]
    for row in TABLE:
        action = ACTIONS[row.action].format(option=row.option)
        rows.append(f"| `{row.name}` | {row.default} | {action} | {row.note} |\n")
    return "".join(rows)


def render_names() -> str:
    """One table per module."""
    from ditorch.dipu import support

    modules: dict[str, list[tuple[str, support.Support]]] = {}
    count = dict.fromkeys((support.WORKS, support.NEUTRAL, support.REFUSED), 0)
    for path, entry in support.TABLE.items():
        module, _, name = path.rpartition(".")
        modules.setdefault(module, []).append((name, entry))
        count[entry.status] += 1
    parts = ["Names that work: {works}; neutral: {neutral}; refused: {refused}.\n".format(**count)]
    for module in sorted(modules):
        parts.append(f"\n### {module}\n\n| name | status | note |\n|---|---|---|\n")
        for name, entry in sorted(modules[module]):
            parts.append(f"| `{name}` | {entry.status} | {entry.note} |\n")
    return "".join(parts)


def replace(page: str, name: str, table: str) -> str:
    """`page` with `table` between the two markers of `name`."""
    begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->\n"
    head, found, rest = page.partition(begin)
    _, closed, tail = rest.partition(end)
    if not found or not closed:
        raise SystemExit(f"{PATH} has no lines '{begin.strip()}' and '{end.strip()}'")
    return f"{head}{begin}\n{table}\n{end}{tail}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail when the file is not current")
    arguments = parser.parse_args()
    os.environ.setdefault("DITORCH_BACKEND", "none")  # the tables need no device
    sys.path.append(os.path.join(ROOT, "python"))
    with open(PATH, encoding="utf-8") as file:
        page = file.read()
    text = replace(replace(page, "variables", render_variables()), "names", render_names())
    if arguments.check:
        if page == text:
            return 0
        print(f"{PATH} is out of date: run tools/gen_dipu_table.py", file=sys.stderr)
        return 1
    with open(PATH, "w", encoding="utf-8") as file:
        file.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
