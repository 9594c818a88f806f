"""Results as a table per function, as JSON and as JUnit XML.

Verdict of a function: fail when one of its cases fails, crashes or takes too long; else pass when one passes; else
missing or unsupported (no dtype of its cases). Depends on runner.py's rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from .. import junit
from ..output import write_whole
from ..table import format_table
from .runner import BAD, judge_functions

COLUMNS = ("pass", "fail", "missing", "unsupported", "skipped")

Row = dict[str, Any]


class Line(NamedTuple):
    """A function in the table."""

    function: str
    verdict: str
    counts: dict[str, int]
    dtypes: list[str]
    """Dtypes that the library does not have: no case of them runs."""


def _get_dtype(row: Row) -> str:
    parts = row["id"].split("/")
    return parts[2] if len(parts) > 2 else ""


def summarize(rows: Iterable[Row]) -> list[Line]:
    """A line per function, in the order of the rows."""
    rows = list(rows)
    verdicts = judge_functions(rows)
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row["function"], []).append(row)
    lines = []
    for function, members in groups.items():
        counts = dict.fromkeys(COLUMNS, 0)
        for row in members:
            counts["fail" if row["verdict"] in BAD else row["verdict"]] += 1
        has = {_get_dtype(row) for row in members if row["verdict"] in ("pass", *BAD) and "/error/" not in row["id"]}
        without = {_get_dtype(row) for row in members if row["verdict"] == "unsupported"} - has
        verdict = "fail" if verdicts[function] in BAD else verdicts[function]
        lines.append(Line(function, verdict, counts, sorted(without)))
    return lines


def count(lines: Iterable[Line]) -> dict[str, dict[str, int]]:
    """Totals of cases and of functions by verdict."""
    lines = list(lines)
    return {
        "cases": {name: sum(line.counts[name] for line in lines) for name in COLUMNS},
        "functions": {name: sum(line.verdict == name for line in lines) for name in COLUMNS},
    }


def format_lines(lines: list[Line], stream: Any = None) -> str:
    """The table, and a line of totals below it."""
    rows = []
    for line in lines:
        note = f"without {', '.join(line.dtypes)}" if line.dtypes else ""
        rows.append([line.function, line.verdict, *(line.counts[name] for name in COLUMNS), note])
    return format_table(["function", "verdict", *COLUMNS, "dtypes"], rows, stream)


def format_totals(lines: list[Line]) -> str:
    totals = count(lines)
    texts = []
    for name in ("functions", "cases"):
        parts = [f"{number} {verdict}" for verdict, number in totals[name].items() if number]
        texts.append(f"{sum(totals[name].values())} {name}: {', '.join(parts) or 'none'}")
    return "\n".join(texts)


def count_inference(rows: Iterable[Row]) -> dict[str, int]:
    """Calls that succeeded: those whose results the library told before (judged) and those where it did not."""
    answers = [row.get("inference", "absent") for row in rows if row["verdict"] == "pass" or "inference" in row]
    return {name: answers.count(name) for name in ("judged", "untold", "absent")}


def format_inference(rows: Iterable[Row]) -> str:
    counts = count_inference(rows)
    if not counts["judged"] and not counts["untold"]:
        return "inference: not checked, the library has no diopiExtInferOutputs or was not asked"
    return f"inference: results of {counts['judged']} calls told before and compared, of {counts['untold']} not told"


WAYS = ("direct", "converted", "composed")


def count_ways(rows: Iterable[Row]) -> dict[str, int]:
    """Cases that passed, by the way that the adaptor took; empty when the library is another."""
    found = [row["adapt"] for row in rows if row["verdict"] == "pass" and "adapt" in row]
    return {name: found.count(name) for name in WAYS} if found else {}


def format_ways(rows: Iterable[Row]) -> str:
    counts = count_ways(rows)
    return "adaptor: " + ", ".join(f"{number} cases {name}" for name, number in counts.items()) if counts else ""


def format_failures(rows: Iterable[Row], limit: int) -> str:
    """What is wrong, the first cases of each function; `limit` per function, 0: all."""
    seen: dict[str, int] = {}
    texts = []
    for row in rows:
        if row["verdict"] not in BAD:
            continue
        seen[row["function"]] = seen.get(row["function"], 0) + 1
        if limit and seen[row["function"]] > limit:
            continue
        text = f" [{row['text']}]" if row.get("text") and row["text"] not in row["reason"] else ""
        texts.append(f"{row['verdict']:8s}{row['id']}: {row['reason']}{text}")
    hidden = sum(max(number - limit, 0) for number in seen.values()) if limit else 0
    if hidden:
        texts.append(f"... and {hidden} more; --json FILE has them all")
    return "\n".join(texts)


def write_json(path: str, about: Row, rows: list[Row]) -> None:
    lines = summarize(rows)
    functions = {line.function: {"verdict": line.verdict, **line.counts, "without": line.dtypes} for line in lines}
    totals = {**count(lines), "inference": count_inference(rows)}
    ways = count_ways(rows)
    if ways:
        totals["adapt"] = ways
    data = {"about": about, "totals": totals, "functions": functions, "cases": rows}
    write_whole(path, json.dumps(data, indent=1) + "\n")


def write_junit(path: str, about: Row, rows: list[Row]) -> None:
    """A suite per function, a test per case."""
    suites: dict[str, list[junit.Case]] = {}
    for row in rows:
        suites.setdefault(row["function"], []).append(_make_case(row))
    junit.write(path, "ditorch conform", about, suites)


def _make_case(row: Row) -> junit.Case:
    names = (row["function"], row["id"], row["seconds"])
    if row["verdict"] == "pass":
        return junit.Case(*names)
    text = f"{row.get('reason', '')} {row.get('text', '')}".strip()
    if row["verdict"] in BAD:
        return junit.Case(*names, "failure" if row["verdict"] == "fail" else "error", row.get("kind", ""), text)
    return junit.Case(*names, "skipped", text=f"{row['verdict']}: {text}")
