"""`ditorch run --json FILE`: the summary at the end as one JSON object, over all ranks."""

from __future__ import annotations

import json
from typing import Any

from ..effect import describe
from ..findings import order
from .guard import explain, say

KEPT = ("rank", "pid", "world_size", "steps", "seconds", "device", "torch", "ditorch", "tools", "counts", "observer")
"""Of a process; its whole file is in the results."""


def make_summary(runs: list[dict[str, Any]], command: str, folder: str, status: int, text: str) -> dict[str, Any]:
    """`runs` as read_runs() gives them; `text` says how the program ended."""
    from op_tools import program

    found = order({**finding, "rank": run["rank"]} for run in runs for finding in run["findings"])
    blamed = next((run for run in runs if found and run["rank"] == found[0]["rank"]), runs[0] if runs else None)
    return {
        "format": "ditorch-summary",
        "version": 1,
        "command": command,
        "status": status,
        "ended": text or (f"exit status {status}" if status else ""),
        "findings": found,
        "processes": [
            {**{key: run.get(key) for key in KEPT}, "effect": describe(run.get("observer") or {})} for run in runs
        ],
        "results": folder,
        "next": program.suggest_next(blamed) if blamed else "",
    }


def write_summary(path: str, *about: Any) -> None:
    """A file that cannot be written is said, and is not the program's failure."""
    from ..output import write_whole

    try:
        write_whole(path, json.dumps(make_summary(*about), indent=1, allow_nan=False, default=str) + "\n")
    except OSError as error:
        say(f"--json: {explain(error)}")
