"""Counts of clean runs: comparisons, accusations, what was not compared, what was left undecided.

A run is counted from the tool's own answer; results that the verdict leaves undecided inside of a compared call are
known from its record log alone.
"""

import contextlib
import math
import os
import signal


class Tally:
    """The counts of several runs."""

    def __init__(self):
        self.compared = self.further = self.undecided = 0
        self.unknown, self.accused = {}, []

    def add(self, tool, where):
        facts = tool.describe()
        self.compared += facts["forward"]["compared"] + facts["backward"]["compared"]
        self.further += max(0, facts["runs"] - facts["forward"]["compared"])
        for name, (count, reason) in facts["unable"].items():
            self.unknown[(name, reason)] = self.unknown.get((name, reason), 0) + count
        for reason in ("random", "max_bytes", "share", "collective"):
            if facts["skipped"][reason]:
                self.unknown[("skipped", reason)] = self.unknown.get(("skipped", reason), 0) + facts["skipped"][reason]
        for finding in facts["findings"]:
            self.accused.append((where, finding))

    def add_undecided(self, folder):
        """Results without a verdict, from the record log of a tool that wrote below `folder`."""
        from ditorch import export

        if os.path.isdir(folder):
            records = export.read(export.find([folder]), types=["compare"])
            self.undecided += sum(record.get("verdict") == "unknown" for record in records)

    def merge(self, other):
        self.compared += other.compared
        self.further += other.further
        self.undecided += other.undecided
        for key, count in other.unknown.items():
            self.unknown[key] = self.unknown.get(key, 0) + count
        self.accused += other.accused

    @property
    def accusations(self):
        return sum(finding["count"] for _, finding in self.accused)

    @property
    def not_compared(self):
        return sum(self.unknown.values())


def bound(events, trials, confidence=0.95):
    """The exact (Clopper-Pearson) upper bound of a rate."""
    if events >= trials:
        return 1.0

    def tail(rate):  # probability of at most `events`; in logarithms, since (1 - rate) ** trials may be too small
        logs = [
            math.lgamma(trials + 1)
            - math.lgamma(k + 1)
            - math.lgamma(trials - k + 1)
            + k * math.log(rate)
            + (trials - k) * math.log1p(-rate)
            for k in range(events + 1)
        ]
        top = max(logs)
        return math.exp(top) * sum(math.exp(value - top) for value in logs)

    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if tail(middle) > 1 - confidence else (low, middle)
    return high


@contextlib.contextmanager
def limited(seconds):
    def stop(*_):
        raise TimeoutError(f"more than {seconds} s")

    previous = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)
