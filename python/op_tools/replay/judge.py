"""One value of a captured call: right, wrong, or not to be judged, by the one rule (docs/verdict.md, ditorch/judge.py).

Shape, dtype and structure are those of the CPU's own result. Depends on torch and ditorch.judge; the further runs of
the call come from whoever asks (accuracy.py). All values are on the CPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from ditorch import judge as rule

_CHUNK = 1 << 22
_WHAT = {"argument": "input"}
"""Words of the judge, where they differ."""


@dataclass
class Judgement:
    """Of one value."""

    what: str
    verdict: str
    reason: str = ""
    facts: dict[str, Any] = field(default_factory=dict)

    def describe(self) -> dict[str, Any]:
        return {"what": self.what, "verdict": self.verdict, "reason": self.reason, **self.facts}


@dataclass
class Call:
    """What is known of the call whose values are judged."""

    name: str
    args: Sequence[Any]
    kwargs: dict[str, Any]
    inputs: Sequence[torch.Tensor]
    get_runs: Callable[[str], rule.Runs]
    """The further runs, by what is judged: output, argument or grad."""


def judge_value(
    call: Call, what: str, index: int, label: str, value: Any, cpu: Any, first: Any, careful: bool, uncertain: str = ""
) -> Judgement:
    """`cpu`: what the CPU gives in the capture's dtypes, `first`: what it has at hand in any precision. `uncertain`:
    why values say nothing, only shapes and dtypes do."""
    if value is None and cpu is None:
        return Judgement(label, "pass")
    if not isinstance(value, torch.Tensor) or not isinstance(cpu, torch.Tensor):
        return _judge_other(label, value, cpu, uncertain)
    facts = {"dtype": str(value.dtype).removeprefix("torch."), "shape": list(value.shape)}
    if value.shape != cpu.shape:
        return Judgement(label, "wrong", f"shape {tuple(value.shape)}, the CPU has {tuple(cpu.shape)}", facts)
    if value.dtype != cpu.dtype:
        return Judgement(label, "wrong", f"dtype {value.dtype}, the CPU has {cpu.dtype}", facts)
    if uncertain:
        return Judgement(label, "skip", uncertain, facts)
    found = rule.judge(
        call.name,
        value,
        first if isinstance(first, torch.Tensor) else cpu,
        call.get_runs(what),
        args=call.args,
        kwargs=call.kwargs,
        inputs=call.inputs,
        what=_WHAT.get(what, what),
        index=index,
        careful=careful,
    )
    verdict = {"right": "pass", "wrong": "wrong", "unknown": "skip"}[found.verdict]
    facts |= _get_facts(found, value)
    return Judgement(label, verdict, _tell(facts, found.reason) if found.is_wrong else found.reason, facts)


def _get_facts(found: rule.Judgement, value: torch.Tensor) -> dict[str, Any]:
    margin = found.error / found.allowed if found.allowed else math.inf if found.wrong else 0.0
    facts: dict[str, Any] = {"numel": value.numel(), "wrong": found.wrong, "margin": margin}
    if found.index >= 0:
        facts["index"] = _unravel(found.index, value.shape)
        facts |= {"value": found.value, "reference": found.reference}
        facts |= {"error": found.error, "allowed": found.allowed}
    return facts


def _judge_other(label: str, value: Any, wanted: Any, uncertain: str) -> Judgement:
    if uncertain:
        return Judgement(label, "skip", uncertain)
    if isinstance(value, float) and isinstance(wanted, float):
        same = (
            value == wanted or (math.isnan(value) and math.isnan(wanted)) or math.isclose(value, wanted, rel_tol=1e-6)
        )
    elif isinstance(value, torch.device):
        same = isinstance(wanted, torch.device)
    else:
        try:
            same = bool(value == wanted)
        except Exception as error:
            return Judgement(label, "skip", f"values of type {type(value).__name__} cannot be compared: {error}")
    reason = "" if same else f"{_short(value)}, the CPU has {_short(wanted)}"
    return Judgement(label, "pass" if same else "wrong", reason)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _unravel(at: int, shape: Any) -> list[int]:
    index = []
    for size in reversed(tuple(shape)):
        index.append(at % size)
        at //= size
    return index[::-1]


def _tell(facts: dict[str, Any], reason: str) -> str:
    """`at [0, 3] is 0.5, the reference 0.25: off by 0.25, allowed 1.2e-06 (why); 1 of 64 elements wrong`."""
    if "index" not in facts:
        return reason
    text = f"at {facts['index']} is {facts['value']:.9g}, the reference {facts['reference']:.9g}"
    if facts["allowed"] > 0 and math.isfinite(facts["error"]):
        text += f": off by {facts['error']:.3g}, allowed {facts['allowed']:.3g} ({reason})"
    else:
        text += f": {reason}"
    return f"{text}; {facts['wrong']:,} of {facts['numel']:,} elements wrong"


# Differences, to be shown


def measure_difference(value: Any, other: Any) -> float | None:
    """The largest difference of two tensors where both are finite; None where there is none to take."""
    if not all(isinstance(x, torch.Tensor) for x in (value, other)) or value.shape != other.shape:
        return None
    if not (value.is_floating_point() or value.is_complex()):
        return None
    largest = 0.0
    for x, y in _chunks(value, other):
        off = (x - y).abs()
        off = off[off.isfinite()]
        largest = max(largest, float(off.max()) if off.numel() else 0.0)
    return largest


def are_same(value: Any, other: Any) -> bool:
    """Bit for bit as numbers, NaN included; anything but tensors: by ==."""
    if not all(isinstance(x, torch.Tensor) for x in (value, other)):
        return value is other or _judge_other("", value, other, "").verdict == "pass"
    if value.shape != other.shape or value.dtype != other.dtype:
        return False
    return bool(((value == other) | ((value != value) & (other != other))).all())


def _chunks(*tensors: torch.Tensor) -> Iterator[list[torch.Tensor]]:
    """Piece by piece in float64, complex numbers as pairs, so that copies stay small."""
    flat = [(torch.view_as_real(x.resolve_conj()) if x.is_complex() else x).reshape(-1) for x in tensors]
    for start in range(0, flat[0].numel(), _CHUNK):
        yield [x[start : start + _CHUNK].double() for x in flat]
