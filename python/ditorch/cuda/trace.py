"""torch.cuda._gpu_trace: callbacks on events, streams, synchronisation and memory (torch.cuda._sanitizer uses them).

Memory is reported by the allocator through torch's own trace interface. The rest goes through Python, so its methods
are put in their places when the trace is switched on, and cost nothing before. As in torch it stays on.
"""

from __future__ import annotations

from typing import Any

import torch

from .streams import _CudaEventBase, _CudaStreamBase

_on = False


def _fire(registry: str, *values: int) -> None:
    from torch.cuda import _gpu_trace

    getattr(_gpu_trace, registry).fire_callbacks(*values)


def _stream_of(stream: Any) -> int:
    return (torch.cuda.current_stream() if stream is None else stream).cuda_stream


class _TracedEvent:
    """Methods of _CudaEventBase with their callbacks. An event of the vendor's exists from its first record on."""

    def record(self: Any, stream: Any = None) -> None:
        is_new = not self.event_id
        torch.Event.record(self, torch.cuda.current_stream() if stream is None else stream)
        if is_new:
            _fire("EventCreationCallbacks", self.event_id)
        _fire("EventRecordCallbacks", self.event_id, _stream_of(stream))

    def wait(self: Any, stream: Any = None) -> None:
        if self.event_id:
            _fire("EventWaitCallbacks", self.event_id, _stream_of(stream))
        _plain_wait(self, stream)

    def synchronize(self: Any) -> None:
        if self.event_id:
            _fire("EventSynchronizationCallbacks", self.event_id)
        torch.Event.synchronize(self)

    def __del__(self: Any) -> None:
        if self.event_id:
            _fire("EventDeletionCallbacks", self.event_id)


_plain_wait = _CudaEventBase.wait
_plain_stream = _CudaStreamBase.__new__
_plain_stream_synchronize = _CudaStreamBase.synchronize


def _make_stream(cls: type, priority: int = 0, stream_id: int | None = None, *args: Any, **kwargs: Any) -> Any:
    stream = _plain_stream(cls, priority, stream_id, *args, **kwargs)
    if stream_id is None and not kwargs.get("stream_ptr"):
        _fire("StreamCreationCallbacks", stream.cuda_stream)
    return stream


def _synchronize_stream(self: Any) -> None:
    _fire("StreamSynchronizationCallbacks", self.cuda_stream)
    _plain_stream_synchronize(self)


def make_activate(original: Any, synchronize: Any) -> Any:
    """torch._C._activate_gpu_trace; `original` switches torch's interface on, for the allocator."""

    def synchronize_traced() -> None:
        _fire("DeviceSynchronizationCallbacks")
        synchronize()

    def _activate_gpu_trace() -> None:
        global _on
        original()
        if _on:
            return
        _on = True
        for name in ("record", "wait", "synchronize", "__del__"):
            setattr(_CudaEventBase, name, getattr(_TracedEvent, name))
        _CudaStreamBase.__new__ = staticmethod(_make_stream)
        _CudaStreamBase.synchronize = _synchronize_stream
        torch._C._cuda_synchronize = synchronize_traced

    return _activate_gpu_trace
