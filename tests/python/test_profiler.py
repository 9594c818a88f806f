"""torch.profiler on the device: columns, kernels by name, streams, memory, threads, exports."""

import ctypes
import gzip
import itertools
import json
import threading
import time
from pathlib import Path

import ditorch
import pytest
import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function, schedule, tensorboard_trace_handler

BOTH = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
ROWS = "Self CUDA", "Self CUDA %", "CUDA total", "CUDA time avg"


@pytest.fixture
def x(device):
    return torch.randn(64, 64, device=device)


@pytest.fixture
def fault(device):
    yield ditorch.fault
    ditorch.fault("")


def trace_of(run, path):
    run.export_chrome_trace(str(path))
    with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
        return json.load(file)["traceEvents"]


def device_events(run):
    return [event for event in run.events() if event.device_type == DeviceType.CUDA and not event.is_user_annotation]


def by_key(run, **options):
    return {event.key: event for event in run.key_averages(**options) if not event.is_user_annotation}


# Device time


def test_columns_are_named_cuda(x):
    with profile(activities=BOTH) as run:
        x @ x
    for column in ("cuda_time_total", "self_cuda_time_total", "device_time_total", "self_device_time_total"):
        table = run.key_averages().table(sort_by=column)
        assert all(name in table for name in ROWS) and "Self CUDA time total" in table
    assert "DIT" not in table and "PrivateUse1" not in table


def test_operators_and_fallbacks_appear_by_name(x):
    with profile(activities=BOTH) as run:
        x @ x
        torch.digamma(x)
    rows = by_key(run)
    assert rows["diopiMm"].count == rows["cpu_fallback::digamma"].count == 1
    for operator, kernel in ("aten::mm", "diopiMm"), ("aten::digamma", "cpu_fallback::digamma"):
        assert rows[operator].self_device_time_total == rows[kernel].self_device_time_total > 0
    assert rows["aten::matmul"].device_time_total == rows["aten::mm"].device_time_total
    assert rows["aten::matmul"].self_device_time_total == 0


def test_sum_of_device_times_is_at_most_the_wall_time(x):
    big = torch.randn(300, 300, device="cuda")
    start = time.perf_counter()
    with profile(activities=BOTH) as run:
        for _ in range(5):
            torch.softmax(big @ big, 0).sort()
    wall = 1e6 * (time.perf_counter() - start)
    total = sum(event.time_range.elapsed_us() for event in device_events(run))
    assert 0 < total <= wall
    assert total == pytest.approx(sum(event.self_device_time_total for event in run.key_averages()) / 2, rel=1e-6)


def test_slow_operator_shows_its_time(x, fault):
    fault("slow:mm,ms=40")
    with profile(activities=BOTH) as run:
        x @ x
        x + x
    rows = by_key(run)
    assert rows["fault::mm"].device_time_total >= 40_000 and rows["aten::mm"].device_time_total >= 40_000
    assert "fault::add" not in rows


def test_work_on_a_side_stream_has_its_own_time(x):
    side, big, gate = torch.cuda.Stream(), torch.randn(300, 300, device="cuda"), threading.Event()
    side.wait_stream(torch.cuda.current_stream())
    with profile(activities=BOTH) as run:
        ditorch._C.stream_launch_host(0, side.stream_id, lambda: gate.wait(600))
        with torch.cuda.stream(side):
            for _ in range(3):
                big @ big
        x + x
        gate.set()
        side.synchronize()
    work = device_events(run)
    queued = [event for event in work if event.name == "diopiMm"]
    assert {event.device_resource_id for event in queued} == {side.stream_id}
    assert {event.device_resource_id for event in work if event.name == "diopiAdd"} == {0}
    # One after another on the stream.
    queued.sort(key=lambda event: event.time_range.start)
    assert all(a.time_range.end <= b.time_range.start for a, b in itertools.pairwise(queued))
    # The stream was held up until all were launched: the kernels began after the operators had returned.
    (added,) = (event for event in work if event.name == "diopiAdd")
    assert len(queued) == 3 and added.time_range.end < queued[0].time_range.start
    assert by_key(run)["aten::mm"].device_time_total == pytest.approx(
        sum(event.time_range.elapsed_us() for event in queued)
    )


def test_work_pending_at_the_end_is_waited_for(x):
    side, big = torch.cuda.Stream(), torch.randn(600, 600, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    with torch.profiler.profile(activities=BOTH) as run, torch.cuda.stream(side):
        for _ in range(4):
            big @ big
    assert [event.name for event in device_events(run)].count("diopiMm") == 4


def test_copies_are_named_as_on_cuda(x, tmp_path):
    with profile(activities=BOTH) as run:
        x.cpu().cuda()
        x.double()
    names = {event.name for event in device_events(run)}
    assert names == {"Memcpy DtoH (Device -> Host)", "Memcpy HtoD (Host -> Device)", "dit::copy_"}
    copies = [event for event in trace_of(run, tmp_path / "t.json") if event.get("cat") == "gpu_memcpy"]
    assert [event["args"]["bytes"] for event in copies] == [64 * 64 * 4] * 2


def test_device_only_profile_has_no_operators(x):
    with profile(activities=[ProfilerActivity.CUDA]) as run:
        x @ x
    assert "diopiMm" in by_key(run) and not [key for key in by_key(run) if key.startswith("aten::")]


def test_cpu_only_profile_has_no_device_time(x):
    with profile(activities=[ProfilerActivity.CPU]) as run:
        x @ x
    assert "aten::mm" in by_key(run) and "CUDA" not in run.key_averages().table()
    assert not device_events(run)


def test_default_activities_include_cuda(x):
    assert ProfilerActivity.CUDA in torch.profiler.supported_activities()
    with profile() as run:
        x @ x
    assert run.use_device == "cuda" and "diopiMm" in by_key(run)


@pytest.mark.skipif(not hasattr(torch.profiler.profiler, "_parse_activities"), reason="this torch has no filters")
def test_activity_filter_is_kept(x):
    with profile(activities=[ProfilerActivity.CPU, {ProfilerActivity.CUDA: ["GPU_MEMCPY"]}]) as run:
        x.cpu()
        x @ x
    assert {event.name for event in device_events(run)} == {"Memcpy DtoH (Device -> Host)"}


def test_collection_can_be_switched_off_for_a_while(x, capfd):
    with profile(activities=BOTH) as run:
        x @ x
        run.toggle_collection_dynamic(False, [ProfilerActivity.CUDA])
        torch.sort(x)
        run.toggle_collection_dynamic(True, [ProfilerActivity.CUDA])
        torch.digamma(x)
    assert [event.name for event in device_events(run)] == ["diopiMm", "cpu_fallback::digamma"]
    assert not [key for key in by_key(run) if key.startswith("ditorch::")]


def test_waiting_for_collectives_is_not_in_the_trace(x, monkeypatch):
    monkeypatch.setattr("ditorch.distributed._used", True)
    with profile(activities=BOTH) as run:
        x @ x
        torch.cuda.synchronize()
    assert not [key for key in by_key(run) if key.startswith("ditorch::")]


def test_an_operator_that_raises_is_not_a_kernel(x, fault):
    fault("error:mm")
    with profile(activities=BOTH) as run:
        with pytest.raises(RuntimeError, match="injected fault"):
            x @ x
        x + x
    assert [event.name for event in device_events(run)] == ["diopiAdd"]


def test_results_are_the_same_under_a_profiler(x):
    def compute():
        torch.manual_seed(3)
        value = torch.dropout(torch.softmax(x @ x, 1), 0.3, True).sort().values
        return value.cumsum(0).cpu()

    wanted = compute()
    with profile(activities=BOTH, profile_memory=True, record_shapes=True):
        mine = compute()
    assert torch.equal(mine, wanted)


# Backward, threads, many records


def test_backward_thread_is_included(x):
    weight = torch.randn(64, 64, device="cuda", requires_grad=True)
    with profile(activities=BOTH) as run:
        (x @ weight).relu().sum().backward()
    rows = by_key(run)
    assert rows["MmBackward0"].device_time_total > 0
    # a matrix product forward and one backward, of which the second is on the autograd thread's record
    assert rows["diopiMm"].count == 2
    assert rows["aten::mm"].device_time_total == pytest.approx(rows["diopiMm"].device_time_total)


def test_work_of_other_threads_is_seen_without_an_operator(x):
    with profile(activities=BOTH) as run:
        thread = threading.Thread(target=lambda: torch.digamma(x))
        thread.start()
        thread.join()
        x + x
    rows = by_key(run)
    assert rows["cpu_fallback::digamma"].count == 1 and "aten::digamma" not in rows
    assert rows["aten::add"].device_time_total == rows["diopiAdd"].device_time_total


def test_many_threads_lose_nothing(x):
    def work():
        for _ in range(200):
            x + 1

    with profile(activities=BOTH) as run:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        work()
        for thread in threads:
            thread.join()
    assert [event.name for event in device_events(run)].count("diopiAddScalar") == 1000


def test_dipu20_records_read_early_are_kept(x):
    """More work than the recorder keeps unread, with a slow stream among it: everything is in the trace."""
    side, big = torch.cuda.Stream(), torch.randn(900, 900, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    y = torch.ones(2, device="cuda")
    with profile(activities=BOTH) as run:
        with torch.cuda.stream(side):
            big @ big
        for _ in range(3000):
            y.add_(1)
    names = [event.name for event in device_events(run)]
    assert names.count("diopiAddInpScalar") == 3000 and names.count("diopiMm") == 1


def test_dipu20_trace_inside_an_operation(x):
    """A trace that begins and ends inside a range leaves nothing behind for the next one."""
    for _ in range(3):
        with record_function("around"):
            run = profile(activities=BOTH)
            run.start()
            x + 1
            run.stop()
        x + 2
    with profile(activities=BOTH) as run:
        x @ x
    work = device_events(run)
    assert [event.name for event in work] == ["diopiMm"]
    assert by_key(run)["aten::mm"].self_device_time_total == pytest.approx(work[0].time_range.elapsed_us())


def test_trap_profiler_stop_on_the_error_path_hides_the_real_error(x):
    with pytest.raises(ZeroDivisionError), profile(activities=BOTH) as run:
        x @ x
        1 / 0  # noqa: B018
    assert "diopiMm" in by_key(run)


# The older interface


def test_autograd_profiler_with_a_device(x):
    with torch.autograd.profiler.profile(use_device="cuda") as run:
        torch.sort(x @ x)
    rows = by_key(run)
    assert rows["aten::mm"].device_time_total > 0 and rows["aten::sort"].device_time_total > 0
    assert "Self CUDA" in run.key_averages().table(sort_by="self_cuda_time_total")


def test_autograd_profiler_with_use_cuda(x):
    with pytest.warns(FutureWarning, match="use_cuda"), torch.autograd.profiler.profile(use_cuda=True) as run:
        x @ x
    assert by_key(run)["aten::mm"].device_time_total > 0


def test_autograd_profiler_over_kineto(x):
    with torch.autograd.profiler.profile(use_device="cuda", use_kineto=True) as run:
        x @ x
    assert "diopiMm" in by_key(run)


def test_low_level_profile_object(x):
    run = torch.profiler._KinetoProfile(activities=BOTH)
    run.start()
    x @ x
    run.stop()
    assert "diopiMm" in {event.key for event in run.key_averages()}


# Options


def test_shapes(x):
    with profile(activities=BOTH, record_shapes=True) as run:
        x @ x
        x[:8] @ x
    shapes = {
        str(event.input_shapes) for event in run.key_averages(group_by_input_shape=True) if event.key == "aten::mm"
    }
    assert shapes == {"[[64, 64], [64, 64]]", "[[8, 64], [64, 64]]"}


def test_flops_and_modules(x):
    layer = torch.nn.Linear(64, 64).cuda()
    with profile(activities=BOTH, with_flops=True, with_modules=True) as run:
        layer(x)
    assert by_key(run)["aten::addmm"].flops == 2 * 64**3


def test_stacks(x, tmp_path):
    verbose = torch._C._profiler._ExperimentalConfig(verbose=True)
    with profile(activities=BOTH, with_stack=True, experimental_config=verbose) as run:
        x @ x
    groups = [event for event in run.key_averages(group_by_stack_n=5) if event.key == "aten::mm"]
    assert len(groups) == 1 and any("test_profiler.py" in line for line in groups[0].stack)
    table = run.key_averages(group_by_stack_n=5).table(sort_by="self_cuda_time_total", row_limit=2)
    assert "Source Location" in table
    run.export_stacks(str(tmp_path / "stacks"), "self_cuda_time_total")
    assert "test_profiler.py" in (tmp_path / "stacks").read_text()


def test_memory(x):
    with profile(activities=BOTH, profile_memory=True) as run:
        y = torch.empty(1 << 20, device="cuda")
        z = torch.sort(x).values
        del y, z
    rows = by_key(run)
    assert rows["aten::empty"].self_device_memory_usage >= 4 << 20
    assert rows["aten::sort"].device_memory_usage >= 64 * 64 * 4
    assert rows["aten::empty"].cpu_memory_usage == 0
    assert sum(event.self_device_memory_usage for event in run.events()) == 0
    for column in ("cuda_memory_usage", "self_cuda_memory_usage", "device_memory_usage"):
        table = run.key_averages().table(sort_by=column, row_limit=3)
        assert "CUDA Mem" in table and "Self CUDA Mem" in table and "aten::empty" in table


def test_memory_that_is_not_there(x):
    with profile(activities=BOTH, profile_memory=True) as run, pytest.raises(torch.OutOfMemoryError):
        torch.empty(1 << 50, device="cuda", dtype=torch.uint8)
    assert "[OutOfMemory]" in {event.name for event in run.events()}


@pytest.mark.filterwarnings("ignore")
def test_memory_timeline(tmp_path):
    layer = torch.nn.Linear(256, 256).cuda()
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)
    with profile(activities=BOTH, profile_memory=True, record_shapes=True, with_stack=True) as run:
        for _ in range(2):
            optimizer.zero_grad()
            layer(torch.randn(32, 256, device="cuda")).sum().backward()
            optimizer.step()
    run.export_memory_timeline(str(tmp_path / "timeline.json"), device="cuda:0")
    times, sizes = json.loads((tmp_path / "timeline.json").read_text())
    assert len(times) == len(sizes) > 4
    assert max(max(row) for row in sizes) >= 256 * 256 * 4


def test_chrome_trace(x, tmp_path):
    with profile(activities=BOTH) as run, record_function("mine"):
        x @ x
        torch.digamma(x)
    events = trace_of(run, tmp_path / "trace.json")
    kernels = {event["name"]: event for event in events if event.get("cat") == "kernel"}
    assert kernels.keys() == {"diopiMm", "cpu_fallback::digamma"}
    operators = {event["args"]["External id"]: event for event in events if event.get("cat") == "cpu_op"}
    for name, kernel in kernels.items():
        operator = operators[kernel["args"]["External id"]]
        assert operator["name"] == {"diopiMm": "aten::mm", "cpu_fallback::digamma": "aten::digamma"}[name]
        assert kernel["pid"] == 0 and kernel["tid"] == 0 and kernel["args"]["operator"].startswith(operator["name"])
        # on one time axis with the operator that ran it, up to the clocks' agreement: a wrong axis is off by far more
        assert operator["ts"] - 5000 <= kernel["ts"] <= operator["ts"] + operator["dur"] + 5000
        assert 0 < kernel["dur"] <= operator["dur"]
    launches = [event for event in events if event.get("cat") == "cuda_runtime"]
    assert [event["name"] for event in launches] == ["ditLaunchKernel"]
    flows = [event["ph"] for event in events if event.get("cat") == "ac2g"]
    assert sorted(flows) == ["f", "s"]
    labels = [event["args"]["labels"] for event in events if event.get("name") == "process_labels"]
    assert sorted(labels) == ["CPU", "GPU 0"]
    assert any(event.get("cat") == "gpu_user_annotation" and event["name"] == "mine" for event in events)


def test_chrome_trace_compressed(x, tmp_path):
    with profile(activities=BOTH) as run:
        x @ x
    assert [e["name"] for e in trace_of(run, tmp_path / "t.json.gz") if e.get("cat") == "kernel"] == ["diopiMm"]


@pytest.mark.filterwarnings("ignore:.*Profiler clears events")
def test_schedule(x, tmp_path):
    traces = []

    def ready(run):
        events = trace_of(run, tmp_path / f"{run.step_num}.json")
        steps = {event["name"] for event in events if event.get("name", "").startswith("ProfilerStep#")}
        traces.append((run.step_num, steps, sum(event.get("cat") == "kernel" for event in events)))

    with profile(activities=BOTH, schedule=schedule(wait=1, warmup=1, active=2), on_trace_ready=ready) as run:
        for _ in range(8):
            x @ x
            run.step()
    assert traces == [(4, {"ProfilerStep#2", "ProfilerStep#3"}, 2), (8, {"ProfilerStep#6", "ProfilerStep#7"}, 2)]


def test_tensorboard_handler(x, tmp_path):
    handler = tensorboard_trace_handler(str(tmp_path / "log"), worker_name="one", use_gzip=True)
    with profile(
        activities=BOTH, schedule=schedule(wait=0, warmup=1, active=1, repeat=1), on_trace_ready=handler
    ) as run:
        for _ in range(2):
            x @ x
            run.step()
    (path,) = (tmp_path / "log").iterdir()
    assert path.name.startswith("one.") and path.name.endswith(".pt.trace.json.gz")
    with gzip.open(path) as file:
        content = json.load(file)
    assert content["deviceProperties"][0]["name"] == torch.cuda.get_device_name()
    assert any(event.get("cat") == "kernel" for event in content["traceEvents"])


# Ranges of operator libraries


@pytest.fixture
def ranges():
    """(begin, end) of the standard's functions, as a library calls them."""
    core = ctypes.CDLL(str(next(Path(ditorch.__file__).parent.glob("lib/libdit.so"))))

    def begin(name):
        handle = ctypes.c_void_p()
        assert core.diopiRecordStart(name.encode(), ctypes.byref(handle)) == 0 and handle.value
        return handle

    def end(handle):
        assert core.diopiRecordEnd(ctypes.byref(handle)) == 0 and not handle.value

    return begin, end


def test_ranges_of_a_library_are_in_the_trace(x, ranges, tmp_path):
    begin, end = ranges
    before = begin("before the profile")
    with profile(activities=BOTH) as run:
        outer, inner = begin("outer"), begin("inner")
        x @ x
        end(inner)
        end(outer)
        end(before)
        across, never = begin("across"), begin("never ended")
        thread = threading.Thread(target=lambda: (end(across), end(begin("of the thread"))))
        thread.start()
        thread.join()
    with profile(activities=BOTH) as other:
        end(never)
    assert not {"never ended", "before the profile"} & {event.key for event in other.key_averages()}
    rows = {event.key: event for event in run.key_averages() if event.device_type == DeviceType.CPU}
    assert all(rows[name].count == 1 for name in ("outer", "inner", "across", "never ended", "of the thread"))
    assert "before the profile" not in rows
    events = {event["name"]: event for event in trace_of(run, tmp_path / "t.json") if event.get("ph") == "X"}
    assert events["outer"]["ts"] <= events["inner"]["ts"] and events["inner"]["dur"] <= events["outer"]["dur"]
    assert events["across"]["tid"] == threading.get_native_id() != events["of the thread"]["tid"]


def test_ranges_of_a_library_without_a_profiler(ranges):
    begin, end = ranges
    first, second = begin("a"), begin("b")
    assert first.value == second.value  # nothing is kept
    end(first)
    end(second)


# NVTX


def test_nvtx_ranges_are_in_the_trace(x, tmp_path):
    with profile(activities=BOTH) as run:
        assert torch.cuda.nvtx.range_push("outer") == 0 and torch.cuda.nvtx.range_push("inner") == 1
        x @ x
        assert torch.cuda.nvtx.range_pop() == 1 and torch.cuda.nvtx.range_pop() == 0
        torch.cuda.nvtx.mark("moment")
        with torch.cuda.nvtx.range("step {}", 7):
            x + x
        handle = torch.cuda.nvtx.range_start("across")
        thread = threading.Thread(target=torch.cuda.nvtx.range_end, args=[handle])
        thread.start()
        thread.join()
    rows = {event.key: event for event in run.key_averages() if event.device_type == DeviceType.CPU}
    for name in ("outer", "inner", "moment", "step 7", "across"):
        assert rows[name].count == 1, name
    assert rows["outer"].device_time_total == rows["inner"].device_time_total == rows["aten::mm"].device_time_total > 0
    assert not [key for key in rows if key.startswith("ditorch::")]
    events = {event["name"]: event for event in trace_of(run, tmp_path / "t.json") if event.get("ph") == "X"}
    assert events["outer"]["cat"] == "user_annotation"
    assert events["across"]["tid"] == threading.get_native_id() and events["across"]["dur"] > 0


def test_nvtx_without_a_profiler(device):
    assert torch.cuda.nvtx.range_pop() == -1
    assert torch.cuda.nvtx.range_push("a") == 0 and torch.cuda.nvtx.range_pop() == 0
    torch.cuda.nvtx.range_end(torch.cuda.nvtx.range_start("b"))
    torch.cuda.nvtx.range_end(12345)
    torch.cuda.nvtx.mark("c")


def test_nvtx_range_across_traces(x):
    """A range that is open when its trace ends, popped under the next one."""
    with profile(activities=BOTH) as first:
        torch.cuda.nvtx.range_push("open")
        x + x
    with profile(activities=BOTH) as second:
        x + x
        assert torch.cuda.nvtx.range_pop() == 0
    assert "open" in {event.key for event in first.key_averages()}
    assert "open" not in {event.key for event in second.key_averages()}


def test_nvtx_range_of_another_thread_across_traces(x):
    pushed, ended, depths = threading.Event(), threading.Event(), []

    def work():
        torch.cuda.nvtx.range_push("elsewhere")
        pushed.set()
        ended.wait(600)
        depths.append(torch.cuda.nvtx.range_pop())

    thread = threading.Thread(target=work)
    with profile(activities=BOTH):
        thread.start()
        pushed.wait(600)
    with profile(activities=BOTH) as run:
        ended.set()
        thread.join()
        x @ x
    assert depths == [0] and "diopiMm" in by_key(run)


def test_emit_nvtx(x, capfd):
    with torch.autograd.profiler.emit_nvtx(record_shapes=True):
        torch.sort(x @ x)
    assert "Failed" not in capfd.readouterr().err


def test_emit_nvtx_is_in_the_trace_of_another_thread(x):
    started, done = threading.Event(), threading.Event()

    def work():
        started.wait(600)
        with torch.autograd.profiler.emit_nvtx():
            x @ x
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    with profile(activities=BOTH) as run:
        started.set()
        done.wait(600)
    thread.join()
    assert any(event.name.startswith("aten::mm, ") for event in run.events()), [e.name for e in run.events()]


def test_dipu21_profiler_control_without_a_vendor_profiler(x):
    torch.cuda.profiler.start()
    torch.cuda.profiler.stop()
    with torch.cuda.profiler.profile():
        x @ x
