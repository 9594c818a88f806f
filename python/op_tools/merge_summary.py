"""What ranks of a distributed program did, side by side: the data behind `ditorch merge`, and its three forms.

A row per operator and rank and an entry per kind of finding are all that is kept, whatever the size of the logs. Ranks
are compared by what they should have in common: operators, numbers of calls, steps, findings.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from ditorch.findings import order

SORTS = ("time", "calls", "imbalance", "name")


@dataclass
class Share:
    """What one rank did with one operator."""

    observed: int = 0
    timed: int = 0
    compared: int = 0
    forward_ns: int = 0
    backward_ns: int = 0

    @property
    def calls(self) -> int:
        """Every tool counts on its own; the one that saw most is right."""
        return max(self.observed, self.timed, self.compared)

    @property
    def total_ns(self) -> int:
        return self.forward_ns + self.backward_ns


@dataclass
class Rank:
    """One rank: its processes (several after a restart) and what was recorded."""

    number: int
    processes: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    records: int = 0
    lost: int = 0
    last_step: int = -1
    operators: dict[str, Share] = field(default_factory=dict)
    findings: int = 0

    @property
    def calls(self) -> int:
        return sum(share.calls for share in self.operators.values())


@dataclass
class Finding:
    """Findings of one tool that say the same about one operator, over all ranks."""

    tool: str
    name: str
    kind: str
    verdict: str
    counts: dict[int, int] = field(default_factory=dict)
    """By rank."""
    firsts: dict[int, dict[str, Any]] = field(default_factory=dict)
    """By rank: rank, step, id, time, location and text of its first one."""

    def get_first(self) -> dict[str, Any]:
        """Of all ranks."""
        return order(self.firsts.values())[0]


@dataclass
class Summary:
    """All of it; `as_dict`, `as_text` and `as_csv` show it."""

    world_size: int = 0
    ranks: dict[int, Rank] = field(default_factory=dict)
    findings: dict[tuple, Finding] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    """What could not be read, file by file."""

    def get_missing(self) -> list[int]:
        """Ranks of the program that left no readable log."""
        return [rank for rank in range(self.world_size) if rank not in self.ranks]

    def get_names(self) -> list[str]:
        return sorted({name for rank in self.ranks.values() for name in rank.operators})

    def get_shares(self, name: str) -> dict[int, Share]:
        """Of the ranks that recorded calls at all."""
        empty = Share()
        return {number: rank.operators.get(name, empty) for number, rank in self.ranks.items() if rank.calls}

    def get_disagreements(self) -> list[str]:
        """What ranks should have in common and have not, in words."""
        lines = []
        steps = _group({number: rank.last_step for number, rank in self.ranks.items() if rank.last_step >= 0})
        if len(steps) > 1:
            lines.append("the last step is " + _join(steps))
        for name in self.get_names():
            counts = _group({number: share.calls for number, share in self.get_shares(name).items()})
            if len(counts) > 1:
                lines.append(f"{name} was called {_join(counts)}")
        return lines

    def get_operators(self, sort: str = "time") -> list[dict[str, Any]]:
        """One row per operator."""
        rows = []
        for name in self.get_names():
            shares = self.get_shares(name)
            times = {number: share.total_ns for number, share in shares.items() if share.total_ns}
            slowest = max(times, key=lambda number: times[number], default=None)
            row = {
                "name": name,
                "ranks": sorted(number for number, share in shares.items() if share.calls),
                "calls": sum(share.calls for share in shares.values()),
                "forward_ms": sum(share.forward_ns for share in shares.values()) / 1e6,
                "backward_ms": sum(share.backward_ns for share in shares.values()) / 1e6,
                "slowest_rank": slowest,
                "imbalance": max(times.values()) / min(times.values()) if times else None,
                "findings": sum(sum(f.counts.values()) for f in self.findings.values() if f.name == name),
                "per_rank": {number: vars(share) | {"calls": share.calls} for number, share in shares.items()},
            }
            rows.append(row)
        keys: dict[str, Callable[[dict], Any]] = {
            "time": lambda row: (-row["forward_ms"] - row["backward_ms"], -row["calls"]),
            "calls": lambda row: -row["calls"],
            "imbalance": lambda row: -(row["imbalance"] or 0),
            "name": lambda row: row["name"],
        }
        return sorted(rows, key=keys[sort])

    def get_findings(self) -> list[Finding]:
        """The first one first."""
        ordered = order({**finding.get_first(), "of": finding} for finding in self.findings.values())
        return [row["of"] for row in ordered]

    def as_dict(self, sort: str = "time") -> dict[str, Any]:
        """Plain data, for JSON."""
        return {
            "world_size": self.world_size,
            "ranks": [
                {
                    **{name: value for name, value in vars(rank).items() if name != "operators"},
                    "calls": rank.calls,
                    "time_ms": sum(share.total_ns for share in rank.operators.values()) / 1e6,
                }
                for _, rank in sorted(self.ranks.items())
            ],
            "missing_ranks": self.get_missing(),
            "operators": self.get_operators(sort),
            "findings": [
                {
                    **{name: getattr(finding, name) for name in ("tool", "name", "kind", "verdict")},
                    **finding.get_first(),
                    "count": sum(finding.counts.values()),
                    "per_rank": dict(sorted(finding.counts.items())),
                }
                for finding in self.get_findings()
            ],
            "disagreements": self.get_disagreements(),
            "problems": self.problems,
        }

    def as_csv(self) -> str:
        """A row per operator and rank."""
        out = io.StringIO()
        writer = csv.writer(out)
        writer.writerow(["operator", "rank", "calls", "forward_ms", "backward_ms", "findings"])
        for name in self.get_names():
            for number, share in sorted(self.get_shares(name).items()):
                found = sum(f.counts.get(number, 0) for f in self.findings.values() if f.name == name)
                times = [f"{value / 1e6:.6f}" for value in (share.forward_ns, share.backward_ns)]
                writer.writerow([name, number, share.calls, *times, found])
        return out.getvalue()

    def as_text(self, top: int = 20, sort: str = "time") -> str:
        """For people."""
        parts = [self._describe_ranks(), self._describe_operators(top, sort), self._describe_findings(top)]
        disagreements = self.get_disagreements()
        if disagreements:
            lines = [f"  {line}" for line in disagreements[: top or None]]
            if len(lines) < len(disagreements):
                lines.append(f"  ... and {len(disagreements) - len(lines)} more")
            parts.append("ranks disagree\n" + "\n".join(lines))
        return "\n\n".join(part for part in parts if part) + "\n"

    def _describe_ranks(self) -> str:
        of = f" of {self.world_size}" if self.world_size > 0 else ""
        lines = [f"{len(self.ranks)} rank{'' if len(self.ranks) == 1 else 's'}{of}"]
        missing = self.get_missing()
        if missing:
            lines.append(
                f"no log of rank {show_ranks(missing)}: not traced, not on this disk, or ended before its tools"
            )
        head = ("rank", "process", "records", "lost", "calls", "last step", "time ms", "findings")
        rows: list[tuple[Any, ...]] = [head]
        for number, rank in sorted(self.ranks.items()):
            time = sum(share.total_ns for share in rank.operators.values()) / 1e6
            step = rank.last_step if rank.last_step >= 0 else "-"
            process = ", ".join(rank.processes)
            rows.append((number, process, rank.records, rank.lost, rank.calls, step, f"{time:.3f}", rank.findings))
        return "\n".join([*lines, *_table(rows, left=(1,))])

    def _describe_operators(self, top: int, sort: str) -> str:
        operators = self.get_operators(sort)
        if not operators:
            return ""
        rows = [("operator", "ranks", "calls", "forward ms", "backward ms", "slowest", "max/min", "findings")]
        for row in operators[: top or None]:
            imbalance = "-" if row["imbalance"] is None else f"{row['imbalance']:.2f}"
            slowest = "-" if row["slowest_rank"] is None else f"rank {row['slowest_rank']}"
            times = f"{row['forward_ms']:.3f}", f"{row['backward_ms']:.3f}"
            ranks = show_ranks(row["ranks"])
            rows.append((row["name"], ranks, row["calls"], *times, slowest, imbalance, row["findings"]))
        lines = _table(rows, left=(0, 1, 5))
        if len(operators) > len(rows) - 1:
            lines.append(f"... and {len(operators) - len(rows) + 1} more operators (--top 0 shows all)")
        return "\n".join(lines)

    def _describe_findings(self, top: int) -> str:
        findings = self.get_findings()
        if not findings:
            return ""
        lines = ["findings, the first one first"]
        for finding in findings[: top or None]:
            count = sum(finding.counts.values())
            first = finding.get_first()
            where = f", at {first['location']}" if first["location"] else ""
            lines.append(
                f"  {finding.name} {finding.kind}: {finding.verdict} ({finding.tool}), first on rank {first['rank']} "
                f"in step {first['step']}; {count} on rank {show_ranks(finding.counts)}{where}"
            )
            if first["text"]:
                lines.append(f"    {first['text']}")
        if len(findings) > len(findings[: top or None]):
            lines.append(f"  ... and {len(findings) - top} more")
        return "\n".join(lines)


# Texts


def show_ranks(numbers: Iterable[int]) -> str:
    """`0-3,5`."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in parts)


def _group(values: dict[int, int]) -> dict[int, list[int]]:
    """Which ranks have which value."""
    groups: dict[int, list[int]] = {}
    for number, value in values.items():
        groups.setdefault(value, []).append(number)
    return groups


def _join(groups: dict[int, list[int]]) -> str:
    """The value that most ranks have first."""
    order = sorted(groups.items(), key=lambda item: (-len(item[1]), item[1]))
    return ", ".join(f"{value} on rank {show_ranks(numbers)}" for value, numbers in order)


def _table(rows: list[tuple], left: tuple[int, ...]) -> list[str]:
    texts = [
        [f"{cell:,}" if isinstance(cell, int) and column else str(cell) for column, cell in enumerate(row)]
        for row in rows
    ]
    widths = [max(len(row[column]) for row in texts) for column in range(len(texts[0]))]
    return [
        "  ".join(
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in texts
    ]
