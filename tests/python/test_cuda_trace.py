"""torch.cuda._gpu_trace on the device: in a process of its own, because the trace stays on."""

import pytest

PROGRAM = """
import collections, gc
import torch, ditorch
from torch.cuda import _gpu_trace

before = torch.cuda.Event(); before.record()  # made before the trace
seen = collections.defaultdict(list)
for name in ("event_creation", "event_deletion", "event_record", "event_wait", "memory_allocation",
             "memory_deallocation", "stream_creation", "device_synchronization", "stream_synchronization",
             "event_synchronization"):
    getattr(_gpu_trace, "register_callback_for_" + name)(lambda *args, name=name: seen[name].append(args))
torch._C._activate_gpu_trace(); torch._C._activate_gpu_trace()

stream = torch.cuda.Stream()
assert seen["stream_creation"] == [(stream.cuda_stream,)], seen
event = torch.cuda.Event(enable_timing=True)
assert not seen["event_creation"]
event.record(); event.record(stream); event.wait(stream); event.synchronize()
number, default = event.cuda_event, torch.cuda.default_stream().cuda_stream
assert seen["event_creation"] == [(number,)], seen
assert seen["event_record"] == [(number, default), (number, stream.cuda_stream)], seen
assert seen["event_wait"] == [(number, stream.cuda_stream)] and seen["event_synchronization"] == [(number,)], seen
stream.wait_event(event); before.synchronize()
assert len(seen["event_wait"]) == 2 and len(seen["event_synchronization"]) == 2, seen
del event; gc.collect()
assert seen["event_deletion"] == [(number,)], seen

stream.synchronize(); torch.cuda.synchronize()
assert seen["stream_synchronization"] == [(stream.cuda_stream,)] and seen["device_synchronization"] == [()], seen
x = torch.empty(10, 4, device="cuda"); pointer = x.data_ptr()
assert seen["memory_allocation"][-1] == (pointer,), seen
del x; gc.collect()
assert seen["memory_deallocation"][-1] == (pointer,), seen
print("done")
"""


def test_callbacks(python):
    answer = python("-c", PROGRAM, check=False)
    assert answer.returncode == 0 and answer.stdout.strip().endswith("done"), answer.stdout + answer.stderr


def test_the_sanitizer_of_streams_runs(python):
    """torch.cuda._sanitizer is built on these callbacks: work of two streams without a wait is a finding."""
    program = """
import torch, ditorch, torch.cuda._sanitizer as sanitizer
sanitizer.enable_cuda_sanitizer()
x = torch.ones(4, device="cuda")
try:
    with torch.cuda.stream(torch.cuda.Stream()):
        x.add_(1)
except Exception as error:
    print("found", type(error).__name__)
"""
    answer = python("-c", program, check=False)
    assert "CUDASanitizerErrors" in answer.stdout, answer.stdout + answer.stderr


@pytest.mark.parametrize("kind", ["host_alloc_time", "host_free_time"])
def test_times_of_pinned_memory(kind):
    import torch

    torch.cuda.init()
    torch.empty(1 << 20).pin_memory()
    torch._C._host_emptyCache()
    stats = torch.cuda.host_memory_stats()
    found = {key.split(".")[1]: value for key, value in stats.items() if key.startswith(kind + ".")}
    assert set(found) == {"total", "max", "min", "count", "avg"} and found["count"] >= 1
    assert 0 < found["min"] <= found["avg"] <= found["max"] <= found["total"]


def test_limits_of_pinned_memory_are_in_the_snapshot():
    import torch

    settings = torch.cuda.memory._snapshot()["allocator_settings"]
    assert settings["max_round_threshold"] == settings["max_cached_size"] == 2**64 - 1
    assert settings["expandable_segments"] is False
