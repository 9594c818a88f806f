"""`ditorch doctor --vendor LIB`: is a vendor library's device right? Runs dit_doctor and says in words what it found.

Exit status: 0 all right, 1 something is wrong, 2 wrong use or no such library, 3 the library has no device.
"""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

from .library import DIRECTORY

PROGRAM = os.path.join(DIRECTORY, "dit_doctor")
WITH = {"memory_close": "memory_export", "profiler_stop": "profiler_start"}
"""Slots without checks of their own, and the slot whose checks use them."""


class DoctorError(RuntimeError):
    """The program could not be run."""


def collect(vendor: str, options: list[str] | None = None) -> dict[str, Any]:
    """The report as plain data: what the library says of itself, slots with their states, and every check."""
    try:
        answer = subprocess.run([PROGRAM, *(options or []), vendor], capture_output=True, text=True, check=False)
    except OSError as error:
        raise DoctorError(f"{PROGRAM} cannot be started: {error}; build it (target dit_doctor)") from error
    rows = [json.loads(line) for line in answer.stdout.splitlines()]
    if not rows or "slots" not in rows[-1]:
        raise DoctorError(answer.stderr.strip() or f"dit_doctor ended with status {answer.returncode} and said nothing")
    facts = rows.pop()
    slots = facts.pop("slots")
    report = {"vendor": vendor, "status": answer.returncode, **facts}
    report["slots"] = _judge_slots(slots, rows, facts["struct_size"] != 0)
    report["checks"] = rows
    return report


def _judge_slots(slots: dict[str, str], rows: list[dict[str, Any]], loaded: bool) -> dict[str, str]:
    """Per slot: ok, missing (optional), wrong, or not tested."""
    names = [*dict.fromkeys(row["slot"] for row in rows if row["slot"] not in slots and row["slot"] != "table"), *slots]
    found = {}
    for name in names:
        states = [row["state"] for row in rows if row["slot"] == WITH.get(name, name)]
        states += [row["state"] for row in rows if row["slot"] == name]
        blamed = any(row["slot"] == name and row["state"] == "wrong" for row in rows)
        if blamed or (loaded and slots.get(name) == "required"):
            found[name] = "wrong"
        elif slots.get(name) == "optional":
            found[name] = "missing (optional)"
        else:
            found[name] = "ok" if "ok" in states else "not tested"
    return found


def format_report(report: dict[str, Any]) -> str:
    """One line per slot; three more for each thing that is wrong: what was seen, what is expected, where to look."""
    lines = []
    if report["path"]:
        lines.append(f"library: {report['path']}")
        lines.append(f"vendor: {report['name']} {report['version']}, ABI version {report['abi_version']}")
        streams = "streams run their work later" if report["queued"] else "streams run their work in the caller"
        lines.append(f"devices: {report['devices']}; {streams}")
        lines += [f"runs on: {report['description']}"] if report["description"] else []
    wrong = [row for row in report["checks"] if row["state"] == "wrong"]
    for name, state in report["slots"].items():
        own = [row for row in wrong if row["slot"] == name]
        if state == "wrong" and not own:
            own = [
                {"check": "every required slot is there", "seen": "NULL", "expected": "a function", "look": "the table"}
            ]
        if not own:
            lines.append(f"  {name}: {state}{_explain(report, name, state)}")
        for row in own:
            lines.append(f"  {name}: wrong: {row['seen']}")
            lines.append(f"      check: {row['check']}")
            lines.append(f"      expected: {row['expected']}")
            lines.append(f"      look at: {row['look']}")
    return "\n".join([*lines, _summarise(report, wrong)])


def _explain(report: dict[str, Any], name: str, state: str) -> str:
    if state != "not tested":
        return ""
    reasons = [row["seen"] for row in report["checks"] if row["slot"] == name and row["state"] == "skipped"]
    return f": {reasons[0]}" if reasons else ""


def _summarise(report: dict[str, Any], wrong: list[dict[str, Any]]) -> str:
    passed = sum(row["state"] == "ok" for row in report["checks"])
    skipped = sum(row["state"] == "skipped" for row in report["checks"])
    if report["status"] == 3:
        return f"{passed} checks passed; the library has no device, so {skipped} were not made"
    if not wrong:
        return f"{passed} checks passed, {skipped} were not made"
    slots = ", ".join(dict.fromkeys(row["slot"] for row in wrong))
    return f"{len(wrong)} checks failed ({slots}), {passed} passed, {skipped} were not made"


def main(vendor: str, options: list[str], as_json: bool) -> int:
    """Print the report; returns the exit status."""
    try:
        report = collect(vendor, options)
    except DoctorError as error:
        print(f"ditorch doctor: {error}")
        return 2
    print(json.dumps(report, indent=2) if as_json else format_report(report))
    return report["status"]
