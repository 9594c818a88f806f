"""The result of a run as one HTML page: functions by dtype, failures with the values, what was not run.

One file without anything else to load, readable without a network. Depends on report.py's lines and runner.py's rows.
"""

from __future__ import annotations

import html
from typing import Any

from ..output import write_whole
from . import report
from .names import DTYPE_NAMES
from .runner import BAD

Row = dict[str, Any]
_COUNTED = 2000
"""Failures that are written out; the rest is counted."""

_STYLE = """
body { font: 14px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 90em; padding: 0 1em; color: #1b1f24; }
h1 { font-size: 1.5em; } h2 { font-size: 1.15em; margin-top: 2em; }
table { border-collapse: collapse; }
th, td { padding: .15em .55em; border-bottom: 1px solid #e2e5e9; text-align: left; }
th { position: sticky; top: 0; background: #fff; } td.n { text-align: right; font-variant-numeric: tabular-nums; }
.pass { background: #e3f5e6; } .fail { background: #fbdcd9; font-weight: 600; } .unsupported { background: #fdf3d3; }
.missing, .skipped { background: #eceef1; } code { font-size: .92em; } .quiet { color: #66707a; }
input { padding: .35em .6em; width: 24em; }
"""
_SCRIPT = """
document.getElementById('filter').addEventListener('input', function (event) {
  const text = event.target.value.toLowerCase();
  document.querySelectorAll('tr[data-name]').forEach(function (row) {
    row.style.display = row.dataset.name.toLowerCase().includes(text) ? '' : 'none';
  });
});
"""


def _judge(rows: list[Row]) -> tuple[str, str]:
    """Class and text of a cell: the worst verdict, and how many cases passed."""
    counts: dict[str, int] = {}
    for row in rows:
        name = "fail" if row["verdict"] in BAD else row["verdict"]
        counts[name] = counts.get(name, 0) + 1
    worst = next(name for name in ("fail", "pass", "unsupported", "missing", "skipped") if name in counts)
    passed = counts.get("pass", 0)
    return worst, f"{passed}/{len(rows)}" if passed != len(rows) else str(passed)


def _make_matrix(rows: list[Row]) -> str:
    cells: dict[str, dict[str, list[Row]]] = {}
    for row in rows:
        parts = row["id"].split("/")
        dtype = parts[2] if len(parts) > 2 else ""
        cells.setdefault(row["function"], {}).setdefault(dtype, []).append(row)
    present = {dtype for own in cells.values() for dtype in own}
    dtypes = [name for name in DTYPE_NAMES if name in present] + sorted(present - set(DTYPE_NAMES))
    lines = [f"<tr><th>function</th><th>verdict</th>{''.join(f'<th>{html.escape(d)}</th>' for d in dtypes)}</tr>"]
    for line in report.summarize(rows):
        own = cells[line.function]
        found = []
        for dtype in dtypes:
            kind, text = _judge(own[dtype]) if dtype in own else ("", "")
            found.append(f'<td class="n {kind}">{text}</td>')
        name = html.escape(line.function)
        lines.append(
            f'<tr data-name="{name}"><td>{name}</td><td class="{line.verdict}">{line.verdict}</td>{"".join(found)}</tr>'
        )
    return f"<table>{''.join(lines)}</table>"


def _make_failures(rows: list[Row]) -> str:
    bad = [row for row in rows if row["verdict"] in BAD]
    if not bad:
        return "<p>No case failed.</p>"
    lines = ["<tr><th>case</th><th>what</th><th>found</th></tr>"]
    for row in bad[:_COUNTED]:
        text = row.get("text", "")
        said = f" <span class=quiet>[{html.escape(text)}]</span>" if text and text not in row["reason"] else ""
        what = html.escape(row.get("kind") or row["verdict"])
        lines.append(
            f'<tr data-name="{html.escape(row["id"])}"><td><code>{html.escape(row["id"])}</code></td>'
            f"<td>{what}</td><td>{html.escape(row['reason'])}{said}</td></tr>"
        )
    rest = f"<p>and {len(bad) - _COUNTED} more</p>" if len(bad) > _COUNTED else ""
    return f"<table>{''.join(lines)}</table>{rest}"


def _make_others(rows: list[Row]) -> str:
    """What was not run, by function and reason."""
    groups: dict[tuple[str, str, str], int] = {}
    for row in rows:
        if row["verdict"] in ("missing", "unsupported", "skipped"):
            key = (row["function"], row["verdict"], row.get("reason", ""))
            groups[key] = groups.get(key, 0) + 1
    if not groups:
        return "<p>Every case ran.</p>"
    lines = ["<tr><th>function</th><th>why</th><th>reason</th><th>cases</th></tr>"]
    for (function, verdict, reason), number in groups.items():
        lines.append(
            f'<tr data-name="{html.escape(function)}"><td>{html.escape(function)}</td><td>{verdict}</td>'
            f'<td>{html.escape(reason)}</td><td class="n">{number}</td></tr>'
        )
    return f"<table>{''.join(lines)}</table>"


def make(about: Row, rows: list[Row]) -> str:
    """The page as text."""
    title = f"Conformance of {about.get('library', '')}"
    totals = report.format_totals(report.summarize(rows)).splitlines()
    facts = "".join(f"<li>{html.escape(key)}: {html.escape(str(value))}</li>" for key, value in about.items() if value)
    head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(title)}</title>'
    return (
        f"{head}<style>{_STYLE}</style><h1>{html.escape(title)}</h1><ul>{facts}</ul>"
        f"<p>{'<br>'.join(html.escape(line) for line in totals)}<br>{html.escape(report.format_inference(rows))}</p>"
        f'<p><input id="filter" placeholder="show functions with this in their name"></p>'
        f"<h2>Failures</h2>{_make_failures(rows)}<h2>Functions by dtype</h2>"
        f"<p class=quiet>Cases that passed, of those that there are; the colour is the worst of them.</p>"
        f"{_make_matrix(rows)}<h2>Not run</h2>{_make_others(rows)}<script>{_SCRIPT}</script></html>\n"
    )


def write(path: str, about: Row, rows: list[Row]) -> None:
    write_whole(path, make(about, rows))
