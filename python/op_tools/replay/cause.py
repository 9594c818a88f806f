"""Whose fault are the NaN and Inf of a saved call: the device's, the dtype's, or the inputs'?

The CPU makes the call twice, in its own dtypes and in float64. Where it makes finite values of the same inputs, the
device is wrong; where only float64 does, the dtype cannot hold them; else whoever made the inputs is to be looked at.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from ..reader import load_case
from .accuracy import References, Run, Unrunnable

MOST_BYTES = 1 << 28
"""Inputs beyond this are not looked at: the program is at its end and somebody waits."""
DEVICE = "the CPU makes finite values of the same inputs: the operator is wrong on this device"
DTYPE = "the CPU makes them too, and finite values in float64: the dtype cannot hold the result"
INPUTS = "the CPU makes them of the same inputs too: the operator is right, look at what made its inputs"


def find_cause(folder: str) -> str:
    """One of the sentences above; "" where nothing can be said."""
    try:
        case = load_case(folder)
        what = "output" if case.grad_outputs is None else "grad"
        references = References(case, forward_only=what == "output")
        sizes = (value.numel() * value.element_size() for value in _list_tensors([case.args, case.kwargs]))
        if sum(sizes) > MOST_BYTES:
            return ""
        run = references.get("native", what)
    except (Unrunnable, OSError, ValueError, RuntimeError, TypeError):
        return ""
    if run.drew:
        return ""  # other numbers than the call had
    if _is_finite(run):
        return DEVICE
    try:
        return DTYPE if _is_finite(references.get("wide", what)) else INPUTS
    except Unrunnable:
        return INPUTS


def _is_finite(run: Run) -> bool:
    values = run.gradients if run.gradients is not None else [*run.outputs, *(run.arguments if run.wrote else ())]
    return all(bool(value.isfinite().all()) for value in _list_tensors(values) if _may_overflow(value))


def _may_overflow(value: torch.Tensor) -> bool:
    return value.dtype.is_floating_point or value.dtype.is_complex


def _list_tensors(values: Any) -> Iterable[torch.Tensor]:
    from torch.utils._pytree import tree_leaves

    return [value for value in tree_leaves(values) if isinstance(value, torch.Tensor)]
