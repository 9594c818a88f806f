"""What is kept of the logs, whatever their size: sums per operator, module and process, the worst, the slowest."""

from __future__ import annotations

import heapq
import re
from dataclasses import dataclass, field
from typing import Any

from .runs import Run
from .series import Series

MOST_OPERATORS = 5_000
MOST_PLACES = 20_000
MOST_SIGNATURES = 20_000
MOST_CALLS = 3_000
"""Of each kind (slowest, wrong) that are shown one by one."""
MOST_SPANS = 6_000
"""Of one step of one process."""
LANES_WITH_SPANS = 8
REST = "(more operators)"
TIME_BIN = 1 << 20
"""Nanoseconds, the shortest stretch of the timeline."""


class Operator:
    """All calls of one operator."""

    def __init__(self, name: str):
        self.name = name
        self.observed = self.timed = self.compared = self.wrong = self.unknown = 0
        self.forward_ns = self.backward_ns = self.longest_ns = self.host_clock = 0
        self.nan = 0
        self.worst: dict[str, Any] | None = None
        self.worst_ratio = 0.0
        self.error = Series()
        self.wrong_error = Series()
        self.time = Series(is_sum=True, width=TIME_BIN)
        self.lanes: dict[int, list[int]] = {}
        self.signatures: dict[str, list[int]] = {}

    @property
    def calls(self) -> int:
        """Every tool counts on its own; the one that saw most is right."""
        return max(self.observed, self.timed, self.compared)

    @property
    def total_ns(self) -> int:
        return self.forward_ns + self.backward_ns


class Lane:
    """One process of one run."""

    def __init__(self, run: Run, index: int, rank: int, pid: int):
        self.run, self.index, self.rank, self.pid = run, index, rank, pid
        self.records = self.lost = self.findings = 0
        self.world_size = 0
        self.last_step = -1
        self.metadata: dict[str, str] = {}
        self.forward = Series(is_sum=True, width=TIME_BIN)
        self.backward = Series(is_sum=True, width=TIME_BIN)
        self.step_time = Series(is_sum=True, bins=1024)
        self.steps = StepSpans() if index < LANES_WITH_SPANS else None


class StepSpans:
    """Every call of three steps: the first, the slowest after it, the last."""

    def __init__(self) -> None:
        self.first: list[tuple] | None = None
        self.slowest: tuple[int, list[tuple]] | None = None
        self.last: list[tuple] = []
        self.cut = 0
        self._step, self._total = -2, 0
        self._buffer: list[tuple] = []

    def add(self, step: int, span: tuple, duration: int) -> None:
        if step != self._step:
            if step < self._step:  # came late: its step is told already
                return
            self.finish()
            self._step = step
        self._total += duration
        if len(self._buffer) < MOST_SPANS:
            self._buffer.append(span)
        else:
            self.cut += 1

    def finish(self) -> None:
        """The step that was filled is over."""
        if self._buffer:
            if self.first is None:
                self.first = self._buffer
            else:
                if self.slowest is None or self._total > self.slowest[0]:
                    self.slowest = (self._total, self._buffer)
                self.last = self._buffer
        self._total, self._buffer = 0, []

    def get_steps(self) -> list[tuple[str, list[tuple]]]:
        found = [("first", self.first or [])]
        if self.slowest is not None:
            found.append(("slowest", self.slowest[1]))
            if self.last is not self.slowest[1]:
                found.append(("last", self.last))
        return found


class Top:
    """The calls with the largest numbers."""

    def __init__(self, most: int = MOST_CALLS):
        self.most = most
        self.heap: list[tuple] = []
        self.floor = 0.0
        self._tie = 0

    def add(self, key: float, row: Any) -> None:
        self._tie += 1
        if len(self.heap) < self.most:
            heapq.heappush(self.heap, (key, self._tie, row))
        else:
            heapq.heappushpop(self.heap, (key, self._tie, row))
            self.floor = self.heap[0][0]

    def get_rows(self) -> list[Any]:
        return [row for _, _, row in sorted(self.heap, key=lambda item: item[:2], reverse=True)]


@dataclass
class Collected:
    """All of it."""

    runs: list[Run]
    begin_ns: int = 0
    """The earliest log's beginning."""
    lanes: list[Lane] = field(default_factory=list)
    operators: dict[str, Operator] = field(default_factory=dict)
    places: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    """(module, operator): calls, forward ns, backward ns."""
    findings: list[dict[str, Any]] = field(default_factory=list)
    slowest: Top = field(default_factory=Top)
    wrong: Top = field(default_factory=Top)
    tools: dict[str, str] = field(default_factory=dict)
    """Tools that were on, with the options they were given."""
    problems: list[str] = field(default_factory=list)
    records: int = 0
    strange: int = 0
    signatures: int = 0
    captures: int = 0
    captured_bytes: int = 0

    @property
    def has_wrong_alone(self) -> bool:
        """The comparisons that were right are not in the log: how many there were is unknown."""
        return any(re.search(r"\brows=wrong\b", text) for text in self.tools.values())
