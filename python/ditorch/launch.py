"""Run a program under ditorch exactly as `python` would: argv, path, __main__, exit status, tracebacks."""

from __future__ import annotations

import importlib.machinery
import io
import os
import pkgutil
import runpy
import shutil
import sys
import types
from typing import Any

from .command.parser import suggest


def run(words: list[str]) -> int:
    """`words` is `script [args]`, `-m module [args]`, `-c code [args]` or `- [args]`. The installation is done
    already."""
    if words[0] == "-m":
        return _run_module(words[1], words[2:])
    if words[0] == "-c":
        return _run_code(words[1], "<string>", ["-c", *words[2:]])
    if words[0] == "-":
        return _run_code(sys.stdin.read(), "<stdin>", words)
    return _run_script(words[0], words[1:])


def find_command(word: str) -> str | None:
    """The word, when the shell would find it; else its path beside this Python (torchrun in an environment that is not
    active)."""
    if shutil.which(word):
        return word
    return shutil.which(word, path=os.path.dirname(sys.executable)) if os.path.basename(word) == word else None


def check(words: list[str]) -> str | None:
    """What is wrong with a script before anything is installed; the first line is python's."""
    if words[0].startswith("-"):
        return None
    path = words[0]
    try:
        with open(path, "rb"):
            return None
    except IsADirectoryError:
        if os.path.exists(os.path.join(path, "__main__.py")):
            return None
        return f"{_program()}: can't find '__main__' module in {os.path.abspath(path)!r}"
    except OSError as error:
        text = f"{_program()}: can't open file {os.path.abspath(path)!r}: [Errno {error.errno}] {error.strerror}"
        hint = _explain_missing(path) if isinstance(error, FileNotFoundError) else ""
        return f"{text}\n{hint}" if hint else text


def _explain_missing(path: str) -> str:
    folder, name = os.path.split(path)
    if not folder and find_command(name):
        return f"{name} is a command: write it behind two dashes, -- {name} ..."
    try:
        there = [entry for entry in os.listdir(folder or ".") if entry.endswith(".py")]
    except OSError:
        return ""
    return suggest(name, there).removeprefix("; ")


def _program() -> str:
    return sys.orig_argv[0] if sys.orig_argv else sys.executable


def _fresh_main(**attributes: Any) -> types.ModuleType:
    """A new __main__, kept for the life of the process as python keeps its own."""
    module = types.ModuleType("__main__")
    module.__dict__.update({"__builtins__": __builtins__, "__annotations__": {}, **attributes})
    sys.modules["__main__"] = module
    return module


def _set_path(first: str | None) -> None:
    """sys.path[0] belongs to the program, not to `-m ditorch`. With -P python prepends nothing."""
    if sys.flags.safe_path if hasattr(sys.flags, "safe_path") else sys.flags.isolated:
        return
    if sys.path:
        sys.path[0] = first if first is not None else os.getcwd()


def _execute(code: types.CodeType, namespace: dict) -> None:
    exec(code, namespace)


def _run_script(path: str, arguments: list[str]) -> int:
    sys.argv[:] = [path, *arguments]
    _hook_tracebacks()
    if os.path.isdir(path) or _is_zip(path):
        _fresh_main()
        _set_path(os.path.abspath(path))
        return _run_as_main("__main__", False)
    _set_path(os.path.dirname(os.path.realpath(path)))
    path = os.path.abspath(path)  # as python does since 3.9; sys.argv[0] stays as given
    loader = importlib.machinery.SourceFileLoader("__main__", path)
    module = _fresh_main(__file__=path, __cached__=None, __loader__=loader, __spec__=None, __package__=None)
    _execute(_read_code(path), module.__dict__)
    return 0


def _is_zip(path: str) -> bool:
    import zipfile

    return path.endswith((".zip", ".pyz")) and zipfile.is_zipfile(path)


def _read_code(path: str) -> types.CodeType:
    with io.open_code(path) as file:
        code = pkgutil.read_code(file)
    if code is not None:
        return code
    with io.open_code(path) as file:
        return compile(file.read(), path, "exec", dont_inherit=True)


def _run_code(text: str, name: str, arguments: list[str]) -> int:
    sys.argv[:] = arguments
    _hook_tracebacks()
    _set_path("")
    module = _fresh_main(__loader__=importlib.machinery.BuiltinImporter, __spec__=None, __package__=None)
    _execute(compile(text, name, "exec", dont_inherit=True), module.__dict__)
    return 0


def _run_module(name: str, arguments: list[str]) -> int:
    sys.argv[:] = ["-m", *arguments]
    _hook_tracebacks()
    _set_path(None)
    _fresh_main()
    return _run_as_main(name, True)


def _run_as_main(name: str, alter_argv: bool) -> int:
    """What the interpreter itself calls for -m, directories and archives."""
    runpy._run_module_as_main(name, alter_argv=alter_argv)  # type: ignore[attr-defined]
    return 0


_ENTRY_POINTS = {_execute.__code__, _run_as_main.__code__}
_COMPILERS = {_read_code.__code__, _run_code.__code__}


def _trim(traceback: types.TracebackType | None) -> types.TracebackType | None:
    """The traceback from the program's first frame on."""
    current = traceback
    while current is not None:
        code = current.tb_frame.f_code
        if code in _ENTRY_POINTS or (code in _COMPILERS and current.tb_next is None):
            return current.tb_next
        current = current.tb_next
    return traceback


def _hook_tracebacks() -> None:
    """Print uncaught exceptions without the frames of ditorch. A hook that the program sets replaces this one."""
    native = sys.excepthook

    def excepthook(kind, value, traceback):
        trimmed = _trim(traceback)
        native(kind, value.with_traceback(trimmed), trimmed)

    sys.excepthook = excepthook
