"""References of random functions: what the numbers' mean, variance and range must be.

The bounds are eight standard errors wide, so a right generator fails about once in 10^15 cases, and a seed is fixed.
"""

from __future__ import annotations

import math

import torch

from .base import Call, Result, reference

ERRORS = 8.0


def _moments(
    shape: torch.Size,
    mean: float,
    variance: float,
    least: float,
    largest: float,
    kurtosis: float,
    has_one_mean: bool = True,
) -> Result:
    """`kurtosis`: the fourth central moment over the squared variance (3 for a normal distribution). With one mean for
    all numbers, repetitions among them can be told."""
    count = max(math.prod(shape), 1)
    spread = ERRORS * math.sqrt(variance / count)
    wide = ERRORS * variance * math.sqrt(max(kurtosis - 1, 0.1) / count) + variance / count
    bounds = (mean - spread, mean + spread, max(variance - wide, 0.0), variance + wide, least, largest)
    bounds += (float(has_one_mean),)
    return Result(torch.zeros(shape, dtype=torch.float64), check="moments", bounds=bounds)


def _round(call: Call, result: Result) -> Result:
    """Half types hold these numbers with an error that moves mean and variance."""
    dtype = result.dtype or call.dtype
    if dtype.is_floating_point:
        eps = torch.finfo(dtype).eps
        low, high, least, most, first, last, one = result.bounds
        size = max(abs(low), abs(high), math.sqrt(most), 1e-3)
        slack = eps * size
        if math.isfinite(last):
            first, last = first - slack, last + slack
        moments = (low - slack, high + slack, least - 2 * slack * size, most + 2 * slack * size)
        result.bounds = (*moments, first, last, one)
    return result


@reference("UniformInp")
def run_uniform(call: Call) -> dict[str, Result]:
    low, high = call["from"], call["to"]
    width = high - low
    found = _moments(call["inout"].shape, (low + high) / 2, width * width / 12, low, high, 1.8)
    return {"inout": _round(call, found)}


@reference("Normal", "NormalInp")
def run_normal(call: Call) -> dict[str, Result]:
    target = call["inout"] if call["inout"] is not None else None
    shape = torch.Size([40, 50]) if target is None else target.shape
    found = _moments(shape, call["mean"], call["std"] ** 2, -math.inf, math.inf, 3.0)
    return {"out" if target is None else "inout": _round(call, found)}


@reference("NormalTensorScalar", "NormalScalarTensor", "NormalTensor")
def run_normal_tensors(call: Call) -> dict[str, Result]:
    """Means and standard deviations per element: the moments of the mixture; the means where nothing deviates."""
    mean = call.wide("mean") if isinstance(call["mean"], torch.Tensor) else torch.tensor(float(call["mean"]))
    std = call.wide("std") if isinstance(call["std"], torch.Tensor) else torch.tensor(float(call["std"]))
    mean, std = torch.broadcast_tensors(mean.to(torch.float64), std.to(torch.float64))
    if not std.any():
        return {"out": Result(mean.clone(), exact=True)}
    variance = float((std**2).mean() + mean.var(correction=0))
    found = _moments(
        mean.shape, float(mean.mean()), variance, -math.inf, math.inf, 5.0, not isinstance(call["mean"], torch.Tensor)
    )
    return {"out": _round(call, found)}


@reference("BernoulliScalar")
def run_bernoulli_scalar(call: Call) -> dict[str, Result]:
    return {"out": _bernoulli(torch.Size([40, 50]), call["p"])}


def _bernoulli(shape: torch.Size, p: float, has_one_mean: bool = True) -> Result:
    variance = p * (1 - p)
    kurtosis = 3 + (1 - 6 * variance) / variance if variance > 0 else 1.0
    return _moments(shape, p, variance, 0.0, 1.0, kurtosis, has_one_mean)


def _draw_each(given: torch.Tensor) -> Result:
    """Each element with its own probability; what has the probability 0 or 1 is certain."""
    if bool(((given == 0) | (given == 1)).all()):
        return Result(given.clone(), exact=True)
    return _bernoulli(given.shape, float(given.mean()), has_one_mean=False)


@reference("Bernoulli")
def run_bernoulli(call: Call) -> dict[str, Result]:
    return {"out": _draw_each(call.wide("input"))}


@reference("BernoulliInp")
def run_bernoulli_inp(call: Call) -> dict[str, Result]:
    """In place: the tensor holds the probabilities."""
    return {"inout": _draw_each(call.wide("inout"))}


@reference("RandomInp")
def run_random(call: Call) -> dict[str, Result]:
    """Whole numbers from `from` to `to` - 1; without `to`, up to the largest that the dtype holds exactly."""
    low, high = call["from"], call["to"]
    x = call["inout"]
    if high is None:
        high = _get_limit(x.dtype)
    width = high - low
    found = _moments(x.shape, (low + high - 1) / 2, (width * width - 1) / 12, low, high - 1, 1.8)
    return {"inout": _round(call, found)}


def _get_limit(dtype: torch.dtype) -> int:
    if dtype.is_floating_point:
        return round(2 / torch.finfo(dtype).eps) + 1
    return 2 if dtype == torch.bool else torch.iinfo(dtype).max + 1


@reference("Randperm")
def run_randperm(call: Call) -> dict[str, Result]:
    return {"out": Result(torch.arange(call["n"]), torch.int64, exact=True, check="permutation")}


@reference("Dropout", "DropoutInp")
def run_dropout(call: Call) -> dict[str, Result]:
    """Each element is kept with probability 1 - p and divided by that; mask tells which."""
    x, p, train = call["input"], call["p"], call["train"]
    name = "input" if call.function.endswith("Inp") else "out"
    wide = call.wide("input")
    if not train or p == 0:
        mask = Result(torch.ones(x.shape), torch.bool, check="anything")
        return {name: Result(wide, exact=True), "mask": mask}
    if p == 1:
        return {
            name: Result(torch.zeros_like(wide), exact=True),
            "mask": Result(torch.zeros(x.shape), torch.bool, exact=True),
        }
    mask = _bernoulli(x.shape, 1 - p)
    mask.dtype = torch.bool
    return {name: Result(wide / (1 - p), ops=2, check="kept", source="mask"), "mask": mask}


@reference("Multinomial")
def run_multinomial(call: Call) -> dict[str, Result]:
    """Category numbers. All weights are equal in these cases, so their mean and variance are known."""
    x, count = call["input"], call["num_samples"]
    classes = x.shape[-1]
    shape = torch.Size([*x.shape[:-1], count])
    if not call["replacement"] and count == classes:
        value = torch.arange(classes).expand(shape)
        return {"out": Result(value, torch.int64, exact=True, check="permutation")}
    found = _moments(shape, (classes - 1) / 2, (classes * classes - 1) / 12, 0, classes - 1, 1.8)
    found.dtype = torch.int64
    return {"out": found}
