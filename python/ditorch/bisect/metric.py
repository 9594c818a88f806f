"""Metrics: numbers in a program's output, and conditions over them such as `loss<2.5 and finite(grad_norm)`.

The language is parsed here and is nothing but arithmetic; no text of a user is ever executed. A name stands for the
last number that the output gives it (`loss 2.5`, `loss=2.5`, `"loss": 2.5`); first, min, max, mean and count are over
all of them.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from typing import Any

NUMBER = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|[nN]a[nN]|[iI]nf(?:inity)?)"
_TOKEN = re.compile(
    r"""\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?%?)|"(?P<quoted>[^"]+)"|(?P<name>[A-Za-z_][\w.]*)"""
    r"""|(?P<sign><=|>=|==|!=|[<>()+*/-]))"""
)
_COMPARE = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_SERIES: dict[str, Callable[[list[float]], float]] = {
    "first": lambda values: values[0],
    "last": lambda values: values[-1],
    "min": lambda values: _spread(values, min),
    "max": lambda values: _spread(values, max),
    "mean": lambda values: sum(values) / len(values),
    "count": lambda values: float(len(values)),
}
_VALUES: dict[str, Callable[[float], Any]] = {"abs": abs, "finite": math.isfinite}
_MOST_LEVELS = 50
"""Of parentheses and signs: a text is no reason to overflow the stack."""


class MetricError(ValueError):
    """A condition that cannot be meant; the text is for the user."""


class MissingError(LookupError):
    """The output has no such number."""


def _spread(values: list[float], choose: Callable[[list[float]], float]) -> float:
    """min and max say NaN when there is one."""
    return math.nan if any(value != value for value in values) else choose(values)


Series = dict[str, list[float]]
Node = Callable[[Series], Any]


class Condition:
    """`Condition("loss<2.5").test({"loss": [3.0, 2.4]})` is true. MetricError says where the text is wrong."""

    def __init__(self, text: str):
        self.text = text
        self.names: list[str] = []
        self._tokens = list(_split(text))
        self._place = self._depth = 0
        self._node, is_verdict = self._parse_or()
        if self._place < len(self._tokens):
            raise self._error(f"{self._tokens[self._place][1]!r} is not expected here")
        if not is_verdict:
            raise MetricError(f"{text!r} is a number and no verdict; write what is right, such as 'loss<2.5'")
        if not self.names:
            raise MetricError(f"{text!r} names no number of the output, such as loss in 'loss<2.5'")

    def test(self, values: Series) -> bool:
        """MissingError when a name has no value."""
        return bool(self._node(values))

    # The parser: every function gives what computes the value, and whether that is true or false

    def _error(self, problem: str) -> MetricError:
        column = self._tokens[self._place][2] if self._place < len(self._tokens) else len(self.text)
        return MetricError(f"{problem}\n  {self.text}\n  {' ' * column}^")

    def _take(self, *texts: str) -> str:
        if self._place < len(self._tokens) and self._tokens[self._place][0] != "quoted":
            text = self._tokens[self._place][1]
            if text in texts:
                self._place += 1
                return text
        return ""

    def _parse_or(self) -> tuple[Node, bool]:
        left, verdict = self._parse_and()
        while self._take("or"):
            left, verdict = self._join(any, left, verdict, self._parse_and())
        return left, verdict

    def _parse_and(self) -> tuple[Node, bool]:
        left, verdict = self._parse_not()
        while self._take("and"):
            left, verdict = self._join(all, left, verdict, self._parse_not())
        return left, verdict

    def _join(self, how: Any, left: Node, verdict: bool, other: tuple[Node, bool]) -> tuple[Node, bool]:
        right, other_verdict = other
        if not (verdict and other_verdict):
            raise self._error("'and' and 'or' join conditions, such as loss<2.5")
        return (lambda values: how((left(values), right(values)))), True

    def _parse_not(self) -> tuple[Node, bool]:
        if not self._take("not"):
            return self._parse_comparison()
        self._descend()
        node, verdict = self._parse_not()
        self._depth -= 1
        if not verdict:
            raise self._error("'not' is for conditions, such as loss<2.5")
        return (lambda values: not node(values)), True

    def _parse_comparison(self) -> tuple[Node, bool]:
        left, verdict = self._parse_sum()
        sign = self._take(*_COMPARE)
        if not sign:
            return left, verdict
        right, other = self._parse_sum()
        if verdict or other:
            raise self._error("only numbers are compared; join conditions by 'and'")
        if self._take(*_COMPARE):
            self._place -= 1
            raise self._error("one comparison at a time; join them by 'and'")
        compare = _COMPARE[sign]
        return (lambda values: compare(left(values), right(values))), True

    def _parse_sum(self) -> tuple[Node, bool]:
        return self._parse_chain({"+": operator.add, "-": operator.sub}, self._parse_product)

    def _parse_product(self) -> tuple[Node, bool]:
        return self._parse_chain({"*": operator.mul, "/": _divide}, self._parse_sign)

    def _parse_chain(self, signs: dict[str, Any], parse: Callable[[], tuple[Node, bool]]) -> tuple[Node, bool]:
        left, verdict = parse()
        while sign := self._take(*signs):
            right, other = parse()
            if verdict or other:
                raise self._error("arithmetic is for numbers")
            left = _combine(signs[sign], left, right)
        return left, verdict

    def _parse_sign(self) -> tuple[Node, bool]:
        if not self._take("-"):
            return self._parse_atom()
        self._descend()
        node, verdict = self._parse_sign()
        self._depth -= 1
        if verdict:
            raise self._error("arithmetic is for numbers")
        return (lambda values: -node(values)), False

    def _parse_atom(self) -> tuple[Node, bool]:
        if self._take("("):
            self._descend()
            found = self._parse_or()
            self._depth -= 1
            self._close()
            return found
        if self._place >= len(self._tokens):
            raise self._error("something is missing at the end")
        kind, text, _ = self._tokens[self._place]
        if kind == "sign" or (kind == "name" and text in ("and", "or", "not")):
            raise self._error(f"a number or a name is expected, not {text!r}")
        self._place += 1
        if kind == "number":
            number = float(text.rstrip("%")) / (100 if text.endswith("%") else 1)
            return (lambda values: number), False
        if kind == "name" and self._take("("):
            return self._parse_call(text)
        return self._read(text), False

    def _parse_call(self, name: str) -> tuple[Node, bool]:
        if name in _SERIES:
            kind, text = self._tokens[self._place][:2] if self._place < len(self._tokens) else ("", "")
            if kind not in ("name", "quoted"):
                raise self._error(f"{name}() is over the values of a name, such as {name}(loss)")
            self._place += 1
            self._close()
            return self._read(text, _SERIES[name]), False
        if name not in _VALUES:
            self._place -= 2
            raise self._error(f"there is no function {name!r}; there are {', '.join((*_SERIES, *_VALUES))}")
        self._descend()
        node, verdict = self._parse_sum()
        self._depth -= 1
        if verdict:
            raise self._error(f"{name}() is for numbers")
        self._close()
        function = _VALUES[name]
        return (lambda values: function(node(values))), name == "finite"

    def _read(self, name: str, choose: Callable[[list[float]], float] = _SERIES["last"]) -> Node:
        if name not in self.names:
            self.names.append(name)

        def read(values: Series) -> float:
            if not values.get(name):
                raise MissingError(name)
            return choose(values[name])

        return read

    def _close(self) -> None:
        if not self._take(")"):
            raise self._error("')' is missing")

    def _descend(self) -> None:
        self._depth += 1
        if self._depth > _MOST_LEVELS:
            raise MetricError("the condition is nested too deeply")


def _split(text: str) -> Any:
    """(kind, text, column) of every token."""
    place = 0
    while text[place:].strip():
        match = _TOKEN.match(text, place)
        if match is None:
            column = place + len(text[place:]) - len(text[place:].lstrip())
            raise MetricError(f"{text[column]!r} is not expected here\n  {text}\n  {' ' * column}^")
        yield match.lastgroup, match[match.lastgroup], match.start(match.lastgroup)
        place = match.end()


def _combine(function: Any, left: Node, right: Node) -> Node:
    return lambda values: function(left(values), right(values))


def _divide(a: float, b: float) -> float:
    return a / b if b else math.nan


def compile_pattern(text: str, names: list[str]) -> re.Pattern:
    """--pattern: an expression with one group, or with groups that have the names of the metrics."""
    try:
        pattern = re.compile(text, re.MULTILINE)
    except re.error as error:
        raise MetricError(f"--pattern {text!r} is no regular expression: {error}") from None
    if not pattern.groups:
        raise MetricError(f"--pattern {text!r} has no group: put the number into parentheses")
    missing = [name for name in names if name not in pattern.groupindex]
    if missing and (len(names) > 1 or pattern.groupindex):
        raise MetricError(f"--pattern {text!r} has no group (?P<{missing[0]}>...)")
    return pattern


def read_values(text: str, names: list[str], pattern: re.Pattern | None = None) -> Series:
    """Every number that the text gives to each name, in their order."""
    found: Series = {name: [] for name in names}
    if pattern is None:
        for name in names:
            expression = rf"(?<![\w.]){re.escape(name)}[\"']?\s*[=:]?\s*(?:tensor\()?({NUMBER})(?!\w)"
            found[name] = [float(match[1]) for match in re.finditer(expression, text)]
        return found
    for match in pattern.finditer(text):
        for name in names:
            value = match[name] if name in pattern.groupindex else match[1]
            try:
                found[name].append(float(value))
            except (TypeError, ValueError):
                continue
    return found


def is_near(mine: list[float], wanted: list[float], within: float) -> bool:
    """Two series are of one length, and each number is off by at most a part of the larger; NaN is near to NaN."""
    if len(mine) != len(wanted):
        return False
    return all(
        a == b or (a != a and b != b) or abs(a - b) <= within * max(abs(a), abs(b))
        for a, b in zip(mine, wanted, strict=True)
    )
