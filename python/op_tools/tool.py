"""The base of the operator tools: options, start and stop, steps, and what is said about them.

A public class (OpObserve ...) names a tool of the engine and adds its own views; the work per call is done in C. Rules:
`start()` either succeeds or changes nothing; starting twice does nothing, stopping a stopped tool neither; tools may be
started and stopped in any order; an exception of the program is never replaced by one of a tool.
"""

from __future__ import annotations

import atexit
import multiprocessing.util
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

from ditorch import _C, settings

from . import console, eager, engine_patches, modules, results, threads
from .selection import Selection, get_rank

_lock = threading.RLock()
_active: list[Tool] = []
"""In the order of their start."""
_registered = False


def step() -> int:
    """The next iteration begins, for all tools. Returns its number: 0 is what runs before the first call."""
    with _lock:
        number = _advance()
        for tool in _active:
            tool._told = number - tool._first_step
        return number


def _advance() -> int:
    number = _C.engine_step()
    for tool in list(_active):
        tool._begin_step(number)
    return number


def active_tools() -> list[Tool]:
    """The tools that are on, in the order of their start."""
    return list(_active)


class Tool:
    """A tool that watches operator calls between start() and stop(), or in a `with` block.

    Keyword arguments are the options of docs/options.md; they win over the environment and the file.
    `condition_func(*args, **kwargs)` is asked with the arguments of each call; a false answer leaves the call alone.
    """

    kind = ""
    """Of ditorch._C.Tool."""
    name = ""
    """Of the options: OP_<NAME>_... and the table [op_tools.<name>]."""
    verb = "seen"

    def __init__(self, *, condition_func: Callable[..., Any] | None = None, **options: Any):
        self._arguments = options
        self._condition = condition_func
        self._options: settings.ToolOptions | None = None
        self._selection: Selection | None = None
        self._engine: Any = None
        self._engine_options: dict[str, Any] | None = None
        self._console: Any = None
        self._entered: list[bool] = []
        self._undo: list[Callable[[], Any]] = []
        self._told = 0
        self._due_steps = 0
        self._first_step = 0
        self._first_record = 0
        self._log: results.Log | None = None

    # ---- what a subclass may change

    def engine_options(self, options: settings.ToolOptions) -> dict[str, Any]:
        """The dictionary for the C side: values by option name."""
        values = {name: option.value for name, option in options.items() if not isinstance(option, dict)}
        return {**values, "results": results.get_directory(options)}

    def check(self, options: settings.ToolOptions) -> None:
        """Raise ValueError or OSError when the tool cannot start like this."""

    def summary(self) -> str:
        """More lines for the end, after the counts; called when the tool has stopped."""
        return ""

    def started(self) -> None:
        """The tool is on."""

    def stopped(self) -> None:
        """The tool is off; its results are complete."""

    # ---- start and stop

    @property
    def is_active(self) -> bool:
        """Between start() and stop()."""
        return self in _active

    @property
    def options(self) -> settings.ToolOptions:
        """The options in force (of the last start, or as they would be now)."""
        return self._options or settings.resolve_tool(self.name, self._arguments)

    def start(self) -> Tool:
        """Switch the tool on. ValueError, TypeError or OSError say what is wrong with an option; nothing has changed
        then."""
        with _lock:
            if self.is_active:
                return self
            options = settings.resolve_tool(self.name, self._arguments)
            selection = Selection(options)
            if self._condition is not None and not callable(self._condition):
                raise TypeError(f"{self._title}: condition_func is {self._condition!r}, which cannot be called")
            self.check(options)
            self._prepare_results(options)
            engine_options = self.engine_options(options)
            if self._engine is None or engine_options != self._engine_options:
                self._engine = _C.Tool(self.kind, engine_options)
                self._engine_options = engine_options
            self._options = options
            self._first_record = _C.log_counts()["committed"]
            try:
                self._switch_on(selection)
            except BaseException:
                self._switch_off()
                raise
            _active.append(self)
        self._announce()
        self.started()
        return self

    def stop(self) -> None:
        """Switch it off, finish what is pending and say what was seen."""
        with _lock:
            if not self.is_active:
                return
            _active.remove(self)
            counts = {}
            try:
                self._switch_off()
            finally:
                counts = self._engine.counts()
                self._tell_end(counts)
        self.stopped()

    end = stop

    def __enter__(self) -> Tool:
        self._entered.append(self.is_active)
        try:
            return self.start()
        except BaseException:
            self._entered.pop()
            raise

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if self._entered and self._entered.pop():
            return  # an outer block or start() has it on
        try:
            self.stop()
        except Exception as failure:
            if error is None:
                raise
            # The program's own exception is on its way: it must not be hidden.
            console.say(f"{self._title}: stop() failed: {failure}")

    def step(self) -> None:
        """The next iteration begins. Several tools may each be told: an iteration counts once. Nothing when it is
        off."""
        with _lock:
            if self.is_active:
                self._told += 1
                if self._first_step + self._told > _C.engine_get_step():
                    _advance()

    def flush(self) -> None:
        """Finish what is pending, and have everything recorded so far on disk."""
        if self._engine is not None:
            self._engine.flush()
        _C.log_flush()

    def counts(self) -> dict[str, int]:
        """Calls seen since the start, applied, and why others were not."""
        return dict(self._engine.counts()) if self._engine is not None else {}

    def describe(self) -> dict[str, Any]:
        """The tool's results so far, from the C side."""
        return self._engine.describe() if self._engine is not None else {}

    def records(self, *types: str) -> Iterator[dict[str, Any]]:
        """What this tool has written to the log since its last start, as dictionaries (see ditorch.export.read);
        `types` chooses among call, backward, time, finding, capture."""
        from ditorch import export

        self.flush()
        for record in export.read(self._log.get_files() if self._log else [], types or None):
            if record["seq"] > self._first_record and record.get("tool", self.kind) == self.kind:
                yield record

    # ---- inside

    @property
    def _title(self) -> str:
        return type(self).__name__

    def _prepare_results(self, options: settings.ToolOptions) -> None:
        if options.get_value("log"):
            self._log = results.open_log(options, self._title, alone=not _active)
        else:
            results.check_directory(options, self._title)

    def _switch_on(self, selection: Selection) -> None:
        """Everything that stop() has to take back goes to the undo list first."""
        options = self._options
        _install()
        self._apply(selection)
        self._engine.set_aten(options.get_value("level") == "aten")
        self._engine.set_condition(self._condition)
        self._set_console(options)
        if options.get_value("compile") == "eager":
            eager.acquire()
            self._undo.append(eager.release)
        if options.get_value("threads") == "all":
            _threads.acquire()
            self._undo.append(_threads.release)
        engine_patches.install()
        self._undo.append(engine_patches.remove)
        self._engine.start()
        self._undo.append(self._engine.stop)

    def _switch_off(self) -> None:
        """Runs the whole undo list, then raises the first failure."""
        failure = None
        while self._undo:
            try:
                self._undo.pop()()
            except BaseException as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def _apply(self, selection: Selection) -> None:
        """Hand a selection to the engine; also while the tool is on."""
        tracks = bool(selection.modules) or self._options.get_value("module_paths")
        if tracks and modules.release not in self._undo:
            modules.acquire()
            self._undo.insert(0, modules.release)
        elif not tracks and modules.release in self._undo:
            self._undo.remove(modules.release)
            modules.release()
        self._selection = selection
        self._engine.set_matcher(selection.match)
        self._engine.set_modules(selection.module_filter)
        self._engine.set_limits(*selection.limits)
        self._engine.set_cpu(selection.cpu)
        if not self.is_active:
            self._first_step, self._told, self._due_steps = _C.engine_get_step(), 0, 0
            self._begin_step(self._first_step)
        else:
            self._engine.set_due(selection.is_due(_C.engine_get_step()))

    def _begin_step(self, number: int) -> None:
        due = self._selection.is_due(number)
        self._due_steps += due
        self._engine.set_due(due)

    def _set_console(self, options: settings.ToolOptions) -> None:
        if options.get_value("console") != "full":
            self._console = None
        elif self._console is None:
            from . import legacy

            self._console = legacy.create(self.kind, **self.console_options(options))
        self._engine.set_console(self._console)

    def console_options(self, options: settings.ToolOptions) -> dict[str, Any]:
        """Keyword arguments of the full console."""
        return {}

    def _announce(self) -> None:
        changed = self._options.changed()
        text = ", ".join(f"{name}={value}" for name, value in changed.items()) or "default options"
        where = f"; log {results.shorten(_C.log_path())}" if self._options.get_value("log") else ""
        if self._options.get_value("log"):
            _C.log_tool(self.kind, "start", text)
        if self._options.get_value("console") == "short":
            console.say_once(f"{self._title}: on, {text}{where}")

    def _tell_end(self, counts: dict[str, int]) -> None:
        if self._console is not None:
            self._console.close()
        text = self._explain(counts)
        if self._options.get_value("log"):
            _C.log_tool(self.kind, "summary", text)
            _C.log_tool(self.kind, "stop", "")
        if self._options.get_value("console") == "short":
            more = self.summary()
            console.say(f"{text}\n{more}" if more else text)

    def _explain(self, counts: dict[str, int]) -> str:
        """One line: how many calls, and why not the others; more when nothing was selected."""
        from .explanation import explain

        return explain(self, counts)

    def _leave_parent(self) -> None:
        """In a forked child: forget the parent's tool of the engine (which is off), take back what is Python's."""
        self._undo = [undo for undo in self._undo if getattr(undo, "__self__", None) is not self._engine]
        self._engine = None
        self._entered.clear()
        self._switch_off()

    # ---- changes while the tool is on

    def _refresh(self) -> None:
        """Options may have changed: take over what can change between two calls."""
        options = settings.resolve_tool(self.name, self._arguments)
        if options == self._options:
            return
        selection = Selection(options)
        engine_options = self.engine_options(options)
        later = sorted(name for name, value in engine_options.items() if self._fixed(name, value))
        self._options = options
        self._apply(selection)
        self._set_console(options)
        if later:
            console.say_once(f"{self._title}: a change of {', '.join(later)} takes effect at the next start()")

    def _fixed(self, name: str, value: Any) -> bool:
        """True for an option that has changed and that a running tool cannot take over."""
        return name not in _LIVE and value != self._engine_options.get(name)


_LIVE = {
    *("list", "disable_list", "include", "exclude", "modules", "module_paths", "steps", "every", "ranks", "first"),
    *("numel_min", "numel_max", "cpu", "console", "print_stack", "view", "view_rows", "max_cache_size"),
}
"""Options that a running tool takes over."""


class _Threads:
    """Counts the tools that watch every thread."""

    def __init__(self) -> None:
        self.users = 0

    def acquire(self) -> None:
        self.users += 1
        if self.users == 1:
            threads.follow(True)

    def release(self) -> None:
        self.users -= 1
        if self.users == 0:
            threads.follow(False)


_threads = _Threads()


# ---- the process


def _install() -> None:
    """Once per process, at the first start."""
    global _registered
    if _registered:
        return
    if not _C.environ_watch(_refresh_all):
        console.say_once("op_tools: changes of os.environ take effect at the next start(): an audit hook refused ours")
    atexit.register(_stop_all)
    os.register_at_fork(after_in_child=_after_fork)
    multiprocessing.util.register_after_fork(_stop_all, _stop_with_worker)
    _registered = True


def _stop_with_worker(stop: Callable[[], None]) -> None:
    """Processes of multiprocessing end without atexit: their own list of last things takes its place."""
    multiprocessing.util.Finalize(None, stop, exitpriority=100)


def _refresh_all() -> None:
    """Called by the engine at the first operator after a variable changed. A bad value must not fail an operator."""
    with _lock:
        for tool in list(_active):
            try:
                tool._refresh()
            except (ValueError, OSError, TypeError) as error:
                console.say_once(f"{type(tool).__name__}: the options before this change stay: {error}")
        _C.engine_invalidate()


def _stop_all() -> None:
    """At exit: stop what is on, in the order of the starts, and close the log."""
    for tool in list(_active):
        try:
            tool.stop()
        except Exception as error:
            console.say(f"{type(tool).__name__}: stop() at exit failed: {error}")
    try:
        results.close_log()
    except (OSError, RuntimeError) as error:
        console.say(f"op_tools: closing the log failed: {error}")


def _after_fork() -> None:
    """In a forked child every tool is off, except those that asked to stay."""
    global _lock
    _lock = threading.RLock()
    for part in (modules, eager, engine_patches):
        part._lock = threading.RLock()  # another thread of the parent may have held it
    inherited = list(_active)
    _active.clear()
    for tool in inherited:
        tool._leave_parent()
    for tool in inherited:
        if tool._options.get_value("fork"):
            try:
                tool.start()
            except Exception as error:
                console.say(f"{type(tool).__name__}: not on in the forked process {os.getpid()}: {error}")


__all__ = ["Tool", "active_tools", "get_rank", "step"]
