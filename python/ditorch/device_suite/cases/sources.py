"""Where test cases come from: the files of a PyTorch checkout, or the suites over what is in the wheel of torch.

Depends on the standard library alone.
"""

from __future__ import annotations

import difflib
import fnmatch
import os
from typing import NamedTuple

from ..arguments import UsageError

SUITES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "suites")

RANKS = "3"


def _ranks(backend: str) -> dict[str, str]:
    """What PyTorch's own runner sets for its distributed tests; the embedded device offers a device per rank."""
    return {"BACKEND": backend, "WORLD_SIZE": RANKS, "INIT_METHOD": "file", "DITORCH_HOST_DEVICES": RANKS}


ENVIRONMENT = {"distributed_nccl": _ranks("nccl"), "distributed_gloo": _ranks("gloo")}
"""Of suites that need one."""


class Source(NamedTuple):
    """A file with test cases: its name in reports, where it is, and the folder that its cases run in ("": a
    temporary one)."""

    name: str
    path: str
    folder: str


def list_suites() -> list[str]:
    return sorted(name[:-3] for name in os.listdir(SUITES) if name.endswith(".py") and not name.startswith("_"))


def find_suites(words: str) -> list[Source]:
    """`words`: a comma list of names or shell patterns, or "all"."""
    known = list_suites()
    chosen = known
    if words != "all":
        groups = {name.partition("_")[0] for name in known}
        whole = [f"{word}*" if word in groups else word for word in map(str.strip, words.split(","))]
        chosen = choose(",".join(whole), known, "--suite", "suite")
    return [Source(name, os.path.join(SUITES, f"{name}.py"), "") for name in chosen]


def find_files(folder: str, words: str | None) -> list[Source]:
    """Test files of a checkout; without `words` those of its folder test/ itself, without the subfolders."""
    test = os.path.join(folder, "test")
    if not os.path.isdir(test):
        test = folder
    test = os.path.abspath(test)
    if not os.path.isdir(test):
        raise UsageError(f"--pytorch {folder!r}: there is no such folder; give a checkout of PyTorch, with test/ in it")
    known = list_files(test)
    if not known:
        raise UsageError(f"--pytorch {folder!r}: there is no test_*.py, neither here nor in test/")
    top = [name for name in known if os.sep not in name]
    chosen = choose(words, known, "--files", f"test file of {test}") if words else top or known
    return [Source(name, os.path.join(test, name), test) for name in chosen]


def list_files(test: str) -> list[str]:
    """Names below `test`, as PyTorch's own runner writes them, with .py."""
    found = []
    for place, folders, names in os.walk(test):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "__")))
        found += [os.path.relpath(os.path.join(place, name), test) for name in sorted(names) if _is_test(name)]
    return sorted(found, key=lambda name: (name.count(os.sep), name))


def _is_test(name: str) -> bool:
    return name.startswith("test_") and name.endswith(".py")


def choose(words: str, known: list[str], option: str, kind: str) -> list[str]:
    """Those of `known` that the words name, by name (with or without .py) or by shell pattern."""
    chosen: set[str] = set()
    for word in filter(None, (part.strip() for part in words.split(","))):
        names = {word, f"{word}.py"}
        found = [name for name in known if name in names] or fnmatch.filter(known, word)
        if not found:
            near = difflib.get_close_matches(word, known, 5) or [name for name in known if word in name][:5]
            raise UsageError(f"{option}: {word!r} is no {kind}; near: {', '.join(near) or ', '.join(known[:20])}")
        chosen.update(found)
    if not chosen:
        raise UsageError(f"{option} {words!r} names none; there are: {', '.join(known[:20])}")
    return [name for name in known if name in chosen]
