"""References of optimizer steps and gradient scaling, by the formulas of torch.optim."""

from __future__ import annotations

from typing import Any

import torch

from .base import Call, Result, reference, widen


def _state(value: torch.Tensor, *parts: torch.Tensor, ops: float = 8) -> Result:
    scale = value.abs()
    for part in parts:
        scale = scale + part.abs()
    return Result(value, scale=scale, ops=ops)


@reference("Sgd")
def run_sgd(call: Call) -> dict[str, Result]:
    """The buffer holds momentum from an earlier step."""
    p, g, buf = call.wide("param"), call.wide("grad"), call.wide("buf")
    lr, momentum, dampening = call["lr"], call["momentum"], call["dampening"]
    d = g + call["weight_decay"] * p
    parts = g.abs() + abs(call["weight_decay"]) * p.abs()
    found: dict[str, Result] = {}
    if momentum != 0 and buf is not None:
        new = buf * momentum + d * (1 - dampening)
        parts = parts + momentum * buf.abs()
        found["buf"] = _state(new, parts)
        d = d + momentum * new if call["nesterov"] else new
        parts = parts * (1 + momentum)
    found["param"] = _state(p - lr * d, p, lr * parts)
    return found


def _adam(
    p: torch.Tensor,
    g: torch.Tensor,
    m: torch.Tensor,
    v: torch.Tensor,
    largest: torch.Tensor | None,
    step: float,
    options: dict[str, Any],
) -> dict[str, Result]:
    """Adam (weight decay joins the gradient) and AdamW (it shrinks the parameter)."""
    lr, beta1, beta2, eps, decay = (options[k] for k in ("lr", "beta1", "beta2", "eps", "weight_decay"))
    p0 = p
    if options["decoupled"]:
        p = p * (1 - lr * decay)
        parts = g.abs()
    else:
        parts = g.abs() + abs(decay) * p.abs()
        g = g + decay * p
    m_new = m * beta1 + g * (1 - beta1)
    v_new = v * beta2 + g * g * (1 - beta2)
    found = {"m": _state(m_new, m, parts), "v": _state(v_new, v, parts * parts)}
    root = v_new
    if options["amsgrad"]:
        root = torch.maximum(largest, v_new)
        found["largest"] = _state(root, v, parts * parts)
    bias1, bias2 = 1 - beta1**step, 1 - beta2**step
    denominator = root.sqrt() / bias2**0.5 + eps
    moved = lr / bias1 * (m.abs() * beta1 + parts * (1 - beta1)) / denominator
    # 1 - beta^step is small for the first steps: rounding of beta^step then weighs more.
    moved = moved * (1 + 1 / bias1 + 1 / bias2)
    found["p"] = _state(p - lr / bias1 * m_new / denominator, p0, moved, ops=16)
    return found


def _options(call: Call, decoupled: bool) -> dict[str, Any]:
    found = {k: call[k] for k in ("lr", "beta1", "beta2", "eps", "weight_decay", "amsgrad")}
    return found | {"decoupled": decoupled}


@reference("Adam", "AdamW")
def run_adam(call: Call) -> dict[str, Result]:
    p, g = call.wide("param"), call.wide("grad")
    m, v, largest = call.wide("exp_avg"), call.wide("exp_avg_sq"), call.wide("max_exp_avg_sq")
    found = _adam(p, g, m, v, largest, call["step"], _options(call, call.function == "diopiAdamW"))
    results = {"param": found["p"], "exp_avg": found["m"], "exp_avg_sq": found["v"]}
    if "largest" in found:
        results["max_exp_avg_sq"] = found["largest"]
    return results


@reference("FusedAdamW")
def run_fused_adamw(call: Call) -> dict[str, Any]:
    """Lists of tensors; the step counters are read, and they count from one: this step's number."""
    lists: dict[str, list[Result]] = {"params": [], "exp_avgs": [], "exp_avg_sqs": []}
    if call["amsgrad"]:
        lists["max_exp_avg_sqs"] = []
    for number, p in enumerate(call["params"]):
        g = widen(call["grads"][number]) * (-1 if call["maximize"] else 1)
        m, v = widen(call["exp_avgs"][number]), widen(call["exp_avg_sqs"][number])
        largest = widen(call["max_exp_avg_sqs"][number]) if call["amsgrad"] else None
        step = float(call["state_steps"][number])
        found = _adam(widen(p), g, m, v, largest, step, _options(call, True))
        lists["params"].append(found["p"])
        lists["exp_avgs"].append(found["m"])
        lists["exp_avg_sqs"].append(found["v"])
        if call["amsgrad"]:
            lists["max_exp_avg_sqs"].append(found["largest"])
    return lists


@reference("Adadelta")
def run_adadelta(call: Call) -> dict[str, Result]:
    p, g = call.wide("param"), call.wide("grad")
    square, delta = call.wide("square_avg"), call.wide("acc_delta")
    lr, rho, eps, decay = (call[k] for k in ("lr", "rho", "eps", "weight_decay"))
    parts = g.abs() + abs(decay) * p.abs()
    g = g + decay * p
    new = square * rho + g * g * (1 - rho)
    step = (delta + eps).sqrt() / (new + eps).sqrt() * g
    moved = (delta + eps).sqrt() / (new + eps).sqrt() * parts
    return {
        "param": _state(p - lr * step, p, lr * moved, ops=16),
        "square_avg": _state(new, square, parts * parts),
        "acc_delta": _state(delta * rho + step * step * (1 - rho), delta, moved * moved, ops=16),
    }


@reference("Rmsprop")
def run_rmsprop(call: Call) -> dict[str, Result]:
    p, g, square = call.wide("param"), call.wide("grad"), call.wide("square_avg")
    average, buffer = call.wide("grad_avg"), call.wide("momentum_buf")
    lr, alpha, eps, decay, momentum = (call[k] for k in ("lr", "alpha", "eps", "weight_decay", "momentum"))
    parts = g.abs() + abs(decay) * p.abs()
    g = g + decay * p
    new = square * alpha + g * g * (1 - alpha)
    found = {"square_avg": _state(new, square, parts * parts)}
    root, widened = new, 1.0
    if call["centered"]:
        mean = average * alpha + g * (1 - alpha)
        found["grad_avg"] = _state(mean, average, parts)
        root = new - mean * mean
        widened = 1 + (new + mean * mean) / root.clamp_min(1e-12)
    denominator = root.sqrt() + eps
    step, moved = g / denominator, parts / denominator * widened
    if momentum > 0:
        step = buffer * momentum + step
        moved = moved + buffer.abs()
        found["momentum_buf"] = _state(step, moved, ops=16)
    found["param"] = _state(p - lr * step, p, lr * moved, ops=16)
    return found


@reference("ClipGradNorm")
def run_clip(call: Call) -> dict[str, Any]:
    """out: the norm of all gradients together; they are scaled when it is above max_norm."""
    grads, order, limit = [widen(g) for g in call["grads"]], call["norm_type"], call["max_norm"]
    norms = torch.stack([torch.linalg.vector_norm(g, order) for g in grads])
    total = torch.linalg.vector_norm(norms, order)
    factor = float(limit / (total + 1e-6)) if float(limit / (total + 1e-6)) < 1 else 1.0
    count = sum(g.numel() for g in grads)
    eps = 64 * torch.finfo(torch.float64 if call.dtype == torch.float64 else torch.float32).eps
    if call.dtype in (torch.float16, torch.bfloat16):
        eps = 8 * torch.finfo(call.dtype).eps
    compute = call.dtype if call.dtype in (torch.float16, torch.bfloat16) else None
    return {
        "out": Result(float(total), scale=torch.tensor(float(total) * eps)),
        "grads": [Result(g * factor, terms=max(count, 1), ops=16, compute=compute) for g in grads],
    }


@reference("AmpForeachNonFiniteCheckAndUnscaleInp")
def run_unscale(call: Call) -> dict[str, Any]:
    factor = call.wide("inv_scale")
    finite = all(bool(torch.isfinite(g).all()) for g in call["scaled_grads"])
    found = call.wide("found_inf").clone()
    found = found if finite else torch.ones_like(found)
    grads = [Result(widen(g) * factor) for g in call["scaled_grads"]]
    return {"scaled_grads": grads, "found_inf": Result(found, exact=True)}


@reference("AmpUpdateScaleInp")
def run_update_scale(call: Call) -> dict[str, Result]:
    scale, tracker = call.wide("current_scale"), call["growth_tracker"].clone()
    if float(call["found_inf"]) != 0:
        return {
            "current_scale": Result(scale * call["scale_backoff_factor"]),
            "growth_tracker": Result(torch.zeros_like(tracker), exact=True),
        }
    grown = int(tracker) + 1
    if grown == call["growth_interval"]:
        return {
            "current_scale": Result(scale * call["scale_growth_factor"]),
            "growth_tracker": Result(torch.zeros_like(tracker), exact=True),
        }
    return {"current_scale": Result(scale), "growth_tracker": Result(torch.full_like(tracker, grown), exact=True)}
