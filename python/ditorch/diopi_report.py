"""`ditorch doctor --diopi LIB`: which functions of the standard an operator library has, and what each one takes."""

from __future__ import annotations

import json
import sys
from typing import Any

from prettytable import PrettyTable

from . import diopi

IMPLEMENTED, MISSING, REFUSED = "implemented", "missing", "refused"


def collect(name: str) -> dict[str, Any]:
    """Everything the report says, as plain data; OSError when the library cannot be opened."""
    library = diopi.Library(name)
    functions = []
    for info in diopi.list_functions():
        row: dict[str, Any] = {"name": info.name, "header": info.header, "family": info.family}
        row["state"], row["reason"], row["dtypes"] = _judge(library, info)
        row["inference"] = bool(info.kinds) and row["state"] == IMPLEMENTED and library.can_infer(info.name)
        functions.append(row)
    return {**library.describe(), "inference": _count_inference(functions), "functions": functions}


def _count_inference(functions: list[dict[str, Any]]) -> str:
    """How many functions the library tells the results of before a call."""
    own = [row["inference"] for row in functions if row["state"] == IMPLEMENTED and row["family"] != "library_info"]
    if not any(own):
        return "none"
    return f"shapes and dtypes of results are told for {sum(own)} of {len(own)} functions"


def _judge(library: diopi.Library, info: diopi.Info) -> tuple[str, str, list[str]]:
    if not library.has(info.name):
        return MISSING, "the library does not export it", []
    if not info.kinds:
        return IMPLEMENTED, "", []
    code, dtypes = library.get_support(info.name)
    if code is None:
        return IMPLEMENTED, "", []
    if code == diopi.NO_IMPLEMENT:
        return REFUSED, "it is exported, but the library says that it does not have it", []
    if code != diopi.SUCCESS or not dtypes:
        return REFUSED, "it is exported, but the library says that it takes no dtype", []
    return IMPLEMENTED, "", dtypes


def _format_families(functions: list[dict[str, Any]]) -> str:
    table = PrettyTable(["family", "functions", IMPLEMENTED, MISSING, REFUSED])
    table.align = "r"
    table.align["family"] = "l"
    for family in dict.fromkeys(row["family"] for row in functions):
        states = [row["state"] for row in functions if row["family"] == family]
        table.add_row([family, len(states), *(states.count(state) for state in (IMPLEMENTED, MISSING, REFUSED))])
    states = [row["state"] for row in functions]
    table.add_row(["all", len(states), *(states.count(state) for state in (IMPLEMENTED, MISSING, REFUSED))])
    return table.get_string()


def _format_functions(functions: list[dict[str, Any]]) -> str:
    table = PrettyTable(["function", "state", "dtypes"])
    table.align = "l"
    for row in functions:
        table.add_row([row["name"], row["state"], " ".join(row["dtypes"])])
    return table.get_string()


def format_report(report: dict[str, Any]) -> str:
    """The report as text: what the library says about itself, its functions, and a summary by family."""
    lines = [f"{key.replace('_', ' ')}: {value}" for key, value in report.items() if key != "functions"]
    lines += ["", _format_functions(report["functions"]), "", _format_families(report["functions"])]
    refused = [row for row in report["functions"] if row["state"] == REFUSED]
    lines += [f"refused: {row['name']}: {row['reason']}" for row in refused]
    return "\n".join(lines)


def main(name: str, as_json: bool) -> int:
    """Print the report; status 1 when the library refuses a function that it exports, 2 when it cannot be opened."""
    try:
        report = collect(name)
    except OSError as error:
        print(f"ditorch doctor: {error}", file=sys.stderr)
        return 2
    print(json.dumps(report, indent=2) if as_json else format_report(report))
    return 1 if any(row["state"] == REFUSED for row in report["functions"]) else 0
