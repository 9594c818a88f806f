"""The original's console of OpAutoCompare (OP_TOOLS_CONSOLE=full): every comparison as tables, and the rows that go to
the CSV file.

`extra` of an event brings what the CPU had: args, kwargs and result (or grad_outputs and grad_inputs), casts, the rows
of the comparison, and the folder of the files when they were saved. Calls that were not compared are not shown.
"""

from __future__ import annotations

import os
from typing import Any

from .. import results
from .console import GAP, Console, args_rows, table

_FORWARD = ("device/input", "device/output", "cpu/input", "cpu/output")
_BACKWARD = ("device/grad_outputs", "device/grad_inputs", "cpu/grad_inputs", "cpu/grad_outputs")


def _format_casts(casts: dict[str, str]) -> str:
    if not casts:
        return ""
    pairs = ", ".join(f"{source}: {target}" for source, target in casts.items())
    return f"cpu_dtype_cast_info(from:to): {{{pairs}}}"


def _head(event: dict) -> str:
    casts = _format_casts(event["extra"]["casts"])
    return f"{GAP}autocompare    {event['name']} forward_id: {event['id']}    {casts}\n{event['location']}\n"


def _result_table(rows: list[dict]) -> str:
    return table([{name: value for name, value in row.items() if name != "forward_id"} for row in rows])


class CompareConsole(Console):
    hook = "OpAutoCompareHook"

    def __init__(self, root: str = "op_tools_results", **options: Any):
        super().__init__(**options)
        self.root = root
        self._saved: set[str] = set()

    def forward(self, event: dict) -> str:
        extra, name = event.get("extra"), event["name"]
        if not extra:
            return ""
        rows = args_rows(f"{name} inputs", *event["args"], **(event["kwargs"] or {}))
        rows += args_rows(f"{name} outputs", event["result"])
        rows += args_rows(f"{name} inputs(cpu)", *extra["args"], **(extra["kwargs"] or {}))
        rows += args_rows(f"{name} outputs(cpu)", extra["result"])
        text = f"{_head(event)}{table(rows)}\n{_result_table(extra['rows'])}\n{GAP}"
        text += self._tell_saved(extra["folder"], _FORWARD)
        if event["result"] is None and extra["result"] is None:
            text += f"{name} output is None, no check for backward accuracy\n"
        return text

    def backward(self, event: dict) -> str:
        extra, name = event.get("extra"), event["name"]
        if not extra:
            return ""
        rows = args_rows(f"{name} grad_output", *event["grad_outputs"])
        rows += args_rows(f"{name} grad_inputs", *event["grad_inputs"])
        rows += args_rows(f"{name} grad_output(cpu)", *extra["grad_outputs"])
        rows += args_rows(f"{name} grad_inputs(cpu)", *extra["grad_inputs"])
        text = f"{_head(event)}{table(rows)}\n{_result_table(extra['rows'])}\n{GAP}"
        return text + self._tell_saved(extra["folder"], _FORWARD + _BACKWARD)

    def show_rows(self, rows: list[dict], path: str | None) -> None:
        """Rows that were appended to the file (None: it could not be written)."""
        told = f"op autocompare result saved to {results.shorten(path)}\n" if path else ""
        self._put(f"{table(rows)}\n{told}")

    def show_outcome(self, text: str) -> None:
        """The verdict of the whole run."""
        self._put(f"{text}\n")

    def _tell_saved(self, folder: str | None, names: tuple[str, ...]) -> str:
        """One line per file, when it is new."""
        text = ""
        for name in names if folder else ():
            path = f"{folder}/{name}.pth"
            if path not in self._saved and os.path.exists(path):
                self._saved.add(path)
                text += f"{results.shorten(path)} saved\n"
        return text
