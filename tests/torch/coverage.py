"""How much of PyTorch's operator database runs in C, from the report of tests/torch/opinfo.py.

    python tests/torch/coverage.py build/opinfo.json            print it; status 1 when it is less than before
    python tests/torch/coverage.py build/opinfo.json --update   write tests/torch/coverage.json

An entry of the database counts as run in C when none of its samples took the CPU fallback. The figures of a change may
only be better than those that are checked in.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

KEPT = Path(__file__).resolve().parent / "coverage.json"


def collect(report: dict[str, Any]) -> dict[str, Any]:
    """Entries by how they ran, and the operators that still fall back, with their calls."""
    entries: dict[str, bool] = {}
    in_c: set[str] = set()
    fallen: dict[str, int] = {}
    for row in report["results"]:
        in_c |= {name for name, calls in row["c"].items() if calls}
        for name, calls in row["fallback"].items():
            fallen[name] = fallen.get(name, 0) + calls
        entries[row["entry"]] = entries.get(row["entry"], True) and not row["fallback"]
    return {
        "entries": len(entries),
        "entries_in_c": sum(entries.values()),
        "overloads_in_c": len(in_c),
        "overloads_fallen_back": len(fallen),
        "most_called": dict(sorted(fallen.items(), key=lambda item: -item[1])[:20]),
    }


def main(words: list[str]) -> int:
    found = collect(json.loads(Path(words[0]).read_text(encoding="utf-8")))
    print(
        f"operator database: {found['entries_in_c']} of {found['entries']} entries run in C alone; "
        f"{found['overloads_in_c']} overloads ran in C, {found['overloads_fallen_back']} fell back"
    )
    kept = {key: found[key] for key in ("entries_in_c", "overloads_in_c")}
    if "--update" in words:
        KEPT.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")
        return 0
    before = json.loads(KEPT.read_text(encoding="utf-8"))
    worse = {key: (before[key], kept[key]) for key in kept if kept[key] < before[key]}
    for key, (old, new) in worse.items():
        print(f"{key.replace('_', ' ')}: {new}, was {old}: operators that ran in C fall back now", file=sys.stderr)
    return 1 if worse else 0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    sys.exit(main(sys.argv[1:]))
