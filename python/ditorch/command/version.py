"""`ditorch version`."""

from __future__ import annotations

import json
import sys

from .parser import Parser
from .tree import Head


def make_parser() -> Parser:
    parser = Parser("ditorch version", "The version.", examples=[("ditorch version", "")], exits={0: "told"})
    parser.add_argument("--json", action="store_true", help="as a JSON object, with the version of Python")
    return parser


def main(words: list[str], head: Head) -> int:
    options = make_parser().parse_args(words)
    from .. import _C

    if options.json:
        print(json.dumps({"ditorch": _C.version(), "python": sys.version.split()[0]}))
    else:
        print(f"ditorch {_C.version()}")
    return 0
