"""Small values of captured files, and the checks that they and tensors share: ranges, devices, generators, arrays.

Depends on: limits, tagged.
"""

from __future__ import annotations

import math
import re
import sys
from typing import Any

import torch

from .limits import Budget, Buildable, Refused, one_line
from .tagged import Described

MAX_DIMS = 64
INT64 = 1 << 63


class Generator(Buildable):
    """A generator, or its description where its device is not there."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.state: torch.Tensor | None = None

    def build(self, state: Any) -> None:
        if type(state) is not tuple or len(state) != 3 or not isinstance(state[2], torch.Tensor):
            raise Refused("a generator has no state")
        self.state = state[2]

    def get(self) -> Any:
        """A generator of its device where there is one; a state that is none of the CPU's is refused."""
        if self.state is not None and self.device.type in ("cpu", "cuda"):
            try:
                generator = torch.Generator(self.device)
                generator.set_state(self.state)
                return generator
            except (RuntimeError, AssertionError, TypeError, ValueError):
                if self.device.type == "cpu":
                    raise Refused("a generator has a state that is none") from None
        return Described("generator", {"device": str(self.device), "state": self.state})


def check_int(value: Any, what: str, low: int = 0, high: int = INT64 - 1) -> int:
    if type(value) is not int:
        raise Refused(f"{what} is a {type(value).__name__}; expected a whole number")
    if not low <= value <= high:
        raise Refused(f"{what} is {one_line(value, 40)}; expected a whole number from {low} to {high}")
    return value


def check_ints(values: Any, what: str, low: int = 0) -> tuple[int, ...]:
    if not isinstance(values, (tuple, list)):
        raise Refused(f"{what} is no tuple")
    if len(values) > MAX_DIMS:
        raise Refused(f"{what} has {len(values)} entries; at most {MAX_DIMS} are read")
    return tuple(check_int(value, f"an entry of {what}", low) for value in values)


def check_bool(value: Any, what: str) -> bool:
    if type(value) not in (bool, int) or value not in (0, 1):
        raise Refused(f"{what} is neither True nor False")
    return bool(value)


def check_type(value: Any, kind: type, what: str) -> Any:
    if not isinstance(value, kind):
        raise Refused(f"{what} is a {type(value).__name__}")
    return value


def check_span(size: tuple[int, ...], stride: tuple[int, ...], offset: int, room: int) -> int:
    """The number of elements, when all of them lie among `room` elements."""
    if len(size) != len(stride):
        raise Refused(f"a tensor has {len(size)} sizes and {len(stride)} strides")
    numel = math.prod(size)
    if numel >= INT64 or math.prod(max(n, 1) for n in size) >= INT64:
        raise Refused("a tensor has more than 2**63 elements")
    last = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
    if numel and last >= room:
        raise Refused(f"a tensor reaches to element {last} of a storage of {room}")
    if max((n * s for n, s in zip(size, stride, strict=True)), default=0) >= INT64 or offset >= INT64 >> 5:
        raise Refused("a tensor has a stride or offset beyond 2**63")
    return numel


# Small values


def make_nothing(*_arguments: Any) -> Any:
    raise Refused("an array is made without its data")


def make_slice(*parts: Any) -> slice:
    if not 1 <= len(parts) <= 3:
        raise Refused("a slice has one to three parts")
    return slice(*parts)


def make_range(*parts: Any) -> range:
    return range(*(check_int(part, "a part of a range", -INT64) for part in parts))


def make_complex(*parts: Any) -> complex:
    if not all(type(part) in (int, float) for part in parts) or len(parts) > 2:
        raise Refused("a complex number has parts that are no numbers")
    return complex(*parts)


def make_device(*parts: Any) -> torch.device:
    """A device of a vendor that this torch does not know is an accelerator like any other: cuda."""
    if not parts or type(parts[0]) is not str or len(parts[0]) > 64 or len(parts) > 2:
        raise Refused("a device has no name")
    kind, _, number = parts[0].partition(":")
    index = parts[1] if len(parts) == 2 else int(number) if number.isascii() and number.isdigit() else None
    if index is not None:
        check_int(index, "the number of a device", 0, 127)
    if not re.fullmatch(r"[a-z_0-9]+", kind, re.ASCII):
        raise Refused("a device has no name")
    try:
        return torch.device(kind) if index is None else torch.device(kind, index)
    except RuntimeError:
        return torch.device("cuda") if index is None else torch.device("cuda", index)


def get_numpy() -> Any:
    numpy = sys.modules.get("numpy")
    if numpy is None:
        raise Refused("it holds arrays, and NumPy is not loaded")
    return numpy


class NumpyDtype(Buildable):
    """The type of an array: numbers alone."""

    def __init__(self, code: str) -> None:
        self.code, self.order = code, "="

    def build(self, state: Any) -> None:
        if type(state) is not tuple or len(state) < 8 or any(part is not None for part in state[2:5]):
            raise Refused("an array is not one of numbers")
        if state[1] not in ("<", ">", "|", "="):
            raise Refused("an array has no byte order")
        self.order = state[1]

    def get(self) -> Any:
        return get_numpy().dtype(self.order + self.code)


class NumpyArray(Buildable):
    """An array, complete once its state is there."""

    def __init__(self, budget: Budget) -> None:
        self.budget, self.array = budget, None

    def build(self, state: Any) -> None:
        if type(state) is not tuple or len(state) != 5:
            raise Refused("an array has no state")
        _version, shape, dtype, fortran, data = state
        kind = check_type(dtype, NumpyDtype, "the type of an array").get()
        shape = check_ints(shape, "the shape of an array")
        if type(data) is not bytes or len(data) != math.prod(shape) * kind.itemsize or len(shape) > 32:
            raise Refused("the bytes of an array do not fit its shape")
        self.budget.charge(0, len(data))
        order = "F" if check_bool(fortran, "the order of an array") else "C"
        self.array = get_numpy().frombuffer(data, dtype=kind).reshape(shape, order=order).copy(order="A")

    def get(self) -> Any:
        if self.array is None:
            raise Refused("an array has no data")
        return self.array


def settle(value: Any) -> Any:
    """The value with every Buildable replaced by what it stands for. The depth is bounded already."""
    if isinstance(value, Buildable):
        return value.get()
    if isinstance(value, dict):
        return type(value)((key, settle(item)) for key, item in value.items())
    if type(value) is list:
        return [settle(item) for item in value]
    if isinstance(value, tuple) and not isinstance(value, torch.Size):
        return type(value)([settle(item) for item in value])
    return value
