"""The expectations file: what a device supports, what may fail there and why, how close it must come. Data, in TOML.

    [device]            name, torch, database, dtypes, checks, samples, timeout, tolerance.<dtype>
    [guard]             references, c_entries.<dtype>
    [[skip]]            entries, dtypes, reason            not run (it would hang, or take the machine down)
    [[fail]]            entries, dtypes, reason            run, and expected to fail; passing is reported
    [[no_reference]]    entries, dtypes, reason            the CPU itself cannot run it
    [[tolerance]]       entries, dtypes, rtol, atol, reason
    [[samples]]         entries, dtypes, most, reason      an even choice of the samples of slow pairs

Invariant: a file that is accepted has no unknown key and no wrong type, and every row has a reason. Errors name the
file, the key, the value and what is valid. Depends on the standard library alone.
"""

from __future__ import annotations

import difflib
import fnmatch
import os
from typing import Any

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    try:
        import tomli as tomllib
    except ModuleNotFoundError:
        try:
            from pip._vendor import tomli as tomllib
        except ModuleNotFoundError:
            tomllib = None

CHECKS = ("values", "strides", "aliases", "gradients", "inplace", "out", "random")
"""What may be compared, besides structure, shapes, dtypes and devices, which always are."""
DTYPES = (
    "float32", "float64", "float16", "bfloat16", "int64", "int32", "bool", "complex64", "int8", "int16", "uint8",
    "uint16", "uint32", "uint64", "complex32", "complex128", "float8_e4m3fn", "float8_e5m2",
)  # fmt: skip
USUAL = DTYPES[:8]
SHIPPED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "expect")
LISTS = {"skip": (), "fail": (), "no_reference": (), "tolerance": ("rtol", "atol"), "samples": ("most",)}
"""The lists of rows, and the numbers that their rows have."""
DEVICE_DEFAULTS: dict[str, Any] = {
    "name": "",
    "torch": "",
    "database": "cuda",
    "dtypes": list(USUAL),
    "checks": list(CHECKS),
    "samples": 0,
    "timeout": 120,
    "tolerance": {},
}


class ExpectationError(Exception):
    """The file cannot be used; the text says where and why."""


def find_shipped(backend: str | None, compiled: bool = False) -> str:
    """The file for a backend: its own if there is one, else what holds for any device that answers to "cuda"."""
    own = os.path.join(SHIPPED, f"{backend}_compiled.toml" if compiled else f"{backend}.toml")
    if compiled and not os.path.exists(own):
        return find_shipped(backend)
    return own if os.path.exists(own) else os.path.join(SHIPPED, "cuda.toml")


class Row:
    """One row of a list: entries (names or shell patterns), dtypes (none: all), the reason, and its numbers."""

    def __init__(self, place: str, entries: list[str], dtypes: list[str], data: dict[str, Any]) -> None:
        self.place, self.entries, self.dtypes = place, entries, dtypes
        self.reason: str = data["reason"]
        self.numbers = {key: data[key] for key in ("rtol", "atol", "most") if key in data}

    def holds(self, entry: str, dtype: str) -> bool:
        if self.dtypes and dtype not in self.dtypes:
            return False
        return any(name == entry or fnmatch.fnmatchcase(entry, name) for name in self.entries)


class Document:
    """A TOML file; what is wrong in it is told with the file, the key, the value and what is valid."""

    def __init__(self, path: str) -> None:
        self.path = path

    def _fail(self, text: str) -> Any:
        raise ExpectationError(f"{self.path}: {text}")

    def _load(self) -> dict[str, Any]:
        if tomllib is None:
            self._fail("cannot be read: Python 3.10 needs the package tomli to read TOML; pip install tomli")
        try:
            with open(self.path, "rb") as file:
                return tomllib.load(file)
        except OSError as error:
            return self._fail(f"cannot be read: {error.strerror}")
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            return self._fail(f"is no TOML: {error}")

    def _check_keys(self, table: Any, valid: Any, place: str) -> None:
        if not isinstance(table, dict):
            self._fail(f"{place} is {table!r}; it must be a table")
        for key in table:
            if key not in valid:
                self._fail(f"unknown key {f'{place}.{key}'.lstrip('.')!r}; valid: {', '.join(valid)}")

    def _check(self, value: Any, place: str, kind: type | tuple[type, ...], valid: str) -> Any:
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            self._fail(f"{place} is {value!r}; it must be {valid}")
        return value

    def _check_words(self, value: Any, place: str, valid: Any = None) -> list[str]:
        self._check(value, place, list, "a list of texts")
        for word in value:
            if not isinstance(word, str) or (valid and word not in valid):
                self._fail(f"{place} has {word!r}; valid: {', '.join(valid) if valid else 'texts'}")
        return value

    def _check_width(self, table: dict[str, Any], place: str) -> None:
        for key in ("rtol", "atol"):
            if key not in table:
                self._fail(f"{place} has no {key}; give both, rtol and atol")
            number = self._check(table[key], f"{place}.{key}", (int, float), "a number that is not negative")
            if not 0 <= number < float("inf"):
                self._fail(f"{place}.{key} is {number!r}; it must be a number that is not negative")

    def _check_reason(self, table: dict[str, Any], place: str, what: list[str]) -> str:
        reason = self._check(table.get("reason", ""), f"{place}.reason", str, "a text")
        if len(reason.strip()) < 10:
            self._fail(f"{place}.reason is {reason!r}; say in a sentence why {', '.join(what)} is listed")
        return reason

    def _check_seconds(self, value: Any, place: str) -> None:
        if self._check(value, place, (int, float), "a number of seconds") <= 0:
            self._fail(f"{place} is {value}; it must be more than 0 seconds")


class Expectations(Document):
    """A file, read and checked; `device`, `guard`, and per pair `find(list, entry, dtype)`."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        data = self._load()
        self._check_keys(data, ("device", "guard", *LISTS), "")
        self.device = self._read_device(data.get("device", {}))
        self.guard = self._read_guard(data.get("guard", {}))
        self.rows = {name: self._read_rows(name, data.get(name, [])) for name in LISTS}

    def find(self, name: str, entry: str, dtype: str) -> Row | None:
        """The last row that holds: later rows may be narrower."""
        return next((row for row in reversed(self.rows[name]) if row.holds(entry, dtype)), None)

    def check_entries(self, known: Any, torch_version: str) -> list[str]:
        """Rows that name no entry of the database: an error in the torch the file was written for, else notes."""
        notes = []
        for row in [row for rows in self.rows.values() for row in rows]:
            for name in row.entries:
                if fnmatch.filter(known, name) or name in known:
                    continue
                near = difflib.get_close_matches(name, known, 3)
                text = f"{row.place}.entries: {name!r} is no entry of the operator database of torch {torch_version}"
                text += f"; near: {', '.join(near)}" if near else ""
                if self.device["torch"] and torch_version.startswith(self.device["torch"] + "."):
                    self._fail(text)
                notes.append(f"{self.path}: {text}")
        return notes

    # Reading

    def _read_device(self, table: Any) -> dict[str, Any]:
        self._check_keys(table, DEVICE_DEFAULTS, "device")
        device = {**DEVICE_DEFAULTS, **table}
        for key in ("name", "torch"):
            self._check(device[key], f"device.{key}", str, "a text")
        if device["database"] not in ("cpu", "cuda"):
            self._fail(f"device.database is {device['database']!r}; valid: cpu, cuda")
        if not self._check_words(device["dtypes"], "device.dtypes", DTYPES):
            self._fail("device.dtypes is empty; leave it out for the usual ones")
        self._check_words(device["checks"], "device.checks", CHECKS)
        if self._check(device["samples"], "device.samples", int, "a number of samples; 0: all") < 0:
            self._fail(f"device.samples is {device['samples']}; it must be 0 (all) or more")
        self._check_seconds(device["timeout"], "device.timeout")
        self._check_keys(device["tolerance"], DTYPES, "device.tolerance")
        for name, width in device["tolerance"].items():
            self._check_keys(width, ("rtol", "atol"), f"device.tolerance.{name}")
            self._check_width(width, f"device.tolerance.{name}")
        return device

    def _read_guard(self, table: Any) -> dict[str, Any]:
        self._check_keys(table, ("references", "c_entries"), "guard")
        guard = {"references": False, "c_entries": {}, **table}
        self._check(guard["references"], "guard.references", bool, "true or false")
        self._check_keys(guard["c_entries"], DTYPES, "guard.c_entries")
        for name, count in guard["c_entries"].items():
            self._check(count, f"guard.c_entries.{name}", int, "a number of entries")
        return guard

    def _read_rows(self, name: str, tables: Any) -> list[Row]:
        self._check(tables, name, list, f"a list of tables, each begun by [[{name}]]")
        return [self._read_row(f"{name}[{index}]", table, name) for index, table in enumerate(tables)]

    def _read_row(self, place: str, table: Any, name: str) -> Row:
        self._check_keys(table, ("entries", "dtypes", "reason", *LISTS[name]), place)
        if not self._check_words(table.get("entries", []), f"{place}.entries"):
            self._fail(f'{place} has no entries; name some, such as entries = ["add", "fft.*"]')
        if table.get("dtypes", True) == []:
            self._fail(f"{place}.dtypes is empty; leave it out for all dtypes")
        self._check_words(table.get("dtypes", []), f"{place}.dtypes", DTYPES)
        self._check_reason(table, place, table["entries"])
        if name == "tolerance":
            self._check_width(table, place)
        elif name == "samples":
            most = self._check(table.get("most"), f"{place}.most", int, "a number of samples")
            if most < 1:
                self._fail(f"{place}.most is {most}; it must be 1 or more")
        return Row(place, table["entries"], table.get("dtypes", []), table)
