"""Corpora of operator calls as text: one file per model, nothing but metadata.

    # key: value                              name, family, source, sizes, optimizer
    4<TAB>aten::relu_ float32[32,64,112,112]  the model calls this four times in a training step
    <TAB>diopiReluInp float32[32,64,112,112]  ... which becomes these calls of the operator standard,
    <TAB>! no row in the operator table       ... or none, for this reason

An argument is one word: float32[2,3]{1,2} a tensor (strides where it is not row-major), (a;b) a list of tensors, <2,3>
a list of numbers, "mean" a text, dtype:float32, format:channels_last, layout:strided, device, - for None; keyword
arguments are name=word. In calls of the standard also float64:0.5 a scalar, *3 a number behind a pointer, g a
generator, ? what the library makes, and @0 behind a tensor that is the same as argument 0. Depends on nothing.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

DIRECTORY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus")
ITEM_BYTES = {"float64": 8, "int64": 8, "complex64": 8, "complex128": 16, "uint64": 8, "float32": 4, "int32": 4}
ITEM_BYTES |= {"uint32": 4, "float16": 2, "bfloat16": 2, "int16": 2, "uint16": 2, "int8": 1, "uint8": 1, "bool": 1}


class CorpusError(ValueError):
    """A corpus that does not exist, or that is not as it must be."""


class Tensor(NamedTuple):
    """Metadata of a tensor."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None = None
    """None: row-major."""
    alias: int | None = None
    """Of a call of the standard: the argument that is this very tensor."""

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.numel * ITEM_BYTES.get(self.dtype, 8)

    def __str__(self) -> str:
        strides = "" if self.strides is None else "{" + ",".join(map(str, self.strides)) + "}"
        alias = "" if self.alias is None else f"@{self.alias}"
        return f"{self.dtype}[{','.join(map(str, self.shape))}]{strides}{alias}"


class Word(NamedTuple):
    """An argument that is neither a number nor a tensor: kind dtype, format, layout, device, scalar, pointer,
    generator, made."""

    kind: str
    value: Any = None

    def __str__(self) -> str:
        if self.kind == "scalar":
            return f"{self.value[0]}:{self.value[1]!r}"
        if self.kind == "pointer":
            return f"*{self.value}"
        if self.kind in ("generator", "made"):
            return "g" if self.kind == "generator" else "?"
        return self.kind if self.value is None else f"{self.kind}:{self.value}"


@dataclass(frozen=True)
class Call:
    """One operator call. Lists of tensors are tuples of Tensor or None; lists of numbers are lists."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        words = [format_word(value) for value in self.args]
        words += [f"{key}={format_word(value)}" for key, value in self.kwargs.items()]
        return " ".join([self.name, *words])

    def __hash__(self) -> int:
        return hash(str(self))

    def tensors(self) -> Iterator[Tensor]:
        for value in [*self.args, *self.kwargs.values()]:
            if isinstance(value, Tensor):
                yield value
            elif isinstance(value, tuple) and not isinstance(value, Word):
                yield from (item for item in value if isinstance(item, Tensor))


@dataclass
class Entry:
    """A distinct call of a model, how often it is made, and what it becomes in the standard."""

    call: Call
    count: int
    functions: list[Call] = field(default_factory=list)
    reason: str = ""
    """Why it becomes nothing."""


@dataclass
class Corpus:
    name: str
    about: dict[str, str]
    entries: list[Entry]


def format_word(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return '"' + value + '"'
    if isinstance(value, list):
        return "<" + ",".join(format_word(item) for item in value) + ">"
    if isinstance(value, tuple) and not isinstance(value, (Tensor, Word)):
        return "(" + ";".join(format_word(item) for item in value) + ")"
    return repr(value) if isinstance(value, float) else str(value)


_TENSOR = re.compile(r"([a-z]+\d*)\[([\d,]*)\](?:\{([\d,]*)\})?(?:@(\d+))?\Z")
_SCALAR = re.compile(r"((?:float|bfloat|int|uint|bool|complex)\d*):(.+)\Z")
_FIXED = {"-": None, "true": True, "false": False}


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(",")) if text else ()


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return float(text)


def parse_word(text: str) -> Any:
    if text in _FIXED:
        return _FIXED[text]
    mark = text[0]
    if mark == '"':
        return text[1:-1]
    if mark == "<":
        return [parse_word(part) for part in text[1:-1].split(",")] if len(text) > 2 else []
    if mark == "(":
        return tuple(parse_word(part) for part in text[1:-1].split(";")) if len(text) > 2 else ()
    if mark == "*":
        return Word("pointer", int(text[1:]))
    if text in ("g", "?"):
        return Word("generator" if text == "g" else "made")
    found = _TENSOR.match(text)
    if found:
        strides = None if found[3] is None else _numbers(found[3])
        return Tensor(found[1], _numbers(found[2]), strides, None if found[4] is None else int(found[4]))
    found = _SCALAR.match(text)
    if found:
        return Word("scalar", (found[1], _number(found[2])))
    kind, colon, value = text.partition(":")
    if kind in ("dtype", "format", "layout", "device"):
        return Word(kind, value if colon else None)
    return _number(text)


def parse_call(text: str) -> Call:
    name, *words = text.split(" ")
    args, kwargs = [], {}
    for word in words:
        found = re.match(r"([A-Za-z_]\w*)=(.*)\Z", word)
        if found:
            kwargs[found[1]] = parse_word(found[2])
        else:
            args.append(parse_word(word))
    return Call(name, tuple(args), kwargs)


def list_names() -> list[str]:
    """Models that have a corpus."""
    return sorted(name[:-4] for name in os.listdir(DIRECTORY) if name.endswith(".txt"))


def _read_lines(name: str, path: str) -> Corpus:
    corpus = Corpus(name, {}, [])
    with open(path, encoding="utf-8") as stream:
        for number, line in enumerate(stream, 1):
            try:
                _read_line(corpus, line.rstrip("\n"))
            except (ValueError, IndexError) as error:
                raise CorpusError(f"{path}:{number}: {error}") from None
    return corpus


def _read_line(corpus: Corpus, line: str) -> None:
    if line.startswith("# "):
        key, _, value = line[2:].partition(": ")
        corpus.about[key] = value
        return
    count, _, text = line.partition("\t")
    if count:
        corpus.entries.append(Entry(parse_call(text), int(count)))
    elif text.startswith("! "):
        corpus.entries[-1].reason = text[2:]
    else:
        corpus.entries[-1].functions.append(parse_call(text))


def read(name: str) -> Corpus:
    """The corpus of a model; CorpusError names what is near."""
    import difflib

    path = os.path.join(DIRECTORY, f"{name}.txt")
    if not os.path.exists(path):
        near = difflib.get_close_matches(name, list_names(), 4, 0.4)
        hint = f"near: {', '.join(near)}" if near else "`ditorch conform list --models` shows them"
        raise CorpusError(f"no model {name!r}; {hint}")
    return _read_lines(name, path)


def write(corpus: Corpus, path: str) -> None:
    lines = [f"# {key}: {value}" for key, value in corpus.about.items()]
    for entry in corpus.entries:
        lines.append(f"{entry.count}\t{entry.call}")
        lines += [f"\t{call}" for call in entry.functions]
        lines += [f"\t! {entry.reason}"] if entry.reason else []
    with open(path, "w", encoding="utf-8") as stream:
        stream.write("\n".join(lines) + "\n")
