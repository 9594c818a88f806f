"""One value of a device against its reference: right, wrong, or not to be judged.

The allowance comes from a yardstick (accuracy.py says which rule). All values are on the CPU; large ones are
judged piece by piece, so that float64 copies stay small.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from ..comparison import get_error_tolerance
from ..traits import get_traits

FACTOR = 4.0
"""How much worse than the CPU one result may be."""
_CHUNK = 1 << 22


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
class Yardstick:
    wide: Any
    native: Any
    is_wide: bool
    """The reference is the wide value itself."""
    moves: torch.Tensor | None = None
    """What rounding errors of the inputs do to each element."""


def judge_value(label: str, value: Any, wanted: Any, name: str, yardstick: Yardstick, uncertain: str = "") -> Judgement:
    """One value against its reference."""
    if value is None and wanted is None:
        return Judgement(label, "pass")
    if not isinstance(value, torch.Tensor) or not isinstance(wanted, torch.Tensor):
        return _judge_other(label, value, wanted, uncertain)
    facts = {"dtype": str(value.dtype).removeprefix("torch."), "shape": list(value.shape)}
    if value.shape != wanted.shape:
        reason = f"shape {tuple(value.shape)}, the reference has {tuple(wanted.shape)}"
        return Judgement(label, "wrong", reason, facts)
    dtype = getattr(yardstick.native, "dtype", None) if yardstick.is_wide else wanted.dtype
    if dtype is not None and value.dtype != dtype:
        return Judgement(label, "wrong", f"dtype {value.dtype}, the reference has {dtype}", facts)
    if uncertain:
        return Judgement(label, "skip", uncertain, facts)
    if not (value.is_floating_point() or value.is_complex()):
        return _judge_exact(label, value, wanted, name, yardstick, facts)
    return _judge_float(label, value, wanted, name, yardstick, facts)


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
    reason = "" if same else f"{_short(value)}, the reference has {_short(wanted)}"
    return Judgement(label, "pass" if same else "wrong", reason)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _judge_exact(
    label: str, value: torch.Tensor, wanted: torch.Tensor, name: str, yardstick: Yardstick, facts: dict
) -> Judgement:
    """Integers and booleans: equal, but where the CPU in float64 and in the capture's precision disagree."""
    differs = value != wanted
    wide, native = yardstick.wide, yardstick.native
    if all(isinstance(other, torch.Tensor) and other.shape == value.shape for other in (wide, native)):
        differs &= wide == native
    wrong = int(differs.sum())
    facts |= {"numel": value.numel(), "wrong": wrong}
    if not wrong:
        return Judgement(label, "pass", "", facts)
    if "ties" in get_traits(name):
        return Judgement(label, "skip", "indices of equal values may differ", facts)
    at = int(differs.reshape(-1).to(torch.uint8).argmax())
    facts |= {"index": _unravel(at, value.shape), "value": value.reshape(-1)[at].item()}
    facts["reference"] = wanted.reshape(-1)[at].item()
    return Judgement(label, "wrong", _tell(facts), facts)


# ---- floating point


def _parts(tensor: torch.Tensor) -> torch.Tensor:
    """Flat; complex numbers as pairs."""
    tensor = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return tensor.reshape(-1)


def _chunks(*tensors: torch.Tensor) -> Iterator[tuple[int, list[torch.Tensor]]]:
    flat = [_parts(tensor) for tensor in tensors]
    for start in range(0, flat[0].numel(), _CHUNK):
        yield start, [tensor[start : start + _CHUNK].double() for tensor in flat]


def _largest(tensor: torch.Tensor) -> float:
    return float(tensor.max()) if tensor.numel() else 0.0


def _measure(native: torch.Tensor, wide: torch.Tensor, relative: float) -> tuple[float, float]:
    """Largest error of the CPU, and the largest part that `relative` does not explain."""
    error = residual = 0.0
    for _, (x, r) in _chunks(native, wide):
        finite = torch.isfinite(x) & torch.isfinite(r)
        off = (x[finite] - r[finite]).abs()
        error = max(error, _largest(off))
        residual = max(residual, _largest(off - relative * r[finite].abs()))
    return error, residual


@dataclass
class _Rule:
    """|error| <= relative * |r| + absolute."""

    relative: float
    absolute: float
    limit: float
    slack: float
    cpu_error: float | None


def _make_rule(value: torch.Tensor, wanted: torch.Tensor, name: str, yardstick: Yardstick) -> _Rule:
    info = torch.finfo(value.dtype)
    wide, native = yardstick.wide, yardstick.native
    usable = all(isinstance(x, torch.Tensor) and x.shape == value.shape for x in (wide, native))
    if not usable and isinstance(wide, torch.Tensor) and wide.shape == value.shape:
        native, usable = wide.to(value.dtype), True  # the CPU lacks the operator in this dtype: rounding alone
    if not usable:
        atol, rtol = get_error_tolerance(value.dtype, name)
        return _Rule(rtol, atol, math.inf, 0.0, None)
    relative = info.eps  # 2u
    error, residual = _measure(native, wide, relative)
    slack = FACTOR if yardstick.is_wide else 2 * FACTOR
    return _Rule(slack * relative, slack * residual + info.tiny, info.max, slack, error)


def _judge_float(
    label: str, value: torch.Tensor, wanted: torch.Tensor, name: str, yardstick: Yardstick, facts: dict
) -> Judgement:
    rule = _make_rule(value, wanted, name, yardstick)
    wrong, margin, largest, worst = 0, 0.0, 0.0, None
    moves = torch.zeros(()).expand(_parts(value).shape) if yardstick.moves is None else yardstick.moves
    for start, (x, r, move) in _chunks(value, wanted, moves):
        allowed = rule.relative * r.abs() + rule.absolute + rule.slack * move
        error = (x - r).abs()
        same = (x == r) | (x.isnan() & r.isnan())
        same |= x.isinf() & (x.sign() == r.sign()) & (r.abs() + allowed > rule.limit)
        ratio = torch.where(same, 0.0, error / allowed)
        ratio = torch.where(ratio.isnan() | ((x.isfinite() != r.isfinite()) & ~same), math.inf, ratio)
        wrong += int((ratio > 1).sum())
        largest = max(largest, _largest(error[error.isfinite()]))
        if x.numel():
            at = int(ratio.argmax())
            if worst is None or float(ratio[at]) > margin:
                margin = float(ratio[at])
                worst = (start + at, float(x[at]), float(r[at]), float(error[at]), float(allowed[at]))
    facts |= {"numel": value.numel(), "wrong": wrong, "margin": margin, "cpu_error": rule.cpu_error}
    facts["largest_error"] = largest
    if worst is not None:
        at, mine, theirs, error, allowed = worst
        shape = (*value.shape, 2) if value.is_complex() else tuple(value.shape)
        facts |= {"index": _unravel(at, shape), "value": mine, "reference": theirs, "error": error, "allowed": allowed}
    return Judgement(label, "wrong" if wrong else "pass", _tell(facts) if wrong else "", facts)


def _unravel(at: int, shape: Any) -> list[int]:
    index = []
    for size in reversed(tuple(shape)):
        index.append(at % size)
        at //= size
    return index[::-1]


def _tell(facts: dict[str, Any]) -> str:
    where = ", ".join(map(str, facts["index"]))
    text = f"[{where}] is {facts['value']:.9g}, the reference {facts['reference']:.9g}"
    if "allowed" in facts:
        text += f": off by {facts['error']:.3g}, allowed {facts['allowed']:.3g}"
    return f"{text}; {facts['wrong']:,} of {facts['numel']:,} elements wrong"
