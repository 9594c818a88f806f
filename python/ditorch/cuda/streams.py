"""The bases that torch.cuda.Stream, ExternalStream and Event are built on, over torch.Stream and torch.Event of the
device.

torch/cuda/streams.py derives its classes from torch._C._CudaStreamBase and _CudaEventBase when it is executed. A
torch without CUDA has placeholders there, so the file is executed once more over the classes below; every module that
already holds one of the old classes gets the new one. Ids: 0 is the default stream, small numbers are pool streams of
libdit, anything else is an external vendor handle.
"""

from __future__ import annotations

import importlib.util
import sys
import types

import torch

from .. import _C, settings
from ..library import DEVICE_TYPE
from ..patches import Patches
from ..refusal import refusing

DEVICE_NAMES = ("cuda", "dit")
"""How the device's type may print, by DITORCH_SHOW_DEVICE_AS_CUDA."""

_IPC = "events cannot be shared between processes; synchronise with torch.multiprocessing primitives instead"


class _CudaStreamBase(torch.Stream):
    """A stream of the device. As in torch's C class: made new, from its three numbers, or from a vendor handle."""

    def __new__(cls, priority=0, stream_id=None, device_index=None, device_type=None, stream_ptr=None):
        torch.cuda._lazy_init()
        if stream_ptr:
            stream_id, device_index = int(stream_ptr), _C.current_device()
        elif stream_id is None:
            device_index = _C.current_device()
            stream_id = _C.stream_acquire(device_index, min(max(int(priority), -1), 0))
        return torch.Stream.__new__(
            cls, stream_id=stream_id, device_index=int(device_index or 0), device_type=DEVICE_TYPE
        )

    @property
    def cuda_stream(self) -> int:
        """The vendor's handle as a number; 0 for the default stream."""
        return _C.stream_raw(self.device_index, self.stream_id) or 0

    @property
    def priority(self) -> int:
        """0 normal, -1 high."""
        return _C.stream_priority(self.device_index, self.stream_id)

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """(least, greatest)."""
        return (0, -1)

    def query(self) -> bool:
        return _C.stream_query(self.device_index, self.stream_id)

    def synchronize(self) -> None:
        _C.stream_synchronize(self.device_index, self.stream_id)

    def __eq__(self, other) -> bool:
        if not isinstance(other, torch.Stream):
            return NotImplemented
        return (self.stream_id, self.device_index) == (other.stream_id, other.device_index)

    __hash__ = torch.Stream.__hash__


class _CudaEventBase(torch.Event):
    """An event of the device."""

    def __new__(cls, enable_timing=False, blocking=False, interprocess=False, external=False):
        torch.cuda._lazy_init()
        event = torch.Event.__new__(
            cls, device=torch.device("cuda"), enable_timing=enable_timing, blocking=blocking, interprocess=interprocess
        )
        event._enable_timing = enable_timing
        return event

    @property
    def device(self) -> torch.device | None:
        """The device it was recorded on; None before the first record, as on CUDA."""
        return torch.Event.device.__get__(self) if self.event_id else None

    @property
    def cuda_event(self) -> int:
        """The vendor's handle as a number; 0 before the first record."""
        return self.event_id

    from_ipc_handle = classmethod(refusing("torch.cuda.Event.from_ipc_handle", _IPC))
    ipc_handle = refusing("torch.cuda.Event.ipc_handle", _IPC)

    def wait(self, stream=None) -> None:
        """Make later work of `stream` wait. On the default stream, which runs inline, that means now: without the
        GIL."""
        stream = torch.cuda.current_stream() if stream is None else stream
        _C.event_block(self.event_id, stream.device_index, stream.stream_id)

    def elapsed_time(self, end_event) -> float:
        """Milliseconds between two recorded events (torch.Event's own method insists on exactly its own type)."""
        if not (self._enable_timing and getattr(end_event, "_enable_timing", True)):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        start, end = self.event_id, end_event.event_id
        if not start or not end:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        try:
            return _C.event_elapsed(start, end)
        except RuntimeError as error:
            raise RuntimeError("Both events must be completed before calculating elapsed time.") from error


def sleep(cycles: int) -> None:
    """torch.cuda._sleep: occupy the current stream for about `cycles` nanoseconds."""
    device = _C.current_device()
    stream = _C.stream_current(device)
    _C.stream_sleep(device, stream, int(cycles))
    if settings.get("launch_blocking"):
        _C.stream_synchronize(device, stream)


def install(patches: Patches) -> None:
    """Rebuild torch.cuda.{Stream, ExternalStream, Event} over the device's bases."""
    patches.set(torch._C, "_CudaStreamBase", _CudaStreamBase)
    patches.set(torch._C, "_CudaEventBase", _CudaEventBase)
    spec = importlib.util.find_spec("torch.cuda.streams")
    fresh = types.ModuleType("torch.cuda.streams")
    fresh.__file__, fresh.__package__ = spec.origin, "torch.cuda"
    spec.loader.exec_module(fresh)
    names = ("Stream", "ExternalStream", "Event")
    old = {name: getattr(torch.cuda.streams, name) for name in names}
    for module in list(sys.modules.values()):
        if isinstance(module, types.ModuleType):
            for name in names:
                if module.__dict__.get(name) is old[name]:
                    patches.set(module, name, getattr(fresh, name))
