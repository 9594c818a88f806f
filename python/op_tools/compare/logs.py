"""What a run left behind: its logs by rank, and the notes that `ditorch run` wrote beside them."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ditorch import _C, export

MOST_NOTES = 64 << 20
"""Bytes of one run-*.json that are read."""


@dataclass
class Run:
    """One side: files by rank, and what is known of it."""

    path: str
    ranks: dict[int, list[str]] = field(default_factory=dict)
    world: int = 0
    """Ranks that the job had."""
    notes: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def get_note(self, name: str) -> Any:
        """A fact of the first rank, None when no run-*.json tells it."""
        return self.notes[0].get(name) if self.notes else None


def has_logs(path: str) -> bool:
    """A log, or a folder with one below it."""
    return path.endswith(export.LOG) or (os.path.isdir(path) and bool(export.find([path])))


def open_run(path: str) -> Run:
    """Find the logs below `path`. What cannot be read is a problem of the run, not an exception."""
    run = Run(path)
    for name in export.find([path]):
        try:
            header = _read_header(name)
        except (OSError, ValueError, NotImplementedError) as error:
            run.problems.append(f"{error}; left out")
            continue
        if header is None:
            empty = "the log is empty: its program wrote nothing, or was killed before it did"
            run.problems.append(
                f"{name}: {'has no header that can be read; left out' if os.path.getsize(name) else empty}"
            )
            continue
        run.world = max(run.world, header["world_size"])
        run.ranks.setdefault(header["rank"], []).append(name)
    if os.path.isdir(path):
        _read_notes(run)
    return run


def _read_header(path: str) -> dict[str, Any] | None:
    """A damaged header is known once the first copy of it in the file was met."""
    reader = _C.LogReader([path])
    try:
        if reader.header(0) is None:
            next(reader, None)
        return reader.header(0)
    finally:
        reader.close()


def _read_notes(run: Run) -> None:
    for name in sorted(os.listdir(run.path)):
        if not (name.startswith("run-r") and name.endswith(".json")):
            continue
        path = os.path.join(run.path, name)
        try:
            if os.path.getsize(path) > MOST_NOTES:
                raise ValueError("it is larger than such a file can be")
            with open(path, encoding="utf-8") as file:
                value = json.load(file)
            if not isinstance(value, dict) or value.get("format") != "ditorch-run":
                raise ValueError("it is not of `ditorch run`")
            run.notes.append(value)
        except (OSError, ValueError, RecursionError) as error:
            run.problems.append(f"{path}: {error}; left out")
    run.notes.sort(key=lambda note: note["rank"] if isinstance(note.get("rank"), int) else 0)


def pair_ranks(a: Run, b: Run, wanted: Sequence[int] | None = None) -> list[tuple[int, int]]:
    """Which rank is compared with which: equal numbers, and each further one of the larger run with the one whose place
    it has in the smaller run's order (rank 5 of 8 with rank 1 of 4)."""
    small, large = (a, b) if len(a.ranks) <= len(b.ranks) else (b, a)
    order = sorted(small.ranks)
    pairs = []
    for rank in sorted(large.ranks) if order else ():
        if wanted is not None and rank not in wanted:
            continue
        other = rank if rank in small.ranks else order[rank % len(order)]
        pairs.append((other, rank) if small is a else (rank, other))
    return pairs


def find_missing(a: Run, b: Run) -> dict[str, list[int]]:
    """Ranks of jobs of one size that left a log in the other run alone, by the side that lacks them."""
    if a.world != b.world or not a.ranks or not b.ranks:
        return {"a": [], "b": []}
    return {"a": sorted(set(b.ranks) - set(a.ranks)), "b": sorted(set(a.ranks) - set(b.ranks))}


def describe_losses(reader: Any, files: Sequence[str]) -> list[str]:
    """What a log lost, in words; to be asked when it was read."""
    return [f"{name}: {text}" for i, name in enumerate(files) for text in export._describe(reader.counts(i))]
