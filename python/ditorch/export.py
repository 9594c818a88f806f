"""Record logs and capture containers in other forms: `ditorch export`, and `read` for programs.

The views are written by libdit (include/dit/record.h) without holding a file in memory; here are the command line, the
choice of files and of records, and the report about what a log lost.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from . import _C, parquet
from .command.guard import explain
from .command.parser import CLOSED_PIPE, Parser
from .output import open_whole
from .progress import Progress

FORMATS = ("jsonl", "csv", "trace", "text", "legacy-csv", "parquet", "files")
EXTENSIONS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".json": "trace",
    ".trace": "trace",
    ".txt": "text",
    ".log": "text",
    ".parquet": "parquet",
}
TYPES = ("call", "backward", "time", "finding", "capture", "tool", "note", "compare")
LOG, PACK = ".dlog", ".dpack"


class ExportError(Exception):
    """What was asked for cannot be done; the text is for the user."""


def find(paths: str | os.PathLike | Sequence[str | os.PathLike], suffix: str = LOG) -> list[str]:
    """The files that `paths` name; directories stand for all files below them that end with `suffix`."""
    if isinstance(paths, (str, os.PathLike)):
        paths = [paths]
    found: list[str] = []
    for given in paths:
        path: str = os.fspath(given)
        if os.path.isdir(path):
            for folder, folders, names in os.walk(path, onerror=_refuse_folder):
                folders.sort()
                found += [os.path.join(folder, name) for name in sorted(names) if name.endswith(suffix)]
        elif os.path.exists(path):
            found.append(path)
        else:
            raise ExportError(f"{path!r} does not exist; give {suffix} files or directories that contain them")
    seen: set[tuple[int, int]] = set()
    unique = []
    for path in found:
        status = os.stat(path)
        if (status.st_dev, status.st_ino) not in seen:
            seen.add((status.st_dev, status.st_ino))
            unique.append(path)
    return unique


def _refuse_folder(error: OSError) -> None:
    raise ExportError(f"folder {error.filename!r} cannot be read: {error.strerror}") from None


def parse_steps(text: str) -> list[tuple[int, int]]:
    """`4-6,9` as pairs (first, last)."""
    ranges = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d*)\s*)?", part)
        if not match:
            raise ExportError(
                f"--step {text!r}: {part.strip()!r} is no step; expected numbers and ranges: 4-6,9 or 100-"
            )
        first = int(match[1])
        last = first if match[2] is None else int(match[2]) if match[2] else 2**63 - 1
        if last < first or first >= 2**63:
            raise ExportError(f"--step {text!r}: the range {part.strip()!r} is empty")
        ranges.append((first, min(last, 2**63 - 1)))
    return ranges


def parse_types(text: str) -> list[str]:
    """`call,time` as a list; numbers stand for types that this version does not know."""
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in TYPES and not name.isdigit():
            raise ExportError(f"--type {name!r} is unknown; valid: {', '.join(TYPES)}, or the number of a type")
    return names


def parse_name(text: str):
    """A matcher of operator names; the expression must match the whole name, as in the tools' lists."""
    try:
        return re.compile(text).fullmatch
    except re.error as error:
        place = f" at position {error.pos}" if error.pos is not None else ""
        raise ExportError(f"--name {text!r} is no regular expression: {error.msg}{place}") from None


def read(
    paths: str | os.PathLike | Sequence[str | os.PathLike],
    types: Sequence[str] | None = None,
    name: str | None = None,
    steps: str | None = None,
) -> Iterator[dict]:
    """The records of log files (or of all below directories), merged in time order, as plain dictionaries.

    Members: type, seq, time (wall clock, ns), rank, pid, tid, then the record's fields. `types`, `name` (a regular
    expression) and `steps` ("4-6,9") choose records. Damaged places are passed over.
    """
    matcher = parse_name(name) if name is not None else None
    ranges = parse_steps(steps) if steps is not None else None
    files = find(paths)
    _allow_files(len(files))
    return iter(_C.LogReader(files, types, ranges, matcher))


def _allow_files(count: int) -> None:
    """Every log of a merge is open at once: lift the soft limit where it is too low."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + 64
    if soft != resource.RLIM_INFINITY and wanted > soft:
        limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, limit), hard))


def _say(text: str) -> None:
    print(f"ditorch: {text}", file=sys.stderr)


def _plural(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _describe(counts: dict) -> list[str]:
    """What a file lost, in words; empty for a whole file."""
    parts = []
    if counts["truncated_bytes"]:
        parts.append(f"torn end of {_plural(counts['truncated_bytes'], 'byte')} ignored (--repair cuts it off)")
    if counts["damages"]:
        parts.append(
            f"{_plural(counts['damaged_bytes'], 'damaged byte')} skipped at {_plural(counts['damages'], 'place')}"
        )
    if counts["noted_drops"]:
        parts.append(f"{_plural(counts['noted_drops'], 'record')} dropped or lost by the writer")
    if counts["missing"] > counts["noted_drops"]:
        parts.append(f"{_plural(counts['missing'] - counts['noted_drops'], 'record')} missing")
    if counts["malformed"] or counts["unresolved"]:
        parts.append(f"{_plural(counts['malformed'] + counts['unresolved'], 'record')} unreadable")
    if counts["unknown"]:
        parts.append(f"{_plural(counts['unknown'], 'record')} of a later version passed over")
    return parts


def _check_files(files: list[str], repair: bool) -> list[str]:
    """The files that are logs; the others are reported."""
    sound = []
    for path in files:
        try:
            if repair:
                removed = _C.log_repair(path)
                if removed:
                    _say(f"{path}: torn end of {_plural(removed, 'byte')} cut off")
            _C.LogReader([path]).close()
            sound.append(path)
        except (OSError, ValueError, NotImplementedError) as error:
            _say(f"{error}; skipped")
    return sound


@contextlib.contextmanager
def _open_output(path: str | None) -> Iterator[int]:
    """Where a view goes: standard output, a device, or a regular file that appears only when it is complete."""
    if path is None or path == "-":
        sys.stdout.flush()
        yield sys.stdout.fileno()
        return
    with contextlib.ExitStack() as stack:
        try:
            handle = stack.enter_context(open_whole(path))
        except OSError as error:
            raise ExportError(f"output {path!r} cannot be written: {error.strerror}") from None
        yield handle


def _check_output(path: str | None, files: list[str]) -> None:
    if path is None or path == "-":
        return
    if os.path.isdir(path):
        raise ExportError(f"output {path!r} is a directory; give a file, or --format files")
    if os.path.exists(path) and any(os.path.samefile(path, name) for name in files):
        raise ExportError(f"output {path!r} is one of the inputs")


def _export_view(options: argparse.Namespace) -> int:
    types = parse_types(options.type) if options.type is not None else None
    matcher = parse_name(options.name) if options.name is not None else None
    steps = parse_steps(options.step) if options.step is not None else None
    if options.format == "legacy-csv" and types not in (None, ["compare"]) and "time" not in types:
        raise ExportError(f"--type {options.type}: the legacy CSV shows records of type time only, or compare alone")
    if options.format == "parquet":
        _check_parquet(options)
    files = find(options.paths)
    if not files:
        raise ExportError(f"no {LOG} files in {', '.join(map(repr, options.paths))}")
    _check_output(options.output, files)
    _allow_files(len(files))
    files = _check_files(files, options.repair)
    if not files:
        _say("nothing could be read")
        return 1
    reader = _C.LogReader(files, types, steps, matcher)
    with _open_output(options.output) as fd:
        if options.format == "parquet":
            _write_parquet(reader, fd, sum(map(os.path.getsize, files)))
        elif options.format == "legacy-csv" and types == ["compare"]:
            _write_comparisons(reader, fd)
        else:
            reader.export(options.format, fd)
    for index, path in enumerate(files):
        for problem in _describe(reader.counts(index)):
            _say(f"{path}: {problem}")
        if os.path.getsize(path) == 0 or reader.header(index) is None:
            _say(f"{path}: the log is empty: the program that opened it wrote nothing, or was killed before it did")
    return 0


def _check_parquet(options: argparse.Namespace) -> None:
    """What is missing is said before anything is read."""
    if options.output in (None, "-"):
        raise ExportError("--format parquet needs a file: -o run.parquet")
    try:
        parquet.make_schema()
    except parquet.MissingLibrary as error:
        raise ExportError(str(error)) from None


def _write_parquet(reader: Any, fd: int, total: int) -> None:
    with os.fdopen(os.dup(fd), "wb") as file, Progress() as progress:
        parquet.write(reader, file, lambda rows: progress(reader.position(), total, rows))


_COMPARISON = ("cosine", "max_abs_diff", "max_relative_diff", "atol", "rtol")


def _write_comparisons(records: Iterable[dict], fd: int) -> None:
    """The table of OpAutoCompare, as the tool itself writes it."""
    header = "forward_id,name,allclose,cosine_similarity,max_abs_diff,max_relative_diff,atol,rtol,error_info,verdict"
    with os.fdopen(os.dup(fd), "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header.split(","))
        for record in records:
            index = f"[{record['index']}]" if record["index"] >= 0 else ""
            row = {"close": True, "cosine": 1.0, "max_abs_diff": 0.0, "max_relative_diff": 0.0, **record}
            numbers = [f"{float(row[key]):{'1' if key == 'cosine' else '10'}.9f}" for key in _COMPARISON]
            name = f"{row['name']} {row['what']}{index}"
            words = [row.get("info", ""), row.get("verdict", "unknown")]
            writer.writerow([row["id"], name, bool(row["close"]), *numbers, *words])


def _export_files(options: argparse.Namespace) -> int:
    for name in ("type", "name", "step"):
        if getattr(options, name) is not None:
            raise ExportError(f"--{name} does not go with --format files, which unpacks whole containers")
    packs = find(options.paths, PACK)
    if not packs:
        raise ExportError(f"no {PACK} files in {', '.join(map(repr, options.paths))}")
    root = options.output or "."
    done = 0
    for path in packs:
        try:
            count = _C.store_unpack(path, root)
        except (OSError, ValueError, NotImplementedError) as error:
            _say(f"{error}; skipped")
            continue
        print(f"{path}: {_plural(count, 'item')} unpacked below {root}")
        done += 1
    if not done:
        _say("nothing could be read")
    return 0 if done else 1


def _choose_format(options: argparse.Namespace) -> str:
    """By the output's name; without one, lines for people."""
    if all(path.endswith(PACK) for path in options.paths):
        return "files"
    if options.output in (None, "-"):
        return "text"
    extension = os.path.splitext(options.output)[1].lower()
    if extension not in EXTENSIONS:
        raise ExportError(
            f"no format is known for {options.output!r}; valid: --format {'|'.join(FORMATS)}, "
            f"or an output that ends with {', '.join(EXTENSIONS)}"
        )
    return EXTENSIONS[extension]


def make_parser() -> Parser:
    parser = Parser(
        "ditorch export",
        "Show record logs (*.dlog) in another form, or unpack capture containers (*.dpack).",
        examples=[
            ("ditorch export op_tools_results", "lines for people"),
            ("ditorch export op_tools_results -o calls.jsonl --type call", "operator calls, an object per line"),
            ("ditorch export op_tools_results -o times.trace --step 4-6", "open it in ui.perfetto.dev"),
        ],
        exits={0: "written", 1: "nothing could be read, or the disk failed", 2: "wrong use"},
    )
    parser.add_argument("paths", nargs="+", metavar="FILE_OR_DIRECTORY", help="logs, or directories that contain them")
    parser.add_argument(
        "--format",
        choices=FORMATS,
        help="jsonl: an object per line; csv: a row per record; trace: for Perfetto or chrome://tracing; text: lines "
        "for people; parquet: a table for other engines (needs pyarrow); legacy-csv: the original's table of times "
        "(with --type compare: of comparisons); files: unpack captures (default: by the name of OUT, text without "
        "one)",
    )
    parser.add_argument("-o", "--output", metavar="OUT", help="file, or directory for --format files")
    parser.add_argument("--type", metavar="TYPES", help=f"only these records: {','.join(TYPES)}")
    parser.add_argument("--name", metavar="REGEX", help="only operators whose whole name matches")
    parser.add_argument("--step", metavar="STEPS", help="only these steps: 4-6,9")
    parser.add_argument("--repair", action="store_true", help="cut torn ends off the logs first")
    return parser


def main(words: Sequence[str]) -> int:
    """`ditorch export ...`; the exit status: 0, 1 when nothing could be read, 2 for wrong use."""
    try:
        options = make_parser().parse_args(list(words))
    except SystemExit as end:
        return int(end.code or 0)
    try:
        options.format = options.format or _choose_format(options)
        return _export_files(options) if options.format == "files" else _export_view(options)
    except ExportError as error:
        _say(str(error))
        return 2
    except BrokenPipeError:
        return CLOSED_PIPE  # the reader of the pipe has seen enough
    except OSError as error:
        _say(f"export failed: {explain(error)}")
        return 1
