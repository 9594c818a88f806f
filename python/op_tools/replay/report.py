"""What `ditorch replay` says about a batch: a row per case, the findings in words, a summary, and JSON.

Works on plain dictionaries (one `entry` per case: `ref`, `name`, `label`, and `results` by device), imports no torch.
JSON is strict: NaN and infinities are the texts "nan", "inf" and "-inf".
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

from ditorch import terminal
from ditorch.table import format_table

from .. import console

FORMAT = "ditorch-replay"
VERSION = 1
STATUSES = ("pass", "wrong", "skip", "error")


def clean(value: Any) -> Any:
    """The same as strict JSON can hold it."""
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, complex):
        return str(value)
    if isinstance(value, dict):
        return {str(key): clean(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean(item) for item in value]
    return value if isinstance(value, (str, int, float)) or value is None else str(value)


# One result


def get_status(result: dict[str, Any]) -> str:
    """Of one case on one device: pass, wrong, skip (nothing could be judged), error (could not be run)."""
    if result.get("error"):
        return "error"
    verdicts = [verdict["verdict"] for verdict in result.get("accuracy") or ()]
    if "wrong" in verdicts:
        return "wrong"
    return "skip" if verdicts and "pass" not in verdicts else "pass"


def get_worst(result: dict[str, Any]) -> dict[str, Any] | None:
    """The verdict that decides: the first wrong one, else the first with something to say, else the first."""
    verdicts = result.get("accuracy") or []
    noted = [verdict for verdict in verdicts if verdict["verdict"] == "pass" and verdict.get("reason")]
    return next((verdict for verdict in verdicts if verdict["verdict"] == "wrong"), next(iter(noted + verdicts), None))


def _error(result: dict[str, Any]) -> str:
    """Largest error, over all values, by the largest that the CPU makes in the same precision."""
    largest = None
    for verdict in result.get("accuracy") or ():
        if verdict["against"] != "fp64":
            continue
        for value in verdict["values"]:
            mine, cpu = value.get("largest_error"), value.get("cpu_error")
            if isinstance(mine, (int, float)) and isinstance(cpu, (int, float)):
                ratio = mine / cpu if cpu else 0.0 if not mine else math.inf
                largest = ratio if largest is None else max(largest, ratio)
    if largest is None:
        return "-"
    return f"{largest:.2f}" if largest < 1000 else f"{largest:.1e}"


def _time(result: dict[str, Any], kind: str, key: str) -> str:
    numbers = (result.get("speed") or {}).get(kind)
    return f"{numbers[key]:.1f}" if numbers else "-"


def _memory(result: dict[str, Any]) -> str:
    numbers = result.get("memory")
    return console.format_bytes(numbers["peak_bytes"]) if numbers else "-"


# Tables


def _columns(parts: Sequence[str]) -> list[tuple[str, Any]]:
    """Heads and how a cell is made of a result."""
    columns: list[tuple[str, Any]] = [("accuracy" if "accuracy" in parts else "result", get_status)]
    if "accuracy" in parts:
        columns.append(("error/CPU's", _error))
    if "speed" in parts:
        for kind, head in (("forward", "fwd"), ("backward", "bwd")):
            columns.append((f"{head} us", lambda result, kind=kind: _time(result, kind, "median_us")))
            columns.append((f"{head} p90", lambda result, kind=kind: _time(result, kind, "p90_us")))
    if "memory" in parts:
        columns.append(("memory", _memory))
    return columns


def _ratio(entry: dict[str, Any], devices: Sequence[str]) -> str:
    """Time of the second device by that of the first."""
    times = [(entry["results"].get(device, {}).get("speed") or {}).get("forward") for device in devices[:2]]
    if not all(times) or not times[0]["median_us"]:
        return "-"
    return f"{times[1]['median_us'] / times[0]['median_us']:.2f}"


def make_table(
    entries: Sequence[dict[str, Any]], devices: Sequence[str], parts: Sequence[str], stream: Any = None
) -> str:
    """A row per case; with several devices the columns of each, under its name."""
    columns = _columns(parts)
    several = len(devices) > 1
    heads = ["case", "operator"]
    for _ in devices:
        heads += [head for head, _ in columns]
    has_ratio = several and "speed" in parts
    heads += [f"{devices[1]}/{devices[0]}"] if has_ratio else []
    rows: list[list[Any]] = []
    for entry in entries:
        row = [entry["label"], entry["name"] or entry["ref"]["operator"] or "?"]
        for device in devices:
            result = entry["results"].get(device)
            row += [make(result) if result is not None else "-" for _, make in columns]
        rows.append(row + ([_ratio(entry, devices)] if has_ratio else []))
    text = format_table(heads, rows, stream)
    return f"{_make_group_line(text, devices, len(columns))}\n{text}" if several else text


def _make_group_line(table: str, devices: Sequence[str], width: int) -> str:
    """The devices' names above their columns."""
    starts = [match.start() for match in re.finditer(r"-+", terminal.strip(table).split("\n", 2)[1])]
    line = ""
    for number, device in enumerate(devices):
        line = line.ljust(starts[2 + number * width]) + f"{device} "
    return line.rstrip()


def choose_rows(entries: Sequence[dict[str, Any]], most: int) -> tuple[list[dict[str, Any]], int]:
    """At most so many rows (0: all), failures before the rest, in their order; and how many are left out."""
    if not most or len(entries) <= most:
        return list(entries), 0
    failed = [entry for entry in entries if not _is_fine(entry)]
    fine = [entry for entry in entries if _is_fine(entry)]
    chosen = {id(entry) for entry in (failed + fine)[:most]}
    return [entry for entry in entries if id(entry) in chosen], len(entries) - most


def _is_fine(entry: dict[str, Any]) -> bool:
    return all(get_status(result) in ("pass", "skip") for result in entry["results"].values())


def tell_findings(entries: Sequence[dict[str, Any]]) -> Iterator[str]:
    """A line for everything that is wrong or could not be run, and for references that are wrong themselves."""
    for entry in entries:
        for device, result in entry["results"].items():
            status = get_status(result)
            if status == "pass" and (get_worst(result) or {}).get("reason"):
                status = "note"
            if status not in ("wrong", "error", "note"):
                continue
            mark = " (allowed)" if entry.get("allowed") and status != "note" else ""
            name = entry["name"] or entry["ref"]["operator"] or "?"
            yield f"{status}{mark}: {name} on {device}: {_tell(result)}; case {entry['ref']['path']}"


def _tell(result: dict[str, Any]) -> str:
    if result.get("error"):
        error = result["error"]
        return f"{error['type']}: {error['text']}" if error["stage"] == "run" else error["text"]
    verdict = get_worst(result)
    worst = (verdict.get("worst") or {}).get("what", "")
    joint = " " if verdict["reason"].startswith("at [") else ": "
    return f"against {verdict['against']}: {worst + joint if worst else ''}{verdict['reason']}"


def tell_summary(summary: dict[str, Any], devices: dict[str, str]) -> str:
    words = {"pass": "right", "wrong": "wrong", "skip": "not judged", "error": "could not be run"}
    counts = ", ".join(f"{summary[status]:,} {words[status]}" for status in STATUSES if summary[status])
    text = (
        f"{summary['cases']:,} case{'' if summary['cases'] == 1 else 's'} on {', '.join(devices)}: {counts or 'none'}"
    )
    return text + (f"; {summary['allowed']:,} of them allowed to fail" if summary["allowed"] else "")


# Counts


def summarise(entries: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Cases by their worst result over the devices; those that were allowed to fail count once more, as `allowed`."""
    rank = {"error": 0, "wrong": 1, "skip": 2, "pass": 3}
    summary: dict[str, Any] = {"cases": len(entries), **dict.fromkeys(STATUSES, 0), "allowed": 0}
    for entry in entries:
        statuses = [get_status(result) for result in entry["results"].values()]
        worst = "wrong" if "wrong" in statuses else min(statuses, key=rank.__getitem__, default="error")
        summary[worst] += 1
        summary["allowed"] += bool(entry.get("allowed") and worst in ("wrong", "error"))
    return summary


def get_exit_status(entries: Sequence[dict[str, Any]]) -> int:
    """0: nothing failed that was not allowed to; 1: wrong results; 3: cases that could not be run, or no result of any
    case could be compared."""
    statuses = {
        get_status(result) for entry in entries if not entry.get("allowed") for result in entry["results"].values()
    }
    return 1 if "wrong" in statuses else 3 if "error" in statuses or statuses == {"skip"} else 0
