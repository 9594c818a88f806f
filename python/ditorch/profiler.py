"""torch.profiler on the device: CUDA activities are supported, and what was traced carries CUDA's name.

The tracing itself is the adapter's (kernels, copies, fallbacks and memory, timed on their streams). Here torch's Python
side learns that CUDA can be traced, and events of the device get the device type that programs written for CUDA look
for.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time

import torch
import torch.autograd.profiler
from torch.autograd import DeviceType, ProfilerActivity

from . import _C, settings
from .library import call_unseen
from .patches import Patches


class Ranges:
    """NVTX ranges as ranges of torch.profiler.

    Nested ranges are `record_function` blocks. Such a block must not end under another trace than the one it began
    in (torch would write to the first trace, which is gone): blocks that are still open when a profiler stops are
    closed then, or, on other threads, kept until no profiler runs.
    """

    def __init__(self) -> None:
        self._local = threading.local()
        self._lock = threading.Lock()
        self._handles = itertools.count(1)
        self._started: dict[int, tuple[str, int, int]] = {}
        self._stale: list[torch.autograd.profiler.record_function] = []
        self._generation = 0

    def _open(self) -> list[tuple[int, torch.autograd.profiler.record_function | None]]:
        """The calling thread's open ranges: generation and block, None when no profiler ran."""
        if not hasattr(self._local, "open"):
            self._local.open = []
        return self._local.open

    def push(self, message: str) -> int:
        block = None
        if torch.autograd.profiler._is_profiler_enabled:
            block = torch.autograd.profiler.record_function(message)
            block.__enter__()
        ranges = self._open()
        ranges.append((self._generation, block))
        return len(ranges) - 1

    def pop(self) -> int:
        ranges = self._open()
        if not ranges:
            return -1
        generation, block = ranges.pop()
        if block is not None:
            self._close(generation, block)
        return len(ranges)

    def _close(self, generation: int, block: torch.autograd.profiler.record_function) -> None:
        if generation == self._generation or not torch.autograd.profiler._is_profiler_enabled:
            block.__exit__(None, None, None)
        else:
            with self._lock:
                self._stale.append(block)

    def mark(self, message: str) -> None:
        if torch.autograd.profiler._is_profiler_enabled:
            with torch.autograd.profiler.record_function(message):
                pass

    def start(self, message: str) -> int:
        handle = next(self._handles)
        if torch.autograd.profiler._is_profiler_enabled:
            self._started[handle] = (message, threading.get_native_id(), time.monotonic_ns())
        return handle

    def end(self, handle: int) -> None:
        """The range may have begun on another thread, whose track it is shown on."""
        message, thread, start = self._started.pop(handle, ("", 0, 0))
        if thread:
            call_unseen(torch.ops.ditorch.profiler_range, message, thread, start, time.monotonic_ns())

    def profiler_stopped(self) -> None:
        """On the thread that stopped it: no block can reach the finished trace any more."""
        self._generation += 1
        self._started.clear()
        ranges = self._open()
        for index, (generation, block) in enumerate(ranges):
            if block is not None:
                block.__exit__(None, None, None)
                ranges[index] = (generation, None)
        with self._lock:
            stale, self._stale = self._stale, []
        for block in stale:
            block.__exit__(None, None, None)


ranges = Ranges()


def install(patches: Patches) -> None:
    """Switch the adapter's tracer on and let torch.profiler use it."""
    module, natives = torch.autograd.profiler, torch.ops.ditorch
    can_trace = natives.profiler_enable(True)
    patches.defer(lambda: natives.profiler_enable(False))
    natives.profiler_stubs(True)
    patches.defer(lambda: natives.profiler_stubs(False))
    if can_trace:
        _install_activities(patches, module)
    if settings.get("show_device_as_cuda"):
        _install_device_type(patches, module)
    _install_toggle(patches, module, natives)
    _install_end(patches, module)


def _install_activities(patches: Patches, module) -> None:
    native = module._supported_activities

    def _supported_activities():
        return native() | {ProfilerActivity.CUDA}

    patches.set(torch.autograd, "_supported_activities", _supported_activities)
    patches.set(module, "_supported_activities", _supported_activities)


def _install_device_type(patches: Patches, module) -> None:
    native = module.profile._parse_kineto_results

    def _parse_kineto_results(self, *args, **kwargs):
        events = native(self, *args, **kwargs)
        for event in events:
            if event.device_type == DeviceType.PrivateUse1:
                event.device_type = DeviceType.CUDA
        return events

    patches.set(module.profile, "_parse_kineto_results", _parse_kineto_results)


def _install_toggle(patches: Patches, module, natives) -> None:
    """prof.toggle_collection_dynamic(): kineto does not tell its child profilers."""
    native = module._toggle_collection_dynamic

    def _toggle_collection_dynamic(enable, activities):
        if ProfilerActivity.CUDA in activities:
            call_unseen(natives.profiler_pause, not enable)
        return native(enable, activities)

    patches.set(module, "_toggle_collection_dynamic", _toggle_collection_dynamic)


def _install_end(patches: Patches, module) -> None:
    native_stop, native_exit = module._run_on_profiler_stop, module.profile.__exit__

    def _run_on_profiler_stop():
        native_stop()
        ranges.profiler_stopped()

    def __exit__(self, *exc_info):
        # torch waits for the current device; the trace needs all, and waits for them with Python's lock held
        if getattr(self, "use_device", None) is not None and _C.device_count() > 1:
            for index in range(_C.device_count()):
                with contextlib.suppress(RuntimeError):  # the program hears of a failure from its own next call
                    _C.synchronize(index)
        return native_exit(self, *exc_info)

    patches.set(module, "_run_on_profiler_stop", _run_on_profiler_stop)
    patches.set(module.profile, "__exit__", __exit__)
