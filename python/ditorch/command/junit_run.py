"""The JUnit file of `ditorch run --junit`: the program is a test, and so is every tool on every rank."""

from __future__ import annotations

from typing import Any

from .guard import explain, say


def describe_end(error: BaseException | None) -> tuple[int, str]:
    """Exit status and words about how a program of this process ended."""
    if error is None:
        return 0, ""
    if isinstance(error, SystemExit):
        code = error.code
        status = code if isinstance(code, int) else int(code is not None)
        return status, f"exit status {code}" if status else ""
    if isinstance(error, KeyboardInterrupt):
        return 130, "interrupted"
    return 1, f"{type(error).__name__}: {error}"


def make_suites(runs: list[dict[str, Any]], command: str, status: int, text: str) -> dict[str, list[Any]]:
    from ..junit import Case

    seconds = max((run["seconds"] for run in runs), default=0.0)
    words = text or (f"exit status {status}" if status else "")
    suites = {"program": [Case("program", command, seconds, "error" if status else "", "exit", words)]}
    for run in runs:
        cases = suites.setdefault(f"rank {run['rank']}", [])
        for tool in run["tools"]:
            cases += _make_cases(run, tool)
    return suites


def _make_cases(run: dict[str, Any], tool: str) -> list[Any]:
    """One that passed, one that saw nothing, or one per finding."""
    from ..junit import Case

    group = f"rank{run['rank']}.{tool}"
    found = [finding for finding in run["findings"] if finding["tool"] == tool]
    if not found:
        seen = run["counts"].get(tool, {}).get("applied", 0)
        reason = "" if seen else "no call was looked at"
        return [Case(group, tool, run["seconds"], "" if seen else "skipped", "", reason)]
    return [
        Case(group, f"{row['name']} {row['kind']} step {row['step']}", 0.0, "failure", tool, _describe(row))
        for row in found
    ]


def _describe(finding: dict[str, Any]) -> str:
    from op_tools import autocompare, overflow_check

    module = autocompare if finding["tool"] == "autocompare" else overflow_check
    try:
        rows = [module.format_headline(finding), *(f"{a} {b}" for a, b in module.list_facts(finding) if b)]
        return "\n".join(rows)
    except (KeyError, TypeError, ValueError):  # a finding that another version wrote
        return str(finding)


def write_junit(path: str, runs: list[dict[str, Any]], command: str, status: int, text: str = "") -> None:
    from .. import junit

    about = {key: runs[0][key] for key in ("device", "torch", "ditorch", "out")} if runs else {}
    try:
        junit.write(path, "ditorch run", about, make_suites(runs, command, status, text))
    except OSError as error:
        say(f"--junit: {explain(error)}")
