"""`ditorch conform mutate`: does the suite notice? Every function is broken in every way that applies to it.

For each function of a library and each kind of fault (vendors/faulty) the function's own cases run on a library that
has this fault and no other. The fault is caught when one case fails. mutation_rules.json says which kinds apply to
which functions and why not; it knows nothing of results. A fault that no case notices is a survivor, and is listed.
Depends on suite (making cases) and runner.
"""

from __future__ import annotations

import fnmatch
import json
import os
import tempfile
from collections.abc import Iterator
from typing import Any, NamedTuple

from .. import diopi
from . import runner, suite

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

    def find_reason(self, kind: str, info: diopi.Info) -> str | None:
        """None when the kind applies to the function, else why it does not."""
        needs = self.kinds[kind]
        if needs != "any" and not _has(info.kinds, needs):
            return f"the function has no {needs}"
        short = info.name.removeprefix("diopi")
        for exception in self.exceptions:
            if kind in exception.kinds and any(fnmatch.fnmatchcase(short, p) for p in exception.functions):
                return exception.reason
        return None


def _has(kinds: str, needs: str) -> bool:
    """Does a signature have what a kind of fault acts on? Lists count where their first tensor stands for them."""
    letters = {"output": "oO", "input": "tT", "tensor": "otOT"}[needs]
    return any(letter in letters for letter in kinds)


def read_rules(path: str = RULES) -> Rules:
    """RulesError names what is wrong."""
    with open(path, encoding="utf-8") as stream:
        data = json.load(stream)
    kinds = data.get("kinds")
    if not isinstance(kinds, dict) or not set(kinds.values()) <= {"any", "output", "input", "tensor"}:
        raise RulesError(f"{path}: 'kinds' must map each kind to any, output, input or tensor")
    exceptions = []
    for number, entry in enumerate(data.get("exceptions", [])):
        unknown = set(entry.get("kinds", ())) - set(kinds)
        if unknown or not entry.get("functions") or not entry.get("reason"):
            raise RulesError(f"{path}: exception {number} needs known kinds, functions and a reason; got {entry}")
        exceptions.append(Exemption(tuple(entry["kinds"]), tuple(entry["functions"]), entry["reason"]))
    return Rules(kinds, tuple(exceptions))


def choose_cases(cases: list[Any], most: int = CASES) -> list[Any]:
    """Cases that must succeed: first one of every layout and dtype, then the next of each, up to `most`."""
    groups: dict[tuple[str, str], list[Any]] = {}
    for case in cases:
        if case.layout != "error":
            groups.setdefault((case.layout, case.dtype), []).append(case)
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


def _run(path: str, task: Task, rules: str, only: tuple[str, ...] = ()) -> list[Row]:
    environment = {"DITORCH_FAULTY": rules, "DITORCH_FAULTY_LIB": task.library}
    return runner.run(path, "faulty", repeat=2, only=only, timeout=task.timeout, environment=environment)


def run_task(task: Task) -> Row:
    """{"function", "cases", "caught": {kind: id of the case}, "survived": [kinds], "problem"}."""
    answer: Row = {"function": task.function, "cases": 0, "caught": {}, "survived": [], "problem": ""}
    with tempfile.TemporaryDirectory(prefix="ditorch-mutation-") as folder:
        path = os.path.join(folder, "cases.pack")
        suite.write_pack(path, task.cases, 0)
        sound = _run(path, task, "")
        good = tuple(row["id"] for row in sound if row["verdict"] == "pass")
        bad = [row for row in sound if row["verdict"] in runner.BAD]
        answer["cases"] = len(good)
        if bad or not good:
            answer["problem"] = bad[0]["reason"] if bad else "no case passes on the sound library"
            return answer
        for kind in task.kinds:
            only = good[:1] if kind == "crash" else ()
            rows = _run(path, task, f"{kind}:{task.function}", only)
            first = next((row for row in rows if row["verdict"] in runner.BAD), None)
            if first is None:
                answer["survived"].append(kind)
            else:
                answer["caught"][kind] = first["id"]
    return answer


def make_tasks(library: str, cases: list[Any], rules: Rules, timeout: float = 60.0) -> list[Task]:
    """One task per function that the library has and that has cases."""
    opened = diopi.Library(library)
    infos = {info.name: info for info in diopi.list_functions()}
    by_function: dict[str, list[Any]] = {}
    for case in cases:
        by_function.setdefault(case.function, []).append(case)
    tasks = []
    for function, own in by_function.items():
        if opened.has(function):
            kinds = tuple(kind for kind in rules.kinds if rules.find_reason(kind, infos[function]) is None)
            chosen = tuple(str(case) for case in choose_cases(own))
            tasks.append(Task(function, chosen, kinds, library, timeout))
    opened.close()
    return tasks


def run(tasks: list[Task], jobs: int) -> Iterator[Row]:
    """Answers as they come."""
    if jobs <= 1:
        yield from map(run_task, tasks)
        return
    yield from suite.run_workers(run_task, [(task,) for task in tasks], jobs)


def summarise(answers: list[Row], rules: Rules) -> Row:
    """Counts per kind and in all, the survivors, and functions that could not be judged."""
    kinds = {
        kind: {
            "caught": sum(kind in answer["caught"] for answer in answers),
            "survived": sorted(answer["function"] for answer in answers if kind in answer["survived"]),
        }
        for kind in rules.kinds
    }
    caught = sum(row["caught"] for row in kinds.values())
    pairs = caught + sum(len(row["survived"]) for row in kinds.values())
    return {
        "functions": len(answers),
        "pairs": pairs,
        "caught": caught,
        "score": caught / pairs if pairs else 0.0,
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
        rows.append((kind, applicable, row["caught"], len(row["survived"]), share))
    lines = [format_table(("fault", "functions", "caught", "survived", "share"), rows), ""]
    for kind, row in summary["kinds"].items():
        lines += [f"survivor: {kind}: {function}" for function in row["survived"]]
    lines += [f"not judged: {function}: {why}" for function, why in summary["problems"].items()]
    lines.append(
        f"{summary['caught']} of {summary['pairs']} faults in {summary['functions']} functions caught: "
        f"{summary['score']:.1%} (goal {summary['goal']:.0%})"
    )
    return "\n".join(lines)
