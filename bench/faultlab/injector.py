"""Faults on a device that has no fault hook of its own (a real GPU): the same text, the same kinds, put into what an
operator gives back by a dispatch mode that lies below everything else.

`Injector("value:aten::mm,call=3")` has the face of `ditorch.fault`: a context manager with `count`; leaving it a second
time (the referee switches the fault off as soon as it has fired) takes the mode off.
"""

import fnmatch

import torch
from referee import tensors, touches_device
from torch.utils._python_dispatch import TorchDispatchMode


class Counter(TorchDispatchMode):
    """Calls of each operator on the device."""

    def __init__(self):
        super().__init__()
        self.calls = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if touches_device((args, kwargs)) and computes(func):
            self.calls[func.name()] = self.calls.get(func.name(), 0) + 1
        return result


def computes(func):
    """No view, copy or fill: what it gives is its own work."""
    name = func.name()
    views = any(value.alias_info and not value.alias_info.is_write for value in func._schema.returns)
    copies = ("copy", "clone", "fill", "zero", "empty", "local_scalar", "detach", "alias", "item", "ones", "full")
    views = views or "view" in name
    return not views and not any(word in name for word in copies)


class Injector:
    def __init__(self, text):
        self.kind, _, rest = text.partition(":")
        self.pattern, _, call = rest.rpartition(",call=")
        self.wanted, self.seen, self.count, self.on = int(call), 0, 0, False
        self.mode = _Mode(self)

    def __enter__(self):
        self.on = True
        self.mode.__enter__()
        return self

    def __exit__(self, *exc_info):
        if self.on:
            self.on = False
            if self.count:  # switched off from within: the mode is still covered by others
                return
        self.mode.__exit__(*exc_info)

    def damage(self, args, kwargs, result):
        given, made = tensors((args, kwargs)), tensors(result)
        hurt = {"input": given[:1], "value": made[:1], "nan": made[:1], "stride": made[:1]}.get(self.kind, made)
        hurt = [x for x in hurt if x.numel() and x.device.type != "cpu"]
        if hurt and (self.kind != "stride" or not given[0].is_contiguous()):
            self.count += 1
            for x in hurt:
                KINDS[self.kind](x)


class _Mode(TorchDispatchMode):
    def __init__(self, owner):
        super().__init__()
        self.owner = owner

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        owner, kwargs = self.owner, kwargs or {}
        result = func(*args, **kwargs)
        if owner.on and touches_device((args, kwargs)) and fnmatch.fnmatchcase(func.name(), owner.pattern):
            owner.seen += 1
            if owner.seen == owner.wanted:
                with torch.no_grad():
                    owner.damage(args, kwargs, result)
        return result


# ---- kinds: on one tensor, in place, as include/dit/fault.h says


def _first(x):
    return x.detach().as_strided((1,), (1,), x.storage_offset())


def _value(x):
    if x.dtype is torch.bool:
        _first(x).logical_not_()
    elif x.is_floating_point():
        top = x.detach().abs().nan_to_num(0.0, 0.0, 0.0).max()
        _first(x).add_(0.01 * torch.where(top > 0, top, torch.ones_like(top)))
    else:
        _first(x).add_(1)


def _nan(x):
    if x.is_floating_point():
        _first(x).fill_(float("nan"))
    else:
        _value(x)


def _precision(x):
    if x.is_floating_point():
        fraction, exponent = torch.frexp(x.detach().double())
        x.copy_(torch.ldexp((fraction * 128).round() / 128, exponent))


def _stride(x):
    x.copy_(x.detach().clone().flatten().roll(1).view(x.shape))


def _unwritten(x):
    x.copy_(
        torch.ones_like(x) if x.dtype is torch.bool else torch.full_like(x, 1.5362e16 if x.is_floating_point() else 90)
    )


KINDS = {
    "value": _value,
    "precision": _precision,
    "nan": _nan,
    "stride": _stride,
    "input": _value,
    "unwritten": _unwritten,
}
