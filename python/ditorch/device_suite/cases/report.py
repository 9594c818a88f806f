"""Verdicts on cases, totals per file, the text on the console, and the CSV, JSON and JUnit files.

Statuses come from the workers: passed, failure, error, skipped (by the test itself), crash, timeout; not_run is one
that the expectations skip. Verdicts come from the expectations: pass, expected (failure), skipped, wrong. Only wrong
ones make the run fail. Depends on expect.py.
"""

from __future__ import annotations

import csv
import io
import json
from typing import Any

from ... import junit
from ...output import write_whole
from .expect import CaseExpectations, Row

STATUSES = ("passed", "skipped", "not_run", "failure", "error", "crash", "timeout")
BAD = ("failure", "error", "crash", "timeout")
COLUMNS = ("file", "class", "case", "result", "reason")


def name_case(result: dict[str, Any]) -> str:
    return f"{result['file']}::{result['class']}.{result['case']}" if result["case"] else result["file"]


def judge(file: str, group: str, case: str, answer: dict[str, Any], expectations: CaseExpectations) -> dict[str, Any]:
    """The result of a case: the answer with `verdict`, `why` (of a wrong one) and the `reason` it is listed for."""
    name, status = f"{group}.{case}", answer["status"]
    skip, row = expectations.find("skip", file, name), expectations.find("fail", file, name)
    row = row or skip
    verdict, why = "pass", ""
    if status in ("not_run", "skipped"):
        verdict = "skipped"
    elif status in BAD:
        verdict = "expected" if row else "wrong"
        why = "" if row else f"{status}: {answer['message']}"
    for meant in {skip, row} - {None}:
        meant.met += 1
        meant.met_in.add(file)
        meant.passed += status == "passed"
    return {
        "file": file,
        "class": group,
        "case": case,
        "status": status,
        "verdict": verdict,
        "why": why,
        "reason": row.reason if row and status in ("not_run", *BAD) else "",
        "message": answer["message"],
        "trace": answer.get("trace", ""),
        "line": answer.get("line", 0),
        "seconds": answer.get("seconds", 0.0),
    }


def count(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Totals. `share`: of the cases that ran to a verdict of their own, how many pass, in per cent."""
    totals: dict[str, Any] = {"cases": len(results)}
    totals.update({status: sum(r["status"] == status for r in results) for status in STATUSES})
    totals["expected"] = sum(r["verdict"] == "expected" for r in results)
    totals["wrong"] = sum(r["verdict"] == "wrong" for r in results)
    tried = totals["passed"] + sum(totals[status] for status in BAD)
    totals["tried"] = tried
    totals["share"] = round(100 * totals["passed"] / tried, 2) if tried else None
    return totals


class Summary:
    """All results of a run, their totals per file, and everything that makes the run fail."""

    def __init__(
        self, results: list[dict[str, Any]], expectations: CaseExpectations, files: list[str], whole: set[str]
    ) -> None:
        """`whole`: files of which all cases were chosen; only those can say that a row of [[fail]] is out of date."""
        self.results = results
        self.totals = {file: count([r for r in results if r["file"] == file]) for file in files}
        self.all = count(results)
        self.problems = [f"{name_case(r)}: {r['why']}" for r in results if r["verdict"] == "wrong"]
        rows = [row for row in expectations.rows["fail"] if row.met and row.met_in <= whole]
        self.problems += [_tell_good(row) for row in rows if row.passed == row.met]

    def render(self) -> str:
        """The table and the problems, as text."""
        names = ("file", "cases", "passed", "skipped", "not run", *BAD, "expected", "wrong", "passed of tried")
        rows = [names]
        for file, totals in [*self.totals.items(), ("all", self.all)]:
            share = f"{totals['passed']} of {totals['tried']}"
            share += f" ({totals['share']:.1f} %)" if totals["tried"] else ""
            numbers = [totals[key] for key in ("cases", "passed", "skipped", "not_run", *BAD, "expected", "wrong")]
            rows.append((file, *(str(number) for number in numbers), share))
        widths = [max(len(row[i]) for row in rows) for i in range(len(names))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        if len(self.problems) > 50:
            lines += [f"FAILED {len(self.problems)} things; each was told above as WRONG, the files have them all"]
        else:
            lines += [f"FAILED {problem}" for problem in self.problems]
        lines.append("not as expected" if self.problems else "as expected")
        return "\n".join(lines)


def _tell_good(row: Row) -> str:
    what = ", ".join([*row.files, *row.cases])
    return f"{row.place} ({what}): all {row.met} cases that it lists pass or skip now: remove it there"


def write_json(path: str, about: dict[str, Any], summary: Summary) -> None:
    data = {**about, "totals": {**summary.totals, "all": summary.all}, "problems": summary.problems}
    write_whole(path, json.dumps({**data, "results": summary.results}, indent=1) + "\n")


def write_junit(path: str, about: dict[str, Any], summary: Summary) -> None:
    suites: dict[str, list[junit.Case]] = {}
    for r in summary.results:
        kind = {"wrong": "failure", "skipped": "skipped", "expected": "skipped"}.get(r["verdict"], "")
        kind = "error" if kind == "failure" and r["status"] != "failure" else kind
        text = r["trace"] if kind in ("failure", "error") and r["trace"] else (r["why"] or r["reason"] or r["message"])
        case = junit.Case(f"{r['file']}.{r['class']}", r["case"] or "import", r["seconds"], kind, r["status"], text)
        suites.setdefault(r["file"], []).append(case)
    junit.write(path, "ditorch test-device", about, suites)


def write_csv(path: str, about: dict[str, Any], summary: Summary) -> None:
    """One row per case; the reason is that of the expectations, what the test said, or both."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    for r in summary.results:
        reason = ": ".join(filter(None, (r["reason"], r["message"])))
        result = "skipped" if r["status"] == "not_run" else r["status"]
        table.writerow((r["file"], r["class"], r["case"], result, reason))
    write_whole(path, text.getvalue())
