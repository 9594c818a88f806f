"""`ditorch replay`: captured operator calls once more, judged for accuracy, speed and memory.

A batch is a list of independent tasks, one per case and device. They run in worker processes (ditorch.worker_pool),
their answers go to the state file when there is one (ditorch.batch_state), then to the report (report.py). With several
workers the times are taken afterwards, by one worker alone. Nothing here touches a device: workers do.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import re
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from ditorch import batch_state, worker_pool
from ditorch.output import write_whole

from . import report
from .options import ROLES, WORDS, UsageError, parse
from .worker import PARTS, prepare, run_task

PROGRESS_SECONDS = 10.0


# Cases


def choose_cases(options: argparse.Namespace) -> list[Any]:
    """What is there and was asked for. UsageError when that is nothing."""
    from ..reader import CaseError, find_cases

    try:
        found = list(find_cases(options.path))
    except (CaseError, OSError) as error:
        raise UsageError(str(error)) from None
    if not found:
        raise UsageError(f"there is no captured call in {options.path!r} (looked for input.pth, .dpack and .dlog)")
    if os.path.isfile(options.path) and not options.path.endswith((".pth", ".dpack", ".dlog")) and found[0].error:
        raise UsageError(f"{options.path!r} is no captured call (input.pth), no container (.dpack), no log (.dlog)")
    if len(found) == 1:
        options.role = "all"  # it was named
    chosen = [ref for ref in found if _is_chosen(ref, options)]
    if not chosen:
        raise UsageError(
            f"none of the {len(found):,} captured calls in {options.path!r} was chosen (--op, --id, --role)"
        )
    return chosen[: options.limit]


def _is_chosen(ref: Any, options: argparse.Namespace) -> bool:
    if ref.role not in ROLES[options.role]:
        return False
    if options.match_op is not None and not options.match_op(ref.operator):
        return False
    return options.ids is None or any(first <= (ref.id or 0) <= last for first, last in options.ids)


def make_labels(refs: Sequence[Any]) -> list[str]:
    """Short names: the id of the call, with the process and the side where that is not enough."""
    for make in (
        lambda ref: str(ref.id),
        lambda ref: f"{ref.id}/{ref.role}" if ref.role != "plain" else str(ref.id),
        lambda ref: f"{ref.pid}/{ref.id}" + (f"/{ref.role}" if ref.role != "plain" else ""),
    ):
        labels = [make(ref) if ref.id is not None else "" for ref in refs]
        if all(labels) and len(set(zip(labels, (ref.operator for ref in refs), strict=True))) == len(refs):
            return labels
    return [str(number) for number in range(1, len(refs) + 1)]


# The batch


class Progress:
    """Count, rate and time to go, on standard error: on a terminal all the time, else every ten seconds."""

    def __init__(self, total: int, stream: Any = None) -> None:
        self._total, self._done = total, 0
        self._begin = self._told = time.monotonic()
        self._stream = stream or sys.stderr
        self._terminal = self._stream.isatty()

    def step(self, name: str) -> None:
        self._done += 1
        now = time.monotonic()
        if self._done == 1:
            self._begin = now  # the workers' start does not count
        if self._done > 1 and now - self._told >= (0.2 if self._terminal else PROGRESS_SECONDS):
            self._told = now
            self._tell(now, name)

    def _tell(self, now: float, name: str) -> None:
        rate = (self._done - 1) / max(now - self._begin, 1e-3)
        left = (self._total - self._done) / rate
        text = f"replay: {self._done:,} of {self._total:,}, {rate:.1f}/s, {left:.0f} s to go"
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(f"\r\x1b[K{text}  {name[:40]}" if self._terminal else f"{text}\n")
            self._stream.flush()

    def close(self) -> None:
        if self._terminal:
            with contextlib.suppress(OSError, ValueError):
                self._stream.write("\r\x1b[K")
                self._stream.flush()


class Batch:
    """All tasks of one run of the command."""

    def __init__(
        self, options: argparse.Namespace, refs: Sequence[Any], config: str | None, settings: dict[str, str]
    ) -> None:
        self.options = options
        self.config, self.settings = config, settings
        labels = make_labels(refs)
        self.entries = [
            {
                "ref": asdict(ref),
                "label": label,
                "name": ref.operator,
                "allowed": options.match_allowed(ref.operator) or options.match_allowed(ref.path),
                "results": {},
            }
            for ref, label in zip(refs, labels, strict=True)
        ]
        self.facts: dict[str, Any] = {}

    def run(self) -> None:
        state = None
        if self.options.resume is not None:
            state = batch_state.State(self.options.resume, self._make_key())
        try:
            phases = self._plan()
            progress = Progress(sum(len(tasks) for tasks, _ in phases))
            try:
                for tasks, jobs in phases:
                    self._run_phase(tasks, jobs, state, progress)
            finally:
                progress.close()
        finally:
            if state is not None:
                state.close()

    def _plan(self) -> list[tuple[list[dict[str, Any]], int]]:
        """Phases: tasks, and how many workers. Times are taken by one worker alone."""
        parts, jobs = self.options.parts, worker_pool.count_jobs(self.options)
        if jobs <= 1 or "speed" not in parts:
            return [(self._make_tasks(parts), jobs)]
        phases = [(self._make_tasks([part for part in parts if part != "speed"]), jobs)] if parts != ["speed"] else []
        return [*phases, (self._make_tasks(["speed"]), 1)]

    def _make_tasks(self, parts: list[str]) -> list[dict[str, Any]]:
        return [
            {"index": index, "ref": entry["ref"], "device": device, "parts": parts}
            for index, entry in enumerate(self.entries)
            for device in self.options.device
        ]

    def _run_phase(
        self, tasks: list[dict[str, Any]], jobs: int, state: batch_state.State | None, progress: Progress
    ) -> None:
        waiting = []
        for task in tasks:
            known = state.get(*_name_task(task)) if state is not None else None
            if known is not None:
                self._take(task, known, progress)
            elif not self._has_failed(task):  # an earlier phase said that it cannot be run
                waiting.append(task)
        for task, answer in self._do(waiting, jobs):
            if state is not None:
                state.add(*_name_task(task), answer)
            self._take(task, answer, progress)

    def _has_failed(self, task: dict[str, Any]) -> bool:
        return bool(self.entries[task["index"]]["results"].get(task["device"], {}).get("error"))

    def _do(self, tasks: list[dict[str, Any]], jobs: int) -> Iterator[tuple[dict, dict]]:
        if not tasks:
            return
        work = self._make_work(jobs)
        if jobs == 0:
            import ditorch

            ditorch.install(self.config, **self.settings)
            facts = prepare(work)
            if "error" in facts:
                raise UsageError(facts["error"])
            self.facts = facts
            yield from worker_pool.run_here(tasks, lambda task: run_task(task, work))
            return
        address, timeout = self.options.ray, self.options.timeout
        with worker_pool.open_pool(address, work, jobs, timeout, self._make_command()) as pool:
            for task, answer in pool.run(tasks):
                self.facts = pool.facts
                yield task, answer

    def _make_work(self, jobs: int) -> dict[str, Any]:
        """What a worker has to know."""
        options = self.options
        others = [name for name in options.against if name not in WORDS]
        return {
            "devices": list(dict.fromkeys([*options.device, *others])),
            "against": options.against,
            "run_times": options.run_times,
            "warm_up": options.warm_up,
            "forward_only": options.forward_only,
            "flush_cache": options.flush_cache,
            "modules": options.allow_module,
            "threads": max((os.cpu_count() or 1) // jobs, 1) if jobs > 1 else 0,
        }

    def _make_command(self) -> list[str]:
        """A worker (worker.py), with the same options of ditorch."""
        words = ["--config", self.config] if self.config is not None else []
        for name, value in {**self.settings, "banner": "0"}.items():
            words += ["--set", f"{name}={value}"]
        return [sys.executable, "-m", "ditorch", *words, "-m", "op_tools.replay.worker"]

    def _take(self, task: dict[str, Any], answer: dict[str, Any], progress: Progress) -> None:
        entry = self.entries[task["index"]]
        entry["name"] = answer["name"] or entry["name"]
        entry["allowed"] = entry["allowed"] or self.options.match_allowed(entry["name"])
        results = entry["results"].setdefault(task["device"], {"error": None})
        for key, value in answer.items():
            if key in PARTS or (key == "error" and value):
                results[key] = value
        progress.step(entry["name"])

    def _make_key(self) -> dict[str, Any]:
        """What the answers depend on."""
        from ditorch import _C

        names = ("device", "against", "run_times", "warm_up", "forward_only", "flush_cache", "parts", "role")
        values = {name: getattr(self.options, name) for name in names}
        environment = {name: value for name, value in sorted(os.environ.items()) if name.startswith("DITORCH_")}
        return {
            "path": os.path.realpath(self.options.path),
            **values,
            "settings": dict(sorted(self.settings.items())),
            "environment": environment,
            "ditorch": _C.version(),
            "torch": _get_torch_version(),
        }

    def describe(self) -> dict[str, Any]:
        """The whole result, for --json."""
        from ditorch import _C

        options = {
            key: value
            for key, value in vars(self.options).items()
            if not callable(value) and key not in ("directory", "ray")
        }
        return report.clean(
            {
                "format": report.FORMAT,
                "version": report.VERSION,
                "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
                "ditorch": _C.version(),
                "torch": self.facts.get("torch") or _get_torch_version(),
                "python": platform.python_version(),
                "machine": platform.platform(),
                "devices": {name: self.facts.get("devices", {}).get(name, "") for name in self.options.device},
                "options": options,
                "cases": [{**entry, "path": entry["ref"]["path"]} for entry in self.entries],
                "summary": report.summarise(self.entries),
                "exit_status": report.get_exit_status(self.entries),
            }
        )


def _name_task(task: dict[str, Any]) -> tuple[str, str]:
    path = task["ref"]["path"]
    return f"{path} on {task['device']}: {'+'.join(task['parts'])}", batch_state.make_stamp(path)


def _get_torch_version() -> str:
    from importlib import metadata

    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return "unknown"


# The command


def _say(text: str) -> None:
    print(f"ditorch: {text}", file=sys.stderr)


def _report(batch: Batch) -> None:
    options = batch.options
    if options.json is not None:
        text = json.dumps(batch.describe(), indent=1, allow_nan=False) + "\n"
        if options.json == "-":
            sys.stdout.write(text)
            return
        write_whole(options.json, text)
    rows, left_out = report.choose_rows(batch.entries, options.rows)
    print(report.make_table(rows, options.device, options.parts, sys.stdout))
    if left_out:
        print(f"{left_out:,} more rows; --rows 0 shows all")
    print()
    for line in report.tell_findings(batch.entries):
        print(line)
    devices = dict.fromkeys(options.device, "")
    print(report.tell_summary(report.summarise(batch.entries), devices))


def _export(options: argparse.Namespace, refs: Sequence[Any]) -> int:
    """One case: into DIR itself; several: a folder for each."""
    from ..reader import CaseError, load_case
    from ..repro import write_repro

    failed = 0
    for ref, label in zip(refs, make_labels(refs), strict=True):
        name = re.sub(r"[^\w.-]+", "_", f"{ref.operator or 'case'}-{label}")
        folder = options.export if len(refs) == 1 else os.path.join(options.export, name)
        try:
            case = load_case(ref)
            found = write_repro(case, folder, device=options.device[0], modules=options.allow_module)
        except (CaseError, OSError) as error:
            failed += 1
            _say(f"{ref.path}: {error}")
            continue
        verdict = f"; the captured results: {found['verdict']}" if found["verdict"] else ""
        print(f"{ref.path}: python {os.path.join(folder, 'repro.py')}{verdict}")
    return 3 if failed else 0


def main(words: Sequence[str], config: str | None = None, settings: dict[str, str] | None = None) -> int:
    """`ditorch replay ...`; `config` and `settings` are the options of ditorch that stood before the verb. The exit
    status: see options.EXITS."""
    try:
        options = parse(words)
    except SystemExit as end:
        return int(end.code or 0)
    except UsageError as error:
        _say(str(error))
        return 2
    try:
        refs = choose_cases(options)
        if options.export is not None:
            return _export(options, refs)
        batch = Batch(options, refs, config, settings or {})
        try:
            batch.run()
        except KeyboardInterrupt:
            _say("interrupted" + ("; --resume goes on from here" if options.resume else ""))
            return 130
        _report(batch)
        return report.get_exit_status(batch.entries)
    except (UsageError, worker_pool.PoolError, batch_state.StateError) as error:
        _say(str(error))
        return 2
    except BrokenPipeError:
        raise  # the command line is silent about it
    except OSError as error:
        _say(f"replay failed: {error}")
        return 2


def main_with_head(words: Sequence[str], head: Any) -> int:
    """Of the command line: `head` has the options that stood before the command."""
    return main(words, head.config, head.options)
