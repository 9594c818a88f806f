"""What a bisection remembers: finished runs, one line each, so that a second start goes on where the first ended."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
from typing import Any

from .runner import Choice, Outcome

FORMAT = "ditorch-bisect"
BASE = "ditorch_runs"


class StateError(ValueError):
    """The folder is of something else."""


def make_name(about: dict[str, Any]) -> str:
    """The folder's name: the same for the same program and question."""
    text = json.dumps(about, sort_keys=True)
    return f"bisect-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


class State:
    """`runs.jsonl` in the folder of a bisection; a line that was half written by a crash is left out."""

    def __init__(self, folder: str, about: dict[str, Any], fresh: bool = False):
        self.folder, self.path = os.path.abspath(folder), os.path.join(os.path.abspath(folder), "runs.jsonl")
        os.makedirs(self.folder, exist_ok=True)
        self.runs: dict[str, Outcome] = {}
        if fresh:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path)
        lines = self._read()
        if lines:
            if lines[0].get("format") != FORMAT:
                raise StateError(f"{self.path!r} is not of `ditorch bisect`; choose another --out")
            if lines[0].get("about") != json.loads(json.dumps(about)):
                raise StateError(
                    f"{self.folder!r} belongs to another bisection ({lines[0].get('about', {}).get('command')!r}, or "
                    "the program has changed since); choose another --out, or --fresh to forget it"
                )
            for line in lines[1:]:
                with contextlib.suppress(KeyError, TypeError):
                    self.runs[line["choice"]] = Outcome(**line["outcome"])
            self._mend()
        else:
            self._write({"format": FORMAT, "about": about})

    def _read(self) -> list[dict[str, Any]]:
        try:
            with open(self.path, encoding="utf-8", errors="replace") as file:
                text = file.readlines()
        except FileNotFoundError:
            return []
        found = []
        for line in text:
            with contextlib.suppress(ValueError):
                value = json.loads(line)
                found.append(value if isinstance(value, dict) else {})
        if text and not found:
            raise StateError(f"{self.path!r} is not of `ditorch bisect`; choose another --out")
        return found

    def _mend(self) -> None:
        """What comes next begins on a line of its own."""
        with open(self.path, "rb+") as file:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")

    def _write(self, value: dict[str, Any]) -> None:
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(value) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def find(self, choice: Choice) -> Outcome | None:
        return self.runs.get(choice.to_key())

    def keep(self, choice: Choice, outcome: Outcome) -> None:
        self.runs[choice.to_key()] = outcome
        self._write({"choice": choice.to_key(), "outcome": dataclasses.asdict(outcome)})
