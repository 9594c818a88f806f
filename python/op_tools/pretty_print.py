"""Tables of arguments in the original's form. PrettyTable is imported when the first table is made."""

from __future__ import annotations

from typing import Any


def dict_data_list_to_table(data_dict_list: list[dict[str, Any]]) -> Any:
    """A PrettyTable of the rows; its columns are the rows' keys in the order in which they are first seen."""
    from prettytable import PrettyTable

    assert all(isinstance(row, dict) for row in data_dict_list), "data_dict should be dict"
    columns = list(dict.fromkeys(key for row in data_dict_list for key in row))
    table = PrettyTable()
    table.field_names = [str(column) for column in columns]
    table.add_rows([[row.get(column, "") for column in columns] for row in data_dict_list])
    return table


def _row(name: str, value: Any) -> dict[str, Any]:
    return {"name": name, **value} if isinstance(value, dict) else {"name": name, "value": value}


def packect_data_to_dict_list(op_name: str, inputs_dict: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows of a table for what serialize_args_to_dict returns; `op_name` is the label, e.g. "torch.add inputs"."""
    args = inputs_dict.get("args", ())
    rows: list[dict[str, Any]] = []
    for i, value in enumerate(args):
        if isinstance(value, (list, tuple)):
            rows.extend(_row(f"{op_name} [{i}][{j}]", item) for j, item in enumerate(value))
        else:
            rows.append(_row(f"{op_name}[{i}]" if len(args) > 1 else op_name, value))
    for key, value in inputs_dict.get("kwargs", {}).items():
        name = f"{op_name} {key}"
        # The name comes last for keyword tensors: in a call without positional arguments it is the ninth column.
        rows.append({**value, "name": name} if isinstance(value, dict) else {"name": name, "value": value})
    return rows
