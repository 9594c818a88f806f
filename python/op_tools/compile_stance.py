"""torch.compile while a tool is on: compiled code runs eagerly, because a tool cannot look into it.

The stance of the compiler is set only when dynamo is loaded (a program that never compiles pays nothing), also when it
is loaded later; the stance that was there before comes back when the last tool stops. Nothing is compiled while a tool
is on, so no compiled code is made that knows the tool's mode.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
import threading
from typing import Any

from . import console

_DYNAMO = "torch._dynamo"
_lock = threading.RLock()
_users = 0
_before: Any = None
_ours: Any = None


class _Finder(importlib.abc.MetaPathFinder):
    """Notices the first import of dynamo while a tool is on."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != _DYNAMO:
            return None
        _forget_finder()
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            native = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                native(module)
                with _lock:
                    if _users:
                        _set()

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


_finder = _Finder()


def _forget_finder() -> None:
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)


def leave_region() -> None:
    """Inside of a compiled function nothing more is compiled on this thread, so that what follows is seen; the function
    that is left gives the compiler its thread back."""
    if _DYNAMO not in sys.modules:
        return
    from torch._C._dynamo import eval_frame

    if eval_frame.get_eval_frame_callback() not in (None, False):
        eval_frame.set_eval_frame(None)


def acquire() -> None:
    """A tool starts; every call needs a release()."""
    global _users
    with _lock:
        _users += 1
        if _users > 1:
            return
        if _DYNAMO in sys.modules:
            _set()
            tell()
        else:
            sys.meta_path.insert(0, _finder)


def release() -> None:
    """A tool stops; the last one brings the earlier stance back, unless the program has set another one since."""
    global _users, _before, _ours
    with _lock:
        _users = max(_users - 1, 0)
        if _users:
            return
        _forget_finder()
        if _ours is not None:
            from torch._dynamo import eval_frame

            tell()
            if eval_frame._stance is _ours:
                eval_frame._set_stance(_before)
            _before = _ours = None


def _set() -> None:
    global _before, _ours
    try:
        from torch._dynamo import eval_frame

        _before = eval_frame._stance
        sys.modules["torch"].compiler.set_stance("force_eager")
        _ours = eval_frame._stance
    except (AttributeError, ImportError):  # before torch 2.6
        console.say_once(
            "op_tools: calls inside code under torch.compile are not seen: this torch has no stance to set"
        )


def tell() -> None:
    """Say once that compiled code runs eagerly, when there is such code."""
    from torch._dynamo import eval_frame

    if _ours is not None and any(getattr(eval_frame, "cached_backends", {}).values()):
        console.say_once("op_tools: code under torch.compile runs eagerly while a tool is on (compile=leave: leave it)")
