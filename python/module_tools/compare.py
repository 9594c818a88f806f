"""`python -m module_tools.compare EXPECTED REAL`: the metric set of every layer of two runs.

    ==================== FWD (output) - LeNet.conv1.call0.pt ====================
    cosine similarity            0.999999998
    ...

EXPECTED and REAL are folders of a run (with forward/ in them), of a rank, or data folders of CompLayerAcc; with one
folder, its `expected` and `real`. Exit status: 0 all agree, 1 something differs, 2 wrong use or nothing to read.
Importing this module does nothing.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import sys
from collections.abc import Iterator
from typing import Any

import torch

from . import judge, metrics, snapshot, store
from .arguments import make_parser
from .cmp_accuracy import Pair, compare_runs
from .metrics import Metrics, measure
from .store import Key

__all__ = ["Metrics", "compare_folders", "main", "measure"]

PARTS = {
    "forward": ("FWD", "output"),
    "backward": ("BWD", "grad_input"),
    "weights": ("WEIGHTS", "parameters"),
    "gradients": ("WEIGHTS", "gradients"),
}


# Folders


def _is_run(folder: str) -> bool:
    return any(os.path.isdir(os.path.join(folder, kind)) for kind in store.KINDS)


def find_sides(folder: str, side: str) -> dict[int, str]:
    """{rank: folder of a run}: `side` is taken where both are there, else the one that is."""
    if not os.path.isdir(folder):
        raise FileNotFoundError(
            f"{folder!r} is no folder; give the data_path of CompLayerAcc, or a rank<N> folder in it"
        )
    if _is_run(folder):
        return {0: folder}
    other = "real" if side == "expected" else "expected"
    ranks = store.list_ranks(folder) or [(0, folder)]
    found = {}
    for rank, path in ranks:
        choice = next((os.path.join(path, s) for s in (side, other) if _is_run(os.path.join(path, s))), None)
        if choice is not None:
            found[rank] = choice
    if not found:
        raise FileNotFoundError(f"{folder!r} has no run: no rank<N>/{side} with forward/ or backward/ in it")
    return found


# Comparing


def compare_folders(
    expected: str,
    real: str,
    rule: judge.Rule | None = None,
    *,
    steps: Any = None,
    layers: str = "*",
    weights: bool = False,
) -> Iterator[dict[str, Any]]:
    """One record per tensor of two folders of runs: kind, name, step, call, item, file, metrics or a problem. The
    backward comes in reverse order."""
    rule = rule or judge.Rule()
    pair = Pair(store.open_run(expected), store.open_run(real), steps)
    for kind in ("forward", "backward", "weights", "gradients") if weights else ("forward", "backward"):
        keys = pair.get_keys() if kind in ("forward", "backward") else sorted(pair.get_common(kind))
        keys = [key for key in keys if key in pair.get_common(kind) and fnmatch.fnmatchcase(key.name, layers)]
        for key in reversed(keys) if kind == "backward" else keys:
            yield from _compare_key(pair, kind, key, rule)
        yield from _list_lonely(pair, kind, layers)


def _list_lonely(pair: Pair, kind: str, layers: str) -> Iterator[dict[str, Any]]:
    for i, side in enumerate(("expected", "real")):
        for key in sorted(set(pair.files[kind][i]) - set(pair.files[kind][1 - i])):
            if not key.again and fnmatch.fnmatchcase(key.name, layers):
                yield _record(kind, key, pair.files[kind][i][key], "", problem=f"only in {side}")


def _record(kind: str, key: Key, path: str, item: str, **facts: Any) -> dict[str, Any]:
    place = {"kind": kind, "layer_name": key.name, "step": key.step, "call": key.call}
    return {**place, "file": os.path.basename(path), "item": item, **facts}


def _compare_key(pair: Pair, kind: str, key: Key, rule: judge.Rule) -> Iterator[dict[str, Any]]:
    paths = [files[key] for files in pair.files[kind]]
    try:
        items = [store.load(path) for path in paths]
    except (OSError, ValueError) as error:
        yield _record(kind, key, paths[0], "", problem=str(error))
        return
    part = PARTS[kind][1]
    places: list[dict[str, Any]] = []
    for item in items:
        values: list[Any] = []
        names: list[str] = []
        snapshot.flatten(item.get(part), values, names)
        places.append(dict(zip(names, values, strict=True)))
    for name in dict.fromkeys([*places[0], *places[1]]):
        expected, real = (place.get(name, _NOTHING) for place in places)
        facts = _compare_item(expected, real, rule)
        yield _record(kind, key, paths[0], name, **facts)


class _Nothing:
    def __repr__(self) -> str:
        return "nothing"


_NOTHING = _Nothing()


def _compare_item(expected: Any, real: Any, rule: judge.Rule) -> dict[str, Any]:
    """`equal` for pairs with nothing to measure, `metrics` for tensors, `problem` for pairs that cannot be measured."""
    if expected is None and real is None:
        return {"equal": "both None"}
    if not (isinstance(expected, torch.Tensor) and isinstance(real, torch.Tensor)):
        cell = judge.compare_values(real, expected, rule)
        return {"equal": "equal"} if judge.is_equal(cell) else {"problem": cell.get("err", "they differ")}
    if expected.shape != real.shape:
        return {"problem": f"shape: expected {list(expected.shape)}, real {list(real.shape)}"}
    try:
        numbers = measure(metrics.to_plain(real), metrics.to_plain(expected), rule.atol, rule.rtol)
    except (RuntimeError, NotImplementedError, TypeError) as error:
        return {"problem": f"not comparable: {str(error).splitlines()[0]}"}
    facts: dict[str, Any] = {"equal": "both all zero"} if numbers.both_zero else {"metrics": numbers}
    if expected.dtype != real.dtype:
        facts["note" if not rule.check_dtype else "problem"] = f"dtype: expected {expected.dtype}, real {real.dtype}"
    return facts


def is_bad(record: dict[str, Any]) -> bool:
    numbers = record.get("metrics")
    return "problem" in record or (numbers is not None and numbers.violating > 0)


# Text


def format_record(record: dict[str, Any], rule: judge.Rule) -> str:
    """The lines of one tensor, without its heading."""
    item = f"[{record['item']}] " if record["item"] else ""
    lines = [f"{item}{record[word]}" for word in ("problem", "note", "equal") if word in record]
    m = record.get("metrics")
    if m is not None:
        lines += [
            f"{item}cosine similarity: {m.cosine:.9f}",
            f"{item}1-norm of the difference: {m.norm1:.6g}, 2-norm: {m.norm2:.6g}",
            f"{item}max abs error: {m.max_abs:.6g} at {list(m.index)} (expected {m.expected:.6g}, real {m.real:.6g}); "
            f"above atol {rule.atol:g}: {m.above_fraction:.6%}",
            f"{item}violating atol {rule.atol:g} + rtol {rule.rtol:g} * |expected|: {m.violating} of {m.numel} "
            f"({m.violating_fraction:.6%})",
        ]
    return "\n".join(lines)


def format_heading(record: dict[str, Any]) -> str:
    bar = "=" * 20
    short, part = PARTS[record["kind"]]
    step = f" (step {record['step']})" if record["step"] else ""
    return f"{bar} {short} ({part}) - {record['file']}{step} {bar}"


def _to_json(rank: int, record: dict[str, Any]) -> str:
    numbers = record.get("metrics")
    plain = {**record, "metrics": numbers.to_dict()} if numbers is not None else record
    return json.dumps({"rank": rank, **plain, "ok": not is_bad(record)}, allow_nan=False)


def main(words: list[str] | None = None) -> int:
    """Entry point; the exit status."""
    arguments = make_parser().parse_args(words)
    rule = judge.Rule(arguments.atol, arguments.rtol, not arguments.no_check_dtype)
    try:
        expected = find_sides(arguments.expected, "expected")
        real = find_sides(arguments.real or arguments.expected, "real")
        ranks = sorted(set(expected) & set(real))
        if not ranks or any(os.path.samefile(expected[rank], real[rank]) for rank in ranks):
            raise ValueError(
                f"{arguments.expected!r} and {arguments.real or arguments.expected!r} are one run, not two"
            )
        return _compare_ranks(expected, real, ranks, rule, arguments)
    except (OSError, ValueError) as error:
        print(f"module_tools.compare: {error}", file=sys.stderr)
        return 2


def _compile(pattern: str | None) -> re.Pattern | None:
    try:
        return re.compile(pattern) if pattern else None
    except re.error as error:
        raise ValueError(f"--allow-failed-pattern {pattern!r} is no regular expression: {error}") from None


def _find_first(expected: str, real: str, rule: judge.Rule, steps: Any, rank: int) -> list[str]:
    return compare_runs(store.open_run(expected), store.open_run(real), rule, rank=rank, steps=steps).first


def _compare_ranks(expected: dict, real: dict, ranks: list[int], rule: judge.Rule, arguments: Any) -> int:
    bad = total = 0
    allowed = _compile(arguments.allow_failed_pattern)
    with open(arguments.json or os.devnull, "w", encoding="utf-8") as file:
        for rank in ranks:
            heading = ""
            options = {"steps": arguments.steps, "layers": arguments.layers, "weights": arguments.weights}
            for record in compare_folders(expected[rank], real[rank], rule, **options):
                total += 1
                bad += is_bad(record) and not (allowed and allowed.search(record["layer_name"]))
                file.write(_to_json(rank, record) + "\n")
                if arguments.quiet and not is_bad(record):
                    continue
                if format_heading(record) != heading:
                    heading = format_heading(record)
                    print(heading if len(ranks) == 1 else f"rank{rank} {heading}")
                print(format_record(record, rule))
            first = _find_first(expected[rank], real[rank], rule, arguments.steps, rank) if bad else []
            print("".join(f"{line}\n" for line in first), end="")
    lonely = sorted(set(expected) ^ set(real))
    if lonely:
        print(f"ranks in one of the folders only: {lonely}")
    if not total:
        raise ValueError("no layer is in both runs; check --steps and --layers")
    print(f"{total} compared, {bad} differ")
    return 1 if bad or lonely else 0


if __name__ == "__main__":
    sys.exit(main())
