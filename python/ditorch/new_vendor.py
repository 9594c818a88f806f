"""`ditorch new-vendor NAME [--out DIR]`: a vendor library to start from.

The folder holds vendor.c (device functions on host memory, each with a word on what to replace), CMakeLists.txt,
README.md, train.py and check.sh, which builds with cc, runs the doctor and trains. The files of `skeleton/` are such a
vendor named mychip.
"""

from __future__ import annotations

import os
import re
import sys

from .command.parser import Parser

SKELETON = os.path.join(os.path.dirname(os.path.abspath(__file__)), "skeleton")
FILES = ("vendor.c", "CMakeLists.txt", "README.md", "check.sh", "train.py")
TAKEN = ("host", "opaque", "faulty", "adapt", "observe", "cuda")
NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")


class NewVendorError(ValueError):
    """The name or the folder cannot be used."""


def create(name: str, folder: str | None = None) -> str:
    """Write the files; returns the folder. Nothing is written when the name is bad or the folder is there already."""
    if not NAME.fullmatch(name):
        raise NewVendorError(
            f"the name {name!r} is not valid: 1 to 32 characters of a-z, 0-9 and '_', the first one a letter (mychip)"
        )
    if name in TAKEN:
        raise NewVendorError(f"the name {name!r} is taken by ditorch itself; choose another")
    folder = folder or name
    try:
        os.makedirs(folder)
    except FileExistsError:
        raise NewVendorError(f"{folder} is there already; nothing was written. Choose another folder (--out)") from None
    except OSError as error:
        raise NewVendorError(f"{folder} cannot be made: {error.strerror}") from error
    for file in FILES:
        with open(os.path.join(SKELETON, file), encoding="utf-8") as source:
            text = source.read()
        with open(os.path.join(folder, file), "w", encoding="utf-8") as target:
            target.write(re.sub(r"mychip(?![A-Za-z0-9])", name, text))
    return folder


def make_parser() -> Parser:
    parser = Parser(
        "ditorch new-vendor",
        "A vendor library to start from: device functions in C on host memory, a build, a test (docs/vendor.md).",
        examples=[("ditorch new-vendor mychip && sh mychip/check.sh", "write it, build it, ask the doctor, train")],
        exits={0: "written", 2: "the name or the folder cannot be used; nothing was written"},
    )
    parser.add_argument("name", metavar="NAME", help="of the vendor: a-z, 0-9 and _")
    parser.add_argument("--out", metavar="DIR", help="folder to make (default ./NAME)")
    return parser


def main(words: list[str]) -> int:
    """Parse the words and write the folder; 0, or 2 when that is not possible."""
    try:
        options = make_parser().parse_args(words)
    except SystemExit as end:
        return int(end.code or 0)
    if options.out == "":
        print("ditorch new-vendor: --out needs a folder", file=sys.stderr)
        return 2
    try:
        folder = create(options.name, options.out)
    except NewVendorError as error:
        print(f"ditorch: {error}", file=sys.stderr)
        return 2
    print(f"{folder}: {', '.join(FILES)}. Next: sh {os.path.join(folder, 'check.sh')}")
    return 0
