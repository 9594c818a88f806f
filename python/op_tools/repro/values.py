"""A captured call taken apart for export: its tensors as recipes over numbered memory, its other values as source text.

The same walk gives text for the script and values for a run here, so that the two cannot differ. Depends on: case,
described.
"""

from __future__ import annotations

import contextlib
import keyword
import math
import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from ..containers import traverse_container
from ..reader import Case, CaseError
from ..reader.limits import one_line
from ..reader.tagged import Described

_DEVICE = re.compile(
    r"(?!cpu|meta)(cuda|npu|mlu|musa|xpu|hpu|mps|xla|privateuseone|sdaa|gcu|supa|dipu)(:\d+)?", re.ASCII
)


class ReproError(CaseError):
    """A case that cannot be exported; the text says why."""


@dataclass
class Parts:
    """What the call is made of: numbered tensors, and the data that goes into data.pt."""

    tensors: list[tuple] = field(default_factory=list)
    memory: list[torch.Tensor] = field(default_factory=list)
    whole: list[torch.Tensor] = field(default_factory=list)
    generators: list[tuple[str, torch.Tensor]] = field(default_factory=list)
    arrays: list[torch.Tensor] = field(default_factory=list)
    order: list[int] = field(default_factory=list)
    """Numbers of the tensors of the arguments, as they come."""
    numbers: dict[int, int] = field(default_factory=dict)
    storages: dict[int, int] = field(default_factory=dict)
    kept: list[Any] = field(default_factory=list)
    """Objects whose ids are keys above."""

    def add_tensor(self, tensor: torch.Tensor, stays: bool) -> int:
        if id(tensor) not in self.numbers:
            self.kept.append(tensor)
            self.numbers[id(tensor)] = len(self.tensors)
            self.tensors.append(self._describe(tensor, stays))
        return self.numbers[id(tensor)]

    def _describe(self, tensor: torch.Tensor, stays: bool) -> tuple:
        plain = tensor.layout is torch.strided and not (tensor.is_quantized or tensor.is_nested or tensor.is_meta)
        if not plain:
            self.whole.append(tensor.detach())
            return ("whole", len(self.whole) - 1)
        flags = [name for name, is_on in self._flags(tensor, stays) if is_on]
        memory = self.add_storage(tensor.untyped_storage())
        return (memory, tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.storage_offset(), " ".join(flags))

    @staticmethod
    def _flags(tensor: torch.Tensor, stays: bool) -> list[tuple[str, bool]]:
        return [
            ("grad", tensor.requires_grad),
            ("conj", tensor.is_conj()),
            ("neg", tensor.is_neg()),
            ("cpu", stays),
        ]

    def add_storage(self, storage: torch.UntypedStorage) -> int:
        key = storage._cdata
        if key not in self.storages:
            self.kept.append(storage)
            self.storages[key] = len(self.memory)
            self.memory.append(torch.empty(0, dtype=torch.uint8).set_(storage, 0, (storage.nbytes(),), (1,)))
        return self.storages[key]


# From values to the script


class Writer:
    """Values as source text, and as values of one run: the same walk twice, so that the script and what is measured
    here cannot differ."""

    def __init__(self, case: Case) -> None:
        self.case, self.parts = case, Parts()
        homes = case.meta.get("devices") or []
        tensors = [v for v in traverse_container([case.args, list(case.kwargs.values())]) if is_tensor(v)]
        away = any(home not in ("", "cpu", "meta") for home in homes)
        known = away and len(homes) == len(tensors)
        self.stays = {id(t) for t, home in zip(tensors, homes, strict=False) if known and home in ("", "cpu")}
        for tensor in tensors:
            self.parts.order.append(self.parts.add_tensor(tensor, id(tensor) in self.stays))

    def write(self, value: Any) -> str:
        """An expression; `c` is the Inputs of a run."""
        return self._walk(value, _text)

    def make(self, value: Any, inputs: Any) -> Any:
        return self._walk(value, lambda kind, *facts: _value(inputs, kind, *facts))

    def _walk(self, value: Any, give: Callable[..., Any]) -> Any:
        if is_tensor(value):
            return give("tensor", self.parts.add_tensor(value, id(value) in self.stays))
        if isinstance(value, torch.device):
            return give("literal", value) if value.type in ("cpu", "meta") else give("device")
        if isinstance(value, str) and _DEVICE.fullmatch(value):
            return give("device name")
        if isinstance(value, torch.dtype):
            return give("dtype", value)
        if isinstance(value, torch.Generator):
            return give("generator", self._add_generator(value.device.type, value.get_state()))
        if isinstance(value, Described) and value.kind == "generator" and is_tensor(value.facts.get("state")):
            return give("generator", self._add_generator(str(value.facts.get("device")), value.facts["state"]))
        if isinstance(value, (torch.UntypedStorage, torch.storage.TypedStorage)):
            untyped = value if isinstance(value, torch.UntypedStorage) else value._untyped_storage
            return give("storage", self.parts.add_storage(untyped))
        if type(value).__module__ == "numpy" and hasattr(value, "dtype"):
            return give("array", self._add_array(value))
        return self._walk_container(value, give)

    def _walk_container(self, value: Any, give: Callable[..., Any]) -> Any:
        if isinstance(value, torch.Size):
            return give("literal", value)
        if isinstance(value, dict):
            pairs = [(self._walk(key, give), self._walk(item, give)) for key, item in value.items()]
            return give("ordered" if isinstance(value, OrderedDict) else "dict", pairs)
        for kind in (tuple, list, set, frozenset):
            if isinstance(value, kind):
                return give(kind.__name__, [self._walk(item, give) for item in value])
        if isinstance(value, slice):
            return give("slice", [self._walk(part, give) for part in (value.start, value.stop, value.step)])
        return give("literal", value)

    def _add_generator(self, kind: str, state: torch.Tensor) -> int:
        self.parts.generators.append((kind.split(":")[0], state.cpu().clone()))
        return len(self.parts.generators) - 1

    def _add_array(self, array: Any) -> int:
        import numpy

        try:
            self.parts.arrays.append(torch.from_numpy(numpy.array(array, dtype=array.dtype.newbyteorder("="))))
        except TypeError as error:
            raise ReproError(f"{one_line(self.case.path)}: {one_line(error)}") from None
        return len(self.parts.arrays) - 1


def is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _value(inputs: Any, kind: str, *facts: Any) -> Any:
    """One value of a run."""
    simple = {
        "tensor": lambda number: inputs.tensor(number),
        "device": lambda: inputs.get_device(),
        "device name": lambda: str(inputs.get_device()),
        "dtype": lambda dtype: inputs.dtype(dtype),
        "generator": lambda number: inputs.generator(number),
        "array": lambda number: inputs.array(number),
        "storage": lambda number: inputs.storage(number),
        "literal": lambda value: value,
        "dict": dict,
        "ordered": OrderedDict,
        "slice": lambda parts: slice(*parts),
        "tuple": tuple,
        "list": list,
        "set": set,
        "frozenset": frozenset,
    }
    return simple[kind](*facts)


def _text(kind: str, *facts: Any) -> str:
    """The same as an expression."""
    if kind == "literal":
        return write_literal(facts[0])
    if kind == "dtype":
        return f"c.dtype({facts[0]})"
    if kind in ("tensor", "generator", "array", "storage"):
        return f"c.{kind}({facts[0]})"
    if kind in ("device", "device name"):
        return "c.get_device()" if kind == "device" else "str(c.get_device())"
    items = facts[0]
    if kind in ("dict", "ordered"):
        if kind == "dict":
            return "{" + ", ".join(f"{key}: {item}" for key, item in items) + "}"
        return "collections.OrderedDict([" + ", ".join(f"({key}, {item})" for key, item in items) + "])"
    inside = ", ".join(items)
    if kind == "tuple":
        return f"({inside},)" if len(items) == 1 else f"({inside})"
    return {"list": "[{}]", "set": "set([{}])", "frozenset": "frozenset([{}])", "slice": "slice({})"}[kind].format(
        inside
    )


def write_literal(value: Any) -> str:
    """A value that Python or torch has a notation for. ReproError for others."""
    if value is None or value is Ellipsis or isinstance(value, (bool, bytes, bytearray)):
        return repr(value)
    if isinstance(value, int):
        return hex(value) if abs(value) >= 1 << 64 else repr(int(value))
    if isinstance(value, float):
        return repr(float(value)) if math.isfinite(value) else f'float("{float(value)}")'
    if isinstance(value, complex):
        return f"complex({write_literal(value.real)}, {write_literal(value.imag)})"
    if isinstance(value, str):
        return ascii(str(value))
    if isinstance(value, (torch.memory_format, torch.layout, torch.qscheme)):
        return str(value)
    if isinstance(value, torch.Size):
        return f"torch.Size({list(value)})"
    if isinstance(value, torch.device):
        return f"torch.device({str(value)!r})"
    if isinstance(value, range):
        return repr(value)
    name = _name_function(value) if callable(value) else None
    if name is None:
        what = f"a description of a {value.kind}" if isinstance(value, Described) else f"a {type(value).__name__}"
        raise ReproError(f"the call has {what} among its arguments, which cannot be written down")
    return name


def _name_function(value: Any) -> str | None:
    """torch.nn.functional.relu, when that is what it is."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    candidates = [torch.overrides.resolve_name(value), f"{module}.{name}"]
    for text in candidates:
        if isinstance(text, str) and text.startswith("torch.") and is_dotted(text):
            with contextlib.suppress(AttributeError):
                found: Any = torch
                for part in text.split(".")[1:]:
                    found = getattr(found, part)
                if found is value:
                    return text
    return None


def is_dotted(name: str) -> bool:
    return all(part.isidentifier() and part.isascii() and not keyword.iskeyword(part) for part in name.split("."))
