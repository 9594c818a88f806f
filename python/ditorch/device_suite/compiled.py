"""One entry of the operator database, compiled: what runs on the device goes through torch.compile.

Every sample is compiled anew, so that no recompile limit turns a later one into eager mode unseen. Depends on torch;
the graph engine says what it made of each graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .entry import Entry


class CompiledEntry(Entry):
    """As Entry, with the device's calls compiled by `backend`; `made` tells what became of the graphs. `dynamic`: sizes
    are symbols."""

    def __init__(self, *args: Any, backend: str, dynamic: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.backend, self.dynamic = backend, dynamic
        self.made: dict[str, Any] = {"graphs": 0, "regions": 0, "rows": 0, "islands": {}, "unplanned": {}}
        self._last: tuple[Any, Any] = (None, None)

    def _prepare(self, function: Callable[..., Any]) -> Callable[..., Any]:
        if self._last[0] is not function:
            torch._dynamo.reset()

            def call(*args: Any, **kwargs: Any) -> Any:
                return function(*args, **kwargs)

            self._last = (function, torch.compile(call, backend=self.backend, dynamic=self.dynamic))
        return self._last[1]

    def _on_device(self, function: Callable[[], Any], what: str) -> Any:
        if what.count(",") == 0 or not what.endswith(("backward", "with a seed")):
            self._last = (None, None)
        if self.backend != "dit":
            return super()._on_device(function, what)
        from .. import graph

        kept = graph.keep()
        try:
            return super()._on_device(function, what)
        finally:
            for entry in kept:
                self._count(entry)
            graph.keep(False)

    def _count(self, entry: Any) -> None:
        self.made["graphs"] += 1
        if isinstance(entry, str):
            self.made["unplanned"][entry] = self.made["unplanned"].get(entry, 0) + 1
            return
        self.made["islands"].update(entry.islands)
        for plan in entry.describe():
            self.made["regions"] += plan["regions"]
            self.made["rows"] += plan["rows"]
