"""Which nn.Module a call comes from.

While a tool wants it, global forward hooks tell the engine the path of the module that is being called, such as
`GPT.layers.0.attn`: the class of the outermost module, then the names of `named_modules`. A module keeps the path under
which it was first seen inside a larger one, so that recomputed activations (checkpointing calls a block on its own)
carry the same path as in the first run.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

from ditorch import _C

_lock = threading.RLock()
_users = 0
_handles: list[Any] = []
_paths: dict[int, tuple[weakref.ref, str]] = {}
_epoch = 0
"""Counts the times the hooks were taken away: a stack of an earlier time is stale."""


class _Local(threading.local):
    """Modules that are being called on this thread, outermost first, with their paths."""

    def __init__(self) -> None:
        self.stack: list[tuple[Any, str]] = []
        self.epoch = _epoch


_local = _Local()


def acquire() -> None:
    """Start to follow modules; every call needs a release()."""
    global _users
    with _lock:
        _users += 1
        if _users == 1:
            from torch.nn.modules import module

            _handles.append(module.register_module_forward_pre_hook(_enter))
            _handles.append(module.register_module_forward_hook(_leave, always_call=True))


def release() -> None:
    """The last one takes the hooks away."""
    global _users, _epoch
    with _lock:
        _users = max(_users - 1, 0)
        if _users == 0:
            _epoch += 1
            while _handles:
                _handles.pop().remove()
            _stack()  # this thread may be inside a module; others notice at their next module


def _stack() -> list:
    if _local.epoch != _epoch:
        for _ in _local.stack:
            _C.engine_module_pop()
        _local.stack, _local.epoch = [], _epoch
    return _local.stack


def _enter(module: Any, inputs: Any) -> None:
    stack = _stack()
    path = find_path(module, stack)
    stack.append((module, path))
    _C.engine_module_push(path)


def _leave(module: Any, inputs: Any, output: Any) -> None:
    stack = _stack()
    if stack and stack[-1][0] is module:
        stack.pop()
        _C.engine_module_pop()
        return
    if not any(entry[0] is module for entry in stack):
        return  # its beginning was not seen: the tool was started inside it
    # An entry above it whose end was missed (a forward that was abandoned) must not name what comes after it.
    while stack.pop()[0] is not module:
        _C.engine_module_pop()
    _C.engine_module_pop()


def find_path(module: Any, stack: list) -> str:
    """The path of a module that is about to be called inside those of `stack`."""
    known = _paths.get(id(module))
    if known is not None and known[0]() is module:
        return known[1]
    root, path = (stack[0][0], stack[0][1]) if stack else (module, type(module).__name__)
    for name, child in root.named_modules():
        _remember(child, f"{path}.{name}" if name else path)
    known = _paths.get(id(module))
    if known is not None and known[0]() is module:
        return known[1]
    # Called by a module that does not own it.
    _remember(module, f"{stack[-1][1]}.{type(module).__name__}")
    return _paths[id(module)][1]


def _remember(module: Any, path: str) -> None:
    key = id(module)

    def forget(dead: weakref.ref) -> None:
        if _paths.get(key, (None,))[0] is dead:
            del _paths[key]

    _paths[key] = (weakref.ref(module, forget), path)
