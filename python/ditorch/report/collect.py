"""The logs, read once, record by record, by libdit's reader: memory stays bounded whatever their size."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from .. import _C, export
from . import collected as kept
from .collected import Collected, Lane, Operator
from .runs import Run

TELL_EVERY = 20_000
"""Records between two words about the progress."""
MOST_TEXT = 400
MOST_FINDINGS = 2_000


def collect(runs: list[Run], progress: Callable[[int, int, int], None] | None = None) -> Collected:
    """Everything the page shows. What cannot be read is in `problems`; the rest counts."""
    result = Collected(runs)
    sizes = {log: _measure(log) for run in runs for log in run.logs}
    total, done = sum(sizes.values()), 0
    result.begin_ns = _find_begin(runs)
    for run in runs:
        result.problems += run.problems
        for log in run.logs:
            before = done

            def tell(position: int, before: int = before) -> None:
                if progress:
                    progress(before + position, total, result.records)

            _read_log(result, run, log, tell)
            done += sizes[log]
    if progress:
        progress(total, total, result.records)
    if result.strange:
        result.problems.append(f"{export._plural(result.strange, 'record')} with fields of other kinds; left out")
    return result


def _measure(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


def _find_begin(runs: list[Run]) -> int:
    times = []
    for run in runs:
        for log in run.logs:
            try:
                reader = _C.LogReader([log])
                header = reader.header(0)
                reader.close()
            except (OSError, ValueError, NotImplementedError):
                continue  # told when it is read
            if header is not None:
                times.append(header["time"])
    return min(times, default=0)


def _read_log(result: Collected, run: Run, path: str, tell: Callable[[int], None]) -> None:
    try:
        reader = _C.LogReader([path])
        header = reader.header(0)
        if header is None:
            raise ValueError(f"{path}: the log is empty: the program was killed before it wrote anything")
    except (OSError, ValueError, NotImplementedError) as error:
        result.problems.append(f"{error}; skipped")
        return
    lane = _find_lane(result, run, header)
    handlers = {
        name: function.__get__(_Reading(result, lane))
        for name, function in (
            ("time", _Reading.add_time),
            ("compare", _Reading.add_compare),
            ("call", _Reading.add_call),
            ("finding", _Reading.add_finding),
            ("tool", _Reading.add_tool),
            ("capture", _Reading.add_capture),
        )
    }
    count = 0
    for record in reader:
        count += 1
        handler = handlers.get(record["type"])
        if handler is not None:
            try:
                handler(record)
            except (TypeError, ValueError, KeyError, OverflowError, AttributeError):
                result.strange += 1  # of another writer, or hostile
        if count % TELL_EVERY == 0:
            result.records += TELL_EVERY
            tell(reader.position())
    result.records += count % TELL_EVERY
    lane.records += count
    counts = reader.counts(0)
    lane.lost += max(counts["noted_drops"], counts["missing"])
    result.problems += [f"{path}: {problem}" for problem in export._describe(counts)]
    reader.close()
    if lane.steps is not None:
        lane.steps.finish()


def _find_lane(result: Collected, run: Run, header: dict[str, Any]) -> Lane:
    for lane in result.lanes:
        if lane.run is run and (lane.rank, lane.pid) == (header["rank"], header["pid"]):
            return lane
    lane = Lane(run, len(result.lanes), header["rank"], header["pid"])
    lane.world_size, lane.metadata = header["world_size"], header["metadata"]
    result.lanes.append(lane)
    return lane


def _take_whole(record: dict[str, Any], name: str) -> int:
    """TypeError for what is no whole number: sums and orders rest on it."""
    value = record.get(name, -1)
    if type(value) is not int:
        raise TypeError(name)
    return value


class _Reading:
    """The records of one process."""

    def __init__(self, result: Collected, lane: Lane):
        self.result, self.lane = result, lane
        self.operators = result.operators

    def _find_operator(self, record: dict[str, Any]) -> Operator:
        name = record.get("name", "?")
        operator = self.operators.get(name)
        if operator is not None:
            return operator
        name = str(name)[:MOST_TEXT]
        if name not in self.operators and len(self.operators) >= kept.MOST_OPERATORS:
            name = kept.REST
        return self.operators.setdefault(name, Operator(name))

    def _count_call(self, operator: Operator, tool: int, ns: int = 0) -> None:
        """`tool`: which of the tools counts it, for they see the same calls."""
        counts = operator.lanes.get(self.lane.index)
        if counts is None:
            counts = operator.lanes[self.lane.index] = [0, 0, 0, 0]
        if tool >= 0:
            counts[tool] += 1
        counts[3] += ns

    def _take_step(self, record: dict[str, Any]) -> int:
        step = _take_whole(record, "step")
        if step > self.lane.last_step:
            self.lane.last_step = step
        return step

    def add_call(self, record: dict[str, Any]) -> None:
        operator = self._find_operator(record)
        self._take_step(record)
        operator.observed += 1
        self._count_call(operator, 0)

    def add_time(self, record: dict[str, Any]) -> None:
        operator, lane = self._find_operator(record), self.lane
        device, begin, number = (_take_whole(record, name) for name in ("device_ns", "begin_ns", "id"))
        ns = device if device >= 0 else _take_whole(record, "duration_ns")
        if not 0 <= ns < 1 << 62:
            raise ValueError("no time")
        step = self._take_step(record)
        is_backward = record.get("kind") == "backward"
        when = record["time"] - self.result.begin_ns
        if is_backward:
            operator.backward_ns += ns
            lane.backward.add(when, ns)
        else:
            operator.timed += 1
            operator.forward_ns += ns
            lane.forward.add(when, ns)
        operator.host_clock += device < 0
        self._count_call(operator, -1 if is_backward else 1, ns)
        operator.time.add(when, ns)
        lane.step_time.add(step, ns)
        module = str(record.get("module", ""))[:MOST_TEXT]
        signature = str(record.get("signature", ""))[:MOST_TEXT]
        self._add_place(module, operator.name, is_backward, ns)
        self._add_signature(operator, signature, ns)
        operator.longest_ns = max(operator.longest_ns, ns)
        if lane.steps is not None:
            span = (begin, ns, operator.name, module, is_backward, record["tid"], step)
            lane.steps.add(step, span, ns)
        if ns >= self.result.slowest.floor:
            row = (lane.index, step, number, operator.name, module, is_backward, ns, signature)
            self.result.slowest.add(ns, row)

    def _add_place(self, module: str, name: str, is_backward: bool, ns: int) -> None:
        places = self.result.places
        sums = places.get((module, name))
        if sums is None:
            if len(places) >= kept.MOST_PLACES:
                module, name = "", kept.REST
            sums = places.setdefault((module, name), [0, 0, 0])
        sums[0] += not is_backward
        sums[1 + is_backward] += ns

    def _add_signature(self, operator: Operator, signature: str, ns: int) -> None:
        sums = operator.signatures.get(signature)
        if sums is None:
            if self.result.signatures >= kept.MOST_SIGNATURES:
                return
            self.result.signatures += 1
            sums = operator.signatures[signature] = [0, 0, 0]
        sums[0] += 1
        sums[1] += ns
        sums[2] = max(sums[2], ns)

    def add_compare(self, record: dict[str, Any]) -> None:
        operator = self._find_operator(record)
        self._take_step(record)
        number = _take_whole(record, "id")
        what, verdict = record.get("what"), record.get("verdict")
        if what == "output" and record.get("index", 0) <= 0:
            operator.compared += 1
            self._count_call(operator, 2)
        if verdict == "right":
            difference = record.get("max_abs_diff", 0.0)
            if difference > 0:
                operator.error.add(number, float(difference))
            return
        if verdict != "wrong":
            operator.unknown += 1
            return
        operator.wrong += 1
        error, allowed = float(record.get("error_size", record.get("max_abs_diff", 0.0))), record.get("allowed", 0.0)
        if error < float("inf"):
            operator.wrong_error.add(number, error)
        ratio = error / allowed if allowed > 0 and error == error else float("inf")
        facts = {key: record.get(key) for key in _WORST if key in record}
        facts["ratio"] = ratio
        facts["lane"] = self.lane.index
        if operator.worst is None or ratio > operator.worst_ratio:
            operator.worst, operator.worst_ratio = facts, ratio
        if ratio >= self.result.wrong.floor:
            self.result.wrong.add(ratio, {**facts, "name": operator.name})

    def add_finding(self, record: dict[str, Any]) -> None:
        operator = self._find_operator(record)
        self._take_step(record)
        self.lane.findings += 1
        operator.nan += int(record.get("nan", 0)) != 0 or int(record.get("inf", 0)) != 0
        if len(self.result.findings) < MOST_FINDINGS:
            facts = {key: value for key, value in record.items() if isinstance(value, (str, int, float, list))}
            self.result.findings.append({**facts, "name": operator.name, "lane": self.lane.index})

    def add_tool(self, record: dict[str, Any]) -> None:
        if record.get("event") == "start":
            self.result.tools.setdefault(str(record["tool"])[:40], str(record.get("text", ""))[:MOST_TEXT])

    def add_capture(self, record: dict[str, Any]) -> None:
        self.result.captures += 1
        self.result.captured_bytes += int(record.get("bytes", 0))


_WORST = (
    *("id", "step", "what", "index", "error_size", "allowed", "wrong", "numel", "at", "value", "reference", "cosine"),
    *("max_abs_diff", "max_relative_diff", "module", "location", "reason"),
)
