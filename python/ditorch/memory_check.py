"""The memory checker: leaks, double frees, writes beyond the ends of blocks (docs/memory.md).

The work is done in C, for every algorithm and for pinned memory too. Findings are lines on stderr that begin with
"dipu memory checker: "; here they can be asked for.
"""

from __future__ import annotations

import gc
from typing import Any

from . import _C


def start(*, backtrace: bool = False, guard: int = 512, max_blocks: int = 10000, interval: int = 0) -> None:
    """Watch every block allocated from now on. `guard` bytes in front of and behind each of them (a multiple of 512)
    are looked at when it is freed; with `backtrace` each block remembers where it came from."""
    _C.memory_check_start(backtrace, max_blocks, interval, guard)


def stop() -> None:
    """Later blocks are not watched; those that are stay so until they are freed."""
    _C.memory_check_stop()


def is_on() -> bool:
    """Are new blocks watched?"""
    return _C.memory_check_is_on()


def state() -> dict[str, int]:
    """Live blocks and bytes, and how many of each kind of finding there were."""
    return _C.memory_check_state()


def blocks(since: int = 0) -> list[dict[str, Any]]:
    """The live blocks, oldest first; `since`: only those whose number is above it."""
    return _C.memory_check_blocks(since)


def verify() -> int:
    """Wait for the devices and look at all guard zones; how many were found damaged now."""
    return _C.memory_check_verify()


def report() -> None:
    """Write the report that also comes at exit."""
    _C.memory_check_report()


class Watch:
    """What a piece of code leaves behind: `leaks` after the with block."""

    def __init__(self, **options: Any) -> None:
        self._options = options
        self._started = False
        self._before: dict[str, int] = {}
        self._since = 0
        self.leaks: list[dict[str, Any]] = []
        """Blocks that were allocated inside and are still alive at the end."""
        self.damaged = 0
        """Guard zones that were written to, of blocks freed inside and of live ones."""

    def __enter__(self) -> Watch:
        self._started = not is_on()
        if self._started:
            start(**self._options)
        self._before = state()
        self._since = self._before["inserts"]
        return self

    def __exit__(self, *exception: object) -> None:
        gc.collect()
        verify()
        self.leaks = blocks(self._since)
        self.damaged = state()["damaged"] - self._before["damaged"]
        if self._started:
            stop()


def watch(**options: Any) -> Watch:
    """`with watch() as found:` looks at one piece of code; the options are those of start()."""
    return Watch(**options)
