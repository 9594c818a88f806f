"""The properties of derive.py: how an ordinary row is changed along each axis, and what counts as having reached it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from . import geometry
from .derive_rows import (
    DIM_PARAMETERS,
    REPEATED,
    SIZE_PARAMETERS,
    Row,
    get_largest,
    get_rank,
    get_sizes,
    is_list,
    is_tensor,
    list_shapes,
    map_shapes,
)

BORDER = 65536
HALVES = ("float32", "float64", "float16", "bfloat16")
INTEGERS = ("int64", "int32", "int8", "uint8", "int16")
LEAD = (2, 1, 3, 1, 2, 1, 2)
FREE_VALUES = {"normal", "uniform", "positive", "unit", "above_one", "small", "probability", "wide", "nonzero"}
FREE_VALUES |= {"large", "range", "distinct", "special", "nonfinite"}


class Property(NamedTuple):
    name: str
    propose: Callable[[Row, str], Iterator[list[Row]]]
    """Changes to try; of each list the first that the reference accepts is taken."""
    accepts: Callable[[Row, int], bool]
    """(row, elements of the largest result)"""
    limit: int
    """Rows per entry."""
    dtypes: tuple[str, ...] = ("float32", "bfloat16", "int64")
    layouts: tuple[str, ...] = ("contiguous",)
    layout_rows: int = 1
    once: bool = False
    """One entry per function is enough."""
    rows: int = 1000
    """Of the source entry, so many are looked at."""
    random: bool = False
    inplace: bool = False
    otherwise: tuple[str, ...] = ("int64", "bool", "complex64")
    """Dtypes of functions that have none of the others."""
    instead: str = ""
    """Only for functions that the rules except from this property."""


def _replace(row: Row, old: int, new: int, parameters: bool) -> Row:
    """Another size in the place of `old`, in every shape and, if asked, in parameters that are sizes."""
    found = map_shapes(row, lambda _, shape: [new if size == old else size for size in shape])
    for name, item in found.items():
        if is_tensor(item):
            if item.get("below") == old and new:
                item["below"] = new
        elif parameters and name in SIZE_PARAMETERS and item is not None:
            if isinstance(item, list):
                found[name] = [new if size == old else size for size in item]
            elif item == old and not isinstance(item, bool):
                found[name] = new
    return found


def _grow(row: Row, old: int, target: int) -> int:
    """The size that makes the largest tensor with `old` have about `target` elements."""
    rest, times = 1, 1
    for item in row.values():
        for shape in list_shapes(item):
            if old in shape:
                others = 1
                for size in shape:
                    others *= size if size != old else 1
                if others >= rest:
                    rest, times = others, shape.count(old)
    return max(int((target / rest) ** (1 / times)) + 1, old)


def _list_sizes(row: Row, above: int) -> list[int]:
    """Sizes that may change: those of a box or a point, numbers side by side, do not."""
    fixed = {
        item["shape"][-1]
        for item in row.values()
        if is_tensor(item) and item.get("values") in geometry.WIDTHS and item["shape"] and not is_list(item)
    }
    return [size for size in get_sizes(row) if size > above and size not in fixed]


def propose_border(row: Row, dtype: str) -> Iterator[list[Row]]:
    """One dimension of 65535, 65536 and 65537 elements."""
    if get_rank(row) == 1 and len(get_sizes(row)) == 1 and get_sizes(row)[0] > 1:
        for size in (BORDER + 1, BORDER, BORDER - 1):
            yield [_replace(row, get_sizes(row)[0], size, parameters) for parameters in _choose_parameters(row)]


def propose_size(row: Row, dtype: str) -> Iterator[list[Row]]:
    for old in _list_sizes(row, 1)[:2]:
        sizes = [_grow(row, old, target) for target in (BORDER + 1, 5 * BORDER)]
        yield [_replace(row, old, new, p) for new in sizes if new <= 3 * BORDER for p in _choose_parameters(row)]


def _choose_parameters(row: Row) -> tuple[bool, ...]:
    """Sizes may stand in parameters too: without a change there, and with it; in these alone that repeat shapes."""
    if any(name in REPEATED and not is_tensor(item) for name, item in row.items()):
        return (True,)
    return (False, True) if any(name in SIZE_PARAMETERS for name in row) else (False,)


def _accept_size(row: Row, outputs: int) -> bool:
    return outputs >= BORDER - 1


def _accept_long(row: Row, outputs: int) -> bool:
    return get_largest(row) > BORDER >= outputs


def _shift(value: Any, lead: int, tail: int) -> Any:
    if isinstance(value, list):
        return [_shift(item, lead, tail) for item in value]
    if value is None or isinstance(value, bool) or not isinstance(value, int):
        return value
    return value + lead if value >= 0 else value - tail


def _widen(row: Row, rank: int, total: int, where: str) -> Row:
    """Shapes of the row's rank get more dimensions, before, behind, or after the first one."""
    added = list(LEAD[: total - rank])

    def change(_: str, shape: list[int]) -> list[int]:
        if len(shape) != rank:
            return shape
        return {"lead": added + shape, "tail": shape + added, "middle": shape[:1] + added + shape[1:]}[where]

    found = map_shapes(row, change)
    for name, item in found.items():
        if name in DIM_PARAMETERS and not is_tensor(item):
            found[name] = _shift(item, len(added) if where != "tail" else 0, len(added) if where == "tail" else 0)
        elif name in ("size", "sizes", "repeats_size", "input_sizes") and isinstance(item, list) and len(item) == rank:
            found[name] = change(name, item)
    return found


def propose_rank(row: Row, dtype: str) -> Iterator[list[Row]]:
    rank = get_rank(row)
    if rank < 2 or rank > 4 or 0 in get_sizes(row):
        return
    rows = [{**row, "reduction": 0}, row] if row.get("reduction") else [row]  # a mean has no dimensions
    for total, order in (
        (5, ("lead", "tail", "middle")),
        (6, ("middle", "lead", "tail")),
        (8, ("tail", "lead", "middle")),
    ):
        yield [_widen(base, rank, total, where) for base in rows for where in order]


def _accept_rank(row: Row, outputs: int) -> bool:
    return get_rank(row) >= 5 and outputs > 0


def propose_dim(row: Row, dtype: str) -> Iterator[list[Row]]:
    """Every dim of the row as a negative number."""
    names = [name for name in row if name in DIM_PARAMETERS and not is_tensor(row[name]) and row[name] is not None]
    rank = max(
        (len(s) for n in ("input", "self", "inout", "grad_output", "tensors", "src") for s in list_shapes(row.get(n))),
        default=get_rank(row),
    )
    if not names or rank < 2 or 0 in get_sizes(row):
        return
    for name in names:
        value = row[name]
        values = [value - rank] if isinstance(value, int) and value >= 0 else []
        if isinstance(value, list):
            values = [[d - rank if d >= 0 else d for d in value], *([d - rank] for d in range(rank))]
        elif rank >= 3:
            values += [d - rank for d in range(rank)]
        for other in values:
            yield [{**copy.deepcopy(row), name: other}]


def _accept_dim(row: Row, outputs: int) -> bool:
    return outputs > 0


def _list_free(row: Row, dtype: str) -> list[str]:
    """Tensors that may hold any value."""
    found = []
    for name, item in row.items():
        if (
            is_tensor(item)
            and item["shape"] is not None
            and not is_list(item)
            and item.get("values", "normal") in FREE_VALUES
            and item.get("dtype", "same") in ("same", "wide", "real", dtype)
        ):
            found.append(name)
    return found


def propose_rows(row: Row, dtype: str, values: str = "rows") -> Iterator[list[Row]]:
    """Rows of -inf, NaN, zeros, subnormal numbers in one input after the other, with enough rows for all of them."""
    rank = get_rank(row)
    if rank < 2 or 0 in get_sizes(row):
        return
    dim = row.get("dim", row.get("axis"))
    if isinstance(dim, int) and -1 - rank < dim < rank and dim not in (-1, rank - 1):  # else it is a size
        return
    free = _list_free(row, dtype)
    first = next((shape[0] for item in row.values() for shape in list_shapes(item) if len(shape) == rank), 0)
    grown = [_replace(row, first, 19, p) for p in _choose_parameters(row)] if first in _list_sizes(row, 1) else []
    for base in [*grown, row]:
        for name in free[:3]:
            found = copy.deepcopy(base)
            found[name]["values"] = values
            yield [found]


def propose_calm(row: Row, dtype: str) -> Iterator[list[Row]]:
    """The same without infinities and NaN."""
    return propose_rows(row, dtype, "calm")


def propose_tiny(row: Row, dtype: str) -> Iterator[list[Row]]:
    """All inputs so small that float16 holds none of them: what is worked out in between must hold them."""
    free = [name for name, item in row.items() if name in _list_free(row, dtype) and get_largest({name: item})]
    if not free or get_largest(row) < 4:
        return
    found = copy.deepcopy(row)
    for name in free:
        found[name]["values"] = "tiny"
    only = copy.deepcopy(row)
    only[free[0]]["values"] = "tiny"
    yield [found]
    if len(free) > 1:
        yield [only]


def propose_extreme(row: Row, dtype: str) -> Iterator[list[Row]]:
    """Largest and least integers."""
    if get_largest(row) < 4:
        return
    for name, item in row.items():
        if (
            is_tensor(item)
            and item["shape"] is not None
            and item.get("values", "normal") in ("normal", "integers", "nonzero", "distinct", "ties")
            and item.get("dtype", "same") == "same"
        ):
            found = copy.deepcopy(row)
            found[name]["values"] = "special"
            yield [found]


def propose_empty(row: Row, dtype: str) -> Iterator[list[Row]]:
    """Each size in turn becomes nothing."""
    for old in _list_sizes(row, 0):
        yield [_replace(row, old, 0, parameters) for parameters in _choose_parameters(row)]


def _accept_any(row: Row, outputs: int) -> bool:
    return True


def _is_broadcast(row: Row) -> bool:
    shapes = [shape for item in row.values() for shape in list_shapes(item)]
    return any(
        1 in one and any(len(one) == len(two) and one != two for two in shapes) for one in shapes if len(one) > 1
    )


def propose_broadcast(row: Row, dtype: str) -> Iterator[list[Row]]:
    """Each dimension of each input in turn has one element, for functions whose ordinary cases do so too."""
    if not _is_broadcast(row) or 0 in get_sizes(row):
        return
    tensors = [name for name, item in row.items() if is_tensor(item) and not is_list(item) and item["shape"]]
    if not tensors:
        return
    full = max((row[name]["shape"] for name in tensors), key=len)
    whole = list(full)
    for name in tensors:
        shape = row[name]["shape"]
        for back in range(1, len(shape) + 1):
            whole[-back] = max(whole[-back], shape[-back])
    base = map_shapes(row, lambda n, s: whole if n in tensors else s)
    for name in tensors:
        for place in range(len(whole)):
            found = copy.deepcopy(base)
            found[name]["shape"] = [*whole[:place], 1, *whole[place + 1 :]]
            yield [found]
        if len(whole) > 1:
            found = copy.deepcopy(base)
            found[name]["shape"] = whole[1:]
            yield [found]


def propose_threads(row: Row, dtype: str) -> Iterator[list[Row]]:
    """A size large enough for threads to meet; where none can grow, the row as it is."""
    for old in _list_sizes(row, 1):
        new = _grow(row, old, 6000)
        yield [_replace(row, old, new, parameters) for parameters in _choose_parameters(row)]
    yield [row]


PROPERTIES = (
    Property("border", propose_border, _accept_size, 3, layouts=("contiguous", "offset"), random=True, inplace=True),
    Property(
        "size", propose_size, _accept_size, 2, rows=2, layouts=("contiguous", "strided"), random=True, inplace=True
    ),
    Property("long", propose_size, _accept_long, 1, rows=2, random=True),
    Property("rank", propose_rank, _accept_rank, 3, layouts=("contiguous", "strided", "transposed"), layout_rows=2),
    Property("dim", propose_dim, _accept_dim, 8, dtypes=("float32",), once=True),
    Property("rows", propose_rows, _accept_any, 3, HALVES, layouts=("contiguous", "strided"), otherwise=()),
    Property(
        *("calm", propose_calm, _accept_any, 3, HALVES),
        layouts=("contiguous", "strided"),
        otherwise=(),
        instead="rows",
    ),
    Property("tiny", propose_tiny, _accept_dim, 2, ("float32", "bfloat16", "float64"), otherwise=(), once=True),
    Property("extreme", propose_extreme, _accept_any, 3, INTEGERS, otherwise=()),
    Property("empty", propose_empty, _accept_any, 6, dtypes=("float32",), once=True, random=True),
    Property("broadcast", propose_broadcast, _accept_dim, 8, ("float32",), ("contiguous", "strided"), 8, once=True),
    Property("threads", propose_threads, _accept_dim, 1, dtypes=("float32",), layouts=("threads", "shared"), once=True),
)
