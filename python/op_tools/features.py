"""The functions that carry a hook: which place, which features, and the way back.

A place is an attribute of a module, class or object. It holds at most one hook (ditorch._C.Hook) however many features
it has; the tools behind the features are shared, one per feature, and on while some place has theirs. Invariant: what a
place held before comes back as the very same object when its last user is gone. All of this is under session.lock.
"""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ditorch import _C, settings
from ditorch.table import format_table

from . import collectives, console, session
from .targets import Target

TOOLS = {
    "fallback": "OpFallback",
    "autocompare": "OpAutoCompare",
    "measure_op_time": "OpTimeMeasure",
    "dump_op_args": "OpObserve",
    "cast_dtype": "OpDtypeCast",
    "op_capture": "OpCapture",
    "overflow_check": "OpOverflowCheck",
}
"""The public class behind each feature."""

_PRIVATE = ("torch._", "op_tools", "ditorch")
"""Modules whose references to a function stay as they are."""


class FeatureRow(NamedTuple):
    """One feature of one place."""

    op: str
    feature: str
    condition: Callable[..., Any] | None
    place: str
    references: int
    """Names in other modules that were replaced as well (everywhere=True)."""
    active: bool
    """False in a forked process that did not take the tool along."""


class FeatureRows(list):
    """A list of FeatureRow; as text, a table."""

    def __str__(self) -> str:
        columns = ("op", "feature", "condition", "place", "references")
        rows = [
            (
                row.op,
                row.feature if row.active else f"{row.feature} (off)",
                _describe(row.condition),
                row.place,
                row.references,
            )
            for row in self
        ]
        return format_table(columns, rows)


def _describe(condition: Callable[..., Any] | None) -> str:
    return "-" if condition is None else getattr(condition, "__qualname__", None) or repr(condition)


@dataclass
class Entry:
    """A place with a hook."""

    target: Target
    hook: Any
    installed: Any
    """What was put there: the hook, or a staticmethod or classmethod around it."""
    features: dict[str, Callable[..., Any] | None] = field(default_factory=dict)
    references: list[tuple[types.ModuleType, str]] = field(default_factory=list)
    users: int = 0
    """Of the collectives: started tools see it."""
    was_applied: bool = False
    """It has had a feature: other modules may have imported it."""

    def update(self) -> None:
        """The hook's list follows `features`."""
        live = [(_tools[feature], condition) for feature, condition in self.features.items() if feature in _tools]
        self.hook.features = [(tool._engine, condition) for tool, condition in live if tool.is_active]
        self.hook.open = self.users > 0


_entries: dict[tuple[int, str], Entry] = {}
_tools: dict[str, Any] = {}
_printers: dict[str, Any] = {}
"""Tools with the original's console, which lives as long as the process: used again."""
_watches_fork = False


# Places


def find(target: Target) -> Entry | None:
    """The entry of a place."""
    return _entries.get(target.key)


def find_function(hook: Any) -> list[Entry]:
    """The entries whose hook this is."""
    return [entry for entry in _entries.values() if entry.hook is hook]


def place(target: Target) -> Entry:
    """The entry of a place; the hook is put there when it has none. TypeError or AttributeError when it cannot be."""
    entry = find(target)
    if entry is not None and entry.target.read() is entry.installed:
        return entry
    if entry is not None:  # somebody replaced our hook: what is there now is the function to wrap
        _forget(entry)
    hook = _C.Hook(target.name, target.func)
    if target.path.startswith("torch.distributed."):
        collectives.prepare(hook, target.attribute)
    installed = target.wrap(hook)
    target.put(installed)
    entry = _entries[target.key] = Entry(target, hook, installed)
    return entry


def _forget(entry: Entry) -> None:
    """Its hook calls straight through from now on."""
    entry.features.clear()
    entry.users = 0
    entry.update()
    if _entries.pop(entry.target.key, None) is not None and entry.target.path.startswith("torch.distributed."):
        collectives.forget(entry.target.attribute)


def tidy(entries: Iterable[Entry]) -> None:
    """Restore the places among them that nobody uses any more."""
    gone = [entry for entry in entries if not entry.features and not entry.users]
    for entry in gone:
        _restore(entry)
        _forget(entry)
    applied = {id(entry.hook): entry.target.func for entry in gone if entry.was_applied}
    if applied:
        _restore_imports(applied)


def _restore(entry: Entry) -> None:
    target = entry.target
    if target.read() is not entry.installed:
        console.say(f"apply_feature: {target.path} holds something else by now: {target.read()!r}; it stays")
        return
    target.put(target.raw)


def _restore_imports(originals: dict[int, Any]) -> None:
    """Modules that imported a hook by name (or got it by everywhere=True) have the function again."""
    for module in _list_modules():
        names = vars(module)
        for name, value in list(names.items()):
            if type(value) is _C.Hook and id(value) in originals:
                names[name] = originals[id(value)]


def _list_modules() -> list[types.ModuleType]:
    return [module for module in list(sys.modules.values()) if isinstance(module, types.ModuleType)]


def replace_references(entries: Iterable[Entry]) -> None:
    """Names in the globals of loaded modules that mean the function itself mean its hook from now on."""
    by_function = {id(entry.target.func): entry for entry in entries}
    for module in _list_modules():
        if module.__name__.startswith(_PRIVATE):
            continue
        names = vars(module)
        for name, value in list(names.items()):
            entry = by_function.get(id(value))
            if entry is not None and value is entry.target.func:
                names[name] = entry.hook
                entry.references.append((module, name))


# Features


def get_tool(feature: str) -> Any:
    """The tool of a feature, on."""
    import op_tools

    tool = _tools.get(feature)
    if tool is None:
        options = _find_options(feature)
        kept = _printers.get(feature) if options else None
        tool = kept or getattr(op_tools, TOOLS[feature])(**options)
        if options:
            _printers[feature] = tool
    tool.attach()
    _tools[feature] = tool
    _watch_fork()
    return tool


def _find_options(feature: str) -> dict[str, Any]:
    """dump_op_args is there to print arguments: without a word of the user about the console it does."""
    if feature != "dump_op_args" or settings.resolve_tool("observe", {})["console"].source != "default":
        return {}
    return {"console": "full"}


def apply(targets: Iterable[Target], feature: str, condition: Callable[..., Any] | None, everywhere: bool) -> list[str]:
    """Add the feature to places; returns those it cannot be put on, each with the reason."""
    refused, entries = [], []
    with session.lock:
        was_on = feature in _tools and _tools[feature].is_active
        get_tool(feature)
        for target in targets:
            try:
                entry = place(target)
            except (AttributeError, TypeError) as error:
                refused.append(f"{target.path}: {error}")
                continue
            if feature in entry.features:
                console.say(
                    f"apply_feature: {target.path} has {feature} already: the condition "
                    f"{_describe(entry.features[feature])} is replaced by {_describe(condition)}"
                )
            entry.features[feature] = condition
            entry.was_applied = True
            entry.update()
            entries.append(entry)
        if everywhere and entries:
            replace_references(entries)
        if not was_on and not entries:
            _stop_unused()
    return refused


def remove(entries: Iterable[Entry], feature: str | None) -> int:
    """Take one feature (None: all) off the entries; returns how many there were."""
    count = 0
    with session.lock:
        entries = list(entries)
        for entry in entries:
            names = [name for name in entry.features if feature in (None, name)]
            for name in names:
                del entry.features[name]
            count += len(names)
            entry.update()
        tidy(entries)
        _stop_unused()
    return count


def _stop_unused() -> None:
    used = {feature for entry in _entries.values() for feature in entry.features}
    for feature in [name for name in _tools if name not in used]:
        _tools.pop(feature).stop()


def list_rows() -> FeatureRows:
    """What is hooked, in the order in which it was."""
    with session.lock:
        return FeatureRows(
            FeatureRow(
                entry.hook.op_name,
                feature,
                condition,
                entry.target.path,
                len(entry.references),
                feature in _tools and _tools[feature].is_active,
            )
            for entry in _entries.values()
            for feature, condition in entry.features.items()
        )


def list_entries() -> list[Entry]:
    """All places that have a hook."""
    return list(_entries.values())


def _watch_fork() -> None:
    """After session.install(), so that the tools are what they will be in the child when ours runs."""
    global _watches_fork
    if not _watches_fork:
        os.register_at_fork(after_in_child=_after_fork)
        _watches_fork = True


def _after_fork() -> None:
    """Tools that came along have a new engine, the others none."""
    for entry in _entries.values():
        entry.update()
