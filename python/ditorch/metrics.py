"""Metrics of the allocators: counters, gauges and histograms, as Python objects and as the text of Prometheus.

Off by default; `enable_metrics(True)` or DITORCH_METRICS=1 turns them on. The numbers are kept in C; nothing here runs
when memory is allocated.
"""

from __future__ import annotations

import atexit
import os
from typing import Any, NamedTuple

from . import _C, settings
from .output import write_whole


class MetricsGroup(NamedTuple):
    """All series of one name."""

    name: str
    type: str
    """counter, gauge or histogram."""
    info: str
    values: list[tuple[dict[str, str], Any]]
    """Labels and value of each series; that of a histogram has thresholds, buckets (not cumulative), sum and count."""


def metrics() -> list[MetricsGroup]:
    """Every group that has counted something."""
    groups: dict[str, MetricsGroup] = {}
    for name, kind, info, labels, value in _C.metrics():
        groups.setdefault(name, MetricsGroup(name, kind, info, [])).values.append((labels, value))
    return list(groups.values())


def enable_metrics(enable: bool = True) -> None:
    """Turn counting on or off. What was counted stays."""
    _C.metrics_enable(enable)


def is_metrics_enabled() -> bool:
    """Are allocations counted?"""
    return _C.metrics_is_enabled()


def reset() -> None:
    """Counters and histograms back to 0; gauges tell the present in any case."""
    _C.metrics_reset()


def text() -> str:
    """The metrics in the text format of Prometheus."""
    return _C.metrics_text()


def write(path: str | os.PathLike) -> str:
    """Write text() to a file, all at once, so that a reader never sees half of it; returns the path. %p in the path is
    the process id."""
    target = os.fspath(path).replace("%p", str(os.getpid()))
    write_whole(target, text())
    return target


def _write_at_exit(path: str, owner: int) -> None:
    """A forked child leaves its parent's file alone unless it has a name of its own."""
    if os.getpid() == owner or "%p" in path:
        write(path)


def install(patches: Any) -> None:
    """Write the file at exit when option metrics_file names one."""
    path = settings.get("metrics_file")
    if path:
        owner = os.getpid()
        function = atexit.register(lambda: _write_at_exit(path, owner))
        patches.defer(lambda: atexit.unregister(function))
