"""docs/mutation.md from a measurement of `ditorch conform mutate`."""

from __future__ import annotations

from typing import Any

from ..output import write_whole

_HEAD = """# What the conformance suite would miss

`ditorch conform mutate` (`make mutation`) breaks every function of a library in every way that applies to it, one
at a time, by [the library that lies](diopi.md#breaking-a-library-on-purpose), and runs the function's cases. A
fault is caught when a case fails that passed before. There are two sorts: **damage** done to every call (a wrong
value, a byte outside, a crash), and **mistakes** as vendors make them
([mistakes.inc](../vendors/faulty/mistakes.inc)): most act on few calls only, where a tensor has 65,536 elements,
five dimensions, a negative dim, a row of -inf, or where threads meet.

Which kinds concern which functions stands in [mutation_rules.json](../python/ditorch/conform/mutation_rules.json),
with reasons. A fault runs only on cases where it acts (one sound call of a case tells which faults would), small cases
come first, and a fault ends at the first case that fails. A fault counts when it changed a result in some case, and
also when it needs an axis (2^16 elements, five dimensions, a negative dim, threads) that the function has and no case
reached it. The axes that functions do not have stand in
[derive_rules.json](../python/ditorch/conform/derive_rules.json), with reasons. *Without effect* are functions where a
fault changes nothing: clipping large numbers of a function of bools. `slow` belongs to `conform run --perf`.

This page is written by `ditorch conform mutate --markdown`.
"""


def _list_short(functions: list[str]) -> str:
    return ", ".join(name.removeprefix("diopi") for name in functions)


def _wrap(text: str, width: int = 118) -> str:
    lines, line = [], ""
    for word in text.split(" "):
        if line and len(line) + 1 + len(word) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return "\n".join([*lines, line])


def make(summary: dict[str, Any], library: str, seconds: float, functions: int) -> str:
    """The page; `functions` is how many there are, measured or not."""
    damage, mistakes = summary["damage"], summary["mistakes"]
    text = (
        f"Measured on the library `{library}` in {seconds:.0f} s of work, {summary['functions']} of its {functions} "
        f"functions: of "
        f"{damage['pairs']:,} faults by damage ({damage['kinds']} kinds) {damage['caught']:,} were caught, "
        f"**{damage['score']:.1%}**; of "
        f"{mistakes['pairs']:,} mistakes ({mistakes['kinds']} kinds) {mistakes['caught']:,}, "
        f"**{mistakes['score']:.1%}** (goal {summary['goal']:.0%})."
    )
    parts = [_HEAD, _wrap(text), ""]
    for title, wanted in (("Damage", False), ("Mistakes", True)):
        parts += [
            f"## {title}",
            "",
            "| fault | functions | caught | share | without effect |",
            "|---|---:|---:|---:|---:|",
        ]
        for kind, row in summary["kinds"].items():
            if row["mistake"] == wanted:
                number = row["caught"] + len(row["survived"])
                share = f"{row['caught'] / number:.1%}" if number else ""
                parts.append(f"| {kind} | {number} | {row['caught']} | {share} | {row['idle']} |")
        parts.append("")
    parts += ["## Survivors", ""]
    for kind, row in summary["kinds"].items():
        if row["survived"]:
            parts += [_wrap(f"- {kind}: {_list_short(row['survived'])}").replace("\n", "\n  ")]
    return "\n".join(parts) + "\n"


def write(path: str, summary: dict[str, Any], library: str, seconds: float, functions: int) -> None:
    write_whole(path, make(summary, library, seconds, functions))
