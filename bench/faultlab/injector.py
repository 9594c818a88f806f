"""Faults that are put into what an operator gives back by a dispatch mode that lies below everything else: all kinds on
a device that has no fault hook of its own (a real GPU), and on every device the kinds that the hook does not know.

`Injector("value:aten::mm,call=3")` has the face of `ditorch.fault`: a context manager with `count`; the referee
switches the fault off as soon as it has fired.
"""

import fnmatch

import torch
from referee import is_exact, tensors, touches_device
from torch.utils._python_dispatch import TorchDispatchMode


class Counter(TorchDispatchMode):
    """Calls of each operator on the device, and the numbers of those that each kind of CHIP_KINDS has an effect on."""

    def __init__(self):
        super().__init__()
        self.calls = {}
        self.open = {kind: {} for kind in CHIP_KINDS}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if touches_device((args, kwargs)) and (computes(func) or is_exact(func)):
            name = func.name()
            self.calls[name] = self.calls.get(name, 0) + 1
            for kind in find_kinds(func, args, kwargs, result):
                self.open[kind].setdefault(name, []).append(self.calls[name])
        return result


def computes(func):
    """No view, copy or fill: what it gives is its own work."""
    name = func.name()
    views = any(value.alias_info and not value.alias_info.is_write for value in func._schema.returns)
    copies = ("copy", "clone", "fill", "zero", "empty", "local_scalar", "detach", "alias", "item", "ones", "full")
    views = views or "view" in name
    return not views and not any(word in name for word in copies)


def find_kinds(func, args, kwargs, result):
    """Kinds of CHIP_KINDS that would change this call's first result."""
    made = [x for x in tensors(result) if x.numel() and x.device.type != "cpu"]
    if not made or func._schema.is_mutable:
        return
    x = made[0].detach()
    if x.ndim and len(x) > 1 and bool((x[0] != x[-1]).any()):
        yield "row"
        yield "swap"
    if x.numel() > LIMIT:
        yield "limit"
    if find_dim(func, args, x) is not None:
        yield "dim"
    if x.is_floating_point() and bool(x.isnan().any()):
        yield "inf"
    if is_exact(func) and x.is_floating_point() and x.numel() >= 64 and find_normal(x):
        yield "ulp"


def find_dim(func, args, x):
    """The place of a dimension among the arguments that is one of the last two, else None."""
    for place, argument in enumerate(func._schema.arguments):
        if argument.name == "dim" and place < len(args) and x.ndim >= 2:
            dim = args[place][0] if isinstance(args[place], (list, tuple)) and len(args[place]) == 1 else args[place]
            given = tensors(args)[0].ndim
            if isinstance(dim, int) and given >= 2 and dim % given >= given - 2:
                return place
    return None


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

    def switch_off(self):
        """From within: the mode is still covered by others, and stays until the end."""
        self.on = False

    def __exit__(self, *exc_info):
        self.on = False
        self.mode.__exit__(*exc_info)

    def damage(self, func, args, kwargs, result):
        given, made = tensors((args, kwargs)), tensors(result)
        hurt = {"input": given[:1], "unwritten": made, "precision": made}.get(self.kind, made[:1])
        hurt = [x for x in hurt if x.numel() and x.device.type != "cpu"]
        if not hurt or (self.kind == "stride" and given[0].is_contiguous()):
            return
        if self.kind == "dim":
            self.count += _dim(func, args, kwargs, hurt[0])
            return
        if self.kind == "ulp" and find_normal(hurt[0]) is None:
            return
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
                    owner.damage(func, args, kwargs, result)
        return result


# kinds: on one tensor, in place, as include/dit/fault.h says


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


# Kinds that the fault hook does not have: what chips do


def _row(x):
    """The last row is a copy of the first."""
    x[-1].copy_(x[0].clone())


def _swap(x):
    last = x[-1].clone()
    x[-1].copy_(x[0])
    x[0].copy_(last)


def _limit(x):
    """Only the first 65,535 elements are written: a counter of 16 bits."""
    flat = x.detach().clone().flatten()
    _unwritten(flat[LIMIT:])
    x.copy_(flat.view(x.shape))


def _inf(x):
    """0 where NaN belongs: a row of -inf in a softmax."""
    x.nan_to_num_(0.0, float("inf"), float("-inf"))


def _ulp(x):
    """The first normal number becomes the next one away from 0."""
    place = find_normal(x)
    value = x[place].detach().cpu()
    x[place] = torch.nextafter(value, value.sign() * float("inf")).to(x.device)


def find_normal(x):
    """The place of the first number that a device may not flush to 0, or None."""
    places = (x.detach().abs() >= torch.finfo(x.dtype).smallest_normal).nonzero()
    return tuple(places[0].tolist()) if len(places) else None


def _dim(func, args, kwargs, x):
    """The last dimension is taken for the one before it, and the other way round. Whether that fits the result."""
    place = find_dim(func, args, x)
    if place is None:
        return 0
    given, listed = tensors(args)[0].ndim, isinstance(args[place], (list, tuple))
    dim = (args[place][0] if listed else args[place]) % given
    other = given - 1 if dim == given - 2 else given - 2
    wrong = tensors(func(*args[:place], [other] if listed else other, *args[place + 1 :], **kwargs))[0]
    if wrong.shape != x.shape:
        return 0
    x.copy_(wrong)
    return 1


LIMIT = 65535
CHIP_KINDS = ("row", "swap", "limit", "dim", "inf", "ulp")
KINDS = {
    "value": _value,
    "precision": _precision,
    "nan": _nan,
    "stride": _stride,
    "input": _value,
    "unwritten": _unwritten,
    "row": _row,
    "swap": _swap,
    "limit": _limit,
    "inf": _inf,
    "ulp": _ulp,
}
