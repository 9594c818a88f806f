"""`ditorch run`: a program, unchanged, on the device that is there."""

from __future__ import annotations

from .parser import Parser

EXAMPLES = [("ditorch run train.py --lr 0.1", "the word run may be left out")]
EXITS = {2: "wrong use, or the program cannot be opened"}
PROGRAM = "script.py | -m module | -c code | -"


def make_parser() -> Parser:
    parser = Parser(
        "ditorch run",
        "Run a PyTorch program written for CUDA, unchanged, on the device that is there. Everything behind the program "
        "is the program's; its exit status is the command's.",
        usage="ditorch run [options] script.py | -m module | -c code | - [arguments ...]",
        examples=EXAMPLES,
        exits=EXITS,
    )
    return parser
