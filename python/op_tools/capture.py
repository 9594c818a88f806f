"""OpCapture: the inputs, results and gradients of operator calls as files, and how to read them again.

Files are read by plain torch.load(weights_only=True). Values that have no form there (slices, Ellipsis, named tuples
...) are dictionaries with the key "__ditorch__"; `load_item` turns them back into what they were, without executing
anything that the file says.
"""

from __future__ import annotations

import operator
import os
import re
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from ditorch import _C, settings

from . import results
from .console import count
from .tool import Tool

TAG = "__ditorch__"
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


@dataclass
class Described:
    """A value that a capture holds only a description of: `kind` (tensor, object, function ...) and its facts."""

    kind: str
    facts: dict[str, Any] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        facts = self.__dict__.get("facts", {})
        if name in facts:
            return facts[name]
        raise AttributeError(f"a described {self.__dict__.get('kind')} has no {name!r}; it has {', '.join(facts)}")


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


def restore(value: Any) -> Any:
    """Tagged dictionaries as what they stand for, at any depth. Unknown tags stay as they are."""
    if isinstance(value, dict):
        kind = value.get(TAG)
        if isinstance(kind, str):
            return _restore_tagged(kind, value)
        return {key: restore(item) for key, item in value.items()}
    if type(value) is tuple:
        return tuple(restore(item) for item in value)
    if type(value) is list:
        return [restore(item) for item in value]
    return value


def _restore_tagged(kind: str, value: dict) -> Any:
    facts = {key: restore(item) for key, item in value.items() if key != TAG}
    maker = _MAKERS.get(kind)
    if maker is None:
        return Described(kind, facts)
    try:
        return maker(facts)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError):
        return Described(kind, facts)  # written by another version, or damaged


def _look_up(name: Any) -> Any:
    """torch.nn.functional.relu and the like, where they are loaded already; nothing is imported or called."""
    parts = str(name).split(".")
    if parts[0] not in ("torch", "builtins", "math", "operator"):
        raise KeyError(name)
    for length in range(len(parts) - 1, 0, -1):
        found: Any = sys.modules.get(".".join(parts[:length]))
        if found is not None:
            for part in parts[length:]:
                found = vars(found)[part] if part in vars(found) else getattr(found, part)
            return found
    raise KeyError(name)


def _make_return_type(facts: dict) -> Any:
    module, _, name = facts["type"].rpartition(".")
    if module != "torch.return_types":
        raise KeyError(facts["type"])
    return getattr(torch.return_types, name)(facts["values"])


def _make_named_tuple(facts: dict) -> Any:
    """A tuple class of its own with the same fields: the original class is not looked for."""
    names = [str(name) for name in facts["fields"]]
    members = {name: property(operator.itemgetter(i)) for i, name in enumerate(names)}
    kind = type(str(facts["type"]).rpartition(".")[2], (tuple,), {**members, "_fields": tuple(names)})
    return kind(facts["values"])


def _make_torch_constant(kind: type) -> Callable[[dict], Any]:
    def make(facts: dict) -> Any:
        value = getattr(torch, facts["name"].removeprefix("torch."))
        if not isinstance(value, kind):
            raise TypeError(facts["name"])
        return value

    return make


def _make_generator(facts: dict) -> torch.Generator:
    generator = torch.Generator(facts["device"])
    generator.set_state(facts["state"].cpu())
    return generator


def _make_buffer(facts: dict) -> Any:
    data = facts["data"].contiguous().cpu().numpy()
    if not str(facts["type"]).startswith("numpy."):
        return memoryview(data.tobytes()).cast(facts["format"].lstrip("@"), list(facts["shape"]) or None)
    import numpy

    items = numpy.frombuffer(data.tobytes(), dtype=_dtype(facts))
    array = items.reshape(facts["shape"]).copy()
    return array if facts["type"] == "numpy.ndarray" else array[()]


def _dtype(facts: dict) -> Any:
    """NumPy's type of a buffer format: '<f', 'Zd', '?'."""
    import numpy

    order, code = re.fullmatch(r"([@=<>!]?)(.+)", facts["format"]).groups()
    codes = {"Zf": "c8", "Zd": "c16", "Zg": f"c{facts['itemsize']}", "l": f"i{facts['itemsize']}"}
    codes["L"] = f"u{facts['itemsize']}"
    return numpy.dtype({"@": "=", "!": ">"}.get(order, order) + codes.get(code, code))


def _make_enum(facts: dict) -> Any:
    return _look_up(facts["type"])[facts["name"]]


_MAKERS: dict[str, Callable[[dict], Any]] = {
    "slice": lambda facts: slice(facts["start"], facts["stop"], facts["step"]),
    "ellipsis": lambda facts: Ellipsis,
    "range": lambda facts: range(facts["start"], facts["stop"], facts["step"]),
    "int": lambda facts: int(facts["hex"], 16),
    "dict": lambda facts: dict(facts["items"]),
    "ordereddict": lambda facts: OrderedDict(facts["items"]),
    "set": lambda facts: set(facts["values"]),
    "frozenset": lambda facts: frozenset(facts["values"]),
    "memory_format": _make_torch_constant(torch.memory_format),
    "generator": _make_generator,
    "storage": lambda facts: facts["data"].untyped_storage(),
    "return_type": _make_return_type,
    "namedtuple": _make_named_tuple,
    "buffer": _make_buffer,
    "enum": _make_enum,
    "function": lambda facts: _look_up(facts["name"]),
    "class": lambda facts: _look_up(facts["name"]),
}


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
