"""`ditorch query "select ..." RUN...`: SQL over the logs of all ranks, by DuckDB (docs/query.md).

Logs become Parquet files in a temporary folder, one per process, and views stand over them. Only one statement that
reads is run; files and settings are locked before it. Memory is bounded: DuckDB spills to the temporary folder. Depends
on export.py and parquet.py.
"""

from __future__ import annotations

import contextlib
import csv
import json
import math
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

from . import export, parquet
from .command.parser import Parser
from .output import open_whole
from .progress import Progress
from .table import format_table

PARQUET = ".parquet"
MOST_ROWS = 1000
"""Rows of a table for people; csv and json have no limit."""
_PLACE = "rank, pid, tid, seq, time, id, name, step, module, location"
VIEWS = {
    "calls": f"SELECT {_PLACE}, type = 'backward' AS backward, tool, coalesce(recompute, 0) = 1 AS recompute, round, "
    "error, dtype, shape, device, host_ns, stats_hash, stats_numel, stats_norm, stats_mean, stats_min, stats_max, "
    "coalesce(stats_nan, 0) AS stats_nan, coalesce(stats_inf, 0) AS stats_inf, stats_dtype "
    "FROM records WHERE type IN ('call', 'backward')",
    "findings": f"SELECT {_PLACE}, tool, kind, what, verdict, coalesce(reason, text) AS reason, nan, inf, error_size, "
    "allowed, path FROM records WHERE type = 'finding' OR (type = 'compare' AND verdict = 'wrong')",
    "times": f"SELECT {_PLACE}, kind = 'backward' AS backward, round, begin_ns, duration_ns, "
    "CASE WHEN device_ns >= 0 THEN device_ns END AS device_ns, signature FROM records WHERE type = 'time'",
}
"""Over `records`, which has every record and every column of parquet.COLUMNS."""
_RANKS = ("rank", "pid", "world_size", "host", "log", "begin", "records", "missing", "damages")
_MEMORY = ("rank", "pid", "host_peak", "device_peak", "step", "allocated", "reserved", "resident")


def _say(text: str) -> None:
    print(f"ditorch: {text}", file=sys.stderr)


# What there is


def _find(paths: Sequence[str]) -> tuple[list[str], list[str]]:
    """(logs, Parquet files); a folder of exported files stands for these."""
    logs: list[str] = []
    tables: list[str] = []
    for path in paths:
        found = export.find([path], PARQUET) if path.endswith(PARQUET) or os.path.isdir(path) else []
        tables += found
        logs += [] if found and not os.path.isdir(path) else export.find([path])
    return logs, tables


def _check_tables(tables: list[str]) -> list[str]:
    """The Parquet files that `ditorch export` wrote; the others are told."""
    pq = parquet.load("pyarrow.parquet", "ditorch query")
    wanted = parquet.make_schema()
    sound = []
    for path in tables:
        try:
            schema = pq.read_schema(path)
        except Exception as error:  # pyarrow has many kinds
            _say(f"{path}: {str(error).splitlines()[0] if str(error) else type(error).__name__}; left out")
            continue
        if (schema.metadata or {}).get(b"ditorch.format") != b"ditorch-records" or schema.names != wanted.names:
            _say(f"{path}: it is no table of records as this version of `ditorch export` writes it; left out")
            continue
        sound.append(path)
    return sound


def _convert(logs: list[str], folder: str) -> list[dict[str, Any]]:
    """Readable logs as Parquet files in `folder`."""
    with Progress() as progress:
        facts = parquet.write_many(export._check_files(logs, False), folder, progress=progress)
    for fact in facts:
        for problem in export._describe(fact["counts"]):
            _say(f"{fact['log']}: {problem}")
        if not fact["rows"]:
            _say(f"{fact['log']}: the log is empty")
    return facts


def _list_ranks(facts: list[dict[str, Any]]) -> list[tuple]:
    rows = []
    for fact in facts:
        header, counts = fact["header"] or {}, fact["counts"]
        host = header.get("metadata", {}).get("host")
        place = (header.get("rank"), header.get("pid"), header.get("world_size"), host, fact["log"], header.get("time"))
        rows.append((*place, fact["rows"], max(counts["missing"], counts["noted_drops"]), counts["damages"]))
    return rows


def _list_memory(paths: Sequence[str]) -> list[tuple]:
    """From the run-*.json of `ditorch run`: the largest amounts in a row per process, then a row per step."""
    rows: list[tuple] = []
    for folder in filter(os.path.isdir, paths):
        for name in sorted(os.listdir(folder)):
            if not (name.startswith("run-r") and name.endswith(".json")):
                continue
            with contextlib.suppress(OSError, ValueError, AttributeError, RecursionError):
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    note = json.load(file)
                memory, place = note.get("memory") or {}, (note.get("rank"), note.get("pid"))
                peaks = (memory.get("host_peak"), memory.get("device_peak"))
                rows.append(_take_whole(*place, *peaks, None, None, None, None))
                for step, numbers in enumerate(note.get("step_memory") or ()):
                    if isinstance(numbers, list) and len(numbers) == 3:
                        rows.append(_take_whole(*place, None, None, step, *numbers))
    return rows


def _take_whole(*values: Any) -> tuple:
    return tuple(value if type(value) is int and abs(value) < 1 << 62 else None for value in values)


# The engine


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _list(texts: Sequence[str]) -> str:
    return "[" + ", ".join(map(_quote, texts)) + "]"


class Engine:
    """DuckDB with the views, locked: it reads the tables and nothing else."""

    def __init__(self, tables: list[str], ranks: list[tuple], memory: list[tuple], folder: str, gib: float):
        self.duckdb = parquet.load("duckdb", "ditorch query")
        self.connection = self.duckdb.connect(":memory:")
        run = self.connection.execute
        run(f"SET memory_limit = {_quote(f'{max(int(gib * 1024), 64)}MiB')}")
        run(f"SET temp_directory = {_quote(os.path.join(folder, 'spill'))}")
        run(f"SET threads = {min(4, os.cpu_count() or 1)}")
        run("SET preserve_insertion_order = false")
        tables = [os.path.abspath(path) for path in tables]
        run(f"CREATE VIEW records AS SELECT * FROM read_parquet({_list(tables)})")
        for name, text in VIEWS.items():
            run(f"CREATE VIEW {name} AS {text}")
        self._fill("ranks", _RANKS, ranks, {"host", "log"})
        self._fill("memory", _MEMORY, memory, set())
        run(f"SET allowed_paths = {_list(tables)}")
        run("SET enable_external_access = false")
        run("SET lock_configuration = true")

    def _fill(self, name: str, columns: Sequence[str], rows: list[tuple], texts: set[str]) -> None:
        arrow = parquet.load("pyarrow", "ditorch query")
        schema = arrow.schema([(column, arrow.string() if column in texts else arrow.int64()) for column in columns])
        values = zip(*rows, strict=True) if rows else [()] * len(columns)
        self.connection.register("filling", arrow.table(list(map(list, values)), schema=schema))
        self.connection.execute(f"CREATE TABLE {name} AS SELECT * FROM filling")
        self.connection.unregister("filling")

    def run(self, text: str) -> Any:
        """A cursor over the rows; ExportError for SQL that is wrong, or that does more than read."""
        try:
            statements = self.duckdb.extract_statements(text)
            kinds = [statement.type.name for statement in statements]
            if len(kinds) != 1 or kinds[0] not in ("SELECT", "EXPLAIN"):
                found = ", ".join(kind.lower() for kind in kinds) or "nothing"
                raise export.ExportError(f"one statement that reads (select ...) is expected, not: {found}")
            return self.connection.execute(statements[0])
        except self.duckdb.Error as error:
            raise export.ExportError(_explain(error)) from None


def _explain(error: Exception) -> str:
    """DuckDB's message without the drawing of the place."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(line for line in lines[:3] if not line.startswith(("LINE", "^"))) or type(error).__name__


# Rows


def _read(cursor: Any) -> Iterator[tuple]:
    while rows := cursor.fetchmany(4096):
        yield from rows


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return value


def _write(cursor: Any, form: str, file: Any) -> None:
    names = [column[0] for column in cursor.description]
    if form == "csv":
        writer = csv.writer(file)
        writer.writerow(names)
        writer.writerows(_read(cursor))
    elif form == "json":
        file.write("[")
        for number, row in enumerate(_read(cursor)):
            values = dict(zip(names, map(_plain, row), strict=True))
            file.write(("\n " if not number else ",\n ") + json.dumps(values, default=str, allow_nan=False))
        file.write("\n]\n")
    else:
        rows: list[Any] = []
        for row in _read(cursor):
            if len(rows) == MOST_ROWS:
                _say(f"the first {MOST_ROWS} rows; --format csv or json has all")
                break
            rows.append([value if isinstance(value, (int, str, type(None))) else _show(value) for value in row])
        file.write(format_table(names, rows, file) + "\n")


def _show(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


# The command


def make_parser() -> Parser:
    parser = Parser(
        "ditorch query",
        "SQL over the logs of all ranks, by DuckDB. Views: calls, findings, times, memory, ranks, and records with "
        "everything; their columns are in docs/query.md. What is asked for can only read these views. Needs duckdb and "
        "pyarrow: pip install 'ditorch[query]'.",
        examples=[
            ("ditorch query 'select name, count(*) n from calls group by name order by n desc' run", "how often"),
            (
                "ditorch query 'select rank, sum(device_ns) / 1e6 ms from times group by rank' run --format csv",
                "device time per rank",
            ),
            ("ditorch export run -o run.parquet && ditorch query 'select * from findings' run.parquet", "convert once"),
        ],
        exits={0: "told", 1: "nothing could be read, or not be written", 2: "wrong use, wrong SQL, duckdb is missing"},
    )
    add = parser.add_argument
    add("sql", metavar="SQL", help="one select statement")
    add("paths", nargs="+", metavar="RUN", help="folders with logs, logs (*.dlog), or exported files (*.parquet)")
    add("--format", choices=("table", "csv", "json"), default="table", help="default: table")
    add("-o", "--output", metavar="OUT", help="a file instead of standard output")
    add("--memory", type=float, default=1.0, metavar="GIB", help="most memory for DuckDB (default: 1)")
    return parser


def _run(options: Any, folder: str) -> int:
    parquet.load("duckdb", "ditorch query")
    logs, tables = _find(options.paths)
    if not logs and not tables:
        raise export.ExportError(f"no {export.LOG} or {PARQUET} files in {', '.join(map(repr, options.paths))}")
    facts = _convert(logs, folder) if logs else []
    tables = [*_check_tables(tables), *(fact["path"] for fact in facts)]
    if not tables:
        _say("nothing could be read")
        return 1
    engine = Engine(tables, _list_ranks(facts), _list_memory(options.paths), folder, options.memory)
    cursor = engine.run(options.sql)
    try:
        if options.output in (None, "-"):
            _write(cursor, options.format, sys.stdout)
            sys.stdout.flush()
        else:
            with open_whole(options.output) as fd, open(fd, "w", encoding="utf-8", newline="", closefd=False) as file:
                _write(cursor, options.format, file)
    except engine.duckdb.Error as error:
        raise export.ExportError(_explain(error)) from None
    return 0


def main(words: Sequence[str]) -> int:
    """The exit status: see make_parser."""
    try:
        options = make_parser().parse_args(list(words))
    except SystemExit as end:
        return int(end.code or 0)
    try:
        with tempfile.TemporaryDirectory(prefix="ditorch-query-") as folder:
            return _run(options, folder)
    except (export.ExportError, parquet.MissingLibrary) as error:
        _say(str(error))
        return 2
