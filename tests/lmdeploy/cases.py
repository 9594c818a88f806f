"""Run cases of LMDeploy on the embedded device: each tells what it saw; a broken operator must turn each red.

python tests/lmdeploy/cases.py maca guided --graph
python tests/lmdeploy/cases.py maca --faults
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import pathlib
import sys
import traceback

import cases_engine  # noqa: F401  enters its cases
import cases_memory  # noqa: F401
import cases_parallel  # noqa: F401
import cases_quantized  # noqa: F401
import cases_server  # noqa: F401
import cases_tools  # noqa: F401
import cases_vision  # noqa: F401
import dlinfer  # the device first: LMDeploy looks for it while it is imported
import lmdeploy
from case_list import CASES, Case, Setup
from faulty import break_operator


def run_case(name: str, case: Case, setup: Setup) -> dict[str, object]:
    """One row of the table; an exception (a time-out is one) is a wrong result."""
    raised = False
    try:
        right, note = case.run(setup)
    except Exception as error:
        traceback.print_exc()
        right, note, raised = False, f"{type(error).__name__}: {error}", True
    mode = "graph" if setup.graph else "eager"
    return {"case": name, "title": case.title, "device": setup.device, "mode": mode, "right": right, "note": note,
            "raised": raised, "version": lmdeploy.__version__}  # fmt: skip


def run_faults(name: str, case: Case, setup: Setup) -> list[dict[str, object]]:
    """The same with its operators broken, one after the other: right if the case is right without, and says with each
    that it is not. An exception or a time-out says nothing about the numbers."""
    whole = run_case(name, case, setup)
    if not whole["right"]:
        return [{**whole, "note": f"WRONG with nothing broken: {whole['note']}"}]
    rows = []
    for operator in case.fault.split():
        mend = break_operator(operator)
        row = run_case(name, case, setup)
        mend()
        noticed = not row["right"] and not row["raised"]
        rows.append({**row, "right": noticed, "note": f"{operator} broken: {row['note']}"})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("device", choices=["ascend", "maca", "camb"])
    parser.add_argument("cases", nargs="*", choices=[[], *CASES], default=[])
    parser.add_argument("--graph", action="store_true")
    parser.add_argument("--faults", action="store_true", help="break each case's operators: each must be noticed")
    parser.add_argument("--json", type=pathlib.Path, help="add the rows to this file")
    arguments = parser.parse_args()
    dlinfer.use_vendor(arguments.device)
    asyncio.set_event_loop(asyncio.new_event_loop())  # of all engines
    setup, rows = Setup(arguments.device, arguments.graph), []
    for name in arguments.cases or CASES:
        case = CASES[name]
        mode = "graph" if setup.graph else "eager"
        if setup.device not in case.devices or mode not in case.modes:
            continue
        if arguments.faults and not case.fault:
            continue
        words = ("noticed", "NOT NOTICED") if arguments.faults else ("right", "WRONG")
        for row in run_faults(name, case, setup) if arguments.faults else [run_case(name, case, setup)]:
            print(f"{name:18} {setup.device:6} {mode:6} {row['note']}: {words[not row['right']]}", flush=True)
            rows.append(row)
    if arguments.json:
        with arguments.json.open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    sys.stdout.flush()
    os._exit(0 if rows and all(row["right"] for row in rows) else 1)  # the engine's threads do not end by themselves


if __name__ == "__main__":
    main()
