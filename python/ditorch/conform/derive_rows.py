"""Rows of case entries as plain tables that can be changed and written again: what `ditorch conform derive` works on.

A row holds what each argument of a call is: a dict with shape, values, dtype ... for a tensor, or a parameter's value.
Depends on schema alone.
"""

from __future__ import annotations

import copy
import hashlib
import json
from typing import Any

from . import schema
from .schema import Column, Entry

PER_ROW = (("values", "values"), ("dtype", "dtypes"), ("below", "below"), ("data", "data"))
SIZE_PARAMETERS = {
    "normalized_shape",
    "size",
    "sizes",
    "input_sizes",
    "output_size",
    "in_size",
    "out_size",
    "bias_sizes",
}
SIZE_PARAMETERS |= {"num_classes", "numel", "steps", "n", "weight_sizes", "batch", "max_seq_len"}
REPEATED = {"B", "N", "M", "npoint", "npoints", "out_dim", "b", "c", "m", "nsample", "num_", "h_feature", "w_feature"}
REPEATED |= {"height", "width", "channels", "batch_size", "pooled_height", "pooled_width", "aligned_height"}
REPEATED |= {"aligned_width", "vocab_size", "vocab_size_padded", "vocab_size_padd", "hidden_units", "max_output_len"}
REPEATED |= {"max_gen_step", "input_lengths", "top_ks_size", "top_ps_size", "bad_words_len", "stop_words_len"}
REPEATED |= {"max_input_length"}
"""Parameters that say once more what a tensor's shape says, as functions of mmcv and lmdeploy have them: a change of
the shape changes them too. Other functions have sizes that stand in parameters alone (SIZE_PARAMETERS)."""
SIZE_PARAMETERS |= REPEATED
DIM_PARAMETERS = {"dim", "dims", "axis", "dim0", "dim1", "dim2", "begin_norm_axis"}

Row = dict[str, Any]


def is_tensor(item: Any) -> bool:
    return isinstance(item, dict) and "shape" in item


def is_list(item: Any) -> bool:
    """Does a list of tensors stand here?"""
    return is_tensor(item) and bool(item["shape"]) and (item["shape"][0] is None or isinstance(item["shape"][0], list))


def list_shapes(item: Any) -> list[list[int]]:
    if not is_tensor(item) or item["shape"] is None:
        return []
    return [shape for shape in item["shape"] if shape is not None] if is_list(item) else [item["shape"]]


def _take_column(column: Column, row: int) -> Any:
    if column.count:
        return {"count": column.count}
    if not column.is_tensor:
        return copy.deepcopy(column.at(row))
    item: Row = {"shape": copy.deepcopy(column.at(row))}
    for key, name in PER_ROW:
        given = getattr(column, name)
        if given:
            item[key] = given[row if len(given) > 1 else 0]
    for key in ("low", "high", "layout", "sparse"):
        if getattr(column, key) not in (None, ""):
            item[key] = getattr(column, key)
    return item


def take(entry: Entry, row: int) -> Row:
    """Row number `row` of an entry; outputs that the entry names stand under "outputs"."""
    found = {name: _take_column(column, row) for name, column in entry.arguments.items()}
    wanted = {name: given[row if len(given) > 1 else 0] for name, given in entry.outputs.items()}
    return {**found, "outputs": wanted}


def map_shapes(row: Row, change: Any) -> Row:
    """The row with change(name, shape) in the place of every shape."""
    found = copy.deepcopy(row)
    for name, item in found.items():
        if not is_tensor(item) or item["shape"] is None:
            continue
        if is_list(item):
            item["shape"] = [None if shape is None else change(name, shape) for shape in item["shape"]]
        else:
            item["shape"] = change(name, item["shape"])
    return found


def get_rank(row: Row) -> int:
    return max((len(shape) for item in row.values() for shape in list_shapes(item)), default=0)


def get_sizes(row: Row) -> list[int]:
    """Sizes of the row's shapes, those of the widest tensor first, each once."""
    shapes = sorted((shape for item in row.values() for shape in list_shapes(item)), key=len, reverse=True)
    return list(dict.fromkeys(size for shape in shapes for size in shape))


def get_largest(row: Row) -> int:
    """Elements of the largest tensor."""
    largest = 0
    for item in row.values():
        for shape in list_shapes(item):
            count = 1
            for size in shape:
                count *= size
            largest = max(largest, count)
    return largest


def is_same_data(before: Row, after: Row) -> bool:
    """Tensors whose values are written out keep their shapes."""
    return all(item == after[name] for name, item in before.items() if is_tensor(item) and "data" in item)


def _merge_column(items: list[Any]) -> Any:
    first = items[0]
    if isinstance(first, dict) and "count" in first:
        return first
    if not is_tensor(first):
        return items if any(item != first for item in items) else [first]
    same = all(item == first for item in items)
    table: Row = {"shape": [item["shape"] for item in (items[:1] if same else items)]}
    for key, _ in PER_ROW:
        given = [item[key] for item in items if key in item]
        if given:
            same = all(value == given[0] for value in given)
            if key == "data":
                table[key] = given[:1] if same else given
            else:
                table[key] = given[0] if same else given
    for key in ("low", "high", "layout", "sparse"):
        if key in first:
            table[key] = first[key]
    return table


def to_table(name: str, functions: list[str], source: Entry, rows: list[Row], **more: Any) -> Row:
    """An entry as a case file has it."""
    table: Row = {"name": name, "functions": functions, **more}
    if source.reference:
        table["reference"] = source.reference
    if source.random:
        table["random"] = True
    if source.optional:
        table["optional"] = list(source.optional)
    outputs = {key: [row["outputs"][key] for row in rows] for key in source.outputs}
    if outputs:
        table["outputs"] = {
            key: given[:1] if all(x == given[0] for x in given) else given for key, given in outputs.items()
        }
    names = [key for key in rows[0] if key != "outputs"]
    table["arguments"] = {key: _merge_column([row[key] for row in rows]) for key in names}
    return table


def get_digest(row: Row) -> str:
    """A short name for a row, by what it holds."""
    return hashlib.shake_128(json.dumps(row, sort_keys=True).encode()).hexdigest(4)


def split(table: Row, family: str) -> tuple[Entry, list[Row]]:
    """The entry of a table, and its rows."""
    entry = to_entry(table, family)
    return entry, [take(entry, number) for number in range(entry.rows)]


def to_entry(table: Row, family: str) -> Entry:
    """The entry that a table means; schema.SchemaError when it is none."""
    return schema._read_entry("derived", family, copy.deepcopy(table))
