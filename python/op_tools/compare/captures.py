"""The tensors of calls that both runs captured: read safely, compared element by element."""

from __future__ import annotations

import os
from typing import Any

import torch

from .. import reader
from .measure import compare_tensors, get_tolerance

MOST = 10_000
"""Captured pairs that are compared; more are said to be left out."""


def compare(comparison: Any) -> None:
    """Add what the captures of both runs say to the comparison's result."""
    result = comparison.result
    known = [_find(run.path) for run in (result.a, result.b)]
    if not known[0] or not known[1]:
        return
    left_out = 0
    for row in comparison.pair:
        if row[0] < 0 or row[1] < 0 or row[8] & 1:
            continue
        calls = [comparison.pair.call(0, row[0]), comparison.pair.call(1, row[1])]
        refs = [found.get((call["pid"], call["id"])) for found, call in zip(known, calls, strict=True)]
        if None in refs:
            continue
        if result.counts["captures"] >= MOST:
            left_out += 1
            continue
        _compare_call(comparison, calls[0], refs)
    if left_out:
        result.problems.append(f"{left_out} more captured calls of both runs were not read (the first {MOST} were)")


def _find(path: str) -> dict[tuple[int, int], Any]:
    """Captured calls by process and number; those of a single log lie beside its folder `log`."""
    folder, name = os.path.split(os.path.dirname(os.path.abspath(path)))
    if os.path.isdir(path):
        folder = path
    elif name != "log":
        return {}
    found: dict[tuple[int, int], Any] = {}
    for ref in reader.find_cases(folder):
        if not ref.error and ref.role == "plain" and ref.pid is not None and ref.id is not None:
            found.setdefault((ref.pid, ref.id), ref)
    return found


def _compare_call(comparison: Any, call: dict[str, Any], refs: list[Any]) -> None:
    result = comparison.result
    try:
        cases = [reader.load_case(ref) for ref in refs]
    except reader.CaseError as error:
        result.problems.append(f"{error}; not compared")
        return
    rows = []
    for part in ("output", "grad_inputs"):
        lists = [_list_tensors(getattr(case, part)) for case in cases]
        for index, (one, other) in enumerate(zip(*lists, strict=False)):
            rows.append({"part": part, "index": index, **compare_tensors(one, other)})
    if not rows:
        return
    result.counts["captures"] += 1
    worst = max(rows, key=lambda row: row["error"])
    limit = comparison.options.tolerance
    if limit is None:
        limit = get_tolerance(worst["dtype_a"], worst["dtype_b"])
    if worst["error"] > limit:
        result.counts["capture_differ"] += 1
        if len(result.captures) < 50:
            about = {name: call[name] for name in ("step", "name", "module", "location")}
            result.captures.append({**about, **worst, "path_a": refs[0].path, "path_b": refs[1].path})


def _list_tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [item for part in value for item in _list_tensors(part)] if isinstance(value, (list, tuple)) else []
