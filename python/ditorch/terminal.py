"""Colour and width for who looks: only where a stream is a terminal; a pipe, a file and a program get plain text.

`--color auto|always|never` decides, then NO_COLOR and FORCE_COLOR (set and not empty), then the terminal itself.
Depends on the standard library alone.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Sequence
from typing import Any

WHEN = ("auto", "always", "never")
STYLES = {"good": "32", "bad": "1;31", "warning": "33", "head": "1", "quiet": "2"}
WORDS = {
    "good": ("ok", "pass", "right", "yes"),
    "bad": ("fail", "wrong", "error", "crash", "crashed", "timeout", "missing", "failed"),
    "warning": ("undecided", "unsupported", "incomplete", "unknown"),
}
"""Cells of tables that say how it went."""
LEAST_COLUMN = 10
"""A column is not made narrower than that."""
_NAMES = {word: style for style, words in WORDS.items() for word in words}

_when = "auto"


def choose(when: str) -> None:
    """What --color said."""
    global _when
    _when = when


def is_terminal(stream: Any = None) -> bool:
    """False too for a stream that is closed or missing."""
    try:
        return bool((sys.stdout if stream is None else stream).isatty())
    except (AttributeError, ValueError):
        return False


def has_color(stream: Any = None) -> bool:
    if _when != "auto":
        return _when == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return is_terminal(stream) and os.environ.get("TERM") != "dumb"


def paint(text: str, style: str, stream: Any = None) -> str:
    """The text in one of STYLES, where the stream shows colours."""
    if not text or not has_color(stream):
        return text
    return f"\x1b[{STYLES[style]}m{text}\x1b[0m"


def strip(text: str) -> str:
    """Without colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def shorten(text: str, width: int) -> str:
    """The beginning and the end, with an ellipsis between them."""
    if len(text) <= width:
        return text
    end = (width - 1) // 2
    return f"{text[: width - 1 - end]}…{text[len(text) - end :]}"


def _can_write(stream: Any, text: str) -> bool:
    try:
        text.encode(getattr(stream, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def fit_widths(widths: Sequence[int], flexible: Sequence[bool], room: int) -> list[int]:
    """Widths of columns that share `room` with two blanks between them: the widest of the flexible ones give way."""
    found = list(widths)
    over = sum(found) + 2 * (len(found) - 1) - room
    while over > 0:
        wide = [i for i, may in enumerate(flexible) if may and found[i] > LEAST_COLUMN]
        if not wide:
            break
        most = max(found[i] for i in wide)
        widest = [i for i in wide if found[i] == most]
        next_width = max([found[i] for i in wide if found[i] < most], default=LEAST_COLUMN)
        step = max(1, min(most - next_width, -(-over // len(widest))))
        for i in widest:
            found[i] -= min(step, max(over, 0))
            over -= min(step, max(over, 0))
    return found


def fit_cells(cells: list[list[str]], flexible: Sequence[bool], stream: Any = None) -> list[list[str]]:
    """Cells shortened in the middle to fit the terminal; as they are where `stream` is none."""
    stream = sys.stdout if stream is None else stream
    if not is_terminal(stream) or not cells or not _can_write(stream, "…"):
        return cells
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    fitted = fit_widths(widths, flexible, shutil.get_terminal_size((80, 24)).columns)
    return [[shorten(cell, width) for cell, width in zip(row, fitted, strict=True)] for row in cells]


def paint_table(text: str, stream: Any = None) -> str:
    """A table of ditorch.table: its head, and the cells that say how it went."""
    if not has_color(stream):
        return text
    head, rule, *lines = text.split("\n")
    starts = [match.span() for match in re.finditer(r"-+", rule)]
    painted = [paint(head, "head", stream), paint(rule, "quiet", stream)]
    for line in lines:
        for begin, end in reversed(starts):
            cell = line[begin:end]
            word = cell.strip()
            if word in _NAMES:
                line = line[:begin] + cell.replace(word, paint(word, _NAMES[word], stream)) + line[end:]
        painted.append(line)
    return "\n".join(painted)
