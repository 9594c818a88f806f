"""Calls at smaller sizes. A size is made smaller wherever it stands in the call, so that what fits goes on fitting.

No rule can know every operator, so a call has several smaller forms, the smallest first; whoever runs it takes the
first that the operator accepts (its meta kernel, or the reference of the conformance suite):

    all       every size above LEAST
    outer     all but the last two dimensions of tensors of four and more (images keep their size)
    batch     the first dimension alone
    whole     the call as it was recorded

Depends on corpus.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from .corpus import Call, Tensor, Word

LEAST = 8
FORMS = ("all", "outer", "batch", "whole")


def shrink_size(size: int, scale: float) -> int:
    """A multiple of eight stays one, so that heads, groups and vectors go on dividing."""
    if size <= LEAST:
        return size
    found = max(LEAST, math.ceil(size * scale))
    return max(LEAST, found // 8 * 8) if size % 8 == 0 else found


def _make_strides(tensor: Tensor, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """The same order of dimensions, without gaps; expanded dimensions stay expanded."""
    if tensor.strides is None:
        return None
    strides, step = [0] * len(shape), 1
    for dim in sorted(range(len(shape)), key=lambda d: (tensor.strides[d], -d)):
        if tensor.strides[dim] == 0 and tensor.shape[dim] > 1:
            continue
        strides[dim] = step
        step *= max(shape[dim], 1)
    return tuple(strides)


def _change_tensor(tensor: Tensor, change: Callable[[int, int, int], int]) -> Tensor:
    shape = tuple(change(size, dim, len(tensor.shape)) for dim, size in enumerate(tensor.shape))
    if shape == tensor.shape:
        return tensor
    return tensor._replace(shape=shape, strides=_make_strides(tensor, shape))


def _change(value: Any, tensor: Callable[[Tensor], Tensor], number: Callable[[int], int]) -> Any:
    if isinstance(value, Tensor):
        return tensor(value)
    if isinstance(value, Word):
        return value
    if isinstance(value, tuple):
        return tuple(_change(item, tensor, number) for item in value)
    if isinstance(value, list):
        return [_change(item, tensor, number) for item in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return number(value)
    return value


def _choose_sizes(call: Call, form: str) -> set[int]:
    """Sizes that this form makes smaller."""
    chosen: set[int] = set()
    kept: set[int] = set()
    for tensor in call.tensors():
        for dim, size in enumerate(tensor.shape):
            image = len(tensor.shape) >= 4 and dim >= len(tensor.shape) - 2
            wanted = form == "all" or (form == "outer" and not image) or (form == "batch" and dim == 0)
            (chosen if wanted else kept).add(size)
    return chosen - kept if form == "batch" else chosen


def shrink(call: Call, scale: float, form: str) -> Call:
    if form == "whole" or scale >= 1:
        return call
    sizes = _choose_sizes(call, form)

    def change(size: int, dim: int, dims: int) -> int:
        image = dims >= 4 and dim >= dims - 2
        if form == "outer" and image:
            return size
        return shrink_size(size, scale) if size in sizes else size

    def number(value: int) -> int:
        return shrink_size(value, scale) if value > LEAST and value in sizes else value

    def tensor(value: Tensor) -> Tensor:
        return _change_tensor(value, change)

    return Call(
        call.name,
        tuple(_change(value, tensor, number) for value in call.args),
        {key: _change(value, tensor, number) for key, value in call.kwargs.items()},
    )


def list_forms(call: Call, scale: float) -> Iterator[Call]:
    """Distinct forms, the smallest first."""
    seen = set()
    for form in FORMS if scale < 1 else ("whole",):
        found = shrink(call, scale, form)
        if str(found) not in seen:
            seen.add(str(found))
            yield found
