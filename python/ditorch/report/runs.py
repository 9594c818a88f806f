"""Runs and their files: a folder with `run-r*.json` is a run, the logs below it are its logs. What these files say is
checked here: they may come from anywhere."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .. import export

MOST_BYTES = 64 << 20
"""Of a file about a run: a longer one is none."""


@dataclass
class Run:
    """One folder of results: what its processes say about themselves, and their logs."""

    label: str
    folder: str
    processes: list[dict[str, Any]] = field(default_factory=list)
    logs: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def find_runs(paths: Sequence[str | os.PathLike]) -> list[Run]:
    """ExportError when a path does not exist, cannot be read, or holds neither logs nor runs."""
    runs: dict[str, Run] = {}
    for given in paths:
        path = os.fspath(given)
        logs = export.find([path])
        folders = _find_folders(path) if os.path.isdir(path) else []
        for folder in folders:
            runs.setdefault(folder, _read_run(folder))
        for log in logs:
            folder = _find_owner(log, folders) or os.path.abspath(path)
            run = runs.setdefault(folder, Run("", folder))
            if log not in run.logs:
                run.logs.append(log)
    if not runs:
        shown = ", ".join(repr(os.fspath(path)) for path in paths)
        raise export.ExportError(f"no {export.LOG} files and no results of `ditorch run` in {shown}")
    for run in runs.values():
        run.label = os.path.basename(run.folder) or run.folder
    labels = [run.label for run in runs.values()]
    for run in runs.values():
        if labels.count(run.label) > 1:
            run.label = os.path.relpath(run.folder)
    return list(runs.values())


def _is_process(name: str) -> bool:
    return name.startswith("run-r") and name.endswith(".json")


def _find_folders(path: str) -> list[str]:
    found = []
    for folder, folders, names in os.walk(path):
        folders.sort()
        if any(map(_is_process, names)):
            found.append(os.path.abspath(folder))
    return found


def _find_owner(log: str, folders: list[str]) -> str | None:
    """The deepest of the folders above a log."""
    log = os.path.abspath(log)
    above = [folder for folder in folders if log.startswith(folder + os.sep)]
    return max(above, key=len) if above else None


def _read_run(folder: str) -> Run:
    run = Run("", folder)
    for name in sorted(filter(_is_process, os.listdir(folder))):
        path = os.path.join(folder, name)
        try:
            run.processes.append(_read_process(path))
        except (OSError, ValueError, RecursionError) as error:
            run.problems.append(f"{path}: {error}; left out")
    run.processes.sort(key=lambda process: (process["rank"], process["pid"]))
    return run


def _read_process(path: str) -> dict[str, Any]:
    """ValueError for what is no file of `ditorch run`."""
    if os.path.getsize(path) > MOST_BYTES:
        raise ValueError(f"longer than {MOST_BYTES >> 20} MiB")
    with open(path, encoding="utf-8") as file:
        value = json.load(file)
    if not isinstance(value, dict) or value.get("format") != "ditorch-run":
        raise ValueError("it is not of `ditorch run`")
    for name in ("rank", "pid", "world_size", "steps", "seconds", "begin"):
        value[name] = take_number(value, name)
    return value


def take_number(value: dict[str, Any], name: str, default: float = 0) -> float:
    """The number under a name; anything else is the default."""
    found = value.get(name)
    return found if isinstance(found, (int, float)) and not isinstance(found, bool) and found == found else default


def take_text(value: dict[str, Any], name: str) -> str:
    found = value.get(name)
    return "" if found is None else str(found)


def take_list(value: dict[str, Any], name: str) -> list[Any]:
    found = value.get(name)
    return found if isinstance(found, list) else []


def take_dict(value: dict[str, Any], name: str) -> dict[str, Any]:
    found = value.get(name)
    return found if isinstance(found, dict) else {}
