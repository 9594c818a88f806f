"""torch_dipu.dipu: streams and events.

While "cuda" means the device, the classes are torch.cuda's own (which torch, and Dynamo, know by identity) and gain the
attributes `dipu_stream` and `dipu_event`. Without the alias they are the classes below, over the same bases.
"""

from __future__ import annotations

import ctypes
from types import ModuleType
from typing import Any

import torch

from .. import _C
from ..cuda import graphs, state
from ..cuda.streams import _CudaEventBase, _CudaStreamBase
from ..library import DEVICE_TYPE
from ..patches import Patches
from .device import DEVICE_NAME, devicectx, get_index, is_mocking


class Stream(_CudaStreamBase):
    """A stream: new, on `device` or the current one; or an existing one, from its numbers (0 is the default stream) or
    from the vendor's handle."""

    def __new__(cls, device=None, priority=0, stream_id=None, device_index=None, device_type=None, stream_ptr=None):
        if stream_ptr:
            stream_id, device_index = int(stream_ptr), get_index(device, optional=True)
        elif stream_id is None:
            device_index = get_index(device, optional=True)
            stream_id = _C.stream_acquire(device_index, min(max(int(priority), -1), 0))
        return torch.Stream.__new__(
            cls, stream_id=stream_id, device_index=int(device_index or 0), device_type=DEVICE_TYPE
        )

    def wait_event(self, event: Event) -> None:
        """Later work of this stream waits for `event`."""
        event.wait(self)

    def wait_stream(self, stream: Any) -> None:
        """Later work of this stream waits for what `stream` has been given so far."""
        self.wait_event(stream.record_event())

    def record_event(self, event: Event | None = None) -> Event:
        """Record `event`, or a new one, behind the stream's work."""
        event = Event() if event is None else event
        event.record(self)
        return event

    @property
    def _as_parameter_(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(self.cuda_stream)

    def __repr__(self) -> str:
        return f"<torch_dipu.dipu.Stream device={self.device} dipu_stream={self.cuda_stream:#x}>"


class Event(_CudaEventBase):
    """An event; the device's handle is made by the first record."""

    def __new__(cls, enable_timing=False, blocking=False, interprocess=False):
        event = torch.Event.__new__(
            cls,
            device=torch.device(DEVICE_NAME),
            enable_timing=enable_timing,
            blocking=blocking,
            interprocess=interprocess,
        )
        event._enable_timing = enable_timing
        return event

    def record(self, stream: Any = None) -> None:
        """Mark the end of the work that `stream` (or the current one) has been given so far."""
        super().record(current_stream() if stream is None else stream)

    def wait(self, stream: Any = None) -> None:
        """Later work of `stream` (or the current one) waits for the event."""
        super().wait(current_stream() if stream is None else stream)

    @property
    def _as_parameter_(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(self.event_id)

    def __repr__(self) -> str:
        handle = self.event_id
        return f"<torch_dipu.dipu.Event {handle:#x}>" if handle else "<torch_dipu.dipu.Event uninitialized>"


def stream_class() -> type:
    return torch.cuda.Stream if is_mocking() else Stream


def event_class() -> type:
    return torch.cuda.Event if is_mocking() else Event


def get_stream(stream_id: int, index: int) -> Any:
    """The stream of these numbers, as an object of the class in force."""
    return stream_class()(stream_id=stream_id, device_index=index, device_type=DEVICE_TYPE)


def current_stream(device: Any = None) -> Any:
    """The stream that this thread's work on the device goes to."""
    index = get_index(device, optional=True)
    return get_stream(_C.stream_current(index), index)


def default_stream(device: Any = None) -> Any:
    """The stream that runs inline in the caller."""
    return get_stream(0, get_index(device, optional=True))


def set_stream(stream: Any) -> None:
    """Select a stream and its device; None changes nothing."""
    if stream is not None:
        state.set_stream(stream.stream_id, stream.device_index, DEVICE_TYPE)


class StreamContext:
    """Context that selects a stream, and its device; None selects nothing."""

    def __init__(self, stream: Any):
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            self._device = _C.current_device()
            self._before = current_stream(self.stream.device_index)
            set_stream(self.stream)

    def __exit__(self, *exc_info: Any) -> None:
        if self.stream is not None:
            set_stream(self._before)
            _C.set_device(self._device)


def stream(stream: Any) -> Any:
    """The context for `stream`."""
    return torch.cuda.stream(stream) if is_mocking() else StreamContext(stream)


def set_sync_debug_mode(debug_mode: Any) -> None:
    """Accepted, without effect: synchronising operators are not reported."""


def is_current_stream_capturing() -> bool:
    """As torch.cuda's, also where that is left alone."""
    return graphs.is_current_stream_capturing()


def add_names(patches: Patches) -> None:
    """`dipu_stream` and `dipu_event` on every stream and event of the device."""
    patches.set(_CudaStreamBase, "dipu_stream", _CudaStreamBase.cuda_stream)
    patches.set(_CudaEventBase, "dipu_event", _CudaEventBase.cuda_event)


def names() -> dict[str, Any]:
    """What torch_dipu.dipu exports of this file."""
    return {
        "current_stream": current_stream,
        "default_stream": default_stream,
        "set_stream": set_stream,
        "set_sync_debug_mode": torch.cuda.set_sync_debug_mode if is_mocking() else set_sync_debug_mode,
        "stream": stream,
        "StreamContext": torch.cuda.StreamContext if is_mocking() else StreamContext,
        "Stream": stream_class(),
        "Event": event_class(),
        "is_current_stream_capturing": is_current_stream_capturing,
    }


def fill(module: ModuleType) -> None:
    """torch_dipu.dipu.streams."""
    vars(module).update(names())
    module.devicectx = devicectx
