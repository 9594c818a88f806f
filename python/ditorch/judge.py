"""Is a value right? The judge (include/dit/verdict.h, docs/verdict.md) for whoever can run an operator on the CPU.

The caller has the device's value, the CPU's at hand, and a function that makes further runs of the same call on the
CPU. The inputs of these runs are moved here, alike for everybody, so that all tools give one verdict. Depends on torch
and ditorch._C.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from . import _C, other_ways

WIDE = {torch.complex32: torch.complex128, torch.complex64: torch.complex128, torch.complex128: torch.complex128}


@dataclass(frozen=True)
class Request:
    """One further run: its inputs are those of the call, made wide or moved as `kind` says."""

    kind: str
    """wide, native, other, shaken, jitter or jitter_wide: see enum dit_verdict_run."""
    size: float = 0.0
    narrow: bool = False
    seed: int = 0

    @property
    def is_wide(self) -> bool:
        """The run computes in float64."""
        return self.kind in ("wide", "shaken", "jitter_wide")

    def get_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """What stands for this dtype in the run: for tensors, and for an argument `dtype`."""
        if not (dtype.is_floating_point or dtype.is_complex):
            return dtype
        if self.is_wide:
            return WIDE.get(dtype, torch.float64)
        if self.narrow:
            return torch.complex64 if dtype.is_complex else torch.float32
        return dtype

    def move(self, tensor: torch.Tensor, place: int, *, gradient: bool = False, exact: bool = False) -> torch.Tensor:
        """Input number `place` for this run; the tensor itself where nothing changes. Autograd is not asked.

        `gradient`: it is the gradient of output number `place`. `exact`: an operator that computes nothing
        (keeps_dtypes) gets its inputs as they are in the wide runs of its results."""
        with torch.no_grad(), torch._C.DisableTorchFunction():
            tensor = tensor.detach()
            is_number = tensor.is_floating_point() or tensor.is_complex()
            wide = WIDE.get(tensor.dtype, torch.float64)
            kept = self.kind in ("native", "other") or (exact and self.kind == "wide")
            if not is_number or kept or (exact and self.kind == "shaken" and tensor.dtype != wide):
                return tensor
            if self.kind == "wide":
                return tensor.to(wide)
            own = get_narrow(tensor.dtype) if self.narrow else tensor.dtype
            moved = self._shake(tensor.to(wide, copy=True), own, place, gradient)
            if self.kind == "shaken":
                return moved
            rounded = moved.to(own)
            return rounded.to(wide) if self.kind == "jitter_wide" else rounded

    def _shake(self, moved: torch.Tensor, own: torch.dtype, place: int, gradient: bool) -> torch.Tensor:
        """A fresh wide tensor, its numbers moved by roundings of the dtype `own`."""
        if moved.layout != torch.strided:
            return moved
        moved = moved.resolve_conj().resolve_neg()
        if not is_dense(moved):
            moved = moved.contiguous()
        size = self.size * get_roundoff(own) if self.kind != "shaken" else self.size or get_roundoff(own)
        _C.judge_move(moved, size, self.seed, place, gradient)
        return moved

    def change_arguments(
        self, args: tuple, kwargs: dict[str, Any], *, double: bool = False, exact: bool = False
    ) -> tuple[tuple, dict[str, Any]]:
        """The arguments that are no tensors, for this run: numbers are off by a rounding of float32 in shaken ones
        (`double`: of float64, because the call computes in it), and an argument `dtype` follows the inputs."""
        if self.kind == "shaken":
            args, kwargs = _move_numbers(args, kwargs, 2.0**-53 if double else 2.0**-24, self.seed)
        dtype = kwargs.get("dtype")
        if isinstance(dtype, torch.dtype) and not (exact and self.is_wide):
            kwargs = {**kwargs, "dtype": self.get_dtype(dtype)}
        return args, kwargs


def _move_numbers(args: tuple, kwargs: dict[str, Any], size: float, seed: int) -> tuple[tuple, dict[str, Any]]:
    """The floats among the arguments, and in tuples of them."""
    found: list[float] = []

    def collect(value: Any) -> None:
        if type(value) is tuple:
            for item in value:
                collect(item)
        elif type(value) is float:
            found.append(value)

    def replace(value: Any) -> Any:
        if type(value) is tuple:
            return tuple(replace(item) for item in value)
        return next(moved) if type(value) is float else value

    collect(args)
    found += [value for value in kwargs.values() if type(value) is float]
    moved = iter(_C.judge_move_numbers(found, size, seed))
    args = replace(args)
    return args, {key: replace(value) if type(value) is float else value for key, value in kwargs.items()}


def run_other_way(name: str, args: Sequence[Any], kwargs: dict[str, Any] | None) -> Any:
    """The `other` run of a call that is under no autocast and writes to none of its arguments. Raises where there is
    none."""
    row = _C.operator_find(name)
    return other_ways.run_other_way(row["name"] if row else name, tuple(args), kwargs)


def keeps_dtypes(name: str) -> bool:
    """Does the operator only show, copy or convert what it is given? Then its wide run is the program's own."""
    kinds = _C.engine_classify(name)
    return kinds["view"] or kinds["transfer"]


def get_narrow(dtype: torch.dtype) -> torch.dtype:
    return torch.complex64 if dtype.is_complex else torch.float32


def get_roundoff(dtype: torch.dtype) -> float:
    """Half the distance from 1 to the next number."""
    return torch.finfo(dtype).eps / 2


def is_dense(tensor: torch.Tensor) -> bool:
    return tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()


def shake_in_place(tensor: torch.Tensor, size: float, seed: int) -> None:
    """Move every number of a float64 or complex128 tensor by a relative error of at most `size`, where it is, without a
    random generator: for runs on the device itself, whose errors need not be those of C."""
    with torch.no_grad():
        numbers = torch.view_as_real(tensor) if tensor.is_complex() else tensor
        noise = torch.arange(numbers.numel(), dtype=torch.float64, device=tensor.device)
        noise.mul_(12.9898).add_(float(seed % 8191)).sin_().mul_(43758.5453).frac_()
        numbers.mul_(noise.abs_().mul_(2 * size).add_(1 - size).view(numbers.shape))


class Runs:
    """The further runs of one call, made when they are asked for: the wide, the native and the other one once.

    `make(request)` runs the call on the CPU and returns its values in the order of those that are judged."""

    def __init__(self, make: Callable[[Request], Sequence[Any]]) -> None:
        self._make = make
        self._kept: dict[str, Any] = {}
        self.count = 0

    def __call__(self, kind: str, size: float = 0.0, narrow: bool = False, seed: int = 0) -> Any:
        """The values, or a text that says why there are none."""
        if kind in self._kept:
            return self._kept[kind]
        self.count += 1
        try:
            values: Any = list(self._make(Request(kind, size, narrow, seed)))
        except Exception as error:  # whatever an operator raises for a dtype that it does not take
            values = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        if kind in ("wide", "native", "other"):
            self._kept[kind] = values
        return values


@dataclass
class Judgement:
    """Of one value."""

    verdict: str
    """right, wrong or unknown"""
    reason: str = ""
    error: float = 0.0
    allowed: float = 0.0
    cpu_error: float = math.nan
    wrong: int = 0
    numel: int = 0
    index: int = -1
    """Row-major, of the worst element; -1 for none."""
    value: float = 0.0
    reference: float = 0.0

    @property
    def is_wrong(self) -> bool:
        return self.verdict == "wrong"


def judge(
    name: str,
    value: torch.Tensor,
    first: torch.Tensor,
    runs: Runs,
    *,
    args: Sequence[Any] = (),
    kwargs: dict[str, Any] | None = None,
    inputs: Sequence[torch.Tensor] = (),
    what: str = "output",
    index: int = 0,
    careful: bool = False,
    seed: int = 0,
    between: float = 0.0,
) -> Judgement:
    """The verdict on tensor number `index` of a call. `first` is the CPU's value at hand; `args` and `kwargs` are the
    call's arguments and `inputs` the tensors among them, as they were before it; `careful`: the value is of the
    embedded device, which takes its inputs as they are and sums in float32 at least; `between`: the roundoff of
    the dtype of an autocast that the call was made under."""
    try:
        answer = _C.judge(
            name,
            value.detach(),
            first.detach(),
            runs,
            args=tuple(args),
            kwargs=kwargs,
            inputs=tuple(inputs),
            what=what,
            index=index,
            careful=careful,
            seed=seed,
            between=between,
        )
    except RuntimeError as error:  # a dtype or a layout that has no numbers to compare
        lines = str(error).splitlines()
        return Judgement("unknown", f"not comparable: {lines[0] if lines else ''}", numel=value.numel())
    return Judgement(**answer)


def is_careful(device: torch.device | str) -> bool:
    """Is it the embedded device?"""
    kind = torch.device(device).type
    embedded = _C.is_active() and _C.vendor_info()["name"] == "host"
    return embedded and kind == torch.device("cuda").type
