"""`ditorch monitor`: op_tools.process_monitor, which also runs without ditorch."""

from __future__ import annotations

from .parser import Parser
from .tree import Head


def make_parser() -> Parser:
    from op_tools.process_monitor import add_arguments

    parser = Parser(
        "ditorch monitor",
        "Processor, memory and device of a running process and its children: a table per sample, and a CSV file below "
        "op_tools_results.",
        examples=[("ditorch monitor --pid $! --interval 5", "the last program started in the background")],
        exits={0: "the process ended, or Ctrl-C", 1: "there is no such process", 2: "wrong use"},
    )
    add_arguments(parser)
    return parser


def main(words: list[str], head: Head) -> int:
    from op_tools import process_monitor

    return process_monitor.main(words, make_parser())
