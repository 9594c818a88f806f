"""Write python/ditorch/_C.pyi, the types of the extension, from the docstrings of its method tables.

The first line of a docstring is the signature in Python's own words (`memory_alloc(device: int, ...) -> int`); an
attribute's begins with its type (`bool: Between start and stop.`). What has none is an error that names it.
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
import types
from pathlib import Path

import stub_file
import torch  # noqa: F401  the extension's types look at it
from ditorch import _C

STUB = Path(__file__).resolve().parent.parent / "python" / "ditorch" / "_C.pyi"
HEAD = '''"""The CPython extension: the device alias, bindings of libdit, the engine of the operator tools.

Written by tools/gen_stub.py (make docs) from the extension itself.
"""

from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from typing import Any

from torch import Tensor
'''
SPECIAL = {
    "__call__": "def __call__(self, *args: Any, **kwargs: Any) -> Any: ...",
    "__get__": "def __get__(self, instance: Any, owner: type | None = None, /) -> Any: ...",
    "__iter__": "def __iter__(self) -> Iterator[dict[str, Any]]: ...",
    "__next__": "def __next__(self) -> dict[str, Any]: ...",
}
"""Slots of types, which have no docstring of ours."""

CONSTRUCTORS = {"Gate": "(old: Any, new: Any, label: str)"}
"""Of types whose docstring is that of what an instance wraps."""


class NoSignature(Exception):
    """A docstring whose first line says no signature or type."""


def split_signature(owner: str, name: str, doc: str | None) -> tuple[str, str]:
    """The signature, without the name, and the rest of a docstring."""
    line, _, text = (doc or "").partition("\n\n")
    signature = line.removeprefix(name)
    try:
        if signature == line:
            raise SyntaxError
        ast.parse(f"def f{signature}: ...")
    except SyntaxError:
        raise NoSignature(f"{owner}{name}: the docstring begins with {line!r}, which is no signature") from None
    return signature, text


def render_function(owner: str, name: str, doc: str | None, bound: str = "", indent: str = "") -> str:
    signature, text = split_signature(owner, name, doc)
    if bound:
        signature = signature.replace("(", f"({bound}, " if not signature.startswith("()") else f"({bound}", 1)
    body = f"\n{render_text(text, indent + '    ')}" if text else " ...\n"
    return f"{indent}def {name}{signature}:{body}"


def render_text(text: str, indent: str) -> str:
    lines = textwrap.wrap(f'"""{text}"""', 120, initial_indent=indent, subsequent_indent=indent)
    return "\n".join(lines) + "\n"


def render_attribute(owner: str, name: str, value: types.GetSetDescriptorType) -> str:
    kind, _, text = (value.__doc__ or "").partition(": ")
    try:
        ast.parse(kind, mode="eval")
    except SyntaxError:
        text = ""
    if not text:
        raise NoSignature(f"{owner}{name}: the docstring {value.__doc__!r} does not begin with a type and a colon")
    return f"    {name}: {kind}\n{render_text(text, '    ')}"


def render_member(owner: str, name: str, value: object) -> str:
    if name in SPECIAL:
        return f"    {SPECIAL[name]}\n"
    if name.startswith("__") and not getattr(value, "__doc__", None):
        return ""
    if isinstance(value, staticmethod):
        return "    @staticmethod\n" + render_function(owner, name, value.__func__.__doc__, indent="    ")
    if isinstance(value, types.MethodDescriptorType):
        return render_function(owner, name, value.__doc__, "self", "    ")
    if isinstance(value, (types.GetSetDescriptorType, types.MemberDescriptorType)):
        return render_attribute(owner, name, value)
    return ""


def render_class(name: str, kind: type) -> str:
    signature, text = CONSTRUCTORS.get(name, ""), ""
    if not signature:
        signature, text = split_signature("", name, kind.__doc__)
    parts = [f"class {name}:\n", render_text(text, "    ") if text else ""]
    parts.append(render_function(f"{name}.", "__init__", f"__init__{signature} -> None", "self", "    "))
    members = sorted(vars(kind).items())
    return "".join([*parts, *(render_member(f"{name}.", member, value) for member, value in members)])


def render() -> str:
    """The whole stub, as the formatter would write it."""
    members = sorted(vars(_C).items())
    classes = [render_class(name, value) for name, value in members if isinstance(value, type)]
    functions = [
        render_function("", name, value.__doc__)
        for name, value in members
        if isinstance(value, types.BuiltinFunctionType) and not re.fullmatch("__.*__", name)
    ]
    text = "\n".join([HEAD, *classes, *functions])
    return stub_file.format_text(text, STUB)


def main() -> int:
    try:
        text = render()
    except NoSignature as error:
        print(error)
        return 1
    return stub_file.settle(STUB, text)


if __name__ == "__main__":
    sys.exit(main())
