"""The console of the original for tools that act in an operator's place: fallback."""

from __future__ import annotations

import torch

from .console import GAP, Console, args_rows, table

_CAST = {torch.float16: torch.float32, torch.bfloat16: torch.float32}


class FallbackConsole(Console):
    """`extra` brings "args", "kwargs" and "result" on the CPU, and "cast"; calls that ran on the device have none."""

    hook = "OpFallbackHook"

    def forward(self, event: dict) -> str:
        extra = event.get("extra")
        if not extra:
            return ""
        name = event["name"]
        info = f"cpu_dtype_cast_info: {_CAST}" if extra["cast"] else ""
        rows = args_rows(f"{name} input(device)", *event["args"], **(event["kwargs"] or {}))
        rows += args_rows(f"{name} input(cpu)", *extra["args"], **(extra["kwargs"] or {}))
        rows += args_rows(f"{name} output(device)", event["result"])
        rows += args_rows(f"{name} output(cpu)", extra["result"])
        head = f"{GAP}fallback    {name}    forward_id: {event['id']}  {info}\n{event['location']}\n"
        return f"{head}{table(rows)}\n{GAP}"
