"""The pickle machine: a small interpreter of pickle's instructions that makes plain values and calls nothing but the
constructors it is given.

What a stream may contain is what captures contain. Instructions that import, extend or use objects of the reader's
process are not there. Depends on: limits.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from .limits import (
    IGNORED,
    MAX_COLLIDING,
    MAX_DIGITS,
    Budget,
    Buildable,
    Constructor,
    Ignored,
    Mark,
    Refused,
    Unknown,
    check_key,
    invoke,
    make_set,
    one_line,
)

TYPE_TAKERS = ("torch._tensor._rebuild_from_type", "torch._tensor._rebuild_from_type_v2")


class Machine:
    """Runs one stream. `find` gives the value of a name, `persistent` that of a storage's id; both may refuse."""

    def __init__(
        self,
        data: Any,
        find: Callable[[str, str], Any],
        persistent: Callable[[Any], Any],
        budget: Budget,
        dry: bool = False,
    ) -> None:
        self.data, self.find, self.persistent, self.budget, self.dry = memoryview(data), find, persistent, budget, dry
        self.position = 0
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self.unknown: list[Unknown] = []
        self.used: set[int] = set()
        """Unknown names that a constructor was glad to throw away."""

    def run(self, start: int = 0) -> Any:
        """The value of the stream that begins at `start`; `position` is then behind it."""
        self.position, self.stack, self.marks, self.memo = start, [], [], {}
        data, codes, end, charge = self.data, _CODES, len(self.data), self.budget.charge
        while self.position < end:
            code = data[self.position]
            self.position += 1
            charge(1)
            if code == 0x2E:  # STOP
                return self._finish()
            action = codes.get(code)
            if action is None:
                raise Refused(f"its pickle has the instruction 0x{code:02x}, which captures do not have")
            action(self)
        raise Refused("its pickle ends in the middle")

    def _finish(self) -> Any:
        if self.marks or len(self.stack) != 1:
            raise Refused("its pickle does not leave one value")
        for name in self.unknown:
            if id(name) not in self.used:
                raise Refused(f"it holds {one_line(name.name, 120)!r}, which is not read from files")
        value = self.stack.pop()
        if isinstance(value, (Constructor, Mark)):
            raise Refused("its pickle leaves no value")
        return value

    # Reading

    def take(self, count: int) -> memoryview:
        begin = self.position
        if count < 0 or count > len(self.data) - begin:
            raise Refused("its pickle ends in the middle")
        if count > 16:
            self.budget.charge(0, count)
        self.position = begin + count
        return self.data[begin : begin + count]

    def number(self, form: str) -> int:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def line(self) -> str:
        """Up to the next line break, at most a few thousand characters."""
        window = bytes(self.data[self.position : self.position + 4 * MAX_DIGITS])
        length = window.find(b"\n")
        if length < 0:
            raise Refused("its pickle has a line that does not end")
        self.position += length + 1
        return decode(window[:length])

    # The stack

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def pop(self) -> Any:
        if len(self.stack) <= (self.marks[-1] if self.marks else 0):
            raise Refused("its pickle takes a value that is not there")
        return self.stack.pop()

    def top(self) -> Any:
        value = self.pop()
        self.stack.append(value)
        return value

    def pop_mark(self) -> list[Any]:
        if not self.marks:
            raise Refused("its pickle takes a mark that is not there")
        begin = self.marks.pop()
        values = self.stack[begin:]
        del self.stack[begin:]
        return values

    # Names and calls

    def name(self, module: Any, name: Any) -> None:
        if type(module) is not str or type(name) is not str:
            raise Refused("its pickle has a name that is no text")
        value = self.find(module, name)
        if isinstance(value, Unknown):
            self.unknown.append(value)
        self.push(value)

    def call(self, function: Any, arguments: Any) -> None:
        if self.dry:
            self.push(IGNORED)
            return
        if not isinstance(function, Constructor):
            what = function.name if isinstance(function, Unknown) else type(function).__name__
            raise Refused(f"it wants to call {one_line(what, 120)!r}, which is not called from files")
        if type(arguments) is not tuple:
            raise Refused(f"its call of {function.name} has no tuple of arguments")
        self.used.update(id(a) for a in arguments if isinstance(a, Unknown) and function.name in TYPE_TAKERS)
        self.push(invoke(function, arguments))

    def make_object(self, kind: Any, arguments: Any) -> None:
        """cls.__new__(cls, *arguments): of an unknown class this is how a named tuple is written."""
        if not self.dry and isinstance(kind, Unknown) and type(arguments) is tuple and arguments:
            self.used.add(id(kind))
            self.push(tuple(arguments))
            return
        self.call(kind, arguments)


def decode(data: Any) -> str:
    try:
        return str(data, "utf-8", "surrogatepass")
    except UnicodeDecodeError:
        raise Refused("its pickle has text that is not UTF-8") from None


def parse_int(text: str) -> int:
    text = text.removesuffix("L")
    if len(text) > MAX_DIGITS or not text.lstrip("-").isascii() or not text.lstrip("-").isdigit():
        raise Refused("its pickle has a number that is none")
    try:
        return int(text)
    except ValueError:
        raise Refused("its pickle has a number that is none") from None


# The instructions


def _int_line(m: Machine) -> None:
    text = m.line()
    m.push({"00": False, "01": True}[text] if text in ("00", "01") else parse_int(text))


def _float_line(m: Machine) -> None:
    text = m.line()
    try:
        m.push(float(text))
    except ValueError:
        raise Refused("its pickle has a number that is none") from None


def _long(m: Machine, form: str) -> None:
    size = m.number(form)
    if size < 0 or size > MAX_DIGITS:
        raise Refused(f"its pickle has an integer of {size} bytes; the limit is {MAX_DIGITS}")
    m.push(int.from_bytes(m.take(size), "little", signed=True))


def _text(m: Machine, form: str) -> None:
    m.push(decode(m.take(m.number(form))))


def _bytes(m: Machine, form: str) -> None:
    m.push(bytes(m.take(m.number(form))))


def _old_text(m: Machine, form: str) -> None:
    """Python 2's strings, as torch.load reads them."""
    data = m.take(m.number(form))
    try:
        m.push(str(data, "utf-8"))
    except UnicodeDecodeError:
        m.push(bytes(data))


def _tuple_of(count: int) -> Callable[[Machine], None]:
    def make(m: Machine) -> None:
        values = [m.pop() for _ in range(count)]
        m.push(tuple(reversed(values)))

    return make


def _set_items(m: Machine, target: Any, items: list[Any]) -> None:
    if isinstance(target, Ignored) and m.dry:
        return
    if type(target) not in (dict, OrderedDict) or len(items) % 2:
        raise Refused("its pickle puts keys into something that is no dictionary")
    for key, value in zip(items[::2], items[1::2], strict=True):
        check_key(target, key, m.budget)
        try:
            target[key] = value
        except TypeError:
            raise Refused(f"a {type(key).__name__} cannot be the key of a dictionary") from None


def _append(m: Machine, target: Any, items: list[Any]) -> None:
    if isinstance(target, Ignored) and m.dry:
        return
    if type(target) is not list:
        raise Refused("its pickle appends to something that is no list")
    target.extend(items)


def _set_item(m: Machine) -> None:
    value, key = m.pop(), m.pop()
    _set_items(m, m.top(), [key, value])


def _set_marked(m: Machine) -> None:
    items = m.pop_mark()
    _set_items(m, m.top(), items)


def _append_one(m: Machine) -> None:
    value = m.pop()
    _append(m, m.top(), [value])


def _append_marked(m: Machine) -> None:
    items = m.pop_mark()
    _append(m, m.top(), items)


def _add_marked(m: Machine) -> None:
    items = m.pop_mark()
    target = m.top()
    if type(target) is not set or len(target) + len(items) > MAX_COLLIDING:
        raise Refused("its pickle adds to something that is no set, or too much")
    target |= make_set(set, items, m.budget)


def _dict_marked(m: Machine) -> None:
    items: list[Any] = m.pop_mark()
    made: dict = {}
    _set_items(m, made, items)
    m.push(made)


def _put(m: Machine, index: int) -> None:
    m.memo[index] = m.top()


def _get(m: Machine, index: int) -> None:
    if index not in m.memo:
        raise Refused("its pickle refers to a value that is not there")
    m.push(m.memo[index])


def _pop(m: Machine) -> None:
    if m.marks and m.marks[-1] == len(m.stack):
        m.marks.pop()
    else:
        m.pop()


def _reduce(m: Machine) -> None:
    arguments, function = m.pop(), m.pop()
    m.call(function, arguments)


def _new_object(m: Machine) -> None:
    arguments, kind = m.pop(), m.pop()
    m.make_object(kind, arguments)


def _new_object_kw(m: Machine) -> None:
    keywords, arguments, kind = m.pop(), m.pop(), m.pop()
    if keywords and not m.dry:
        raise Refused("its pickle makes an object with keyword arguments")
    m.make_object(kind, arguments)


def _build(m: Machine) -> None:
    state, target = m.pop(), m.top()
    if m.dry:
        return
    if type(target) is OrderedDict and type(state) is dict:
        return  # attributes of a state_dict (_metadata), which nobody needs here
    if not isinstance(target, Buildable):
        raise Refused(f"its pickle has a state for a {type(target).__name__}, which takes none")
    invoke(Constructor(type(target).__name__, target.build), (state,))


def _persistent(m: Machine) -> None:
    m.push(m.persistent(m.pop()))


def _global(m: Machine) -> None:
    module = m.line()
    m.name(module, m.line())


def _stack_global(m: Machine) -> None:
    name, module = m.pop(), m.pop()
    m.name(module, name)


def _protocol(m: Machine) -> None:
    version = m.take(1)[0]
    if version > 5:
        raise Refused(f"its pickle has protocol {version}; protocols up to 5 are read")


def _frame(m: Machine) -> None:
    if m.number("<Q") > len(m.data) - m.position:
        raise Refused("its pickle ends in the middle")


_CODES: dict[int, Callable[[Machine], None]] = {
    ord("("): lambda m: m.marks.append(len(m.stack)),
    ord("0"): _pop,
    ord("1"): lambda m: void(m.pop_mark()),
    ord("2"): lambda m: m.push(m.top()),
    ord("F"): _float_line,
    ord("I"): _int_line,
    ord("L"): lambda m: m.push(parse_int(m.line())),
    ord("J"): lambda m: m.push(m.number("<i")),
    ord("K"): lambda m: m.push(m.take(1)[0]),
    ord("M"): lambda m: m.push(m.number("<H")),
    ord("N"): lambda m: m.push(None),
    ord("Q"): _persistent,
    ord("R"): _reduce,
    ord("T"): lambda m: _old_text(m, "<i"),
    ord("U"): lambda m: _old_text(m, "<B"),
    ord("X"): lambda m: _text(m, "<I"),
    ord("a"): _append_one,
    ord("b"): _build,
    ord("c"): _global,
    ord("d"): _dict_marked,
    ord("}"): lambda m: m.push({}),
    ord("e"): _append_marked,
    ord("g"): lambda m: _get(m, parse_int(m.line())),
    ord("h"): lambda m: _get(m, m.take(1)[0]),
    ord("j"): lambda m: _get(m, m.number("<I")),
    ord("l"): lambda m: m.push(m.pop_mark()),
    ord("]"): lambda m: m.push([]),
    ord("p"): lambda m: _put(m, parse_int(m.line())),
    ord("q"): lambda m: _put(m, m.take(1)[0]),
    ord("r"): lambda m: _put(m, m.number("<I")),
    ord("s"): _set_item,
    ord("t"): lambda m: m.push(tuple(m.pop_mark())),
    ord(")"): lambda m: m.push(()),
    ord("u"): _set_marked,
    ord("G"): lambda m: m.push(struct.unpack(">d", m.take(8))[0]),
    0x80: _protocol,
    0x81: _new_object,
    0x85: _tuple_of(1),
    0x86: _tuple_of(2),
    0x87: _tuple_of(3),
    0x88: lambda m: m.push(True),
    0x89: lambda m: m.push(False),
    0x8A: lambda m: _long(m, "<B"),
    0x8B: lambda m: _long(m, "<i"),
    ord("B"): lambda m: _bytes(m, "<I"),
    ord("C"): lambda m: _bytes(m, "<B"),
    0x8C: lambda m: _text(m, "<B"),
    0x8D: lambda m: _text(m, "<Q"),
    0x8E: lambda m: _bytes(m, "<Q"),
    0x8F: lambda m: m.push(set()),
    0x90: _add_marked,
    0x91: lambda m: m.push(make_set(frozenset, m.pop_mark(), m.budget)),
    0x92: _new_object_kw,
    0x93: _stack_global,
    0x94: lambda m: _put(m, len(m.memo)),
    0x95: _frame,
    0x96: lambda m: m.push(bytearray(m.take(m.number("<Q")))),
}


def void(_value: Any) -> None:
    """Throw a value away."""
