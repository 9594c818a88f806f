"""Which calls a tool sees: lists of operator names, patterns, steps, ranks, limits, module paths.

Everything is compiled once, when a tool starts or an option changes; the engine then asks `Selection.match` once per
operator name and keeps the answer. A text that cannot be used raises ValueError here, never inside an operator.
"""

from __future__ import annotations

import difflib
import fnmatch
import functools
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ditorch import _C
from ditorch.settings import ToolOptions

from . import console

NO_LIMIT = 2**63 - 1
_EXACT = re.compile(r"[A-Za-z0-9_.:]+")
_SPACES = {
    "torch.": "torch.",
    "F.": "torch.nn.functional.",
    "nn.functional.": "torch.nn.functional.",
    "Tensor.": "torch.Tensor.",
}
"""How people shorten the beginning of a name."""
_CLOSING = {")": "(", "}": "{"}


# Lists


def split(text: str) -> Iterator[tuple[int, str]]:
    """Position and text of each entry of a list. Commas inside (), [] and {}, and behind a backslash, do not separate;
    blanks around entries do not count; empty entries are left out."""
    start = 0
    for end in [*_commas(text), len(text)]:
        entry = text[start:end]
        if entry.strip():
            yield start + len(entry) - len(entry.lstrip()), entry.strip()
        start = end + 1


def _commas(text: str) -> Iterator[int]:
    """Positions of the commas that separate entries."""
    open_brackets: list[str] = []
    i = 0
    while i < len(text):
        letter = text[i]
        if letter == "\\":
            i += 1
        elif (
            letter == "["
        ):  # inside a character set only its end has a meaning; a ] that stands first is a letter of it
            match = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]").match(text, i)
            if match is None:
                return
            i = match.end() - 1
        elif letter in "({":
            open_brackets.append(letter)
        elif open_brackets and _CLOSING.get(letter) == open_brackets[-1]:
            open_brackets.pop()
        elif letter == "," and not open_brackets:
            yield i
        i += 1


def _compile(expression: str, origin: str, entry: str, position: int) -> re.Pattern:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return re.compile(expression)
    except re.error as error:
        where = f" at position {error.pos}" if error.pos is not None else ""
        raise ValueError(
            f"{origin}: {entry!r} (character {position + 1} of the list) is not a regular expression: "
            f"{error.msg}{where}; "
            r"write special characters of a name with a backslash, such as torch\.add"
        ) from None


class NameList:
    """A list of the original: an operator is on it when an entry is its name, or matches the whole name as a regular
    expression. The empty list has nobody on it.

    A name may be any that people know: torch.softmax, F.softmax, Tensor.add_, aten::add.out, torch.ops.aten.mm, or the
    word alone (softmax), which is every function of that name. Names of one level mean the operators of the other:
    torch.softmax is aten::_softmax at level aten, aten::add.out is torch.add and torch.Tensor.add at level torch."""

    def __init__(self, text: str, origin: str):
        self.text, self.origin = text, origin
        self._exact: set[str] = set()
        self._words: set[str] = set()
        """Of every level."""
        self._torch_words: set[str] = set()
        self._aten_words: set[str] = set()
        self._patterns: list[re.Pattern] = []
        for position, entry in split(text):
            self._exact.add(entry)
            if not _EXACT.fullmatch(entry) or not self._add_name(entry):
                self._patterns.append(_compile(entry, origin, entry, position))
                if entry not in (".*", ".+") and not _EXACT.fullmatch(entry):
                    _check_pattern(self._patterns[-1].fullmatch, entry, origin)
        self._all = any(pattern.pattern in (".*", ".+") for pattern in self._patterns)

    def _add_name(self, entry: str) -> bool:
        """False for what only its whole text can mean: a dotted name of another package."""
        if "::" in entry or entry.startswith("torch.ops."):
            name = _check_operator(entry, self.origin)
            self._exact.add(name)
            if name.startswith("aten::"):
                self._torch_words.add(name[6:])
                self._aten_words.add(name[6:])
            return True
        for short, space in _SPACES.items():
            if entry.startswith(short):
                entry = space + entry[len(short) :]
                self._exact |= find_names(entry, self.origin)
                self._add_parts(get_word(entry))
                return True
        if "." in entry:
            return False
        self._words.add(entry)
        self._add_parts(entry)
        _check_word(entry, self.origin)
        return True

    def _add_parts(self, word: str) -> None:
        self._aten_words |= {word, *_C.operator_parts(word)}

    def match(self, name: str) -> bool:
        return (
            self._all
            or name in self._exact
            or self._match_word(name)
            or any(pattern.fullmatch(name) for pattern in self._patterns)
        )

    def _match_word(self, name: str) -> bool:
        word = get_word(name)
        if word in self._words:
            return True
        if "::" in name or name.startswith("aten."):
            return word in self._aten_words and name.startswith("aten")
        return word in self._torch_words and name.startswith("torch.")

    def __bool__(self) -> bool:
        return bool(self._exact)


class PatternList:
    """Shell patterns; an entry that begins with `re:` is a regular expression for the whole text."""

    def __init__(self, text: str, origin: str):
        self.text, self.origin = text, origin
        self._patterns: list[re.Pattern] = []
        for position, entry in split(text):
            expression = entry[3:] if entry.startswith("re:") else fnmatch.translate(entry)
            self._patterns.append(_compile(expression, origin, entry, position))

    def match(self, text: str) -> bool:
        return any(pattern.fullmatch(text) for pattern in self._patterns)

    def __bool__(self) -> bool:
        return bool(self._patterns)


class OperatorPatterns:
    """Shell patterns of operators; an entry without wildcards is a name as in a NameList (softmax, F.softmax)."""

    def __init__(self, text: str, origin: str):
        self.text, self.origin = text, origin
        entries = [entry for _, entry in split(text)]
        self._names = NameList(",".join(entry for entry in entries if _EXACT.fullmatch(entry)), origin)
        self._patterns = [PatternList(entry, origin) for entry in entries if not _EXACT.fullmatch(entry)]
        for pattern in self._patterns:
            _check_pattern(pattern.match, pattern.text, origin)

    def match(self, name: str) -> bool:
        return self._names.match(name) or any(pattern.match(name) for pattern in self._patterns)

    def __bool__(self) -> bool:
        return bool(self._names or self._patterns)


class Ranges:
    """Numbers and ranges, "4-6,9,20-"; the empty text has all numbers. The syntax is checked by the schema."""

    def __init__(self, text: str):
        self.text = text
        self._ranges = []
        for item in text.split(","):
            low, dash, high = item.strip().partition("-")
            if low:
                self._ranges.append((int(low), int(high) if high else NO_LIMIT if dash else int(low)))

    def __contains__(self, number: int) -> bool:
        return not self._ranges or any(low <= number <= high for low, high in self._ranges)


# Names that exist


def _walk(path: str) -> Any:
    value = sys.modules[path.partition(".")[0]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for part in path.split(".")[1:]:
            value = getattr(value, part)
    return value


def get_word(name: str) -> str:
    """The last part of a name of either level: "add" of torch.Tensor.add, aten::add and aten.add.default."""
    if name.startswith("aten.") and name.count(".") > 1:
        return name.split(".")[1]
    return name.replace("::", ".").rpartition(".")[2]


def _say_nothing_matches(entry: str, origin: str, known: Iterable[str]) -> None:
    near = difflib.get_close_matches(entry, sorted(known), n=3, cutoff=0.4)
    hint = f"; the nearest are {', '.join(near)}" if near else ""
    console.say_once(
        f"{origin}: {entry!r} matches no operator of torch{hint}. Only functions of other libraries could be meant"
    )


def _check_word(word: str, origin: str) -> None:
    known = known_words()
    if word not in known:
        _say_nothing_matches(word, origin, known)


def _check_pattern(match: Callable[[str], Any], entry: str, origin: str) -> None:
    names = known_names()
    if not any(map(match, (*names, *known_operators()))):
        _say_nothing_matches(entry, origin, names)


def find_names(name: str, origin: str = "the list") -> set[str]:
    """The names under which the engine sees the function `name`, usually that one alone; ValueError with the nearest
    names when torch has no such function."""
    import torch

    try:
        value = _walk(name)
    except (AttributeError, ImportError, RuntimeError):
        value = None
    if not callable(value):
        near = difflib.get_close_matches(name, known_names(), n=3, cutoff=0.5)
        hint = f"; the nearest are {', '.join(near)}" if near else ""
        raise ValueError(
            f"{origin}: torch {torch.__version__} has no function {name!r}{hint}. "
            "Correct the name, or write a regular expression such as '.*add.*'"
        )
    names = {name}
    try:
        resolved = torch.overrides.resolve_name(value)
    except (TypeError, AttributeError, ValueError):
        resolved = None
    if resolved:
        names.add(resolved)
    return names


@functools.lru_cache(maxsize=1)
def known_words() -> frozenset[str]:
    """The words of all functions and operators of torch."""
    return frozenset(map(get_word, (*known_names(), *known_operators())))


@functools.lru_cache(maxsize=1)
def known_operators() -> frozenset[str]:
    """aten::add and its like, as tools with level=aten see them."""
    import torch

    return frozenset(schema.name for schema in torch._C._jit_get_all_schemas() if schema.name.startswith("aten::"))


@functools.lru_cache(maxsize=1)
def known_names() -> list[str]:
    """Every name that torch itself gives to functions that tools can see."""
    import torch

    names = set()
    for functions in torch.overrides.get_overridable_functions().values():
        for function in functions:
            name = torch.overrides.resolve_name(function)
            if name:
                names.add(name)
    return sorted(names)


def _check_operator(entry: str, origin: str) -> str:
    """aten::add of aten::add.out and of torch.ops.aten.add.out; ValueError when there is no such operator."""
    import torch

    if "::" in entry:
        base = entry.partition(".")[0]
    else:
        base = "::".join(entry.removeprefix("torch.ops.").split(".")[:2])
    if not torch._C._jit_get_schemas_for_operator(base):
        near = difflib.get_close_matches(base, sorted(known_operators()), n=3, cutoff=0.5)
        hint = f"; the nearest are {', '.join(near)}" if near else ""
        raise ValueError(f"{origin}: torch {torch.__version__} has no operator {base!r}{hint}")
    return base


# One tool


def get_rank() -> int:
    """Rank of this process in a distributed program: torch.distributed's, else RANK of the environment, else 0."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank()
    return _environment_number("RANK", 0)


def get_world_size() -> int:
    """Processes of the distributed program, 1 without one."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_world_size()
    return _environment_number("WORLD_SIZE", 1)


def _environment_number(name: str, fallback: int) -> int:
    try:
        return int(os.environ.get(name, ""))
    except ValueError:
        return fallback


class Selection:
    """The compiled selection of one tool."""

    def __init__(self, options: ToolOptions):
        def make(kind: type, name: str) -> Any:
            return kind(options[name].text, options[name].origin)

        self.names = make(NameList, "list")
        self.disabled = make(NameList, "disable_list")
        self.include = make(OperatorPatterns, "include")
        self.exclude = make(OperatorPatterns, "exclude")
        self.modules = make(PatternList, "modules")
        self.steps = Ranges(options["steps"].text)
        self.ranks = Ranges(options["ranks"].text)
        self.every = options.get_value("every")
        self.cpu = options.get_value("cpu")
        numel_min, numel_max = options.get_value("numel_min"), options.get_value("numel_max")
        if numel_max and numel_min > numel_max:
            raise ValueError(
                f"{options['numel_min'].origin} is {numel_min}, more than numel_max, which is {numel_max}: no call "
                "could be selected"
            )
        self.limits = (numel_min, numel_max or NO_LIMIT, options.get_value("first") or NO_LIMIT)
        self.rejected: set[str] = set()
        """Names the engine asked about that are not selected, for the explanation of an empty result."""
        self.accepted: set[str] = set()

    def match(self, name: str) -> bool:
        """Is the operator selected by its name? The disable list beats the list; include comes before exclude."""
        wanted = (
            not self.disabled.match(name)
            and self.names.match(name)
            and (not self.include or self.include.match(name))
            and not self.exclude.match(name)
        )
        (self.accepted if wanted else self.rejected).add(name)
        return wanted

    def list_idle(self) -> list[str]:
        """Entries of list and include that mean none of the names that came."""
        came = self.accepted | self.rejected
        idle = []
        for kind, chosen in ((NameList, self.names), (OperatorPatterns, self.include)):
            for _, entry in split(chosen.text):
                alone = kind(entry, chosen.origin)
                if alone and not any(map(alone.match, came)):
                    idle.append(entry)
        return idle

    @property
    def module_filter(self) -> Callable[[str], bool] | None:
        """For the engine; None when calls from anywhere are selected."""
        return self.modules.match if self.modules else None

    def is_due(self, step: int) -> bool:
        """Does this process look at this step?"""
        return step in self.steps and step % self.every == 0 and get_rank() in self.ranks
