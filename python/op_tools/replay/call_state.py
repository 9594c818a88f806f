"""The state of the process that a captured call was made in, set for the time of a block and taken back.

Autocast, inference mode, determinism and random generators, as far as the capture noted them (case.py, `Case.meta`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch


def get_module(device: torch.device) -> Any:
    """torch.cuda and its like, for a device that is none of the CPU's; None where torch has no such module."""
    module = getattr(torch, device.type, None) if device.type not in ("cpu", "meta") else None
    return module if hasattr(module, "synchronize") else None


def make_contexts(
    meta: dict[str, Any], device: torch.device, applied: set[str], autocast: bool = True
) -> Iterator[contextlib.AbstractContextManager]:
    """`autocast=False`: without that part."""
    if meta.get("inference"):
        yield torch.inference_mode()
    for kind, dtype in get_autocast(meta).items() if autocast else ():
        target = "cpu" if kind == "cpu" else device.type
        yield torch.autocast(target, dtype=dtype, cache_enabled=False)
    if "deterministic" in meta:
        noted = meta["deterministic"]
        noted = noted if isinstance(noted, dict) else {"enabled": noted}
        yield _deterministic(bool(noted.get("enabled")), bool(noted.get("warn_only")))
    if isinstance(meta.get("random"), dict):
        yield _random_state(meta["random"], device, applied)


def get_autocast(meta: dict[str, Any]) -> dict[str, torch.dtype | None]:
    """{type of device: dtype} of every autocast that was on."""
    found: dict[str, torch.dtype | None] = {}
    noted = meta.get("autocast")
    for kind, facts in noted.items() if isinstance(noted, dict) else ():
        facts = facts if isinstance(facts, dict) else {"enabled": bool(facts), "dtype": facts}
        if facts.get("enabled", True):
            found[kind] = _get_dtype(facts.get("dtype"))
    return found


def find_device_autocast(meta: dict[str, Any]) -> torch.dtype | None:
    """The dtype of the autocast of the device that the call was captured on; None: there was none."""
    return next((dtype for kind, dtype in get_autocast(meta).items() if kind != "cpu"), None)


def _get_dtype(text: Any) -> torch.dtype | None:
    if isinstance(text, torch.dtype):
        return text
    found = getattr(torch, str(text).removeprefix("torch."), None)
    return found if isinstance(found, torch.dtype) else None


@contextlib.contextmanager
def _deterministic(on: bool, warn_only: bool) -> Iterator[None]:
    before, warn = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(on, warn_only=warn_only)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warn)


def get_random_states(device: torch.device) -> list[torch.Tensor]:
    module = get_module(device)
    states = [torch.get_rng_state()]
    return [*states, module.get_rng_state(device)] if hasattr(module, "get_rng_state") else states


@contextlib.contextmanager
def _random_state(states: dict[str, Any], device: torch.device, applied: set[str]) -> Iterator[None]:
    """Generator states by device. One that another kind of generator made does not fit, and is left out; `applied` has
    the types of device that got theirs."""
    module = get_module(device)
    before = [(torch, torch.get_rng_state(), ())]
    if module is not None and hasattr(module, "get_rng_state"):
        before.append((module, module.get_rng_state(device), (device,)))
    try:
        for name, state in states.items():
            kind = name.partition(":")[0]
            owner, own, where = before[0 if kind == "cpu" else -1]
            if (kind == "cpu") == (owner is torch) and isinstance(state, torch.Tensor) and state.shape == own.shape:
                with contextlib.suppress(RuntimeError, TypeError):
                    owner.set_rng_state(state, *where)
                    applied.add("cpu" if kind == "cpu" else device.type)
        yield
    finally:
        for owner, state, where in before:
            owner.set_rng_state(state, *where)
