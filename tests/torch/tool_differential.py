"""Every sample of PyTorch's OpInfo database with and without the tools that act: a program must not see a difference.

    python tests/torch/tool_differential.py --sample              a fixed sample of entries
    python tests/torch/tool_differential.py --all --json out      every entry
    python tests/torch/tool_differential.py --ops add,sort --tools fallback

Tools: fallback (OpFallback); same, wide, half, bfloat16, aten (OpDtypeCast with a map that casts nothing, float32 to
float64, float16 and bfloat16 to float32, the same at level aten). tool_expect.toml lists what may differ and why; an
entry that differs unlisted, or is listed and does not with all its samples, fails the run. A crash or a hang costs one
entry.
"""

import argparse
import json
import os
import sys

from ditorch.device_suite.expect import tomllib
from ditorch.device_suite.main import Progress
from ditorch.worker_pool import Pool, PoolError

HERE = os.path.dirname(os.path.abspath(__file__))
EXPECTATIONS = os.path.join(HERE, "tool_expect.toml")
TOOLS = ("fallback", "same", "wide", "half", "bfloat16", "aten")
ALL_SAMPLES = 100000
COUNTS = ("samples", "backward", "inplace", "out", "random", "skipped")
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "DITORCH_BANNER": "0"}
MUTATION = "careless"
"""A wrong tool that the comparison must find."""


class Expectations:
    """tool_expect.toml: entries of the sample; per tool, entries that differ, and wider tolerances, with reasons."""

    def __init__(self, path, known, complete):
        """`complete`: all samples run, so an entry that is listed must differ."""
        with open(path, "rb") as file:
            data = tomllib.load(file)
        unknown = set(data) - {"sample", "fail", "tolerance"}
        if unknown:
            raise SystemExit(f"{path}: unknown keys {sorted(unknown)}; valid: sample, fail, tolerance")
        self.path, self.complete = path, complete
        self.sample = data.get("sample", [])
        self.fail = self.flatten(data.get("fail", {}), known, lambda row: row)
        self.tolerance = self.flatten(data.get("tolerance", {}), known, lambda row: row.get("reason"))
        strangers = sorted(set(self.sample) - set(known)) if known else []
        if strangers:
            raise SystemExit(f"{path}: no such OpInfo entries: {', '.join(strangers)}; remove them")

    def flatten(self, tables, known, reason_of):
        """{"wide:add": value} of {"wide": {"add": value}}."""
        flat = {}
        for tool, rows in tables.items():
            if tool not in (*TOOLS, MUTATION):
                raise SystemExit(f"{self.path}: no tool {tool!r}; valid: {', '.join(TOOLS)}")
            for name, row in rows.items():
                if known and name not in known:
                    raise SystemExit(f"{self.path}: no such OpInfo entry: {name}; remove it")
                if not isinstance(reason_of(row), str) or len(reason_of(row)) < 10:
                    raise SystemExit(f"{self.path}: {tool}, {name} needs a reason")
                flat[f"{tool}:{name}"] = row
        return flat

    def tolerance_of(self, name):
        row = self.tolerance.get(name)
        return {"rtol": row["rtol"], "atol": row["atol"]} if row else {}

    def classify(self, result):
        """Adds `verdict` (pass, expected, unusable, wrong), `why` for wrong ones, and `reason`."""
        name, status = result["entry"], result["status"]
        listed = name in self.fail
        result["reason"] = self.fail.get(name, "")
        if status == "cpu_fails":
            result.update(verdict="unusable", why="")
        elif status == "pass":
            stale = listed and self.complete
            result.update(
                verdict="wrong" if stale else "pass", why="listed in [fail] but it passes now: remove it" * stale
            )
        else:
            result.update(verdict="expected" if listed else "wrong", why="" if listed else result["message"])


def summarise(results, tools):
    for tool in tools:
        rows = [row for row in results if row["entry"].startswith(tool + ":")]
        count = {v: sum(row["verdict"] == v for row in rows) for v in ("pass", "expected", "unusable", "wrong")}
        work = {key: sum(row[key] for row in rows) for key in COUNTS}
        print(
            f"{tool}: {count['pass']} entries without a difference, {count['expected']} expected, {count['wrong']} "
            f"wrong, {count['unusable']} without samples; samples {work['samples']}, backward {work['backward']}, "
            f"in-place {work['inplace']}, out= {work['out']}, random {work['random']}, raising {work['skipped']}; "
            f"{sum(row['seconds'] for row in rows):.0f} s"
        )
    return [f"{row['entry']}: {row['why']}" for row in results if row["verdict"] == "wrong"]


def make_pool(options):
    words = {"device": options.device, "load": options.load, "max_samples": options.max_samples}
    command = [sys.executable, os.path.join(HERE, "tool_worker.py")]
    return Pool(words, options.jobs, options.limit, command, environment=ENVIRONMENT)


def run_all(pool, names, expectations):
    """The results of all names, in their order."""
    tasks = [
        {"index": index, "entry": name, "tolerance": expectations.tolerance_of(name)}
        for index, name in enumerate(names)
    ]
    progress, results = Progress(len(tasks)), {}
    for task, answer in pool.run(tasks):
        if answer.get("error"):  # crash or timeout
            text = f"{answer['error']['stage']}: {answer['error']['text']}"
            answer = {"dtype": "", "status": "fail", "message": text, "seconds": 0.0, **dict.fromkeys(COUNTS, 0)}
        result = {**answer, "entry": task["entry"]}
        expectations.classify(result)
        results[task["index"]] = result
        progress.step(result)
    progress.clear()
    return [results[index] for index in range(len(names))]


def choose(options, known, expectations):
    names = list(known) if options.all else expectations.sample if options.sample else options.ops.split(",")
    tools = options.tools.split(",") if options.tools else list(TOOLS)
    unknown = [tool for tool in tools if tool not in (*TOOLS, MUTATION)]
    if unknown:
        raise SystemExit(f"no such tools: {', '.join(unknown)}; valid: {', '.join(TOOLS)}")
    return [f"{tool}:{name}" for name in names for tool in tools], tools


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    scope = parser.add_mutually_exclusive_group(required=True)
    scope.add_argument("--sample", action="store_true", help="the fixed sample that covers all families")
    scope.add_argument("--all", action="store_true", help="every entry of the database")
    scope.add_argument("--ops", help="comma list of entries")
    parser.add_argument("--tools", help=f"comma list of {', '.join(TOOLS)}; default all")
    parser.add_argument("--json", help="write all results to this file")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="worker processes")
    parser.add_argument("--limit", type=float, default=300, help="seconds per entry and tool")
    parser.add_argument("--max-samples", type=int, default=ALL_SAMPLES, help="samples per entry; default all")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--load", default="ditorch", help="module that provides the device; empty for none")
    parser.add_argument("--expectations", default=EXPECTATIONS)
    options = parser.parse_args()
    try:
        with make_pool(options) as pool:
            known = pool.start()["entries"]
            expectations = Expectations(options.expectations, known, options.max_samples >= ALL_SAMPLES)
            names, tools = choose(options, known, expectations)
            results = run_all(pool, names, expectations)
    except PoolError as error:
        raise SystemExit(str(error)) from None
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"results": results}, file, indent=1)
            file.write("\n")
    problems = summarise(results, tools)
    for problem in problems:
        print("FAILED", problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
