"""`ditorch nan`: run a program up to the operator that makes the first NaN or Inf, and say which it is."""

from __future__ import annotations

import shlex

from .parser import Parser
from .run import USAGE, Plan, add_selection, find_program, make_spec
from .spec import SpecError

EXAMPLES = [
    ("ditorch nan -- train.py --lr 0.1", "which operator made it, where, from what; its inputs are saved"),
    ("ditorch nan --go-on train.py", "do not stop at the first one"),
    ("ditorch nan -- torchrun --nproc-per-node 2 train.py", "which rank was first?"),
]
EXITS = {
    0: "no operator made a NaN or Inf (else the program's own exit status)",
    1: "one did: the block says which",
    2: "wrong use, or the program cannot be opened",
}


def make_parser() -> Parser:
    parser = Parser(
        "ditorch nan",
        "Run a program and name the operator that made the first NaN or Inf, forward or backward: its place, its "
        "module, its inputs (saved, for `ditorch replay`). The program ends there, unless --go-on is given. Operators "
        "that pass on what they were given, masks and constants are not accused.",
        usage=USAGE.format("nan"),
        examples=EXAMPLES,
        exits=EXITS,
    )
    add_selection(parser)
    parser.add_argument("--go-on", action="store_true", help="do not end the program at the first finding")
    parser.add_argument("--allow", default="", metavar="OPS", help="operators that may make them")
    return parser


def parse(before: list[str], program: list[str]) -> Plan:
    """SystemExit for wrong use."""
    parser = make_parser()
    options = parser.parse_args(before)
    try:
        spec = make_spec(options, ["nan"])
    except SpecError as error:
        parser.error(str(error))
    own = {"save": "1", **({"allow_list": options.allow} if options.allow else {})}
    spec.options["nan"] = {**own, **spec.options.get("nan", {})}
    spec.stop = not options.go_on
    words, is_command = find_program(parser, program)
    spec.command = " ".join(map(shlex.quote, words))
    return Plan(spec, words, is_command, True, "nan")
