"""Runs the cases of test files in worker processes: one file after the other, its cases shared out to the workers.

Nothing here touches a device or imports torch. A case that ends its worker, or takes too long, costs itself alone; a
file that cannot be imported is one row of the result. What a worker leaves running is ended with it.
"""

from __future__ import annotations

import argparse
import difflib
import fnmatch
import os
import sys
import tempfile
import time
import zlib
from typing import Any

from ...batch_state import State, make_stamp
from ...progress import estimate_rest, show_rest
from ...worker_pool import Pool, StartError
from ..about import describe, make_key
from ..arguments import UsageError
from . import report, worker
from .expect import CaseExpectations, find_shipped
from .sources import ENVIRONMENT, Source, find_files, find_suites

CASES_PER_WORKER = 40
"""So many make another worker worth its start."""
PROGRESS_SECONDS = 10.0
WHOLE_FILE = ""
"""The case that stands for a file that could not be imported."""


class Progress:
    """Wrong cases on standard output as they come; the count on standard error, on a terminal in one line."""

    def __init__(self, files: int) -> None:
        self._files, self._file, self._name = files, 0, ""
        self._done = self._total = self._wrong = 0
        self._begin = self._file_begin = self._told = time.monotonic()
        self._terminal = sys.stderr.isatty()

    def enter(self, name: str, total: int) -> None:
        self._file, self._name, self._total, self._done = self._file + 1, name, total, 0
        self._file_begin = time.monotonic()
        self._tell("")

    def step(self, result: dict[str, Any]) -> None:
        self._done += 1
        if result["verdict"] == "wrong":
            self._wrong += 1
            self.clear()
            print(f"WRONG {report.name_case(result)}: {result['why']}", flush=True)
        now = time.monotonic()
        if now - self._told >= (0.2 if self._terminal else PROGRESS_SECONDS):
            self._tell(result["case"])

    def _tell(self, case: str) -> None:
        self._told = time.monotonic()
        text = f"test-device: file {self._file} of {self._files}, {self._name}: {self._done} of {self._total}"
        text += f", {self._wrong} wrong, {self._told - self._begin:.0f} s"
        if 0 < self._done < self._total:
            text += f", of this file {show_rest(estimate_rest(self._file_begin, self._done, self._total))}"
        if self._terminal:
            print(f"\r\x1b[K{text}  {case[:40]}", end="", file=sys.stderr, flush=True)
        else:
            print(text, file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self._terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


class CaseRun:
    """All files of one run of the command."""

    def __init__(self, options: argparse.Namespace, environment: dict[str, str]) -> None:
        self.options, self.environment = options, dict(environment)
        if options.suite:
            self.sources = find_suites(options.suite)
        else:
            self.sources = find_files(options.pytorch, options.files)
        self.words = [word.strip() for word in (options.cases or "").split(",") if word.strip()]
        self.expectations = CaseExpectations(options.expect) if options.expect else None
        self.facts: dict[str, Any] = {}
        self.results: list[dict[str, Any]] = []
        self.listed: dict[str, list[str]] = {}  # of files that ran whole: Class.test
        self.seen: list[str] = []
        self.state: State | None = None

    def main(self) -> int:
        begin = time.monotonic()
        self.progress = Progress(len(self.sources))
        with tempfile.TemporaryDirectory(prefix="ditorch-cases-", ignore_cleanup_errors=True) as scratch:
            self.scratch = scratch
            self._make_environment(scratch)
            try:
                for source in self.sources:
                    self._run_file(source)
            finally:
                self.progress.clear()
                if self.state is not None:
                    self.state.close()
        return 0 if self.options.list else self._report(time.monotonic() - begin)

    def _make_environment(self, scratch: str) -> None:
        """Every python that a case starts has the device too: torch loads ditorch by its entry point."""
        device = self.options.device.partition(":")[0]
        self.environment["PYTORCH_TESTING_DEVICE_ONLY_FOR"] = device
        self.environment["PYTORCH_PRINT_REPRO_ON_FAILURE"] = "0"  # the same sentence after every message
        if self.options.load == "ditorch":
            folder = os.path.join(scratch, "entry", "ditorch-0.dist-info")
            os.makedirs(folder)
            for name, text in (
                ("METADATA", "Metadata-Version: 2.1\nName: ditorch\nVersion: 0\n"),
                ("entry_points.txt", "[torch.backends]\nditorch = ditorch:_autoload\n"),
            ):
                with open(os.path.join(folder, name), "w", encoding="ascii") as file:
                    file.write(text)
            self.environment["DITORCH_AUTOLOAD"] = "1"
            paths = [os.path.dirname(folder), _find_home(), os.environ.get("PYTHONPATH", "")]
            self.environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))

    # One file

    def _run_file(self, source: Source) -> None:
        stamp = make_stamp(source.path)
        if self.state is not None and self._is_done(source, stamp):
            return
        words = {
            "path": source.path,
            "folder": source.folder,
            "scratch": self.scratch,
            "suite": bool(self.options.suite),
            "device": self.options.device,
            "load": self.options.load,
        }
        command = [sys.executable, "-c", worker.COMMAND]
        environment = {**self.environment, **(ENVIRONMENT.get(source.name, {}) if self.options.suite else {})}
        if source.name in ENVIRONMENT and self.options.suite:
            environment["TEMP_DIR"] = tempfile.mkdtemp(dir=self.scratch)
        with Pool(words, 1, 0.0, command, environment=environment, group=True) as pool:
            try:
                facts = pool.start()
            except StartError as error:
                self._fail_file(source, "crash", str(error))
                return
            self._learn(facts)
            if "import_error" in facts:
                self._fail_file(source, "error", f"cannot be imported: {facts['import_error']}", facts["trace"])
                return
            known = [tuple(pair) for pair in facts["cases"]]
            if self.options.list:
                print("\n".join(f"{source.name}::{group}.{case}" for group, case in self._choose(known)))
                return
            if self.state is None and self.options.resume:
                self.state = State(self.options.resume, self._make_key(), "test-device")
            if self.state is not None:
                self.state.add(source.name, stamp, {"cases": known, "facts": self._keep_facts()})
            self._run_cases(source, stamp, known, pool)

    def _is_done(self, source: Source, stamp: str) -> bool:
        """All cases of the file are answered by the state file: no worker is needed."""
        entry = self.state.get(source.name, stamp)
        if entry is None:
            return False
        known = [tuple(pair) for pair in entry["cases"]]
        rows = [(pair, self.state.get(_key(source, pair), stamp)) for pair in self._choose(known)]
        if any(answer is None and not self._is_skipped(source, pair) for pair, answer in rows):
            return False
        self._run_cases(source, stamp, known, None)
        return True

    def _run_cases(self, source: Source, stamp: str, known: list[tuple[str, str]], pool: Pool | None) -> None:
        chosen = self._choose(known)
        if len(chosen) == len(known):
            self.listed[source.name] = [f"{group}.{case}" for group, case in known]
        self.progress.enter(source.name, len(chosen))
        waiting = []
        for index, pair in enumerate(chosen):
            answer = self.state.get(_key(source, pair), stamp) if self.state is not None else None
            if self._is_skipped(source, pair):
                answer = {"status": "not_run", "message": ""}
            if answer is not None:
                self._add(source, pair, answer)
            else:
                waiting.append(self._make_task(source, index, pair))
        if not waiting:
            return
        pool.set_jobs(min(self.options.jobs, 1 + len(waiting) // CASES_PER_WORKER))
        pool.set_timeout(self.options.timeout or float(self.expectations.device["timeout"]))
        left = {task["index"]: task for task in waiting}
        try:
            for task, answer in pool.run(waiting):
                left.pop(task["index"])
                self._take(source, stamp, task, answer)
        except StartError as error:  # the file could be imported before, and cannot now
            for task in left.values():
                self._take(source, stamp, task, {"error": {"stage": "crash", "text": str(error)}})

    def _take(self, source: Source, stamp: str, task: dict[str, Any], answer: dict[str, Any]) -> None:
        pair = task["class"], task["case"]
        if "error" in answer:
            answer = {"status": answer["error"]["stage"], "message": answer["error"]["text"]}
        answer.pop("index", None)
        if self.state is not None:
            self.state.add(_key(source, pair), stamp, answer)
        self._add(source, pair, answer)

    def _make_task(self, source: Source, index: int, pair: tuple[str, str]) -> dict[str, Any]:
        row = self.expectations.find("tolerance", source.name, ".".join(pair))
        if row is not None:
            row.met += 1
        return {"index": index, "class": pair[0], "case": pair[1], "tolerance": row.numbers if row else None}

    def _is_skipped(self, source: Source, pair: tuple[str, str]) -> bool:
        row = self.expectations.find("skip", source.name, ".".join(pair))
        return row is not None and not self.options.run_skipped

    def _choose(self, known: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """What --cases names, and of that the share that is asked for, always the same one."""
        self.seen += [f"{group}.{case}" for group, case in known] if self.words else []
        chosen = [pair for pair in known if not self.words or self._is_named(*pair)]
        if self.options.share < 1:
            limit = self.options.share * 2**32
            chosen = [pair for pair in chosen if zlib.crc32(".".join(pair).encode()) < limit]
        return chosen

    def _is_named(self, group: str, case: str) -> bool:
        names = (case, f"{group}.{case}")
        return any(name == word or fnmatch.fnmatchcase(name, word) for word in self.words for name in names)

    # The result

    def _learn(self, facts: dict[str, Any]) -> None:
        if not self.facts:
            self.facts = facts
        if self.expectations is None:
            self.expectations = CaseExpectations(find_shipped(self.facts["backend"]))

    def _keep_facts(self) -> dict[str, Any]:
        return {name: self.facts[name] for name in ("torch", "backend", "device")}

    def _fail_file(self, source: Source, status: str, text: str, trace: str = "") -> None:
        if self.options.list:
            print(f"ditorch test-device: {source.name}: {text}", file=sys.stderr)
            return
        if self.expectations is None:  # nothing started yet, so the backend is not known
            self.expectations = CaseExpectations(find_shipped(None))
        self.progress.enter(source.name, 1)
        self._add(source, (WHOLE_FILE, WHOLE_FILE), {"status": status, "message": text, "trace": trace})

    def _add(self, source: Source, pair: tuple[str, str], answer: dict[str, Any]) -> None:
        result = report.judge(source.name, pair[0], pair[1], answer, self.expectations)
        self.results.append(result)
        self.progress.step(result)

    def _report(self, seconds: float) -> int:
        if not self.results:
            near = [name for word in self.words for name in difflib.get_close_matches(word, self.seen, 5)]
            text = f"no case was chosen: --cases {self.options.cases!r}, --share {self.options.share:g}"
            raise UsageError(text + (f"; near: {', '.join(near)}" if near else ""))
        notes = self.expectations.tell_idle(self.listed)
        files = [source.name for source in self.sources]
        summary = report.Summary(self.results, self.expectations, files, set(self.listed))
        about = self._describe(seconds)
        for write, path in (
            (report.write_json, self.options.json),
            (report.write_junit, self.options.junit),
            (report.write_csv, self._find_csv()),
        ):
            if path:
                write(path, about, summary)
        for note in notes:
            print(f"ditorch test-device: note: {note}", file=sys.stderr)
        print(summary.render(), flush=True)
        if self._find_csv():
            print(f"all cases: {self._find_csv()}", flush=True)
        return 1 if summary.problems else 0

    def _find_csv(self) -> str | None:
        """Of a checkout there always is one, named as the original names it."""
        path = self.options.csv or ("." if self.options.pytorch else None)
        if path and os.path.isdir(path):
            name = self.facts.get("backend") or self.options.device
            path = os.path.join(path, f"{name}_summary_of_pytorch_test_case_testing.csv")
        return path

    def _describe(self, seconds: float = 0.0) -> dict[str, Any]:
        return describe("ditorch-test-cases", self.facts, self.options.device, self.expectations.path, seconds)

    def _make_key(self) -> dict[str, Any]:
        """The state file holds the stamps of the test files themselves."""
        timeout = self.options.timeout or self.expectations.device["timeout"]
        return make_key(self._describe(), self.options, timeout, self.environment, ("DITORCH_", "PYTORCH_T"))


def _key(source: Source, pair: tuple[str, str]) -> str:
    return f"{source.name}::{pair[0]}.{pair[1]}"


def _find_home() -> str:
    here = os.path.abspath(__file__)
    for _ in range(4):
        here = os.path.dirname(here)
    return here
