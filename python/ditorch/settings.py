"""Options: one typed schema in libdit; the same option as keyword, environment variable (DITORCH_*) and key of a TOML
file."""

from __future__ import annotations

import os
from typing import Any

from . import _C
from .table import Table

CONFIG_VARIABLE = "DITORCH_CONFIG"


def load(config: str | None = None, overrides: dict[str, Any] | None = None) -> None:
    """Read the TOML file (argument, else DITORCH_CONFIG) and the environment, then apply keyword values on top."""
    _C.options_reset()
    _C.options_load(config or os.environ.get(CONFIG_VARIABLE) or None)
    for name, value in (overrides or {}).items():
        _C.option_set(name, _text(value))


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    return str(value)


def options() -> Table:
    """Every option: name, environment variable, value, default, where the value came from, and what it does."""
    return Table(("name", "value", "source", "environment", "help"), _C.options())


def get(name: str) -> Any:
    """The value of one option."""
    for row in _C.options():
        if row["name"] == name:
            return row["value"]
    raise KeyError(f"unknown option {name!r}; valid: {', '.join(row['name'] for row in _C.options())}")


def changed() -> list[dict]:
    """Options that differ from their default."""
    return [row for row in _C.options() if row["source"] != "default"]
