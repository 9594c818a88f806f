"""Which cases a run means, and the skip and tolerance files of a vendor.

    {"skip": [{"case": "diopiSort/*", "reason": "ties come in another order"}],
     "tolerance": [{"case": "diopiErfinv*/float32/*", "factor": 4, "reason": "a table of 256 entries"}]}

A pattern is one of the shell and means ids or functions. Every rule gives its reason; one that matches no case is
reported. Depends on names.py; no torch.
"""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..command.parser import suggest
from .names import derive_number

if TYPE_CHECKING:
    from .expand import CaseId

_SHARES = 1_000_000


class SelectionError(ValueError):
    """A choice that means nothing, or a rule file that is not as it must be."""


@dataclass(frozen=True)
class Selection:
    """Empty lists mean everything. `share` takes that part of the cases, the same ones every time, and at least one of
    every function."""

    functions: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    layouts: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    share: float = 1.0
    without: tuple[str, ...] = ()
    """Dtypes to leave out."""

    def describe(self) -> str:
        """The choice as it is written on the command line."""
        names = ("functions", "dtypes", "layouts", "families", "cases")
        options = ("--function", "--dtype", "--layout", "--family", "--case")
        parts = [f"{o} {' '.join(getattr(self, n))}" for n, o in zip(names, options, strict=True) if getattr(self, n)]
        return (
            " ".join([*parts, *([f"--not-dtype {' '.join(self.without)}"] if self.without else [])]) or "an empty suite"
        )

    def wants_packed(self, entry: Any) -> bool:
        """The same choice for a case of a pack (pack.Entry)."""
        return (
            self.wants_function(entry.function)
            and (not self.dtypes or entry.tags.get("dtype") in self.dtypes)
            and entry.tags.get("dtype") not in self.without
            and (not self.layouts or entry.tags.get("layout") in self.layouts)
            and (not self.families or any(fnmatch.fnmatchcase(entry.tags.get("family", ""), p) for p in self.families))
            and (not self.cases or any(fnmatch.fnmatchcase(entry.id, p) for p in self.cases))
            and self.is_shared(entry.id)
        )

    def is_shared(self, case_id: str) -> bool:
        return self.share >= 1 or derive_number(case_id, 40) % _SHARES < self.share * _SHARES

    def _suggest(self, functions: set[str]) -> str:
        """Of the first pattern that means no function."""
        for pattern in self.functions:
            if not any(_matches_function(function, pattern) for function in functions):
                return suggest(f"diopi{pattern.removeprefix('diopi')}", functions)
        return ""

    def wants_function(self, function: str) -> bool:
        return not self.functions or any(_matches_function(function, p) for p in self.functions)

    def _wants(self, case: CaseId) -> bool:
        return (
            self.wants_function(case.function)
            and (not self.dtypes or case.dtype in self.dtypes)
            and case.dtype not in self.without
            and (not self.layouts or case.layout in self.layouts)
            and (not self.families or any(fnmatch.fnmatchcase(case.entry.family, p) for p in self.families))
            and (not self.cases or any(fnmatch.fnmatchcase(str(case), p) for p in self.cases))
        )

    def choose(self, cases: Iterable[CaseId]) -> list[CaseId]:
        """SelectionError when nothing is left."""
        cases = list(cases)
        wanted = [case for case in cases if self._wants(case)]
        if not wanted:
            hint = self._suggest({case.function for case in cases})
            raise SelectionError(
                f"no case is meant by {self.describe()}{hint}; `ditorch conform list` shows what there is"
            )
        if self.share >= 1:
            return wanted
        kept, seen = [], set()
        for case in wanted:
            if self.is_shared(str(case)) or case.function not in seen:
                kept.append(case)
                seen.add(case.function)
        return kept


def _matches_function(function: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(function, pattern) or fnmatch.fnmatchcase(function, f"diopi{pattern}")


@dataclass
class Rule:
    """One line of a rule file."""

    case: str
    reason: str
    factor: float = 1.0
    used: bool = False


@dataclass
class Rules:
    skip: list[Rule] = field(default_factory=list)
    tolerance: list[Rule] = field(default_factory=list)

    def find_skip(self, case_id: str) -> Rule | None:
        for rule in self.skip:
            if _matches_case(case_id, rule.case):
                rule.used = True
                return rule
        return None

    def note_tolerance(self, case_id: str) -> None:
        for rule in self.tolerance:
            rule.used = rule.used or _matches_case(case_id, rule.case)

    def to_lines(self) -> str:
        """In the form that the runner reads."""
        lines = [f"skip {rule.case}" for rule in self.skip]
        return "\n".join([*lines, *(f"tolerance {rule.case} {rule.factor!r}" for rule in self.tolerance), ""])

    def list_unused(self) -> list[str]:
        return [rule.case for rule in [*self.skip, *self.tolerance] if not rule.used]


def _matches_case(case_id: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(case_id, pattern) or fnmatch.fnmatchcase(case_id.split("/")[0], pattern)


def _check_rule(path: str, kind: str, number: int, table: Any) -> Rule:
    where = f"{path}: {kind}[{number}]"
    keys = {"case", "reason", "factor"} if kind == "tolerance" else {"case", "reason"}
    if not isinstance(table, dict):
        raise SelectionError(f"{where}: must be an object with {', '.join(sorted(keys))}")
    unknown = set(table) - keys
    if unknown:
        raise SelectionError(f"{where}: unknown key {sorted(unknown)[0]!r}; valid: {', '.join(sorted(keys))}")
    for key in ("case", "reason"):
        value = table.get(key)
        if not isinstance(value, str) or not value.strip() or "\n" in value:
            raise SelectionError(f"{where}: {key} is {value!r}; it must be a text of one line")
    if any(mark.isspace() for mark in table["case"]):
        raise SelectionError(f"{where}: case is {table['case']!r}; a pattern has no spaces")
    factor = table.get("factor", 1.0)
    if kind == "tolerance" and (
        isinstance(factor, bool)
        or not isinstance(factor, (int, float))
        or not 0 < factor < 1e6
        or "factor" not in table
    ):
        raise SelectionError(f"{where}: factor is {table.get('factor')!r}; it must be a number above 0 and below 1e6")
    return Rule(table["case"], table["reason"], float(factor))


def read_rules(*paths: str | None) -> Rules:
    """Rules of all files; each may have "skip" and "tolerance"."""
    rules = Rules()
    for path in paths:
        if path is None:
            continue
        try:
            with open(path, encoding="utf-8") as stream:
                table = json.load(stream)
        except OSError as error:
            raise SelectionError(f"{path}: {error.strerror}") from None
        except ValueError as error:
            raise SelectionError(f"{path}: this is no JSON: {error}") from None
        if not isinstance(table, dict) or set(table) - {"skip", "tolerance"}:
            raise SelectionError(f'{path}: must be an object with "skip" and "tolerance", each a list of rules')
        for kind in ("skip", "tolerance"):
            items = table.get(kind, [])
            if not isinstance(items, list):
                raise SelectionError(f"{path}: {kind} must be a list of rules")
            getattr(rules, kind).extend(_check_rule(path, kind, number, item) for number, item in enumerate(items))
    return rules
