"""How long a captured call takes on a device, and how much memory.

Time: events of the device around each run (on the CPU the host clock), after a warm-up; arguments are put in place
before the first event, so that copies do not count. Memory: the allocator's peak above what the arguments take, over
one forward and one backward.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import torch

from ..containers import traverse_container
from ..op_runner import OpRunner
from .call_state import get_module

FLUSH_BYTES = 256 << 20
"""Written between runs with a cache flush: more than the last-level caches that are known."""
_EVENTS = 256
"""Pairs of events that wait for the device at once."""


class Clock:
    """Times of pieces of work: start(), stop(); seconds() waits for the device."""

    name = "host"

    def __init__(self) -> None:
        self._times: list[float] = []

    def start(self) -> None:
        self._begin = time.perf_counter()

    def stop(self) -> None:
        self._times.append(time.perf_counter() - self._begin)

    def seconds(self) -> list[float]:
        return self._times


class EventClock(Clock):
    """Events of the device's current stream."""

    name = "device"

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._device, self._module = device, get_module(device)
        self._stream = self._module.current_stream(device)
        self._pairs: list[tuple[Any, Any]] = []

    def start(self) -> None:
        pair = self._module.Event(enable_timing=True), self._module.Event(enable_timing=True)
        self._pairs.append(pair)
        self._end = pair[1]
        pair[0].record(self._stream)

    def stop(self) -> None:
        self._end.record(self._stream)
        if len(self._pairs) >= _EVENTS:
            self._collect()

    def _collect(self) -> None:
        self._module.synchronize(self._device)
        self._times += [begin.elapsed_time(end) / 1e3 for begin, end in self._pairs]
        self._pairs.clear()

    def seconds(self) -> list[float]:
        self._collect()
        return self._times


class SynchronisedClock(Clock):
    """The host's clock, with the device synchronised: for devices without events."""

    name = "synchronised"

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        module = get_module(device)
        self._wait = (lambda: module.synchronize(device)) if module is not None else (lambda: None)

    def start(self) -> None:
        self._wait()
        super().start()

    def stop(self) -> None:
        self._wait()
        super().stop()


def make_clock(device: torch.device) -> Clock:
    if device.type == "cpu":
        return Clock()
    module = get_module(device)
    has_events = hasattr(module, "Event") and hasattr(module, "current_stream")
    return EventClock(device) if has_events else SynchronisedClock(device)


def describe_times(seconds: list[float], clock: str) -> dict[str, Any]:
    """Median, p90 and extremes in microseconds."""
    ordered = sorted(seconds)

    def rank(share: float) -> float:
        return ordered[max(math.ceil(share * len(ordered)) - 1, 0)] * 1e6

    middle = len(ordered) // 2
    median = ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
    return {
        "median_us": median * 1e6,
        "p90_us": rank(0.9),
        "min_us": ordered[0] * 1e6,
        "max_us": ordered[-1] * 1e6,
        "mean_us": sum(ordered) / len(ordered) * 1e6,
        "runs": len(ordered),
        "clock": clock,
    }


def _make_flush(device: torch.device, wanted: bool) -> Callable[[], Any]:
    if not wanted:
        return lambda: None
    buffer = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device=device)
    return buffer.zero_


def measure_speed(
    runner: OpRunner, runs: int, warm_up: int, forward_only: bool = False, flush_cache: bool = False
) -> dict[str, Any]:
    """Forward and (when the capture has one) backward, `runs` times after `warm_up` runs that do not count."""
    runner.run_forward()
    fresh = runner.writes()
    backward = not forward_only and bool(runner.get_backward_pairs())
    forward_clock, backward_clock = make_clock(runner.device), make_clock(runner.device)
    flush = _make_flush(runner.device, flush_cache)
    call = _timed_call(runner, forward_clock)
    back = _timed_backward(runner, backward_clock)
    for i in range(warm_up + runs):
        if i == warm_up:  # what came before is forgotten
            forward_clock = make_clock(runner.device)
            backward_clock = make_clock(runner.device)
            call, back = _timed_call(runner, forward_clock), _timed_backward(runner, backward_clock)
        runner.result = None
        runner.prepare(fresh)
        flush()
        call()
        if backward:
            flush()
            back()
    found = {"forward": describe_times(forward_clock.seconds(), forward_clock.name)}
    if backward:
        found["backward"] = describe_times(backward_clock.seconds(), backward_clock.name)
    return found


def _timed_call(runner: OpRunner, clock: Clock) -> Callable[[], None]:
    def call() -> None:
        func, args, kwargs = runner.func, runner.args, runner.kwargs
        with runner.state():
            clock.start()
            result = func(*args, **kwargs)
            clock.stop()
        runner.result = result

    return call


def _timed_backward(runner: OpRunner, clock: Clock) -> Callable[[], None]:
    def call() -> None:
        compute = runner.make_backward()
        clock.start()
        compute()
        clock.stop()

    return call


def measure_memory(runner: OpRunner, forward_only: bool = False) -> dict[str, Any] | None:
    """Peak bytes above the arguments (and the captured gradients); None where torch does not count
    them, as on the CPU."""
    device, module = runner.device, get_module(runner.device)
    if not hasattr(module, "max_memory_allocated"):
        return None
    runner.run_forward()  # workspaces that stay are not the call's
    if not forward_only:
        runner.run_backward()
    runner.result = None
    runner.prepare()
    module.synchronize(device)
    module.reset_peak_memory_stats(device)
    before = module.memory_allocated(device)
    with runner.state():
        runner.result = runner.func(*runner.args, **runner.kwargs)
    module.synchronize(device)
    found = {"forward_peak_bytes": max(module.max_memory_allocated(device) - before, 0)}
    found["output_bytes"] = _count_bytes(runner)
    compute = None if forward_only else runner.make_backward()
    if compute is not None:
        compute()
        module.synchronize(device)
    found["peak_bytes"] = max(module.max_memory_allocated(device) - before, 0)
    return found


def _count_bytes(runner: OpRunner) -> int:
    """Memory of the results that is not memory of the arguments."""
    own = {memory.untyped_storage().data_ptr() for memory in runner.get_memory()}
    sizes = {}
    for value in traverse_container(runner.result):
        if isinstance(value, torch.Tensor) and value.layout == torch.strided and value.device.type != "cpu":
            storage = value.untyped_storage()
            if storage.data_ptr() not in own:
                sizes[storage.data_ptr()] = storage.nbytes()
    return sum(sizes.values())
