"""`ditorch include`: where the C headers are."""

from __future__ import annotations

from .parser import Parser
from .tree import Head


def make_parser() -> Parser:
    return Parser(
        "ditorch include",
        "The folder of the C headers (dit/, diopi/), for a compiler.",
        examples=[("cc -std=c11 -I$(ditorch include) -fPIC -shared vendor.c", "build a vendor library")],
        exits={0: "told"},
    )


def main(words: list[str], head: Head) -> int:
    make_parser().parse_args(words)
    from .. import library

    print(library.find_headers())
    return 0
