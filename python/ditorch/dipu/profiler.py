"""torch_dipu.profiler: torch.profiler under DIPU's names.

DIPU had a profiler of its own because torch's knew nothing of its device; here torch's is the device's. The native
trace of a vendor (NativeProfile, _enable_profiler_api) is a Chrome trace that torch.profiler writes.
"""

from __future__ import annotations

import os
import threading
from types import ModuleType
from typing import Any

import torch
import torch.autograd.profiler
import torch.profiler

TRACE = "trace-{pid}-{number}.json"

_lock = threading.Lock()
_running: NativeProfile | None = None
_written = 0


class NativeProfile:
    """Context that writes a Chrome trace of the work inside it into the folder `path`. One at a time."""

    def __init__(
        self, path: str, with_stack: bool = False, record_shapes: bool = False, profile_memory: bool = False
    ) -> None:
        self.path = path
        self.file: str | None = None
        """The trace, once it is written."""
        self._profile = torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA],
            with_stack=with_stack,
            record_shapes=record_shapes,
            profile_memory=profile_memory,
        )

    def __enter__(self) -> NativeProfile:
        global _running
        os.makedirs(self.path, exist_ok=True)
        with _lock:
            if _running is not None:
                raise RuntimeError(
                    f"a native profile is running already (into {_running.path!r}); end it before the next one begins"
                )
            _running = self
        try:
            self._profile.start()
        except BaseException:
            _running = None
            raise
        return self

    def __exit__(self, *exc_info: Any) -> bool:
        global _running, _written
        try:
            self._profile.stop()
            _written += 1
            self.file = os.path.join(self.path, TRACE.format(pid=os.getpid(), number=_written))
            self._profile.export_chrome_trace(self.file)
        finally:
            _running = None
        return False


def enable(dump_path: str, call_stack: bool = False, record_shapes: bool = False, profile_memory: bool = False) -> None:
    """torch_dipu._C._enable_profiler_api."""
    NativeProfile(dump_path, call_stack, record_shapes, profile_memory).__enter__()


def disable() -> None:
    """torch_dipu._C._disable_profiler_api."""
    if _running is None:
        raise RuntimeError("no native profile is running; _enable_profiler_api begins one")
    _running.__exit__(None, None, None)


def native_names() -> dict[str, Any]:
    """The profiler's part of torch_dipu._C."""
    source = torch.autograd.profiler
    found = {
        name: getattr(source, name)
        for name in ("_prepare_profiler", "_enable_profiler", "_disable_profiler", "_kineto_step")
        if hasattr(source, name)
    }
    return {
        **found,
        "_add_metadata_json": torch._C._autograd._add_metadata_json,
        "_supported_activities": torch.profiler.supported_activities,
        "_enable_profiler_api": enable,
        "_disable_profiler_api": disable,
    }


def fill(module: ModuleType) -> None:
    """torch_dipu.profiler and torch_dipu.profiler.profiler."""
    module.NativeProfile = NativeProfile
    module.dipu_profiler = torch.profiler.profile
    module.dipu_kineto_available = torch.autograd.kineto_available
