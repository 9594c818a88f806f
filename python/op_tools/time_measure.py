"""OpTimeMeasure: host and device time of every operator, forward and backward."""

from __future__ import annotations

import atexit
import os
import time
from typing import Any

from ditorch import _C
from ditorch.output import open_whole
from ditorch.table import Table

from . import console, results
from .keywords import TimeMeasureKeywords

FOLDER = "op_time_measure_result"
COLUMNS = (
    *("op", "signature", "dir", "count", "total ms", "median us", "p90 us", "p99 us", "min us", "max us"),
    *("share %",),
)
_ORDER = {"count": "count", "total": "total_ns", "mean": "mean_ns", "median": "median_ns"}
_ORDER |= {"p90": "p90_ns", "p99": "p99_ns", "max": "max_ns"}
EXPORT_SECONDS = 5.0
"""The CSV file holds all times of the process and is written anew at every stop(), until that has taken so long in sum;
from then on at exit."""


class OpTimeMeasure(TimeMeasureKeywords):
    """Time operators without stopping the device: count, total, median, p90, p99, extremes and share of the step, per
    operator and signature.

    Device time comes from events on the call's stream; on the CPU and on a stream that works in the caller it is the
    host time. `sync=True` waits for the device around every call instead, as the original did."""

    kind = "time"
    name = "time_measure"
    verb = "timed"

    def engine_options(self, options: Any) -> dict[str, Any]:
        full = options.get_value("console") == "full"
        return {**super().engine_options(options), "sync": full or options.get_value("sync")}

    def check(self, options: Any) -> None:
        if options.get_value("trace") and not options.get_value("log"):
            raise ValueError(
                f"OpTimeMeasure: {options['trace'].origin} asks for a trace, which is made from the log; remove log=0"
            )

    def console_options(self, options: Any) -> dict[str, Any]:
        return {"limit": options.get_value("max_cache_size")}

    # Results

    def rows(self, sort: str | None = None) -> list[dict[str, Any]]:
        """What was measured since the last start, one dictionary per operator, signature and direction.

        `total_ns`, `median_ns` ... are of the device where its time is known (`clock` says which); `device` and `host`
        have both. `share` is the part of the wall time of the steps that were watched."""
        order = sort or self.options.get_value("sort")
        if order not in (*_ORDER, "name"):
            raise ValueError(
                f"OpTimeMeasure: rows cannot be sorted by {order!r}; valid: {', '.join((*_ORDER, 'name'))}"
            )
        rows = [_complete(row) for row in self.describe().get("rows", ())]
        rows.sort(key=lambda row: (row["name"], row["signature"], row["kind"]))
        if order != "name":
            rows.sort(key=lambda row: row[_ORDER[order]], reverse=True)
        return rows

    def table(self, top: int | None = None, sort: str | None = None) -> Table:
        """The same as a table that prints itself; `top` rows, 0 for all."""
        rows = self.rows(sort)
        limit = self.options.get_value("top") if top is None else top
        return Table(COLUMNS, [_format_row(row) for row in rows[: limit or None]])

    def summary(self) -> str:
        facts = self.describe()
        rows = self.rows()
        if not rows:
            return ""
        table = self.table()
        total = sum(row["total_ns"] for row in rows)
        steps = console.count(facts["steps"], "step")
        lines = [
            str(table),
            f"OpTimeMeasure: {total / 1e6:,.3f} ms in operators of {facts['wall_ns'] / 1e6:,.3f} ms in {steps}"
            f" ({_name_clock(rows, facts)})",
        ]
        if len(rows) > len(table):
            lines.append(f"OpTimeMeasure: {console.count(len(rows) - len(table), 'more row')}; top=0 shows all")
        for key, words in _MISSING.items():
            if facts[key]:
                lines.append(f"OpTimeMeasure: {console.count(facts[key])} {words}")
        return "\n".join(lines)

    def export_trace(self, path: str | os.PathLike) -> str:
        """Write a Chrome / Perfetto trace of all times in this process's log."""
        self._export("trace", os.fspath(path))
        return os.fspath(path)

    def export_csv(self, path: str | os.PathLike) -> str:
        """Write the original's table of times: one row per call, forward and backward joined."""
        self._export("legacy-csv", os.fspath(path))
        return os.fspath(path)

    # Files

    def stopped(self) -> None:
        if not self._options.get_value("log") or not self.describe().get("rows"):
            return
        if self._options.get_value("console") != "full":  # which writes its own
            self._files().save_csv(self._log)
        if self._options.get_value("trace"):
            self._files().save("trace", "trace", "json", self._log)

    def _files(self) -> _Files:
        key = (os.getpid(), os.path.join(results.get_rank_directory(self._options), FOLDER))
        files = _files.setdefault(key, _Files(*key))
        files.quiet = self._options.get_value("console") == "off"
        return files

    def _export(self, form: str, path: str) -> None:
        if self._log is None:
            raise RuntimeError("OpTimeMeasure: there is no log to export: start() it first, with log=1")
        self.flush()
        _export(form, path, self._log)


class _Files:
    """What one process writes below one results directory."""

    def __init__(self, pid: int, folder: str):
        self.pid, self.folder = pid, folder
        self.stamp = time.strftime("%Y-%m-%d-%H-%M-%S")
        self.seconds = 0.0
        self.quiet = False
        self.is_late = False

    def save_csv(self, log: results.Log) -> None:
        if self.seconds > EXPORT_SECONDS:
            if not self.is_late:
                self.is_late = True
                atexit.register(self.save, "legacy-csv", "op_elasped_info", "csv", log)
            return
        start = time.perf_counter()
        self.save("legacy-csv", "op_elasped_info", "csv", log)
        self.seconds += time.perf_counter() - start

    def save(self, form: str, stem: str, extension: str, log: results.Log) -> None:
        if self.pid != os.getpid():
            return  # registered by the parent of a forked process
        path = os.path.join(self.folder, f"{stem}_pid{self.pid}_{self.stamp}.{extension}")
        try:
            os.makedirs(self.folder, exist_ok=True)
            _C.log_flush()
            _export(form, path, log)
        except OSError as error:  # the disk's trouble is not the program's
            console.say(f"OpTimeMeasure: {path} cannot be written: {error}")
            return
        if not self.quiet:
            console.say_once(f"op elasped info saved to {results.shorten(path)}")


_files: dict[tuple[int, str], _Files] = {}


def _export(form: str, path: str, log: results.Log) -> None:
    """A view of all times in the process's log, as a file that appears when it is complete."""
    with open_whole(path) as handle:
        _C.LogReader(log.get_files(), ["time"], None, None).export(form, handle)


_MISSING = {
    "unmeasured": "without a device time: the device was not known before the call, or gave no events",
    "incomplete": "backward spans left out: their gradients were not all computed",
    "failed_events": "events that the device refused",
}


def _complete(row: dict[str, Any]) -> dict[str, Any]:
    """The best clock's numbers at the top level."""
    clock = "device" if row["device"] else "host"
    numbers = row[clock]
    chosen = {key: value for key, value in numbers.items() if key != "count"}
    return {**row, **chosen, "mean_ns": numbers["total_ns"] / numbers["count"], "clock": clock}


def _format_row(row: dict[str, Any]) -> dict[str, Any]:
    micro = {f"{key} us": f"{row[f'{key}_ns'] / 1e3:.1f}" for key in ("median", "p90", "p99", "min", "max")}
    signature = row["signature"]
    return {
        "op": row["name"],
        "signature": signature if len(signature) <= 60 else signature[:57] + "...",
        "dir": "fwd" if row["kind"] == "forward" else "bwd",
        "count": row["count"],
        "total ms": f"{row['total_ns'] / 1e6:.3f}",
        **micro,
        "share %": f"{row['share'] * 100:.1f}",
    }


def _name_clock(rows: list[dict[str, Any]], facts: dict[str, Any]) -> str:
    if facts["sync"]:
        return "host time with the device synchronised around every call"
    hosts = sum(row["count"] for row in rows if row["clock"] == "host")
    return "device time" if not hosts else f"device time; host time for {console.count(hosts, 'call')}"
