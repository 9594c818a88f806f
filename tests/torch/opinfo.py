"""PyTorch's OpInfo database on the device against the CPU.

    python tests/torch/opinfo.py --sample            the fixed sample of `make test`
    python tests/torch/opinfo.py --all --json out    every entry
    python tests/torch/opinfo.py --ops add,nn.functional.conv2d

Every entry runs in float32 (or, where an operator has no float32, in its first CPU dtype), forward and backward, in
place and with out=, and is compared in values, shapes, dtypes, strides, aliasing and gradients; entries that draw
random numbers are compared in metadata, reproducibility and statistics. opinfo_expect.toml lists what may fail and why;
an entry that fails unlisted, or is listed and passes, fails the run. Workers are processes: a crash or a hang costs one
entry.
"""

import argparse
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    from pip._vendor import tomli as tomllib

HERE = os.path.dirname(os.path.abspath(__file__))
EXPECTATIONS = os.path.join(HERE, "opinfo_expect.toml")
START_LIMIT_S = 180


class Expectations:
    """opinfo_expect.toml: sample list, expected failures and tolerances with reasons, the guard on C coverage."""

    def __init__(self, path, known):
        with open(path, "rb") as file:
            data = tomllib.load(file)
        unknown = set(data) - {"sample", "guard", "fail", "cpu_fails", "tolerance"}
        if unknown:
            raise SystemExit(
                f"{path}: unknown keys {sorted(unknown)}; valid: sample, guard, fail, cpu_fails, tolerance"
            )
        self.sample = data.get("sample", [])
        self.guard = data.get("guard", {})
        self.fail = data.get("fail", {})
        self.cpu_fails = data.get("cpu_fails", {})
        self.tolerance = data.get("tolerance", {})
        named = [*self.sample, *self.fail, *self.cpu_fails, *self.tolerance]
        strangers = sorted(set(named) - set(known))
        if strangers:
            raise SystemExit(f"{path}: no such OpInfo entries: {', '.join(strangers)}; remove them")
        reasons = {name: row.get("reason") for name, row in self.tolerance.items()}
        for table in (self.fail, self.cpu_fails, reasons):
            for name, reason in table.items():
                if not isinstance(reason, str) or len(reason) < 10:
                    raise SystemExit(f"{path}: {name} needs a reason")

    def tolerance_of(self, name):
        row = self.tolerance.get(name)
        return {"rtol": row["rtol"], "atol": row["atol"]} if row else {}

    def classify(self, result):
        """Adds `verdict` (pass, expected, cpu_fails, wrong) and for wrong ones `why`."""
        name, status = result["entry"], result["status"]
        listed = "fail" if name in self.fail else "cpu_fails" if name in self.cpu_fails else ""
        if status == "pass":
            result["verdict"] = "wrong" if listed else "pass"
            result["why"] = f"listed in [{listed}] but it passes now: remove it" if listed else ""
        elif status == "cpu_fails":
            result["verdict"] = "cpu_fails" if listed == "cpu_fails" else "wrong"
            result["why"] = "" if listed == "cpu_fails" else "the CPU fails and it is not listed in [cpu_fails]"
        else:
            result["verdict"] = "expected" if listed == "fail" else "wrong"
            result["why"] = "" if listed == "fail" else result["message"]
        result["reason"] = self.fail.get(name) or self.cpu_fails.get(name) or ""


class Worker:
    """One worker process and the thread that feeds it."""

    def __init__(self, options):
        self.options = options
        self.process = None

    script = "opinfo_worker.py"

    def start(self):
        command = [
            sys.executable,
            os.path.join(HERE, self.script),
            "--device",
            self.options.device,
            "--load",
            self.options.load,
            "--max-samples",
            str(self.options.max_samples),
        ]
        environment = dict(os.environ, OMP_NUM_THREADS="1", DITORCH_BANNER="0")
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the worker
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True, env=environment
        )
        self.lines = queue.Queue()
        threading.Thread(target=self.pump, args=(self.process, self.lines), daemon=True).start()
        if self.read(START_LIMIT_S) is None:
            tail = self.error_tail()
            self.stop()
            raise SystemExit(f"an OpInfo worker did not start: {' '.join(command)}\n{tail}")

    @staticmethod
    def pump(process, lines):
        for line in process.stdout:
            lines.put(line)
        lines.put(None)

    def read(self, limit):
        """A parsed answer; None when the process ended; queue.Empty when the limit passed."""
        line = self.lines.get(timeout=limit)
        return None if line is None else json.loads(line)

    def error_tail(self):
        self.errors.flush()
        self.errors.seek(0)
        return self.errors.read()[-2000:].decode(errors="replace")

    def stop(self):
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.stdin.close()
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.errors.close()
        self.process = None

    def run(self, name, tolerance):
        if self.process is None:
            self.start()
        base = {
            "entry": name,
            "dtype": "",
            "status": "fail",
            "c": {},
            "fallback": {},
            "seconds": 0.0,
            "samples": 0,
            "random": 0,
            "backward": 0,
            "inplace": 0,
            "out": 0,
            "skipped": 0,
        }
        try:
            self.process.stdin.write(json.dumps({"entry": name, "tolerance": tolerance}) + "\n")
            self.process.stdin.flush()
            answer = self.read(self.options.limit)
        except queue.Empty:
            self.process.kill()
            self.process.wait()
            self.stop()
            return dict(
                base, seconds=float(self.options.limit), message=f"hang: no answer within {self.options.limit} s"
            )
        except BrokenPipeError:
            answer = None
        if answer is not None:
            return answer
        code = self.process.wait()
        cause = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        lines = [line.strip() for line in self.error_tail().splitlines() if line.strip()]
        tail = (
            " ".join([lines[0], *[x for x in lines if "opinfo_worker" not in x][1:6]])[:400] if lines else "no message"
        )
        self.stop()
        return dict(base, message=f"crash: {cause}; {tail}")


class Progress:
    """A line on a terminal that is overwritten; elsewhere one line every tenth of the run."""

    def __init__(self, total):
        self.total, self.done, self.wrong, self.start = total, 0, 0, time.monotonic()
        self.terminal = sys.stderr.isatty()
        self.lock = threading.Lock()

    def step(self, result):
        with self.lock:
            self.done += 1
            wrong = result["verdict"] == "wrong"
            self.wrong += wrong
            if wrong:
                self.clear()
                print(f"WRONG {result['entry']}: {result['why'] or result['message']}", flush=True)
            text = f"opinfo {self.done}/{self.total}, {self.wrong} wrong, {time.monotonic() - self.start:.0f} s"
            if self.terminal:
                print(f"\r\x1b[K{text}  {result['entry'][:40]}", end="", file=sys.stderr, flush=True)
            elif self.done == self.total or self.done % max(1, self.total // 10) == 0:
                print(text, file=sys.stderr, flush=True)

    def clear(self):
        if self.terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def run_all(names, expectations, options, make_worker=Worker):
    pending = queue.Queue()
    for name in names:
        pending.put(name)
    results, progress, failures = [], Progress(len(names)), []

    def serve():
        worker = make_worker(options)
        try:
            while True:
                try:
                    name = pending.get_nowait()
                except queue.Empty:
                    return
                result = worker.run(name, expectations.tolerance_of(name))
                expectations.classify(result)
                results.append(result)
                progress.step(result)
        except SystemExit as error:
            failures.append(str(error))
        finally:
            worker.stop()

    threads = [threading.Thread(target=serve) for _ in range(min(options.jobs, len(names)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    progress.clear()
    if failures:
        raise SystemExit(failures[0])
    order = {name: index for index, name in enumerate(names)}
    return sorted(results, key=lambda r: order[r["entry"]])


def summarise(results, expectations, scope):
    """Print the totals; return the list of everything that makes the run fail."""
    count = {v: sum(r["verdict"] == v for r in results) for v in ("pass", "expected", "cpu_fails", "wrong")}
    tried = [r for r in results if r["status"] != "cpu_fails"]
    float32 = [r for r in tried if r["dtype"] in ("float32", "")]
    passed = sum(r["status"] == "pass" for r in float32)
    touched = sum(bool(r["c"]) for r in results)
    only_c = sum(bool(r["c"]) and not r["fallback"] for r in results)
    print(
        f"opinfo ({scope}): {len(results)} entries: {count['pass']} pass, {count['expected']} expected failures, "
        f"{count['cpu_fails']} fail on the CPU itself, {count['wrong']} wrong"
    )
    if float32:
        print(f"float32: {passed} of {len(float32)} pass ({100 * passed / len(float32):.1f} %)")
    print(
        f"work: {touched} entries ran C operators ({only_c} nothing else), "
        f"{sum(bool(r['fallback']) for r in results)} used a CPU fallback; "
        f"samples {sum(r['samples'] for r in results)}, backward {sum(r['backward'] for r in results)}, "
        f"in-place {sum(r['inplace'] for r in results)}, out= {sum(r['out'] for r in results)}, "
        f"random {sum(r['random'] for r in results)}"
    )
    problems = [f"{r['entry']}: {r['why']}" for r in results if r["verdict"] == "wrong"]
    wanted = expectations.guard.get(f"c_entries_{scope}")
    if wanted is not None and touched < wanted:
        problems.append(
            f"guard: {touched} entries ran C operators, opinfo_expect.toml demands at least {wanted}: "
            "an operator fell back that did not before"
        )
    return problems


def choose(options, known, expectations):
    if options.ops:
        names = options.ops.split(",")
        strangers = [n for n in names if n not in known]
        if strangers:
            near = [k for k in known if any(s in k for s in strangers)][:10]
            raise SystemExit(f"no such OpInfo entries: {', '.join(strangers)}; near: {', '.join(near) or 'none'}")
        return names, "chosen"
    if options.all:
        return list(known), "all"
    return expectations.sample, "sample"


def known_entries():
    code = "import opinfo_worker, json; print(json.dumps(list(opinfo_worker.entries())))"
    answer = subprocess.run([sys.executable, "-W", "ignore", "-c", code], cwd=HERE, capture_output=True, text=True)
    if answer.returncode:
        raise SystemExit(f"PyTorch's operator database cannot be imported:\n{answer.stderr[-2000:]}")
    return json.loads(answer.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    scope = parser.add_mutually_exclusive_group(required=True)
    scope.add_argument("--sample", action="store_true", help="the fixed sample that covers all families")
    scope.add_argument("--all", action="store_true", help="every entry of the database")
    scope.add_argument("--ops", help="comma list of entries")
    scope.add_argument("--list", action="store_true", help="print the names of all entries")
    parser.add_argument("--json", help="write all results to this file")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="worker processes")
    parser.add_argument("--limit", type=float, default=60, help="seconds per entry")
    parser.add_argument("--max-samples", type=int, default=0, help="samples per entry; 0: all, or 24 with --sample")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--load", default="ditorch", help="module that provides the device; empty for none")
    parser.add_argument("--expectations", default=EXPECTATIONS)
    options = parser.parse_args()
    known = known_entries()
    if options.list:
        print("\n".join(known))
        return 0
    options.max_samples = options.max_samples or (24 if options.sample else 100000)
    expectations = Expectations(options.expectations, known)
    names, scope_name = choose(options, known, expectations)
    results = run_all(names, expectations, options)
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"scope": scope_name, "results": results}, file, indent=1)
            file.write("\n")
    problems = summarise(results, expectations, scope_name)
    for problem in problems:
        print("FAILED", problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
