"""Record logs as Parquet files: `ditorch export --format parquet`, and what `ditorch query` works on.

One flat table of all records (docs/query.md): what every record has, what most have, and statistics. Arguments are left
out: JSON lines have them. Needs pyarrow, which is imported when it is needed. Memory is that of one batch.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

from . import _C

COLUMNS = (
    *(("type", "text"), ("rank", "int"), ("pid", "int"), ("tid", "int"), ("seq", "int"), ("time", "int")),
    *(("id", "int"), ("name", "text"), ("step", "int"), ("tool", "text"), ("module", "text"), ("location", "text")),
    *(("kind", "text"), ("round", "int"), ("recompute", "int"), ("complete", "int"), ("error", "text")),
    *(("dtype", "text"), ("shape", "text"), ("device", "text"), ("signature", "text")),
    *(("host_ns", "int"), ("begin_ns", "int"), ("duration_ns", "int"), ("device_ns", "int")),
    *(("verdict", "text"), ("reason", "text"), ("text", "text"), ("path", "text"), ("what", "text"), ("index", "int")),
    *(("event", "text"), ("bytes", "int"), ("nan", "int"), ("inf", "int")),
    *(("error_size", "float"), ("allowed", "float"), ("max_abs_diff", "float"), ("max_relative_diff", "float")),
    *(("cosine", "float"), ("stats.hash", "int"), ("stats.numel", "int"), ("stats.nan", "int"), ("stats.inf", "int")),
    *(("stats.norm", "float"), ("stats.mean", "float"), ("stats.min", "float"), ("stats.max", "float")),
    ("stats.dtype", "text"),
)
"""Key of a record's field and its kind; a dot in a key is an underscore in the table."""
ROWS = 65536


class MissingLibrary(Exception):
    """An optional library is not there; the text says what to install."""


def load(name: str, wanted_for: str) -> ModuleType:
    """An optional library, or one sentence."""
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise MissingLibrary(f"{wanted_for} needs {package}: pip install 'ditorch[query]' ({error})") from None


def make_schema() -> Any:
    """The table's schema, with its version."""
    pa = load("pyarrow", "Parquet")
    kinds = {"int": pa.int64(), "float": pa.float64(), "text": pa.dictionary(pa.int32(), pa.string())}
    fields = [pa.field(key.replace(".", "_"), kinds[kind]) for key, kind in COLUMNS]
    return pa.schema(fields, metadata={"ditorch.format": "ditorch-records", "ditorch.version": "1"})


def read_batches(reader: Any, schema: Any) -> Iterator[Any]:
    """Record batches of a LogReader, from where it stands to its end."""
    pa = load("pyarrow", "Parquet")
    while True:
        count, arrays, texts = _C.log_columns(reader, COLUMNS, ROWS)
        if not count:
            return
        words = pa.array(texts, pa.string())
        columns = []
        for key, kind in COLUMNS:
            values, valid = (pa.py_buffer(part) for part in arrays[key])
            if kind == "text":
                codes = pa.Array.from_buffers(pa.int32(), count, [valid, values])
                columns.append(pa.DictionaryArray.from_arrays(codes, words))
            else:
                form = pa.int64() if kind == "int" else pa.float64()
                columns.append(pa.Array.from_buffers(form, count, [valid, values]))
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def write(reader: Any, target: Any, tell: Callable[[int], None] | None = None) -> int:
    """All records of a reader as one Parquet file: `target` is a path or a file object. Returns their number; `tell`
    is called with it after each batch."""
    pq = load("pyarrow.parquet", "Parquet")
    schema, rows = make_schema(), 0
    with pq.ParquetWriter(target, schema, compression="zstd") as writer:
        for batch in read_batches(reader, schema):
            writer.write_batch(batch)
            rows += batch.num_rows
            if tell:
                tell(rows)
    return rows


def write_many(
    files: Sequence[str], folder: str, workers: int | None = None, progress: Callable[..., None] | None = None
) -> list[dict[str, Any]]:
    """A Parquet file per log, several at a time; what each log held: path, rank, pid, world_size, rows, counts.
    `progress(bytes done, bytes in all, records)` is called after each batch."""
    from concurrent.futures import ThreadPoolExecutor

    load("pyarrow.parquet", "Parquet")

    total = sum(os.path.getsize(path) for path in files)
    done: dict[int, tuple[int, int]] = {}

    def convert(item: tuple[int, str]) -> dict[str, Any]:
        number, path = item
        reader = _C.LogReader([path])
        target = os.path.join(folder, f"part-{number:05}.parquet")

        def tell(rows: int) -> None:
            if progress:
                done[number] = reader.position(), rows
                bytes_done, records = map(sum, zip(*done.values(), strict=True))
                progress(bytes_done, total, records)

        rows = write(reader, target, tell)
        facts = {"log": path, "path": target, "rows": rows, "counts": reader.counts(0), "header": reader.header(0)}
        reader.close()
        return facts

    with ThreadPoolExecutor(workers or min(4, os.cpu_count() or 1)) as pool:
        return list(pool.map(convert, enumerate(files)))
