"""Worker processes that are used again and again, and survive what their tasks do to them.

A task that kills its worker, or takes longer than allowed, is answered with an error, and a new worker takes the next
one. Only children of this pool are ever ended, by their own handles. `open_pool` gives the same on a cluster
(ray_pool.py), where each machine has pools of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import selectors
import signal
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from .worker_notes import MOST_NOTES, NOTE_BYTES, Notes

START_SECONDS = 300.0
"""That a worker may take to import torch and find its devices."""
MOST_TASKS = 5000
"""After which a worker is replaced: what its libraries gather does not grow without bound."""
EVERY_DEVICE = 1 << 30
"""Workers of a cluster: as many as it has devices."""
_TAIL = 4000


class PoolError(Exception):
    """No worker can be started; the text says why."""


class StartError(PoolError):
    """A worker ended, or took too long, before it was ready."""


class Executor(Protocol):
    """Runs tasks somewhere: processes here (Pool) or on a cluster (ray_pool.RayPool). A task is a dictionary with an
    `index`; its answer is what the worker says of it, or has an `error` (stage, type, text)."""

    facts: dict[str, Any]

    def __enter__(self) -> Executor: ...
    def __exit__(self, kind: Any, error: Any, trace: Any) -> None: ...
    def set_timeout(self, seconds: float) -> None: ...
    def set_jobs(self, jobs: int) -> None: ...
    def start(self) -> dict[str, Any]: ...
    def run(self, tasks: Iterable[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]: ...


class _Worker:
    def __init__(
        self, command: Sequence[str], environment: dict[str, str], options: dict[str, Any], group: bool
    ) -> None:
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115  closed by end()
        self.process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env=environment,
            start_new_session=group,
        )
        self.group = group
        self.task: Any = None
        self.done = 0
        self.ready = False
        self.buffer = b""
        self.deadline = time.monotonic() + START_SECONDS
        os.set_blocking(self.process.stdout.fileno(), False)
        self.send(options)

    def send(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError):  # its death is seen when its answers end
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()

    def read(self) -> tuple[list[dict[str, Any]], bool]:
        """Answers that are complete, and whether there is an end."""
        try:
            data = os.read(self.process.stdout.fileno(), 1 << 16)
        except BlockingIOError:
            return [], False
        lines = (self.buffer + data).split(b"\n")
        self.buffer = lines.pop()
        return [json.loads(line) for line in lines if line.strip()], not data

    def tell_end(self) -> str:
        """How it ended, in words, with the last line that it wrote."""
        code = self.process.wait()
        try:
            name = signal.Signals(-code).name if code < 0 else ""
        except ValueError:
            name = f"signal {-code}"
        text = f"the process was killed by {name}" if name else f"the process ended with exit status {code}"
        last = self.get_last_line()
        return f"{text}: {last}" if last else text

    def get_last_line(self) -> str:
        size = self.errors.seek(0, os.SEEK_END)
        self.errors.seek(max(size - _TAIL, 0))
        lines = self.errors.read().decode(errors="replace").splitlines()
        fatal = [line.strip() for line in lines if line.startswith("Fatal Python error")]
        lines = [line.strip() for line in lines if line.strip() and not line.startswith("ditorch: ")]
        return (fatal or lines or [""])[-1][:300]

    def has_gone(self) -> bool:
        """It has ended and all its answers are read, whoever still holds the other end of its pipe."""
        return self.process.poll() is not None and not select.select([self.process.stdout], [], [], 0)[0]

    def _kill_group(self) -> None:
        if self.group:  # its session has the number of the process, which is not given anew while the group lives
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)

    def end(self, kill: bool = False) -> None:
        if kill:
            self._kill_group()
            self.process.kill()
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._kill_group()
        self.process.stdout.close()
        self.errors.close()


class Pool:
    """`command` starts a worker: lines of JSON on its standard input, first `options`, then tasks; it answers the
    options with {"ready": facts} and each task with one line. `environment`: what it sees besides this process's.
    `group`: each worker leads a session of its own, and what it leaves running ends with it. `notes`: workers write
    what they are at (worker_notes.py) into a file, which the options name; the errors have it as `place`."""

    def __init__(
        self,
        options: dict[str, Any],
        jobs: int,
        timeout: float,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        group: bool = False,
        notes: bool = False,
    ) -> None:
        self._group = group
        self._notes: Notes | None = None
        if notes:
            self._note_file = tempfile.NamedTemporaryFile(prefix="ditorch-notes-")  # noqa: SIM115  closed by __exit__
            self._note_file.truncate(NOTE_BYTES * MOST_NOTES)
            self._notes = Notes(self._note_file.name)
            options = {**options, "notes": self._note_file.name}
        self._command = list(command)
        self._environment = {**make_environment(), **(environment or {})}
        self._options = options
        self._jobs = jobs
        self._timeout = timeout
        self._workers: list[_Worker] = []
        self._selector = selectors.DefaultSelector()
        self.facts: dict[str, Any] = {}

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        for worker in list(self._workers):
            self._remove(worker, kill=worker.task is not None or not worker.ready)
        self._selector.close()
        if self._notes is not None:
            self._notes.close()
            self._note_file.close()

    def set_timeout(self, seconds: float) -> None:
        """For tasks from now on; 0: none."""
        self._timeout = seconds

    def set_jobs(self, jobs: int) -> None:
        """Most workers from now on; those that work already go on."""
        self._jobs = jobs

    def start(self) -> dict[str, Any]:
        """Start the workers and wait for the first: what it has to say about itself and the device."""
        self._hire(self._jobs)
        while not self.facts:
            for key, _ in self._selector.select(self._get_patience()):
                list(self._listen(key.data))
            list(self._end_late())
        return self.facts

    def run(self, tasks: Iterable[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """Tasks and their answers, in the order in which they are done."""
        waiting = deque(tasks)
        while waiting or any(worker.task is not None for worker in self._workers):
            self._hire(len(waiting))
            for worker in self._workers:
                if worker.ready and worker.task is None and waiting:
                    self._assign(worker, waiting.popleft())
            for key, _ in self._selector.select(self._get_patience()):
                yield from self._listen(key.data)
            yield from self._end_late()

    # Workers

    def _hire(self, wanted: int) -> None:
        busy = sum(worker.task is not None for worker in self._workers)
        while len(self._workers) < min(self._jobs, wanted + busy):
            worker = _Worker(self._command, self._environment, self._options, self._group)
            self._workers.append(worker)
            self._selector.register(worker.process.stdout, selectors.EVENT_READ, worker)

    def _remove(self, worker: _Worker, kill: bool = False) -> None:
        self._workers.remove(worker)
        self._selector.unregister(worker.process.stdout)
        worker.end(kill)

    def _assign(self, worker: _Worker, task: dict[str, Any]) -> None:
        worker.task = task
        worker.deadline = time.monotonic() + self._timeout if self._timeout else float("inf")
        worker.send(task)

    def _get_patience(self) -> float:
        now = time.monotonic()
        due = [w.deadline for w in self._workers if w.task is not None or not w.ready]
        return max(min([*due, now + 1.0]) - now, 0.0)

    def _listen(self, worker: _Worker) -> Iterator[tuple[dict, dict]]:
        answers, ended = worker.read()
        for answer in answers:
            if "ready" in answer:
                if "error" in answer["ready"]:
                    raise PoolError(answer["ready"]["error"])
                worker.ready, self.facts = True, answer["ready"]
            else:
                task, worker.task = worker.task, None
                worker.done = MOST_TASKS if answer.pop("last", False) else worker.done + 1
                yield task, answer
        if ended:
            yield from self._bury(worker)
        elif worker.done >= MOST_TASKS and worker.task is None:
            self._remove(worker)

    def _bury(self, worker: _Worker) -> Iterator[tuple[dict, dict]]:
        task, text = worker.task, worker.tell_end()
        self._remove(worker)
        if not worker.ready:
            raise StartError(f"a worker does not start: {text}")
        if task is not None:
            yield task, self._fail(task, "crash", text)

    def _end_late(self) -> Iterator[tuple[dict, dict]]:
        for worker in [w for w in self._workers if w.has_gone()]:
            yield from self._bury(worker)
        now = time.monotonic()
        for worker in [w for w in self._workers if now >= w.deadline and (w.task is not None or not w.ready)]:
            task = worker.task
            self._remove(worker, kill=True)
            if task is None:
                raise StartError(f"a worker was not ready after {START_SECONDS:.0f} s")
            yield task, self._fail(task, "timeout", f"no end after {self._timeout:g} s (--timeout)")

    def _fail(self, task: dict[str, Any], kind: str, text: str) -> dict[str, Any]:
        return fail(task, kind, text, self._notes.read(task["index"]) if self._notes is not None else "")


def fail(task: dict[str, Any], kind: str, text: str, place: str = "") -> dict[str, Any]:
    """The answer to a task that has none."""
    error = {"stage": kind, "type": kind, "text": text}
    return {"index": task["index"], "name": "", "error": {**error, "place": place} if place else error}


def add_ray_option(add: Callable[..., Any]) -> None:
    """`add` of a parser."""
    add(
        "--ray",
        default="",
        metavar="ADDRESS",
        help="work on a Ray cluster, a worker per device: host:port, auto, or local (local:4) to start one here",
    )


def count_jobs(options: Any) -> int:
    """Workers that the command line means."""
    return EVERY_DEVICE if options.ray else options.jobs


def open_pool(
    address: str, options: dict[str, Any], jobs: int, timeout: float, command: Sequence[str], **more: Any
) -> Executor:
    """Pool, or the same on the Ray cluster at `address`. `jobs`: most workers; `more`: of Pool."""
    if not address:
        return Pool(options, jobs, timeout, command, **more)
    from .ray_pool import RayPool

    return RayPool(address, options, jobs, timeout, command, **more)


def make_environment() -> dict[str, str]:
    """The workers find the same packages as this process."""
    home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    paths = [home, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}


def run_here(
    tasks: Iterable[dict[str, Any]], work: Callable[[dict[str, Any]], dict[str, Any]]
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """The same without processes: nothing is isolated, no limit of time."""
    for task in tasks:
        yield task, work(task)
