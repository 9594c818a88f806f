"""ditorch.audit: what was redirected, from what to what, and, while it counts, who uses it."""

from __future__ import annotations

import atexit
import sys
from typing import Any

from . import _C, exemption, settings
from .patches import Patches
from .table import Table

_COLUMNS = ("name", "was", "now", "calls", "callers")


def _text(value: Any) -> str:
    """One short line for a value."""
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    module = getattr(value, "__module__", None)
    if isinstance(name, str):
        return f"{module}.{name}" if isinstance(module, str) and module else name
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def audit(count: bool | None = None) -> Table:
    """Every name that ditorch replaced: name, was, now, calls, callers.

    audit(True) starts to count calls by the module that makes them, from zero; audit(False) ends it. Without counting
    the last two columns are empty. Classes, constants and methods of torch._C's classes are listed, not counted.
    """
    from . import installation

    with installation.state.lock:
        patches = installation.state.patches
        if patches is None:
            return Table(_COLUMNS, [])
        if count is not None:
            _count(patches, count)
        return Table(_COLUMNS, _rows(patches))


def _count(patches: Patches, on: bool) -> None:
    if on:
        exemption.gate(patches)
    _C.exempt_count(on)
    if not on:
        exemption.ungate(patches)


def _rows(patches: Patches) -> list[dict[str, Any]]:
    from . import installation

    counted = _C.exempt_counts()
    by_label: dict[str, dict[str, int]] = {}
    for (label, module), number in (counted or {}).items():
        by_label.setdefault(label, {})[str(module)] = number
    rows = []
    if installation.state.target is not None:
        real = installation.state.target[0]
        rows.append(_row('"cuda"', "cuda", f"{real} ({installation.state.alias})", by_label))
        rows.append(_row("torch.device", real, "cuda" if settings.get("show_device_as_cuda") else real, by_label))
        rows.append(_row("Tensor.is_cuda", "CUDA", f"CUDA or {real}", by_label))
    for record in patches.records:
        was = "" if record.is_new else _text(record.old)
        rows.append(_row(record.path, was, _text(record.new), by_label))
    listed = {row["name"] for row in rows}
    rows += [_row(label, label, "the same, over the device", by_label) for label in by_label if label not in listed]
    return rows


def _row(name: str, was: str, now: str, by_label: dict[str, dict[str, int]]) -> dict[str, Any]:
    callers = sorted(by_label.get(name, {}).items(), key=lambda entry: (-entry[1], entry[0]))
    return {
        "name": name,
        "was": was,
        "now": now,
        "calls": sum(number for _, number in callers) if callers else "",
        "callers": ", ".join(f"{module} {number}" for module, number in callers[:5])
        + (f", {len(callers) - 5} more" if len(callers) > 5 else ""),
    }


def install(patches: Patches) -> None:
    """DITORCH_AUDIT=1: count from the start, and print what was used at exit."""
    if not settings.get("audit"):
        return
    _count(patches, True)
    atexit.register(_print)
    patches.defer(lambda: atexit.unregister(_print))
    patches.defer(lambda: _C.exempt_count(False))


def _print() -> None:
    table = audit()
    used = [row for row in table if row["calls"]]
    print(f"ditorch audit: {len(used)} of {len(table)} redirected names were used", file=sys.stderr)
    print(Table(_COLUMNS, used), file=sys.stderr)
