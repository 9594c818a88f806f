"""Plain-text tables: lists of rows that print themselves."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from typing import Any

from . import terminal


def format_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], stream: Any = None) -> str:
    """Columns padded to their widest cell; numbers to the right, text to the left. `stream`: where it will be written;
    a terminal gets it in colour and no wider than it is, all else complete and plain."""
    cells = [[_text(value) for value in row] for row in rows]
    numeric = [all(_is_number(row[i]) for row in cells) and bool(cells) for i in range(len(columns))]
    if stream is not None:
        columns, *cells = terminal.fit_cells([list(columns), *cells], [not number for number in numeric], stream)
    widths = [max([len(name), *(len(row[i]) for row in cells)]) for i, name in enumerate(columns)]

    def line(values: Sequence[str]) -> str:
        padded = (v.rjust(w) if n else v.ljust(w) for v, w, n in zip(values, widths, numeric, strict=True))
        return "  ".join(padded).rstrip()

    text = "\n".join([line(columns), line(["-" * width for width in widths]), *(line(row) for row in cells)])
    return text if stream is None else terminal.paint_table(text, stream)


def _text(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def _is_number(text: str) -> bool:
    return text == "-" or text.replace(".", "", 1).replace("-", "", 1).isdigit()


def make_key(title: str) -> str:
    """A column's title as the key of a row: `total ms` is total_ms, `share %` is share_percent."""
    return re.sub(r"\W+", "_", title.replace("%", "percent")).strip("_")


class Table(list):
    """A list of dictionaries whose str() is a table; their keys are the columns' titles without blanks.

    Notebooks show it as HTML, long ones cut; `to_pandas()` makes a data frame."""

    SHOWN = 60
    """Rows in a notebook."""

    def __init__(self, columns: Sequence[str], rows: Iterable[dict[str, Any]] = ()):
        self.columns = tuple(columns)
        keys = {name: make_key(name) for name in self.columns}
        super().__init__({keys.get(name, name): value for name, value in row.items()} for row in rows)

    @property
    def row_keys(self) -> tuple[str, ...]:
        """The rows' keys, in the order of the columns."""
        return tuple(map(make_key, self.columns))

    def __str__(self) -> str:
        return format_table(self.columns, [[row.get(key, "") for key in self.row_keys] for row in self])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        def line(tag: str, values: Iterable[Any]) -> str:
            return "<tr>" + "".join(f"<{tag}>{html.escape(_text(value))}</{tag}>" for value in values) + "</tr>"

        lines = [line("td", [row.get(key, "") for key in self.row_keys]) for row in self[: self.SHOWN]]
        more = f"<p>{len(self) - self.SHOWN} more rows</p>" if len(self) > self.SHOWN else ""
        return f"<table><thead>{line('th', self.columns)}</thead><tbody>{''.join(lines)}</tbody></table>{more}"

    def to_pandas(self) -> Any:
        """A pandas DataFrame; ImportError says what to install."""
        return make_frame(list(self), self.row_keys)


def make_frame(rows: list[dict[str, Any]], columns: Sequence[str] | None = None) -> Any:
    """Rows as a pandas DataFrame."""
    try:
        import pandas
    except ImportError:
        raise ImportError("to_pandas() needs pandas: pip install pandas") from None
    return pandas.DataFrame(rows, columns=list(columns) if columns is not None else None)
