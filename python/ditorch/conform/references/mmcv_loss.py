"""References of mmcv's losses and of batch norm in steps: gradients by autograd of the definition."""

from __future__ import annotations

import torch

from .base import Call, Result, differentiate, reference

LEAST = float(torch.finfo(torch.float32).smallest_normal)


def _log(p: torch.Tensor) -> torch.Tensor:
    return p.clamp(min=LEAST).log()


def _weigh(call: Call, classes: int) -> torch.Tensor:
    """The weight of each row: that of its target, 1 where the target is no class."""
    target, weight = call["target"].to(torch.int64), call.wide("weight")
    if weight is None or weight.numel() == 0:
        return torch.ones(target.shape, dtype=torch.float64)
    inside = (target >= 0) & (target < classes)
    return torch.where(inside, weight[torch.where(inside, target, 0)], 1.0)


def _sigmoid_loss(call: Call, x: torch.Tensor) -> torch.Tensor:
    gamma, alpha = call["gamma"], call["alpha"]
    hit = call["target"].to(torch.int64)[:, None] == torch.arange(x.shape[1])
    p, q = x.sigmoid(), (-x).sigmoid()
    each = torch.where(hit, -alpha * q**gamma * _log(p), -(1 - alpha) * p**gamma * _log(q))
    return each * _weigh(call, x.shape[1])[:, None]


def _size(call: Call, x: torch.Tensor) -> torch.Tensor:
    """Magnitudes that enter: the logarithm of a probability near 1 comes from 1 - p, which is rounded."""
    return (1 + call["gamma"]) * (1 + x.abs()) * _weigh(call, x.shape[1]).abs()[:, None]


@reference("SigmoidFocalLossMmcv")
def run_sigmoid(call: Call) -> dict[str, Result]:
    x = call.wide("input")
    return {"output": Result(_sigmoid_loss(call, x), scale=_size(call, x), ops=8)}


@reference("SigmoidFocalLossBackwardMmcv")
def run_sigmoid_backward(call: Call) -> dict[str, Result]:
    x = call.wide("input")
    value = differentiate(lambda t: _sigmoid_loss(call, t), [x], torch.ones_like(x))[0]
    return {"grad_input": Result(value, scale=_size(call, x), ops=16)}


def _softmax_loss(call: Call, p: torch.Tensor) -> torch.Tensor:
    target = call["target"].to(torch.int64)
    inside = target >= 0
    chosen = p.gather(1, torch.where(inside, target, 0)[:, None])[:, 0]
    each = -call["alpha"] * (1 - chosen) ** call["gamma"] * _log(chosen) * _weigh(call, p.shape[1])
    return torch.where(inside, each, 0.0)


@reference("SoftmaxFocalLossMmcv")
def run_softmax(call: Call) -> dict[str, Result]:
    p = call.wide("softmax")
    value = _softmax_loss(call, p) if p.numel() else p.new_zeros(p.shape[0])
    return {"output": Result(value, scale=(4 + call["gamma"]) * _weigh(call, p.shape[1]).abs(), ops=8)}


@reference("SoftmaxFocalLossBackwardMmcv")
def run_softmax_backward(call: Call) -> dict[str, Result]:
    """With respect to the logits: the derivative of the loss by p, times p_t (1[c = t] - p_c)."""
    p, target = call.wide("softmax"), call["target"].to(torch.int64)
    by_p = differentiate(lambda t: _softmax_loss(call, t), [p], torch.ones(p.shape[0], dtype=torch.float64))[0]
    hit = (target[:, None] == torch.arange(p.shape[1])).to(torch.float64)
    factor = (by_p * p * hit).sum(1, keepdim=True)
    value = factor * (hit - p) * (target >= 0)[:, None]
    scale = (4 + call["gamma"]) * _weigh(call, p.shape[1]).abs()[:, None] * torch.ones_like(p)
    return {
        "grad_input": Result(value, scale=scale, ops=16),
        "buff": Result(torch.zeros(p.shape[0], dtype=torch.float64), check="anything"),
    }


# Batch norm in steps


def _rows(x: torch.Tensor) -> torch.Tensor:
    """(N, C, L) as (C, N L)."""
    return x.transpose(0, 1).reshape(x.shape[1], x.shape[0] * x.shape[2])


@reference("SyncBnMeanMmcv")
def run_mean(call: Call) -> dict[str, Result]:
    rows = _rows(call.wide("input"))
    return {"mean": Result(rows.mean(1), torch.float32, scale=rows.abs().mean(1), terms=rows.shape[1])}


@reference("SyncBnVarMmcv")
def run_var(call: Call) -> dict[str, Result]:
    rows, mean = _rows(call.wide("input")), call.wide("mean")[:, None]
    scale = ((rows.abs() + mean.abs()) ** 2).mean(1)
    return {"var": Result(((rows - mean) ** 2).mean(1), torch.float32, scale=scale, terms=rows.shape[1], ops=8)}


@reference("SyncBnOutputMmcv")
def run_output(call: Call) -> dict[str, Result]:
    x, mean, var = call.wide("input"), call.wide("mean"), call.wide("var")
    weight, bias = call.wide("weight"), call.wide("bias")
    weight = torch.ones_like(mean) if weight is None else weight
    bias = torch.zeros_like(mean) if bias is None else bias
    std = (var + call["eps"]).sqrt()
    norm = (x - mean[:, None]) / std[:, None]
    size = (x.abs() + mean.abs()[:, None]) / std[:, None]
    out = norm * weight[:, None] + bias[:, None]
    found = {
        "norm": Result(norm, torch.float32, scale=size, ops=8),
        "std": Result(std, torch.float32, ops=8),
        "output": Result(out, scale=size * weight.abs()[:, None] + bias.abs()[:, None], ops=8),
    }
    momentum, count = call["momentum"], x.shape[0] * x.shape[2] * call["group_size"]
    unbiased = var * count / (count - 1) if count > 1 else var
    for name, fresh in (("running_mean", mean), ("running_var", unbiased)):
        old = call.wide(name)
        if old is not None:
            value = momentum * fresh + (1 - momentum) * old
            found[name] = Result(value, torch.float32, scale=fresh.abs() + old.abs(), ops=8)
    return found


@reference("SyncBnBackwardParamMmcv")
def run_backward_param(call: Call) -> dict[str, Result]:
    grad, norm = _rows(call.wide("grad_output")), _rows(call.wide("norm"))
    products, terms = grad * norm, grad.shape[1]
    return {
        "grad_weight": Result(products.sum(1), torch.float32, scale=products.abs().sum(1), terms=terms),
        "grad_bias": Result(grad.sum(1), torch.float32, scale=grad.abs().sum(1), terms=terms),
    }


@reference("SyncBnBackwardDataMmcv")
def run_backward_data(call: Call) -> dict[str, Result]:
    grad, norm = call.wide("grad_output"), call.wide("norm")
    weight, std, by_weight, by_bias = (
        call.wide(name)[:, None] for name in ("weight", "std", "grad_weight", "grad_bias")
    )
    count = max(grad.shape[0] * grad.shape[2], 1)
    value = weight / std * (grad - (by_weight * norm + by_bias) / count)
    scale = (weight / std).abs() * (grad.abs() + ((by_weight * norm).abs() + by_bias.abs()) / count)
    return {"grad_input": Result(value, scale=scale, ops=8)}
