"""Three steps of each optimizer with random gradients, parameters in float32, bfloat16 and float16."""

import torch
from torch import nn

from false_alarms.training.scenario import DEVICE, call


def take_steps(dtype, make, clip=None, count=3):
    shapes = ((24, 16), (24,), (8, 24), ())
    parameters = [nn.Parameter(torch.randn(shape).to(DEVICE, dtype)) for shape in shapes]
    gradients = [[torch.randn(p.shape).to(DEVICE, dtype) for p in parameters] for _ in range(count)]
    optimizer = make(parameters)
    yield
    for step in gradients:
        for parameter, gradient in zip(parameters, step, strict=True):
            parameter.grad = gradient
        if clip:
            clip(parameters)
        optimizer.step()
        optimizer.zero_grad()


@call()
def sgd(dtype):
    return take_steps(dtype, lambda p: torch.optim.SGD(p, lr=1e-2))


@call()
def sgd_momentum(dtype):
    return take_steps(dtype, lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9, weight_decay=1e-2, nesterov=True))


@call()
def sgd_foreach(dtype):
    return take_steps(dtype, lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9, foreach=True))


@call()
def adam(dtype):
    return take_steps(dtype, lambda p: torch.optim.Adam(p, lr=1e-3))


@call()
def adam_amsgrad(dtype):
    return take_steps(dtype, lambda p: torch.optim.Adam(p, lr=1e-3, amsgrad=True, foreach=False))


@call()
def adamw_loop(dtype):
    return take_steps(dtype, lambda p: torch.optim.AdamW(p, lr=1e-3, foreach=False))


@call()
def adamw_foreach(dtype):
    return take_steps(dtype, lambda p: torch.optim.AdamW(p, lr=1e-3, foreach=True))


@call()
def adamw_fused(dtype):
    return take_steps(dtype, lambda p: torch.optim.AdamW(p, lr=1e-3, fused=True))


@call()
def adagrad(dtype):
    return take_steps(dtype, lambda p: torch.optim.Adagrad(p, lr=1e-2))


@call()
def rmsprop(dtype):
    return take_steps(dtype, lambda p: torch.optim.RMSprop(p, lr=1e-3, momentum=0.9, centered=True))


@call()
def clip_norm_foreach(dtype):
    return take_steps(
        dtype, lambda p: torch.optim.SGD(p, lr=1e-2), lambda p: nn.utils.clip_grad_norm_(p, 1.0, foreach=True)
    )


@call()
def clip_norm_loop(dtype):
    return take_steps(
        dtype, lambda p: torch.optim.SGD(p, lr=1e-2), lambda p: nn.utils.clip_grad_norm_(p, 1.0, foreach=False)
    )


@call()
def clip_value(dtype):
    return take_steps(dtype, lambda p: torch.optim.SGD(p, lr=1e-2), lambda p: nn.utils.clip_grad_value_(p, 0.7))
