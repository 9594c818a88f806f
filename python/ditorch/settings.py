"""Options: one typed schema in libdit; the same option as keyword, environment variable (DITORCH_*, and OP_* for the
operator tools) and key of a TOML file. The environment is read, never written."""

from __future__ import annotations

import functools
import os
from typing import Any, NamedTuple

from . import _C, dipu_variables
from .table import Table

CONFIG_VARIABLE = "DITORCH_CONFIG"

_loaded: str | None = None
"""The TOML file of the last load() that was given one."""


def load(config: str | None = None, overrides: dict[str, Any] | None = None) -> None:
    """Read the TOML file (argument, else DITORCH_CONFIG) and the environment, then apply keyword values on top."""
    global _loaded
    _C.options_reset()
    _loaded = config
    _C.options_load(config or os.environ.get(CONFIG_VARIABLE) or None)
    dipu_variables.apply()
    for name, value in (overrides or {}).items():
        _C.option_set(name, _text(value))


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    return str(value)


def options() -> Table:
    """Every option: name, environment variable, value, default, where the value came from, and what it does."""
    return Table(("name", "value", "source", "environment", "help"), _C.options())


def find(name: str) -> dict[str, Any]:
    """What `options` says about one of them."""
    for row in _C.options():
        if row["name"] == name:
            return row
    raise KeyError(f"unknown option {name!r}; valid: {', '.join(row['name'] for row in _C.options())}")


def get(name: str) -> Any:
    """The value of one option."""
    return find(name)["value"]


def changed() -> list[dict]:
    """Options that differ from their default."""
    return [row for row in _C.options() if row["source"] != "default"]


# Options of the operator tools


class ToolOption(NamedTuple):
    """One value in force: bool, int or str, and where it came from."""

    value: Any
    text: str
    source: str
    origin: str
    """How error messages about the value begin: `environment variable OP_OBSERVE_LIST`, `option 'list'`."""


class ToolOptions(dict):
    """Every option of one tool by name; the variables of a pattern (<OP>_OP_DTYPE_CAST_DICT) as a dictionary by key."""

    def get_value(self, name: str) -> Any:
        """The value alone."""
        return self[name].value

    def changed(self) -> dict[str, str]:
        """Name and text of what is not a default."""
        found = {}
        for name, option in self.items():
            for key, entry in option.items() if isinstance(option, dict) else (("", option),):
                if entry.source != "default":
                    found[f"{key.lower()}{'_' * bool(key)}{name}"] = entry.text
        return found


def _list_text(value: Any) -> str:
    if isinstance(value, dict):  # of dtypes
        return ",".join(f"{source}->{target}" for source, target in value.items())
    if isinstance(value, (list, tuple, set, frozenset, range)):
        return ",".join(_text(item) for item in value)
    return _text(value)


@functools.cache
def _pattern_names(tool: str) -> tuple[str, ...]:
    return tuple(row["name"] for row in _C.tool_options() if tool in row["tools"] and row["scope"] == "pattern")


def resolve_tool(tool: str, arguments: dict[str, Any] | None = None) -> ToolOptions:
    """The options of an operator tool ("observe", "capture" ...): arguments, environment, the [op_tools] tables of the
    TOML file, defaults. An argument of None is not given. ValueError names what is wrong and what is valid."""
    texts = {name: _list_text(value) for name, value in (arguments or {}).items() if value is not None}
    path = _loaded or os.environ.get(CONFIG_VARIABLE) or None
    options = ToolOptions((name, {}) for name in _pattern_names(tool))
    for row in _C.tool_options_resolve(tool, path, texts):
        option = ToolOption(row["value"], row["text"], row["source"], row["origin"])
        if row["key"] is None:
            options[row["name"]] = option
        else:
            options[row["name"]][row["key"]] = option
    return options


def tool_names() -> list[str]:
    """The operator tools that have options."""
    return sorted({tool for row in _C.tool_options() for tool in row["tools"]})


def tool_options(tool: str) -> Table:
    """Every option of one operator tool: name, value, where it came from, its variable, and what it does."""
    if tool not in tool_names():
        raise ValueError(f"tool {tool!r} is unknown; valid: {', '.join(tool_names())}")
    values = resolve_tool(tool)
    rows = []
    for schema in _C.tool_options():
        if tool not in schema["tools"]:
            continue
        value = values[schema["name"]]
        entries = value if isinstance(value, dict) else {"": value}
        for key, option in entries.items() or [("", None)]:
            rows.append(
                {
                    "name": f"{key.lower()}{'_' * bool(key)}{schema['name']}",
                    "value": option.text if option else "",
                    "source": option.source if option else "default",
                    "environment": schema["tools"][tool][0],
                    "help": schema["help"],
                }
            )
    return Table(("name", "value", "source", "environment", "help"), rows)
