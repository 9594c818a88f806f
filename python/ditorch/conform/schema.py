"""Case files (cases/*.json): read, checked against the schema and against the standard, and nothing evaluated.

A file has a family and entries. An entry names functions and gives, per argument, a list with one item per row (one
item serves every row). Outputs are not named: the reference says what they are. docs/conformance.md tells the format.
Every mistake is a SchemaError that names the file, the entry and the key. Depends on data.py and names.py.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from .. import diopi
from .data import DTYPES, GENERATORS
from .names import DTYPE_SETS, LAYOUTS, RUNS

DIRECTORY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "cases")
STANDARD_LAYOUTS = ("contiguous", "transposed", "strided", "offset", "expanded", "mixed", "channels_last")
AUTOMATIC_ERRORS = ("null", "shape", "overlap", "partial", "context", "host")

_ENTRY_KEYS = {
    "name": str,
    "functions": list,
    "reference": str,
    "dtypes": list,
    "layouts": list,
    "layout_rows": int,
    "arguments": dict,
    "inplace": dict,
    "errors": list,
    "no_errors": list,
    "outputs": dict,
    "optional": list,
    "random": bool,
}
_TENSOR_KEYS = {
    "shape": list,
    "values": (str, list),
    "dtype": (str, list),
    "low": (int, float),
    "high": (int, float),
    "below": (int, list),
    "data": list,
    "layout": str,
    "sparse": str,
}
_NUMBER = (bool, int, float)


class SchemaError(ValueError):
    """A case file that is not as it must be."""


@dataclass(frozen=True)
class Column:
    """One argument over all rows: a tensor, or a parameter with a value per row."""

    name: str
    is_tensor: bool
    rows: list[Any]
    """Shapes (a list of shapes for a tensor list, None for absent), or values."""
    values: list[str] = field(default_factory=list)
    dtypes: list[str] = field(default_factory=list)
    low: float | None = None
    high: float | None = None
    below: list[int] = field(default_factory=list)
    data: list[Any] = field(default_factory=list)
    layout: str = ""
    sparse: str = ""
    """A sparse matrix: the dtype of its indices."""
    count: str = ""
    """A parameter that is the number of tensors of this list."""

    def at(self, row: int) -> Any:
        return self.rows[row if len(self.rows) > 1 else 0]


@dataclass(frozen=True)
class Entry:
    family: str
    name: str
    functions: tuple[str, ...]
    reference: str
    dtypes: tuple[str, ...]
    layouts: tuple[str, ...]
    layout_rows: int
    arguments: dict[str, Column]
    rows: int
    inplace: dict[str, str]
    errors: list[dict[str, Any]]
    no_errors: tuple[str, ...]
    outputs: dict[str, Any]
    """Output name -> list per row: a dtype name, or None for an output that is not wanted (NULL)."""
    optional: tuple[str, ...]
    """Tensor arguments that may be NULL: no error case is made of it."""
    random: bool


@lru_cache(maxsize=1)
def standard() -> dict[str, diopi.Info]:
    """The standard's functions by name."""
    return {info.name: info for info in diopi.list_functions()}


class _Place:
    """Where a mistake is."""

    def __init__(self, file: str, entry: str = "") -> None:
        self.file, self.entry = file, entry

    def fail(self, key: str, text: str) -> SchemaError:
        where = f"{self.file}: entry {self.entry!r}" if self.entry else self.file
        return SchemaError(f"{where}: {key}: {text}")


def _check_keys(place: _Place, prefix: str, table: dict[str, Any], keys: dict[str, Any]) -> None:
    for key, value in table.items():
        name = f"{prefix}{key}"
        if key not in keys:
            raise place.fail(name, f"unknown key; valid: {', '.join(sorted(keys))}")
        kinds = keys[key] if isinstance(keys[key], tuple) else (keys[key],)
        right = isinstance(value, kinds) and not (isinstance(value, bool) and bool not in kinds)
        if not right:
            wanted = " or ".join(kind.__name__ for kind in kinds)
            raise place.fail(name, f"is {type(value).__name__}, must be {wanted}")


def _is_shape(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(size, int) and size >= 0 for size in value)


def _check_shape(place: _Place, key: str, shape: Any, is_list: bool) -> None:
    shapes = shape if is_list and isinstance(shape, list) else [shape]
    for item in shapes:
        if item is not None and not _is_shape(item):
            raise place.fail(key, f"{item!r} is no shape (a list of sizes from 0, or null)")


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _read_tensor(place: _Place, name: str, table: dict[str, Any], is_list: bool) -> Column:
    _check_keys(place, f"arguments.{name}.", table, _TENSOR_KEYS)
    key = f"arguments.{name}"
    if not table.get("shape"):
        raise place.fail(f"{key}.shape", "is missing or empty")
    for shape in table["shape"]:
        _check_shape(place, f"{key}.shape", shape, is_list)
    values = _as_list(table.get("values", "normal"))
    for value in values:
        if value not in GENERATORS:
            raise place.fail(f"{key}.values", f"{value!r} is no generator; valid: {', '.join(sorted(GENERATORS))}")
    dtypes = _as_list(table.get("dtype", "same"))
    for dtype in dtypes:
        if dtype not in DTYPES and dtype not in ("same", "real", "wide"):
            raise place.fail(f"{key}.dtype", f"{dtype!r} is no dtype; valid: same, real, wide, {', '.join(DTYPES)}")
    layout = table.get("layout", "")
    if layout and layout not in LAYOUTS:
        raise place.fail(f"{key}.layout", f"{layout!r} is no layout; valid: {', '.join(LAYOUTS)}")
    sparse = table.get("sparse", "")
    if sparse not in ("", "int32", "int64"):
        raise place.fail(f"{key}.sparse", f"{sparse!r} is no dtype of indices; valid: int32, int64")
    below = _as_list(table.get("below", []))
    if any(not isinstance(item, int) or item < 1 for item in below):
        raise place.fail(f"{key}.below", f"{below!r}: numbers from 1")
    data = table.get("data", [])
    if ("data" in values) != bool(data):
        raise place.fail(f"{key}.data", 'goes with "values": "data", and that needs it')
    return Column(
        name,
        True,
        table["shape"],
        values,
        dtypes,
        table.get("low"),
        table.get("high"),
        below,
        data,
        layout,
        sparse,
    )


def _check_value(place: _Place, key: str, kind: str, value: Any) -> None:
    """Is this a value for a parameter of the kind? (letters: include/dit/diopi.h)"""
    if value is None and kind in "ZsIBDCzgp":
        return
    if kind in "irmy":
        right = isinstance(value, int) and not isinstance(value, bool)
    elif kind == "b":
        right = isinstance(value, bool)
    elif kind in "fd":
        right = isinstance(value, (int, float)) and not isinstance(value, bool)
    elif kind in "zZ":
        right = isinstance(value, list) and all(isinstance(item, int) for item in value)
    elif kind == "s":
        typed = isinstance(value, list) and len(value) == 2 and value[0] in diopi.DTYPES
        right = isinstance(value[1] if typed else value, _NUMBER)
    elif kind in "IBD":
        right = isinstance(value, _NUMBER)
    elif kind == "C":
        right = isinstance(value, str)
    else:
        right = False
    if not right:
        raise place.fail(key, f"{value!r} is no value for a parameter of kind {kind!r}")


def _read_argument(place: _Place, name: str, value: Any, kinds: set[str]) -> Column:
    if kinds & set("otOT"):
        if not isinstance(value, dict):
            raise place.fail(f"arguments.{name}", "is a tensor: an object with shape, values, dtype")
        return _read_tensor(place, name, value, bool(kinds & set("TO")))
    if isinstance(value, dict):
        if set(value) != {"count"} or not isinstance(value["count"], str):
            raise place.fail(f"arguments.{name}", 'is a parameter: a list of values, or {"count": "tensor list"}')
        return Column(name, False, [None], count=value["count"])
    if not isinstance(value, list) or not value:
        raise place.fail(f"arguments.{name}", "is a parameter: a list with a value per row")
    for item in value:
        for kind in kinds:
            _check_value(place, f"arguments.{name}", kind, item)
    return Column(name, False, value)


def _get_kinds(place: _Place, functions: list[str], name: str) -> set[str]:
    found = set()
    for function in functions:
        info = standard()[function]
        if name not in info.parameters:
            raise place.fail(f"arguments.{name}", f"{function} has no such parameter; it has {info.parameters[1:]}")
        found.add(info.kinds[info.parameters.index(name)])
    return found


def _check_complete(place: _Place, functions: list[str], arguments: dict[str, Column]) -> None:
    for function in functions:
        info = standard()[function]
        for kind, name in zip(info.kinds[1:], info.parameters[1:], strict=True):
            if name not in arguments and kind not in "oOgGIBD":
                raise place.fail("arguments", f"{function} needs {name!r} (kind {kind!r})")


def _expand_dtypes(place: _Place, names: list[Any]) -> tuple[str, ...]:
    found: list[str] = []
    for name in names:
        if name not in DTYPES and name not in DTYPE_SETS:
            raise place.fail("dtypes", f"{name!r}; valid: {', '.join([*DTYPE_SETS, *DTYPES])}")
        found += DTYPE_SETS.get(name, (name,))
    return tuple(dict.fromkeys(found))


def _count_rows(place: _Place, arguments: dict[str, Column]) -> int:
    lengths = {name: len(column.rows) for name, column in arguments.items()}
    rows = max(lengths.values(), default=1)
    for name, length in lengths.items():
        if length not in (1, rows):
            raise place.fail(f"arguments.{name}", f"has {length} rows; others have {rows}: give {rows} or 1")
        for key in ("values", "dtypes", "below", "data"):
            count = len(getattr(arguments[name], key))
            if count not in (0, 1, rows):
                raise place.fail(f"arguments.{name}.{key}", f"has {count} items for {rows} rows: give {rows} or 1")
    return rows


def _check_names(place: _Place, table: dict[str, Any], functions: list[str]) -> None:
    for function in functions:
        if function not in standard():
            raise place.fail("functions", f"the standard has no {function!r}")
    for key, allowed in (("layouts", LAYOUTS + RUNS), ("no_errors", AUTOMATIC_ERRORS)):
        for name in table.get(key, []):
            if name not in allowed:
                raise place.fail(key, f"{name!r}; valid: {', '.join(allowed)}")
    for key in ("inplace", "outputs"):
        for name in table.get(key, {}):
            if not any(name in standard()[function].parameters for function in functions):
                raise place.fail(key, f"no function of the entry has a parameter {name!r}")


def _check_errors(place: _Place, entry: Entry) -> None:
    for number, change in enumerate(entry.errors):
        if not isinstance(change, dict) or not change:
            raise place.fail(f"errors[{number}]", "must be an object: argument -> what is wrong with it")
        for name in change:
            if name not in entry.arguments and name not in standard()[entry.functions[0]].parameters:
                raise place.fail(f"errors[{number}].{name}", "is no argument of the entry")


def _read_entry(file: str, family: str, table: Any) -> Entry:
    if not isinstance(table, dict) or not isinstance(table.get("name"), str) or not table["name"]:
        raise _Place(file).fail("entries", "each must be an object with a name")
    place = _Place(file, table["name"])
    _check_keys(place, "", table, _ENTRY_KEYS)
    if "/" in table["name"]:
        raise place.fail("name", "must not have a '/'")
    functions = table.get("functions", [])
    if not functions:
        raise place.fail("functions", "is missing or empty")
    _check_names(place, table, functions)
    arguments = {}
    for name, value in table.get("arguments", {}).items():
        arguments[name] = _read_argument(place, name, value, _get_kinds(place, functions, name))
    _check_complete(place, functions, arguments)
    entry = Entry(
        family,
        table["name"],
        tuple(functions),
        table.get("reference", ""),
        _expand_dtypes(place, table.get("dtypes", ["floating"])),
        tuple(table.get("layouts", STANDARD_LAYOUTS)),
        table.get("layout_rows", 2),
        arguments,
        _count_rows(place, arguments),
        table.get("inplace", {}),
        table.get("errors", []),
        tuple(table.get("no_errors", [])),
        table.get("outputs", {}),
        tuple(table.get("optional", [])),
        table.get("random", False),
    )
    _check_errors(place, entry)
    return entry


def _forbid_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"key {next(n for n in names if names.count(n) > 1)!r} stands twice in one object")
    return table


def read_file(path: str) -> list[Entry]:
    """Entries of one file; SchemaError tells what is wrong with it."""
    file = os.path.basename(path)
    try:
        with open(path, encoding="utf-8") as stream:
            table = json.load(stream, object_pairs_hook=_forbid_repeats)
    except (OSError, ValueError) as error:
        raise SchemaError(f"{file}: {error}") from None
    place = _Place(file)
    if not isinstance(table, dict):
        raise place.fail("file", "must be an object with family and entries")
    _check_keys(place, "", table, {"family": str, "entries": list, "about": str})
    if "family" not in table or "entries" not in table:
        raise place.fail("file", "needs family and entries")
    entries = [_read_entry(file, table["family"], item) for item in table["entries"]]
    seen: set[tuple[str, str]] = set()
    for entry in entries:
        for function in entry.functions:
            if (function, entry.name) in seen:
                raise _Place(file, entry.name).fail("functions", f"{function} has two entries of this name")
            seen.add((function, entry.name))
    return entries


def read_all(directory: str = DIRECTORY, derived: bool = True) -> list[Entry]:
    """Entries of all files of a folder, in the order of the files' names; then those of its folder `property`, which
    are derived from them (`ditorch conform derive`)."""
    entries: list[Entry] = []
    for folder in (directory, os.path.join(directory, "property"))[: 1 + derived]:
        for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
            if name.endswith(".json"):
                entries += read_file(os.path.join(folder, name))
    seen: dict[tuple[str, str], str] = {}
    for entry in entries:
        for function in entry.functions:
            other = seen.setdefault((function, entry.name), entry.family)
            if other != entry.family:
                raise SchemaError(f"{function}: entry {entry.name!r} is in two families, {other} and {entry.family}")
    return entries
