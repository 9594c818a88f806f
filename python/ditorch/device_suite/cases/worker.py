"""The process that runs the cases of one file: lines of JSON on standard input (first the options, then tasks), one
answer each. What the cases print goes to standard error.

The file is imported under its own name, with its folder first on sys.path, as python does for a script. Fixtures of
classes and modules run as unittest runs them: once, as long as the cases of a class come one after the other.
"""

from __future__ import annotations

import faulthandler
import importlib.util
import json
import os
import signal
import sys
import tempfile
import time
import traceback
import unittest
from collections.abc import Iterator
from typing import Any

COMMAND = "from ditorch.device_suite.cases import worker\nraise SystemExit(worker.main())"
MESSAGE = 600
TRACE = 6000


class Outcome(unittest.TestResult):
    """What became of one case. `begin` forgets the last one; the fixtures of classes go on."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path
        self._testRunEntered = True  # the fixtures of a class are left when another class comes, not after each case
        self._fixtures: dict[str, tuple[str, str, str, int]] = {}
        self.begin()

    def begin(self) -> None:
        self.shouldStop = False
        self.found: list[tuple[str, str, str, int]] = []
        self.ran = False

    def startTest(self, test: Any) -> None:
        self.ran = True

    def stopTest(self, test: Any) -> None:
        pass

    def wasSuccessful(self) -> bool:
        return not any(status in ("failure", "error") for status, *_ in self.found)

    def get(self, test: Any) -> dict[str, Any]:
        """Status, message, trace and line: the worst thing that happened."""
        if not self.ran and not self.found:
            known = self._fixtures.get(type(test).__qualname__)
            self.found.append(known or ("error", "its class or module was not set up", "", 0))
        order = ("error", "failure", "skipped")
        worst = min(self.found, key=lambda row: order.index(row[0]) if row[0] in order else 9, default=None)
        status, message, trace, line = worst or ("passed", "", "", 0)
        return {"status": status, "message": message, "trace": trace, "line": line}

    def _add(self, test: Any, status: str, message: str, error: Any = None) -> None:
        trace, line = "", 0
        if error is not None:
            trace = "".join(traceback.format_exception(*error))[-TRACE:]
            places = [row.lineno or 0 for row in traceback.extract_tb(error[2]) if row.filename == self._path]
            line = places[-1] if places else 0
        if isinstance(test, unittest.suite._ErrorHolder):
            kind, _, owner = test.id().partition(" ")
            if kind == "tearDownClass":
                return  # of the class before; this case has no part in it
            message = f"{kind}: {message}"
            self._fixtures[owner.strip("()").rpartition(".")[2]] = (status, message, trace, line)
        self.found.append((status, message, trace, line))

    def addSuccess(self, test: Any) -> None:
        self.found.append(("passed", "", "", 0))

    def addError(self, test: Any, err: Any) -> None:
        self._add(test, "error", describe(err[1]), err)

    def addFailure(self, test: Any, err: Any) -> None:
        self._add(test, "failure", describe(err[1]), err)

    def addSkip(self, test: Any, reason: str) -> None:
        self._add(test, "skipped", " ".join(str(reason).split())[:MESSAGE])

    def addExpectedFailure(self, test: Any, err: Any) -> None:
        self.found.append(("passed", f"fails, as its author expects: {describe(err[1])}"[:MESSAGE], "", 0))

    def addUnexpectedSuccess(self, test: Any) -> None:
        self.found.append(("failure", "unexpected success: its author expects it to fail", "", 0))

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        if err is not None:
            failed = issubclass(err[0], test.failureException)
            text = f"{subtest._subDescription()}: {describe(err[1])}"[:MESSAGE]
            self._add(test, "failure" if failed else "error", text, err)


def describe(error: BaseException) -> str:
    """One line. Of an error that quotes the traceback of another process the end counts: what was raised there."""
    text = f"{type(error).__name__}: {' '.join(str(error).split())}"
    if "Traceback (most recent call last)" in text and len(text) > MESSAGE:
        return f"{text[: MESSAGE // 4]} ... {text[-MESSAGE * 3 // 4 :]}"
    return text[:MESSAGE]


def walk(suite: Any) -> Iterator[Any]:
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from walk(test)
        else:
            yield test


def load(options: dict[str, Any]) -> dict[tuple[str, str], Any]:
    """Import the file; its cases by class and name."""
    path = options["path"]
    os.chdir(options["folder"] or tempfile.mkdtemp(dir=options["scratch"]))
    for folder in dict.fromkeys((options["folder"], os.path.dirname(path))):
        if folder:
            sys.path.insert(0, folder)
    name = os.path.splitext(os.path.basename(path))[0]
    if options["suite"]:
        name = f"ditorch.device_suite.suites.{name}"
        module = importlib.import_module(name)
    else:
        sys.argv = [path]
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    found: dict[tuple[str, str], Any] = {}
    for test in walk(unittest.defaultTestLoader.loadTestsFromModule(module)):
        found.setdefault((type(test).__qualname__, getattr(test, "_testMethodName", str(test))), test)
    return found


def look_at_device(options: dict[str, Any]) -> dict[str, Any]:
    """Load the device and try it: facts, or {"error"}."""
    import torch

    import ditorch

    if options["load"] not in ("", "ditorch"):
        __import__(options["load"])
    name = options["device"]
    try:
        device = torch.device(name)
        if device.type != "cpu":  # the device stays untouched: cases may fork
            module = getattr(torch, device.type, None)
            if module is None or not module.is_available():
                return {"error": f"device {name!r} cannot be used: torch.{device.type} is not available"}
    except Exception as error:
        return {"error": f"device {name!r} cannot be used: {describe(error)}"}
    return {"torch": torch.__version__, "backend": ditorch.backend, "device": device.type}


def widen(test: Any, row: dict[str, float]) -> None:
    """At least these tolerances in each assertEqual of the case, whatever its decorators say."""
    inner = test.assertEqual

    def assert_equal(*args: Any, **kwargs: Any) -> Any:
        before = test.precision, test.rel_tol
        test.precision, test.rel_tol = max(before[0], row["atol"]), max(before[1], row["rtol"])
        try:
            return inner(*args, **kwargs)
        finally:
            test.precision, test.rel_tol = before

    if hasattr(type(test), "rel_tol"):
        test.assertEqual = assert_equal


def run_task(task: dict[str, Any], cases: dict[tuple[str, str], Any], outcome: Outcome) -> dict[str, Any]:
    """The answer to one task. Nothing is raised but what ends the process."""
    begin = time.perf_counter()
    test = cases.pop((task["class"], task["case"]), None)
    if test is None:
        answer = {"status": "error", "message": "the file has no such case any more", "trace": "", "line": 0}
        return {"index": task["index"], "seconds": 0.0, **answer}
    if task.get("tolerance"):
        widen(test, task["tolerance"])
    outcome.begin()
    unittest.TestSuite([test]).run(outcome)
    answer = {"index": task["index"], "seconds": round(time.perf_counter() - begin, 3), **outcome.get(test)}
    return {**answer, "last": True} if outcome.shouldStop else answer


def main() -> int:
    """Serve tasks until the input ends. The pipes are moved away from 0 and 1, so that no child of a case reads tasks
    or writes answers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.enable()
    tasks = os.fdopen(os.dup(0), "r", encoding="utf-8")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    with open(os.devnull, "rb") as empty:
        os.dup2(empty.fileno(), 0)
    os.dup2(2, 1)
    owner = os.getpid()

    def send(answer: dict[str, Any]) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    options = json.loads(tasks.readline())
    facts = look_at_device(options)
    cases: dict[tuple[str, str], Any] = {}
    if "error" not in facts:
        try:
            cases = load(options)
            facts["cases"] = list(cases)
        except (Exception, SystemExit) as error:
            facts["import_error"] = describe(error)
            facts["trace"] = traceback.format_exc()[-TRACE:]
    send({"ready": facts})
    if "error" in facts:
        return 2
    outcome = Outcome(options["path"])
    for line in tasks:
        answer = run_task(json.loads(line), cases, outcome)
        if os.getpid() != owner:
            os._exit(0)  # a child that a case forked and that came back through the case
        send(answer)
        if answer.get("last"):
            return 0
    return 0
