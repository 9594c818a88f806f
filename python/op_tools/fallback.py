"""OpFallback: operators run on the CPU instead of the device."""

from __future__ import annotations

from typing import Any

from ditorch.table import Table

from . import console
from .keywords import FallbackKeywords

COLUMNS = ("op", "calls", "down", "up", "copy ms", "cpu ms", "retries", "failed", "left on the device")
SHOWN_ROWS = 10


class OpFallback(FallbackKeywords):
    """Run operators on the CPU and put their results where the device would have put them.

    In-place changes, `out=`, views, dtypes, strides and gradients are those of the device; so is the program's random
    state. Views, transfers and operators that compute nothing stay on the device. `list` and `disable_list` choose
    operators; ledger() tells what each one cost."""

    kind = "fallback"
    name = "fallback"
    verb = "handled"

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary per operator, the most expensive first: name, count, down and up (bytes), down_ns, cpu_ns and
        up_ns, retries (in float32), failed, and exempt: why calls stayed on the device, and how many."""
        rows = list(self.describe().get("rows", ()))
        rows.sort(key=lambda row: row["name"])
        rows.sort(key=lambda row: row["down_ns"] + row["cpu_ns"] + row["up_ns"], reverse=True)
        return rows

    def ledger(self, top: int = 0) -> Table:
        """The same as a table that prints itself; `top` rows, 0 for all."""
        rows = self.rows()
        return Table(COLUMNS, [_format_row(row) for row in rows[: top or None]])

    def summary(self) -> str:
        rows = self.rows()
        ran = [row for row in rows if row["count"]]
        left: dict[str, int] = {}
        for row in rows:
            for reason, number in row["exempt"].items():
                left[reason] = left.get(reason, 0) + number
        lines = []
        if ran:
            lines.append(str(Table(COLUMNS, [_format_row(row) for row in ran[:SHOWN_ROWS]])))
            total = {key: sum(row[key] for row in ran) for key in ("down", "up", "down_ns", "cpu_ns", "up_ns")}
            lines.append(
                f"OpFallback: {console.format_bytes(total['down'])} down, {console.format_bytes(total['up'])} up; "
                f"{_milli(total['down_ns'] + total['up_ns'])} ms of copies, {_milli(total['cpu_ns'])} ms on the CPU"
            )
        if len(ran) > SHOWN_ROWS:
            lines.append(f"OpFallback: {console.count(len(ran) - SHOWN_ROWS, 'more operator')}; ledger() shows all")
        if left:
            reasons = ", ".join(f"{console.count(number)} {reason}" for reason, number in sorted(left.items()))
            lines.append(f"OpFallback: left on the device: {reasons}")
        return "\n".join(lines)


def _milli(number: int) -> str:
    return f"{number / 1e6:,.3f}"


def _format_row(row: dict[str, Any]) -> dict[str, Any]:
    exempt = ", ".join(f"{number} {reason}" for reason, number in row["exempt"].items())
    return {
        "op": row["name"],
        "calls": row["count"],
        "down": console.format_bytes(row["down"]),
        "up": console.format_bytes(row["up"]),
        "copy ms": _milli(row["down_ns"] + row["up_ns"]),
        "cpu ms": _milli(row["cpu_ns"]),
        "retries": row["retries"] or "",
        "failed": row["failed"] or "",
        "left on the device": exempt,
    }
