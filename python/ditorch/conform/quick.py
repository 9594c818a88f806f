"""The quick selection: for each function a few cases that together notice nearly every fault that the suite notices.

It is made from a measurement (`ditorch conform mutate --write-quick FILE`): of the cases that were the first to notice
a fault, those that noticed most come first, until the wanted share of the function's faults is covered. The file is
committed (quick.json); a function that is not in it yet takes one case of each layout and property. No torch is
needed here.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any

FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "quick.json")
SHARE = 0.97
"""Of a function's faults."""

Row = dict[str, Any]


def choose(answers: Iterable[Row], share: float = SHARE) -> dict[str, list[str]]:
    """Cases by function, ids without the function's name, from mutation's answers."""
    found = {}
    for answer in sorted(answers, key=lambda answer: answer["function"]):
        by: dict[str, int] = {}
        for case in answer["caught"].values():
            if "/" in case:
                by[case] = by.get(case, 0) + 1
        total, covered, chosen = sum(by.values()), 0, []
        for case, number in sorted(by.items(), key=lambda item: (-item[1], item[0])):
            if covered >= share * total:
                break
            chosen.append(case.split("/", 1)[1])
            covered += number
        if chosen:
            found[answer["function"]] = sorted(chosen)
    return found


def write(path: str, chosen: dict[str, list[str]]) -> None:
    """A function per line."""
    lines = ",\n".join(f" {json.dumps(function)}: {json.dumps(cases)}" for function, cases in chosen.items())
    with open(path, "w", encoding="utf-8") as stream:
        stream.write(f"{{\n{lines}\n}}\n")


def read(path: str = FILE) -> dict[str, list[str]]:
    if not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as stream:
        return json.load(stream)


def select(cases: Iterable[Any], table: dict[str, list[str]] | None = None) -> list[Any]:
    """Of these cases the quick ones, in their order."""
    table = read() if table is None else table
    wanted = {f"{function}/{case}" for function, own in table.items() for case in own}
    kept, seen = [], set()
    for case in cases:
        key = (case.function, case.layout, case.entry.name.partition("-")[0] if "-" in case.entry.name else "")
        if str(case) in wanted or (case.function not in table and key not in seen):
            kept.append(case)
            seen.add(key)
    return kept
