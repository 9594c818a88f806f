"""Runs of a bisection on a cluster (ditorch.ray_pool), several at once.

The machines need the program at the same path. A folder that they share with this machine is used as it is; of others
the files of a run come back with its answer.
"""

from __future__ import annotations

import base64
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

from .. import call_worker
from ..ray_pool import KEPT, RayPool
from ..worker_pool import EVERY_DEVICE
from .runner import BAD, ORDER, Choice, Outcome, Runner, start_process


def start_here(
    words: list[str], environment: dict[str, str], folder: str, order: str, timeout: float
) -> dict[str, Any]:
    """In a worker. `words` begin with "" for this machine's Python; `environment`: what the run sees besides this
    machine's."""
    is_shared = os.path.exists(os.path.join(folder, ORDER))
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, ORDER), "w", encoding="utf-8") as file:
        file.write(order)
    base = {name: value for name, value in os.environ.items() if not name.startswith(KEPT)}
    begin = time.monotonic()
    status, is_late = start_process([words[0] or sys.executable, *words[1:]], {**base, **environment}, folder, timeout)
    answer = {"status": status, "is_late": is_late, "seconds": time.monotonic() - begin}
    return {**answer, "files": {} if is_shared else _read_files(folder)}


def _read_files(folder: str) -> dict[str, str]:
    found = {}
    for entry in os.scandir(folder):
        if entry.is_file():
            with open(entry.path, "rb") as file:
                found[entry.name] = base64.b64encode(file.read()).decode()
    return found


def _write_files(folder: str, files: dict[str, str]) -> None:
    for name, text in files.items():
        with open(os.path.join(folder, os.path.basename(name)), "wb") as file:
            file.write(base64.b64decode(text))


class ClusterRunner(Runner):
    """`pool` has workers that call `start_here`."""

    def __init__(self, pool: RayPool, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._pool, self.width = pool, pool.width

    def run(self, choice: Choice) -> Outcome:
        return self.run_many([choice])[0]

    def run_many(self, choices: Sequence[Choice]) -> list[Outcome]:
        tasks, folders = [], []
        for index, choice in enumerate(choices):
            folder, environment = self.make_order(choice)
            own = {n: v for n, v in environment.items() if n.startswith(KEPT) or os.environ.get(n) != v}
            with open(os.path.join(folder, ORDER), encoding="utf-8") as file:
                order = file.read()
            tasks.append({"index": index, "arguments": [self.make_words(), own, folder, order, self.timeout]})
            folders.append(folder)
        outcomes: dict[int, Outcome] = {}
        for task, answer in self._pool.run(tasks):
            outcomes[task["index"]] = self._take(folders[task["index"]], answer)
        return [outcomes[index] for index in range(len(choices))]

    def _take(self, folder: str, answer: dict[str, Any]) -> Outcome:
        if "error" in answer:
            return Outcome(BAD, f"it could not be run on the cluster: {answer['error']['text']}", folder=folder)
        value = answer["value"]
        _write_files(folder, value["files"])
        return self.judge(folder, value["status"], value["is_late"], value["seconds"])

    def make_words(self) -> list[str]:
        words = super().make_words()
        return words if self.is_command else ["", *words[1:]]


def open_runs(address: str) -> RayPool:
    """Workers without a device of their own: the programs have it."""
    options = call_worker.make_options(start_here)
    environment = {"DITORCH_BACKEND": "none"}
    return RayPool(address, options, EVERY_DEVICE, 0.0, call_worker.COMMAND, environment=environment, group=True)
