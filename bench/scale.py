"""Bytes and seconds that docs/scale.md counts with: logs of a real training per call, merged, converted and asked.

    python bench/scale.py [--ranks 64]

The logs of further ranks are copies of one: what size and time to read depend on is the same. Needs duckdb and pyarrow.
"""

from __future__ import annotations

import argparse
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
STEPS = 20
KINDS = (
    ("observe", "observe", ()),
    ("observe, statistics", "observe", ("observe.stats=1",)),
    ("time", "time", ()),
    ("nan", "nan", ()),
    ("autocompare", "autocompare", ()),
)


def run(folder: str, *words: str) -> tuple[str, float]:
    environment = {**os.environ, "PYTHONPATH": os.path.join(ROOT, "python"), "DITORCH_BANNER": "0"}
    begin = time.perf_counter()
    command = [sys.executable, "-m", "ditorch", *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode > 1:
        raise SystemExit(f"{' '.join(words)}: {done.stderr[-2000:]}")
    return done.stdout, time.perf_counter() - begin


def train(folder: str, name: str, tool: str, options: tuple[str, ...]) -> list[str]:
    """The logs of a training under a tool."""
    words = [word for option in options for word in ("--option", option)]
    gpt = os.path.join(ROOT, "examples", "gpt.py")
    run(folder, "run", "--tool", tool, *words, "--out", name, gpt, "--steps", str(STEPS))
    return glob.glob(os.path.join(folder, name, "**", "*.dlog"), recursive=True)


def count_calls(folder: str, logs: list[str]) -> tuple[int, int]:
    """Records, and calls of operators by the summary of all that saw them."""
    out, _ = run(folder, "merge", *logs, "--json")
    found = json.loads(out)
    return sum(rank["records"] for rank in found["ranks"]), sum(rank["calls"] for rank in found["ranks"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=64)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ditorch-scale-") as folder:
        for title, tool, more in KINDS:
            logs = train(folder, title.replace(", ", "-"), tool, more)
            records, calls = count_calls(folder, logs)
            size = sum(map(os.path.getsize, logs))
            each = f"{size / calls:.0f} bytes a call" if calls else "no calls noted"
            print(f"{title}: {size:,} bytes, {records:,} records, {calls:,} calls in {STEPS} steps, {each}", flush=True)
            if title == "time":
                chosen = logs[0]
        for rank in range(options.ranks):
            os.makedirs(os.path.join(folder, f"ranks/{rank}"))
            shutil.copy(chosen, os.path.join(folder, f"ranks/{rank}"))
        size = os.path.getsize(chosen) * options.ranks
        _, merged = run(folder, "merge", "ranks", "--json", "-o", "merged.json")
        _, converted = run(folder, "export", "ranks", "-o", "ranks.parquet")
        query = "select name, count(*) n, sum(duration_ns) ns from times group by name order by ns desc limit 5"
        _, asked_logs = run(folder, "query", query, "ranks")
        _, asked = run(folder, "query", query, "ranks.parquet")
        parquet = os.path.getsize(os.path.join(folder, "ranks.parquet"))
        print(
            f"{options.ranks} logs of {size / 2**20:.1f} MiB in all: merge {merged:.1f} s, to Parquet {converted:.1f} s"
        )
        print(f"Parquet {parquet / 2**20:.2f} MiB; query of the logs {asked_logs:.1f} s, of the Parquet {asked:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
