"""`ditorch conform mutate`: does the suite notice? Every function is broken in every way that applies to it.

For each function of a library and each kind of fault (vendors/faulty) the function's own cases run on a library that
has this fault and no other. The fault is caught when one case fails. Damage (value, nan, stride ...) is done to every
call; mistakes (first_65535, dim_below_1_last ...) are those that vendors make, and many act on few calls.
mutation_rules.json says which kinds apply to which functions and why not; it knows nothing of results.

A fault that no case notices is a survivor when it changed a result in some case, or when it needs a property (docs of
derive.py) that the function has and no case reached it; else it is without effect there and is only counted.
Depends on suite (making cases), runner, and derive's rules.
"""

from __future__ import annotations

import fnmatch
import json
import math
import os
import tempfile
import time
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from .. import diopi
from . import pack, runner, suite
from .names import RUNS

RULES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "mutation_rules.json")
CASES = 1000
"""Most cases per function: layouts and dtypes in turn."""
GOAL = 0.97

Row = dict[str, Any]


class RulesError(ValueError):
    """The file of rules is not as it must be."""


class Exemption(NamedTuple):
    """Kinds that do not apply to functions, and why."""

    kinds: tuple[str, ...]
    functions: tuple[str, ...]
    reason: str


class Rules(NamedTuple):
    """Which kinds of fault apply to which functions."""

    kinds: dict[str, str]
    exceptions: tuple[Exemption, ...]
    mistakes: dict[str, str] = {}
    """Kinds that are mistakes, and the property they need, or ""."""

    def choose(self, patterns: list[str]) -> Rules:
        """The kinds that a pattern means; all of them without patterns."""
        kinds = {
            k: v for k, v in self.kinds.items() if not patterns or any(fnmatch.fnmatchcase(k, p) for p in patterns)
        }
        if not kinds:
            raise RulesError(f"no fault is meant by {' '.join(patterns)}; they are {', '.join(self.kinds)}")
        return self._replace(kinds=kinds)

    def find_reason(self, kind: str, info: diopi.Info) -> str | None:
        """None when the kind applies to the function, else why it does not."""
        needs = self.kinds[kind]
        if needs != "any" and not _has(info, needs):
            return f"the function has no {needs}"
        short = info.name.removeprefix("diopi")
        for exception in self.exceptions:
            if kind in exception.kinds and any(fnmatch.fnmatchcase(short, p) for p in exception.functions):
                return exception.reason
        return None


_LETTERS = {"output": "oO", "input": "tT", "tensor": "otOT", "flag": "b", "number": "fd", "scalar": "s", "mode": "rm"}
_LETTERS |= {"generator": "g", "parameter": "ibfd"}
_NAMES = {
    "dim": ("dim", "axis", "dim0", "dim1", "dim2", "dims", "begin_norm_axis"),
    "window": ("kernel_size", "stride", "padding", "dilation", "ksize"),
    "padding": ("padding", "pad"),
    "dilation": ("dilation",),
    "groups": ("groups", "num_groups"),
    "index parameter": ("ignore_index", "padding_idx", "diagonal", "index", "k"),
}
_COUNTS = {"second input": ("t", 2), "third input": ("t", 3), "second output": ("oO", 2)}
NEEDS = {"any", "place", *_LETTERS, *_NAMES, *_COUNTS}


def _is_place(kind: str, name: str) -> bool:
    """Is there memory for a result before the call? Lists of results have names in the plural."""
    return kind == "o" or (kind == "O" and name.endswith("s") and name != "counts")


def _has(info: diopi.Info, needs: str) -> bool:
    """Does a signature have what a kind of fault acts on? Lists count where their first tensor stands for them."""
    if needs == "place":
        return any(_is_place(k, n) for k, n in zip(info.kinds, info.parameters, strict=True))
    if needs in _NAMES:
        return any(k in "iIz" and n in _NAMES[needs] for k, n in zip(info.kinds, info.parameters, strict=True))
    if needs in _COUNTS:
        letters, count = _COUNTS[needs]
        return sum(letter in letters for letter in info.kinds) >= count
    return any(letter in _LETTERS[needs] for letter in info.kinds)


def read_rules(path: str = RULES) -> Rules:
    """RulesError names what is wrong."""
    with open(path, encoding="utf-8") as stream:
        data = json.load(stream)
    kinds = data.get("kinds")
    if not isinstance(kinds, dict) or not set(kinds.values()) <= NEEDS:
        raise RulesError(f"{path}: 'kinds' must map each kind to one of {', '.join(sorted(NEEDS))}")
    mistakes = data.get("mistakes", {})
    for kind, row in mistakes.items():
        if set(row) - {"needs", "property"} or row.get("needs") not in NEEDS:
            raise RulesError(f"{path}: mistake {kind} needs one of {', '.join(sorted(NEEDS))}; got {row}")
    kinds = {**kinds, **{kind: row["needs"] for kind, row in mistakes.items()}}
    exceptions = []
    for number, entry in enumerate(data.get("exceptions", [])):
        unknown = set(entry.get("kinds", ())) - set(kinds)
        if unknown or not entry.get("functions") or not entry.get("reason"):
            raise RulesError(f"{path}: exception {number} needs known kinds, functions and a reason; got {entry}")
        exceptions.append(Exemption(tuple(entry["kinds"]), tuple(entry["functions"]), entry["reason"]))
    return Rules(kinds, tuple(exceptions), {kind: row.get("property", "") for kind, row in mistakes.items()})


def choose_cases(cases: list[Any], most: int = CASES) -> list[Any]:
    """Cases that must succeed: first one of every layout, dtype and property, then the next of each, up to `most`."""
    groups: dict[tuple[str, ...], list[Any]] = {}
    for case in cases:
        if case.layout != "error":
            name, mark, _ = case.entry.name.partition("-")
            kind = f"{name} {case.number}" if mark else ""  # every row of a property is there for itself
            groups.setdefault((case.layout, case.dtype, kind), []).append(case)
    groups = dict(sorted(groups.items(), key=lambda item: item[0][0] not in RUNS))  # few, and they tell much
    found: list[Any] = []
    while any(groups.values()) and len(found) < most:
        for group in groups.values():
            if group and len(found) < most:
                found.append(group.pop(0))
    return found


class Task(NamedTuple):
    """One function: its cases, and the kinds of fault to try."""

    function: str
    cases: tuple[str, ...]
    kinds: tuple[str, ...]
    library: str
    timeout: float
    expected: tuple[str, ...] = ()
    """Kinds that need a property which the function has: one that never acts is a survivor."""


def run_task(task: Task, until: float = math.inf) -> Row | None:
    """{"function", "cases", "caught": {kind: id of the case}, "survived": [kinds], "idle": [kinds], "problem",
    "seconds"}; None when `until` (of time.time) is over."""
    start = time.time()
    if start >= until:
        return None
    answer = _judge_task(Task(*task))  # from a worker it is a list
    answer["seconds"] = round(time.time() - start, 3)
    return answer


def _judge_task(task: Task) -> Row:
    answer: Row = {"function": task.function, "cases": 0, "caught": {}, "survived": [], "idle": [], "problem": ""}
    environment = {"DITORCH_FAULTY_LIB": task.library, "DITORCH_FAULTY": ""}
    with tempfile.TemporaryDirectory(prefix="ditorch-mutation-") as folder:
        path = os.path.join(folder, "cases.pack")
        suite.write_pack(path, task.cases, 0)
        sound = runner.run(path, "faulty", timeout=task.timeout, environment=environment)
        good = [row["id"] for row in sound if row["verdict"] == "pass"]
        bad = [row for row in sound if row["verdict"] in runner.BAD]
        answer["cases"] = len(good)
        if bad:
            answer["problem"] = f"{bad[0]['id']}: {bad[0]['reason']}"
            numbers = [row["case"] for row in sound if row["verdict"] not in runner.BAD]
            whole, path = path, os.path.join(folder, "sound.pack")
            pack.extract(whole, numbers, path)
        if not good:
            answer["problem"] = answer["problem"] or "no case passes on the sound library"
            return answer
        rows = runner.run_mutations(path, "faulty", task.kinds, timeout=task.timeout, environment=environment)
    for row in rows:
        kind = row["id"]
        if row["verdict"] in runner.BAD:
            answer["caught"][kind] = row.get("by") or row["verdict"]
        elif row.get("changed") or kind in task.expected:
            answer["survived"].append(kind)
        else:
            answer["idle"].append(kind)
    return answer


def make_tasks(library: str, cases: list[Any], rules: Rules, most: int = CASES, timeout: float = 120.0) -> list[Task]:
    """One task per function that the library has and that has cases. First those that no run has judged yet (they are
    not in the quick selection); families are mixed, always in the same way, so that a run that is cut short is a sample
    of them all."""
    from . import derive, quick

    opened = diopi.Library(library)
    infos = {info.name: info for info in diopi.list_functions()}
    exempt = derive.read_rules()
    by_function: dict[str, list[Any]] = {}
    for case in cases:
        by_function.setdefault(case.function, []).append(case)
    tasks = []
    for function, own in by_function.items():
        if opened.has(function):
            kinds = tuple(kind for kind in rules.kinds if rules.find_reason(kind, infos[function]) is None)
            chosen = [*choose_cases(own, most), *(case for case in own if case.layout == "error")]
            expected = tuple(
                kind
                for kind in kinds
                if rules.mistakes.get(kind, "" if kind in rules.mistakes else "-") != ""
                and (kind not in rules.mistakes or not derive.find_reason(exempt, rules.mistakes[kind], function))
            )
            tasks.append(Task(function, tuple(map(str, chosen)), kinds, library, timeout, expected))
    opened.close()
    known = quick.read()
    return sorted(tasks, key=lambda task: (task.function in known, zlib.crc32(task.function.encode())))


def run(tasks: list[Task], jobs: int, seconds: float = math.inf) -> Iterator[Row]:
    """Answers as they come. No function begins after `seconds`."""
    calls = [(task, time.time() + seconds) for task in tasks]
    answers = suite.run_workers(run_task, calls, jobs) if jobs > 1 else (run_task(*call) for call in calls)
    yield from filter(None, answers)


def restrict(answer: Row, task: Task) -> Row:
    """An answer of a journal without the kinds that by now do not apply to the function."""
    kinds = set(task.kinds)
    caught = {kind: by for kind, by in answer["caught"].items() if kind in kinds}
    return answer | {
        "caught": caught,
        **{part: [k for k in answer[part] if k in kinds] for part in ("survived", "idle")},
    }


def retry(tasks: list[Task], known: dict[str, Row], jobs: int, seconds: float = math.inf) -> Iterator[Row]:
    """Answers of a journal after what survived there was tried once more, on the cases of `tasks` (which may be fewer
    than before: what is caught is caught)."""
    left = []
    for task in tasks:
        kinds = tuple(kind for kind in known.get(task.function, {}).get("survived", ()) if kind in task.kinds)
        if kinds:
            left.append(task._replace(kinds=kinds))
    for answer in run(left, jobs, seconds):
        before = known[answer["function"]]
        caught = answer["caught"]
        yield before | {
            "caught": before["caught"] | caught,
            "survived": [kind for kind in before["survived"] if kind not in caught],
            "seconds": round(before["seconds"] + answer["seconds"], 3),
        }


def summarise(answers: list[Row], rules: Rules) -> Row:
    """Counts per kind and in all, the survivors, and functions that could not be judged."""
    kinds = {
        kind: {
            "mistake": kind in rules.mistakes,
            "caught": sum(kind in answer["caught"] for answer in answers),
            "survived": sorted(answer["function"] for answer in answers if kind in answer["survived"]),
            "idle": sum(kind in answer["idle"] for answer in answers),
        }
        for kind in rules.kinds
    }

    def total(mistakes: bool) -> Row:
        rows = [row for row in kinds.values() if row["mistake"] == mistakes]
        caught = sum(row["caught"] for row in rows)
        pairs = caught + sum(len(row["survived"]) for row in rows)
        return {"kinds": len(rows), "pairs": pairs, "caught": caught, "score": caught / pairs if pairs else 1.0}

    damage, mistakes = total(False), total(True)
    pairs, caught = damage["pairs"] + mistakes["pairs"], damage["caught"] + mistakes["caught"]
    return {
        "functions": len(answers),
        "pairs": pairs,
        "caught": caught,
        "score": caught / pairs if pairs else 0.0,
        "damage": damage,
        "mistakes": mistakes,
        "goal": GOAL,
        "kinds": kinds,
        "problems": {answer["function"]: answer["problem"] for answer in answers if answer["problem"]},
    }


def format_summary(summary: Row) -> str:
    """The table and the survivors as text."""
    from ..table import format_table

    rows = []
    for kind, row in summary["kinds"].items():
        applicable = row["caught"] + len(row["survived"])
        share = f"{row['caught'] / applicable:.1%}" if applicable else ""
        rows.append((kind, applicable, row["caught"], len(row["survived"]), share, row["idle"]))
    lines = [format_table(("fault", "functions", "caught", "survived", "share", "without effect"), rows), ""]
    for kind, row in summary["kinds"].items():
        lines += [f"survivor: {kind}: {function}" for function in row["survived"]]
    lines += [f"not judged: {function}: {why}" for function, why in summary["problems"].items()]
    for name in ("damage", "mistakes"):
        part = summary[name]
        lines.append(f"{name}: {part['caught']} of {part['pairs']} caught ({part['kinds']} kinds): {part['score']:.2%}")
    lines.append(
        f"{summary['caught']} of {summary['pairs']} faults in {summary['functions']} functions caught: "
        f"{summary['score']:.1%} (goal {summary['goal']:.0%})"
    )
    return "\n".join(lines)
