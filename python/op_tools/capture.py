"""OpCapture: the inputs, results and gradients of operator calls as files, and how to read them again.

Files are read by plain torch.load(weights_only=True). Values that have no form there (slices, Ellipsis, named tuples
...) are dictionaries with the key "__ditorch__"; `load_item` turns them back into what they were, without executing
anything that the file says.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from ditorch import _C, settings

from . import results
from .console import count
from .reader.tagged import TAG, Described, restore
from .tool import Tool

__all__ = ["RESULTS", "TAG", "Case", "Described", "OpCapture", "find_cases", "load_item", "restore", "save_item"]
RESULTS = "op_capture_results"


class OpCapture(Tool):
    """Save what every operator was given and what it gave: inputs as they were before the call, the result, and the
    gradients of its backward.

    `layout="files"` writes <results>/op_capture_results/<operator>/<pid>/<id>/<time>/<what>.pth with a .json beside it;
    `layout="packed"` one container per process, which `ditorch export` turns into the same files. `write_ahead=True`
    has the inputs on disk before the operator runs. Caps: `cap_bytes` (10 GiB) and `cap_calls` (100,000) per
    process."""

    kind = "capture"
    name = "capture"
    verb = "captured"

    def engine_options(self, options: settings.ToolOptions) -> dict[str, Any]:
        return {**super().engine_options(options), "shown": options["results"].text or "."}

    def check(self, options: settings.ToolOptions) -> None:
        results.check_directory(options, type(self).__name__)

    def flush(self) -> None:
        """Have everything captured so far on disk; also after stop(), when a backward pass has run since."""
        if self._engine is not None:
            self._engine.flush()
        super().flush()

    def summary(self) -> str:
        facts = self.describe()
        size = facts["bytes"] - facts["shared"]
        text = f"OpCapture: {count(facts['items'], 'item')} ({_size(size)}) in {facts['root']} as {facts['layout']}"
        for key, words in (("failed", "could not be saved"), ("lost", "were lost"), ("errors", "calls failed")):
            if facts[key]:
                text += f"; {count(facts[key])} {words}"
        return f"{text}; {facts['problem']}" if facts["problem"] else text


def _size(number: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if number < 1024 or unit == "GiB":
            return f"{number:,.0f} {unit}" if unit == "bytes" else f"{number:,.1f} {unit}"
        number /= 1024
    raise AssertionError


# ---- writing one item


def save_item(path: str | os.PathLike, item: dict[str, Any]) -> None:
    """Write {"name", "args", "kwargs", "identifier"} as a file of a capture, with its .json, atomically."""
    _C.capture_write(path, item["name"], tuple(item["args"]), dict(item["kwargs"]), item["identifier"])


# ---- reading


def load_item(path: str | os.PathLike, map_location: Any = None, mmap: bool = False) -> dict[str, Any]:
    """The dictionary of a captured file: name, args, kwargs, identifier, with tagged values restored.

    Nothing in the file is executed. A ValueError says when the file holds more than plain data: the original's captures
    may, and reading such a file with torch.load(weights_only=False) runs whatever it contains."""
    import pickle

    try:
        item = torch.load(path, map_location=map_location, weights_only=True, mmap=mmap)
    except pickle.UnpicklingError as error:
        raise ValueError(
            f"{os.fspath(path)!r} holds objects that cannot be read safely: {str(error).splitlines()[0]}; if you trust "
            "the file, torch.load(path, weights_only=False) reads it"
        ) from error
    if not isinstance(item, dict) or "name" not in item or "args" not in item:
        raise ValueError(f"{os.fspath(path)!r} is no captured item: expected a dictionary with name, args and kwargs")
    item = {key: restore(value) for key, value in item.items()}
    return _modernise(item)


def _modernise(item: dict[str, Any]) -> dict[str, Any]:
    """The first version of the original kept (args, kwargs) in args."""
    args = item["args"]
    old = "identifier" not in item and not item.get("kwargs") and len(args) == 2
    if old and isinstance(args[0], tuple) and isinstance(args[1], dict):
        return {**item, "args": args[0], "kwargs": args[1]}
    return {"kwargs": {}, **item}


# ---- finding


@dataclass(frozen=True)
class Case:
    """One captured call: a folder with input.pth."""

    directory: str
    files: tuple[str, ...]
    """What is there: input, output, grad_inputs, grad_outputs, error; grad_inputs_1 of a second backward ..."""

    @property
    def name(self) -> str:
        """Of the operator."""
        return self.load("input")["name"]

    def get_path(self, what: str) -> str:
        return os.path.join(self.directory, f"{what}.pth")

    def load(self, what: str = "input", map_location: Any = None) -> dict[str, Any]:
        """The item (see load_item)."""
        return load_item(self.get_path(what), map_location=map_location)


def find_cases(root: str | os.PathLike = "op_tools_results") -> Iterator[Case]:
    """The captured calls below a folder, in the order of their paths (numbers by value)."""
    for directory, folders, names in os.walk(root):
        folders.sort(key=lambda name: (0, int(name), "") if name.isdecimal() else (1, 0, name))
        if "input.pth" in names:
            yield Case(directory, tuple(sorted(name[:-4] for name in names if name.endswith(".pth"))))
