"""CUDA_VISIBLE_DEVICES: which of the host devices there are in this process, and in which order."""

from __future__ import annotations

import os
import re

from . import _C, settings

VARIABLE = "CUDA_VISIBLE_DEVICES"
PROCESSES = "LOCAL_WORLD_SIZE"
"""Set by torchrun: its processes on this machine."""
MOST_DEVICES = 64
"""Of the option host_devices."""

ordinals: list[int] = [0]
"""Machine-wide ordinal of each device of this process."""
_selected: str | None = None
"""The text that `ordinals` were selected by."""


def make_uuid(ordinal: int) -> str:
    """The UUID that the host vendor gives its device `ordinal`."""
    return f"64697400-686f-7374-0000-{ordinal:012x}"


def _find(entry: str, count: int) -> int:
    """Ordinal that one entry names, or -1. Numbers may carry a suffix, UUIDs may be cut short if they stay unique."""
    entry = entry.strip()
    if entry.startswith("GPU-"):
        matches = [i for i in range(count) if make_uuid(i).startswith(entry.removeprefix("GPU-").lower())]
        return matches[0] if len(matches) == 1 else -1
    match = re.match(r"\+?(\d+)", entry)
    return int(match.group(1)) if match and int(match.group(1)) < count else -1


def parse(text: str, count: int) -> list[int]:
    """Ordinals that `text` leaves of `count` devices, by CUDA's rules: the first invalid entry ends the list, a
    repeated one empties it."""
    found: list[int] = []
    for entry in text.split(","):
        ordinal = _find(entry, count)
        if ordinal < 0:
            break
        if ordinal in found:
            return []
        found.append(ordinal)
    return found


def count_devices() -> int:
    """How many there are on this machine: as asked for; else, under torchrun, one for each process of the machine, so
    that `torch.cuda.set_device(local_rank)` works as it does where every process has a device of its own."""
    option = settings.find("host_devices")
    processes = os.environ.get(PROCESSES, "")
    if option["source"] != "default" or not processes.isdecimal():
        return int(option["value"])
    return min(max(int(processes), int(option["value"])), MOST_DEVICES)


def _read() -> str | None:
    """What was given as an option, else what the environment says now."""
    option = settings.find("visible_devices")
    given = option["value"] if option["source"] not in ("default", "environment") else None
    return given or os.environ.get(VARIABLE)


def select() -> list[int]:
    """Set and return `ordinals` from the options and the environment (where, unlike unset, an empty text means
    none)."""
    global _selected
    count = count_devices()
    text = _selected = _read()
    ordinals[:] = range(count) if text is None else parse(text, count)
    return ordinals


def is_ours() -> bool:
    """The devices are selected here: no vendor is loaded yet, or it offers what the option host_devices says."""
    return not _C.is_active() or _C.counts_by_option()


def take() -> None:
    """After the vendor's start: where its devices are its own, `ordinals` are all of them."""
    if not is_ours():
        ordinals[:] = range(_C.device_count())


def is_outdated() -> bool:
    """The environment says something else than it did when the devices were selected."""
    return is_ours() and _read() != _selected
