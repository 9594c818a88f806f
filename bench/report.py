"""`ditorch report` over many ranks: bytes of the page, processor time and largest memory; the other commands beside it.

    PYTHONPATH=python python bench/report.py [--ranks 8] [--records 1000000] [--folder DIR] [--only report,merge]

The ranks are copies of one made-up log (run_logs.py). query and export need duckdb and pyarrow. With --folder the logs
are kept, and used again. One JSON object per command, as it ends.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

import run_logs

SQL = "select name, count(*) n, avg(host_ns) ns, max(stats_norm) worst from calls group by name order by n desc"
COMMANDS = {
    "report": ("report", "{run}", "-o", "{out}/report.html"),
    "merge": ("merge", "{run}", "-o", "{out}/merged.txt"),
    "query": ("query", SQL, "{run}", "--format", "json", "-o", "{out}/query.json"),
    "export": ("export", "{run}", "--format", "parquet", "-o", "{out}/run.parquet"),
}


WATCH = """
import json, os, subprocess, sys, time
begin = time.perf_counter()
process = subprocess.Popen([sys.executable, "-m", "ditorch", *sys.argv[1:]], stdout=subprocess.DEVNULL)
_, status, used = os.wait4(process.pid, 0)
print(json.dumps({
    "status": os.waitstatus_to_exitcode(status),
    "seconds": round(time.perf_counter() - begin, 1),
    "cpu_seconds": round(used.ru_utime + used.ru_stime, 1),
    "peak_gib": round(used.ru_maxrss / (1 << 20), 2),
}))
"""
"""A process of its own, as small as can be: what it starts counts no less memory than it has itself."""


def measure(words, out):
    """One command, the largest process of its family counted."""
    told = subprocess.run([sys.executable, "-S", "-c", WATCH, *words], stdout=subprocess.PIPE, text=True, check=True)
    return {**json.loads(told.stdout), "bytes": os.path.getsize(out) if os.path.exists(out) else 0}


def make_logs(folder, ranks, records):
    one = os.path.join(folder, "one")
    if not os.path.isdir(one):
        run_logs.write_training(one, records, world=ranks)
    for rank in range(ranks):
        target = os.path.join(folder, "run", f"rank{rank}")
        if not os.path.isdir(target):
            run_logs.copy_for_rank(one, target, rank)
    return os.path.join(folder, "run")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--records", type=int, default=1_000_000, help="of each rank")
    parser.add_argument("--folder")
    parser.add_argument("--only", default=",".join(COMMANDS))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as out:
        run = make_logs(options.folder or out, options.ranks, options.records)
        failed = 0
        for name in options.only.split(","):
            words = [word.format(run=run, out=out) for word in COMMANDS[name]]
            facts = {"ranks": options.ranks, "records": options.records, **measure(words, words[-1])}
            failed += facts["status"] != 0
            print(json.dumps({"command": name, **facts}), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
