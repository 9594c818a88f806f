"""`ditorch merge`: one summary over the logs of all ranks of a distributed program.

The logs are read once, record by record, by libdit's reader. Which finding is first, ditorch/findings.py says.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from ditorch import _C, export
from ditorch.command.parser import Parser
from ditorch.output import write_whole
from ditorch.progress import Progress

from .merge_summary import SORTS, Finding, Rank, Share, Summary

TELL_EVERY = 20_000
"""Records between two words about the progress."""
_TYPES = ("call", "backward", "time", "compare", "finding")


# Reading: a log may come from anywhere, and its fields be of any kind


def _get_whole(record: dict, name: str, default: int = -1) -> int:
    """The default for what is missing, or no number."""
    value = record.get(name)
    return value if type(value) is int else default


def _get_text(record: dict, name: str, default: str = "") -> str:
    value = record.get(name)
    return value if isinstance(value, str) else default


def _get_number(record: dict, name: str) -> float:
    value = record.get(name)
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else 0.0


def _add_call(rank: Rank, record: dict) -> None:
    share = rank.operators.setdefault(_get_text(record, "name", "?"), Share())
    kind = record["type"]
    if kind == "call":
        share.observed += 1
    elif kind == "compare":
        share.compared += record.get("what") == "output" and _get_whole(record, "index", 0) <= 0
    elif kind == "time":
        duration = _get_whole(record, "device_ns", _get_whole(record, "duration_ns", 0))
        if record.get("kind") == "backward":
            share.backward_ns += duration
        else:
            share.timed += 1
            share.forward_ns += duration


def _describe_finding(record: dict) -> str:
    parts = []
    if "error_size" in record:
        error, allowed = _get_number(record, "error_size"), _get_number(record, "allowed")
        parts.append(f"error {error:.3g}, allowed {allowed:.3g}")
    if record.get("nan") or record.get("inf"):
        parts.append(f"NaN {_get_whole(record, 'nan', 0)}, Inf {_get_whole(record, 'inf', 0)}")
    parts += filter(None, (_get_text(record, name) for name in ("reason", "text", "path")))
    return "; ".join(parts)


def _add_finding(summary: Summary, rank: Rank, record: dict) -> None:
    kind = " ".join(filter(None, (_get_text(record, name) for name in ("kind", "what"))))
    tool, name, verdict = (_get_text(record, key, "?") for key in ("tool", "name", "verdict"))
    key = (tool, name, kind, verdict)
    found = summary.findings.setdefault(key, Finding(*key))
    first = found.firsts.get(rank.number)
    step, number = _get_whole(record, "step"), _get_whole(record, "id")
    if first is None or (step, number) < (first["step"], first["id"]):
        place = {"rank": rank.number, "step": step, "id": number, "time": record["time"]}
        told = {"location": _get_text(record, "location"), "text": _describe_finding(record)}
        found.firsts[rank.number] = {**place, **told}
    found.counts[rank.number] = found.counts.get(rank.number, 0) + 1
    rank.findings += 1


def _add_file(summary: Summary, path: str, header: dict, counts: dict) -> None:
    rank = summary.ranks.setdefault(header["rank"], Rank(header["rank"]))
    host = header["metadata"].get("host", "")
    process = f"{header['pid']}@{host}" if host else str(header["pid"])
    if process not in rank.processes:
        rank.processes.append(process)
    rank.files.append(path)
    rank.lost += max(counts["noted_drops"], counts["missing"])
    summary.world_size = max(summary.world_size, header["world_size"])
    summary.problems += [f"{path}: {problem}" for problem in export._describe(counts)]


def _open(path: str) -> Any:
    reader = _C.LogReader([path], list(_TYPES))
    if reader.header(0) is None:
        raise ValueError(f"{path}: the log has no header yet")
    return reader


def _measure(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:  # told when it is opened
        return 0


def merge(paths: Sequence[str | os.PathLike], progress: Callable[[int, int, int], None] | None = None) -> Summary:
    """Read every log below `paths`. A file that is no log, or is damaged, is in `problems`; the rest counts.
    `progress(bytes done, bytes in all, records)` is called from time to time."""
    summary = Summary()
    files = export.find(paths)
    sizes = [_measure(path) for path in files]
    total, done, count = sum(sizes), 0, 0
    for path, size in zip(files, sizes, strict=True):
        try:
            reader = _open(path)
        except (OSError, ValueError, NotImplementedError) as error:
            summary.problems.append(f"{error}; skipped")
            continue
        header = reader.header(0)
        rank = summary.ranks.setdefault(header["rank"], Rank(header["rank"]))
        for record in reader:
            rank.records += 1
            count += 1
            if progress and not count % TELL_EVERY:
                progress(done + reader.position(), total, count)
            rank.last_step = max(rank.last_step, _get_whole(record, "step"))
            if record["type"] == "finding":
                _add_finding(summary, rank, record)
            else:
                _add_call(rank, record)
        _add_file(summary, path, header, reader.counts(0))
        reader.close()
        done += size
        if progress:
            progress(done, total, count)
    return summary


# The command


def make_parser() -> Parser:
    parser = Parser(
        "ditorch merge",
        "One summary of the tools' logs of all ranks: operators, calls, times, findings, what differs.",
        examples=[
            ("ditorch merge op_tools_results", "tables for people"),
            ("ditorch merge op_tools_results --json -o summary.json", "everything, for programs"),
        ],
        exits={0: "told", 1: "nothing could be read, or not be written", 2: "wrong use"},
    )
    parser.add_argument("paths", nargs="+", metavar="DIRECTORY_OR_FILE", help="results directories, or logs (*.dlog)")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="everything, as one JSON object")
    form.add_argument("--csv", action="store_true", help="a row per operator and rank")
    parser.add_argument("-o", "--output", metavar="OUT", help="a file instead of standard output")
    parser.add_argument("--sort", choices=SORTS, default="time", help="order of the operators (default: time)")
    parser.add_argument("--top", type=int, default=20, metavar="N", help="rows of each table; 0: all (default: 20)")
    return parser


def _write(text: str, path: str | None) -> None:
    if path in (None, "-"):
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    write_whole(path, text)


def main(words: Sequence[str]) -> int:
    """The exit status: 0, 1 when nothing could be read or written, 2 for wrong use."""
    try:
        options = make_parser().parse_args(list(words))
    except SystemExit as end:
        return int(end.code or 0)
    try:
        with Progress() as progress:
            summary = merge(options.paths, progress)
    except export.ExportError as error:
        print(f"ditorch: {error}", file=sys.stderr)
        return 2
    for problem in summary.problems:
        print(f"ditorch: {problem}", file=sys.stderr)
    if not summary.ranks:
        print(f"ditorch: no readable {export.LOG} files in {', '.join(map(repr, options.paths))}", file=sys.stderr)
        return 1
    if options.json:
        text = json.dumps(summary.as_dict(options.sort), indent=1) + "\n"
    else:
        text = summary.as_csv() if options.csv else summary.as_text(max(options.top, 0), options.sort)
    try:
        _write(text, options.output)
    except BrokenPipeError:
        raise  # the command line is silent about it
    except OSError as error:
        print(f"ditorch: {options.output!r} cannot be written: {error}", file=sys.stderr)
        return 1
    return 0
