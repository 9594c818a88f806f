"""`ditorch compile --explain --html`: what became of a program as one page, in the style of the report's.

The page has no script and loads nothing; all that it says of the program is escaped.
"""

from __future__ import annotations

import os
from html import escape
from typing import Any

from ..report import page as report_page
from .explain import Explanation, name_step, say_unplanned

STYLE = """
table { border-collapse: collapse; width: 100%; margin: .4rem 0 1rem; }
td, th { text-align: left; padding: .15rem .6rem .15rem 0; vertical-align: top; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
pre { overflow: auto; font-size: .8rem; }
"""


def make_page(explanation: Explanation, title: str) -> str:
    with open(os.path.join(report_page.FOLDER, "page.css"), encoding="utf-8") as file:
        style = file.read() + STYLE
    counts = (
        f"{len(explanation.graphs)} graphs, {len(explanation.breaks)} graph breaks, "
        f"{len(explanation.recompiles)} recompiles, {len(explanation.sources)} kernels"
    )
    body = [f"<h1>{counts}</h1>", f"<p>{escape(title)}</p>"]
    body += [_make_graph(number, row) for number, row in enumerate(explanation.graphs)]
    body.append(_make_list("Graph breaks", ["place", "reason"], explanation.breaks))
    body.append(_make_list("Recompiles", ["function", "place", "reason"], explanation.recompiles))
    body += [_make_source(name, text) for name, text in sorted(explanation.sources.items())]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        f"style-src '{report_page.fingerprint(style)}'; base-uri 'none'; form-action 'none'\">"
        f"<title>ditorch compile: {counts}</title><style>{style}</style></head>"
        f"<body><main>{''.join(body)}</main></body></html>\n"
    )


def _make_table(names: list[str], rows: list[list[Any]]) -> str:
    """Numbers stand at the right."""
    numeric = [bool(rows) and isinstance(value, (int, float)) for value in (rows[0] if rows else names)]
    mark = ['class="n"' if is_number else "" for is_number in numeric]
    head = "".join(f"<th {mark[i]}>{escape(name)}</th>" for i, name in enumerate(names))
    lines = [
        "".join(
            f"<td {mark[i]}>{value if isinstance(value, str) else f'{value:,.6g}'}</td>" for i, value in enumerate(row)
        )
        for row in rows
    ]
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _make_list(title: str, names: list[str], rows: list[dict[str, str]]) -> str:
    if not rows:
        return ""
    return f"<h2>{title}</h2>" + _make_table(names, [[escape(row[name]) for name in names] for row in rows])


def _make_graph(number: int, row: dict[str, Any]) -> str:
    each = row["seconds"] / row["calls"] * 1e3 if row["calls"] else 0.0
    parts = [
        f'<section class="card"><h2>graph {number}: {escape(row["kind"])} {escape(row["place"])}</h2>',
        f"<p>{row['operators']} operators; compiled in {row['compile_seconds']:.3g} s; {row['calls']} calls of "
        f"{each:.3g} ms</p>",
    ]
    told = [say_unplanned(row)] if row["unplanned"] else []
    told += [f"by the device's operators: {row['refusal']}"] if row["refusal"] else []
    told += [f"operator {name}: {reason}" for name, reason in row["refused"].items()]
    told += [f"island {name}: {reason}" for name, reason in row["islands"].items()]
    parts += [f"<p>{escape(text)}</p>" for text in told]
    for plan in row["plans"]:
        parts.append(f"<p>arena {plan['arena']:,} of {plan['unplanned']:,} bytes</p>")
        rows = [_list_step(step) for step in plan["steps"]]
        parts.append(_make_table(["step", "operations", "bytes", "runs", "us each", "GB/s"], rows))
    return "".join(parts) + "</section>"


def _list_step(step: dict[str, Any]) -> list[Any]:
    name, source = escape(name_step(step)), step.get("source")
    each = step["seconds"] / step["calls"] if step["calls"] else 0.0
    return [
        f'<a href="#{source}">{name}</a>' if source else name,
        escape(step.get("operations") or step.get("reason", "")),
        step["bytes"],
        step["calls"],
        each * 1e6,
        step["bytes"] / each / 1e9 if each else 0.0,
    ]


def _make_source(name: str, text: str) -> str:
    return f'<details id="{name}"><summary>{name}</summary><pre>{escape(text)}</pre></details>'
