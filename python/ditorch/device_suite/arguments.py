"""The command line of `ditorch test-device`, and which pairs (entry, dtype) it means.

Depends on expect.py alone; no torch.
"""

from __future__ import annotations

import argparse
import difflib
import fnmatch
import os
import zlib
from typing import Any, NamedTuple

from ..command.parser import Parser
from ..worker_pool import add_ray_option
from .expect import DTYPES, Expectations

QUICK_SAMPLES = 4
SUITES = ("autocast", "autograd", "distributed", "modules", "nn", "optimizers", "serialization")
"""The files of suites/."""


class UsageError(Exception):
    """Wrong use of the command line."""


class Pair(NamedTuple):
    """One entry of the operator database in one dtype, and how many of its samples run (0: all). `complete`: as many
    as the expectations mean, so that a failure that they list must show."""

    entry: str
    dtype: str
    samples: int
    complete: bool


class _Parser(Parser):
    def error(self, message: str) -> Any:
        raise UsageError(self.improve(message))


def _number(least: float, kind: type) -> Any:
    def read(text: str) -> Any:
        value = kind(text)
        if value < least:
            raise ValueError
        return value

    read.__name__ = f"number (at least {least})"
    return read


def make_parser() -> Parser:
    parser = _Parser(
        "ditorch test-device",
        "PyTorch's operator database on the device against the CPU: forward, backward, in place, out=; "
        "values, shapes, dtypes, strides, aliasing, gradients.",
        examples=[
            ("ditorch test-device --ops add,softmax", "two entries of the database"),
            ("ditorch test-device --quick --jobs 8 --junit device.xml", "all entries, for continuous integration"),
            ("ditorch test-device --model resnet50,llama3 --scale 0.1", "the operator calls of models"),
            ("ditorch test-device --suite optimizers,nn", "what is in the wheel of torch"),
        ],
        exits={0: "as expected", 1: "not as expected", 2: "wrong use"},
    )
    add = parser.add_argument
    add("--device", default="cuda", help="device under test (default cuda)")
    add("--load", default="ditorch", metavar="MODULE", help="module that provides it; empty for none (default ditorch)")
    add("--expect", metavar="FILE", help="expectations of the device, TOML (default: the one that comes with ditorch)")
    add("--dtypes", metavar="LIST", help="comma list of dtypes (default: those of the expectations)")
    add("--ops", metavar="LIST", help="comma list of entries or shell patterns, such as add,fft.* (default: all)")
    add("--samples", type=_number(0, int), help="most samples per pair, an even choice; 0: all")
    add(
        "--quick",
        action="store_true",
        help=f"all entries in the first dtype, and each in one other with {QUICK_SAMPLES} samples",
    )
    add("--compiled", metavar="BACKEND", help="through torch.compile with this backend, such as dit")
    add("--dynamic", action="store_true", help="with --compiled: with sizes as symbols, one graph for all of them")
    add("--jobs", type=_number(1, int), default=min(2, os.cpu_count() or 1), help="worker processes (default 2)")
    add_ray_option(add)
    add("--timeout", type=_number(0.1, float), metavar="S", help="seconds per pair; a pair that takes longer fails")
    add("--run-skipped", action="store_true", help="run the pairs of [[skip]] too, as if they were in [[fail]]")
    add("--json", metavar="FILE", help="write all results as JSON")
    add("--junit", metavar="FILE", help="write all results as JUnit XML")
    add("--resume", metavar="FILE", help="keep answers in FILE; a second run with the same FILE goes on")
    add("--list", action="store_true", help="print the chosen pairs and do nothing else")
    models = parser.add_argument_group(
        "models", "the operator calls of recorded training steps instead of the operator database (docs/models.md)"
    )
    add = models.add_argument
    add("--model", metavar="LIST", help="comma list of models, or all (`ditorch conform list --models`)")
    add("--scale", type=_share, default=1.0, metavar="S", help="make sizes above 8 smaller by this factor")
    add("--memory", type=_number(0.001, float), default=4.0, metavar="GIB", help="most memory of a call's arguments")
    cases = parser.add_argument_group(
        "test cases", "PyTorch's own test cases instead of the operator database (docs/test-device.md)"
    )
    add = cases.add_argument
    add("--pytorch", metavar="DIR", help="run the test files of this checkout of PyTorch")
    add("--files", metavar="LIST", help="comma list of them, names or shell patterns (default: DIR/test/test_*.py)")
    add("--suite", metavar="LIST", help=f"run suites over what is in the wheel of torch: {', '.join(SUITES)} or all")
    add("--cases", metavar="LIST", help="comma list of cases (test or Class.test), names or shell patterns")
    add("--share", type=_share, default=1.0, metavar="X", help="run this share of the cases, such as 0.1")
    add("--csv", metavar="FILE", help="write file, class, case, result and reason of every case")
    return parser


def parse(words: list[str]) -> argparse.Namespace:
    """The options, checked."""
    options = make_parser().parse_args(words)
    _check_mode(options)
    for name in ("json", "junit", "resume", "csv"):
        folder = os.path.dirname(getattr(options, name) or "")
        if folder and not os.path.isdir(folder):
            raise UsageError(f"--{name} {getattr(options, name)!r}: there is no folder {folder!r}")
    return options


def _share(text: str) -> float:
    value = float(text)
    if not 0 < value <= 1:
        raise ValueError
    return value


_share.__name__ = "share (more than 0, at most 1)"


def _check_mode(options: argparse.Namespace) -> None:
    """Options of one kind of run say so in another."""
    runs = [name for name in ("pytorch", "suite", "model") if getattr(options, name)]
    if len(runs) > 1:
        raise UsageError(f"--{runs[0]} and --{runs[1]} are two runs; give one of them")
    if options.dynamic and not options.compiled:
        raise UsageError("--dynamic belongs to --compiled: give --compiled BACKEND too")
    if not options.model and options.scale != 1:
        raise UsageError("--scale belongs to models: give --model NAME too")
    if options.model and (options.quick or options.samples is not None):
        raise UsageError("--quick and --samples belong to the operator database; --scale makes models smaller")
    of_cases = {name for name in ("files", "cases", "csv") if getattr(options, name)}
    of_cases |= {"share"} if options.share != 1 else set()
    of_entries = {name for name in ("ops", "dtypes", "samples", "quick", "compiled") if getattr(options, name)}
    if options.pytorch or options.suite:
        if options.ray:
            raise UsageError("--ray belongs to the operator database and to models; test cases run on this machine")
        wrong, place = of_entries, "the operator database; choose test cases by --cases, --files, --share"
    else:
        wrong, place = of_cases, "test cases: give --pytorch DIR or --suite NAME too"
    if options.suite and options.files:
        raise UsageError("--files belongs to --pytorch; the suites are chosen by --suite")
    if wrong:
        raise UsageError(f"{', '.join(f'--{name}' for name in sorted(wrong))} belongs to {place}")


def choose_entries(text: str | None, known: list[str]) -> list[str]:
    """Entries that the words of --ops name, in the order of the database."""
    if text is None:
        return known
    chosen: set[str] = set()
    for word in filter(None, (part.strip() for part in text.split(","))):
        found = [name for name in known if name == word] or fnmatch.filter(known, word)
        if not found:
            near = difflib.get_close_matches(word, known, 5) or [name for name in known if word in name][:5]
            hint = f"; near: {', '.join(near)}" if near else ""
            raise UsageError(f"--ops: no entry of the operator database is {word!r}{hint}")
        chosen.update(found)
    return [name for name in known if name in chosen]


def choose_dtypes(text: str | None, expectations: Expectations) -> list[str]:
    if text is None:
        return expectations.device["dtypes"]
    dtypes = [word.strip() for word in text.split(",") if word.strip()]
    for dtype in dtypes:
        if dtype not in DTYPES:
            raise UsageError(f"--dtypes: {dtype!r} is no dtype; valid: {', '.join(DTYPES)}")
    if not dtypes:
        raise UsageError(f"--dtypes {text!r} names none; valid: {', '.join(DTYPES)}")
    return list(dict.fromkeys(dtypes))


def choose_pairs(options: argparse.Namespace, catalog: dict[str, Any], expectations: Expectations) -> list[Pair]:
    """What is asked for and supported: by the CPU and, where the file says so, by CUDA according to the database."""
    entries, dtypes = choose_entries(options.ops, list(catalog["entries"])), choose_dtypes(options.dtypes, expectations)
    pairs = []
    for entry in entries:
        tables = catalog["entries"][entry]
        supported = set(tables["cpu"])
        if expectations.device["database"] == "cuda":
            supported &= set(tables["cuda"])
        found = [dtype for dtype in dtypes if dtype in supported]
        quick = _choose_quick(entry, found, dtypes[0]) if options.quick else {}
        for dtype in quick if options.quick else found:
            pairs.append(_make_pair(entry, dtype, quick.get(dtype) or options.samples, expectations))
    if not pairs:
        raise UsageError(
            f"none of the {len(entries)} chosen entries has a dtype of {', '.join(dtypes)} "
            f"(supported by the {expectations.device['database']} tables of the database)"
        )
    return sorted(pairs, key=lambda pair: dtypes.index(pair.dtype))


def _choose_quick(entry: str, found: list[str], first: str) -> dict[str, int | None]:
    """The first dtype, and one other that the name of the entry picks: dtype to most samples (None: as usual)."""
    chosen: dict[str, int | None] = {dtype: None for dtype in found if dtype == first}
    others = [dtype for dtype in found if dtype != first]
    if others:
        pick = others[zlib.crc32(entry.encode()) % len(others)]
        chosen[pick] = QUICK_SAMPLES if chosen else None
    return chosen


def _make_pair(entry: str, dtype: str, asked: int | None, expectations: Expectations) -> Pair:
    """`asked`: most samples by the command line; 0 means all, None what the expectations say."""
    row = expectations.find("samples", entry, dtype)
    usual = row.numbers["most"] if row else expectations.device["samples"]
    if asked is None:
        return Pair(entry, dtype, usual, True)
    if asked == 0:
        return Pair(entry, dtype, 0, True)
    return Pair(entry, dtype, min(asked, usual or asked), False)
