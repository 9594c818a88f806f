"""Verdicts on answers, totals per dtype, the text on the console and the JSON file.

Statuses come from the workers: pass, fail, undecided, crash, timeout, cpu_fails, skip. Verdicts come from the
expectations: pass, expected (failure), undecided, skipped, no_reference, wrong. Only wrong ones make the run fail.
Depends on expect.py.
"""

from __future__ import annotations

import json
from typing import Any

from .. import junit
from ..output import write_whole
from .expect import Expectations

VERDICTS = ("pass", "expected", "undecided", "skipped", "no_reference", "wrong")
NUMBERS = ("seconds", "samples", "random", "backward", "inplace", "out", "skipped", "settled", "undecided")


def judge(entry: str, dtype: str, answer: dict[str, Any], expectations: Expectations, complete: bool) -> dict[str, Any]:
    """The result of a pair: the answer with `verdict`, `why` (of a wrong one) and the `reason` it is listed for.
    `complete`: all samples ran, so a listed pair must fail."""
    row = expectations.find("fail", entry, dtype) or expectations.find("skip", entry, dtype)
    missing = expectations.find("no_reference", entry, dtype)
    status, verdict, why = answer["status"], "pass", ""
    if status == "skip":
        verdict = "skipped"
    elif status == "undecided":
        verdict = "undecided"
    elif status == "cpu_fails":
        verdict = "no_reference"
        if missing is None and expectations.guard["references"]:
            verdict, why = "wrong", f"the CPU cannot run it and no [[no_reference]] lists it: {answer['message']}"
    elif status != "pass":
        verdict = "expected" if row else "wrong"
        why = "" if row else f"{status + ': ' if status != 'fail' else ''}{answer['message']}"
    elif (row or missing) and complete:
        verdict, why = "wrong", f"{(row or missing).place} lists it, but it passes now: remove it there"
    listed = row if status not in ("pass", "cpu_fails") else missing if status == "cpu_fails" else None
    return {
        "entry": entry,
        "dtype": dtype,
        "status": status,
        "verdict": verdict,
        "why": why,
        "reason": listed.reason if listed else "",
        "message": answer["message"],
        **{name: answer.get(name, 0) for name in NUMBERS},
        "c": answer.get("c", {}),
        "fallback": answer.get("fallback", {}),
        **{name: answer[name] for name in ("compiled", "call") if name in answer},
    }


def count(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Totals of some results. `share`: of the pairs that ran and have a reference, how many pass, in per cent."""
    totals: dict[str, Any] = {"pairs": len(results)}
    totals.update({verdict: sum(r["verdict"] == verdict for r in results) for verdict in VERDICTS})
    tried = [r for r in results if r["status"] not in ("skip", "cpu_fails")]
    totals["tried"] = len(tried)
    totals["passing"] = sum(r["status"] == "pass" for r in tried)
    totals["share"] = round(100 * totals["passing"] / len(tried), 2) if tried else None
    totals["c_entries"] = sum(bool(r["c"]) for r in results)
    return totals


class Summary:
    """All results of a run, their totals per dtype, and everything that makes the run fail."""

    def __init__(self, results: list[dict[str, Any]], expectations: Expectations, complete: dict[str, bool]) -> None:
        self.results, self.complete = results, complete
        self.dtypes = list(dict.fromkeys(r["dtype"] for r in results))
        self.totals = {dtype: count([r for r in results if r["dtype"] == dtype]) for dtype in self.dtypes}
        self.all = count(results)
        self.problems = [f"{r['entry']} [{r['dtype']}]: {r['why']}" for r in results if r["verdict"] == "wrong"]
        for dtype, least in expectations.guard["c_entries"].items():
            found = self.totals.get(dtype, {}).get("c_entries")
            if complete.get(dtype) and found < least:
                self.problems.append(
                    f"guard.c_entries.{dtype}: {found} entries ran operators in C, at least {least} are demanded: "
                    "an operator fell back that did not before"
                )

    def render(self) -> str:
        """The table and the problems, as text."""
        names = ("dtype", "pairs", *(verdict.replace("_", " ") for verdict in VERDICTS), "passing of tried")
        rows = [names]
        for dtype, totals in [*self.totals.items(), ("all", self.all)]:
            share = f"{totals['passing']} of {totals['tried']}"
            share += f" ({totals['share']:.1f} %)" if totals["tried"] else ""
            rows.append((dtype, str(totals["pairs"]), *(str(totals[v]) for v in VERDICTS), share))
        widths = [max(len(row[i]) for row in rows) for i in range(len(names))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        work = {name: sum(r[name] for r in self.results) for name in NUMBERS}
        lines.append(
            f"samples {work['samples']}, backward {work['backward']}, in-place {work['inplace']}, out= {work['out']}, "
            f"random {work['random']}; {work['settled']} values that differ are right, {work['undecided']} undecided"
        )
        lines += [f"FAILED {problem}" for problem in self.problems]
        return "\n".join(lines)


def write_json(path: str, about: dict[str, Any], summary: Summary) -> None:
    """`about`, the totals per dtype, the problems and all results."""
    data = {
        **about,
        "complete": summary.complete,
        "totals": {**summary.totals, "all": summary.all},
        "problems": summary.problems,
        "results": summary.results,
    }
    write_whole(path, json.dumps(data, indent=1) + "\n")


def write_junit(path: str, about: dict[str, Any], summary: Summary) -> None:
    """A suite per dtype, a case per entry. A crash and a timeout are errors, other wrong pairs failures; what was not
    run, is expected to fail or has no reference is skipped."""
    about = {name: about[name] for name in ("ditorch", "torch", "backend", "device", "expect")}
    suites = {
        dtype: [_make_case(result) for result in summary.results if result["dtype"] == dtype]
        for dtype in summary.dtypes
    }
    junit.write(path, "ditorch test-device", about, suites)


def _make_case(result: dict[str, Any]) -> junit.Case:
    names = (f"test_device.{result['dtype']}", result["entry"], result["seconds"])
    if result["verdict"] == "pass":
        return junit.Case(*names)
    if result["verdict"] == "wrong":
        kind = "error" if result["status"] in ("crash", "timeout") else "failure"
        return junit.Case(*names, kind, result["status"], result["why"])
    why = {"expected": "expected failure", "skipped": "not run", "no_reference": "the CPU cannot run it"}
    why["undecided"] = "no value could be judged"
    text = f"{why[result['verdict']]}: {result['reason'] or result['message']}"
    return junit.Case(*names, "skipped", text=text)
