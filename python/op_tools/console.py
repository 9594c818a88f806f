"""What tools say on the console: short lines on standard error, each in one piece.

`console=full` is the original's format, on standard output (legacy/); `console=off` says nothing but errors.
"""

from __future__ import annotations

import shutil
import sys
import textwrap
import threading
from typing import Any

_lock = threading.Lock()
_said: set[str] = set()


def say(text: str) -> None:
    """One message, as whole lines."""
    with _lock:
        try:
            sys.stderr.write(text if text.endswith("\n") else text + "\n")
            sys.stderr.flush()
        except (OSError, ValueError, AttributeError):
            pass  # a closed or missing standard error is no reason to stop a training


def say_once(text: str) -> None:
    """The same text only once per process."""
    with _lock:
        if text in _said:
            return
        _said.add(text)
    say(text)


def format_block(headline: str, rows: list[tuple[str, str]], stream: Any = None) -> str:
    """A finding: the verdict as one line (to be searched for), then a label and its text per row, wrapped to the
    terminal, in colour where `stream` is one. Words that are to be copied (paths, commands) stay whole."""
    width = max(60, min(shutil.get_terminal_size((80, 24)).columns, 120))
    if stream is not None:
        from ditorch.terminal import paint  # module_tools says things without ditorch

        headline = paint(headline, "bad", stream)
    lines = [headline]
    for label, text in rows:
        if text:
            indent = f"  {label:<7}"
            lines += textwrap.wrap(
                *(text, width),
                initial_indent=indent,
                subsequent_indent=" " * 9,
                break_long_words=False,
                break_on_hyphens=False,
            )
    return "\n".join(lines)


def count(number: int, noun: str = "") -> str:
    """1,103 calls; 1 call."""
    if not noun:
        return f"{number:,}"
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def format_bytes(number: float) -> str:
    """512 B; 11.1 KiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.0f} B" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:,.1f} TiB"
