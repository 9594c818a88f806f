"""How far a long command is, with an estimate of the rest: one line on a terminal that is written over, nothing in a
pipe. Depends on nothing."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import Any


def show_rest(seconds: float) -> str:
    """`12 s left`, `3 min left`, `2.5 h left`."""
    if seconds < 100:
        return f"{seconds:.0f} s left"
    return f"{seconds / 60:.0f} min left" if seconds < 6000 else f"{seconds / 3600:.1f} h left"


def estimate_rest(begin: float, done: float, total: float) -> float:
    """Seconds, when what is left goes as fast as what was done since `begin`."""
    return (time.monotonic() - begin) * max(total - done, 0) / done if done else 0.0


class Progress:
    """progress(done, total, records) with whatever unit; `what` stands behind a third number, such as records. Called
    from one thread or from several."""

    EVERY = 0.5
    """Seconds between two words."""

    def __init__(self, what: str = "records", stream: Any = None) -> None:
        self.what, self.stream = what, stream or sys.stderr
        self.begin = self.told = time.monotonic()
        self.is_shown = False

    def __call__(self, done: float, total: float, count: int | None = None) -> None:
        now = time.monotonic()
        if now - self.told < self.EVERY or not self.stream.isatty():
            return
        self.told, self.is_shown = now, True
        share = 100 * done / total if total else 100
        counted = f" {count:,} {self.what}," if count is not None else ""
        self._write(f"\r\x1b[Kditorch: {share:3.0f} %,{counted} {show_rest(estimate_rest(self.begin, done, total))}")

    def clear(self) -> None:
        """The line is gone: what comes next stands on its own."""
        if self.is_shown:
            self.is_shown = False
            self._write("\r\x1b[K")

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: Any) -> None:
        self.clear()

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            self.stream.write(text)
            self.stream.flush()
