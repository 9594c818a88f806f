"""Runs chosen cases: workers make packs, piece by piece, and run them on the library at once.

Making a case takes longer than running it, so both happen in the worker; packs are deleted as soon as they ran. Rows
are those of runner.py. Depends on pack and runner, and for making cases on expand (torch).
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import math
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from . import pack, runner

if TYPE_CHECKING:
    from .expand import CaseId

PIECE = 400

Row = dict[str, Any]


class Work(NamedTuple):
    """What the workers need to know."""

    library: str
    seed: int = 0
    vendor: str | None = None
    against: str | None = None
    rules: str = ""
    """Lines for the runner."""
    perf: bool = False
    timeout: float = 60.0


_cases: dict[str, CaseId] = {}


def _start_worker() -> None:
    """Cases of this process by id; one thread each."""
    import torch

    from .expand import list_cases
    from .schema import read_all

    torch.set_num_threads(1)
    _cases.update({str(case): case for case in list_cases(read_all())})


def write_pack(path: str, ids: Iterable[str], seed: int) -> None:
    """Make cases by their ids and write them."""
    from .expand import build

    if not _cases:
        _start_worker()
    pack.write(path, (build(_cases[case_id], seed) for case_id in ids))


def _run_piece(ids: list[str], work: Work) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="ditorch-conform-") as folder:
        path = os.path.join(folder, "cases.pack")
        write_pack(path, ids, work.seed)
        return run_pack(path, work, 1, folder)


def run_pack(
    path: str, work: Work, jobs: int, folder: str | None = None, progress: runner.Progress | None = None
) -> list[Row]:
    """Rows of a pack. `folder` takes the file of rules."""
    options: dict[str, Any] = {"vendor": work.vendor, "timeout": work.timeout}
    with tempfile.TemporaryDirectory(prefix="ditorch-conform-") as own:
        if work.rules.strip():
            options["rules"] = os.path.join(folder or own, "rules")
            with open(options["rules"], "w", encoding="utf-8") as stream:
                stream.write(work.rules)
        if work.perf:
            return runner.run_perf(path, work.library, work.against, progress=progress, **options)
        return runner.run(path, work.library, jobs=jobs, progress=progress, **options)


def _split(cases: list[CaseId]) -> list[list[str]]:
    """Pieces of whole functions where they fit, so that a crash stays near its function."""
    pieces: list[list[str]] = [[]]
    for case in cases:
        if len(pieces[-1]) >= PIECE:
            pieces.append([])
        pieces[-1].append(str(case))
    return [piece for piece in pieces if piece]


def _run_here(pieces: list[list[str]], work: Work) -> Iterator[list[Row]]:
    for piece in pieces:
        yield _run_piece(piece, work)


@contextlib.contextmanager
def _without_device() -> Iterator[None]:
    """Workers compute references on the CPU: importing ditorch must not install a device there. They find this very
    package, however this process found it."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    wanted = {"DITORCH_BACKEND": "none", "PYTHONPATH": path}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def run_workers(
    function: Callable[..., Any], calls: list[tuple[Any, ...]], jobs: int, until: float = math.inf
) -> Iterator[Any]:
    """Answers of function(*call), as they come, from processes that make cases. No call begins after `until` (of
    time.monotonic); those at work then are waited for."""
    context = multiprocessing.get_context("spawn")
    with _without_device(), concurrent.futures.ProcessPoolExecutor(jobs, context, _start_worker) as pool:
        futures = [pool.submit(function, *call) for call in calls]
        try:
            for future in concurrent.futures.as_completed(futures):
                if time.monotonic() >= until:
                    for other in futures:
                        other.cancel()
                if not future.cancelled():
                    yield future.result()
        except concurrent.futures.BrokenExecutor as error:
            raise runner.ConformError("a worker that makes cases ended early; try --jobs 1") from error
        finally:
            for future in futures:
                future.cancel()


class Journal:
    """Rows in a file of JSON lines, so that a run that was cut off can go on. The first line says which run."""

    def __init__(self, path: str | None, head: Row, resume: bool, key: str = "id") -> None:
        self.rows: dict[str, Row] = {}
        self.key = key
        self._file = None
        if path is None:
            return
        if resume and os.path.exists(path):
            self._load(path, head)
        self._file = open(path, "w", encoding="utf-8")  # noqa: SIM115
        self._write(head)
        for row in self.rows.values():
            self._write(row)

    def _load(self, path: str, head: Row) -> None:
        with open(path, encoding="utf-8") as stream:
            text = stream.read()
        lines = text[: text.rfind("\n") + 1].splitlines()
        try:
            parsed = [json.loads(line) for line in lines]
            if parsed and parsed[0] != head:
                raise runner.ConformError(f"{path} has the results of another run ({parsed[0]}), not of this ({head})")
            self.rows = {row[self.key]: row for row in parsed[1:]}
        except (ValueError, KeyError, TypeError) as error:
            raise runner.ConformError(f"{path} is no file of results: {error}") from error

    def _write(self, row: Row) -> None:
        if self._file is not None:
            self._file.write(json.dumps(row) + "\n")

    def keep(self, rows: list[Row]) -> None:
        for row in rows:
            self.rows[row[self.key]] = row
            self._write(row)
        if self._file is not None:
            self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def run(
    cases: list[CaseId],
    work: Work,
    jobs: int = 1,
    journal: Journal | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Row]:
    """Rows of all cases, in their order. Speed is measured in this process alone."""
    journal = journal or Journal(None, {}, False)
    left = [case for case in cases if str(case) not in journal.rows]
    pieces = _split(left)
    jobs = 1 if work.perf else max(1, min(jobs, len(pieces)))
    try:
        found = (
            _run_here(pieces, work) if jobs == 1 else run_workers(_run_piece, [(piece, work) for piece in pieces], jobs)
        )
        for rows in found:
            journal.keep(rows)
            if progress is not None:
                progress(len(journal.rows), len(cases))
    finally:
        journal.close()
    return [journal.rows[str(case)] for case in cases if str(case) in journal.rows]
