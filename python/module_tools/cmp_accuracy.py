"""compare_accuracy: the layers of two runs against each other, in the original's table, and the first that is wrong.

A layer is named only when what it was given agreed in both runs. Nothing in a file stops the comparison: a file that
cannot be read is one error in its row.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from . import blame, judge, store
from .naming import parse_steps
from .record import CompLayerAcc
from .store import Key

__all__ = ["AccuracyResult", "CompLayerAcc", "Row", "compare_accuracy", "single_process_cmp_accuracy"]

_WRAPPED = ("DataParallel.module", "DistributedDataParallel.module", "OptimizedModule._orig_mod")


@dataclass
class Row:
    """One call of a layer in both runs; cells as judge.compare_values makes them, {} for what was not run."""

    rank: int
    name: str
    step: int
    call: int
    forward: dict[str, Any] = field(default_factory=dict)
    backward: dict[str, Any] = field(default_factory=dict)
    input: dict[str, Any] = field(default_factory=dict)
    grad_output: dict[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return judge.is_equal(self.forward) and judge.is_equal(self.backward)


@dataclass
class WeightRow:
    """The weights of a layer before a step and their gradients in it."""

    rank: int
    name: str
    step: int
    weights: dict[str, Any] = field(default_factory=dict)
    gradients: dict[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return judge.is_equal(self.weights) and judge.is_equal(self.gradients)


@dataclass
class AccuracyResult:
    """What compare_accuracy found, over all ranks."""

    rows: list[Row] = field(default_factory=list)
    weights: list[WeightRow] = field(default_factory=list)
    only_expected: list[str] = field(default_factory=list)
    only_real: list[str] = field(default_factory=list)
    first: list[str] = field(default_factory=list)
    """The first difference of each rank that has one."""
    errors: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Everything that was run was run in both and agrees."""
        parts = (self.only_expected, self.only_real, self.errors)
        return not any(parts) and all(row.ok for row in self.rows) and all(row.ok for row in self.weights)

    def extend(self, other: AccuracyResult) -> None:
        for name in ("rows", "weights", "only_expected", "only_real", "first", "errors"):
            getattr(self, name).extend(getattr(other, name))


def compare_accuracy(
    data_dir: str | os.PathLike = "accuracy_data",
    atol: float = 1e-3,
    rtol: float = 1e-3,
    *,
    steps: int | str | Iterable[int] | None = None,
    check_dtype: bool = True,
    csv_path: str | os.PathLike | None = None,
    json_path: str | os.PathLike | None = None,
    rule: str = "close",
    wide: str | os.PathLike | None = None,
    native: str | os.PathLike | None = None,
) -> AccuracyResult:
    """Compare `real` with `expected` in every rank<N> folder of `data_dir`, print a table of each, and say where they
    part first. Close is |real - expected| <= atol + rtol * |expected|; two NaN are equal. `check_dtype=False` compares
    the values of different dtypes only. The answer's `ok` tells whether all agree; the rows go to CSV and JSON too.

    `rule="auto"` judges every value by the rule of OpAutoCompare (docs/verdict.md) in the place of atol and rtol. It
    needs the data folders of two runs of the same model on the CPU: `wide` in float64, `native` in the program's
    dtypes."""
    data_dir = os.fspath(data_dir)
    if not os.path.isdir(data_dir):
        raise FileNotFoundError(f"compare_accuracy: {data_dir!r} does not exist; give the data_path of CompLayerAcc")
    ranks = store.list_ranks(data_dir)
    if not ranks:
        raise FileNotFoundError(
            f"compare_accuracy: {data_dir!r} has no rank<N> folder; give the data_path of CompLayerAcc"
        )
    _check_rule(rule, wide, native)
    limits = judge.Rule(atol, rtol, check_dtype)
    result = AccuracyResult()
    for rank, folder in ranks:
        further = None
        if wide is not None and native is not None:
            further = Further(_open_cpu_run(wide, rank), _open_cpu_run(native, rank))
        result.extend(_print_rank(rank, folder, limits, steps, further))
    if csv_path is not None:
        write_csv(csv_path, result)
    if json_path is not None:
        write_json(json_path, result)
    return result


def _check_rule(rule: str, wide: Any, native: Any) -> None:
    if rule not in ("close", "auto"):
        raise ValueError(f"compare_accuracy: rule is {rule!r}; valid: close, auto")
    if (rule == "auto") != (wide is not None and native is not None) or (wide is None) != (native is None):
        raise ValueError(
            "compare_accuracy: rule='auto' needs both wide= (data_path of a run on the CPU in float64) and native= "
            "(one in the program's dtypes); without it neither is read"
        )


def _open_cpu_run(data_dir: str | os.PathLike, rank: int) -> store.Run:
    """The run of this rank in a data folder that has one side."""
    data_dir = os.fspath(data_dir)
    folders = [os.path.join(data_dir, f"rank{rank}", side) for side in ("expected", "real")]
    folder = next((folder for folder in folders if os.path.isdir(folder)), None)
    if folder is None:
        raise FileNotFoundError(
            f"compare_accuracy: {data_dir!r} has no rank{rank}/expected; give a data_path of CompLayerAcc"
        )
    return store.open_run(folder)


def single_process_cmp_accuracy(
    rank_dir: str | os.PathLike, atol: float = 1e-3, rtol: float = 1e-3, **options: Any
) -> AccuracyResult:
    """compare_accuracy of one rank<N> folder."""
    rank_dir = os.path.abspath(os.fspath(rank_dir))
    name = os.path.basename(rank_dir)
    rank = int(name[4:]) if name.startswith("rank") and name[4:].isdecimal() else 0
    rule = judge.Rule(atol, rtol, options.get("check_dtype", True))
    return _print_rank(rank, rank_dir, rule, options.get("steps"))


def _print_rank(rank: int, folder: str, rule: judge.Rule, steps: Any, further: Further | None = None) -> AccuracyResult:
    result = AccuracyResult()
    try:
        expected = store.open_run(os.path.join(folder, "expected"))
        real = store.open_run(os.path.join(folder, "real"))
    except OSError as error:
        result.errors.append(f"rank{rank}: {error}")
        print(f"rank{rank}: nothing to compare: {error}")
        return result
    result = compare_runs(expected, real, rule, rank=rank, steps=steps, further=further)
    limits = "(rule: auto)" if further else f"(atol:{rule.atol}, rtol:{rule.rtol})"
    print(_format_table(result, rank, limits))
    print(f"modules only in expected: {result.only_expected}")
    print(f"modules only in real: {result.only_real}")
    print("=" * 80)
    bad = [row for row in result.weights if not row.ok]
    if bad:
        print(_format_weights(bad, rank, limits))
    for text in result.first:
        print(text)
    return result


# Comparing


class Pair:
    """Two runs with their files under the same names."""

    def __init__(self, expected: store.Run, real: store.Run, steps: Any) -> None:
        self.runs = (expected, real)
        self.stepped = expected.stepped and real.stepped
        self._chosen = parse_steps(steps if self.stepped else None)
        rename = _make_renamer(expected, real)
        self.files = {kind: (self._list(expected, kind), self._list(real, kind, rename)) for kind in store.KINDS}

    def _list(self, run: store.Run, kind: str, rename: Any = None) -> dict[Key, str]:
        files = run.get_files(kind, self.stepped)
        if rename is not None:
            files = {key._replace(name=rename(key.name)): path for key, path in files.items()}
        return {key: path for key, path in files.items() if self._chosen(key.step)}

    def get_common(self, kind: str) -> set[Key]:
        """Files of a kind that both have."""
        return set(self.files[kind][0]) & set(self.files[kind][1])

    def is_run(self, kind: str, step: int, side: int) -> bool:
        """Whether a run has anything of a kind in a step."""
        return any(key.step == step for key in self.files[kind][side])

    def get_keys(self) -> list[Key]:
        """Calls that both have, forward or backward, in the order of the expected run."""
        present = {key for key in self.get_common("forward") | self.get_common("backward") if not key.again}
        ordered: dict[Key, None] = {}
        orders = self.runs[0].orders
        last = max(orders, default=0)
        for step, names in orders.items():
            calls: dict[str, int] = {}
            for name in names if self.stepped or step == last else ():
                call = calls[name] = calls.get(name, -1) + 1
                key = Key(name, step, call) if self.stepped else Key(name)
                if key in present:
                    ordered.setdefault(key)
        rest = present - ordered.keys()
        places = {name: i for i, name in enumerate(self.runs[0].names)}
        return [*ordered, *sorted(rest, key=lambda key: (key.step, places.get(key.name, len(places)), key))]

    def get_lonely(self, side: int) -> list[str]:
        """Layers, or calls of a layer that the other has too, that only one run has."""
        mine, other = (
            {key for kind in ("forward", "backward") for key in self.files[kind][i]} for i in (side, 1 - side)
        )
        known = {key.name for key in other}
        names = dict.fromkeys(key.name for key in sorted(mine - other) if key.name not in known)
        forward = (set(self.files["forward"][i]) for i in (side, 1 - side))
        calls = sorted(key for key in next(forward) - next(forward) if key.name in known and not key.again)
        return [*names, *(f"{key.name} (step {key.step}, call {key.call})" for key in calls)]


class Further(NamedTuple):
    """The two runs on the CPU that the rule measures by."""

    wide: store.Run
    native: store.Run

    def load(self, kind: str, key: Key, stepped: bool) -> tuple[dict, dict]:
        """The files of one call in both; {} where there is none."""
        paths = (run.get_files(kind, stepped).get(key) for run in self)
        wide, native = (_load(path, "")[0] or {} for path in paths)
        return wide, native


def _make_renamer(expected: store.Run, real: store.Run) -> Any:
    """A run under a wrapper (folders of the original) has other names than one without: those of expected win."""
    roots = []
    for run in (expected, real):
        names = run.names or [key.name for kind in store.KINDS for key in run.latest[kind]]
        prefix = next((w for w in _WRAPPED if any(name == w or name.startswith(w + ".") for name in names)), None)
        roots.append(prefix or min(names, key=len, default="").partition(".")[0])
    if roots[0] == roots[1] or not any(root in _WRAPPED for root in roots):
        return None
    old, new = roots[1], roots[0]
    return lambda name: new + name[len(old) :] if name == old or name.startswith(old + ".") else name


def _load(path: str | None, side: str) -> tuple[dict | None, str]:
    if path is None:
        return None, ""
    try:
        item = store.load(path)
    except (OSError, ValueError) as error:
        return None, f"{side}: {error}"
    return item, f"{side} raised {item['error']}" if isinstance(item.get("error"), str) else ""


def _compare_files(
    pair: Pair, kind: str, key: Key, parts: tuple[str, ...], rule: judge.Rule, further: Further | None
) -> dict[str, dict]:
    """A cell of each part of a file; {} where it was not run. What is wrong with the file stands in the first one."""
    paths = [files.get(key) for files in pair.files[kind]]
    cells: dict[str, dict] = {part: {} for part in parts}
    if None in paths:
        if kind == "backward" and paths != [None, None] and pair.is_run(kind, key.step, paths.index(None)):
            sides = ("real", "expected") if paths[0] is None else ("expected", "real")
            cells[parts[0]] = {"error": f"only in {sides[0]}: no gradient came to it in {sides[1]}"}
        return cells
    (expected, problem), (real, other) = _load(paths[0], "expected"), _load(paths[1], "real")
    problem = "; ".join(filter(None, (problem, other)))
    if expected is None or real is None:
        return {**cells, parts[0]: {"error": problem}}
    wide, native = further.load(kind, key, pair.stepped) if further else ({}, {})
    what = "output" if kind in ("forward", "weights") else "grad"
    for part in parts:
        if part == parts[0] or (part in expected and part in real):  # the original has no kwargs
            evidence = judge.Evidence(wide.get(part), native.get(part), what) if further else None
            cells[part] = judge.compare_values(real.get(part), expected.get(part), rule, evidence=evidence)
    if problem and expected.get("error") != real.get("error"):
        cells[parts[0]] = {"error": problem}
    return cells


def compare_runs(
    expected: store.Run,
    real: store.Run,
    rule: judge.Rule,
    *,
    rank: int = 0,
    steps: Any = None,
    further: Further | None = None,
) -> AccuracyResult:
    """One rank; `further`: values are judged by these runs."""
    pair = Pair(expected, real, steps)
    result = AccuracyResult(only_expected=pair.get_lonely(0), only_real=pair.get_lonely(1))
    for key in pair.get_keys():
        forward = _compare_files(pair, "forward", key, ("output", "input", "kwargs"), rule, further)
        backward = _compare_files(pair, "backward", key, ("grad_input", "grad_output", "grad_kwargs"), rule, further)
        given = {**forward["input"], **{f"kwargs.{k}": v for k, v in forward["kwargs"].items()}}
        grads = {**backward["grad_input"], **{f"kwargs.{k}": v for k, v in backward["grad_kwargs"].items()}}
        row = Row(rank, key.name, key.step, key.call, forward["output"], grads, given, backward["grad_output"])
        result.rows.append(row)
    result.weights = _compare_weights(pair, rule, rank, further)
    first = blame.find_first(result.rows, result.weights)
    result.first = [f"rank{rank}: {first}" if rank else first] if first else []
    return result


def _compare_weights(pair: Pair, rule: judge.Rule, rank: int, further: Further | None) -> list[WeightRow]:
    keys = pair.get_common("weights") | pair.get_common("gradients")
    rows = []
    for key in sorted(keys, key=lambda key: (key.step, key.name)):
        weights = _compare_files(pair, "weights", key, ("parameters", "buffers"), rule, further)
        grads = _compare_files(pair, "gradients", key, ("gradients",), rule, further)
        cell = {**weights["parameters"], **weights["buffers"]}
        rows.append(WeightRow(rank, key.name, key.step, cell, grads["gradients"]))
    return rows


# Text


def _label(row: Any, many_steps: bool, many_calls: bool) -> str:
    parts = []
    if many_steps:
        parts.append(f"step {row.step}")
    if many_calls and hasattr(row, "call"):
        parts.append(f"call {row.call}")
    return f"{row.name} ({', '.join(parts)})" if parts else row.name


def _make_table(rows: list, rank: int, titles: dict[str, str]) -> str:
    from prettytable import PrettyTable

    table = PrettyTable()
    table.field_names = [f"No.(rank{rank})", "layer_name", *titles.values()]
    table.align = "l"
    many_steps = len({row.step for row in rows}) > 1
    many_calls = any(getattr(row, "call", 0) for row in rows)
    for number, row in enumerate(rows):
        cells = [json.dumps(getattr(row, name)) for name in titles]
        table.add_row([number, _label(row, many_steps, many_calls), *cells])
    return str(table)


def _format_table(result: AccuracyResult, rank: int, limits: str) -> str:
    return _make_table(
        result.rows, rank, {"forward": f"forward: output{limits}", "backward": f"backward: grad_input{limits}"}
    )


def _format_weights(rows: list[WeightRow], rank: int, limits: str) -> str:
    return _make_table(rows, rank, {"weights": f"weights{limits}", "gradients": f"weight gradients{limits}"})


def list_records(result: AccuracyResult) -> list[dict[str, Any]]:
    """One flat record per compared item: for CSV and JSON."""
    records = []
    both: list[Row | WeightRow] = [*result.rows, *result.weights]
    for row in both:
        parts = ("forward", "backward", "input", "grad_output") if isinstance(row, Row) else ("weights", "gradients")
        for part in parts:
            for path, leaf in judge.list_leaves(getattr(row, part)):
                call = row.call if isinstance(row, Row) else ""
                record = {"rank": row.rank, "step": row.step, "layer_name": row.name, "call": call, "what": part}
                error = leaf.get("error") or leaf.get("err", "")
                records.append({**record, "item": path, "allclose": leaf.get("allclose", 0), "err": error})
    return records


def write_csv(path: str | os.PathLike, result: AccuracyResult) -> None:
    with open(path, "w", encoding="utf-8", newline="") as file:
        columns = ("rank", "step", "layer_name", "call", "what", "item", "allclose", "err")
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(list_records(result))


def write_json(path: str | os.PathLike, result: AccuracyResult) -> None:
    content = {
        "ok": result.ok,
        "first": result.first,
        "only_expected": result.only_expected,
        "only_real": result.only_real,
        "errors": result.errors,
        "items": list_records(result),
    }
    with open(path, "w", encoding="utf-8") as file:
        json.dump(content, file, indent=1)
        file.write("\n")
