"""Module tools: what every layer of a model was given and what it gave, in two runs, and where they part.

    from module_tools import CompLayerAcc, compare_accuracy

    with CompLayerAcc(model, is_dump_benchmark=True, is_fixed_input=False, data_path="accuracy_data"):
        train(model)                    # on the machine that is right
    ...                                 # the same on the other one, with is_dump_benchmark=False
    compare_accuracy("accuracy_data")

Importing this package starts nothing and touches no device. docs/tools/module-tools.md is its page.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .cmp_accuracy import CompLayerAcc as CompLayerAcc
    from .cmp_accuracy import compare_accuracy as compare_accuracy

_EXPORTS = {"CompLayerAcc": "cmp_accuracy", "compare_accuracy": "cmp_accuracy"}

__all__ = list(_EXPORTS)


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'module_tools' has no attribute {name!r}; it has {', '.join(sorted(_EXPORTS))}")
    value = getattr(import_module(f".{_EXPORTS[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(_EXPORTS)
