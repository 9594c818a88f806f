"""References of losses. Terms: the elements that are averaged."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

from .base import Call, Result, differentiate, reference

REDUCTIONS = {0: "none", 1: "mean", 2: "sum"}


def _reduce(call: Call, each: Any, scale: torch.Tensor, out: torch.Tensor) -> Result:
    """The scale of the reduced value: reduced like it."""
    mode = REDUCTIONS[call["reduction"]]
    if mode != "none":
        scale = scale.sum() / (1 if mode == "sum" else max(scale.numel(), 1))
        scale = scale if mode == "sum" else scale.reshape(())
    return Result(out, scale=scale.expand(out.shape), terms=1 if mode == "none" else max(each, 1), ops=8)


def _pair(call: Call, function: Any, size: Any) -> dict[str, Result]:
    """A loss between input and target, element by element."""
    x, target = call.wide("input"), call.wide("target")
    mode = REDUCTIONS[call["reduction"]]
    return {"out": _reduce(call, x.numel(), size(x, target), function(x, target, mode))}


def _pair_backward(call: Call, function: Any, size: Any) -> dict[str, Result]:
    x, target, grad = call.wide("input"), call.wide("target"), call.wide("grad_output")
    mode = REDUCTIONS[call["reduction"]]
    value = differentiate(lambda t: function(t, target, mode), [x], grad)[0]
    scale = size(x, target) * grad.abs() / (max(x.numel(), 1) if mode == "mean" else 1)
    return {"grad_input": Result(value, scale=scale, ops=8)}


def _mse(x: torch.Tensor, target: torch.Tensor, mode: str) -> torch.Tensor:
    return F.mse_loss(x, target, reduction=mode)


@reference("MSELoss")
def run_mse(call: Call) -> dict[str, Result]:
    return _pair(call, _mse, lambda x, t: (x.abs() + t.abs()) ** 2)


@reference("MSELossBackward")
def run_mse_backward(call: Call) -> dict[str, Result]:
    return _pair_backward(call, _mse, lambda x, t: 2 * (x.abs() + t.abs()))


def _smooth(call: Call) -> Any:
    return lambda x, t, mode: F.smooth_l1_loss(x, t, reduction=mode, beta=call["beta"])


@reference("SmoothL1Loss")
def run_smooth(call: Call) -> dict[str, Result]:
    beta = call["beta"] or 1.0
    return _pair(call, _smooth(call), lambda x, t: (x.abs() + t.abs()) * (1 + (x.abs() + t.abs()) / beta) + beta)


@reference("SmoothL1LossBackward")
def run_smooth_backward(call: Call) -> dict[str, Result]:
    beta = call["beta"] or 1.0
    return _pair_backward(call, _smooth(call), lambda x, t: 1 + (x.abs() + t.abs()) / beta)


def _cross_entropy_with_logits(call: Call) -> Any:
    weight, positive = call.wide("weight"), call.wide("pos_weight")
    return lambda x, t, mode: F.binary_cross_entropy_with_logits(x, t, weight, pos_weight=positive, reduction=mode)


def _logits_size(call: Call) -> Any:
    weight, positive = call.wide("weight"), call.wide("pos_weight")
    factor = (1 if weight is None else weight.abs()) * (1 if positive is None else 1 + positive.abs())
    return lambda x, t: (1 + x.abs()) * (1 + t.abs()) * factor


@reference("BCEWithLogits")
def run_bce_logits(call: Call) -> dict[str, Result]:
    return _pair(call, _cross_entropy_with_logits(call), _logits_size(call))


@reference("BCEWithLogitsBackward")
def run_bce_logits_backward(call: Call) -> dict[str, Result]:
    return _pair_backward(call, _cross_entropy_with_logits(call), _logits_size(call))


def _binary(call: Call) -> Any:
    weight = call.wide("weight")
    return lambda x, t, mode: F.binary_cross_entropy(x, t, weight, reduction=mode)


@reference("BCELoss")
def run_bce(call: Call) -> dict[str, Result]:
    factor = 1 if call["weight"] is None else call.wide("weight").abs()
    return _pair(
        call, _binary(call), lambda x, t: factor * (1 - x.log().clamp_min(-100) - (1 - x).log().clamp_min(-100))
    )


@reference("BCELossBackward")
def run_bce_backward(call: Call) -> dict[str, Result]:
    factor = 1 if call["weight"] is None else call.wide("weight").abs()
    return _pair_backward(
        call, _binary(call), lambda x, t: factor * (x.abs() + t.abs()) / (x * (1 - x)).clamp_min(1e-12)
    )


# Classes


def _nll(call: Call) -> Any:
    weight, target, ignored = call.wide("weight"), call["target"], call["ignore_index"]
    mode = REDUCTIONS[call["reduction"]]
    return lambda x: F.nll_loss(x, target, weight, ignore_index=ignored, reduction=mode)


@reference("NLLLoss")
def run_nll(call: Call) -> dict[str, Result]:
    x = call.wide("input")
    value = _nll(call)(x)
    return {"out": Result(value, scale=_mean_size(call, x, value), terms=max(call["target"].numel(), 1), ops=8)}


def _mean_size(call: Call, x: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    size = x.abs().max() if x.numel() else torch.zeros((), dtype=torch.float64)
    weight = call.wide("weight")
    if REDUCTIONS[call["reduction"]] != "mean" and weight is not None:
        size = size * weight.abs().max()
    if REDUCTIONS[call["reduction"]] == "sum":
        size = size * max(call["target"].numel(), 1)
    return size.expand(value.shape)


@reference("NLLLossBackward")
def run_nll_backward(call: Call) -> dict[str, Result]:
    value = differentiate(_nll(call), [call.wide("input")], call.wide("grad_output"))[0]
    return {"grad_input": Result(value, terms=max(call["target"].numel(), 1), ops=8)}


def _total_weight(call: Call) -> torch.Tensor:
    weight, target = call.wide("weight"), call["target"]
    kept = target[target != call["ignore_index"]]
    return torch.tensor(float(kept.numel()), dtype=torch.float64) if weight is None else weight[kept].sum()


@reference("NLLLossV2")
def run_nll_v2(call: Call) -> dict[str, Result]:
    """totalWeight is what the mean divides by; only that mode uses it."""
    found = run_nll(call)
    total = _total_weight(call)
    check = "elements" if REDUCTIONS[call["reduction"]] != "none" else "anything"
    found["totalWeight"] = Result(total, scale=total.abs(), terms=max(call["target"].numel(), 1), check=check)
    return found


@reference("NLLLossV2Backward")
def run_nll_v2_backward(call: Call) -> dict[str, Result]:
    call["totalWeight"].copy_(_total_weight(call))
    value = differentiate(_nll(call), [call.wide("input")], call.wide("grad_output"))[0]
    compute = None if call.dtype == torch.float64 else call["totalWeight"].dtype
    return {"grad_input": Result(value, terms=max(call["target"].numel(), 1), ops=8, compute=compute)}


def _cross_entropy(call: Call) -> Any:
    target = call["target"] if not call["target"].is_floating_point() else call.wide("target")
    weight, mode = call.wide("weight"), REDUCTIONS[call["reduction"]]
    options = {"ignore_index": call["ignore_index"], "label_smoothing": call["label_smoothing"]}
    return lambda x: F.cross_entropy(x, target, weight, reduction=mode, **options)


@reference("CrossEntropyLoss")
def run_cross_entropy(call: Call) -> dict[str, Result]:
    x = call.wide("input")
    value = _cross_entropy(call)(x)
    scale = _mean_size(call, x, value) + value.abs() + 4
    if REDUCTIONS[call["reduction"]] == "sum":
        scale = scale * max(call["target"].numel(), 1)
    return {"out": Result(value, scale=scale, terms=max(x.numel(), 1), ops=8)}


@reference("CrossEntropyLossBackward")
def run_cross_entropy_backward(call: Call) -> dict[str, Result]:
    x, grad = call.wide("input"), call.wide("grad_output")
    value = differentiate(_cross_entropy(call), [x], grad)[0]
    axis = 1 if x.dim() > 1 else 0
    entering = value.abs().sum(axis, keepdim=True) * (1 + x.abs())
    return {"grad_input": Result(value, scale=entering, terms=max(x.numel(), 1), ops=8)}


# Focal loss


def _focal(x: torch.Tensor, target: torch.Tensor, alpha: float, gamma: float) -> torch.Tensor:
    p = torch.sigmoid(x)
    loss = F.binary_cross_entropy_with_logits(x, target, reduction="none")
    close = p * target + (1 - p) * (1 - target)
    loss = loss * (1 - close) ** gamma
    return (alpha * target + (1 - alpha) * (1 - target)) * loss if alpha >= 0 else loss


def _shrink(value: torch.Tensor, mode: str) -> torch.Tensor:
    return value if mode == "none" else value.mean() if mode == "mean" else value.sum()


@reference("SigmoidFocalLoss")
def run_focal(call: Call) -> dict[str, Result]:
    x, target = call.wide("inputs"), call.wide("targets")
    each = _focal(x, target, call["alpha"], call["gamma"])
    value = _shrink(each, REDUCTIONS[call["reduction"]])
    return {"out": _reduce(call, x.numel(), (1 + x.abs()) * (1 + call["gamma"]), value)}


@reference("SigmoidFocalLossBackward")
def run_focal_backward(call: Call) -> dict[str, Any]:
    x, target, grad = call.wide("input"), call.wide("target"), call.wide("grad_output")
    mode = REDUCTIONS[call["reduction"]]
    value = differentiate(lambda t: _shrink(_focal(t, target, call["alpha"], call["gamma"]), mode), [x], grad)[0]
    scale = grad.abs() * (1 + x.abs()) * (1 + call["gamma"]) ** 2 / (x.numel() if mode == "mean" else 1)
    return {"grad_input": Result(value, scale=scale, ops=16)}


# Sequences


def _ctc(call: Call, log_probs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    lengths = [call[name].tolist() for name in ("input_lengths", "target_lengths")]
    targets, blank, zero = call["targets"].to(torch.int64), call["blank"], call["zero_infinity"]
    likelihood, alpha = torch.ops.aten._ctc_loss(log_probs, targets, *lengths, blank, zero)
    times, places = torch.arange(alpha.shape[1]), torch.arange(alpha.shape[2])
    for row, time, length in zip(alpha, *lengths, strict=True):  # what the kernel leaves as it was: log of 0
        row[(times >= time)[:, None] | (places > 2 * length)] = float("-inf")
    return likelihood, alpha


def _ctc_loss(call: Call, log_probs: torch.Tensor) -> torch.Tensor:
    lengths = [call[name].to(torch.int64) for name in ("input_lengths", "target_lengths")]
    options = {
        "blank": call["blank"],
        "reduction": REDUCTIONS[call["reduction"]],
        "zero_infinity": call["zero_infinity"],
    }
    return F.ctc_loss(log_probs, call["targets"].to(torch.int64), *lengths, **options)


@reference("CTCLoss")
def run_ctc(call: Call) -> dict[str, Result]:
    """log_alpha is the function's own: it is not judged."""
    log_probs = call.wide("log_probs")
    value = _ctc_loss(call, log_probs)
    likelihood, alpha = _ctc(call, log_probs)
    terms, size = log_probs.shape[0] * log_probs.shape[2], float(log_probs.abs().max()) * log_probs.shape[0]
    return {
        "out": Result(value, scale=value.abs() + size, terms=terms, ops=16),
        "neg_log_likelihood": Result(likelihood, scale=likelihood.abs() + size, terms=terms, ops=16),
        "log_alpha": Result(alpha, check="anything"),
    }


@reference("CTCLossBackward")
def run_ctc_backward(call: Call) -> dict[str, Result]:
    log_probs, grad = call.wide("log_probs"), call.wide("grad_output")
    likelihood, alpha = _ctc(call, log_probs)
    call["neg_log_likelihood"].copy_(likelihood)
    call["log_alpha"].copy_(alpha)
    value = differentiate(lambda t: _ctc_loss(call, t), [log_probs], grad)[0]
    size = (1 + log_probs.abs().max() * log_probs.shape[0]) * grad.abs().max()
    return {"grad_input": Result(value, scale=size.expand(value.shape), terms=log_probs.shape[0], ops=16)}
