"""The names of torch._C that CUDA programs and torch's own Python code call, over a vendor's C names or its module.

`torch._C._cuda_setStream` is the vendor's `_npu_setStream` where there is one; the names that libraries really call
have a second answer made of the vendor's public functions.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import torch

from ..patches import Patches
from ..refusal import refusing
from .probe import Stack
from .rows import find_module


def _index(device: Any) -> int:
    return -1 if device is None else int(device)


def distinct(function: Any) -> Any:
    """Another object that does the same: Dynamo keys its rules by identity, and two of torch's names must not be one
    function."""
    if not isinstance(function, (types.FunctionType, types.MethodType)):
        return function

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


class Fallbacks:
    """Second answers, from the vendor's public functions."""

    def __init__(self, stack: Stack) -> None:
        self.vendor = stack.module

    def exchange_device(self, index: int) -> int:
        """Select a device and answer the one before; a negative index changes nothing."""
        if _index(index) < 0:
            return -1
        before = self.vendor.current_device()
        self.vendor.set_device(index)
        return before

    def maybe_exchange_device(self, index: int) -> int:
        """Not the same object as exchange_device: Dynamo keys its handlers by identity."""
        return self.exchange_device(index)

    def set_stream(self, stream_id: int, device_index: int, device_type: int) -> None:
        """torch._C._cuda_setStream by number."""
        self.vendor.set_stream(
            self.vendor.Stream(stream_id=stream_id, device_index=device_index, device_type=device_type)
        )

    def current_stream(self, device: int) -> tuple[int, int, int]:
        """(id, device, device type)."""
        stream = self.vendor.current_stream(device)
        return (stream.stream_id, stream.device_index, stream.device_type)

    def default_stream(self, device: int) -> tuple[int, int, int]:
        """(id, device, device type)."""
        stream = self.vendor.default_stream(device)
        return (stream.stream_id, stream.device_index, stream.device_type)

    def memory_stats(self, device: int) -> dict[str, Any]:
        """The nested form of the allocator's counters."""
        nested = getattr(self.vendor, "memory_stats_as_nested_dict", None)
        if nested is not None:
            return nested(device)
        flat = self.vendor.memory_stats(device)
        result: dict[str, Any] = {}
        for key, value in flat.items():
            *path, last = key.split(".")
            place = result
            for part in path:
                place = place.setdefault(part, {})
            place[last] = value
        return result

    def table(self) -> dict[str, Callable[..., Any] | None]:
        """`_cuda_` name -> second answer; None where the vendor lacks what it is made of."""

        def made_of(function: Callable[..., Any], *names: str) -> Callable[..., Any] | None:
            return function if all(hasattr(self.vendor, name) for name in names) else None

        def public(name: str) -> Callable[..., Any] | None:
            return getattr(self.vendor, name, None)

        return {
            "getDeviceCount": public("device_count"),
            "getDevice": public("current_device"),
            "setDevice": public("set_device"),
            "exchangeDevice": self.exchange_device,
            "maybeExchangeDevice": self.maybe_exchange_device,
            "init": public("init") or (lambda: None),
            "synchronize": public("synchronize"),
            "emptyCache": public("empty_cache"),
            "isInBadFork": public("_is_in_bad_fork") or (lambda: False),
            "setStream": made_of(self.set_stream, "set_stream", "Stream"),
            "getCurrentStream": made_of(self.current_stream, "current_stream"),
            "getDefaultStream": made_of(self.default_stream, "default_stream"),
            "memoryStats": made_of(self.memory_stats, "memory_stats"),
            "resetPeakMemoryStats": public("reset_peak_memory_stats"),
            "resetAccumulatedMemoryStats": public("reset_accumulated_memory_stats"),
            "canDeviceAccessPeer": public("can_device_access_peer"),
            "isCurrentStreamCapturing": public("is_current_stream_capturing") or (lambda: False),
            "ipc_collect": public("ipc_collect") or (lambda: None),
            "hasPrimaryContext": lambda device: True,
            "getCompiledVersion": lambda: None,
            "getArchFlags": lambda: "",
            "CUDAAllocator_AllocatorState": lambda *args: None,
            "clearCublasWorkspaces": lambda: None,
            "getCurrentRawStream": None,
        }


def install(patches: Patches, stack: Stack, only_missing: bool = False) -> None:
    """Put the names into torch._C (or those that it has not). What cannot be answered is refused when it is called."""
    own = find_module(stack.row.natives)
    device = f"the {stack.device} device of {stack.row.package}"
    for name, second in Fallbacks(stack).table().items():
        if only_missing and hasattr(torch._C, f"_cuda_{name}"):
            continue
        value = getattr(own, stack.row.prefix + name, None) or second
        if value is None:
            why = f"{stack.row.natives} has no {stack.row.prefix}{name}"
            value = refusing(f"torch._C._cuda_{name}", why, device)
        patches.set(torch._C, f"_cuda_{name}", distinct(value))
