"""`ditorch doctor`: the machine's report, or that of an operator library or a vendor library."""

from __future__ import annotations

from .parser import Parser
from .tree import Head

EXITS = {
    0: "nothing is wrong",
    1: "something is: the last lines say what; --diff: the reports differ",
    2: "wrong use, no such library, or no such report",
    3: "--vendor: the library has no device",
}
EXAMPLES = [
    ("ditorch doctor", "what is installed, which device was chosen and why, and does it compute"),
    ("ditorch doctor --json", "the same for programs"),
    ("ditorch doctor --diff there.json here.json", "what two machines' reports say differently"),
    ("ditorch doctor --diopi host", "which functions of the DIOPI standard an operator library has"),
    ("ditorch doctor --vendor host --only copy", "one slot of a vendor library"),
]


def make_parser() -> Parser:
    parser = Parser(
        "ditorch doctor",
        "What is installed, what was chosen and why, and a self-check of the device.",
        examples=EXAMPLES,
        exits=EXITS,
    )
    add = parser.add_argument
    add("--json", action="store_true", help="one JSON object instead of text")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--diff", nargs=2, metavar=("A", "B"), help="compare two reports that --json wrote")
    which.add_argument("--diopi", metavar="LIB", help="look at an operator library: a name or a file")
    which.add_argument("--vendor", metavar="LIB", help="is a vendor library's device right? Every slot, in words")
    add("--only", metavar="SLOT", help="with --vendor: this slot alone")
    add("--timeout", metavar="S", help="with --vendor: seconds per check")
    add("--gentle", action="store_true", help="with --vendor: do not fill the device's memory")
    return parser


def main(words: list[str], head: Head) -> int:
    parser = make_parser()
    options = parser.parse_args(words)
    more = [f"--{name}" for name in ("only", "timeout", "gentle") if getattr(options, name)]
    if options.vendor:
        from .. import vendor_report

        chosen = ["--gentle"] * options.gentle
        for name in ("only", "timeout"):
            if getattr(options, name) is not None:
                chosen += [f"--{name}", getattr(options, name)]
        return vendor_report.main(options.vendor, chosen, options.json)
    if more:
        parser.error(f"{', '.join(more)} belongs to --vendor LIB")
    if options.diff:
        from .. import doctor_diff

        return doctor_diff.main(*options.diff, options.json)
    if options.diopi:
        from .. import diopi_report

        return diopi_report.main(options.diopi, options.json)
    from .. import doctor

    return doctor.main(head.config, head.options, options.json)
