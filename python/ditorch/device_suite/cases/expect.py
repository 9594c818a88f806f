"""What a device is expected to do with PyTorch's test cases. Data, in TOML.

    [device]        name, timeout
    [[skip]]        files, cases, reason               not run (it would hang, or take the machine down)
    [[fail]]        files, cases, reason               run, and expected to fail; when all of a row pass, it is told
    [[tolerance]]   files, cases, rtol, atol, reason   at least these in assertEqual

`files` and `cases` are names or shell patterns; a case is Class.test. Without `files` a row holds everywhere, without
`cases` for all cases of the files. Depends on the standard library alone.
"""

from __future__ import annotations

import difflib
import fnmatch
import os
from typing import Any

from .. import expect

LISTS = ("skip", "fail", "tolerance")
DEFAULTS: dict[str, Any] = {"name": "", "timeout": 300}


def find_shipped(backend: str | None) -> str:
    """The file for a backend: its own if there is one, else what holds for any device that answers to "cuda"."""
    own = os.path.join(expect.SHIPPED, f"cases_{backend}.toml")
    return own if os.path.exists(own) else os.path.join(expect.SHIPPED, "cases_cuda.toml")


class Row:
    """One row of a list, and what it met: `met` cases in the files `met_in`, of which `passed` passed."""

    def __init__(self, place: str, table: dict[str, Any]) -> None:
        self.place = place
        self.files: list[str] = table.get("files", [])
        self.cases: list[str] = table.get("cases", [])
        self.reason: str = table["reason"]
        self.numbers = {key: table[key] for key in ("rtol", "atol") if key in table}
        self.met = self.passed = 0
        self.met_in: set[str] = set()

    def holds(self, file: str, case: str) -> bool:
        return _match(self.files, file) and _match(self.cases, case)

    def concerns(self, files: list[str]) -> bool:
        """One of these files is meant."""
        return any(_match(self.files, file) for file in files)


def _match(patterns: list[str], name: str) -> bool:
    return not patterns or any(pattern == name or fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


class CaseExpectations(expect.Document):
    """A file, read and checked; per case `find(list, file, case)`."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        data = self._load()
        self._check_keys(data, ("device", *LISTS), "")
        self.device = {**DEFAULTS, **data.get("device", {})}
        self._check_keys(self.device, DEFAULTS, "device")
        self._check(self.device["name"], "device.name", str, "a text")
        self._check_seconds(self.device["timeout"], "device.timeout")
        self.rows = {name: self._read_rows(name, data.get(name, [])) for name in LISTS}

    def find(self, name: str, file: str, case: str) -> Row | None:
        """The last row that holds: later rows may be narrower."""
        return next((row for row in reversed(self.rows[name]) if row.holds(file, case)), None)

    def tell_idle(self, cases: dict[str, list[str]]) -> list[str]:
        """Rows that met nothing, though a file that they are for was run whole; `cases`: per file, Class.test."""
        notes = []
        for row in [row for rows in self.rows.values() for row in rows]:
            if row.met or not row.concerns(list(cases)):
                continue
            known = [case for file, names in cases.items() if _match(row.files, file) for case in names]
            near = [close for name in row.cases for close in difflib.get_close_matches(name, known, 2)][:3]
            what = ", ".join(row.cases) or "all cases"
            text = f"{self.path}: {row.place} ({what}) meets no case of the files that ran"
            notes.append(text + (f"; near: {', '.join(near)}" if near else ""))
        return notes

    def _read_rows(self, name: str, tables: Any) -> list[Row]:
        self._check(tables, name, list, f"a list of tables, each begun by [[{name}]]")
        return [self._read_row(f"{name}[{index}]", table, name) for index, table in enumerate(tables)]

    def _read_row(self, place: str, table: Any, name: str) -> Row:
        self._check_keys(table, ("files", "cases", "reason", *(("rtol", "atol") if name == "tolerance" else ())), place)
        words = [*table.get("files", []), *table.get("cases", [])]
        for key in ("files", "cases"):
            if table.get(key, True) == []:
                self._fail(f"{place}.{key} is empty; leave it out for all")
            self._check_words(table.get(key, []), f"{place}.{key}")
        if not words:
            self._fail(f'{place} has neither files nor cases; name some, such as cases = ["TestNN.test_rnn*"]')
        self._check_reason(table, place, words)
        if name == "tolerance":
            self._check_width(table, place)
        return Row(place, table)
