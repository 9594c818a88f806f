"""`ditorch include`: where the C headers are."""

from __future__ import annotations

import json

from .parser import Parser
from .tree import Head


def make_parser() -> Parser:
    parser = Parser(
        "ditorch include",
        "The folder of the C headers (dit/, diopi/), for a compiler.",
        examples=[("cc -std=c11 -I$(ditorch include) -fPIC -shared vendor.c", "build a vendor library")],
        exits={0: "told"},
    )
    parser.add_argument("--json", action="store_true", help="as a JSON object")
    return parser


def main(words: list[str], head: Head) -> int:
    options = make_parser().parse_args(words)
    from .. import library

    folder = library.find_headers()
    print(json.dumps({"headers": folder}) if options.json else folder)
    return 0
