"""What PyTorch's operators refuse, the device refuses as the CPU does: the `error_inputs` of the OpInfo database.

    python tests/torch/error_inputs.py --all --json out    every entry that has such inputs
    python tests/torch/error_inputs.py --sample            every third of them
    python tests/torch/error_inputs.py --ops add,cat

error_worker.py says what is compared. error_expect.toml lists what may differ and why; an entry that differs unlisted,
or is listed and does not differ, fails the run. A crash or a hang costs one entry.
"""

import argparse
import difflib
import json
import os
import re
import sys

from ditorch.device_suite.expect import tomllib
from ditorch.device_suite.main import Progress
from ditorch.worker_pool import Pool, PoolError

HERE = os.path.dirname(os.path.abspath(__file__))
EXPECTATIONS = os.path.join(HERE, "error_expect.toml")
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "DITORCH_BANNER": "0"}
ALIKE = 0.6
"""Share of equal text from which two messages say the same in other words."""


def simplify(message):
    """The first line without what may differ: devices, numbers, names of kernels and of overloads."""
    line = next(iter(message.strip().splitlines()), "").lower()
    line = re.sub(r"\b(cuda|cpu|privateuse1|dit)(:\d+)?\b", "device", line)
    line = re.sub(r"0x[0-9a-f]+|\d+", "0", line)
    return re.sub(r"\s+", " ", line)


def is_alike(mine, theirs):
    mine, theirs = simplify(mine), simplify(theirs)
    if mine in theirs or theirs in mine:
        return bool(mine) == bool(theirs)
    return difflib.SequenceMatcher(None, mine, theirs, autojunk=False).ratio() >= ALIKE


def read_expectations(path, known):
    """{entry: reason}"""
    with open(path, "rb") as file:
        data = tomllib.load(file)
    fail = data.get("fail", {})
    strangers = sorted(set(fail) - set(known)) or sorted(set(data) - {"fail"})
    if strangers:
        raise SystemExit(f"{path}: no such entries or tables: {', '.join(strangers)}; remove them")
    for name, reason in fail.items():
        if not isinstance(reason, str) or len(reason) < 10:
            raise SystemExit(f"{path}: {name} needs a reason")
    return fail


def classify(result, fail):
    listed, differs = result["entry"] in fail, result["status"] != "pass"
    result["verdict"] = "expected" if listed and differs else "wrong" if listed or differs else "pass"
    if listed and not differs:
        result["message"] = "listed in [fail] but it does not differ now: remove it"


def run_all(pool, names, fail):
    tasks = [{"index": index, "entry": name} for index, name in enumerate(names)]
    progress, results = Progress(len(tasks)), {}
    for task, answer in pool.run(tasks):
        if answer.get("error"):  # crash or timeout
            text = f"{answer['error']['stage']}: {answer['error']['text']}"
            answer = {"status": "fail", "message": text, "counts": {"cpu": 0, "cuda": 0}, "differences": [text]}
        result = {**answer, "entry": task["entry"], "dtype": "", "seconds": 0.0}
        classify(result, fail)
        result["why"] = result["message"]
        results[task["index"]] = result
        progress.step(result)
    progress.clear()
    return [results[index] for index in range(len(names))]


def report(results):
    count = {v: sum(row["verdict"] == v for row in results) for v in ("pass", "expected", "wrong")}
    inputs = {kind: sum(row["counts"][kind] for row in results) for kind in ("cpu", "cuda")}
    differences = sum(len(row["differences"]) for row in results)
    print(
        f"{count['pass']} entries refuse as the CPU does and CUDA should, {count['expected']} differ as expected, "
        f"{count['wrong']} wrong; inputs: {inputs['cpu']} against the CPU, {inputs['cuda']} against the database; "
        f"{differences} differ"
    )
    for row in results:
        if row["verdict"] == "wrong":
            print("FAILED", f"{row['entry']}: {row['message']}")
    return 1 if count["wrong"] else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    scope = parser.add_mutually_exclusive_group(required=True)
    scope.add_argument("--sample", action="store_true", help="every third entry")
    scope.add_argument("--all", action="store_true", help="every entry")
    scope.add_argument("--ops", help="comma list of entries")
    parser.add_argument("--json", help="write all results to this file")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="worker processes")
    parser.add_argument("--limit", type=float, default=300, help="seconds per entry")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--load", default="ditorch", help="module that provides the device")
    parser.add_argument("--expectations", default=EXPECTATIONS)
    options = parser.parse_args()
    command = [sys.executable, os.path.join(HERE, "error_worker.py")]
    words = {"device": options.device, "load": options.load}
    try:
        with Pool(words, options.jobs, options.limit, command, environment=ENVIRONMENT) as pool:
            known = pool.start()["entries"]
            fail = read_expectations(options.expectations, known)
            names = known if options.all else known[::3] if options.sample else options.ops.split(",")
            results = run_all(pool, names, fail)
    except PoolError as error:
        raise SystemExit(str(error)) from None
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"results": results}, file, indent=1)
            file.write("\n")
    return report(results)


if __name__ == "__main__":
    sys.exit(main())
