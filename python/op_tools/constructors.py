"""Keyword parameters of the tools, with types, defaults and a line each, from the option schema of libdit.

What help() and inspect see is made here when a tool's class is; tools/gen_keywords.py writes the same for editors and
mypy. A default is what holds where neither the environment nor the file says anything; only what a caller gives wins
over those.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from typing import Any, Literal

import torch
from ditorch import _C

Names = str | list[str] | tuple[str, ...] | set[str] | frozenset[str]
Ranges = str | int | range | list[int] | list[str] | tuple[int | str, ...] | set[int]
Flag = bool | Literal[0, 1]
Size = int | str
Path = str | os.PathLike[str]
Casts = str | dict[torch.dtype, torch.dtype]
Tolerance = str | tuple[float, float]
Condition = Callable[..., Any] | None

TYPES: dict[str, tuple[str, Any]] = {
    "names": ("Names", Names),
    "patterns": ("Names", Names),
    "ranges": ("Ranges", Ranges),
    "bool": ("Flag", Flag),
    "int": ("int", int),
    "size": ("Size", Size),
    "string": ("Path", Path),
    "casts": ("Casts", Casts),
    "tolerance": ("Tolerance", Tolerance),
}
"""The types above and their names, by the schema's."""
CONDITION = "Asked with the arguments of each call; a false answer leaves the call alone."


def list_keywords(tool: str) -> list[dict[str, Any]]:
    """The schema's rows of one tool that are keywords by themselves."""
    return [row for row in _C.tool_options() if tool in row["tools"] and row["scope"] != "pattern"]


def list_patterns(tool: str) -> list[dict[str, Any]]:
    """Those whose keyword begins with the name of an operator: linear_op_dtype_cast_dict."""
    return [row for row in _C.tool_options() if tool in row["tools"] and row["scope"] == "pattern"]


def name_type(row: dict[str, Any]) -> str:
    """As the stub spells it."""
    if row["choices"]:
        return f"Literal[{', '.join(map(repr, row['choices']))}]"
    return TYPES[row["type"]][0]


def get_type(row: dict[str, Any]) -> Any:
    return Literal[tuple(row["choices"])] if row["choices"] else TYPES[row["type"]][1]


def read_default(row: dict[str, Any]) -> Any:
    """The schema's text as a value."""
    if row["type"] == "bool":
        return row["default"] == "1"
    if row["type"] in ("int", "size") and row["default"].isdigit():
        return int(row["default"])
    return row["default"]


def describe(tool: str) -> str:
    """A line for each option, for the constructor's docstring."""
    lines = [f"condition_func: {CONDITION}"]
    lines += [f"{row['name']}: {row['help']}" for row in list_keywords(tool)]
    lines += [f"<operator>_{row['name']}: {row['help']}" for row in list_patterns(tool)]
    return "\n".join(lines)


def make_signature(tool: str) -> inspect.Signature:
    keyword = inspect.Parameter.KEYWORD_ONLY
    found = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    found.append(inspect.Parameter("condition_func", keyword, default=None, annotation=Condition))
    for row in list_keywords(tool):
        found.append(inspect.Parameter(row["name"], keyword, default=read_default(row), annotation=get_type(row)))
    if patterns := list_patterns(tool):
        kind = functools.reduce(lambda a, b: a | b, {name_type(row): get_type(row) for row in patterns}.values())
        found.append(inspect.Parameter("per_operator", inspect.Parameter.VAR_KEYWORD, annotation=kind))
    return inspect.Signature(found, return_annotation=None)


def make_constructor(tool: str, base: type) -> Callable[..., None]:
    """`__init__` for a tool's class, as it looks to who asks."""

    def __init__(self: Any, **options: Any) -> None:
        base.__init__(self, **options)  # type: ignore[misc]

    __init__.__signature__ = make_signature(tool)  # type: ignore[attr-defined]
    __init__.__doc__ = describe(tool)
    return __init__
