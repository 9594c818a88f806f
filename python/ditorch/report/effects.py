"""What the tools changed about each process: the run's own file has it, as far as it was measured."""

from __future__ import annotations

from typing import Any

from .. import effect
from .collected import Collected
from .runs import take_dict, take_list, take_number, take_text


def read_effect(process: dict[str, Any]) -> dict[str, Any]:
    """What the file says, where it has the right kinds; empty where nothing was measured."""
    told = take_dict(process, "observer")
    found: dict[str, Any] = {}
    time = take_dict(told, "time")
    if take_number(time, "with") > 0 and take_number(time, "without") > 0:
        names = ("with", "without", "steps_with", "steps_without")
        found["time"] = {name: take_number(time, name) for name in names} | {"source": take_text(time, "source")}
    loss = take_dict(told, "loss")
    if loss:
        values = [str(value)[:40] for value in take_list(loss, "values")]
        first = int(take_number(loss, "first")) if loss.get("first") is not None and len(values) == 2 else None
        counts: dict[str, Any] = {name: int(take_number(loss, name)) for name in ("count", "baseline_count")}
        found["loss"] = {**counts, "equal": loss.get("equal") is True, "first": first, "values": values}
    memory = take_dict(told, "memory")
    pairs = {name: take_list(memory, name) for name in ("host_peak", "device_peak")}
    pairs = {name: pair for name, pair in pairs.items() if len(pair) == 2 and all(map(_is_number, pair))}
    return {**found, "memory": pairs} if pairs else found


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == value


def show_effect(label: str, process: dict[str, Any]) -> dict[str, Any]:
    """A row of the page; None where it was not measured."""
    found = read_effect(process)
    time, memory = found.get("time"), found.get("memory", {})
    return {
        "label": label,
        "ratio": time["with"] / time["without"] if time else None,
        "with_ns": time["with"] * 1e9 if time else None,
        "without_ns": time["without"] * 1e9 if time else None,
        "steps": f"{time['steps_with']:.0f} beside {time['steps_without']:.0f} {time['source']}" if time else "",
        "loss": effect.describe_loss(found["loss"]) if "loss" in found else "",
        "is_changed": _is_changed(found),
        **{name: pair[0] - pair[1] for name, pair in memory.items()},
    }


def _is_changed(found: dict[str, Any]) -> bool:
    """The tools changed what the program computes."""
    return found.get("loss", {}).get("first") is not None


def note_effect(collected: Collected) -> str:
    """For the verdict: of the process whose losses changed, else of the one whose steps took longest."""
    processes = [process for run in collected.runs for process in run.processes]
    if not processes:
        return ""

    def rank(process: dict[str, Any]) -> tuple:
        found = read_effect(process)
        time = found.get("time")
        return _is_changed(found), bool(found), time["with"] / time["without"] if time else 0.0

    worst = max(processes, key=rank)
    found = read_effect(worst)
    if not found:
        return "what the tools changed was not measured (--baseline does that)"
    changed = "the tools CHANGED what the program computes" if _is_changed(found) else "under the tools"
    place = f" on rank {worst['rank']:.0f}" if len(processes) > 1 else ""
    return f"{changed}{place}: {effect.describe(found)}"
