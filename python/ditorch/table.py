"""Plain-text tables: lists of rows that print themselves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


def format_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Columns padded to their widest cell; numbers to the right, text to the left."""
    cells = [[_text(value) for value in row] for row in rows]
    numeric = [all(_is_number(row[i]) for row in cells) and bool(cells) for i in range(len(columns))]
    widths = [max([len(name), *(len(row[i]) for row in cells)]) for i, name in enumerate(columns)]

    def line(values: Sequence[str]) -> str:
        padded = (v.rjust(w) if n else v.ljust(w) for v, w, n in zip(values, widths, numeric, strict=True))
        return "  ".join(padded).rstrip()

    return "\n".join([line(columns), line(["-" * width for width in widths]), *(line(row) for row in cells)])


def _text(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def _is_number(text: str) -> bool:
    return text == "-" or text.replace(".", "", 1).replace("-", "", 1).isdigit()


class Table(list):
    """A list of dictionaries whose str() is a table."""

    def __init__(self, columns: Sequence[str], rows: Iterable[dict] = ()):
        super().__init__(rows)
        self.columns = tuple(columns)

    def __str__(self) -> str:
        return format_table(self.columns, [[row.get(name, "") for name in self.columns] for row in self])

    __repr__ = __str__
