"""Changes to PyTorch's Python side while a tool is active.

``torch`` takes a torch-function mode off its stack while it runs a function the mode saw, ``Tensor.backward`` included:
what the backward pass calls (the recomputation of a checkpoint, ``torch.autograd.Function.backward``, gradient hooks)
would stay unseen. While a tool is active the mode is therefore put back for the time of each run of the autograd
engine; the graph task carries it to the threads of other devices. The tools' own autograd hooks are registered without
Python code.

Invariant: ``install`` and ``remove`` come in pairs, in any order and from any thread; after the last ``remove`` torch
has its own functions back. A wrapper that somebody else kept does nothing but call the original.
"""

from __future__ import annotations

import functools
import threading
from typing import Any

import torch
import torch.autograd.graph
from ditorch import _C

_NAME = "_engine_run_backward"
_lock = threading.Lock()
_users = 0
_replaced: list[tuple[Any, Any, Any]] = []  # (module, original, ours)


def _wrap(original: Any) -> Any:
    @functools.wraps(original)
    def run_backward(*args: Any, **kwargs: Any) -> Any:
        pushed = _C.backward_enter()
        try:
            return original(*args, **kwargs)
        finally:
            _C.backward_leave(pushed)

    return run_backward


def install() -> None:
    """Called when a tool starts."""
    global _users
    with _lock:
        if _users == 0:
            _C.backward_hooks_install()
            ours: dict[int, Any] = {}
            for module in (torch.autograd.graph, torch.autograd):
                original = getattr(module, _NAME, None)
                if original is not None:
                    wrapper = ours.setdefault(id(original), _wrap(original))
                    setattr(module, _NAME, wrapper)
                    _replaced.append((module, original, wrapper))
        _users += 1


def remove() -> None:
    """Called when a tool stops; the last one takes the changes back."""
    global _users
    with _lock:
        if _users == 0:
            return
        _users -= 1
        if _users == 0:
            for module, original, wrapper in _replaced:
                if getattr(module, _NAME, None) is wrapper:
                    setattr(module, _NAME, original)
            _replaced.clear()
            _C.backward_hooks_remove()
