"""Write the table of models that ran into docs/dlinfer.md, from the rows of run.py --json.

python tests/lmdeploy/table.py build/lmdeploy.jsonl
"""

import json
import pathlib
import sys

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/dlinfer.md"
BEGIN, END = "<!-- begin models -->", "<!-- end models -->"


def main() -> None:
    rows = [json.loads(line) for line in pathlib.Path(sys.argv[1]).read_text().splitlines()]
    columns = [(device, mode) for device in ("ascend", "maca", "camb") for mode in ("eager", "graph")]
    cells = {(row["model"], row["device"], row["mode"]): row for row in rows}
    lines = ["| model | " + " | ".join(f"{device}, {mode}" for device, mode in columns) + " |", "|---" * 7 + "|"]
    for model in dict.fromkeys(row["model"] for row in rows):
        found = [cells.get((model, *column)) for column in columns]
        text = [f"{r['same']}/{r['tokens']}{'' if r['right'] else ' WRONG'}" if r else "not run" for r in found]
        lines.append(f"| {model} | " + " | ".join(text) + " |")
    before, rest = PAGE.read_text().split(BEGIN)
    PAGE.write_text(before + BEGIN + "\n\n" + "\n".join(lines) + "\n\n" + END + rest.split(END)[1])


if __name__ == "__main__":
    main()
