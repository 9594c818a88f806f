"""The full console of OpDtypeCast: the original's table of casts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch

from ..containers import traverse_container
from .console import GAP, Console, table


def _places(values: Iterable[Any]) -> Iterator[int]:
    """Places of the tensors in the flattened values."""
    return (i for i, value in enumerate(values) if isinstance(value, torch.Tensor))


class CastConsole(Console):
    """`extra` brings "inputs" and "outputs", lists of (number of the tensor, dtype, new dtype), and "config", the map;
    None when nothing was cast."""

    hook = "OpDtypeCastHook"

    def forward(self, event: dict) -> str:
        extra = event.get("extra")
        if not extra:
            return ""
        inputs = [*traverse_container(event["args"]), *traverse_container(list((event["kwargs"] or {}).values()))]
        places = list(_places(inputs))
        rows = self._rows(event["name"], "input", extra["inputs"], places, extra["config"])
        places = list(_places(traverse_container(event["result"])))
        rows += self._rows(event["name"], "output", extra["outputs"], places, extra["config"])
        head = f"\n\n cast_dtype    {event['name']}   forward_id: {event['id']}\n{event['location']}\n"
        return f"{head}{table(rows)}\n{GAP}"

    @staticmethod
    def _rows(name: str, what: str, casts: list[tuple[int, str, str]], places: list[int], config: str) -> list[dict]:
        return [
            {
                "name": name,
                "target": f"{what}[{places[number] if number < len(places) else number}]",
                "action": f"torch.{old} -> torch.{new}",
                "config": config,
            }
            for number, old, new in casts
        ]
