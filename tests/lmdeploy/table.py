"""Write what ran into the tables of docs/dlinfer.md, from the rows of run.py --json and cases.py --json. Cells of what
was not run stay as they are.

python tests/lmdeploy/table.py build/lmdeploy.jsonl build/lmdeploy-cases.jsonl
"""

import json
import pathlib
import sys
from typing import Any

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/dlinfer.md"
COLUMNS = [(device, mode) for device in ("ascend", "maca", "camb") for mode in ("eager", "graph")]


def _read(path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]


Cells = dict[tuple[str, str, str], str]


def _write(mark: str, first: str, new: Cells) -> None:
    begin, end = f"<!-- begin {mark} -->", f"<!-- end {mark} -->"
    before, rest = PAGE.read_text().split(begin)
    old, after = rest.split(end)
    cells: Cells = {}
    for line in old.strip().splitlines()[2:]:
        name, *parts = (part.strip() for part in line.strip("| ").split(" | "))
        cells |= {(name, *column): part for column, part in zip(COLUMNS, parts, strict=True)}
    cells |= new
    lines = [f"| {first} | " + " | ".join(f"{device}, {mode}" for device, mode in COLUMNS) + " |", "|---" * 7 + "|"]
    for name in dict.fromkeys(name for name, _, _ in cells):
        lines.append(f"| {name} | " + " | ".join(cells.get((name, *column), "-") for column in COLUMNS) + " |")
    PAGE.write_text(before + begin + "\n\n" + "\n".join(lines) + "\n\n" + end + after)


def main() -> None:
    models = {
        (row["model"], row["device"], row["mode"]): f"{row['same']}/{row['tokens']}{'' if row['right'] else ' WRONG'}"
        for row in _read(sys.argv[1])
    }
    _write("models", "model", models)
    cases = {
        (row["title"], row["device"], row["mode"]): "right" if row["right"] else "WRONG" for row in _read(sys.argv[2])
    }
    _write("cases", "case", cases)


if __name__ == "__main__":
    main()
