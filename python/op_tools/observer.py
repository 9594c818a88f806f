"""The observer effect: what the tools of `ditorch run` changed about the program, as far as it was measured.

Time: steps that the tools looked at beside those that they did not (`--steps`, `--every`), or beside a run without
tools (`--baseline`). Losses, bit by bit, and memory: beside a baseline alone. What was not measured is not guessed.
ditorch/effect.py has the words.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import resource
from typing import Any

from ditorch.effect import from_bits, to_bits

MOST_LOSSES = 10_000
BASELINE = "baseline"
"""Folder of the run without tools, below the results."""


class Losses:
    """Values that the program calls backward() of, as they are; read at the end, so that nothing waits for them."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._native: Any = None

    def start(self) -> None:
        import torch

        native = self._native = torch.Tensor.backward
        depth = 0

        @functools.wraps(native)
        def backward(loss: Any, *args: Any, **kwargs: Any) -> Any:
            nonlocal depth
            if not depth and len(self.values) < MOST_LOSSES and loss.numel() == 1:
                self._note(loss)
            depth += 1  # torch's functions call themselves again under a tool
            try:
                return native(loss, *args, **kwargs)
            finally:
                depth -= 1

        torch.Tensor.backward = backward

    def _note(self, loss: Any) -> None:
        import torch
        from torch.utils._python_dispatch import _disable_current_modes

        with torch._C.DisableTorchFunction(), _disable_current_modes(), torch.no_grad():
            self.values.append(loss.detach().clone())

    def stop(self) -> list[str]:
        """The bits of each, as text; up to the first that a device in trouble does not give."""
        import torch

        if self._native is not None:
            torch.Tensor.backward = self._native
            self._native = None
        bits: list[str] = []
        for _, losses in itertools.groupby(self.values, key=lambda loss: (loss.device, loss.dtype)):
            group = [loss.reshape(()) for loss in losses]
            try:
                bits += map(to_bits, torch.stack(group).double().tolist())  # one wait for all of them
            except RuntimeError:
                return bits + _read_singly(group)
        return bits


def _read_singly(losses: list[Any]) -> list[str]:
    bits = []
    for loss in losses:
        try:
            bits.append(to_bits(loss.double().item()))
        except RuntimeError:
            break
    return bits


def get_memory() -> dict[str, int]:
    """Most bytes so far: of the process, and of the device where it says so."""
    import torch

    found = {"host_peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}
    try:
        found["device_peak"] = int(torch.cuda.max_memory_allocated())
    except Exception:  # no device, or one that does not count
        pass
    return found


def find_middle(numbers: list[float]) -> float:
    return sorted(numbers)[len(numbers) // 2]


def measure(facts: dict[str, Any], watched: list[bool]) -> dict[str, Any]:
    """What is known, by name; `facts` are those of the run, `watched` says for each step whether a tool was due. The
    first step is left out: it is slower without any tool."""
    pairs = list(zip(facts["step_seconds"], watched, strict=False))[1:]
    found: dict[str, Any] = {}
    ours = [seconds for seconds, was in pairs if was]
    baseline = read_baseline(facts["out"], facts["rank"])
    others, source = [seconds for seconds, was in pairs if not was], "steps not watched"
    if baseline is not None:
        others, source = baseline["step_seconds"][1:], "steps of the baseline"
    if ours and others:
        found["time"] = {
            "with": find_middle(ours),
            "without": find_middle(others),
            "steps_with": len(ours),
            "steps_without": len(others),
            "source": source,
        }
    if baseline is not None:
        found.update(_compare(facts, baseline))
    return found


def _compare(facts: dict[str, Any], baseline: dict[str, Any]) -> dict[str, Any]:
    mine, other = facts["losses"], baseline["losses"]
    first = next((i for i, (a, b) in enumerate(zip(mine, other, strict=False)) if a != b), None)
    loss = {"count": len(mine), "baseline_count": len(other), "equal": mine == other, "first": first}
    if first is not None:
        loss["values"] = [repr(from_bits(mine[first])), repr(from_bits(other[first]))]
    memory = {
        key: [value, baseline["memory"][key]] for key, value in facts["memory"].items() if key in baseline["memory"]
    }
    return {"loss": loss, "memory": memory}


def read_baseline(folder: str, rank: int) -> dict[str, Any] | None:
    """What the run without tools wrote, of this rank."""
    root = os.path.join(folder, BASELINE)
    for parent, _, names in os.walk(root):
        for name in sorted(names):
            if name.startswith(f"probe-r{rank}-"):
                try:
                    with open(os.path.join(parent, name), encoding="utf-8") as file:
                        return dict(json.load(file))
                except (OSError, ValueError, TypeError):
                    continue
    return None
