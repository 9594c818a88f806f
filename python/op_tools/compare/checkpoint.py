"""Two checkpoints, tensor by tensor: what differs, what is missing, what only has another name."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ditorch import _C, export
from ditorch.command.parser import wrap
from ditorch.table import format_table

from .measure import as_number, compare_tensors, get_tolerance
from .weights import INDEX, SUFFIXES, Weights, WeightsError, find, open_weights

__all__ = ["INDEX", "SUFFIXES", "as_dict", "compare", "find", "format_result"]
MOST_NEAREST = 2000
"""Names without a partner among which the nearest are looked for; its cost grows with the square."""


@dataclass
class Result:
    """`rows`: one dictionary per tensor that both have, under one name or two."""

    a: str
    b: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    only_a: list[str] = field(default_factory=list)
    only_b: list[str] = field(default_factory=list)
    values: list[tuple[str, Any, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    strict: bool = False

    @property
    def status(self) -> int:
        """0 the same, 1 they differ, 3 nothing was compared."""
        if not self.rows:
            return 3
        differ = any(row["differ"] or (self.strict and row["dtype_a"] != row["dtype_b"]) for row in self.rows)
        return int(bool(differ or self.only_a or self.only_b or (self.strict and self.values)))


def compare(a: str, b: str, tolerance: float | None = None, strict: bool = False) -> Result:
    """Every tensor of both; ExportError for a file that is none."""
    try:
        sides = [open_weights(path) for path in (a, b)]
    except WeightsError as error:
        raise export.ExportError(str(error)) from None
    result = Result(a, b, strict=strict)
    pairs = {name: name for name in sides[0].tensors if name in sides[1].tensors}
    pairs |= _find_renamed(sides[0], sides[1], pairs)
    for name, other in pairs.items():
        tensors = sides[0].tensors[name](), sides[1].tensors[other]()
        row = {"name": name, "name_b": other, "shape": list(tensors[0].shape), **compare_tensors(*tensors)}
        limit = get_tolerance(row["dtype_a"], row["dtype_b"]) if tolerance is None else tolerance
        result.rows.append({**row, "tolerance": limit, "differ": row["error"] > limit})
    result.only_a = [name for name in sides[0].tensors if name not in pairs]
    taken = set(pairs.values())
    result.only_b = [name for name in sides[1].tensors if name not in taken]
    for name in sorted(set(sides[0].values) & set(sides[1].values)):
        one, other = sides[0].values[name], sides[1].values[name]
        if one != other and not (one != one and other != other):
            result.values.append((name, one, other))
    return result


# Other names


def _find_renamed(a: Weights, b: Weights, pairs: dict[str, str]) -> dict[str, str]:
    """Partners of tensors whose name the other side does not have: first by the end of the name (a prefix such as
    `module.` that was added or taken away), then by what is in them, then by the nearest name of the same shape."""
    lost = [name for name in a.tensors if name not in pairs]
    free = [name for name in b.tensors if name not in set(pairs.values())]
    found: dict[str, str] = {}
    for key in (_by_end(lost, free), _by_content(a, b)):
        _match(lost, free, key, found)
    shapes = {name: tuple(b.tensors[name]().shape) for name in free}
    for name in lost if len(lost) <= MOST_NEAREST and len(free) <= MOST_NEAREST else ():
        shape = tuple(a.tensors[name]().shape)
        same = [other for other in free if shapes[other] == shape]
        near = difflib.get_close_matches(name, same, n=1, cutoff=0.8)
        if near:
            found[name] = near[0]
            free.remove(near[0])
    return found


def _match(lost: list[str], free: list[str], key: Callable[[str, int], Any], found: dict[str, str]) -> None:
    """Pairs whose key is unique on both sides; they leave the lists."""
    keys: list[dict[Any, list[str]]] = [{}, {}]
    for side, names in enumerate((lost, free)):
        for name in names:
            keys[side].setdefault(key(name, side), []).append(name)
    for value, names in keys[0].items():
        others = keys[1].get(value, [])
        if value is not None and len(names) == 1 and len(others) == 1:
            found[names[0]] = others[0]
            lost.remove(names[0])
            free.remove(others[0])


def _by_end(lost: list[str], free: list[str]) -> Callable[[str, int], Any]:
    """The name behind what all names of its side have in front, in whole parts."""
    heads = [_common_head(lost), _common_head(free)]
    return lambda name, side: name[len(heads[side]) :]


def _common_head(names: list[str]) -> str:
    if not names:
        return ""
    first, last = min(names).split("."), max(names).split(".")
    count = 0
    while count < min(len(first), len(last)) - 1 and first[count] == last[count]:
        count += 1
    return "".join(part + "." for part in first[:count])


def _by_content(a: Weights, b: Weights) -> Callable[[str, int], Any]:
    def key(name: str, side: int) -> Any:
        tensor = (a, b)[side].tensors[name]()
        if tensor.numel() < 2:
            return None
        try:
            hashed = _C.tensor_hash(tensor)
        except (TypeError, ValueError, RuntimeError, NotImplementedError):
            return None
        return hashed["low"], hashed["high"]

    return key


# The result in words


def _number(value: float) -> str:
    return "0" if value == 0 else f"{value:.2g}"


def format_result(result: Result, top: int = 10) -> str:
    """The verdict, then what differs most, what is missing, what has another name."""
    differ = [row for row in result.rows if row["differ"]]
    same = sum(bool(row.get("same_bits")) for row in result.rows)
    close = len(result.rows) - same - len(differ)
    words = {0: "the same", 1: "they differ", 3: "nothing was compared: no tensor in common"}[result.status]
    lines = [f"== ditorch compare: {words}", f"  A  {result.a}", f"  B  {result.b}"]
    lines.append(
        wrap(
            f"{len(result.rows):,} tensors compared: {same:,} equal to the bit, {close:,} "
            f"close, {len(differ):,} differ; {len(result.only_a):,} only in A, {len(result.only_b):,} only in B",
            "  ",
        )
    )
    worst = sorted((row for row in result.rows if row["error"] > 0), key=lambda row: -row["error"])
    if worst:
        rows = [_make_row(row) for row in worst[:top]]
        text = format_table(("tensor", "shape", "dtype", "error", "max abs", ""), rows)
        lines += ["", *("  " + line for line in text.split("\n"))]
        lines += [f"  ... {len(worst) - top} more"] if len(worst) > top else []
    renamed = [row for row in result.rows if row["name"] != row["name_b"]]
    lines += _list_names("other names", [f"{row['name']} -> {row['name_b']}" for row in renamed], top)
    lines += _list_names("only in A", result.only_a, top) + _list_names("only in B", result.only_b, top)
    lines += _list_names("other values", [f"{name}: {one!r}, {other!r}" for name, one, other in result.values], top)
    return "\n".join(lines)


def _make_row(row: dict[str, Any]) -> tuple:
    dtype = row["dtype_a"] if row["dtype_a"] == row["dtype_b"] else f"{row['dtype_a']}/{row['dtype_b']}"
    shape = "x".join(map(str, row["shape"])) or "scalar"
    why = row.get("reason", "differs" if row["differ"] else "")
    return row["name"], shape, dtype, _number(row["error"]), _number(row.get("max_abs", 0.0)), why


def _list_names(title: str, names: list[str], top: int) -> list[str]:
    if not names:
        return []
    more = [f"  ... {len(names) - top:,} more"] if len(names) > top else []
    return ["", f"{title} ({len(names):,})", *(f"  {name}" for name in names[:top]), *more]


def as_dict(result: Result) -> dict[str, Any]:
    """Everything, for --json."""
    rows = [
        {key: as_number(value) if isinstance(value, float) else value for key, value in row.items()}
        for row in result.rows
    ]
    return {
        "format": "ditorch-compare-tensors",
        "version": 1,
        "status": result.status,
        "a": result.a,
        "b": result.b,
        "tensors": rows,
        "only_a": result.only_a,
        "only_b": result.only_b,
        "values": [{"name": name, "a": str(one), "b": str(other)} for name, one, other in result.values],
    }
