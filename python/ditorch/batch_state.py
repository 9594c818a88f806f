"""The state file of a batch (`--resume FILE`): a line of JSON per answer, so that a second run goes on.

The first line says which batch it belongs to: path, options, versions, environment of the device. Another batch never
reads it, and never overwrites it. A line that a kill tore is dropped; a case whose files changed runs again.
"""

from __future__ import annotations

import json
import os
from typing import Any

VERSION = 1


class StateError(Exception):
    """The file cannot be used; the text says why and what to do."""


class State:
    """Open (or begin) the file for a batch of the command `ditorch <verb>` that `key` describes."""

    def __init__(self, path: str, key: dict[str, Any], verb: str = "replay") -> None:
        self._path = path
        self._verb = verb
        self._done: dict[str, dict[str, Any]] = {}
        try:
            self._file = open(path, "a+b")  # noqa: SIM115  lives as long as the batch
        except OSError as error:
            raise StateError(f"--resume {path!r}: {error.strerror}") from None
        try:
            self._read(key)
        except BaseException:
            self._file.close()
            raise

    @property
    def _format(self) -> str:
        return f"ditorch-{self._verb}-state"

    def _read(self, key: dict[str, Any]) -> None:
        self._file.seek(0)
        data = self._file.read()
        whole = data[: data.rfind(b"\n") + 1]
        lines = whole.splitlines()
        if not lines:
            self._file.truncate(0) if not data else self._refuse(f"is no state file of ditorch {self._verb}")
            self._write({"format": self._format, "version": VERSION, "key": key})
            return
        try:
            head = json.loads(lines[0])
            known = head["format"] == self._format
        except (ValueError, KeyError, TypeError):
            known = False
        if not known:
            self._refuse(f"is no state file of ditorch {self._verb}")
        if head["version"] != VERSION:
            self._refuse(f"is of version {head['version']}, this is {VERSION}")
        if head["key"] != key:
            self._refuse(f"belongs to another batch: {_name_difference(head['key'], key)}")
        for line in lines[1:]:
            try:
                entry = json.loads(line)
                self._done[entry["case"]] = entry
            except (ValueError, KeyError, TypeError):
                continue  # damaged: that case runs again
        if len(whole) < len(data):
            self._file.truncate(len(whole))

    def _refuse(self, reason: str) -> None:
        raise StateError(f"--resume {self._path!r} {reason}; remove it, or give another file")

    def _write(self, entry: dict[str, Any]) -> None:
        self._file.write(json.dumps(entry, allow_nan=False).encode() + b"\n")
        self._file.flush()

    def get(self, name: str, stamp: str) -> dict[str, Any] | None:
        """The answer of an earlier run, if its files are still the same."""
        entry = self._done.get(name)
        return entry["answer"] if entry is not None and entry.get("stamp") == stamp else None

    def add(self, name: str, stamp: str, answer: dict[str, Any]) -> None:
        self._write({"case": name, "stamp": stamp, "answer": answer})

    def close(self) -> None:
        self._file.close()


def _name_difference(theirs: Any, mine: dict[str, Any]) -> str:
    if not isinstance(theirs, dict):
        return "it has no description"
    names = [name for name in {**theirs, **mine} if theirs.get(name) != mine.get(name)]
    return "; ".join(f"{name} was {theirs.get(name)!r}, now {mine.get(name)!r}" for name in sorted(names))


def make_stamp(path: str) -> str:
    """Sizes and times of the files of a case, as text."""
    path = path.partition("#")[0]
    found = []
    try:
        names = sorted(os.listdir(path)) if os.path.isdir(path) else [""]
        for name in names:
            status = os.stat(os.path.join(path, name) if name else path)
            found.append(f"{name}:{status.st_size}:{status.st_mtime_ns}")
    except OSError as error:
        return f"error {error.errno}"
    return " ".join(found)
