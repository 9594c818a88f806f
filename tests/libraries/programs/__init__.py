"""Programs for real libraries that know nothing of ditorch: they use "cuda" where torch.cuda says that there is one.

`python -m programs MODULE FOLDER` runs every program of a module on this interpreter's device and prints the answers
as JSON. Without ditorch that is the CPU: the ground truth that test_programs.py holds the device against.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

LIBRARIES: dict[str, tuple[str, ...]] = {
    "vision": ("timm", "torchvision"),  # first: it can import a torchvision that the others stumble over
    "trainer": ("transformers", "accelerate"),
    "generation": ("transformers", "accelerate", "tokenizers", "PIL"),
    "acceleration": ("accelerate", "safetensors"),
    "lightning_loop": ("lightning",),
    "model_zoo": ("x_transformers",),
    "scripts": (),
}
"""Module of this package -> what it imports besides torch; the first one gives the table its name and version."""

torch.set_num_threads(1)


class Case(NamedTuple):
    """One program. `run` gets a folder of its own and answers a dictionary that JSON can hold."""

    feature: str
    variant: str
    run: Callable[[Path], dict[str, Any]]


CASES: dict[str, dict[str, Case]] = {}
"""Module -> name -> program."""


def _register(function: Callable, name: str, case: Case) -> None:
    CASES.setdefault(function.__module__.rpartition(".")[2], {})[name] = case


def case(feature: str) -> Callable:
    """Register a program under its name; `feature` is its line in docs/libraries.md."""

    def register(function):
        _register(function, function.__name__, Case(feature, "", function))
        return function

    return register


def variants(feature: str, arguments: dict[str, dict]) -> Callable:
    """Register one program per entry: the function's name, an underscore, the entry's name."""

    def register(function):
        for name, values in arguments.items():
            run = lambda folder, values=values: function(folder, **values)  # noqa: E731
            _register(function, f"{function.__name__}_{name}", Case(feature, name, run))
        return function

    return register


def seed_all(seed: int = 7) -> None:
    """Seed Python, NumPy and torch."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def rows(count: int, length: int, vocabulary: int, seed: int = 5) -> torch.Tensor:
    """Token rows with something to learn: each token follows from the one before it, with some noise."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, vocabulary, (count, length), generator=generator)
    for column in range(1, length):
        follow = torch.rand(count, generator=generator) < 0.8
        tokens[:, column] = torch.where(follow, (tokens[:, column - 1] * 3 + 1) % vocabulary, tokens[:, column])
    return tokens


def summary(module: torch.nn.Module) -> dict[str, float]:
    """Norm of every entry of a module's state: differs where training went another way."""
    return {name: float(value.double().norm()) for name, value in module.state_dict().items()}
