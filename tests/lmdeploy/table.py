"""Write the tables of what ran into docs/dlinfer.md, from the rows of run.py --json and cases.py --json.

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


def _draw(first: str, names: list[str], cells: dict[tuple[str, str, str], str]) -> str:
    lines = [f"| {first} | " + " | ".join(f"{device}, {mode}" for device, mode in COLUMNS) + " |", "|---" * 7 + "|"]
    for name in names:
        lines.append(f"| {name} | " + " | ".join(cells.get((name, *column), "-") for column in COLUMNS) + " |")
    return "\n".join(lines)


def _write(mark: str, text: str) -> None:
    begin, end = f"<!-- begin {mark} -->", f"<!-- end {mark} -->"
    before, rest = PAGE.read_text().split(begin)
    PAGE.write_text(before + begin + "\n\n" + text + "\n\n" + end + rest.split(end)[1])


def main() -> None:
    rows = _read(sys.argv[1])
    cells = {
        (row["model"], row["device"], row["mode"]): f"{row['same']}/{row['tokens']}{'' if row['right'] else ' WRONG'}"
        for row in rows
    }
    _write("models", _draw("model", list(dict.fromkeys(row["model"] for row in rows)), cells))
    rows = _read(sys.argv[2])
    cells = {(row["title"], row["device"], row["mode"]): "right" if row["right"] else "WRONG" for row in rows}
    _write("cases", _draw("case", list(dict.fromkeys(row["title"] for row in rows)), cells))


if __name__ == "__main__":
    main()
