"""The observer effect in words: what the tools of `ditorch run` changed about a program. What was measured comes from
op_tools/observer.py, as plain data; this module depends on nothing."""

from __future__ import annotations

import struct
from typing import Any


def to_bits(value: float) -> str:
    """A loss as a file has it: NaN and every bit of it survive."""
    return struct.pack(">d", value).hex()


def from_bits(text: str) -> float:
    """ValueError for what is none."""
    try:
        return struct.unpack(">d", bytes.fromhex(text))[0]
    except (TypeError, struct.error):
        raise ValueError(f"{text!r} is no loss") from None


def describe(effect: dict[str, Any]) -> str:
    """One line for the summary."""
    parts = []
    if effect.get("time"):
        parts.append(describe_time(effect["time"]))
    loss = effect.get("loss")
    if loss:
        parts.append(describe_loss(loss))
    parts += [f"{key.removesuffix('_peak')} memory {show_change(*pair)}" for key, pair in get_memory(effect).items()]
    if not parts:
        return "not measured: no step beside the first without tools; --baseline runs the program without them too"
    return "; ".join(parts if loss else [*parts, "loss and memory not compared (--baseline)"])


def describe_time(time: dict[str, Any]) -> str:
    ratio = time["with"] / time["without"] if time["without"] else 0.0
    return (
        f"a step takes {ratio:.2f}x the time ({time['with'] * 1e3:.3g} ms of {time['steps_with']}; "
        f"{time['without'] * 1e3:.3g} ms of {time['steps_without']} {time['source']})"
    )


def describe_loss(loss: dict[str, Any]) -> str:
    mine, other = loss["count"], loss["baseline_count"]
    if not mine and not other:
        return "no loss was seen"
    if loss["equal"]:
        return f"{mine:,} losses equal to the bit"
    if loss["first"] is None:
        return f"the first {min(mine, other):,} losses equal to the bit, then {mine:,} against the baseline's {other:,}"
    mine, other = loss["values"]
    return f"loss {loss['first'] + 1} is {mine}, the baseline's {other}"


def get_memory(effect: dict[str, Any]) -> dict[str, list[int]]:
    """[with tools, without] by name."""
    return effect.get("memory", {})


def show_change(mine: float, other: float) -> str:
    return f"{'+' if mine >= other else '-'}{abs(mine - other) / 2**20:.1f} MiB"
