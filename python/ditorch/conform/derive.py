"""`ditorch conform derive`: cases by property, made from the ordinary ones (cases/*.json) and written beside them.

A property is an axis that ordinary cases seldom reach: 2^16 elements, five to eight dimensions, each negative dim, rows
of -inf and NaN, extreme integers, an empty or a broadcast dimension in each position, threads. A derived case is an
ordinary row with the axis changed in all arguments alike; it is kept when the reference accepts it. What the contract
leaves open, and what a function does not have, stands in derive_rules.json with the reason. The files are committed:
running the suite derives nothing. Depends on derive_rows, expand, schema.
"""

from __future__ import annotations

import contextlib
import copy
import fnmatch
import json
import os
import resource
import signal
import textwrap
import time
import warnings
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import torch

from . import derive_rows as rows_of
from . import expand, pack, schema, suite
from .derive_axes import PROPERTIES, Property
from .derive_rows import Row
from .names import RUNS
from .schema import Entry

RULES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "derive_rules.json")
SECONDS = 0.3
"""A case that takes longer to make is left out."""
ELEMENTS = 1_500_000
MEMORY = 4 << 30
"""Bytes of address space: an axis that makes a result huge ends in an error, not in the machine's memory."""


class Exemption(NamedTuple):
    """A property that functions do not have, or that the contract leaves open there."""

    properties: tuple[str, ...]
    functions: tuple[str, ...]
    reason: str


def read_rules(path: str = RULES) -> list[Exemption]:
    with open(path, encoding="utf-8") as stream:
        data = json.load(stream)
    found = []
    for item in data["exceptions"]:
        unknown = set(item["properties"]) - {p.name for p in PROPERTIES}
        if unknown or not item.get("reason"):
            raise ValueError(f"{path}: {item}: unknown property {sorted(unknown)} or no reason")
        found.append(Exemption(tuple(item["properties"]), tuple(item["functions"]), item["reason"]))
    return found


def find_reason(rules: list[Exemption], name: str, function: str) -> str | None:
    """Why a function has no cases of a property; None when it may have some."""
    short = function.removeprefix("diopi")
    for rule in rules:
        if name in rule.properties and any(fnmatch.fnmatchcase(short, pattern) for pattern in rule.functions):
            return rule.reason
    return None


def is_wanted(rules: list[Exemption], wanted: Property, function: str) -> bool:
    """Does a function take cases of this property?"""
    stands_in = not wanted.instead or find_reason(rules, wanted.instead, function) is not None
    return stands_in and find_reason(rules, wanted.name, function) is None


def _count_outputs(case: Any) -> int:
    """Elements of the largest result."""
    largest = 0
    for argument in case.arguments:
        for part in argument if isinstance(argument, list) else [argument]:
            role = getattr(part, "role", "")
            if role in ("out", "inout"):
                largest = max(largest, part.tensor.numel())
            elif getattr(part, "expected", None) is not None and isinstance(part.expected, torch.Tensor):
                largest = max(largest, part.expected.numel())
    return largest


@contextlib.contextmanager
def _limit() -> Iterator[None]:
    """TimeoutError when making a case takes far too long, MemoryError or RuntimeError when it takes too much memory."""

    def give_up(*_: Any) -> None:
        raise TimeoutError

    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, limits[1]))
    before = signal.signal(signal.SIGPROF, give_up)
    signal.setitimer(signal.ITIMER_PROF, 2 * SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        resource.setrlimit(resource.RLIMIT_AS, limits)


def _keep_inplace(inplace: dict[str, str], function: str) -> dict[str, str]:
    return {out: given for out, given in inplace.items() if out in schema.standard()[function].parameters}


class Search:
    """Candidates of one function."""

    def __init__(self, function: str, entries: list[Entry]) -> None:
        self.function, self.entries = function, entries
        self._refused = set(read_refused().get(function, ()))
        self._tried: dict[str, int] = {}

    def count_outputs(self, source: Entry, row: Row, dtype: str) -> int:
        """Elements of the largest result; -1 when the case cannot be made."""
        key = json.dumps([source.name, dtype, row])
        if key not in self._tried:
            case = self._try_row(source, row, dtype)
            self._tried[key] = -1 if case is None else _count_outputs(case)
        return self._tried[key]

    def _try_row(self, source: Entry, row: Row, dtype: str) -> Any:
        if rows_of.get_largest(row) > ELEMENTS:
            return None
        table = rows_of.to_table("try", [self.function], source, [row], dtypes=[dtype], layouts=["contiguous"])
        start = time.process_time()
        try:
            with _limit(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                entry = rows_of.to_entry(table, source.family)
                case = expand.build(expand.CaseId(entry, self.function, dtype, "contiguous", 0))
                pack.encode(case)
        except (ValueError, RuntimeError, TypeError, IndexError, AttributeError, KeyError):
            return None
        except (ZeroDivisionError, MemoryError, TimeoutError):
            return None
        return case if time.process_time() - start < SECONDS else None

    def derive(self, wanted: Property) -> list[tuple[str, Row]]:
        """(family, table) of each entry that the property gives."""
        return self._derive(wanted, wanted.dtypes) or self._derive(wanted, wanted.otherwise)

    def _derive(self, wanted: Property, choice: tuple[str, ...]) -> list[tuple[str, Row]]:
        found, seen = [], set()
        for source in self.entries:
            dtypes = [dtype for dtype in choice if dtype in source.dtypes and dtype not in seen]
            if not dtypes or (source.random and not wanted.random):
                continue
            rows = self._collect(source, wanted, dtypes[0])
            if not rows:
                continue
            seen.update(choice if wanted.once else dtypes)
            more: Row = {"dtypes": dtypes, "layouts": list(wanted.layouts), "layout_rows": wanted.layout_rows}
            shared = _keep_inplace(source.inplace, self.function) if wanted.inplace else {}
            if shared:
                more["inplace"] = shared
            name = f"{wanted.name}-{source.name}"
            found.append((source.family, rows_of.to_table(name, [self.function], source, rows, **more)))
        return found

    def _collect(self, source: Entry, wanted: Property, dtype: str) -> list[Row]:
        found: list[Row] = []
        for number in range(min(source.rows, wanted.rows)):
            row = rows_of.take(source, number)
            if rows_of.get_largest(row) > 20_000:
                continue
            for alternatives in wanted.propose(row, dtype):
                for candidate in alternatives:
                    is_new = candidate != row or bool(set(wanted.layouts) & set(RUNS))
                    if not is_new or candidate in found or not rows_of.is_same_data(row, candidate):
                        continue
                    if self._refused and rows_of.get_digest(candidate) in self._refused:
                        continue
                    outputs = self.count_outputs(source, candidate, dtype)
                    if outputs >= 0 and wanted.accepts(candidate, outputs):
                        found.append(candidate)
                        break
                if len(found) >= wanted.limit:
                    return found
        return found


def _group(tables: list[tuple[str, Row]]) -> dict[str, list[Row]]:
    """Entries of each family; functions with the same entry share it."""
    merged: dict[str, Row] = {}
    families: dict[str, list[Row]] = {}
    for family, table in tables:
        key = json.dumps([family, {**table, "functions": []}], sort_keys=True)
        if key in merged:
            merged[key]["functions"] += table["functions"]
        else:
            merged[key] = copy.deepcopy(table)
            families.setdefault(family, []).append(merged[key])
    return families


def derive_functions(
    functions: tuple[str, ...], properties: tuple[str, ...] = ()
) -> list[tuple[str, list[tuple[str, Row]]]]:
    """[(function, [(family, table)])] of functions with the same entries and the same signature: the first is tried,
    the others take what it gave. `properties`: these alone."""
    rules = read_rules()
    own = [entry for entry in _read_ordinary() if functions[0] in entry.functions]
    search = Search(functions[0], own)
    found: dict[str, list[tuple[str, Row]]] = {function: [] for function in functions}
    for wanted in PROPERTIES:
        if properties and wanted.name not in properties:
            continue
        takers = [function for function in functions if is_wanted(rules, wanted, function)]
        for family, table in search.derive(wanted) if takers else ():
            for function in takers:
                found[function].append((family, {**table, "functions": [function]}))
    return [(function, prune(tables)) for function, tables in found.items()]


def _group_functions(wants: Callable[[str], bool]) -> list[tuple[str, ...]]:
    groups: dict[Any, list[str]] = {}
    own: dict[str, list[int]] = {}
    for number, entry in enumerate(schema.read_all(derived=False)):
        for function in entry.functions:
            own.setdefault(function, []).append(number)
    for name, info in schema.standard().items():
        if name in own and wants(name):
            groups.setdefault((info.kinds, tuple(own[name])), []).append(name)
    return [tuple(group) for group in groups.values()]


@lru_cache(maxsize=1)
def _read_ordinary() -> list[Entry]:
    """Entries that are not derived."""
    return schema.read_all(derived=False)


def derive(
    wants: Callable[[str], bool], jobs: int, properties: tuple[str, ...] = ()
) -> Iterator[tuple[str, list[tuple[str, Row]]]]:
    """(function, [(family, table)]) for each function with ordinary cases, as they come."""
    calls = [(group, properties) for group in _group_functions(wants)]
    for answers in suite.run_workers(derive_functions, calls, jobs):
        yield from answers


def read(directory: str) -> list[tuple[str, Row]]:
    """(family, table) of each function in the files of an earlier run."""
    found = []
    for name in sorted(os.listdir(directory)) if os.path.isdir(directory) else ():
        with open(os.path.join(directory, name), encoding="utf-8") as stream:
            data = json.load(stream)
        for table in data["entries"]:
            found += [(data["family"], {**table, "functions": [function]}) for function in table["functions"]]
    return found


def read_refusals(path: str = RULES) -> list[tuple[str, dict[str, list[str]]]]:
    """(reason, rows by function) of rows (digests) that a reference accepts and the contract does not."""
    with open(path, encoding="utf-8") as stream:
        return [(item["reason"], item["rows"]) for item in json.load(stream)["refused"]]


def read_refused(path: str = RULES) -> dict[str, list[str]]:
    """The same by function."""
    found: dict[str, list[str]] = {}
    for _, rows in read_refusals(path):
        for function, digests in rows.items():
            found.setdefault(function, []).extend(digests)
    return found


def format_refusals() -> str:
    """Text of docs/conformance-refused.md."""
    lines = [
        "# Rows that the contract refuses",
        "",
        "Cases by property ([conformance.md](conformance.md)) are ordinary rows with one axis changed, kept when",
        "the reference accepts them. A reference in PyTorch accepts more than the contract does: it broadcasts, or",
        "takes the mean of nothing. Such rows are no cases, neither of success nor of an error; they stand with these",
        "reasons under `refused` in derive_rules.json. Written by `make docs`.",
    ]
    for reason, rows in read_refusals():
        total = sum(map(len, rows.values()))
        names = ", ".join(f"{name.removeprefix('diopi')} ({len(digests)})" for name, digests in sorted(rows.items()))
        text = f"{reason[0].upper()}{reason[1:]}. {total} rows of {len(rows)} functions: {names}."
        lines += ["", *textwrap.wrap(f"- {text}", 120, subsequent_indent="  ", break_on_hyphens=False)]
    return "\n".join([*lines, ""])


def prune(tables: list[tuple[str, Row]]) -> list[tuple[str, Row]]:
    """Without what the rules leave out by now."""
    rules, refused, found = read_rules(), read_refused(), []
    properties = {p.name: p for p in PROPERTIES}
    for family, table in tables:
        function = table["functions"][0]
        if not is_wanted(rules, properties[table["name"].split("-")[0]], function):
            continue
        if function in refused:
            entry, rows = rows_of.split(table, family)
            kept = [row for row in rows if rows_of.get_digest(row) not in refused[function]]
            if not kept:
                continue
            more = {key: table[key] for key in ("dtypes", "layouts", "layout_rows", "inplace") if key in table}
            table = rows_of.to_table(table["name"], [function], entry, kept, **more)
        found.append((family, table))
    return found


def is_derived(name: str) -> bool:
    return any(name.startswith(f"{p.name}-") for p in PROPERTIES)


def write(directory: str, tables: list[tuple[str, Row]]) -> int:
    """A file per family, an entry per line, functions in the order of the standard; returns the number of entries."""
    order = {name: number for number, name in enumerate(schema.standard())}
    names = [p.name for p in PROPERTIES]
    tables = sorted(tables, key=lambda t: (order[t[1]["functions"][0]], names.index(t[1]["name"].split("-")[0])))
    os.makedirs(directory, exist_ok=True)
    number = 0
    for family, entries in sorted(_group(tables).items()):
        lines = ",\n".join(f"    {json.dumps(entry)}" for entry in entries)
        about = "Derived by `ditorch conform derive`; not edited by hand."
        text = f'{{\n  "family": "{family}",\n  "about": "{about}",\n  "entries": [\n{lines}\n  ]\n}}\n'
        with open(os.path.join(directory, f"{family}.json"), "w", encoding="utf-8") as stream:
            stream.write(text)
        number += len(entries)
    return number
