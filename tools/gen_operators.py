"""Write src/judge/operators.inc, the operator table in C, from standard/operators.tsv.

The traits are those of include/dit/operator.h; the head of the table explains its columns.

    python tools/gen_operators.py           write
    python tools/gen_operators.py --check   exit status 1 when the file is not current
"""

from __future__ import annotations

import argparse
import difflib
import json
import re
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "standard" / "operators.tsv"
HEADER = ROOT / "include" / "dit" / "operator.h"
OUTPUT = ROOT / "src" / "judge" / "operators.inc"

COLUMNS = ["name", "also", "traits", "details", "reason"]
TRAIT = re.compile(r"^#define DIT_OPERATOR_(\w+) \(UINT64_C\(1\) << (\d+)\)", re.MULTILINE)
WORD = re.compile(r"(\w+\.)?\w+")
NUMBER = re.compile(r"-?\d+|-?inf")
PLACES = {"index", "places", "sorted", "writes_if", "castable", "channels"}
DIMS = ["first", "plane", "volume"]
BITS = {"loose", "private"}
CHOICES = {
    "draw": ["continuous", "discrete", "dropout", "alpha", "permutation"],
    "length": ["shared", "ratio", "window"],
    "writes_default": ["1"],
}
KEYS = sorted({*PLACES, *BITS, *CHOICES, "dim", "low", "high", "writes", "unless"})
NEEDS = {  # a detail means something only beside its trait
    "loose": "loose",
    "private": "private",
    "index": "scatter",
    "places": "ties",
    "sorted": "ties",
    "castable": "optimizer",
    "unless": "exact",
}
EXCLUDE = [("exact", "mixes"), ("pointwise", "contraction"), ("scatter", "loose"), ("ties", "contraction")]


class Row(NamedTuple):
    name: str
    also: list[str]
    traits: list[str]
    details: dict[str, str]
    reason: str

    @property
    def words(self) -> list[str]:
        return [self.name, *self.also]


def read_traits(path: Path = HEADER) -> list[str]:
    """The names of the traits, lower case, in the order of their bits."""
    found = [(int(bit), name.lower()) for name, bit in TRAIT.findall(path.read_text(encoding="utf-8"))]
    if [bit for bit, _ in found] != list(range(len(found))) or len(found) > 64:
        raise ValueError(f"{path.name}: the bits of the traits are not 0, 1, 2 ... 63 in order")
    return [name for _, name in found]


def _nearest(word: str, valid: list[str]) -> str:
    close = difflib.get_close_matches(word, valid, 1, 0)
    return f"the nearest valid one is {close[0]!r}" if close else f"valid: {', '.join(valid)}"


def _check_detail(key: str, value: str) -> str:
    """What is wrong with the value; nothing: ''."""
    if key in CHOICES:
        return "" if value in CHOICES[key] else f"{value!r} is no value; {_nearest(value, CHOICES[key])}"
    if key in PLACES:
        return "" if value.isdigit() and int(value) < 100 else f"{value!r} is no place, such as 2"
    if key == "dim":
        return "" if value in DIMS or value.isdigit() else f"{value!r} is neither a place nor one of {', '.join(DIMS)}"
    if key in BITS:
        good = value == "all" or all(part.isdigit() and int(part) < 32 for part in value.split(","))
        return "" if good else f"{value!r} is neither a list of results, such as 0,2, nor 'all'"
    if key == "writes":
        return "" if re.fullmatch(r"\d,[1-9]", value) else f"{value!r} is not of the form place,count"
    if key == "unless":
        return "" if re.fullmatch(r"\w+(:\d)?", value) else f"{value!r} is not of the form name or name:place"
    return "" if NUMBER.fullmatch(value) else f"{value!r} is no number"


def _read_details(text: str) -> tuple[dict[str, str], list[str]]:
    details, problems = {}, []
    for part in text.split():
        key, _, value = part.partition("=")
        if key not in KEYS:
            problems.append(f"unknown key {key!r}; {_nearest(key, KEYS)}")
        elif key in details:
            problems.append(f"{key!r} twice")
        elif problem := _check_detail(key, value):
            problems.append(f"{key}: {problem}")
        details[key] = value
    return details, problems


def _read_row(line: str, traits: list[str]) -> tuple[Row, list[str]]:
    cells = line.split("\t")
    problems = [f"{len(cells)} columns; wanted are at most {len(COLUMNS)}"] if len(cells) > len(COLUMNS) else []
    name, also, words, text, reason = (cells + [""] * len(COLUMNS))[: len(COLUMNS)]
    details, bad = _read_details(text)
    row = Row(name, also.split(), words.split(), details, reason)
    problems += bad
    problems += [f"{word!r} is no word of an operator's name" for word in row.words if not WORD.fullmatch(word)]
    problems += [f"unknown trait {trait!r}; {_nearest(trait, traits)}" for trait in row.traits if trait not in traits]
    problems += [] if row.traits else ["no traits"]
    problems += ["a trait twice"] if len(set(row.traits)) < len(row.traits) else []
    problems += [f"{a} and {b} exclude each other" for a, b in EXCLUDE if a in row.traits and b in row.traits]
    problems += [
        f"{key}= without the trait {trait}"
        for key, trait in NEEDS.items()
        if key in details and trait not in row.traits
    ]
    problems += ["loose without loose="] if "loose" in row.traits and "loose" not in details else []
    problems += ["loose and scatter need a reason"] if {"loose", "scatter"} & set(row.traits) and not reason else []
    return row, problems


def read_table(path: Path = TABLE, header: Path = HEADER) -> list[Row]:
    """All rows. ValueError that names every problem and its line."""
    traits, rows, problems, seen = read_traits(header), [], [], {}
    lines = path.read_text(encoding="utf-8").splitlines()
    numbered = [(number, line) for number, line in enumerate(lines, 1) if not line.startswith("#")]
    if not numbered or numbered[0][1].split("\t") != COLUMNS:
        raise ValueError(f"{path.name}: the first line after the comments must name the columns {', '.join(COLUMNS)}")
    for number, line in numbered[1:]:
        row, found = _read_row(line, traits)
        if rows and row.name <= rows[-1].name:
            found.append(f"{row.name!r} stands behind {rows[-1].name!r}: rows are sorted by name")
        for word in row.words:
            if word in seen:
                found.append(f"{word!r} stands in line {seen[word]}, too")
            seen[word] = number
        problems += [f"{path.name}:{number}: {row.name}: {problem}" for problem in found]
        rows.append(row)
    if problems:
        raise ValueError("\n".join(problems))
    return rows


def _bits(text: str | None) -> str:
    if not text:
        return "0"
    return "UINT32_MAX" if text == "all" else hex(sum(1 << int(part) for part in text.split(",")))


def _number(text: str | None) -> str:
    return "NAN" if text is None else text.replace("inf", "INFINITY")


def _choice(kind: str, text: str | None) -> str:
    return f"DIT_OPERATOR_{kind}_{text.upper()}" if text else "0"


def _render_row(row: Row) -> str:
    d = row.details
    first, count = d.get("writes", "0,0").split(",")
    unless, _, place = d.get("unless", "").partition(":")
    fields = {
        "dim": f"DIT_OPERATOR_{d['dim'].upper()}" if d.get("dim") in DIMS else d.get("dim", "-1"),
        "index": d.get("index", "-1"),
        "places": d.get("places", "-1"),
        "sorted": d.get("sorted", "-1"),
        "loose": _bits(d.get("loose")),
        "private_results": _bits(d.get("private")),
        "draw": _choice("DRAW", d.get("draw")),
        "channels": d.get("channels", "0"),
        "low": _number(d.get("low")),
        "high": _number(d.get("high")),
        "length": _choice("LENGTH", d.get("length")),
        "writes_first": first,
        "writes_count": count,
        "writes_if": d.get("writes_if", "-1"),
        "writes_default": "true" if "writes_default" in d else "false",
        "castable": d.get("castable", "0"),
        "unless": json.dumps(unless) if unless else "NULL",
        "unless_place": place or "-1",
        "reason": json.dumps(row.reason) if row.reason else "NULL",
    }
    traits = " | ".join(f"DIT_OPERATOR_{trait.upper()}" for trait in row.traits)
    told = ", ".join(f".{key} = {value}" for key, value in fields.items() if value not in ("0", "NULL", "false"))
    return f'DIT_OPERATOR_ROW(.name = "{row.name}", .traits = {traits}, {told})'


def render(rows: list[Row], traits: list[str]) -> str:
    """The text of operators.inc."""
    words = sorted((word, index) for index, row in enumerate(rows) for word in row.words)
    lines = [
        "// The operator table. Written by tools/gen_operators.py from standard/operators.tsv.",
        "//",
        "// Define DIT_OPERATOR_TRAIT(name), DIT_OPERATOR_ROW(initialisers...) or DIT_OPERATOR_WORD(word, row), then",
        "// include this file; it undefines them. Rows are numbered from 0; words are sorted (strcmp).",
        "#ifdef DIT_OPERATOR_TRAIT",
        *(f'DIT_OPERATOR_TRAIT("{trait}")' for trait in traits),
        "#undef DIT_OPERATOR_TRAIT",
        "#endif",
        "#ifdef DIT_OPERATOR_ROW",
        *(_render_row(row) for row in rows),
        "#undef DIT_OPERATOR_ROW",
        "#endif",
        "#ifdef DIT_OPERATOR_WORD",
        *(f'DIT_OPERATOR_WORD("{word}", {index})' for word, index in words),
        "#undef DIT_OPERATOR_WORD",
        "#endif",
    ]
    return "\n".join([*lines, ""])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit status 1 when it is not current")
    arguments = parser.parse_args()
    try:
        text = render(read_table(), read_traits())
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    if OUTPUT.exists() and OUTPUT.read_text(encoding="utf-8") == text:
        print("operators: current")
        return 0
    if arguments.check:
        print(f"{OUTPUT.relative_to(ROOT)} is not current: run python tools/gen_operators.py", file=sys.stderr)
        return 1
    OUTPUT.write_text(text, encoding="utf-8")
    print(f"wrote {OUTPUT.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
