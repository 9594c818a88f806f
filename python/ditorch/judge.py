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

from . import _C

WIDE = {torch.complex32: torch.complex128, torch.complex64: torch.complex128, torch.complex128: torch.complex128}


@dataclass(frozen=True)
class Request:
    """One further run: its inputs are those of the call, made wide or moved as `kind` says."""

    kind: str
    """wide, native, shaken, jitter or jitter_wide: see enum dit_verdict_run."""
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

    def move(self, tensor: torch.Tensor, place: int) -> torch.Tensor:
        """Input number `place` for this run; the tensor itself where nothing changes. Autograd is not asked."""
        with torch.no_grad():
            tensor = tensor.detach()
            if not (tensor.is_floating_point() or tensor.is_complex()):
                return tensor
            wide = WIDE.get(tensor.dtype, torch.float64)
            if self.kind in ("wide", "native"):
                return tensor.to(wide) if self.kind == "wide" else tensor
            own = get_narrow(tensor.dtype) if self.narrow else tensor.dtype
            moved = tensor.to(wide, copy=True)
            if not is_dense(moved):
                moved = moved.contiguous()
            size = self.size * get_roundoff(own) if self.kind != "shaken" else self.size or get_roundoff(own)
            _C.judge_move(moved, size, self.seed, place)
            if self.kind == "shaken":
                return moved
            rounded = moved.to(own)
            return rounded.to(wide) if self.kind == "jitter_wide" else rounded


def get_narrow(dtype: torch.dtype) -> torch.dtype:
    return torch.complex64 if dtype.is_complex else torch.float32


def get_roundoff(dtype: torch.dtype) -> float:
    """Half the distance from 1 to the next number."""
    return torch.finfo(dtype).eps / 2


def is_dense(tensor: torch.Tensor) -> bool:
    return tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()


class Runs:
    """The further runs of one call, made when they are asked for: the wide and the native one once.

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
        if kind in ("wide", "native"):
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
) -> Judgement:
    """The verdict on tensor number `index` of a call. `first` is the CPU's value at hand; `args` and `kwargs` are the
    call's arguments and `inputs` the tensors among them, as they were before it; `careful`: the value is of the
    embedded device, which takes its inputs as they are and sums in float32 at least."""
    row = _C.operator_find(name) or {}
    dim = _get_argument(args, kwargs, row.get("dim", -1), "dim")
    place = _get_argument(args, kwargs, row.get("index", -1), "index")
    found = next((i for i, tensor in enumerate(inputs) if tensor is place), -1)
    answer = _C.judge(
        name,
        value.detach(),
        first.detach(),
        runs,
        inputs=tuple(tensor.detach() for tensor in inputs),
        what=what,
        index=index,
        careful=careful,
        seed=seed,
        dim=dim if isinstance(dim, int) and not isinstance(dim, bool) else None,
        index_input=found,
        input_roundoff=0.0 if careful else _C.judge_input_roundoff(name),
    )
    return Judgement(**answer)


def _get_argument(args: Sequence[Any], kwargs: dict[str, Any] | None, place: int, name: str) -> Any:
    if kwargs and name in kwargs:
        return kwargs[name]
    return args[place] if 0 <= place < len(args) else None


def is_careful(device: torch.device | str) -> bool:
    """Is it the embedded device?"""
    kind = torch.device(device).type
    embedded = _C.is_active() and _C.vendor_info()["name"] == "host"
    return embedded and kind == torch.device("cuda").type
