"""`ditorch doctor --diff A B`: what two machines' reports (`ditorch doctor --json`) say differently."""

from __future__ import annotations

import json
import os
from typing import Any

from .command.guard import say
from .command.parser import suggest

MOST_BYTES = 64 << 20


def read(path: str) -> dict[str, Any]:
    """A report; ValueError says what is wrong with the file."""
    try:
        if os.path.getsize(path) > MOST_BYTES:
            raise ValueError(f"{path!r} is larger than a report can be")
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
    except OSError as error:
        near = suggest(os.path.basename(path), _list_names(path)) if not os.path.exists(path) else ""
        raise ValueError(f"{path!r} cannot be read: {error.strerror}{near}") from None
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path!r} is no JSON: {error}; make it with: ditorch doctor --json > {path}") from None
    if not isinstance(report, dict) or "ditorch" not in report or "torch" not in report:
        raise ValueError(f"{path!r} is no report of `ditorch doctor --json`")
    return report


def _list_names(path: str) -> list[str]:
    try:
        return os.listdir(os.path.dirname(path) or ".")
    except OSError:
        return []


def flatten(value: Any, name: str = "") -> dict[str, str]:
    """One text per fact: `options.ledger`; lists of texts are facts of their own, so that order does not matter."""
    if isinstance(value, dict):
        found: dict[str, str] = {}
        for key, part in value.items():
            found |= flatten(part, f"{name}.{key}" if name else str(key))
        return found
    if isinstance(value, list):
        return {f"{name}: {part}" if name == "problems" else f"{name}[{i}]": str(part) for i, part in enumerate(value)}
    return {name: str(value)}


def compare(a: dict[str, Any], b: dict[str, Any]) -> list[dict[str, Any]]:
    """Facts that differ, in the order of A, then what only B has; None where a side has none."""
    left, right = flatten(a), flatten(b)
    names = [*left, *(name for name in right if name not in left)]
    return [
        {"name": name, "a": left.get(name), "b": right.get(name)}
        for name in names
        if _without_free(left.get(name)) != _without_free(right.get(name))
    ]


def _without_free(text: str | None) -> str | None:
    """A device's line says how much memory is free just now."""
    return text.rpartition(", ")[0] if text is not None and text.endswith(" GiB free") else text


def format_rows(rows: list[dict[str, Any]], a: str, b: str) -> str:
    """The text: one block of three lines per fact."""
    if not rows:
        return f"no difference between {a} and {b}"
    lines = [f"{len(rows)} facts differ", f"  A  {a}", f"  B  {b}"]
    for row in rows:
        lines.append(row["name"])
        lines += [f"  {side.upper()}  {'(nothing)' if row[side] is None else row[side]}" for side in "ab"]
    return "\n".join(lines)


def main(a: str, b: str, as_json: bool) -> int:
    """0 no difference, 1 there is one, 2 a file that is no report."""
    try:
        reports = [read(path) for path in (a, b)]
    except ValueError as error:
        say(str(error))
        return 2
    rows = compare(*reports)
    facts = {"format": "ditorch-doctor-diff", "version": 1, "a": a, "b": b, "facts": rows}
    print(json.dumps(facts, indent=1) if as_json else format_rows(rows, a, b))
    return 1 if rows else 0
