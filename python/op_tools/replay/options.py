"""The command line of `ditorch replay`: options, checked before anything runs."""

from __future__ import annotations

import argparse
import fnmatch
import os
import re
from collections.abc import Callable, Sequence
from typing import Any

from ditorch.command.parser import Parser
from ditorch.worker_pool import add_ray_option

from .worker import PARTS

ROLES = {"device": ("plain", "device"), "cpu": ("plain", "cpu"), "all": ("plain", "device", "cpu")}
WORDS = ("cpu", "fp64", "stored")
_DEVICE = re.compile(r"[a-z_]+(:\d+)?")
EXITS = {
    0: "everything right (what --allow-failed names does not count)",
    1: "wrong results",
    2: "wrong use, or no case found",
    3: "cases that could not be run (and none wrong), or nothing could be compared",
}
EXAMPLES = [
    ("ditorch replay op_tools_results/op_capture_results", "every captured call: right, fast, small?"),
    ("ditorch replay CAPTURE --op 'torch.nn.*' --accuracy --json -", "results of some operators, for programs"),
    ("ditorch replay CAPTURE --id 812 --export repro", "a script for the maker that needs torch alone"),
]


class UsageError(Exception):
    """Wrong use; the text is for the user."""


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


def make_parser() -> Parser:
    parser = Parser(
        "ditorch replay",
        "Run captured operator calls again: are they right, how long do they take, how much memory?",
        examples=EXAMPLES,
        exits=EXITS,
    )
    add = parser.add_argument
    add("path", nargs="?", metavar="PATH", help="capture folder, container (.dpack), one case, or a log (.dlog)")
    add("--dir", metavar="PATH", dest="directory", help="the same as PATH")
    add(
        "--device",
        action="append",
        metavar="DEVICE",
        help="cuda (default), cpu, cuda:1 ..., or stored: judge what was captured; several: side by side",
    )
    add(
        "--library",
        action="append",
        metavar="LIB",
        help="operator library (DIOPI) of the embedded device: a name or a file; several: side by side",
    )
    add(
        "--against",
        action="append",
        metavar="WHAT",
        help="what results are shown beside: fp64 (default: the CPU in float64), cpu (in the dtypes of the capture), "
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
    add_ray_option(add)
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
    for name in [*options.device, *(word for word in options.against if word not in WORDS)]:
        if not _DEVICE.fullmatch(name):
            raise UsageError(
                f"{name!r} is no device; valid: cuda, cpu, cuda:1 ..., and for --against also fp64, stored"
            )
    if options.library:
        options.device = _add_libraries(options.device, list(dict.fromkeys(options.library)))
    if options.ray and not options.jobs:
        raise UsageError("--jobs 0 runs in this process, --ray in others; give one of them")
    _check_output(options.json)
    options.parts = [part for part in PARTS if getattr(options, part)] or list(PARTS)
    options.match_op = _make_matcher(options.op, "--op") if options.op else None
    options.match_allowed = _make_matcher(options.allow_failed, "--allow-failed")
    options.ids = _parse_ids(options.id) if options.id is not None else None
    return options


def _add_libraries(devices: Sequence[str], libraries: Sequence[str]) -> list[str]:
    """ "cuda" with two libraries is "cuda@host" and "cuda@other"; the CPU has none."""
    if all(device.startswith("cpu") for device in devices):
        raise UsageError(f"--library {libraries[0]}: the CPU has no operator library; add --device cuda")
    return [
        f"{device}@{library}" if library else device
        for device in devices
        for library in ([""] if device.startswith("cpu") else libraries)
    ]


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
