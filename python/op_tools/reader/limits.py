"""What reading captured files safely rests on: the errors, the limits, and the checks of keys and of results.

Time and memory are bounded by `Limits`: by the length of a stream, the number of its instructions, the depth and the
size of the result when every shared part is counted as often as it is met. A name in a file is a `Constructor` of ours
or an inert `Unknown` that nothing can call. Depends on nothing of ours.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

MAX_DIGITS = 1000
MAX_KEY_PARTS = 1000
MAX_COLLIDING = 2000


class CaseError(ValueError):
    """A case that cannot be read: one line that names the file and the reason."""


class Refused(Exception):
    """The reason alone; whoever knows the file makes a CaseError of it."""


@dataclass(frozen=True)
class Limits:
    """What one file may take."""

    bytes: int = 64 << 30
    """Of the file, and of its tensors together when each is counted as contiguous."""
    pickle: int = 64 << 20
    """Of its pickle stream."""
    items: int = 4_000_000
    """Instructions of the stream, and values of the result."""
    depth: int = 256
    """Containers inside containers."""


def one_line(text: Any, length: int = 300) -> str:
    """Printable and short, whatever a file made of it."""
    text = str(text)
    if len(text) > length:
        text = text[:length] + "..."
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)


class Constructor:
    """A name that a stream may call: our own function, under the name that the stream has for it."""

    __slots__ = ("make", "name")

    def __init__(self, name: str, make: Callable) -> None:
        self.name, self.make = name, make


class Unknown:
    """A name that is in no table. It is only ever thrown away, or refused at the end."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


class Buildable:
    """What a constructor may return when the stream has a state for it: `build` takes that state, `get` gives the
    value when the stream is over."""

    def build(self, state: Any) -> None:
        raise NotImplementedError

    def get(self) -> Any:
        raise NotImplementedError


class Mark:
    __slots__ = ()


class Ignored:
    """Stands for everything in a dry run."""

    __slots__ = ()


IGNORED = Ignored()


class Budget:
    """What reading one file has cost so far. Every piece of work is charged before it is done."""

    def __init__(self, limits: Limits) -> None:
        self.limits, self.steps, self.copied = limits, 0, 0

    def charge(self, steps: int, copied: int = 0) -> None:
        self.steps += steps
        self.copied += copied
        if self.steps > self.limits.items:
            raise Refused(f"it has more than {self.limits.items} parts")
        if self.copied > self.limits.pickle:
            raise Refused(f"its texts take more than {self.limits.pickle} bytes")


def check_key(container: Any, key: Any, budget: Budget) -> None:
    """Refuse keys whose hash is not plain, cheap and bounded. Numbers have hashes that a file can choose: many of them
    in one table would take for ever."""
    if type(key) is str:
        return
    if len(container) >= MAX_COLLIDING:
        raise Refused(f"a dictionary or set has more than {MAX_COLLIDING} keys that are not text")
    budget.charge(len(container))
    waiting, parts = [key], 0
    while waiting:
        part = waiting.pop()
        parts += 1
        if parts > MAX_KEY_PARTS:
            raise Refused("a key of a dictionary or set has too many parts")
        if type(part) in (tuple, frozenset):
            if len(part) > MAX_KEY_PARTS:
                raise Refused("a key of a dictionary or set has too many parts")
            waiting.extend(part)
        elif type(part) in (list, dict, set, OrderedDict, bytearray):
            raise Refused(f"a {type(part).__name__.lower()} cannot be the key of a dictionary or set")
        elif isinstance(part, (Mark, Constructor, Unknown, Buildable)):
            raise Refused("a key of a dictionary or set is no value")
    budget.charge(parts)


def invoke(function: Constructor, arguments: tuple) -> Any:
    """The constructor's value, or the reason why there is none."""
    try:
        return function.make(*arguments)
    except Refused:
        raise
    except (TypeError, ValueError, RuntimeError, ArithmeticError, LookupError, AttributeError, AssertionError) as error:
        first = (str(error) or type(error).__name__).splitlines()[0]
        raise Refused(f"{function.name}: {one_line(first)}") from None


def make_set(kind: type, items: Any, budget: Budget) -> Any:
    made: set = set()
    budget.charge(len(items))
    for item in items:
        check_key(made, item, budget)
        try:
            made.add(item)
        except TypeError:
            raise Refused(f"a {type(item).__name__} cannot be a member of a set") from None
    return made if kind is set else kind(made)


# The result


def survey(value: Any, limits: Limits) -> None:
    """Refuse what would keep a reader busy: cycles, depth, and parts shared so often that walking them never ends."""
    sizes: dict[int, tuple[int, int]] = {}
    path: set[int] = set()
    waiting: list[tuple[Any, bool]] = [(value, False)]
    while waiting:
        node, leave = waiting.pop()
        if isinstance(node, (Constructor, Unknown, Mark)):
            raise Refused(f"it holds {one_line(getattr(node, 'name', 'a mark'), 120)!r}, which is not a value")
        children = _children(node)
        if children is None or id(node) in sizes:
            continue
        if leave:
            path.discard(id(node))
            sizes[id(node)] = _measure(children, sizes, limits)
            continue
        path.add(id(node))
        waiting.append((node, True))
        for child in children:
            if id(child) in path and _children(child) is not None:
                raise Refused("a container holds itself")
            waiting.append((child, False))


def _children(node: Any) -> list[Any] | None:
    if isinstance(node, dict):
        return [part for pair in node.items() for part in pair]
    return list(node) if isinstance(node, (list, tuple, set, frozenset)) else None


def _measure(children: list[Any], sizes: dict[int, tuple[int, int]], limits: Limits) -> tuple[int, int]:
    count, depth = 1, 0
    for child in children:
        size, below = sizes.get(id(child), (1, 0))
        count += size
        depth = max(depth, below)
    if depth + 1 > limits.depth:
        raise Refused(f"its values are nested more than {limits.depth} levels deep")
    if count > limits.items:
        raise Refused(f"it has more than {limits.items} values")
    return count, depth + 1
