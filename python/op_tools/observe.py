"""OpObserve: the arguments and results of every operator call, to the log."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from itertools import islice
from typing import Any

from ditorch.table import format_table

from . import console
from .keywords import ObserveKeywords


def format_value(value: Any) -> str:
    """One field of a record: `float32[3,4]` for a tensor, with its strides unless it is contiguous, and `cpu` when it
    is there."""
    if not isinstance(value, dict) or "dtype" not in value:
        return repr(value)
    shape, stride = value["shape"], value.get("stride")
    text = f"{value['dtype']}[{','.join(map(str, shape))}]"
    if stride is not None and not _is_contiguous(shape, stride):
        text += f" strides [{','.join(map(str, stride))}]"
    return text + (" cpu" if value.get("device") == "cpu" else "")


def _is_contiguous(shape: list[int], stride: list[int]) -> bool:
    expected = 1
    for size, step in zip(reversed(shape), reversed(stride), strict=True):
        if size != 1 and step != expected:
            return 0 in shape
        expected *= size
    return True


def _format_fields(record: dict[str, Any], root: str) -> list[str]:
    """The leaves below `root` in order; the ones inside a container in brackets, keyword arguments as name=value."""
    groups: dict[str, list[str]] = {}
    nested = set()
    for key, value in record.items():
        head, _, rest = key.partition(".")
        if head == root:
            top, inside, _ = rest.partition(".")
            groups.setdefault(top, []).append(format_value(value))
            nested |= {top} if inside else set()
    texts = [f"[{', '.join(values)}]" if top in nested else values[0] for top, values in groups.items()]
    return [f"{top}={text}" for top, text in zip(groups, texts, strict=True)] if root == "kwargs" else texts


def _format_arguments(record: dict[str, Any]) -> str:
    return ", ".join(_format_fields(record, "args") + _format_fields(record, "kwargs"))


def _format_result(record: dict[str, Any]) -> str:
    if "error" in record:
        return f"raised {record['error']}"
    results = _format_fields(record, "out")
    return results[0] if len(results) == 1 else f"({', '.join(results)})"


def format_call(record: dict[str, Any]) -> str:
    """`12 torch.add(float32[3,4], 1) -> float32[3,4]`, and where it was called."""
    call = f"{record['id']} {record['name']}({_format_arguments(record)}) -> {_format_result(record)}"
    module = f"  in {record['module']}" if record.get("module") else ""
    return f"{call}{module}  at {_format_location(record)}"


def _format_location(record: dict[str, Any]) -> str:
    """File name and line without the directories and the source text."""
    place = record.get("location", "").split(" ", 1)[0]
    return os.path.basename(place)


class OpObserve(ObserveKeywords):
    """See the real arguments of every operator: device, dtype, shape, strides, values of scalars.

    Calls go to the record log, which `records()` and `ditorch export` read; `view="table"` (or text, jsonl) prints them
    at stop(), and `console="full"` prints every call in the format of the original."""

    kind = "observe"
    name = "observe"
    verb = "observed"
    live = frozenset({"view", "view_rows"})

    def engine_options(self, options: Any) -> dict[str, Any]:
        from .overflow_check import get_stats

        return {**super().engine_options(options), "torch_stats": get_stats if options.get_value("stats") else None}

    def check(self, options: Any) -> None:
        if options.get_value("view") != "off" and not options.get_value("log"):
            raise ValueError(f"{options['view'].origin} is {options['view'].text}, which needs the log; remove log=0")

    def calls(self) -> Iterator[dict[str, Any]]:
        """The calls since the last start, from the log."""
        return self.records("call")

    def stopped(self) -> None:
        view = self._options.get_value("view")
        if view == "off":
            return
        limit = self._options.get_value("view_rows") or None
        calls = list(islice(self.calls(), limit))
        if view == "jsonl":
            text = "\n".join(json.dumps(record, allow_nan=False, default=str) for record in map(_strict, calls))
        elif view == "text":
            text = "\n".join(map(format_call, calls))
        else:
            text = format_calls(calls)
        if text:
            sys.stdout.write(text + "\n")
        hidden = self.counts().get("applied", 0) - len(calls)
        if hidden > 0:
            console.say(f"OpObserve: {console.count(hidden, 'more call')} in the log; view_rows=0 shows all")


def _strict(value: Any) -> Any:
    """JSON has no NaN and no infinities: they become text."""
    if isinstance(value, dict):
        return {key: _strict(item) for key, item in value.items()}
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return {float("inf"): "Infinity", float("-inf"): "-Infinity"}.get(value, "NaN")
    return value


def format_calls(calls: list[dict[str, Any]]) -> str:
    """A table, one row per call."""
    columns = ("id", "step", "operator", "arguments", "result", "us", "place")
    rows = [
        (
            record["id"],
            record["step"],
            record["name"],
            _format_arguments(record),
            _format_result(record),
            f"{record['host_ns'] / 1000:.1f}",
            _format_location(record),
        )
        for record in calls
    ]
    return format_table(columns, rows)


OpDispatchWatcher = OpObserve
