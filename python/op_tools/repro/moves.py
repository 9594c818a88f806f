"""The further runs of a call that the rule asks for, and how their inputs are moved: as src/judge/move.c and
python/ditorch/judge.py move them, bit for bit, with torch alone.

The text is copied into every repro behind its mark (see rule.py).
"""

from __future__ import annotations

import math

import torch

# begin
# Further runs: the moves of their inputs are a fixed random sequence, so that every run of this script is the same

GOLDEN = 0x9E3779B97F4A7C15


def signed(number):
    """The same 64 bits as an int64."""
    return ((number + (1 << 63)) & ((1 << 64) - 1)) - (1 << 63)


def shift(z, count):
    return (z >> count) & ((1 << (64 - count)) - 1)


def scramble(z):
    """splitmix64's function of an int64 tensor."""
    z = (z ^ shift(z, 30)) * signed(0xBF58476D1CE4E5B9)
    z = (z ^ shift(z, 27)) * signed(0x94D049BB133111EB)
    return z ^ shift(z, 31)


def mix(seed, number):
    z = scramble(torch.tensor([signed(seed + GOLDEN)]))
    return scramble((z ^ signed(number)) + signed(GOLDEN)).item()


def draw(state, count):
    """Numbers from -1 to 1."""
    z = scramble(torch.arange(1, count + 1) * signed(GOLDEN) + signed(state))
    return shift(z, 11).to(torch.float64) * 2.0**-52 - 1


def is_simple(x):
    """Labels, flags and exact constants rather than roundings of something: they are not moved."""
    return (x.abs() <= 16) & (x == x.trunc())


def widen(dtype):
    if dtype.is_complex:
        return torch.complex128
    return torch.float64 if dtype.is_floating_point else dtype


def get_roundoff(dtype):
    """Half the distance from 1 to the next number."""
    return torch.finfo(dtype).eps / 2


def is_number(dtype):
    return dtype.is_floating_point or dtype.is_complex


class Run:
    """A further run of the call on the CPU, and its inputs. `kind`: wide (float64), native (the call's dtypes), other
    (the CPU's own autocast instead of the device's), shaken (wide, each input off by a random relative error of at most
    `size`; 0: of a rounding of its dtype), jitter (native, each moved by at most `size` roundings and rounded again),
    jitter_wide (wide, the very inputs of jitter). `narrow`: float32 in the place of every floating dtype. `keep`: of an
    operator that computes nothing, which runs in its own dtypes always."""

    def __init__(self, kind="native", size=0.0, narrow=False, seed=0, keep=False):
        self.kind, self.size, self.narrow, self.seed, self.keep = kind, size, narrow, seed, keep
        self.is_wide = kind in ("wide", "shaken", "jitter_wide") and not keep
        self.moves = kind in ("shaken", "jitter", "jitter_wide")

    def get_dtype(self, dtype):
        """What stands for this dtype in the run."""
        if self.is_wide:
            return widen(dtype)
        if self.narrow and is_number(dtype):
            return torch.complex64 if dtype.is_complex else torch.float32
        return dtype

    def make(self, tensor, place):
        """Input number `place` for this run."""
        dtype = tensor.dtype
        if not is_number(dtype) or not self.moves or (self.kind == "shaken" and self.keep and widen(dtype) != dtype):
            return tensor.to(self.get_dtype(dtype))
        own = Run(narrow=self.narrow).get_dtype(dtype)
        size = self.size * get_roundoff(own) if self.kind != "shaken" else self.size or get_roundoff(own)
        moved = tensor.to(widen(dtype), copy=True)
        flat = moved.as_strided((moved.numel(),), (1,))
        flat = torch.view_as_real(flat).view(-1) if dtype.is_complex else flat
        units = draw(self.seed ^ (place + 1) * 0xD1B54A32D192ED03, flat.numel())
        flat.mul_(torch.where(is_simple(flat), torch.ones_like(units), 1 + size * units))
        moved = moved if self.kind == "shaken" else moved.to(own)
        return moved.to(widen(own)) if self.kind == "jitter_wide" else moved

    def make_gradient(self, gradient, place):
        """The gradient of result number `place`."""
        return Run(self.kind, self.size, self.narrow, mix(self.seed, 0x10000)).make(gradient, place)

    def make_numbers(self, args, kwargs, size):
        """The numbers among the arguments (also in tuples) off by a rounding, in a shaken run."""
        state = [self.seed ^ GOLDEN]

        def move(value):
            if type(value) is tuple:
                return tuple(move(item) for item in value)
            if type(value) is not float or not math.isfinite(value) or (abs(value) <= 16 and value == int(value)):
                return value
            unit, state[0] = draw(state[0], 1).item(), state[0] + GOLDEN
            return value * (1 + size * unit)

        if self.kind != "shaken":
            return args, kwargs
        return move(args), {key: value if type(value) is tuple else move(value) for key, value in kwargs.items()}
