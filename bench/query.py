"""`ditorch query` over many ranks: seconds and largest memory, converting included and without.

    PYTHONPATH=python python bench/query.py [--ranks 64] [--records 100000] [--folder DIR]

Needs duckdb and pyarrow. With --folder the logs are kept, and used again.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor

import run_logs

SQL = "select name, count(*) n, avg(host_ns) ns, max(stats_norm) worst from calls group by name order by n desc"


def write(folder, rank, ranks, records):
    path = os.path.join(folder, f"rank{rank}")
    return 0 if os.path.isdir(path) else run_logs.write_training(path, records, rank=rank, world=ranks)


def ask(*paths):
    start = time.perf_counter()
    words = [sys.executable, "-m", "ditorch", "query", SQL, *paths, "--format", "json", "-o", os.devnull]
    status = subprocess.run(words, check=False).returncode
    return {"status": status, "seconds": round(time.perf_counter() - start, 1)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--folder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or temporary
        with ProcessPoolExecutor(2) as pool:
            for rank in range(options.ranks):
                pool.submit(write, folder, rank, options.ranks, options.records)
        logs = ask(folder)
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / (1 << 20)
        table = os.path.join(temporary, "run.parquet")
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "ditorch", "export", folder, "-o", table], check=True)
        exported = round(time.perf_counter() - start, 1)
        facts = {"ranks": options.ranks, "records": options.records, "logs": logs, "peak_gib": round(peak, 2)}
        size = round(os.path.getsize(table) / (1 << 20))
        print(json.dumps({**facts, "export_seconds": exported, "parquet_mib": size, "parquet": ask(table)}, indent=1))


if __name__ == "__main__":
    main()
