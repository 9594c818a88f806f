"""References of functions that fill, copy and convert."""

from __future__ import annotations

from typing import Any

import torch

from .base import Call, Result, make_number, reference, widen


@reference("Fill")
def run_fill(call: Call) -> dict[str, Result]:
    """A number becomes the dtype as by a cast: bool from any number but zero, integers without their fraction."""
    x, value = call["input"], call.number("value")
    return {"input": Result(make_number(value, x.dtype).expand(x.shape), x.dtype, exact=True)}


@reference("ZeroInp")
def run_zero(call: Call) -> dict[str, Result]:
    return {"self": Result(torch.zeros_like(widen(call["self"])), call["self"].dtype, exact=True)}


@reference("Ones", "Zeros")
def run_ones(call: Call) -> dict[str, Result]:
    make = torch.ones if call.function == "diopiOnes" else torch.zeros
    return {"out": Result(widen(make(call["size"], dtype=call.dtype)), exact=True)}


@reference("Arange")
def run_arange(call: Call) -> dict[str, Result]:
    start, end, step = call.number("start"), call.number("end"), call.number("step")
    if not call.dtype.is_floating_point:
        return {"out": Result(torch.arange(start, end, step, dtype=torch.int64), exact=True)}
    value = torch.arange(start, end, step, dtype=torch.float64)
    return {"out": Result(value, scale=abs(start) + torch.arange(value.numel()).to(torch.float64) * abs(step))}


@reference("Linspace")
def run_linspace(call: Call) -> dict[str, Result]:
    start, end, steps = call.number("start"), call.number("end"), call["steps"]
    value = torch.linspace(start, end, steps, dtype=torch.float64)
    return {"out": Result(value, scale=torch.full_like(value, abs(start) + abs(end)))}


@reference("CopyInp")
def run_copy(call: Call) -> dict[str, Result]:
    source, target = call["src"], call["dest"]
    return {"dest": Result(_convert(source, target.dtype).expand(target.shape), target.dtype, exact=True)}


def _convert(source: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return widen(source.to(dtype))


@reference("CastDtype")
def run_cast(call: Call) -> dict[str, Any]:
    """The output's dtype stands in the entry; values are converted when they are rounded to it."""
    return {"out": Result(call.wide("input"), exact=True)}


@reference("Contiguous")
def run_contiguous(call: Call) -> dict[str, Result]:
    return {"out": Result(call.wide("input"), exact=True, required=True)}
