"""`ditorch bench --model NAME`: the operators of a model's training step, timed; no weights, no data, no capture."""

from __future__ import annotations

import fnmatch
import json
import sys
import time
from collections.abc import Iterator
from typing import Any

from .. import call_worker
from ..output import write_whole
from ..progress import estimate_rest, show_rest
from ..table import format_table
from ..worker_pool import EVERY_DEVICE, PoolError, add_ray_option, open_pool
from .parser import Parser, suggest
from .tree import Head

GIB = 1 << 30


def make_parser() -> Parser:
    parser = Parser(
        "ditorch bench --model",
        "How long the operators of a model's training step take, on one device or several side by side: every distinct "
        "call at its real size, from the recorded corpora (`ditorch conform list --models`).",
        examples=[
            ("ditorch bench --model resnet50 --scale 0.1", "sizes above 8 a tenth: seconds"),
            ("ditorch bench --model llama2,vit --device cuda --device cpu", "beside the CPU"),
            ("ditorch bench --model gpt --op 'aten::*norm*' --json out.json", "some operators, as JSON"),
        ],
        exits={0: "measured", 2: "wrong use, or nothing to measure", 3: "calls that could not be run"},
    )
    parser.add_argument("--model", required=True, metavar="NAME[,NAME]", help="models of the corpora, or 'all'")
    parser.add_argument(
        "--device", action="append", metavar="NAME", help="default cuda; the first is set against others"
    )
    parser.add_argument(
        "--scale", type=float, default=1.0, metavar="S", help="make sizes above 8 smaller by this factor"
    )
    parser.add_argument("--op", action="append", metavar="PATTERN", help="operators, as aten::mm or a shell pattern")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="timed rounds a call and device, default 5")
    parser.add_argument("--memory", type=float, default=4, metavar="GIB", help="most memory of one call's arguments")
    add_ray_option(parser.add_argument)
    parser.add_argument("--top", type=int, default=20, metavar="N", help="rows to print, 0: all; default 20")
    parser.add_argument("--json", metavar="FILE", help="all rows")
    return parser


def _read_models(parser: Parser, text: str) -> list[Any]:
    from ..models import corpus

    names = corpus.list_names() if text == "all" else [name.strip() for name in text.split(",") if name.strip()]
    try:
        found = [corpus.read(name) for name in names]
    except corpus.CorpusError as error:
        parser.error(str(error))
    if not found:
        parser.error("--model names no model")
    return found


def _check(parser: Parser, options: Any, corpora: list[Any]) -> None:
    if not 0 < options.scale <= 1:
        parser.error(f"--scale {options.scale:g}: a number above 0, at most 1")
    if options.rounds < 1 or options.top < 0 or options.memory <= 0:
        parser.error("--rounds and --memory are above 0, --top is not below 0")
    names = {entry.call.name for corpus in corpora for entry in corpus.entries}
    for pattern in options.op or ():
        if not any(_matches(name, pattern) for name in names):
            parser.error(f"--op {pattern!r} is no operator of {options.model}{suggest(pattern, names)}")


def _matches(name: str, pattern: str) -> bool:
    short = name.partition("::")[2]
    return any(fnmatch.fnmatchcase(text, pattern) for text in (name, short, short.partition(".")[0]))


class _Progress:
    """On a terminal a line that is written over; else a line every ten seconds."""

    def __init__(self, model: str, total: int) -> None:
        self.model, self.total, self.done, self.begin, self.told = model, total, 0, time.monotonic(), time.monotonic()

    def step(self) -> None:
        self.done += 1
        now = time.monotonic()
        if now - self.told < (0.2 if sys.stderr.isatty() else 10):
            return
        self.told = now
        rest = show_rest(estimate_rest(self.begin, self.done, self.total))
        end = "\r" if sys.stderr.isatty() else "\n"
        print(f"{self.model}: {self.done} of {self.total} calls, {rest} ", end=end, file=sys.stderr)


def _tell(name: str, rows: list[Any], devices: list[str], roofs: dict[str, float], top: int) -> None:
    from ..models import measure

    first = devices[0]
    ranked = sorted(rows, key=lambda row: -row.seconds.get(first, 0.0) * row.count)
    total = {device: sum(row.seconds.get(device, 0.0) * row.count for row in rows) for device in devices}
    columns = ["operator", "first tensor", "calls", *(f"{d} us" for d in devices), "share %", "of copy %"]
    columns += [f"{other} / {first}" for other in devices[1:]]
    table = []
    for row in ranked[: top or None]:
        mine = row.seconds.get(first)
        cells = [row.operator.removeprefix("aten::"), row.describe(), row.count]
        cells += [None if d not in row.seconds else round(row.seconds[d] * 1e6, 1) for d in devices]
        cells += [None if not mine else round(100 * mine * row.count / total[first], 1)]
        cells += [None if not mine else round(100 * row.moved / mine / roofs[first], 1)]
        cells += [None if not mine or o not in row.seconds else row.seconds[o] / mine for o in devices[1:]]
        table.append(cells)
    print(f"\n{name}: {len(rows)} distinct calls")
    print(format_table(columns, table, sys.stdout))
    if top and len(ranked) > top:
        print(f"... {len(ranked) - top} more (--top 0 prints all)")
    for device in devices:
        print(
            f"{device}: {total[device] * 1e3:.1f} ms a step in operators; a copy moves {roofs[device] / 1e9:.1f} GB/s"
        )
    for other in devices[1:]:
        ratio = measure.mean_ratio(rows, first, other)
        if ratio is not None:
            print(f"geometric mean of {other}'s time over {first}'s, calls that ran on both: {ratio:.2f}")
    for row in rows:
        for device, problem in row.problems.items():
            print(f"not run on {device}: {row.operator} {row.describe()}: {problem}")


def _to_json(name: str, row: Any) -> dict[str, Any]:
    return {
        "model": name,
        "call": str(row.call),
        "operator": row.operator,
        "calls": row.count,
        "bytes": row.moved,
        "seconds": row.seconds,
        "problems": row.problems,
    }


def main(words: list[str], head: Head) -> int:
    parser = make_parser()
    if "--help" in words or "-h" in words:  # --model needs no name then
        parser.parse_args(["--help"])
    options = parser.parse_args(words)
    corpora = _read_models(parser, options.model)
    _check(parser, options, corpora)
    devices = list(dict.fromkeys(options.device or ["cuda"]))
    try:
        with (_Cluster if options.ray else _Here)(options, devices, head) as place:
            return _measure(options, devices, corpora, place)
    except (ValueError, PoolError) as error:
        parser.error(str(error))


class _Here:
    """Calls are measured in this process."""

    def __init__(self, options: Any, devices: list[str], head: Head) -> None:
        import ditorch

        from ..models import measure

        ditorch.install(head.config, **head.options)
        self._options, self._devices = options, devices
        self.roofs = measure.start_worker(devices)["roofs"]

    def __enter__(self) -> _Here:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        pass

    def measure(self, rows: list[Any], limit: int) -> Iterator[tuple[int, Any]]:
        from ..models import measure

        for index, (forms, count) in enumerate(rows):
            yield index, measure.measure_call(forms, count, self._devices, self._options.rounds, limit)


class _Cluster:
    """By workers of a cluster."""

    def __init__(self, options: Any, devices: list[str], head: Head) -> None:
        from ..models import measure

        words = ["--config", head.config] if head.config is not None else []
        for name, value in {**head.options, "banner": "0"}.items():
            words += ["--set", f"{name}={value}"]
        command = [sys.executable, "-m", "ditorch", *words, "-m", call_worker.COMMAND[-1]]
        work = call_worker.make_options(measure.measure_texts, measure.start_worker, [devices])
        self._options, self._devices = options, devices
        self._pool = open_pool(options.ray, work, EVERY_DEVICE, 0.0, command)

    def __enter__(self) -> _Cluster:
        self._pool.__enter__()
        self.roofs = self._pool.start()["roofs"]
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._pool.__exit__(kind, error, trace)

    def measure(self, rows: list[Any], limit: int) -> Iterator[tuple[int, Any]]:
        from ..models import measure

        rest = [self._devices, self._options.rounds, limit]
        tasks = [
            {"index": index, "arguments": [list(map(str, forms)), count, *rest]}
            for index, (forms, count) in enumerate(rows)
        ]
        for task, answer in self._pool.run(tasks):
            index, error = task["index"], answer.get("error")
            forms, count = rows[index]
            if error:
                yield index, measure.Row(forms[-1], count, 0, {}, dict.fromkeys(self._devices, error["text"]))
            else:
                yield index, measure.read_row(answer["value"], count)


def _measure(options: Any, devices: list[str], corpora: list[Any], place: _Here | _Cluster) -> int:
    from ..models import measure

    roofs = place.roofs

    def is_wanted(name: str) -> bool:
        return not options.op or any(_matches(name, pattern) for pattern in options.op)

    all_rows: list[dict[str, Any]] = []
    problems = ran = 0
    for corpus in corpora:
        plan = measure.plan(corpus, options.scale, is_wanted)
        progress, found = _Progress(corpus.name, len(plan)), {}
        for index, row in place.measure(plan, int(options.memory * GIB)):
            found[index] = row
            progress.step()
        rows = [row for _, row in sorted(found.items())]
        if rows:
            _tell(corpus.name, rows, devices, roofs, options.top)
        problems += sum(bool(row.problems) for row in rows)
        ran += sum(bool(row.seconds) for row in rows)
        all_rows += [_to_json(corpus.name, row) for row in rows]
    if options.json:
        write_whole(options.json, json.dumps({"copy_bytes_per_second": roofs, "rows": all_rows}, indent=1) + "\n")
    if not ran:
        print("ditorch bench: nothing was measured", file=sys.stderr)
        return 2
    return 3 if problems else 0
