"""The profiler walk-through, step by step, with a small residual network: what each step prints must be there."""

import json

import ditorch  # noqa: F401
import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

BOTH = [ProfilerActivity.CPU, ProfilerActivity.CUDA]


class Block(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(y)) + x)


def residual_network() -> nn.Module:
    stem = [nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    return nn.Sequential(*stem, Block(8), Block(8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10))


CONVOLUTIONS = 5


@pytest.fixture(scope="module")
def on_cpu():
    return residual_network(), torch.randn(2, 3, 32, 32)


@pytest.fixture(scope="module")
def on_device():
    return residual_network().cuda(), torch.randn(2, 3, 32, 32).cuda()


def rows(table: str) -> list[str]:
    """First column, in order."""
    lines = table.splitlines()
    return [line[: len(lines[0].split()[0])].strip() for line in lines[3:] if line.strip() and not line.startswith("-")]


def test_step_3_execution_time_on_the_cpu(on_cpu):
    model, inputs = on_cpu
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as prof, record_function("model_inference"):
        model(inputs)
    table = prof.key_averages().table(sort_by="cpu_time_total", row_limit=10)
    assert "CUDA" not in table and "Self CPU time total" in table
    assert rows(table)[0] == "model_inference" and "aten::conv2d" in rows(table)
    shaped = prof.key_averages(group_by_input_shape=True).table(sort_by="cpu_time_total", row_limit=30)
    assert "Input Shapes" in shaped and "[[2, 3, 32, 32], [8, 3, 7, 7]" in shaped
    assert "[[2, 8, 8, 8], [8, 8, 3, 3]" in shaped


def test_step_3_execution_time_on_the_device(on_device):
    model, inputs = on_device
    with profile(activities=BOTH, record_shapes=True) as prof, record_function("model_inference"):
        model(inputs)
    averages = prof.key_averages()
    table = averages.table(sort_by="cuda_time_total", row_limit=20)
    for column in ("Self CPU %", "CPU total", "Self CUDA", "Self CUDA %", "CUDA total", "CUDA time avg", "# of Calls"):
        assert column in table
    assert "Self CPU time total" in table and "Self CUDA time total" in table
    found = {event.key: event for event in averages if not event.is_user_annotation}
    times = [event.device_time_total for event in averages]
    whole = next(e for e in averages if e.key == "model_inference" and e.device_type == torch.autograd.DeviceType.CPU)
    assert whole.self_device_time_total == 0
    assert whole.device_time_total == pytest.approx(sum(e.self_device_time_total for e in found.values()) / 2)
    assert max(times) > 0
    # The kernel of the convolution is a row of its own, under the operator's name.
    kernel = found["diopiConvolution2d"]
    assert kernel.count == found["aten::conv2d"].count == CONVOLUTIONS
    assert kernel.cpu_time_total == 0 and kernel.device_time_total > 0
    assert found["aten::conv2d"].device_time_total >= kernel.device_time_total
    assert found["diopiBatchNorm"].count == CONVOLUTIONS


def test_step_4_memory_on_the_cpu(on_cpu):
    model, inputs = on_cpu
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, record_shapes=True) as prof:
        model(inputs)
    table = prof.key_averages().table(sort_by="cpu_memory_usage", row_limit=10)
    assert "CPU Mem" in table and "Self CPU Mem" in table and "CUDA Mem" not in table


def test_step_4_memory_on_the_device(on_device):
    model, inputs = on_device
    with profile(activities=BOTH, profile_memory=True, record_shapes=True) as prof:
        model(inputs)
    table = prof.key_averages().table(sort_by="self_cuda_memory_usage", row_limit=10)
    assert "CUDA Mem" in table and "Self CUDA Mem" in table
    found = {event.key: event for event in prof.key_averages()}
    assert found["aten::conv2d"].device_memory_usage >= 2 * 8 * 16 * 16 * 4


def test_step_5_trace_for_the_viewer(on_device, tmp_path):
    model, inputs = on_device
    with profile(activities=BOTH) as prof:
        model(inputs)
    prof.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    kernels = [event for event in events if event.get("cat") == "kernel"]
    assert sum(event["name"] == "diopiConvolution2d" for event in kernels) == CONVOLUTIONS
    assert {event["args"]["path"] for event in kernels} == {"C operator"}


def test_step_6_call_chains(on_device):
    model, inputs = on_device
    verbose = torch._C._profiler._ExperimentalConfig(verbose=True)
    with profile(activities=BOTH, with_stack=True, experimental_config=verbose) as prof:
        model(inputs)
    table = prof.key_averages(group_by_stack_n=5).table(sort_by="self_cuda_time_total", row_limit=200)
    assert "Source Location" in table and "_conv_forward" in table and "nn.Module: Conv2d_0" in table


@pytest.mark.filterwarnings("ignore:.*Profiler clears events")
def test_step_7_long_running_work(on_device, tmp_path):
    model, inputs = on_device
    printed = []

    def trace_handler(p):
        printed.append(p.key_averages().table(sort_by="self_cuda_time_total", row_limit=10))
        p.export_chrome_trace(str(tmp_path / f"trace_{p.step_num}.json"))

    plan = torch.profiler.schedule(wait=1, warmup=1, active=2)
    with profile(activities=BOTH, schedule=plan, on_trace_ready=trace_handler) as p:
        for _ in range(8):
            model(inputs)
            p.step()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["trace_4.json", "trace_8.json"]
    assert len(printed) == 2 and all("ProfilerStep*" in table and "Self CUDA" in table for table in printed)


def test_step_7_schedule_of_the_text():
    plan = torch.profiler.schedule(skip_first=10, wait=5, warmup=1, active=3, repeat=2)
    actions = [plan(step).name for step in range(34)]
    assert actions[:15] == ["NONE"] * 15
    assert actions[15:19] == ["WARMUP", "RECORD", "RECORD", "RECORD_AND_SAVE"]
    assert actions[19:28] == ["NONE"] * 5 + ["WARMUP", "RECORD", "RECORD", "RECORD_AND_SAVE"]
    assert actions[28:] == ["NONE"] * 6
