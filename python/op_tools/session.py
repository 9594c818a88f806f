"""What belongs to the process: the tools that are on, iterations, changes of the environment, forks and the exit."""

from __future__ import annotations

import atexit
import multiprocessing.util
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ditorch import _C

from . import compile_stance, console, engine_patches, modules, results
from . import threads as all_threads

if TYPE_CHECKING:
    from .tool import Tool

lock = threading.RLock()
active: list[Tool] = []
"""In the order of their start."""
consoles: list[Any] = []
"""Full consoles: what they hold back is printed at exit, as the original did."""
_installed = False


def step() -> int:
    """The next iteration begins, for all tools. Returns its number: 0 is what runs before the first call."""
    with lock:
        number = advance()
        for tool in active:
            tool._told_steps = number - tool._first_step
        return number


def advance() -> int:
    """The engine's next step, and whether each tool looks at it. Options that changed count from this step on, also
    when no operator came to notice them: a tool that is not due sees none."""
    if _C.environ_changed():
        _C.environ_refresh()
    number = _C.engine_step()
    for tool in list(active):
        tool._begin_step(number)
    return number


def active_tools() -> list[Tool]:
    """The tools that are on, in the order of their start."""
    return list(active)


class Threads:
    """Counts the tools that watch every thread."""

    def __init__(self) -> None:
        self.users = 0

    def acquire(self) -> None:
        self.users += 1
        if self.users == 1:
            all_threads.follow(True)

    def release(self) -> None:
        self.users -= 1
        if self.users == 0:
            all_threads.follow(False)


threads = Threads()


def install() -> None:
    """Once per process, at the first start."""
    global _installed
    if _installed:
        return
    if not _C.environ_watch(_refresh):
        console.say_once("op_tools: changes of os.environ take effect at the next start(): an audit hook refused ours")
    atexit.register(_stop)
    os.register_at_fork(after_in_child=_after_fork)
    multiprocessing.util.register_after_fork(_stop, _stop_with_worker)
    _installed = True


def _stop_with_worker(stop: Callable[[], None]) -> None:
    """Processes of multiprocessing end without atexit: their own list of last things takes its place."""
    multiprocessing.util.Finalize(None, stop, exitpriority=100)


def _refresh() -> None:
    """Called by the engine at the first operator after a variable changed. A bad value must not fail an operator."""
    with lock:
        for tool in list(active):
            try:
                tool._refresh()
            except (ValueError, OSError, TypeError) as error:
                console.say_once(f"{type(tool).__name__}: the options before this change stay: {error}")
        _C.engine_invalidate()


def _stop() -> None:
    """At exit: stop what is on, in the order of the starts, and close the log."""
    for tool in list(active):
        try:
            tool.stop()
        except Exception as error:
            console.say(f"{type(tool).__name__}: stop() at exit failed: {error}")
    for full in consoles:
        full.close()
    try:
        results.close_log()
    except (OSError, RuntimeError) as error:
        console.say(f"op_tools: closing the log failed: {error}")


def _after_fork() -> None:
    """In a forked child every tool is off, except those that asked to stay."""
    global lock
    lock = threading.RLock()  # another thread of the parent may have held it, or one of these
    for part in (modules, compile_stance, engine_patches, console):
        part._lock = threading.RLock()  # type: ignore[attr-defined]
    inherited = list(active)
    active.clear()
    consoles.clear()
    for tool in inherited:
        tool._leave_parent()
    for tool in inherited:
        if tool._options.get_value("fork"):
            try:
                tool._begin(attached=tool._attached)
            except Exception as error:
                console.say(f"{type(tool).__name__}: not on in the forked process {os.getpid()}: {error}")
