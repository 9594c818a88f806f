"""apply_feature: a tool around chosen functions only, wherever the program calls them from.

    apply_feature(["torch.nn.functional.linear", torch.add], "op_capture", lambda *args, **kwargs: args[0].dim() == 3)

The function is replaced where programs look it up; the work per call is done by the hook in C. Without a call of
apply_feature nothing is changed, and remove_feature() brings everything back.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from typing import Any

from . import console, features, session, targets
from .targets import Refusal, Target


def always(*args: Any, **kwargs: Any) -> bool:
    """The condition of a feature that has none."""
    return True


def apply_feature(
    ops: Any, feature: str, condition_func: Callable[..., Any] = always, *, everywhere: bool = False
) -> None:
    """Put a tool around functions.

    `ops`: a dotted name, a function, a method or a module, or a list or tuple of these, nested as you like. `feature`:
    fallback, autocompare, measure_op_time, dump_op_args, cast_dtype, op_capture or overflow_check. `condition_func` is
    called with the arguments of each call; a false answer leaves that call alone. `everywhere`: also replace the names
    under which loaded modules have imported the functions (`from torch.nn.functional import linear`).

    A function may have several features; the same one again replaces its condition. The options of the tools come from
    the environment or the file. Raises AssertionError for arguments of the wrong kind, ValueError for an empty name,
    AttributeError or ImportError for a name that does not exist; nothing is changed then. What exists but cannot be
    hooked is said on the console.
    """
    _check_ops(ops)
    _check_feature(feature)
    assert callable(condition_func), f"condition_func is {condition_func!r}, which cannot be called"
    hook = f"{features.TOOLS[feature]}Hook"
    wanted, refusals = _split(_resolve(ops))
    condition = None if condition_func is always else condition_func
    refusals += features.apply(wanted, feature, condition, everywhere) if wanted else []
    for refusal in refusals:
        console.say(f"can not apply {hook} to {refusal}")


def remove_feature(ops: Any = None, feature: str | None = None) -> None:
    """Take a feature (None: every one) off functions (None: all that have one).

    A function without any feature left is the original object again; a tool that no function uses any more stops and
    says what it saw."""
    if feature is not None:
        _check_feature(feature)
    with session.lock:
        if ops is None:
            entries = features.list_entries()
        else:
            _check_ops(ops)
            found, _ = _split(_resolve(ops))
            entries = [entry for entry in map(features.find, found) if entry is not None]
        count = features.remove(entries, feature)
    if not count and ops is not None:
        console.say(f"remove_feature: nothing to remove: {feature or 'no feature'} is not on {_name(ops)}")


def list_features() -> features.FeatureRows:
    """The hooked functions: rows of (op, feature, condition, place, references, active). As text, a table."""
    return features.list_rows()


def _check_ops(ops: Any) -> None:
    assert isinstance(ops, (str, list, tuple, types.ModuleType)) or callable(ops), (
        f"ops is {ops!r}; wanted is a name, a function or a module, or a list or tuple of them"
    )


def _check_feature(feature: Any) -> None:
    assert isinstance(feature, str) and feature in features.TOOLS, (
        f"feature is {feature!r}; valid: {', '.join(features.TOOLS)}"
    )


def _resolve(ops: Any) -> Iterator[Target | Refusal]:
    if isinstance(ops, (list, tuple)):
        for item in ops:
            yield from _resolve(item)
    else:
        yield from targets.resolve(ops)


def _split(found: Iterator[Target | Refusal]) -> tuple[list[Target], list[str]]:
    """Each place once."""
    wanted: dict[tuple[int, str], Target] = {}
    refusals: dict[str, None] = {}
    for item in found:
        if isinstance(item, Refusal):
            refusals[str(item)] = None
        else:
            wanted.setdefault(item.key, item)
    return list(wanted.values()), list(refusals)


def _name(ops: Any) -> str:
    return ops if isinstance(ops, str) else targets._shorten(ops)
