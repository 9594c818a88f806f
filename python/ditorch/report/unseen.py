"""What was not looked at, and why: no report is right that leaves this out."""

from __future__ import annotations

from typing import Any

from .collected import Collected
from .runs import take_dict, take_list, take_number
from .verdict import find_missing_ranks

_REASONS = {
    "step": ("in steps that were not chosen", "--steps chooses others"),
    "condition": ("refused by condition_func", ""),
    "cpu": ("of tensors on the CPU alone", "--option TOOL.cpu=1 takes them in"),
    "name": ("of operators that are not on the tool's lists", "--include chooses others"),
    "numel": ("outside the chosen sizes", ""),
    "module": ("from modules that were not chosen", ""),
    "first": ("beyond the first of their kind", "--option TOOL.first=0 lifts that"),
    "cap": ("beyond the caps", "--budget raises them"),
}
_SKIPPED = {
    "metadata": "metadata alone, nothing to compute",
    "uninitialised": "made of memory that nobody wrote",
    "collective": "collectives",
    "max_bytes": "too large for the CPU copy (max_bytes)",
    "share": "beyond the share of time that was granted (share)",
    "random": "random numbers, judged by their statistics at most",
    "unable": "the CPU could not run them",
}
_TOOLS = {
    "autocompare": "wrong results",
    "nan": "NaN and Inf",
    "time": "time per operator",
}
Row = tuple[str, str, str]


def list_unseen(collected: Collected) -> list[Row]:
    """(what, why, how to look at it)."""
    rows = [*_list_tools(collected), *_list_calls(collected), *_list_skipped(collected), *_list_operators(collected)]
    missing = find_missing_ranks(collected)
    if missing:
        shown = ", ".join(map(str, missing[:20])) + (" ..." if len(missing) > 20 else "")
        rows.append((f"rank {shown}", "no log: not traced, not on this disk, or ended before its tools", ""))
    for lane in collected.lanes:
        if lane.lost:
            rows.append(
                (f"{lane.lost:,} records of rank {lane.rank}", "dropped by a full queue, or lost on the disk", "")
            )
    if any(operator.nan for operator in collected.operators.values()):
        rows.append(("results behind a NaN or Inf", "what is computed from it is not blamed", "mend the first one"))
    return rows


def _get_tools(collected: Collected) -> set[str]:
    named = {str(tool) for run in collected.runs for process in run.processes for tool in take_list(process, "tools")}
    words = {"compare": "autocompare", "overflow": "nan", "overflow_check": "nan", "time_measure": "time"}
    return named | {words.get(tool, tool) for tool in collected.tools}


def _list_tools(collected: Collected) -> list[Row]:
    tools = _get_tools(collected)
    how = "ditorch run --tool {}"
    return [(what, f"{tool} was not on", how.format(tool)) for tool, what in _TOOLS.items() if tool not in tools]


def _list_calls(collected: Collected) -> list[Row]:
    sums: dict[tuple[str, str], float] = {}
    for run in collected.runs:
        for process in run.processes:
            for tool, counts in take_dict(process, "counts").items():
                for reason in _REASONS:
                    count = take_number(counts, reason) if isinstance(counts, dict) else 0
                    sums[tool, reason] = sums.get((tool, reason), 0) + count
    rows = []
    for (tool, reason), count in sums.items():
        if count > 0:
            why, how = _REASONS[reason]
            rows.append((f"{count:,.0f} calls, by {tool}", why, how.replace("TOOL", tool)))
    return rows


def _list_skipped(collected: Collected) -> list[Row]:
    sums: dict[str, float] = {}
    for run in collected.runs:
        for process in run.processes:
            facts = take_dict(take_dict(process, "facts"), "autocompare")
            for reason in take_dict(facts, "skipped"):
                count = take_number(facts["skipped"], reason)
                sums[str(reason)] = sums.get(str(reason), 0) + count
    return [
        (f"{count:,.0f} calls, by autocompare", _SKIPPED.get(reason, reason), "")
        for reason, count in sums.items()
        if count
    ]


def _list_operators(collected: Collected) -> list[Row]:
    if "autocompare" not in _get_tools(collected):
        return []
    if collected.has_wrong_alone:
        return [("comparisons that were right", "rows=wrong keeps them out of the log", "leave rows=wrong out")]
    never = [operator.name for operator in collected.operators.values() if operator.calls and not operator.compared]
    if not never:
        return []
    shown = ", ".join(never[:12]) + (f" and {len(never) - 12} more" if len(never) > 12 else "")
    return [(f"{len(never)} operator{'' if len(never) == 1 else 's'}", f"recorded, but never compared: {shown}", "")]


def describe_cuts(collected: Collected, shown: dict[str, Any]) -> list[Row]:
    """What is in the logs and not on this page."""
    rows = []
    calls = sum(operator.timed for operator in collected.operators.values())
    listed = len(shown["slowest"]["id"])
    if calls > listed:
        rows.append((f"{calls - listed:,} calls one by one", f"the {listed:,} slowest are listed", "ditorch export"))
    cut = sum(lane.steps.cut for lane in collected.lanes if lane.steps is not None)
    if cut:
        rows.append(
            (f"{cut:,} calls in the timeline", "a step is drawn up to its first calls", "ditorch export -o t.json")
        )
    without = sum(lane.steps is None for lane in collected.lanes)
    if without:
        rows.append(
            (f"{without:,} processes in the timeline", "the first processes are drawn", "ditorch report RUN/log/X")
        )
    return rows
