"""torch.cuda streams and events have real semantics: order, waiting, timing, priorities, external handles."""

import threading
import time

import ditorch
import pytest
import torch
from gate import Gate


def busy(stream, milliseconds):
    """Occupy a stream."""
    with torch.cuda.stream(stream):
        torch.cuda._sleep(int(milliseconds * 1e6))


def test_identity_of_streams():
    default = torch.cuda.default_stream()
    assert torch.cuda.current_stream() == default and default.cuda_stream == 0 and default.stream_id == 0
    a, b = torch.cuda.Stream(), torch.cuda.Stream()
    assert a != b and a.cuda_stream != 0 and a.cuda_stream != b.cuda_stream
    assert hash(a) == hash(torch.cuda.Stream(stream_id=a.stream_id, device_index=0, device_type=a.device_type))
    assert a == torch.cuda.Stream(stream_id=a.stream_id, device_index=0, device_type=a.device_type)
    assert a != "text" and a.device == torch.device("cuda", 0)
    assert "torch.cuda.Stream device=cuda:0" in repr(a) and a._as_parameter_.value == a.cuda_stream
    assert a.__cuda_stream__() == (0, a.cuda_stream)
    assert (
        a.priority == 0
        and torch.cuda.Stream(priority=-1).priority == -1
        and torch.cuda.Stream(priority=-9).priority == -1
    )
    assert torch.cuda.Stream.priority_range() == (0, -1)
    assert isinstance(a, torch.Stream)


def test_stream_context_nests_and_restores():
    a, b = torch.cuda.Stream(), torch.cuda.Stream()
    with torch.cuda.stream(a):
        assert torch.cuda.current_stream() == a
        with torch.cuda.stream(b):
            assert torch.cuda.current_stream() == b
        with torch.cuda.stream(None):
            assert torch.cuda.current_stream() == a
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    with a:
        assert torch.cuda.current_stream() == a
    torch.cuda.set_stream(b)
    assert torch.cuda.current_stream() == b
    torch.cuda.set_stream(torch.cuda.default_stream())


def test_current_stream_is_per_thread():
    seen = []
    with torch.cuda.stream(torch.cuda.Stream()):
        thread = threading.Thread(target=lambda: seen.append(torch.cuda.current_stream()))
        thread.start()
        thread.join()
    assert seen == [torch.cuda.default_stream()]


def test_query_and_synchronize():
    stream = torch.cuda.Stream()
    assert stream.query()
    gate = Gate(stream)
    event = stream.record_event()
    assert not stream.query() and not event.query()
    gate.open()
    stream.synchronize()
    assert stream.query() and event.query()
    busy(stream, 30)
    torch.cuda.synchronize()
    assert stream.query()


def test_wait_event_orders_streams():
    a, b = torch.cuda.Stream(), torch.cuda.Stream()
    gate = Gate(a)
    event = torch.cuda.Event()
    event.record(a)
    b.wait_event(event)
    done = b.record_event()
    assert not done.query()
    gate.open()
    done.synchronize()
    assert event.query()


def test_wait_stream_carries_data():
    a, b = torch.cuda.Stream(), torch.cuda.Stream()
    x = torch.zeros(1000, device="cuda")
    a.wait_stream(torch.cuda.current_stream())
    busy(a, 30)
    with torch.cuda.stream(a):
        x.add_(1)
    b.wait_stream(a)
    with torch.cuda.stream(b):
        y = x * 2
    torch.cuda.current_stream().wait_stream(b)
    x.record_stream(b)
    y.record_stream(torch.cuda.current_stream())
    torch.cuda.synchronize()
    assert y.sum().item() == 2000


def test_event_wait_on_current_stream_and_unrecorded():
    event = torch.cuda.Event()
    assert event.query() and "uninitialized" in repr(event)
    event.wait()
    event.synchronize()
    event.record()
    assert event.cuda_event != 0 and "torch.cuda.Event 0x" in repr(event)


def test_elapsed_time_is_in_milliseconds():
    stream = torch.cuda.Stream()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    began = time.perf_counter()
    start.record(stream)
    busy(stream, 20)
    end.record(stream)
    end.synchronize()
    wall = (time.perf_counter() - began) * 1e3
    assert 19 <= start.elapsed_time(end) <= wall
    assert end.elapsed_time(start) < 0


def test_elapsed_time_errors():
    timed, plain = torch.cuda.Event(enable_timing=True), torch.cuda.Event()
    with pytest.raises(ValueError, match="recorded"):
        timed.elapsed_time(torch.cuda.Event(enable_timing=True))
    timed.record()
    plain.record()
    with pytest.raises(ValueError, match="enable_timing=True"):
        timed.elapsed_time(plain)
    stream = torch.cuda.Stream()
    gate = Gate(stream)
    late = torch.cuda.Event(enable_timing=True)
    late.record(stream)
    with pytest.raises(RuntimeError, match="completed"):
        timed.elapsed_time(late)
    gate.open()
    late.synchronize()
    with pytest.raises(ditorch.NotSupportedError, match="ipc_handle"):
        timed.ipc_handle()
    with pytest.raises(ditorch.NotSupportedError, match="from_ipc_handle"):
        torch.cuda.Event.from_ipc_handle(torch.device("cuda"), b"")


def test_external_stream_is_the_same_queue():
    stream = torch.cuda.Stream()
    external = torch.cuda.ExternalStream(stream.cuda_stream)
    assert external.cuda_stream == stream.cuda_stream and external.device == stream.device
    gate = Gate(stream)
    assert not external.query()
    gate.open()
    external.synchronize()
    assert stream.query()
    again = torch.cuda.get_stream_from_external(stream.cuda_stream)
    with torch.cuda.stream(again):
        x = torch.ones(10, device="cuda") + 1
    again.synchronize()
    assert x.sum().item() == 20


def test_generic_streams_and_events_mix_with_cuda_ones():
    generic = torch.Stream(device="cuda")
    event = torch.Event(device="cuda", enable_timing=True)
    stream = torch.cuda.Stream()
    stream.wait_stream(generic)
    stream.record_event(event)
    stream.wait_event(event)
    event.synchronize()
    same = torch.cuda.Stream(stream_id=generic.stream_id, device_index=0, device_type=generic.device_type)
    assert same.cuda_stream != 0 and (same.stream_id, same.device) == (generic.stream_id, generic.device)


def test_launch_blocking(python):
    program = """
        import torch, ditorch
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(30_000_000)
        print(stream.query())
        """
    assert python(program, CUDA_LAUNCH_BLOCKING="1").stdout.strip() == "True"


def test_an_event_has_a_device_once_it_is_recorded():
    event = torch.cuda.Event()
    assert event.device is None
    event.record()
    assert event.device == torch.device("cuda", torch.cuda.current_device())
