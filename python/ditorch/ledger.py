"""Which operators ran in C and which on the CPU fallback: the ledger of libdit as tables."""

from __future__ import annotations

import sys

from . import _C
from .table import Table


def _rows(kind: str) -> list[dict]:
    rows = [
        {
            "operator": row["name"],
            "calls": row[kind]["calls"],
            "bytes": row[kind]["bytes"],
            "milliseconds": row[kind]["nanoseconds"] / 1e6 if row[kind]["nanoseconds"] else None,
        }
        for row in _C.ledger()
        if row[kind]["calls"]
    ]
    return sorted(rows, key=lambda row: (-row["calls"], row["operator"]))


def fallbacks() -> Table:
    """Operators that ran on the CPU fallback since the last reset: calls, bytes of all tensors, milliseconds."""
    return Table(("operator", "calls", "bytes", "milliseconds"), _rows("fallback"))


def _describe(did: dict) -> str:
    """'24 float16->float32, 3 layouts': tensors that the adaptor converted."""
    parts = [f"{number} {pair}" for pair, number in sorted(did["dtypes"].items())]
    return ", ".join(parts + ([f"{did['layouts']} layouts"] if did["layouts"] else []))


def operators() -> Table:
    """Operators that ran in the vendor's C code. Milliseconds are None unless timing is on (`set_timing`).

    Where the adaptor (DITORCH_DIOPI_LIB=adapt) changed calls, three more columns tell how: `converted` and `composed`
    count the library's calls that were made with other tensors, and those made of other calls; `conversions` has the
    tensors, such as '24 float16->float32, 3 layouts'."""
    columns, rows, conversions = ("operator", "calls", "bytes", "milliseconds"), _rows("c"), _C.conversions()
    if not conversions:
        return Table(columns, rows)
    nothing = {"converted": 0, "composed": 0, "layouts": 0, "dtypes": {}}
    for row in rows:
        did = conversions.get(row["operator"], nothing)
        row |= {"converted": did["converted"], "composed": did["composed"], "conversions": _describe(did)}
    return Table((*columns, "converted", "composed", "conversions"), rows)


def reset_counters() -> None:
    """Start counting from zero."""
    _C.ledger_reset()


def set_timing(enabled: bool) -> None:
    """Also take the time of operators that run in C (off by default: it costs two clock reads per call)."""
    _C.ledger_set_timing(enabled)


def print_ledger() -> None:
    """Both tables, to stderr (DITORCH_LEDGER=1 calls this at exit)."""
    c, fallback = operators(), fallbacks()
    total = sum(row["calls"] for row in c) + sum(row["calls"] for row in fallback)
    in_c = sum(row["calls"] for row in c)
    share = f"{100 * in_c / total:.1f} %" if total else "no"
    print(f"ditorch ledger: {total} operator calls, {share} of them in C\n", file=sys.stderr)
    print(f"operators in C\n{c}\n\noperators on the CPU fallback\n{fallback}", file=sys.stderr)
