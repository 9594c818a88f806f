"""`ditorch version`."""

from __future__ import annotations

from .parser import Parser
from .tree import Head


def make_parser() -> Parser:
    return Parser("ditorch version", "The version.", examples=[("ditorch version", "")], exits={0: "told"})


def main(words: list[str], head: Head) -> int:
    make_parser().parse_args(words)
    from .. import _C

    print(f"ditorch {_C.version()}")
    return 0
