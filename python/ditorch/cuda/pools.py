"""torch.cuda.MemPool, use_mem_pool and the pools of graphs, over the allocator's own pools (dit/memory_pool.h).

What a thread allocates inside comes from segments of that pool alone. They stay with it until nobody holds the pool any
more (its object, blocks of `with`, graphs); then what is free goes back to the device.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from typing import Any

import torch

from .. import _C
from ..patches import Patches
from ..refusal import refuse

_numbers = itertools.count(1)
_lock = threading.RLock()  # a pool may be collected while it is held
_holders: dict[int, int] = {}


def new_number() -> int:
    """Of a pool that nobody holds yet."""
    return next(_numbers)


def hold(number: int) -> None:
    with _lock:
        _holders[number] = _holders.get(number, 0) + 1


def drop(number: int) -> None:
    """The last one gives the pool's memory back."""
    with _lock:
        left = _holders.get(number, 0) - 1
        _holders[number] = left
        if left <= 0:
            _holders.pop(number)
    if left == 0:
        _C.memory_pool_release(number)


def begin(device: int, pool: tuple[int, int]) -> None:
    """torch._C._cuda_beginAllocateCurrentThreadToPool."""
    _C.memory_pool_begin(device, pool[1])
    hold(pool[1])


def end(device: int, pool: tuple[int, int]) -> None:
    """torch._C._cuda_endAllocateToPool."""
    _C.memory_pool_end(device, pool[1])


def release(device: int, pool: tuple[int, int]) -> None:
    """torch._C._cuda_releasePool: the holder that `begin` entered goes."""
    drop(pool[1])


def drop_with(owner: Any, number: int) -> Any:
    """The pool is held as long as the object lives; calling the result drops it earlier."""
    hold(number)
    finalizer = weakref.finalize(owner, drop, number)
    finalizer.atexit = False  # the device is given back as a whole
    return finalizer


class Pool:
    """The methods that torch.cuda.MemPool gets."""

    def __new__(cls, *given: Any, **named: Any) -> Any:
        return object.__new__(cls)

    def __init__(self, allocator: Any = None, use_on_oom: bool = False, no_split: bool = False) -> None:
        if allocator is not None:
            refuse("torch.cuda.MemPool with an allocator", "it has one allocator per device")
        for name, given in (("use_on_oom", use_on_oom), ("no_split", no_split)):
            if given:
                refuse(f"torch.cuda.MemPool with {name}=True", "its pools serve nobody else, and split their segments")
        self._number = new_number()
        drop_with(self, self._number)

    @property
    def id(self) -> tuple[int, int]:
        return (0, self._number)

    def use_count(self) -> int:
        return _holders.get(self._number, 0)


def install(patches: Patches) -> None:
    """torch's own class gets these methods; `snapshot` and use_mem_pool are torch's own."""
    owner = torch.cuda.memory
    for name in ("__new__", "__init__", "id", "use_count"):
        patches.set(owner.MemPool, name, vars(Pool)[name])
    names = {
        "_cuda_beginAllocateCurrentThreadToPool": begin,
        "_cuda_beginAllocateToPool": begin,
        "_cuda_endAllocateToPool": end,
        "_cuda_releasePool": release,
    }
    for name, function in names.items():
        for place in (owner, torch._C):
            if hasattr(place, name):
                patches.set(place, name, function)
