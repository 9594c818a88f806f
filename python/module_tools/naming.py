"""Names of layers and of steps: which modules a model has, and which iterations are wanted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from . import snapshot

_WRAPPERS = ("DataParallel", "DistributedDataParallel", "OptimizedModule")
_INNER = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")


def parse_steps(steps: Any) -> Callable[[int], bool]:
    """None: every step; a number, numbers, or text such as "0,4-6"."""
    if steps is None:
        return lambda step: True
    if isinstance(steps, str):
        ranges = []
        for part in steps.replace(" ", "").split(","):
            first, dash, last = part.partition("-")
            if not first.isdecimal() or (dash and not last.isdecimal()):
                raise ValueError(f"steps={steps!r}: {part!r} is no step; valid: numbers and ranges such as '0,4-6'")
            ranges.append(range(int(first), int(last if dash else first) + 1))
        return lambda step: any(step in part for part in ranges)
    chosen = frozenset([steps] if isinstance(steps, int) else steps)
    return lambda step: step in chosen


def unwrap(model: torch.nn.Module) -> torch.nn.Module:
    """The model inside DataParallel, DistributedDataParallel and torch.compile, where its layers keep their names."""
    while True:
        inner = getattr(model, "_orig_mod", None) or getattr(model, "module", None)
        if type(model).__name__ not in _WRAPPERS or not isinstance(inner, torch.nn.Module):
            return model
        model = inner


def is_wrapper(module: torch.nn.Module) -> bool:
    """A module that only passes its calls on to the one inside: torch.compile, FSDP, checkpoint_wrapper."""
    return any(name in module._modules for name in _INNER)


def join_names(*names: str) -> str:
    """Parts joined by dots, without those of wrappers."""
    parts = ".".join(filter(None, names)).split(".")
    return ".".join(part for part in parts if part not in _INNER)


def list_names(model: torch.nn.Module) -> list[tuple[str, torch.nn.Module]]:
    """(name, module) of every module, outer ones first: the class of the model, then attribute names."""
    pairs = model.named_modules(remove_duplicate=False)
    return [(join_names(type(model).__name__, path), module) for path, module in pairs]


def name_replica(args: tuple, kwargs: dict) -> str:
    """DataParallel runs copies of the model on several devices at once: those beyond the first are told apart."""
    items: list[Any] = []
    snapshot.flatten((args, kwargs), items, [])
    index = next((item.device.index for item in items if isinstance(item, torch.Tensor)), 0)
    return f"@{index}" if index else ""
