"""The results directory and the process's record log in it."""

from __future__ import annotations

import os
import platform
import re
import sys
from typing import Any, NamedTuple

from ditorch import _C
from ditorch.settings import ToolOptions

from . import console, selection


class Log(NamedTuple):
    """The log of one process."""

    pid: int
    rank: int
    folder: str
    others: frozenset[str]
    """Files that were in the folder before."""

    def get_files(self) -> list[str]:
        """Its files, oldest first; also after it was closed."""
        mark = f"ops-r{self.rank}-p{self.pid}."  # machines that share the folder may have equal process ids
        names = [name for name in os.listdir(self.folder) if name.startswith(mark) and name.endswith(".dlog")]
        paths = [os.path.join(self.folder, name) for name in names if name not in self.others]
        return sorted(paths, key=lambda path: (os.stat(path).st_mtime_ns, path))


_log: Log | None = None


def get_directory(options: ToolOptions) -> str:
    """The results directory as an absolute path: it stays the same when the program changes its directory."""
    return os.path.abspath(options["results"].text or ".")


def get_rank_directory(options: ToolOptions) -> str:
    """Where a tool's files go: a folder per rank when the program has several, for machines that share the results
    directory may have equal process ids."""
    directory = get_directory(options)
    if selection.get_world_size() > 1:
        return os.path.join(directory, f"rank{selection.get_rank()}")
    return directory


def open_log(options: ToolOptions, title: str, alone: bool) -> Log:
    """The log of this process below the results directory, opened now if it is not. A log elsewhere is closed when no
    other tool writes to it (`alone`), else it stays. OSError says what to do."""
    global _log
    folder = os.path.join(get_directory(options), "log")
    if _log is not None and _log.pid == os.getpid() and _C.log_path():
        if _log.folder == folder and os.path.isdir(folder):
            return _log
        if not alone:
            check_directory(options, title)
            console.say_once(f"{title}: the log stays in {shorten(_log.folder)}: other tools write to it")
            return _log
    try:
        os.makedirs(folder, exist_ok=True)
        others = frozenset(os.listdir(folder))
        _close_quietly()
        _C.log_open(folder, _metadata(), _log_options(options))
    except OSError as error:
        raise _refuse(options, title, error) from error
    _log = Log(os.getpid(), selection.get_rank(), folder, others)
    return _log


def _log_options(options: ToolOptions) -> dict[str, Any]:
    return {
        "pressure": options.get_value("log_pressure"),
        "queue_bytes": options.get_value("log_queue"),
        "rotate_bytes": options.get_value("log_rotate"),
        "rank": selection.get_rank(),
        "world_size": selection.get_world_size(),
    }


def _refuse(options: ToolOptions, title: str, error: OSError) -> OSError:
    option = options["results"]
    return OSError(
        f"{title}: the results directory {get_directory(options)!r} cannot be written: {error}. "
        f"It comes from {option.origin}; choose another one with results=... or OP_TOOLS_RESULTS"
    )


def shorten(path: str | None) -> str:
    """Relative to the current directory where that is shorter."""
    if not path:
        return ""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative


def check_directory(options: ToolOptions, title: str) -> None:
    """OSError when the results directory cannot be made or written."""
    directory = get_directory(options)
    try:
        os.makedirs(directory, exist_ok=True)
        if not os.access(directory, os.W_OK | os.X_OK):
            raise PermissionError(f"no permission to write {directory!r}")
    except OSError as error:
        raise _refuse(options, title, error) from error


def format_location(location: str, source: bool = True) -> str:
    """`train.py:7 (y = x.log())` of `<file>:<line> <function>: <source>`; relative to the current directory."""
    match = re.match(r"(.*?):(\d+) \S+: ?(.*)", location)
    if not match:
        return location
    text = f"{shorten(match[1]) if os.path.isabs(match[1]) else match[1]}:{match[2]}"
    line = match[3] if len(match[3]) <= 80 else match[3][:77] + "..."
    return f"{text} ({line})" if source and line else text


def flush_log() -> None:
    """Have everything recorded so far with the kernel; a disk that does not take it is said once, not raised."""
    try:
        _C.log_flush()
    except (OSError, RuntimeError, ValueError) as error:
        console.say_once(f"op_tools: the log is not complete: {error}")


def close_log() -> None:
    """Write everything out and close; a log of the parent process is left alone."""
    global _log
    if _log is not None and _log.pid == os.getpid():
        _log = None
        _C.log_close()


def _close_quietly() -> None:
    """An earlier log of this process, or, in a forked child, the parent's: that one the parent writes itself."""
    try:
        _C.log_close()
    except (OSError, RuntimeError, ValueError) as error:
        if _log is not None and _log.pid == os.getpid():
            console.say(f"op_tools: closing the log in {shorten(_log.folder)}: {error}")


def _metadata() -> dict[str, str]:
    """What the run was: stands in the header of the log."""
    import torch

    facts: dict[str, Any] = {
        "program": " ".join(sys.argv[:1]),
        "host": platform.node(),
        "directory": os.getcwd(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "ditorch": _C.version(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "threads": torch.get_num_threads(),
        "seed": torch.initial_seed(),
    }
    return {name: str(value) for name, value in facts.items()}
