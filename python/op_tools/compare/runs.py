"""Two runs side by side: every pair of calls judged once, summed up by step, module and operator.

The pairs come from ditorch._C.RunPair. Memory does not grow with the number of calls beyond it: sums, the worst and the
first of each kind are kept. Depends on logs.py and captures.py.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ditorch import _C, export

from . import logs
from .measure import as_number, get_tolerance

BACKWARD, RECOMPUTE, FAILED, FINDING, JUDGED, WRONG = 1, 2, 4, 8, 16, 32
"""enum dit_align_flag"""
UNKNOWN, SHAPES, EQUAL, CLOSE = range(4)
"""enum dit_align_verdict"""
BINS, JUMP, MOST_KEPT, MOST_REGIONS = 10, 10.0, 50, 100_000


TELL_EVERY = 20_000
"""Calls between two words about the progress."""


@dataclass
class Options:
    """What the command line asks for."""

    tolerance: float | None = None
    steps: str | None = None
    ranks: Sequence[int] | None = None
    values: bool = True
    strict: bool = False
    captures: bool = True
    limit: int = 1 << 30
    progress: Callable[[float, float, int], None] | None = None
    """Called with the pairs of ranks that are done, of all, and their calls."""


@dataclass
class Share:
    """Sums of one step, module or operator."""

    pairs: int = 0
    compared: int = 0
    differ: int = 0
    worst: float = 0.0
    ns_a: int = 0
    ns_b: int = 0

    def as_dict(self) -> dict[str, Any]:
        return {
            "pairs": self.pairs,
            "compared": self.compared,
            "differ": self.differ,
            "worst": as_number(self.worst),
            "ms_a": self.ns_a / 1e6,
            "ms_b": self.ns_b / 1e6,
        }


@dataclass
class Result:
    """The comparison of two runs."""

    a: logs.Run
    b: logs.Run
    pairs: list[tuple[int, int]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    first: dict[str, Any] | None = None
    first_bits: dict[str, Any] | None = None
    jumps: list[dict[str, Any]] = field(default_factory=list)
    steps: dict[tuple[int, int, int], Share] = field(default_factory=dict)
    growth: dict[tuple[int, int, int], list[float]] = field(default_factory=dict)
    modules: dict[str, Share] = field(default_factory=dict)
    operators: dict[str, Share] = field(default_factory=dict)
    regions: dict[tuple[str, str, str], dict[str, Any]] = field(default_factory=dict)
    captures: list[dict[str, Any]] = field(default_factory=list)
    only_steps: dict[str, list[int]] = field(default_factory=lambda: {"a": [], "b": []})
    missing_ranks: dict[str, list[int]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    values: bool = True
    strict: bool = False

    @property
    def status(self) -> int:
        """0 the same, 1 they differ, 3 nothing was compared."""
        count = self.counts
        if count["differ"] or count["findings"] or count["capture_differ"]:
            return 1
        if any(self.only_steps.values()) or any(self.missing_ranks.values()):
            return 1
        if self.strict and (count["only_a"] or count["only_b"] or count["shapes"] or count["moved"]):
            return 1
        if self.values:
            return 0 if count["compared"] or count["captures"] else 3
        return 0 if count["pairs"] and not (count["only_a"] or count["only_b"]) else 1 if count["pairs"] else 3


COUNTS = (
    *("calls_a", "calls_b", "pairs", "moved", "compared", "equal", "close", "differ", "shapes", "unknown", "judged"),
    *("recomputed_a", "recomputed_b", "only_a", "only_b", "findings", "captures", "capture_differ", "replaced"),
)


class Comparison:
    """One pair of ranks on its way into a Result."""

    def __init__(self, result: Result, options: Options, ranks: tuple[int, int]):
        self.result, self.options, self.ranks = result, options, ranks
        self.done = 0
        """Pairs before this one."""
        self._limits: dict[tuple[int, int], float] = {}
        self._peak = 0.0
        self._step: int | None = None
        self._errors = array("d")
        self._alone: tuple[list[int], list[int]] = ([], [])
        self._here: tuple[set[int], set[int]] = (set(), set())
        self._modules: dict[int, Share] = {}
        self._operators: dict[int, Share] = {}

    def run(self) -> None:
        steps = export.parse_steps(self.options.steps) if self.options.steps else None
        files = [self.result.a.ranks[self.ranks[0]], self.result.b.ranks[self.ranks[1]]]
        readers = [_C.LogReader(names, None, steps) for names in files]
        self.pair = _C.RunPair(readers[0], readers[1], self.options.limit)
        for reader, names in zip(readers, files, strict=True):
            self.result.problems += logs.describe_losses(reader, names)
        sizes = self.pair.sizes()
        self._add(calls_a=sizes[0], calls_b=sizes[1])
        for side, name in ((0, "A"), (1, "B")):
            if not sizes[side]:
                self.result.problems.append(
                    f"{name}, rank {self.ranks[side]}: the log holds no calls"
                    + (f" of steps {self.options.steps}" if self.options.steps else "")
                )
        if sizes[0] and sizes[1]:
            self._walk()
            self._name_shares()

    def _add(self, **numbers: int) -> None:
        for name, number in numbers.items():
            self.result.counts[name] += number

    # One call after the other

    def _walk(self) -> None:
        begin, whole = self.result.counts["calls_a"] + self.result.counts["calls_b"], sum(self.pair.sizes())
        for number, row in enumerate(self.pair):
            if self.options.progress and number and not number % TELL_EVERY:
                share = min(2 * number / whole, 1.0)
                self.options.progress(self.done + share, len(self.result.pairs), begin - whole + 2 * number)
            if row[5] != self._step:
                self._end_step()
                self._step = row[5]
            if row[0] >= 0 and row[1] >= 0:
                if not row[2]:
                    self._end_region()
                self._take_pair(row)
            else:
                self._take_alone(row)
        self._end_step()
        only = [self._here[0] - self._here[1], self._here[1] - self._here[0]]
        for name, steps in zip("ab", only, strict=True):
            known = self.result.only_steps[name]
            known += sorted(steps - set(known))

    def _take_pair(self, row: tuple) -> None:
        a, b, moved, verdict, error, step, name, module, flags_a, flags_b, dtype_a, dtype_b, *_ = row
        if not self.options.values:
            verdict, error, flags_a, flags_b = UNKNOWN, 0.0, 0, 0
        counts = self.result.counts
        counts["pairs"] += 1
        counts["moved"] += moved
        self._here[0].add(step)
        self._here[1].add(step)
        shares = (self._step_share, self._get(self._modules, module), self._get(self._operators, name))
        compared = differ = 0
        if verdict >= EQUAL:
            limit = self._get_limit(dtype_a, dtype_b)
            compared, differ = 1, int(error > limit)
            counts["equal" if verdict == EQUAL else "differ" if differ else "close"] += 1
            counts["compared"] += 1
            self._errors.append(error)
            if error > 0:
                self._look_closer(a, b, error, limit)
        elif flags_a & flags_b & JUDGED:
            compared, differ = 1, int((flags_a ^ flags_b) & WRONG != 0)
            counts["judged"] += 1
            counts["compared"] += 1
            counts["differ" if differ else "close"] += 1
            if differ:
                self._look_closer(a, b, math.inf, 0.0)
        else:
            counts["shapes" if verdict == SHAPES else "unknown"] += 1
        if (flags_a ^ flags_b) & (FINDING | FAILED):
            counts["findings"] += 1
            self._look_closer(a, b, math.inf, 0.0)
        nanoseconds = self._get_times(row)
        for share in shares:
            share.pairs += 1
            share.compared += compared
            share.differ += differ
            if error > share.worst:
                share.worst = error
            share.ns_a += nanoseconds[0]
            share.ns_b += nanoseconds[1]

    @staticmethod
    def _get_times(row: tuple) -> tuple[int, int]:
        if row[14] >= 0 and row[15] >= 0:
            return row[14], row[15]
        return (row[12], row[13]) if row[12] >= 0 and row[13] >= 0 else (0, 0)

    @staticmethod
    def _get(shares: dict[int, Share], number: int) -> Share:
        share = shares.get(number)
        if share is None:
            share = shares[number] = Share()
        return share

    @property
    def _step_share(self) -> Share:
        key = (self.ranks[0], self.ranks[1], self._step or 0)
        share = self.result.steps.get(key)
        if share is None:
            share = self.result.steps[key] = Share()
        return share

    def _get_limit(self, dtype_a: int, dtype_b: int) -> float:
        if self.options.tolerance is not None:
            return self.options.tolerance
        limit = self._limits.get((dtype_a, dtype_b))
        if limit is None:
            limit = get_tolerance(self.pair.text(dtype_a), self.pair.text(dtype_b))
            self._limits[dtype_a, dtype_b] = limit
        return limit

    def _look_closer(self, a: int, b: int, error: float, limit: float) -> None:
        result = self.result
        if result.first_bits is None:
            result.first_bits = self.describe(a, b, error, limit)
        if error > limit and (result.first is None or self._step < result.first["step"]):
            result.first = self.describe(a, b, error, limit)
        if error > JUMP * self._peak and len(result.jumps) < MOST_KEPT:
            result.jumps.append(self.describe(a, b, error, limit))
        self._peak = max(self._peak, error)

    def describe(self, a: int, b: int, error: float, limit: float) -> dict[str, Any]:
        """A pair in words and numbers."""
        left, right = self.pair.call(0, a), self.pair.call(1, b)
        return {
            **{name: left[name] for name in ("step", "name", "module", "location")},
            "backward": bool(left["flags"] & BACKWARD),
            "rank_a": self.ranks[0],
            "rank_b": self.ranks[1],
            "error": as_number(error),
            "tolerance": limit,
            "a": _plain(left),
            "b": _plain(right),
        }

    # Calls of one run alone

    def _take_alone(self, row: tuple) -> None:
        side = 0 if row[0] >= 0 else 1
        flags = row[8 + side]
        self._here[side].add(row[5])
        if flags & FINDING:
            self._add(findings=1)
        if flags & RECOMPUTE:
            self._add(**{f"recomputed_{'ab'[side]}": 1})
            return
        self._add(**{f"only_{'ab'[side]}": 1})
        self._alone[side].append(row[side])

    def _end_region(self) -> None:
        left, right = self._alone
        if not left and not right:
            return
        calls = [[self.pair.call(side, index) for index in self._alone[side][:64]] for side in (0, 1)]
        modules = [re.sub(r"\d+", "*", call["module"]) for part in calls for call in part]
        key = (_find_common(modules), *(_list_names(part) for part in calls))
        region = self.result.regions.get(key)
        if region is None and len(self.result.regions) < MOST_REGIONS:
            first = (calls[0] or calls[1])[0]
            region = {"times": 0, "agree": 0, "differ": 0, "worst": 0.0, "step": first["step"]}
            self.result.regions[key] = {**region, "location": first["location"]}
        region = self.result.regions.get(key)
        if region is not None:
            region["times"] += 1
            self._judge_region(left, right, region)
        left.clear()
        right.clear()

    def _judge_region(self, left: list[int], right: list[int], region: dict[str, Any]) -> None:
        """Calls of A that stand where B has others: do their last results agree?"""
        if not left or not right:
            return
        verdict, error = self.pair.judge(left[-1], right[-1])
        if verdict < EQUAL:
            return
        last = [self.pair.call(side, alone[-1]) for side, alone in enumerate((left, right))]
        limit = self.options.tolerance
        if limit is None:
            limit = get_tolerance(*(call["stats"]["dtype"] for call in last))
        self._add(replaced=1)
        region["agree" if error <= limit else "differ"] += 1
        region["worst"] = max(region["worst"], error)

    # Ends

    def _end_step(self) -> None:
        self._end_region()
        if len(self._errors):
            size = max(1, math.ceil(len(self._errors) / BINS))
            bins = [max(self._errors[i : i + size]) for i in range(0, len(self._errors), size)]
            self.result.growth[self.ranks[0], self.ranks[1], self._step or 0] = bins
            self._errors = array("d")

    def _name_shares(self) -> None:
        for shares, named in ((self._modules, self.result.modules), (self._operators, self.result.operators)):
            for number, share in shares.items():
                known = named.setdefault(self.pair.text(number), Share())
                known.worst = max(known.worst, share.worst)
                for name in ("pairs", "compared", "differ", "ns_a", "ns_b"):
                    setattr(known, name, getattr(known, name) + getattr(share, name))


def _plain(call: dict[str, Any]) -> dict[str, Any]:
    stats = call["stats"]
    if stats is not None:
        stats = {key: as_number(value) if isinstance(value, float) else value for key, value in stats.items()}
    return {"id": call["id"], "pid": call["pid"], "step": call["step"], "location": call["location"], "stats": stats}


def _find_common(modules: list[str]) -> str:
    """The path that all have in front, in whole parts."""
    first, last = min(modules).split("."), max(modules).split(".")
    count = 0
    while count < min(len(first), len(last)) and first[count] == last[count]:
        count += 1
    return ".".join(first[:count])


def _list_names(calls: Iterable[dict[str, Any]]) -> str:
    """`mul, softmax x2` with `(backward)` where it is one."""
    counted: list[tuple[str, int]] = []
    for call in calls:
        name = call["name"].rpartition(".")[2] + (" (backward)" if call["flags"] & BACKWARD else "")
        if counted and counted[-1][0] == name:
            counted[-1] = (name, counted[-1][1] + 1)
        else:
            counted.append((name, 1))
    parts = [name if number == 1 else f"{name} x{number}" for name, number in counted]
    return ", ".join(parts[:12]) + (" ..." if len(parts) > 12 else "")


def compare(a: logs.Run, b: logs.Run, options: Options) -> Result:
    """Every rank of A against its rank of B."""
    result = Result(a, b, values=options.values, strict=options.strict, problems=[*a.problems, *b.problems])
    result.counts = dict.fromkeys(COUNTS, 0)
    if options.ranks is None:
        result.missing_ranks = logs.find_missing(a, b)
    result.pairs = logs.pair_ranks(a, b, options.ranks)
    for number, ranks in enumerate(result.pairs):
        comparison = Comparison(result, options, ranks)
        comparison.done = number
        comparison.run()
        if options.captures and result.counts["pairs"]:
            from . import captures

            captures.compare(comparison)
    return result
