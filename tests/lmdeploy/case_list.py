"""The list of cases, and what each is given."""

from __future__ import annotations

import dataclasses
import functools
import tempfile
from collections.abc import Callable
from typing import Any

import engines
import models
import torch


@dataclasses.dataclass
class Setup:
    """How LMDeploy runs."""

    device: str
    graph: bool

    def open_engine(self, folder: str, **more: Any) -> Any:
        return engines.open_engine(folder, self.device, self.graph, **more)


@dataclasses.dataclass
class Case:
    """One row of the table. `run` tells what it saw and whether that is right."""

    title: str
    run: Callable[[Setup], tuple[bool, str]]
    fault: str
    devices: tuple[str, ...]
    modes: tuple[str, ...]


CASES: dict[str, Case] = {}
ALL = ("ascend", "maca", "camb")


def case(
    title: str, fault: str, devices: tuple[str, ...] = ALL, modes: tuple[str, ...] = ("eager", "graph")
) -> Callable[[Any], Any]:
    """Enter a function into the list. `fault`: the operators whose breaking it must notice, one by one."""

    def enter(run: Any) -> Any:
        CASES[run.__name__.replace("_", "-")] = Case(title, run, fault, devices, modes)
        return run

    return enter


@functools.lru_cache(maxsize=4)
def make_model(kind: str = "llama") -> tuple[str, torch.nn.Module]:
    """The folder of a checkpoint and the model to compare with; made once."""
    folder = tempfile.mkdtemp(prefix="lmdeploy-")
    return folder, models.make(kind, folder)


def add_up(rows: list[tuple[int, float]], answers: list[engines.Answer], tokens: int) -> tuple[bool, str]:
    """Right if all tokens came and none is further from the best than a rounding."""
    made = sum(len(answer.tokens) for answer in answers)
    right = made == tokens * len(answers) and all(gap < engines.LIMIT for _, gap in rows)
    return right, f"{sum(same for same, _ in rows)}/{made}"
