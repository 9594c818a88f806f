"""The command line of `ditorch compare-modules`; no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ditorch.command.parser import Parser


def make_parser() -> Parser:
    from ditorch.command.parser import Parser  # ditorch takes the device when it is imported; the library does not

    parser = Parser(
        "ditorch compare-modules",
        "`python -m module_tools.compare EXPECTED REAL`: the metric set of every layer of two runs.",
        examples=[
            ("ditorch compare-modules accuracy_data", "both runs of CompLayerAcc are below one folder"),
            ("ditorch compare-modules gpu_run chip_run --steps 0-2 --quiet", "two folders, what differs alone"),
        ],
        exits={0: "nothing differs", 1: "something does", 2: "wrong use, or no layer is in both"},
    )
    parser.add_argument("expected", help="folder of the run that is right, or the data folder of both")
    parser.add_argument("real", nargs="?", help="folder of the other run")
    parser.add_argument("--atol", type=float, default=1e-3)
    parser.add_argument("--rtol", type=float, default=1e-3)
    parser.add_argument("--steps", help="iterations to compare, such as 0,4-6")
    parser.add_argument("--layers", default="*", help="layers to compare: a shell pattern over their names")
    parser.add_argument("--weights", action="store_true", help="weights and their gradients too")
    parser.add_argument("--no-check-dtype", action="store_true", help="different dtypes are a note, not a difference")
    parser.add_argument("--allow-failed-pattern", metavar="RE", help="layers that may differ: a regular expression")
    parser.add_argument("--quiet", action="store_true", help="print only what differs")
    parser.add_argument("--json", metavar="FILE", help="one JSON object per tensor and line")
    return parser
