"""Two snapshots against each other, item by item; nothing that differs stops the comparison.

A cell is what the table of `compare_accuracy` shows of one value: {"allclose": 1}, {"allclose": 0, "err": "..."}, a
dict of cells for a container, {} for nothing. Tensors are close by atol and rtol, or, where a float64 run and a native
run of the CPU are given as evidence, right by the one rule (docs/verdict.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from . import metrics
from .snapshot import TAG, children

_MAX_DEPTH = 100


class Rule(NamedTuple):
    """What counts as equal."""

    atol: float = 1e-3
    rtol: float = 1e-3
    check_dtype: bool = True


class Evidence(NamedTuple):
    """The same value in a float64 run and in the CPU's run in the program's dtypes; what it is to the layer."""

    wide: Any
    native: Any
    what: str

    def get(self, key: Any) -> Evidence:
        """Of a part of it; None where there is none."""
        return Evidence((_open(self.wide) or {}).get(key), (_open(self.native) or {}).get(key), self.what)


def compare_values(
    real: Any, expected: Any, rule: Rule, depth: int = 0, evidence: Evidence | None = None
) -> dict[str, Any]:
    """The cell of a value; `evidence`: tensors are judged by it."""
    a, b = _open(real), _open(expected)
    if a is None or b is None or depth >= _MAX_DEPTH:
        return _compare_items(real, expected, rule, evidence)
    cell = {}
    for key in dict.fromkeys([*b, *a]):
        if key not in a:
            cell[str(key)] = _differ(f"only in expected: {describe(b[key])}")
        elif key not in b:
            cell[str(key)] = _differ(f"only in real: {describe(a[key])}")
        else:
            part = evidence.get(key) if evidence else None
            cell[str(key)] = compare_values(a[key], b[key], rule, depth + 1, part)
    return cell


def is_equal(cell: dict[str, Any]) -> bool:
    """No item of the cell differs."""
    return all(leaf.get("allclose", 1) and "error" not in leaf for _, leaf in list_leaves(cell))


def list_leaves(cell: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """(path, leaf) of every item of a cell: ("0.hidden", {"allclose": 1})."""
    if not cell:
        return
    if isinstance(cell.get("error"), str) or isinstance(cell.get("allclose"), int):
        yield path, cell
    else:
        for key, part in cell.items():
            yield from list_leaves(part, f"{path}.{key}" if path else key)


def describe(value: Any) -> str:
    """`float32[2, 3]`, `int`, `None`."""
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    if isinstance(value, dict) and TAG in value:
        return str(value.get("type") or f"{value.get(TAG)} without values")
    return "None" if value is None else type(value).__name__


def _open(value: Any) -> dict[Any, Any] | None:
    if isinstance(value, (torch.Tensor, str, torch.Size)) or (isinstance(value, dict) and TAG in value):
        return None
    parts = children(value)
    if parts is None or isinstance(parts, dict):
        return parts
    return dict(enumerate(parts))


def _differ(text: str) -> dict[str, Any]:
    return {"allclose": 0, "err": text}


def _compare_items(real: Any, expected: Any, rule: Rule, evidence: Evidence | None) -> dict[str, Any]:
    if isinstance(real, torch.Tensor) and isinstance(expected, torch.Tensor):
        try:
            if evidence is not None:
                return _judge_tensors(metrics.to_plain(real), metrics.to_plain(expected), rule, evidence)
            return _compare_tensors(metrics.to_plain(real), metrics.to_plain(expected), rule)
        except (RuntimeError, NotImplementedError, TypeError) as error:
            return _differ(f"not comparable: {str(error).splitlines()[0]}")
    if _is_number(real) and _is_number(expected):
        return _compare_numbers(real, expected, rule)
    if type(real) is not type(expected):
        return _differ(f"expected: {describe(expected)}, real: {describe(real)}")
    try:
        equal = real is expected or bool(real == expected)
    except Exception:  # whatever a foreign __eq__ raises
        equal = False
    return {"allclose": 1} if equal else _differ(f"expected: {_short(expected)}, real: {_short(real)}")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _compare_tensors(real: torch.Tensor, expected: torch.Tensor, rule: Rule) -> dict[str, Any]:
    notes = []
    if real.dtype != expected.dtype:
        names = [str(tensor.dtype).removeprefix("torch.") for tensor in (expected, real)]
        notes.append(f"dtype: expected {names[0]}, real {names[1]}")
    if real.shape != expected.shape:
        notes.append(f"shape: expected {list(expected.shape)}, real {list(real.shape)}")
        return _differ("; ".join(notes))
    if real.is_complex() != expected.is_complex():
        return _differ("; ".join(notes))
    close = metrics.is_close(real, expected, rule.atol, rule.rtol)
    if not close:
        m = metrics.measure(real, expected, rule.atol, rule.rtol)
        notes.append(_format_error(m.max_abs, m.expected, m.real, m.relative))
    if close and not (notes and rule.check_dtype):
        return {"allclose": 1, **({"err": notes[0]} if notes else {})}
    return _differ("; ".join(notes))


def _judge_tensors(real: torch.Tensor, expected: torch.Tensor, rule: Rule, evidence: Evidence) -> dict[str, Any]:
    """By the rule, with exactly two runs. What cannot be decided is no difference, and is noted."""
    from ditorch import judge  # the tool itself needs torch alone

    if rule.check_dtype and real.dtype != expected.dtype:
        return _compare_tensors(real, expected, rule)

    def make(request: judge.Request) -> list[Any]:
        if request.kind not in ("wide", "native"):
            raise NotImplementedError("a snapshot has one float64 run and one native run, and no further ones")
        return [evidence.wide if request.kind == "wide" else evidence.native]

    found = judge.judge("", real, expected, judge.Runs(make), what=evidence.what)
    if found.verdict == "unknown":
        return {"allclose": 1, "err": f"undecided: {found.reason}"}
    if not found.is_wrong:
        return {"allclose": 1}
    if found.index < 0:
        return _differ(found.reason)
    text = f"real: {found.value:.9g}, float64: {found.reference:.9g}, off by {found.error:.3g}"
    return _differ(f"{text}, allowed {found.allowed:.3g} ({found.reason}); {found.wrong} of {found.numel}")


def _compare_numbers(real: float, expected: float, rule: Rule) -> dict[str, Any]:
    if real == expected or (real != real and expected != expected):
        return {"allclose": 1}
    try:
        difference = abs(real - expected)
        close = math.isfinite(difference) and difference <= rule.atol + rule.rtol * abs(expected)
        relative = difference / abs(expected) if expected else math.inf
    except OverflowError:  # an int that no float holds
        return _differ(f"expected: {_short(expected)}, real: {_short(real)}")
    return {"allclose": 1} if close else _differ(_format_error(difference, expected, real, relative))


def _format_error(difference: float, expected: float, real: float, relative: float) -> str:
    return f"max_diff: {difference:.6f}, expected: {expected:.6f}, real: {real:.6f}, relative err: {relative:.6f}"
