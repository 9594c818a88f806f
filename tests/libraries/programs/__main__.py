"""Run the programs of one module (or those named) and print the answers as JSON, on the last line."""

from __future__ import annotations

import importlib
import json
import sys
import traceback
from pathlib import Path

from . import CASES, DEVICE, seed_all


def main(module: str, folder: str, wanted: list[str]) -> None:
    importlib.import_module(f"programs.{module}")
    answers = {}
    for name, case in CASES[module].items():
        if wanted and name not in wanted:
            continue
        home = Path(folder) / name
        home.mkdir(parents=True)
        seed_all()
        try:
            answers[name] = {"device": DEVICE, "answer": case.run(home)}
        except Exception:
            answers[name] = {"device": DEVICE, "error": traceback.format_exc()}
    print(json.dumps(answers))


main(sys.argv[1], sys.argv[2], sys.argv[3:])
