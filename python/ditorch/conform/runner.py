"""Runs packs of conformance cases: starts the program dit_conform, in several processes, and outlives what a library
does to them.

    rows = runner.run("cases.pack", "host", vendor="host", jobs=2)

A row is what the program says about a case: case (its number), id, function, verdict, kind, reason, code, text and
seconds. A case that ends its process has the verdict "crash", one that takes too long "timeout"; the run goes on.
With `out` rows are kept in a file of JSON lines, and `resume` goes on where that file ends. No torch is needed here.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import queue
import selectors
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from ..library import DIRECTORY
from . import pack as packs

PROGRAM = os.path.join(DIRECTORY, "dit_conform")
VERDICTS = ("pass", "fail", "crash", "timeout", "missing", "unsupported", "skipped")
BAD = ("fail", "crash", "timeout")
_LARGEST_CHUNK = 500
_LEAST_CHUNK = 12
"""Cases that follow each other show what calls leave behind."""

Row = dict[str, Any]
Progress = Callable[[int, int, Row], None]


class ConformError(RuntimeError):
    """The run cannot go on: no library, a damaged pack, wrong options."""


class Settings(NamedTuple):
    """What a run does with each case."""

    library: str
    vendor: str | None = None
    against: str | None = None
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    rules: str | None = None
    repeat: int = 0
    side_stream: bool = False
    tolerance: float = 1.0
    timeout: float = 60.0
    environment: dict[str, str] | None = None
    kinds: tuple[str, ...] = ()
    """Of faults, for the command mutate."""

    def to_options(self) -> list[str]:
        """Options of the program."""
        found = ["--library", self.library, "--announce", "--tolerance", repr(float(self.tolerance))]
        for name in ("vendor", "against", "rules"):
            value = getattr(self, name)
            found += [f"--{name}", os.fspath(value)] if value else []
        for name in ("only", "skip"):
            for pattern in getattr(self, name):
                found += [f"--{name}", pattern]
        found += ["--kinds", ",".join(self.kinds)] if self.kinds else []
        found += ["--repeat", str(self.repeat)] if self.repeat else []
        return found + (["--side-stream"] if self.side_stream else [])


class _Answer(NamedTuple):
    """What is left of a process: its status, its messages, and the case it was in."""

    status: int
    messages: str
    current: Row | None
    late: bool


class _Lines:
    """Lines of a process, with a limit on the wait for each."""

    def __init__(self, stream: Any) -> None:
        self._file = stream.fileno()
        self._selector = selectors.DefaultSelector()
        self._selector.register(stream, selectors.EVENT_READ)
        self._rest = b""

    def read(self, seconds: float) -> list[bytes] | None:
        """Complete lines; [] at the end, None when nothing came in time."""
        end = time.monotonic() + seconds
        while True:
            if not self._selector.select(max(0.0, end - time.monotonic())):
                return None
            data = os.read(self._file, 1 << 16)
            if not data:
                return []
            *lines, self._rest = (self._rest + data).split(b"\n")
            if lines:
                return lines

    def close(self) -> None:
        self._selector.close()


class _Run:
    """One command over the cases of a pack, by several processes."""

    def __init__(self, command: str, path: str, settings: Settings, keep: Callable[[Row], None]) -> None:
        self.command, self.path, self.settings, self._keep = command, path, settings, keep
        self.chunks: queue.SimpleQueue[tuple[int, int]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._processes: set[subprocess.Popen] = set()
        self._error: BaseException | None = None

    # -- one process

    def _start(self, begin: int, end: int, messages: Any) -> subprocess.Popen:
        words = [PROGRAM, self.command, *self.settings.to_options()]
        if self.path:
            words += ["--pack", self.path]
            words += ["--from", str(begin), "--to", str(end)] if self.command != "mutate" else []
        environment = {**os.environ, **(self.settings.environment or {})}
        with self._lock:
            if self._error is not None:
                raise self._error
            try:
                process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=messages, env=environment)
            except OSError as error:
                raise ConformError(f"{PROGRAM} cannot be started: {error}; build it (target dit_conform)") from error
            self._processes.add(process)
        return process

    def _take(self, line: bytes, current: Row | None) -> Row | None:
        """Keep a result; returns the case that the process is in now."""
        row = json.loads(line.decode("utf-8", "replace"))
        if row.pop("start", False):
            return row
        self._keep(row)
        return None

    def _follow(self, process: subprocess.Popen, messages: Any) -> _Answer:
        assert process.stdout is not None
        lines, current, late = _Lines(process.stdout), None, False
        try:
            while True:
                found = lines.read(self.settings.timeout)
                if found is None:
                    late = True
                    process.kill()
                    break
                if not found:
                    break
                for line in found:
                    current = self._take(line, current)
            status = process.wait(self.settings.timeout)
        except subprocess.TimeoutExpired:
            late = True
            process.kill()
            status = process.wait()
        finally:
            lines.close()
            process.stdout.close()
            with self._lock:
                self._processes.discard(process)
        status = process.wait() if late else status
        messages.seek(0)
        return _Answer(status, _cut(messages.read().decode("utf-8", "replace").strip()), current, late)

    def _run_chunk(self, begin: int, end: int) -> tuple[int, int] | None:
        """Run cases begin to end - 1; what is left of them when the process ended early."""
        with tempfile.TemporaryFile() as messages:
            process = self._start(begin, end, messages)
            try:
                answer = self._follow(process, messages)
            except BaseException:
                process.kill()
                process.wait()
                raise
        if answer.current is not None:
            self._keep(self._make_row(answer))
            return answer.current["case"] + 1, end
        if answer.status in (0, 1) and not answer.late:
            return None
        if answer.status == 2:
            raise ConformError(answer.messages.removeprefix("dit_conform: ") or "dit_conform failed without a message")
        how = _describe_status(answer)
        raise ConformError(
            f"dit_conform {how} outside a case (while loading or closing the library): {answer.messages}"
        )

    def _make_row(self, answer: _Answer) -> Row:
        assert answer.current is not None
        verdict = "timeout" if answer.late else "crash"
        reason = _describe_status(answer)
        if answer.late:
            reason = f"did not end within {self.settings.timeout:g} s"
        return {
            **answer.current,
            "verdict": verdict,
            "kind": verdict,
            "reason": reason,
            "code": -1,
            "text": answer.messages,
            "seconds": self.settings.timeout if answer.late else 0.0,
        }

    # -- all of them

    def _work(self) -> None:
        try:
            while self._error is None:
                chunk: tuple[int, int] | None = self.chunks.get_nowait()
                while chunk and (chunk[0] < chunk[1] or not self.path) and self._error is None:
                    chunk = self._run_chunk(*chunk)
        except queue.Empty:
            pass
        except BaseException as error:
            self.stop(error)

    def stop(self, error: BaseException) -> None:
        """End the processes; the first reason is the one that is told."""
        with self._lock:
            self._error = self._error or error
            for process in self._processes:
                with contextlib.suppress(OSError):
                    process.kill()

    def run(self, jobs: int) -> None:
        threads = [threading.Thread(target=self._work, daemon=True) for _ in range(jobs)]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                while thread.is_alive():
                    thread.join(0.2)
        except BaseException as error:
            self.stop(error)
            for thread in threads:
                thread.join()
            raise
        if self._error is not None:
            raise self._error


def _cut(messages: str) -> str:
    """What a process said, cut to its end; of a sanitizer's report also the line that sums it up."""
    lines = [line for line in messages.splitlines() if line.startswith("SUMMARY: ")]
    return "\n".join([*lines, messages[-1000:]]) if len(messages) > 1000 else messages


def _describe_status(answer: _Answer) -> str:
    if answer.status >= 0:
        return f"ended the process with exit status {answer.status}"
    try:
        name = signal.Signals(-answer.status).name
    except ValueError:
        name = "unknown"
    return f"ended the process by signal {-answer.status} ({name})"


class _Results:
    """Rows by number, written to a file as they come."""

    def __init__(self, head: Row, total: int, out: str | None, resume: bool, progress: Progress | None) -> None:
        self.rows: dict[int, Row] = {}
        self._progress, self._total, self._file = progress, total, None
        self._lock = threading.Lock()
        if out is None:
            return
        if resume and os.path.exists(out):
            self._load(head, out)
        self._file = open(out, "a" if self.rows or resume else "w", encoding="utf-8")  # noqa: SIM115
        if self._file.tell() == 0:
            self._write(head)

    def _load(self, head: Row, out: str) -> None:
        """Rows of an earlier run; its last line may be half written and is then dropped."""
        with open(out, "r+b") as file:
            data = file.read()
            complete = data[: data.rfind(b"\n") + 1]
            file.truncate(len(complete))
        lines = complete.decode("utf-8").splitlines()
        if not lines:
            return
        try:
            before, *rows = [json.loads(line) for line in lines]
        except ValueError as error:
            raise ConformError(f"{out} is no file of results: {error}") from error
        if before != head:
            raise ConformError(f"{out} has the results of another run ({before}), not of this one ({head})")
        for row in rows:
            self.rows[row["case"]] = row

    def _write(self, row: Row) -> None:
        if self._file is not None:
            self._file.write(json.dumps(row) + "\n")
            self._file.flush()

    def keep(self, row: Row) -> None:
        with self._lock:
            self.rows[row["case"]] = row
            self._write(row)
            if self._progress is not None:
                self._progress(len(self.rows), self._total, row)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _find_gaps(count: int, done: Iterable[int]) -> list[tuple[int, int]]:
    """Ranges of numbers below `count` that are not done."""
    gaps, begin = [], 0
    for number in [*sorted(n for n in done if 0 <= n < count), count]:
        if number > begin:
            gaps.append((begin, number))
        begin = number + 1
    return gaps


def _split(gaps: Sequence[tuple[int, int]], jobs: int) -> list[tuple[int, int]]:
    """Pieces for `jobs` processes: several each, so that none is left alone with the slow cases."""
    total = sum(end - begin for begin, end in gaps)
    step = max(_LEAST_CHUNK, min(_LARGEST_CHUNK, math.ceil(total / (4 * jobs))))
    return [(at, min(at + step, end)) for begin, end in gaps for at in range(begin, end, step)]


def _execute(
    command: str,
    path: str | os.PathLike[str],
    settings: Settings,
    jobs: int,
    out: str | os.PathLike[str] | None,
    resume: bool,
    progress: Progress | None,
) -> list[Row]:
    path = os.fspath(path)
    index = packs.read_index(path)
    count = len(index.places)
    head = {
        "pack": f"{index.identity:08x}",
        "cases": count,
        "command": command,
        "library": settings.library,
        "vendor": settings.vendor,
    }
    results = _Results(head, count, None if out is None else os.fspath(out), resume, progress)
    run = _Run(command, path, settings, results.keep)
    try:
        for chunk in _split(_find_gaps(count, results.rows), jobs):
            run.chunks.put(chunk)
        run.run(jobs)
    finally:
        results.close()
    return [row for _, row in sorted(results.rows.items())]


def run(
    path: str | os.PathLike[str],
    library: str,
    *,
    jobs: int = 1,
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
    progress: Progress | None = None,
    **settings: Any,
) -> list[Row]:
    """Run the cases of a pack on a library (name or path); `settings` are those of Settings. Rows in the pack's order;
    cases that `only` leaves out have none."""
    return _execute("run", path, _make_settings(library, settings), jobs, out, resume, progress)


def run_perf(
    path: str | os.PathLike[str],
    library: str,
    against: str | None = None,
    *,
    progress: Progress | None = None,
    **settings: Any,
) -> list[Row]:
    """Time the calls: rows have `seconds`, and `against` for the second library. In one process."""
    settings = {"timeout": 600.0, **settings, "against": against}
    return _execute("perf", path, _make_settings(library, settings), 1, None, False, progress)


def run_mutations(path: str | os.PathLike[str], library: str, kinds: Sequence[str], **settings: Any) -> list[Row]:
    """Faults of a library that can break itself, on the cases of one function. A row per kind: verdict fail (`by` is
    the case that noticed), pass (none did), crash or timeout; acted, changed: how often. A fault that ends the process
    costs a new one, which goes on with the faults that are left."""
    rows: dict[str, Row] = {}
    left = sorted(kinds, key=lambda kind: kind != "crash")  # nothing is lost yet when that one ends the process
    while left:
        chosen = _make_settings(library, {**settings, "kinds": tuple(left)})
        run = _Run("mutate", os.fspath(path), chosen, lambda row: rows.__setitem__(row["id"], row))
        run.chunks.put((0, 1))
        run.run(1)
        left = [kind for kind in left if kind not in rows]
    return [rows[kind] for kind in kinds]


def run_device(library: str, **settings: Any) -> list[Row]:
    """The tests that are no operators: device, streams, names, error texts."""
    rows: dict[int, Row] = {}
    run = _Run("device", "", _make_settings(library, settings), lambda row: rows.__setitem__(row["case"], row))
    run.chunks.put((0, 1))
    run.run(1)
    return [row for _, row in sorted(rows.items())]


def _make_settings(library: str, settings: dict[str, Any]) -> Settings:
    for name in ("only", "skip"):
        value = settings.get(name, ())
        settings[name] = (value,) if isinstance(value, str) else tuple(value)
    return Settings(os.fspath(library), **settings)


class Speed(NamedTuple):
    """Times of a function over its cases: `ratio` is the geometric mean of seconds / against, `worst` the largest."""

    function: str
    cases: int
    seconds: float
    against: float
    ratio: float
    worst: float
    worst_id: str


def compare_speed(rows: Iterable[Row]) -> list[Speed]:
    """Two libraries, function by function, slowest ratio first."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        if row["verdict"] == "pass" and row.get("against"):
            groups.setdefault(row["function"], []).append(row)
    found = []
    for function, members in groups.items():
        ratios = [(row["seconds"] / row["against"], row["id"]) for row in members]
        mean = math.exp(sum(math.log(max(ratio, 1e-9)) for ratio, _ in ratios) / len(ratios))
        seconds, against = (sum(row[name] for row in members) for name in ("seconds", "against"))
        found.append(Speed(function, len(members), seconds, against, mean, *max(ratios)))
    return sorted(found, key=lambda speed: -speed.ratio)


def judge_functions(rows: Iterable[Row]) -> dict[str, str]:
    """One verdict per function: the worst of its cases in the order fail, crash, timeout; else pass when one passed;
    else missing or unsupported."""
    order = ("fail", "crash", "timeout", "pass", "missing", "unsupported", "skipped")
    found: dict[str, str] = {}
    for row in rows:
        before = found.get(row["function"], row["verdict"])
        found[row["function"]] = min(before, row["verdict"], key=order.index)
    return found
