"""Threads that start while a tool watches all of them: the mode goes onto each new thread's stack."""

from __future__ import annotations

import threading
from typing import Any

from ditorch import _C

_original: Any = None


def _bootstrap_inner(thread: threading.Thread) -> None:
    _C.mode_push()
    try:
        _original(thread)
    finally:
        _C.mode_pop()


def follow(on: bool) -> None:
    """Show the calls of threads started from now on, too. Threads that run already are left alone: another thread's
    mode stack cannot be reached."""
    global _original
    if on and _original is None:
        _original = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]
        threading.Thread._bootstrap_inner = _bootstrap_inner  # type: ignore[attr-defined]
    elif not on and _original is not None:
        threading.Thread._bootstrap_inner = _original  # type: ignore[attr-defined]
        _original = None
