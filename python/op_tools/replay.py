"""`ditorch replay`: captured operator calls once more, judged for accuracy, speed and memory.

A batch is a list of independent tasks, one per case and device. They run in worker processes (replay_pool.py), their
answers go to the state file when there is one (replay_state.py), then to the report (replay_report.py). With several
workers the times are taken afterwards, by one worker alone. Nothing here touches a device: workers do.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import json
import os
import platform
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from . import replay_pool, replay_report, replay_state
from .replay_worker import PARTS, prepare, run_task

ROLES = {"device": ("plain", "device"), "cpu": ("plain", "cpu"), "all": ("plain", "device", "cpu")}
_WORDS = ("cpu", "fp64", "stored")
_DEVICE = re.compile(r"[a-z_]+(:\d+)?")
PROGRESS_SECONDS = 10.0
EPILOG = """\
exit status: 0 everything right; 1 wrong results; 2 wrong use, or no case found; 3 cases that could not be run (and none
wrong). What --allow-failed names does not count.
"""


class UsageError(Exception):
    """Wrong use; the text is for the user."""


# ---- command line


def _number(least: float, kind: type = int) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        try:
            number = kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is no number") from None
        if not least <= number < float("inf"):
            raise argparse.ArgumentTypeError(f"{text} is out of range; valid: {least} or more")
        return number

    return parse


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ditorch replay",
        description="Run captured operator calls again: are they right, how long do they take, how much memory?",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("path", nargs="?", metavar="PATH", help="capture folder, container (.dpack), one case, or a log (.dlog)")
    add("--dir", metavar="PATH", dest="directory", help="the same as PATH")
    add("--device", action="append", metavar="DEVICE", help="cuda (default), cpu, cuda:1 ...; several: side by side")
    add(
        "--against",
        action="append",
        metavar="WHAT",
        help="what results are compared with: fp64 (default: the CPU in float64), cpu (in the dtypes of the capture), "
        "stored (what was captured), or a device; may be repeated",
    )
    add("--run-times", "--run_times", type=_number(1), default=100, metavar="N", help="timed runs (default 100)")
    add("--warm-up", "--warm_up", type=_number(0), default=10, metavar="N", help="runs before them (default 10)")
    add("--forward-only", "--only_run_forward", action="store_true", help="leave the backward out")
    add("--flush-cache", action="store_true", help="empty the caches of the device before every timed run")
    for part, text in (("accuracy", "judge results"), ("speed", "take times"), ("memory", "measure memory")):
        add(f"--{part}", action="store_true", help=f"{text} (default: all three)")
    add("--op", action="append", metavar="PATTERN", help="only operators that match (shell pattern, or re:expression)")
    add("--id", metavar="IDS", help="only these ids of calls: 4-6,9")
    add("--role", choices=tuple(ROLES), default="device", help="side of saved comparisons (default device)")
    add("--limit", type=_number(1), metavar="N", help="only the first N cases")
    add("--jobs", type=_number(0), default=1, metavar="N", help="worker processes (default 1); 0: in this process")
    add("--timeout", type=_number(0, float), default=300.0, metavar="S", help="seconds per case (default 300; 0: none)")
    add("--resume", metavar="FILE", help="keep answers there, and go on from there")
    add("--json", metavar="FILE", help="write everything as JSON; - is standard output, in place of the table")
    add("--rows", type=_number(0), default=500, metavar="N", help="most rows of the table (default 500; 0: all)")
    add(
        "--allow-failed",
        "--allow-failed-pattern",
        action="append",
        default=[],
        metavar="PATTERN",
        help="operators (or paths of cases) that may be wrong or fail",
    )
    add("--allow-module", action="append", default=[], metavar="NAME", help="package whose functions may be called")
    add("--export", metavar="DIR", help="do not run: write a script with its data that needs torch alone")
    return parser


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The options, checked. UsageError, or SystemExit by argparse."""
    options = make_parser().parse_args(list(words))
    if options.path is not None and options.directory is not None:
        raise UsageError(f"both PATH ({options.path!r}) and --dir ({options.directory!r}) are given; give one")
    options.path = options.path if options.path is not None else options.directory
    if options.path is None:
        raise UsageError("nothing to replay: give a capture folder, a container, one case or a log")
    if not os.path.exists(options.path.partition("#")[0]):
        raise UsageError(f"{options.path!r} does not exist")
    options.device = list(dict.fromkeys(options.device or ["cuda"]))
    options.against = list(dict.fromkeys(options.against or ["fp64"]))
    for name in [*options.device, *(word for word in options.against if word not in _WORDS)]:
        if not _DEVICE.fullmatch(name):
            raise UsageError(
                f"{name!r} is no device; valid: cuda, cpu, cuda:1 ..., and for --against also fp64, stored"
            )
    _check_output(options.json)
    options.parts = [part for part in PARTS if getattr(options, part)] or list(PARTS)
    options.match_op = _make_matcher(options.op, "--op") if options.op else None
    options.match_allowed = _make_matcher(options.allow_failed, "--allow-failed")
    options.ids = _parse_ids(options.id) if options.id is not None else None
    return options


def _check_output(path: str | None) -> None:
    """Said before a long batch, not after it."""
    if path is None or path == "-":
        return
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path) or not os.access(path if os.path.exists(path) else folder, os.W_OK):
        raise UsageError(f"--json {path!r} cannot be written; give a file in a folder that exists")


def _make_matcher(patterns: Sequence[str], option: str) -> Callable[[str], bool]:
    tests: list[Callable[[str], Any]] = []
    for pattern in patterns:
        try:
            text = pattern[3:] if pattern.startswith("re:") else fnmatch.translate(pattern)
            tests.append(re.compile(text).fullmatch)
        except re.error as error:
            raise UsageError(f"{option} {pattern!r} is no regular expression: {error.msg}") from None
    return lambda text: any(test(text) for test in tests)


def _parse_ids(text: str) -> list[tuple[int, int]]:
    from ditorch import export

    try:
        return export.parse_steps(text)
    except export.ExportError as error:
        raise UsageError(str(error).replace("--step", "--id").replace("no step", "no id")) from None


# ---- cases


def choose_cases(options: argparse.Namespace) -> list[Any]:
    """What is there and was asked for. UsageError when that is nothing."""
    from .case import CaseError, find_cases

    try:
        found = list(find_cases(options.path))
    except (CaseError, OSError) as error:
        raise UsageError(str(error)) from None
    if not found:
        raise UsageError(f"there is no captured call in {options.path!r} (looked for input.pth, .dpack and .dlog)")
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


# ---- the batch


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
        if now - self._told >= (0.2 if self._terminal else PROGRESS_SECONDS):
            self._told = now
            self._tell(now, name)

    def _tell(self, now: float, name: str) -> None:
        rate = self._done / max(now - self._begin, 1e-9)
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
            state = replay_state.State(self.options.resume, self._make_key())
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
        parts, jobs = self.options.parts, self.options.jobs
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
        self, tasks: list[dict[str, Any]], jobs: int, state: replay_state.State | None, progress: Progress
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
            yield from replay_pool.run_here(tasks, lambda task: run_task(task, work))
            return
        with replay_pool.Pool(work, jobs, self.options.timeout, self._make_words()) as pool:
            for task, answer in pool.run(tasks):
                self.facts = pool.facts
                yield task, answer

    def _make_work(self, jobs: int) -> dict[str, Any]:
        """What a worker has to know."""
        options = self.options
        others = [name for name in options.against if name not in _WORDS]
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

    def _make_words(self) -> list[str]:
        """Of `python -m ditorch`, for the workers."""
        words = ["--config", self.config] if self.config is not None else []
        for name, value in self.settings.items():
            words += ["--set", f"{name}={value}"]
        return words

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
            key: value for key, value in vars(self.options).items() if not callable(value) and key != "directory"
        }
        return replay_report.clean(
            {
                "format": replay_report.FORMAT,
                "version": replay_report.VERSION,
                "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
                "ditorch": _C.version(),
                "torch": self.facts.get("torch") or _get_torch_version(),
                "python": platform.python_version(),
                "machine": platform.platform(),
                "devices": {name: self.facts.get("devices", {}).get(name, "") for name in self.options.device},
                "options": options,
                "cases": [{**entry, "path": entry["ref"]["path"]} for entry in self.entries],
                "summary": replay_report.summarise(self.entries),
                "exit_status": replay_report.get_exit_status(self.entries),
            }
        )


def _name_task(task: dict[str, Any]) -> tuple[str, str]:
    path = task["ref"]["path"]
    return f"{path} on {task['device']}: {'+'.join(task['parts'])}", replay_state.make_stamp(path)


def _get_torch_version() -> str:
    from importlib import metadata

    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return "unknown"


# ---- the command


def _say(text: str) -> None:
    print(f"ditorch: {text}", file=sys.stderr)


def _report(batch: Batch) -> None:
    options = batch.options
    if options.json is not None:
        text = json.dumps(batch.describe(), indent=1, allow_nan=False) + "\n"
        if options.json == "-":
            sys.stdout.write(text)
            return
        replay_report.write_atomic(options.json, text)
    rows, left_out = replay_report.choose_rows(batch.entries, options.rows)
    print(replay_report.make_table(rows, options.device, options.parts))
    if left_out:
        print(f"{left_out:,} more rows; --rows 0 shows all")
    print()
    for line in replay_report.tell_findings(batch.entries):
        print(line)
    devices = dict.fromkeys(options.device, "")
    print(replay_report.tell_summary(replay_report.summarise(batch.entries), devices))


def _export(options: argparse.Namespace, refs: Sequence[Any]) -> int:
    """One case: into DIR itself; several: a folder for each."""
    from .case import CaseError, load_case
    from .repro import write_repro

    failed = 0
    for ref, label in zip(refs, make_labels(refs), strict=True):
        name = re.sub(r"[^\w.-]+", "_", f"{ref.operator or 'case'}-{label}")
        folder = options.export if len(refs) == 1 else os.path.join(options.export, name)
        try:
            found = write_repro(load_case(ref), folder, device=options.device[0], modules=options.allow_module)
        except (CaseError, OSError) as error:
            failed += 1
            _say(f"{ref.path}: {error}")
            continue
        verdict = f"; the captured results: {found['verdict']}" if found["verdict"] else ""
        print(f"{ref.path}: python {os.path.join(folder, 'repro.py')}{verdict}")
    return 3 if failed else 0


def main(words: Sequence[str], config: str | None = None, settings: dict[str, str] | None = None) -> int:
    """`ditorch replay ...`; `config` and `settings` are the options of ditorch that stood before the verb. The exit
    status: see EPILOG."""
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
        return replay_report.get_exit_status(batch.entries)
    except (UsageError, replay_pool.PoolError, replay_state.StateError) as error:
        _say(str(error))
        return 2
    except BrokenPipeError:
        return 0  # the reader of the pipe has seen enough
    except OSError as error:
        _say(f"replay failed: {error}")
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
