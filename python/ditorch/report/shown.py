"""The numbers of a page: what was collected, as plain data for JSON, cut to what a page can hold."""

from __future__ import annotations

import time
from typing import Any

from .. import _C
from .collected import REST, Collected, Lane, Operator
from .effects import show_effect
from .runs import take_list, take_number, take_text
from .series import Series, align
from .unseen import describe_cuts, list_unseen
from .verdict import describe_run, judge, list_findings, shorten_location, shorten_path

MOST_NODES = 4_000
MOST_SIGNATURES = 2_000
MOST_GROWTH = 12
MOST_COLOURS = 9
MOST_TEXT = 400


def make_data(collected: Collected) -> dict[str, Any]:
    """`page` is read at once, `details` when somebody asks."""
    details = _make_details(collected)
    page = {
        "version": _C.version(),
        "made": time.strftime("%Y-%m-%d %H:%M"),
        "verdict": judge(collected),
        "records": collected.records,
        "runs": [describe_run(run) for run in collected.runs],
        "lanes": [_show_lane(lane, collected) for lane in collected.lanes],
        "operators": _show_operators(collected),
        "growth": _show_growth(collected),
        "flame": _show_flame(collected),
        "timeline": _show_timeline(collected),
        "steps": _show_steps(collected),
        "memory": _show_memory(collected),
        "effects": [show_effect(_name_lane(lane, collected), _find_process(lane)) for lane in collected.lanes[:512]],
        "fallbacks": _show_fallbacks(collected),
        "findings": _show_findings(collected),
        "environment": _show_environment(collected),
        "configuration": _show_configuration(collected),
        "unseen": [*list_unseen(collected), *describe_cuts(collected, details)],
        "problems": collected.problems[:200],
        "captures": [collected.captures, collected.captured_bytes],
    }
    return {"page": clean(page), "details": clean(details)}


def clean(value: Any) -> Any:
    """Only what JSON has: NaN and infinities as text, texts of bounded length."""
    if isinstance(value, dict):
        return {str(key): clean(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean(item) for item in value]
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else str(value)
    if isinstance(value, str):
        return value if len(value) <= 4 * MOST_TEXT else value[: 4 * MOST_TEXT] + " ..."
    return value if isinstance(value, (int, bool)) or value is None else str(value)


def _name_lane(lane: Lane, collected: Collected) -> str:
    label = f"rank {lane.rank}"
    if len(collected.runs) > 1:
        label = f"{lane.run.label} {label}"
    same = sum((other.run, other.rank) == (lane.run, lane.rank) for other in collected.lanes)
    return f"{label}, pid {lane.pid}" if same > 1 else label


def _show_lane(lane: Lane, collected: Collected) -> dict[str, Any]:
    calls = 0
    for operator in collected.operators.values():
        counts = operator.lanes.get(lane.index)
        calls += max(counts[:3]) if counts else 0
    process = _find_process(lane)
    return {
        "label": _name_lane(lane, collected),
        "rank": lane.rank,
        "pid": lane.pid,
        "host": lane.metadata.get("host", ""),
        "records": lane.records,
        "lost": lane.lost,
        "calls": calls,
        "last_step": lane.last_step,
        "forward_ns": sum(lane.forward.values.values()),
        "backward_ns": sum(lane.backward.values.values()),
        "findings": len(take_list(process, "findings")) or lane.findings,
        "seconds": process.get("seconds"),
    }


def _find_process(lane: Lane) -> dict[str, Any]:
    for process in lane.run.processes:
        if (process["rank"], process["pid"]) == (lane.rank, lane.pid):
            return process
    return {}


def _show_operators(collected: Collected) -> list[dict[str, Any]]:
    wall = sum(operator.total_ns for operator in collected.operators.values()) or 1
    blamed: dict[str, int] = {}
    for finding in list_findings(collected):
        blamed[finding["name"]] = blamed.get(finding["name"], 0) + 1
    rows = []
    for operator in collected.operators.values():
        per_lane = {index: counts[3] for index, counts in operator.lanes.items()}
        times = [ns for ns in per_lane.values() if ns]
        rows.append(
            {
                "name": operator.name,
                "calls": operator.calls,
                "compared": None if collected.has_wrong_alone else operator.compared,
                "wrong": operator.wrong,
                "unknown": operator.unknown,
                "ratio": operator.worst_ratio if operator.wrong else None,
                "worst": operator.worst,
                "error": max(operator.error.values.values(), default=None),
                "nan": operator.nan,
                "findings": blamed.get(operator.name, 0),
                "forward_ns": operator.forward_ns,
                "backward_ns": operator.backward_ns,
                "total_ns": operator.total_ns,
                "longest_ns": operator.longest_ns,
                "share": operator.total_ns / wall,
                "imbalance": max(times) / min(times) if len(times) > 1 else None,
                "lanes": per_lane if len(collected.lanes) <= 64 else None,
            }
        )
    return sorted(rows, key=lambda row: (-row["wrong"], -row["nan"], -row["total_ns"], -row["calls"]))


def _show_growth(collected: Collected) -> list[dict[str, Any]]:
    """The operators that are wrong, then those whose errors are largest."""

    def rank(operator: Operator) -> tuple:
        return -operator.wrong, -max(operator.error.values.values(), default=0.0)

    chosen = [
        operator for operator in collected.operators.values() if operator.error.values or operator.wrong_error.values
    ]
    return [
        {
            "name": one.name,
            "right": one.error.as_points(),
            "wrong": one.wrong_error.as_points(),
            "width": one.error.width,
        }
        for one in sorted(chosen, key=rank)[:MOST_GROWTH]
    ]


def _show_flame(collected: Collected) -> dict[str, Any]:
    """Modules by their paths, operators in them; nodes that take the least are put together."""
    places = sorted(collected.places.items(), key=lambda item: -sum(item[1][1:]))
    root: dict[str, Any] = {"name": "all", "calls": 0, "ns": 0, "children": {}}
    nodes = 0
    for (module, name), (calls, forward, backward) in places:
        node = root
        parts = [*(module.split(".")[:40] if module else ["(no module)"]), f"\0{name}"]
        if nodes > MOST_NODES:
            parts = [f"\0{REST}"]
        node["ns"] += forward + backward
        for part in parts:
            children = node["children"]
            if part not in children:
                children[part] = {"name": part, "calls": 0, "ns": 0, "children": {}}
                nodes += 1
            node = children[part]
            node["ns"] += forward + backward
        node["calls"] += calls
        node["backward_ns"] = node.get("backward_ns", 0) + backward
    return _finish_node(root)


def _finish_node(node: dict[str, Any]) -> dict[str, Any]:
    """Children as a list, largest first; operators are marked. Paths have at most 41 parts."""
    is_operator = node["name"].startswith("\0")
    children = sorted(node["children"].values(), key=lambda child: -child["ns"])
    shown = {"n": node["name"].lstrip("\0"), "t": node["ns"]}
    if is_operator:
        shown |= {"o": 1, "c": node["calls"], "b": node.get("backward_ns", 0)}
    if children:
        shown["k"] = [_finish_node(child) for child in children]
    return shown


def _show_timeline(collected: Collected) -> dict[str, Any]:
    """How long the device worked in each stretch of the run: by operator, and by process."""
    order = sorted(collected.operators.values(), key=lambda operator: -operator.total_ns)
    order = [operator for operator in order if operator.time.values]
    lanes = [lane for lane in collected.lanes if lane.forward.values or lane.backward.values][:64]
    series = [operator.time for operator in order] + [one for lane in lanes for one in (lane.forward, lane.backward)]
    width = align(series)
    shown = [{"name": operator.name, "bins": _list_bins(operator.time)} for operator in order[:MOST_COLOURS]]
    if len(order) > MOST_COLOURS:
        rest: dict[int, float] = {}
        for operator in order[MOST_COLOURS:]:
            for place, ns in operator.time.values.items():
                rest[place] = rest.get(place, 0) + ns
        shown.append({"name": f"{len(order) - MOST_COLOURS} more", "bins": sorted(rest.items())})
    return {
        "width_ns": width,
        "begin_ns": collected.begin_ns,
        "operators": shown,
        "lanes": [
            {
                "label": _name_lane(lane, collected),
                "forward": _list_bins(lane.forward),
                "backward": _list_bins(lane.backward),
            }
            for lane in lanes
        ],
    }


def _list_bins(series: Series) -> list[tuple[int, float]]:
    return sorted(series.values.items())


def _show_steps(collected: Collected) -> list[dict[str, Any]]:
    """Seconds of wall time per step where the run's file has them, else the operators' time."""
    shown = []
    for lane in collected.lanes[:64]:
        wall = Series(bins=512)
        for step, seconds in enumerate(take_list(_find_process(lane), "step_seconds")):
            if isinstance(seconds, (int, float)):
                wall.add(step, seconds)
        operators = [(step, ns / 1e9) for step, ns in lane.step_time.as_points()]
        if wall.values or operators:
            label = _name_lane(lane, collected)
            shown.append({"label": label, "wall": wall.as_points(), "operators": operators})
    return shown


def _show_memory(collected: Collected) -> list[dict[str, Any]]:
    shown = []
    for lane in collected.lanes[:64]:
        series = [Series(bins=512), Series(bins=512), Series(bins=512)]
        for step, numbers in enumerate(take_list(_find_process(lane), "step_memory")):
            for one, number in zip(series, numbers if isinstance(numbers, list) else [], strict=False):
                if isinstance(number, (int, float)):
                    one.add(step, number)
        if any(one.values for one in series):
            names = ("allocated", "reserved", "resident")
            points = {name: one.as_points() for name, one in zip(names, series, strict=True)}
            shown.append({"label": _name_lane(lane, collected), **points})
    return shown


def _show_fallbacks(collected: Collected) -> list[dict[str, Any]]:
    sums: dict[str, dict[str, Any]] = {}
    for run in collected.runs:
        for process in run.processes:
            for row in take_list(process, "fallbacks"):
                if not isinstance(row, dict):
                    continue
                name = take_text(row, "operator")
                one = sums.setdefault(name, {"name": name, "calls": 0, "bytes": 0, "ms": 0, "ranks": []})
                one["calls"] += take_number(row, "calls")
                one["bytes"] += take_number(row, "bytes")
                one["ms"] += take_number(row, "milliseconds")
                if process["rank"] not in one["ranks"]:
                    one["ranks"].append(process["rank"])
    return sorted(sums.values(), key=lambda row: -row["calls"])


_FINDING = (
    *(
        "tool",
        "kind",
        "step",
        "id",
        "count",
        "location",
        "module",
        "verdict",
        "error",
        "allowed",
        "wrong",
        "numel",
        "at",
    ),
    *("value", "reference", "dtype", "shape", "nan", "inf", "reason", "folder", "rank"),
)


def _show_findings(collected: Collected) -> list[dict[str, Any]]:
    rows = []
    for finding in list_findings(collected)[:2_000]:
        shown = {key: finding[key] for key in _FINDING if finding.get(key) is not None}
        shown |= {"location": shorten_location(finding), "folder": shorten_path(take_text(finding, "folder"))}
        rows.append({"name": finding["name"], "run": finding["run"].label, **shown})
    return rows


def _show_environment(collected: Collected) -> list[tuple[str, list[str]]]:
    """What the processes ran on; one value where all of them say the same."""
    facts: dict[str, dict[str, None]] = {}
    for lane in collected.lanes:
        for key, value in lane.metadata.items():
            if key != "process" and not key.startswith("type."):
                facts.setdefault(key, {}).setdefault(str(value))
    for run in collected.runs:
        for process in run.processes:
            for key in ("device", "torch", "ditorch", "python"):
                if process.get(key):
                    facts.setdefault(key, {}).setdefault(take_text(process, key))
    return [(key, [*values][:8]) for key, values in facts.items()]


def _show_configuration(collected: Collected) -> list[tuple[str, str]]:
    rows = []
    for run in collected.runs:
        shown = describe_run(run)
        prefix = f"{run.label}: " if len(collected.runs) > 1 else ""
        rows += [(f"{prefix}{key}", shown[key]) for key in ("command", "tools", "folder") if shown[key]]
        rows += [(f"{prefix}{key}", str(value)) for key, value in shown["selection"].items()]
    rows += [(f"options of {tool}", text) for tool, text in collected.tools.items() if text]
    return rows


# Read when somebody asks


def _make_details(collected: Collected) -> dict[str, Any]:
    """Rows one by one, in columns; texts by number."""
    texts: dict[str, int] = {}

    def number(text: str) -> int:
        return texts.setdefault(str(text), len(texts))

    slowest = collected.slowest.get_rows()
    columns = ("lane", "step", "id", "name", "module", "backward", "ns", "signature")
    calls: dict[str, list] = {column: [] for column in columns}
    for row in slowest:
        for column, value in zip(columns, row, strict=True):
            calls[column].append(number(value) if column in ("name", "module", "signature") else value)
    wrong = [{**row, "name": row["name"]} for row in collected.wrong.get_rows()]
    signatures = [
        (sums[1], sums[0], sums[2], number(operator.name), number(signature))
        for operator in collected.operators.values()
        for signature, sums in operator.signatures.items()
    ]
    spans = _make_spans(collected, number)
    return {
        "slowest": calls,
        "wrong": wrong,
        "signatures": sorted(signatures, reverse=True)[:MOST_SIGNATURES],
        "spans": spans,
        "texts": list(texts),
    }


def _make_spans(collected: Collected, number: Any) -> list[dict[str, Any]]:
    shown = []
    for lane in collected.lanes:
        for which, spans in lane.steps.get_steps() if lane.steps is not None else []:
            if not spans:
                continue
            begin = min(span[0] for span in spans)
            threads: dict[int, int] = {}
            shown.append(
                {
                    "label": f"{_name_lane(lane, collected)}, {which} step ({spans[0][6]})",
                    "begin": [span[0] - begin for span in spans],
                    "ns": [span[1] for span in spans],
                    "name": [number(span[2]) for span in spans],
                    "module": [number(span[3]) for span in spans],
                    "backward": [int(span[4]) for span in spans],
                    "thread": [threads.setdefault(span[5], len(threads)) for span in spans],
                }
            )
    return shown
