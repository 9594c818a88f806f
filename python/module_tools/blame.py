"""Which layer is wrong first: one whose input agreed in both runs and whose result did not.

Rows come in the order in which the calls ended, so an inner layer stands before the one around it. Values that a layer
got already different are never its fault.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import judge

if TYPE_CHECKING:
    from .cmp_accuracy import Row, WeightRow


def find_first(rows: list[Row], weights: list[WeightRow]) -> str:
    """Where the runs part first, step by step: in the forward pass, then, from its end, in the backward pass, then in
    the weights. "" when they agree."""
    both: list[Row | WeightRow] = [*rows, *weights]
    for step in sorted({row.step for row in both}):
        calls = [row for row in rows if row.step == step]
        owned = {row.name: row for row in weights if row.step == step}
        text = _find_forward(calls, owned) or _find_backward(calls, owned) or _find_weights(owned)
        if text:
            return f"first difference: {text}"
    return ""


def describe_worst(cell: dict[str, Any]) -> str:
    """The first item of a cell that differs."""
    for path, leaf in judge.list_leaves(cell):
        if "error" in leaf or not leaf.get("allclose", 1):
            text = leaf.get("error") or leaf.get("err", "")
            return f"{path}: {text}" if path else text
    return ""


def _place(row: Row) -> str:
    return f"step {row.step}" + (f", call {row.call}" if row.call else "")


def _is_inside(name: str, outer: str) -> bool:
    return name.startswith(outer + ".")


# Forward


def _find_forward(rows: list[Row], weights: dict[str, WeightRow]) -> str:
    """The first call with a difference. Where its input differs already, the place is before it: inside the nearest
    layer around it that was given equal data."""
    for index, row in enumerate(rows):
        if judge.is_equal(row.input):
            if not judge.is_equal(row.forward):
                return _blame_output(row, weights)
            continue
        outer = _find_outer(rows, index)
        while outer is not None and not judge.is_equal(rows[outer].input):
            index, outer = outer, _find_outer(rows, outer)
        inner = rows[index]
        if outer is None:
            worst = describe_worst(inner.input)
            return f"{inner.name} input, {_place(inner)}: the runs were given different data; {worst}"
        return _blame_between(rows, rows[outer], inner)
    return ""


def _blame_output(row: Row, weights: dict[str, WeightRow]) -> str:
    place = f"{row.name} output, {_place(row)}"
    if isinstance(row.forward.get("error"), str):  # it raised, or its file cannot be read
        return f"{place}: {row.forward['error']}"
    for other in weights.values():
        if (other.name == row.name or _is_inside(other.name, row.name)) and not judge.is_equal(other.weights):
            worst = describe_worst(other.weights)
            return f"{other.name} weights, before step {row.step}: {worst}; they make {place} differ"
    return f"{place}: its input agreed; {describe_worst(row.forward)}"


def _find_outer(rows: list[Row], index: int) -> int | None:
    """The call around a call: the next one that ended whose name is a part of its own."""
    name = rows[index].name
    return next((i for i in range(index + 1, len(rows)) if _is_inside(name, rows[i].name)), None)


def _blame_between(rows: list[Row], outer: Row, inner: Row) -> str:
    """A layer that is wrong although none inside it is: after which of them, and before which."""
    before = rows[: rows.index(inner)]
    last = next(
        (r for r in reversed(before) if _is_inside(r.name, outer.name) and not _is_inside(r.name, inner.name)), None
    )
    after = f"after {last.name}" if last else f"in {outer.name}"
    worst = describe_worst(outer.forward) or describe_worst(inner.input)
    return (
        f"{outer.name} output, {_place(outer)}: its input agreed; {worst}; "
        f"{after} and before {inner.name}, whose input differs"
    )


# Backward


def _find_backward(rows: list[Row], weights: dict[str, WeightRow]) -> str:
    came_equal: dict[str, bool] = {}
    for row in rows:
        came_equal[row.name] = came_equal.get(row.name, True) and judge.is_equal(row.grad_output)
    return _search_backward(rows, weights, came_equal)


def _search_backward(rows: list[Row], weights: dict[str, WeightRow], came_equal: dict[str, bool]) -> str:
    """From the end: the first call with a difference. An outer layer is wrong because an inner one is."""
    after = None
    for index in range(len(rows) - 1, -1, -1):
        row = rows[index]
        if not judge.is_equal(row.grad_output):
            where = f"; it came about between {after.name} and {row.name}" if after else ""
            return f"{row.name} grad_output, {_place(row)}: {describe_worst(row.grad_output)}{where}"
        what, cell = "grad_input", row.backward
        if judge.is_equal(cell) and row.name in weights and came_equal[row.name]:
            what, cell = "weight gradient", weights[row.name].gradients
        if not judge.is_equal(cell):
            inner = [other for other in rows[:index] if _is_inside(other.name, row.name)]
            deeper = _search_backward(inner, weights, came_equal) if what == "grad_input" else ""
            agreed = "its grad_output agreed; " if row.grad_output else ""
            return deeper or f"{row.name} {what}, {_place(row)}: {agreed}{describe_worst(cell)}"
        after = row if row.grad_output else after
    return ""


# Weights


def _find_weights(weights: dict[str, WeightRow]) -> str:
    for row in weights.values():
        if not judge.is_equal(row.weights):
            return f"{row.name} weights, before step {row.step}: {describe_worst(row.weights)}"
        if not judge.is_equal(row.gradients):
            return f"{row.name} weight gradient, step {row.step}: {describe_worst(row.gradients)}"
    return ""
