"""Tagged values of captured files, given back as what they were: slices, named tuples, generators, arrays.

What torch.load(weights_only=True) has no form for is stored as a dictionary with the key "__ditorch__". Only plain
values are made of it, and objects that are loaded already are found by name; nothing is called or imported because a
file says so. What cannot be made stays a `Described`. Depends on nothing of ours.
"""

from __future__ import annotations

import enum
import keyword
import operator
import re
import sys
import types
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

TAG = "__ditorch__"
MAX_DIGITS = 100_000
MAX_KEYS = 2000


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


def restore(value: Any) -> Any:
    """Tagged dictionaries as what they stand for, at any depth. Unknown tags stay as they are."""
    if isinstance(value, dict):
        kind = value.get(TAG)
        if isinstance(kind, str):
            return _restore_tagged(kind, value)
        return {key: restore(item) for key, item in value.items()}
    if type(value) is tuple:
        return tuple([restore(item) for item in value])
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
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError, OverflowError):
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
                found = _get_member(found, part)
            return found
    raise KeyError(name)


def _get_member(owner: Any, name: str) -> Any:
    """Without module-level __getattr__ (which imports) and without descriptors."""
    if isinstance(owner, types.ModuleType):
        return vars(owner)[name]
    if isinstance(owner, type):
        for base in owner.__mro__:
            if name in vars(base):
                found = vars(base)[name]
                return found.__func__ if isinstance(found, (staticmethod, classmethod)) else found
    raise KeyError(name)


def _make_function(facts: dict) -> Any:
    found = _look_up(facts["name"])
    if isinstance(found, types.ModuleType) or not callable(found):
        raise TypeError(facts["name"])
    return found


def _make_return_type(facts: dict) -> Any:
    module, _, name = facts["type"].rpartition(".")
    kind = vars(torch.return_types).get(name) if module == "torch.return_types" else None
    if not isinstance(kind, type) or not issubclass(kind, tuple):
        raise KeyError(facts["type"])
    return kind(tuple(facts["values"]))


def _make_named_tuple(facts: dict) -> Any:
    """A tuple class of its own with the same fields: the original class is not looked for."""
    names = [str(name) for name in facts["fields"]]
    values = tuple(facts["values"])
    plain = all(name.isidentifier() and not name.startswith("_") and not keyword.iskeyword(name) for name in names)
    if not plain or len(set(names)) != len(names) or len(names) != len(values):
        raise ValueError("no fields of a named tuple")
    title = str(facts["type"]).rpartition(".")[2]
    members = {name: property(operator.itemgetter(i)) for i, name in enumerate(names)}
    return type(title if title.isidentifier() else "Tuple", (tuple,), {**members, "_fields": tuple(names)})(values)


def _make_torch_constant(kind: type) -> Callable[[dict], Any]:
    def make(facts: dict) -> Any:
        value = vars(torch)[facts["name"].removeprefix("torch.")]
        if not isinstance(value, kind):
            raise TypeError(facts["name"])
        return value

    return make


def _make_generator(facts: dict) -> torch.Generator:
    generator = torch.Generator(facts["device"])
    generator.set_state(facts["state"].cpu())
    return generator


def _make_storage(facts: dict) -> torch.UntypedStorage:
    return _get_data(facts).untyped_storage()


def _get_data(facts: dict) -> torch.Tensor:
    """The tensor of bytes; not one that is larger than its memory."""
    data = facts["data"]
    if not isinstance(data, torch.Tensor) or data.numel() * data.itemsize > data.untyped_storage().nbytes():
        raise ValueError("no data")
    return data


def _make_buffer(facts: dict) -> Any:
    data = _get_data(facts).contiguous().cpu().numpy()
    if not str(facts["type"]).startswith("numpy."):
        return memoryview(data.tobytes()).cast(facts["format"].lstrip("@"), list(facts["shape"]) or None)
    import numpy

    items = numpy.frombuffer(data.tobytes(), dtype=_dtype(facts))
    array = items.reshape(facts["shape"]).copy()
    return array if facts["type"] == "numpy.ndarray" else array[()]


def _dtype(facts: dict) -> Any:
    """NumPy's type of a buffer format: '<f', 'Zd', '?'."""
    import numpy

    order, code = re.fullmatch(r"([@=<>!]?)([?bBhHiIlLqQnNefdg]|Z[fdg])", facts["format"]).groups()
    codes = {"Zf": "c8", "Zd": "c16", "Zg": f"c{facts['itemsize']}", "l": f"i{facts['itemsize']}"}
    codes["L"] = f"u{facts['itemsize']}"
    return numpy.dtype({"@": "=", "!": ">"}.get(order, order) + codes.get(code, code))


def _make_int(facts: dict) -> int:
    if len(facts["hex"]) > MAX_DIGITS:
        raise ValueError("too long")
    return int(facts["hex"], 16)


def _make_enum(facts: dict) -> Any:
    kind = _look_up(facts["type"])
    members = getattr(kind, "__members__", None) if isinstance(kind, type) else None
    if not (isinstance(kind, enum.EnumMeta) or isinstance(members, dict)):
        raise TypeError(facts["type"])
    return members[facts["name"]]


def _make_keyed(kind: type, key: str) -> Callable[[dict], Any]:
    """Dictionaries and sets; a file can choose numbers that all fall into one place, so there are not many of them."""

    def make(facts: dict) -> Any:
        if len(facts[key]) > MAX_KEYS:
            raise ValueError("too many keys")
        return kind(facts[key])

    return make


_MAKERS: dict[str, Callable[[dict], Any]] = {
    "slice": lambda facts: slice(facts["start"], facts["stop"], facts["step"]),
    "ellipsis": lambda facts: Ellipsis,
    "range": lambda facts: range(facts["start"], facts["stop"], facts["step"]),
    "int": _make_int,
    "dict": _make_keyed(dict, "items"),
    "ordereddict": _make_keyed(OrderedDict, "items"),
    "set": _make_keyed(set, "values"),
    "frozenset": _make_keyed(frozenset, "values"),
    "memory_format": _make_torch_constant(torch.memory_format),
    "generator": _make_generator,
    "storage": _make_storage,
    "return_type": _make_return_type,
    "namedtuple": _make_named_tuple,
    "buffer": _make_buffer,
    "enum": _make_enum,
    "function": _make_function,
    "class": _make_function,
}
