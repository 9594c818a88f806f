"""Operator tools: see, time, check and capture the operators of a PyTorch program, on any device.

    from op_tools import OpObserve

    with OpObserve():
        model(x)

Importing this package starts nothing and touches no device. docs/tools/ has a page per tool.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .autocompare import OpAutoCompare as OpAutoCompare
    from .autocompare import WrongResult as WrongResult
    from .capture import OpCapture as OpCapture
    from .custom_apply_hook import apply_feature as apply_feature
    from .custom_apply_hook import list_features as list_features
    from .custom_apply_hook import remove_feature as remove_feature
    from .dtype_cast import OpDtypeCast as OpDtypeCast
    from .fallback import OpFallback as OpFallback
    from .observe import OpDispatchWatcher as OpDispatchWatcher
    from .observe import OpObserve as OpObserve
    from .overflow_check import OpOverflowCheck as OpOverflowCheck
    from .session import step as step
    from .time_measure import OpTimeMeasure as OpTimeMeasure

_EXPORTS = {
    "OpAutoCompare": "autocompare",
    "OpCapture": "capture",
    "OpDispatchWatcher": "observe",
    "OpDtypeCast": "dtype_cast",
    "OpFallback": "fallback",
    "OpObserve": "observe",
    "OpOverflowCheck": "overflow_check",
    "OpTimeMeasure": "time_measure",
    "apply_feature": "custom_apply_hook",
    "list_features": "custom_apply_hook",
    "remove_feature": "custom_apply_hook",
    "WrongResult": "autocompare",
    "step": "session",
}

__all__ = list(_EXPORTS)


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'op_tools' has no attribute {name!r}; it has {', '.join(sorted(_EXPORTS))}")
    value = getattr(import_module(f".{_EXPORTS[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(_EXPORTS)
