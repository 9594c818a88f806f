"""Runs chosen cases: workers make packs, piece by piece, and run them on the library at once.

Making a case takes longer than running it, so both happen in the worker; packs are deleted as soon as they ran. Rows
are those of runner.py. Depends on pack and runner, and for making cases on expand (torch).
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import call_worker
from ..worker_pool import PoolError, open_pool
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
    side_stream: bool = False


_cases: dict[str, CaseId] = {}


def start_worker() -> None:
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
        start_worker()
    pack.write(path, (build(_cases[case_id], seed) for case_id in ids))


def run_piece(ids: list[str], work: Work) -> list[Row]:
    work = Work(*work)  # from a worker it is a list
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
        options["side_stream"] = work.side_stream
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
        yield run_piece(piece, work)


def run_workers(function: Callable[..., Any], calls: list[tuple[Any, ...]], jobs: int, ray: str = "") -> Iterator[Any]:
    """Answers of function(*call), as they come, from processes that make cases; arguments and answers are JSON. Workers
    compute references on the CPU: importing ditorch must not install a device there."""
    options = call_worker.make_options(function, start_worker)
    tasks = [{"index": index, "arguments": call} for index, call in enumerate(calls)]
    environment = {"DITORCH_BACKEND": "none"}
    try:
        with open_pool(ray, options, jobs, 0.0, call_worker.COMMAND, environment=environment) as pool:
            for _, answer in pool.run(tasks):
                _raise(answer.get("error"))
                yield answer["value"]
    except PoolError as error:
        raise runner.ConformError(str(error)) from None


def _raise(error: dict[str, str] | None) -> None:
    if error is None:
        return
    if error["stage"] == "raise":
        known = error["type"] == "ConformError"
        raise runner.ConformError(error["text"] if known else f"a worker: {error['type']}: {error['text']}")
    raise runner.ConformError(f"a worker that makes cases ended early ({error['text']}); try --jobs 1")


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
    ray: str = "",
) -> list[Row]:
    """Rows of all cases, in their order. Speed is measured in this process alone."""
    journal = journal or Journal(None, {}, False)
    left = [case for case in cases if str(case) not in journal.rows]
    pieces = _split(left)
    jobs = 1 if work.perf else max(1, min(jobs, len(pieces)))
    try:
        found = (
            _run_here(pieces, work)
            if jobs == 1 and not ray
            else run_workers(run_piece, [(piece, work) for piece in pieces], jobs, ray)
        )
        for rows in found:
            journal.keep(rows)
            if progress is not None:
                progress(len(journal.rows), len(cases))
    finally:
        journal.close()
    return [journal.rows[str(case)] for case in cases if str(case) in journal.rows]
