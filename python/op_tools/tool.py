"""The base of the operator tools: options, start and stop, steps, and what is said about them.

A public class (OpObserve ...) names a tool of the engine and adds its own views; the work per call is done in C. Rules:
`start()` either succeeds or changes nothing; starting twice does nothing, stopping a stopped tool neither; tools may be
started and stopped in any order; an exception of the program is never replaced by one of a tool.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from ditorch import _C, settings

from . import collectives, compile_stance, console, constructors, engine_patches, modules, results, session
from .explanation import explain
from .selection import Selection
from .session import active_tools, step

_LIVE = {
    *("list", "disable_list", "include", "exclude", "modules", "module_paths", "steps", "every", "ranks", "first"),
    *("numel_min", "numel_max", "cpu", "fork", "console", "print_stack"),
}
"""Options that a running tool takes over."""
_COMMON = _LIVE | {"level", "threads", "compile", "log", "log_pressure", "log_queue", "log_rotate"}
"""Options that this class deals with: the C side does not see them."""


_Self = TypeVar("_Self", bound="Tool")


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
    live: frozenset[str] = frozenset()
    """Options of its own that it takes over while it is on."""
    borrowed: frozenset[str] = frozenset()
    """Options of another tool that it reads when it starts: a later change is meant for that tool, and not told."""

    announces = True
    """Says when it starts and stops; findings are told in any case."""

    def __init__(self, *, condition_func: Callable[..., Any] | None = None, **options: Any):
        self._arguments = options
        self._condition = condition_func
        self._options: Any = None
        self._selection: Any = None
        self._engine: Any = None
        self._engine_options: dict[str, Any] | None = None
        self._console: Any = None
        self._entered: list[bool] = []
        self._undo: list[Callable[[], Any]] = []
        self._told_steps = 0
        self._due_steps = 0
        self._due: bool | None = None
        self._first_step = 0
        self._first_record = 0
        self._log: Any = None
        self._attached = False
        self._set_up()

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if "name" in cls.__dict__:
            cls.__init__ = constructors.make_constructor(cls.name, Tool)  # type: ignore[method-assign]

    # What a subclass may change

    def _set_up(self) -> None:
        """What a new object has besides."""

    def engine_options(self, options: settings.ToolOptions) -> dict[str, Any]:
        """The dictionary for the C side: values by option name. A running tool keeps what it was started with."""
        names = [name for name, option in options.items() if name not in _COMMON and not isinstance(option, dict)]
        return {**{name: options.get_value(name) for name in names}, "results": results.get_directory(options)}

    def check(self, options: settings.ToolOptions) -> None:
        """Raise ValueError or OSError when the tool cannot start like this."""

    def summary(self) -> str:
        """More lines for the end, after the counts; called when the tool has stopped."""
        return ""

    def started(self) -> None:
        """The tool is on."""

    def stopped(self) -> None:
        """The tool is off; its results are complete."""

    # Start and stop

    @property
    def is_active(self) -> bool:
        """Between start() and stop()."""
        return self in session.active

    @property
    def options(self) -> settings.ToolOptions:
        """The options in force (of the last start, or as they would be now)."""
        return self._options or settings.resolve_tool(self.name, self._arguments)

    def start(self: _Self) -> _Self:
        """Switch the tool on. ValueError, TypeError or OSError say what is wrong with an option; nothing has changed
        then."""
        return self._begin(attached=False)

    def attach(self: _Self) -> _Self:
        """Like start(), but only calls of functions that have the tool in their hook (apply_feature) reach it, on
        every thread."""
        return self._begin(attached=True)

    def _begin(self: _Self, *, attached: bool) -> _Self:
        compile_stance.leave_region()
        with session.lock:
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
            self._attached = attached
            self._first_record = _C.log_counts()["committed"]
            try:
                self._switch_on(selection)
            except BaseException:
                self._switch_off()
                raise
            session.active.append(self)
        self._announce()
        self.started()
        return self

    def stop(self) -> None:
        """Switch it off, finish what is pending and say what was seen."""
        with session.lock:
            if not self.is_active:
                return
            session.active.remove(self)
            try:
                self._switch_off()
            finally:
                self._tell_end(self._engine.counts())
                results.flush_log()
                self.stopped()

    end = stop

    def __enter__(self: _Self) -> _Self:
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
        with session.lock:
            if self.is_active:
                self._told_steps += 1
                if self._first_step + self._told_steps > _C.engine_get_step():
                    session.advance()

    def flush(self) -> None:
        """Finish what is pending, and have everything recorded so far on disk."""
        if self._engine is not None and self.is_active:
            self._engine.flush()
        results.flush_log()

    def counts(self) -> dict[str, int]:
        """Calls seen since the start, applied, and why others were not."""
        return dict(self._engine.counts()) if self._engine is not None else {}

    def describe(self) -> dict[str, Any]:
        """The tool's results so far, from the C side."""
        return self._engine.describe() if self._engine is not None else {}

    def to_pandas(self) -> Any:
        """What the tool measured or found so far as a pandas DataFrame, one row per entry."""
        from ditorch.table import make_frame

        return make_frame(self._list_results())

    def _list_results(self) -> list[dict[str, Any]]:
        """The rows of a tool that has some, else its findings, else its counts."""
        for name in ("rows", "findings"):
            if hasattr(self, name):
                return list(getattr(self, name)())
        return [self.counts()] if self._engine is not None else []

    def __repr__(self) -> str:
        counts = self.counts()
        state = "on" if self.is_active else "off"
        return (
            f"<{self._title} {state}: {counts.get('seen', 0):,} calls seen, {counts.get('applied', 0):,} {self.verb}>"
        )

    def _repr_html_(self) -> str:
        import html

        shown = next((getattr(self, name) for name in ("table", "ledger") if hasattr(self, name)), None)
        table = shown()._repr_html_() if shown is not None and self._engine is not None else ""
        return f"<p>{html.escape(repr(self))}</p>{table}"

    def records(self, *types: str) -> Iterator[dict[str, Any]]:
        """What this kind of tool has written to the log since the last start of this one, as dictionaries (see
        ditorch.export.read); `types` chooses among call, backward, time, finding, capture."""
        from ditorch import export

        self.flush()
        files = self._log.get_files() if self._log else []
        for record in export.read(files, types or None) if files else ():
            if record["seq"] > self._first_record and record.get("tool", self.kind) == self.kind:
                yield record

    def tell_finding(self, headline: str, rows: list[tuple[str, str]], told: int, advice: list[str]) -> None:
        """The `told`-th finding on the short console, as a block, as long as max_findings allows; the first with what
        to do next, unless the program is about to be stopped by it."""
        limit = self._options.get_value("max_findings")
        if self._options.get_value("console") != "short" or (limit and told > limit):
            return
        if told == 1 and not self._options.get_value("stop"):
            rows = [*rows, *(("" if i else "next", text) for i, text in enumerate(advice))]
        console.say(console.format_block(f"{self._title}: {headline}", rows, sys.stderr))
        if told == limit:
            console.say(f"{self._title}: {console.count(limit, 'finding')} told; more are only counted (max_findings)")

    # Inside

    @property
    def _title(self) -> str:
        return type(self).__name__

    def _prepare_results(self, options: settings.ToolOptions) -> None:
        if options.get_value("log"):
            self._log = results.open_log(options, self._title, alone=not session.active)
        else:
            results.check_directory(options, self._title)

    def _switch_on(self, selection: Selection) -> None:
        """Everything that stop() has to take back goes to the undo list first."""
        options = self._options
        session.install()
        self._apply(selection)
        aten = options.get_value("level") == "aten" and not self._attached
        self._engine.set_aten(aten)
        self._engine.set_condition(self._condition)
        self._set_console(options)
        if options.get_value("compile") == "eager":
            compile_stance.acquire()
            self._undo.append(compile_stance.release)
        if options.get_value("threads") == "all" and not self._attached:
            session.threads.acquire()
            self._undo.append(session.threads.release)
        engine_patches.install()
        self._undo.append(engine_patches.remove)
        collectives.begin(self.kind)
        if not self._attached:
            collectives.acquire()
            self._undo.append(collectives.release)
        (self._engine.attach if self._attached else self._engine.start)()
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
            self._first_step, self._told_steps, self._due_steps = _C.engine_get_step(), 0, 0
            self._due = None  # unknown
            self._begin_step(self._first_step)
        else:
            self._set_due(selection.is_due(_C.engine_get_step()))

    def _begin_step(self, number: int) -> None:
        due = self._selection.is_due(number)
        self._due_steps += due
        self._set_due(due)

    def _set_due(self, due: bool) -> None:
        """Only changes are told: the engine asks all matchers again after one."""
        if due != self._due:
            self._due = due
            self._engine.set_due(due)

    def _set_console(self, options: settings.ToolOptions) -> None:
        if options.get_value("console") != "full":
            self._console = None
        else:
            stack = options.get_value("print_stack") > 0
            if self._console is None:
                from .legacy.console import create

                self._console = create(self.kind, print_stack=stack, **self.console_options(options))
                session.consoles.append(self._console)
            self._console._print_stack = stack
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
        if self._options.get_value("console") == "short" and self.announces:
            how = "on for hooked functions" if self._attached else "on"
            console.say_once(f"{self._title}: {how}, {text}{where}")

    def _tell_end(self, counts: dict[str, int]) -> None:
        text = explain(self, counts)
        if self._options.get_value("log"):
            _C.log_tool(self.kind, "summary", text)
            _C.log_tool(self.kind, "stop", "")
        if self._options.get_value("console") == "short" and self.announces:
            more = self.summary()
            console.say(f"{text}\n{more}" if more else text)

    def _leave_parent(self) -> None:
        """In a forked child: forget the parent's tool of the engine (which is off), take back what is Python's."""
        self._undo = [undo for undo in self._undo if getattr(undo, "__self__", None) is not self._engine]
        self._engine = None
        self._entered.clear()
        self._switch_off()

    # Changes while the tool is on

    def _refresh(self) -> None:
        """Options may have changed: take over what can change between two calls."""
        options = settings.resolve_tool(self.name, self._arguments)
        live = _LIVE | self.live
        later = [name for name, old in self._options.items() if name not in live and options[name] != old]
        for name in later:
            options[name] = self._options[name]
        if options != self._options:
            selection = Selection(options)
            self._options = options
            self._apply(selection)
            self._set_console(options)
        later = [name for name in later if name not in self.borrowed]
        if later:
            console.say_once(f"{self._title}: a change of {', '.join(later)} takes effect at the next start()")


__all__ = ["Tool", "active_tools", "step"]


def call_weakly(method: Callable[..., Any]) -> Callable[..., Any]:
    """The engine's tool keeps this; it must not keep the Python object alive."""
    reference = weakref.WeakMethod(method)

    def call(*args: Any) -> Any:
        target = reference()
        return target(*args) if target is not None else None

    return call
