"""`ditorch compare` on two logs of a million records each: seconds, largest memory, what was aligned.

    PYTHONPATH=python python bench/compare_runs.py [--records 1000000]

Run B has another attention and activation checkpointing. The goal is 60 s and 2 GiB.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time

import run_logs


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", type=int, default=1_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        a, b = os.path.join(folder, "a"), os.path.join(folder, "b")
        start = time.perf_counter()
        written = [
            run_logs.write_training(a, options.records),
            run_logs.write_training(b, options.records, attention="sdpa", checkpoint=True, error=1e-9),
        ]
        print(f"written {written} records in {time.perf_counter() - start:.0f} s", file=sys.stderr)
        words = [sys.executable, "-m", "ditorch", "compare", a, b, "--json", "-o", os.path.join(folder, "out.json")]
        start = time.perf_counter()
        status = subprocess.run(words, check=False).returncode
        seconds = time.perf_counter() - start
        with open(os.path.join(folder, "out.json")) as file:
            counts = json.load(file)["counts"]
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / (1 << 20)
        facts = {"records": written, "status": status, "seconds": round(seconds, 1), "peak_gib": round(peak, 2)}
        print(json.dumps({**facts, "counts": counts}, indent=1))


if __name__ == "__main__":
    main()
