"""`ditorch report`: what the tools saw in one or several runs, as one HTML file that needs no server and no network.

runs.py finds the runs and their files, collect.py reads the logs once and keeps sums (collected.py), verdict.py and
unseen.py say what that means, page.py puts it into the template (page.html, page.css, *.js). Nothing above ditorch is
imported: a log is all that is needed. Everything in a log is text for people, never markup.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from ..export import ExportError
from .collect import collect
from .page import make_page
from .runs import find_runs
from .shown import make_data

Progress = Callable[[int, int, int], None]
"""Bytes read, bytes in all, records."""


def make_numbers(paths: Sequence[str | os.PathLike]) -> dict[str, Any]:
    """What the page shows, as plain data."""
    return make_data(collect(find_runs(paths)))["page"]


def make(paths: Sequence[str | os.PathLike], progress: Progress | None = None) -> tuple[str, list[str]]:
    """The page, and what could not be read. export.ExportError when there is nothing to show."""
    runs = find_runs(paths)
    collected = collect(runs, progress)
    if collected.problems and not collected.lanes:
        raise ExportError(f"nothing could be read: {'; '.join(collected.problems)}")
    data = make_data(collected)
    return make_page(data), collected.problems
