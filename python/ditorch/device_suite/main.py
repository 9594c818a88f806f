"""The command `ditorch test-device`: catalogue, pairs, workers, verdicts, reports.

Nothing here touches a device or imports torch: the workers do. A crash or a hang of a worker costs one pair.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from ..batch_state import State, StateError
from ..progress import estimate_rest, show_rest
from ..terminal import paint
from ..worker_pool import Executor, PoolError, count_jobs, open_pool
from . import report, worker
from .about import describe, make_key
from .arguments import Pair, UsageError, choose_pairs, parse
from .cases.run import CaseRun
from .expect import ExpectationError, Expectations, find_shipped

PROGRESS_SECONDS = 10.0


def main(words: list[str], config: str | None = None, options: dict[str, str] | None = None) -> int:
    """Entry point; `config` and `options` are ditorch's own, from the words before the verb."""
    try:
        arguments = parse(words)
        environment = make_environment(arguments.load, config, options or {})
        if arguments.pytorch or arguments.suite:
            return CaseRun(arguments, environment).main()
        if arguments.model:
            from .models import ModelRun

            return ModelRun(arguments, environment).main()
        return Run(arguments, environment).main()
    except (UsageError, ExpectationError, PoolError, StateError, OSError) as error:
        print(f"ditorch test-device: {error}{_give_hint(str(error), words)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("ditorch test-device: interrupted", file=sys.stderr)
        return 130


def main_with_head(words: list[str], head: Any) -> int:
    """Of the command line: `head` has the options that stood before the command."""
    return main(words, head.config, head.options)


def _give_hint(text: str, words: list[str]) -> str:
    _, found, name = text.partition("No module named ")
    if not found:
        return ""
    name = name.split("'")[1]
    if any(word.removeprefix("--load=") == name for word in words):
        return "; --load names the module that provides the device"
    return "; PyTorch's operator database needs it: pip install numpy expecttest"


def make_environment(load: str, config: str | None, options: dict[str, str]) -> dict[str, str]:
    """What the workers see besides this process's environment: ditorch's options, one thread, no banner."""
    from ditorch import _C, settings

    try:
        if config or options:
            settings.load(config, options)  # tells what is wrong before anything starts
    except (ValueError, OSError, RuntimeError) as error:
        raise UsageError(str(error)) from None
    names = {row["name"]: row["environment"] for row in _C.options()}
    values = {"OMP_NUM_THREADS": "1", "DITORCH_BANNER": "0"}
    if config:
        values[settings.CONFIG_VARIABLE] = config
    values.update({names[name]: value for name, value in options.items()})
    if load != "ditorch":
        values["DITORCH_BACKEND"] = "none"
    return values


class Progress:
    """Wrong pairs on standard output as they come; the count on standard error, on a terminal in one line."""

    def __init__(self, total: int) -> None:
        self._total, self._done, self._wrong = total, 0, 0
        self._begin = self._told = time.monotonic()
        self._terminal = sys.stderr.isatty()

    def step(self, result: dict[str, Any]) -> None:
        self._done += 1
        if result["verdict"] == "wrong":
            self._wrong += 1
            self.clear()
            print(f"WRONG {result['entry']} [{result['dtype']}]: {result['why']}", flush=True)
        now = time.monotonic()
        if now - self._told < (0.2 if self._terminal else PROGRESS_SECONDS) and self._done < self._total:
            return
        self._told = now
        text = f"test-device: {self._done} of {self._total}, {self._wrong} wrong, {now - self._begin:.0f} s"
        if self._done < self._total:
            text += f", {show_rest(estimate_rest(self._begin, self._done, self._total))}"
        end = "" if self._terminal else "\n"
        line = f"\r\x1b[K{text}  {result['entry'][:40]} {result['dtype']}" if self._terminal else text
        print(line, end=end, file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self._terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


class Run:
    """All pairs of one run of the command."""

    def __init__(self, options: argparse.Namespace, environment: dict[str, str]) -> None:
        self.options, self.environment = options, environment
        if options.expect:
            self.expectations = Expectations(options.expect)  # its mistakes are told before anything starts

    def main(self) -> int:
        begin = time.monotonic()
        command = [sys.executable, "-W", "ignore", "-c", worker.COMMAND]
        options = self.options
        address, jobs = ("", 1) if options.list else (options.ray, count_jobs(options))
        environment = self.environment
        with open_pool(address, self._make_words(), jobs, 0.0, command, environment=environment, notes=True) as pool:
            self._prepare(pool.start())
            if options.list:
                print("\n".join(f"{pair.entry} {pair.dtype}" for pair in self.pairs))
                return 0
            pool.set_timeout(self.timeout)
            results = self._run(pool)
        return self._report(results, time.monotonic() - begin)

    def _make_words(self) -> dict[str, Any]:
        """What the workers are told."""
        options = self.options
        compiled = {"compiled": options.compiled or "", "dynamic": options.dynamic}
        return {"device": options.device, "load": options.load, **compiled}

    def _prepare(self, facts: dict[str, Any]) -> None:
        self.facts = facts
        if not self.options.expect:
            self.expectations = Expectations(find_shipped(facts["backend"], bool(self.options.compiled)))
        for note in self.expectations.check_entries(list(facts["entries"]), facts["torch"]):
            print(f"ditorch test-device: note: {note}", file=sys.stderr)
        self.pairs = choose_pairs(self.options, facts, self.expectations)
        self.timeout = self.options.timeout or float(self.expectations.device["timeout"])

    def _report(self, results: list[dict[str, Any]], seconds: float) -> int:
        summary = report.Summary(results, self.expectations, self._is_complete())
        about = self._describe(seconds)
        if self.options.json:
            report.write_json(self.options.json, about, summary)
        if self.options.junit:
            report.write_junit(self.options.junit, about, summary)
        print(summary.render().replace("\nFAILED ", f"\n{paint('FAILED', 'bad')} "), flush=True)
        return 1 if summary.problems else 0

    def _is_complete(self) -> dict[str, bool]:
        """Per dtype: every entry that supports it runs, with all samples that the expectations mean."""
        complete = {}
        for dtype in dict.fromkeys(pair.dtype for pair in self.pairs):
            whole = self.options.ops is None and (not self.options.quick or dtype == self.pairs[0].dtype)
            complete[dtype] = whole and all(pair.complete for pair in self.pairs if pair.dtype == dtype)
        return complete

    def _describe(self, seconds: float = 0.0) -> dict[str, Any]:
        return describe("ditorch-test-device", self.facts, self.facts["device"], self.expectations.path, seconds)

    # The pairs

    def _run(self, pool: Executor) -> list[dict[str, Any]]:
        state = None
        if self.options.resume:
            key = make_key(self._describe(), self.options, self.timeout, self.environment, ("DITORCH_",))
            state = State(self.options.resume, key, "test-device")
        progress = Progress(len(self.pairs))
        done: dict[int, dict[str, Any]] = {}
        try:
            waiting = []
            for index, pair in enumerate(self.pairs):
                answer = self._answer_without_running(pair) or (state and state.get(_name(pair), ""))
                if answer:
                    done[index] = self._judge(pair, answer, progress)
                else:
                    waiting.append(self._make_task(index, pair))
            for task, answer in pool.run(waiting):
                index = task["index"]
                error = answer.get("error")
                if error:  # crash or timeout
                    answer = {
                        "status": error["stage"],
                        "message": f"{error['text']} ({error.get('place') or 'at the start'})",
                    }
                if state is not None:
                    state.add(_name(self.pairs[index]), "", answer)
                done[index] = self._judge(self.pairs[index], answer, progress)
        finally:
            progress.clear()
            if state is not None:
                state.close()
        return [done[index] for index in range(len(self.pairs))]

    def _answer_without_running(self, pair: Pair) -> dict[str, Any] | None:
        if self.options.run_skipped or self.expectations.find("skip", pair.entry, pair.dtype) is None:
            return None
        return {"status": "skip", "message": ""}

    def _make_task(self, index: int, pair: Pair) -> dict[str, Any]:
        row = self.expectations.find("tolerance", pair.entry, pair.dtype)
        return {
            "index": index,
            "entry": pair.entry,
            "dtype": pair.dtype,
            "samples": pair.samples,
            "tolerance": row.numbers if row else None,
            "table": self.expectations.device,
        }

    def _judge(self, pair: Pair, answer: dict[str, Any], progress: Progress) -> dict[str, Any]:
        result = report.judge(pair.entry, pair.dtype, answer, self.expectations, pair.complete)
        progress.step(result)
        return result


def _name(pair: Pair) -> str:
    return f"{pair.entry}:{pair.dtype}:{pair.samples}"
