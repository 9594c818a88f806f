"""Which finding was first: the rule of `ditorch run`, the report and `ditorch merge`, and the only place of it.

The lowest step comes first. Within a rank the number of the call decides, which counts on every thread; across ranks,
whose numbers mean nothing to each other, the time does (clocks of machines differ, but not by much).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Any


def order(findings: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The first one first: each has `rank`, `step`, `id` and, across ranks, `time` (ns)."""
    ranks: dict[Any, list[dict[str, Any]]] = {}
    for finding in findings:
        ranks.setdefault(finding.get("rank"), []).append(finding)
    lanes = [sorted(rows, key=lambda row: (_get(row, "step"), _get(row, "id"))) for rows in ranks.values()]
    return list(heapq.merge(*lanes, key=lambda row: (_get(row, "step"), _get(row, "time"), _get(row, "rank"))))


def _get(row: dict[str, Any], name: str) -> float:
    """A number; what is none counts as 0."""
    value = row.get(name)
    return value if isinstance(value, (int, float)) and value == value else 0
