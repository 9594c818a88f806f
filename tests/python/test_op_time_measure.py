"""OpTimeMeasure: counts, times, percentiles and files; the slow operator stands at the top."""

import contextlib
import csv
import glob
import json
import math
import threading
import time
import weakref

import ditorch
import pytest
import torch
import torch.nn.functional as F
from ditorch import _C
from op_tools import OpObserve, OpTimeMeasure, session

SLOW_MS = 40


@pytest.fixture(autouse=True)
def in_own_directory(tmp_path, monkeypatch, device):
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    ditorch.fault("")


def find(rows, name, kind="forward"):
    found = [row for row in rows if row["name"].rpartition(".")[2] == name and row["kind"] == kind]
    assert len(found) == 1, (name, kind, [(row["name"], row["kind"]) for row in rows])
    return found[0]


def step(x, w):
    loss = (x @ w).softmax(-1).square().sum()
    loss.backward()
    return loss


def parameters(*shape):
    generator = torch.Generator().manual_seed(7)
    return torch.randn(shape, generator=generator).cuda().requires_grad_()


# What is counted


def test_counts_signatures_and_directions():
    x, w = parameters(4, 5), parameters(5, 3)
    with OpTimeMeasure() as tool:
        for _ in range(3):
            step(x, w)
    rows = tool.rows()
    for name, signature in [
        ("matmul", "float32[4,5];float32[5,3]"),
        ("softmax", "float32[4,3]"),
        ("sum", "float32[4,3]"),
    ]:
        for kind in ("forward", "backward"):
            row = find(rows, name, kind)
            assert (row["count"], row["signature"]) == (3, signature), row
            assert row["device"]["count"] == row["host"]["count"] == 3
            assert 0 < row["min_ns"] <= row["median_ns"] <= row["p90_ns"] <= row["p99_ns"] <= row["max_ns"]
            assert row["min_ns"] * 3 <= row["total_ns"] <= row["max_ns"] * 3
    facts = tool.describe()
    assert facts["pending"] == facts["unmeasured"] == facts["incomplete"] == facts["failed_events"] == 0


def test_signatures_are_kept_apart():
    with OpTimeMeasure() as tool:
        for size in (2, 3, 3):
            torch.ones(size, device="cuda", dtype=torch.float64) * 2
        torch.ones(3, device="cuda") * 2
        torch.ones((), device="cuda") * 2
        torch.ones(0, 4, device="cuda") * 2
    muls = {row["signature"]: row["count"] for row in tool.rows() if row["name"].endswith(".mul")}
    assert muls == {"float64[2]": 1, "float64[3]": 2, "float32[3]": 1, "float32[]": 1, "float32[0,4]": 1}


def test_more_signatures_than_rows_share_one():
    with OpTimeMeasure(rows=2) as tool:
        x = torch.ones(8, device="cuda")
        for size in range(1, 7):
            x[:size].exp()
    exps = [row for row in tool.rows() if row["name"].endswith(".exp")]
    assert sum(row["count"] for row in exps) == 6
    assert [row["signature"] for row in exps].count("...") == 1


def test_signature_is_from_before_the_call():
    with OpTimeMeasure() as tool:
        x = torch.ones(2, 3, 1, 1, 1, 1, 1, device="cuda")
        x.squeeze_()
        y = torch.ones(4, device="cuda")
        y.resize_(2, 2, 1, 1, 1, 1, 1, 1)
    assert find(tool.rows(), "squeeze_")["signature"] == "float32[2,3,1,1,1,1,1]"
    assert find(tool.rows(), "resize_")["signature"] == "float32[4]"


@pytest.mark.parametrize("backward", [True, False])
def test_backward_can_be_left_out(backward):
    with OpTimeMeasure(backward=backward) as tool:
        step(parameters(4, 5), parameters(5, 3))
    assert any(row["kind"] == "backward" for row in tool.rows()) is backward


# The slow operator is named


def test_slow_fault_is_at_the_top_and_gone_without_it():
    x, w = parameters(8, 8), parameters(8, 8)
    step(x, w)  # first calls are slow by themselves
    with ditorch.fault(f"slow:aten::_softmax*,ms={SLOW_MS}"), OpTimeMeasure(list=r"torch\.Tensor\..*") as tool:
        step(x, w)
    top = tool.rows()[0]
    assert top["name"] == "torch.Tensor.softmax"
    assert top["max_ns"] >= SLOW_MS * 1e6
    assert str(tool.table()).splitlines()[2].startswith("torch.Tensor.softmax")
    with OpTimeMeasure(list=r"torch\.Tensor\..*") as tool:
        for _ in range(9):
            step(x, w)
    assert find(tool.rows(), "softmax")["min_ns"] < SLOW_MS * 1e6


def test_slow_backward_is_the_backward_of_its_operator():
    x, w = parameters(8, 8), parameters(8, 8)
    step(x, w)
    with ditorch.fault(f"slow:_softmax_backward_data*,ms={SLOW_MS}"), OpTimeMeasure() as tool:
        step(x, w)
    top = tool.rows()[0]
    assert (top["name"], top["kind"]) == ("torch.Tensor.softmax", "backward")
    assert top["max_ns"] >= SLOW_MS * 1e6


@pytest.mark.parametrize("order", ["total", "count", "mean", "median", "p90", "p99", "max", "name"])
def test_orders(order):
    with OpTimeMeasure(sort=order) as tool:
        step(parameters(4, 5), parameters(5, 3))
        torch.ones(3, device="cuda") + torch.ones(3, device="cuda")
    rows = tool.rows()
    values = [row["name"] if order == "name" else row["count" if order == "count" else f"{order}_ns"] for row in rows]
    assert values == sorted(values, reverse=order != "name") and len(set(values)) > 1
    with pytest.raises(ValueError, match=r"total.*name"):
        tool.rows("color")


# Defects of the original


def test_t1_every_round_counts_once():
    x = parameters(6, 4)
    with OpTimeMeasure() as tool:
        parts = torch.unbind(x)  # six outputs, one node
        loss = torch.stack(parts).square().sum()
        for _ in range(3):
            loss.backward(retain_graph=True)
        values, _ = torch.max(x, 1)
        torch.autograd.grad(values.sum(), x)
    rows = tool.rows()
    assert find(rows, "unbind", "backward")["count"] == 3
    assert find(rows, "stack", "backward")["count"] == 3
    assert find(rows, "max", "backward")["count"] == 1
    rounds = [record["round"] for record in tool.records("time") if record["kind"] == "backward"]
    assert sorted(set(rounds)) == [0, 1, 2]


def test_gradient_of_a_composite_operator_is_one_span():
    """A composite operator has many autograd nodes and one backward: slow anywhere inside is slow in its row."""
    layer = torch.nn.MultiheadAttention(8, 2, batch_first=True).cuda()
    x = parameters(2, 5, 8)
    layer(x, x, x)[0].sum().backward()
    with ditorch.fault(f"slow:_softmax_backward_data*,ms={SLOW_MS},call=1") as fault, OpTimeMeasure() as tool:
        layer(x, x, x, need_weights=True)[0].sum().backward()
        assert fault.count == 1
    top = tool.rows()[0]
    assert top["kind"] == "backward" and top["count"] == 1 and top["max_ns"] >= SLOW_MS * 1e6
    assert top["name"].endswith(("multi_head_attention_forward", "softmax", "scaled_dot_product_attention")), top[
        "name"
    ]


def test_t2_a_side_stream_is_measured_by_events_without_waiting():
    stream = torch.cuda.Stream()
    x = torch.ones(64, 64, device="cuda")
    with OpTimeMeasure() as tool, torch.cuda.stream(stream):
        for _ in range(20):
            x = x @ x * 1e-3
    facts = tool.describe()
    assert facts["events"] > 0 and facts["pending"] == 0 and facts["unmeasured"] == 0
    assert find(tool.rows(), "matmul")["device"]["count"] == 20


def test_t2_flush_reads_what_waits():
    stream = torch.cuda.Stream()
    x = torch.ones(300, 300, device="cuda")
    with OpTimeMeasure() as tool, torch.cuda.stream(stream):
        for _ in range(30):
            x = x @ x * 1e-3
        tool.flush()
        assert tool.describe()["pending"] == 0
        assert find(tool.rows(), "matmul")["device"]["count"] == 30


def test_t2_the_queue_of_events_is_bounded():
    stream = torch.cuda.Stream()
    x = torch.ones(16, device="cuda")
    with OpTimeMeasure(pending=8) as tool, torch.cuda.stream(stream):
        for _ in range(200):
            x = x + 1
    facts = tool.describe()
    assert find(tool.rows(), "add")["device"]["count"] == 200
    assert 0 < facts["events"] <= 2 * 9


def test_t2_percentiles_of_the_table_are_those_of_the_records():
    with OpTimeMeasure(list="torch.Tensor.mul", leaves=False) as tool:
        x = torch.ones(100, device="cuda")
        for _ in range(700):
            x = x * 1.0
    row = find(tool.rows(), "mul")
    for clock, field in (("host", "duration_ns"), ("device", "device_ns")):
        times = sorted(record[field] for record in tool.records("time"))
        assert len(times) == row[clock]["count"] == 700
        assert (sum(times), times[0], times[-1]) == tuple(row[clock][key] for key in ("total_ns", "min_ns", "max_ns"))
        for key, part in (("median_ns", 0.5), ("p90_ns", 0.9), ("p99_ns", 0.99)):
            exact = times[math.ceil(part * 700) - 1]
            assert abs(row[clock][key] - exact) <= 0.008 * exact, (clock, key, exact, row[clock][key])


def test_t3_forward_and_backward_stand_in_one_row_of_the_file(tmp_path):
    x = parameters(4, 4)
    tool = OpTimeMeasure()
    with tool:
        y = x.exp()
        loss = y.sum()
        tool.flush()  # the original split the row here
        loss.backward()
    with contextlib.ExitStack() as stack:
        (path,) = glob.glob(str(tmp_path / "op_tools_results/op_time_measure_result/op_elasped_info_pid*.csv"))
        rows = list(csv.DictReader(stack.enter_context(open(path, newline=""))))
    assert list(rows[0]) == [
        *("name", "forward_id", "forward_elasped", "backward_elasped", "unit"),
        *("input", "output", "grad_inputs", "grad_outputs"),
    ]
    (row,) = [row for row in rows if row["name"] == "torch.Tensor.exp"]
    assert float(row["forward_elasped"]) > 0 and float(row["backward_elasped"]) > 0 and row["unit"] == "ms"
    assert len({row["forward_id"] for row in rows}) == len(rows)


def test_t3_later_runs_add_to_the_file_and_not_a_second_header(tmp_path):
    first = OpTimeMeasure()
    for tool in (first, first, OpTimeMeasure()):
        with tool:
            torch.ones(3, device="cuda").exp()
    (path,) = glob.glob(str(tmp_path / "op_tools_results/op_time_measure_result/*.csv"))
    with open(path, newline="") as file:
        lines = file.read().splitlines()
    assert sum(line.startswith("name,forward_id") for line in lines) == 1
    assert sum(line.startswith("torch.Tensor.exp") for line in lines) == 3


def test_t3_a_file_that_takes_long_is_written_at_exit(python, tmp_path):
    program = """
    import ditorch, torch
    from op_tools import OpTimeMeasure, time_measure

    time_measure.EXPORT_SECONDS = -1.0
    for _ in range(3):
        with OpTimeMeasure():
            torch.ones(3, device="cuda").exp()
    """
    python(program, cwd=tmp_path)
    (path,) = glob.glob(str(tmp_path / "op_tools_results/op_time_measure_result/*.csv"))
    with open(path, newline="") as file:
        assert file.read().count("torch.Tensor.exp,") == 3


def test_t4_no_argument_is_kept():
    with OpTimeMeasure() as tool:
        x = torch.ones(3, device="cuda")
        y = x.exp()
        died = weakref.ref(y), weakref.ref(x)
        del x, y
        assert died[0]() is None and died[1]() is None
    assert find(tool.rows(), "exp")["count"] == 1


def test_t5_only_the_operator_is_timed_when_other_tools_work():
    """Another tool's work around a call or a backward (here: a very slow report) is not part of the time."""
    told = []

    def report(finding):
        told.append((finding["name"], finding["kind"]))
        time.sleep(0.3)

    slow = _C.Tool("overflow", {"log": False, "eager": True, "report": report})
    slow.set_matcher(lambda name: True)
    slow.set_due(True)
    x = torch.zeros(3, device="cuda", requires_grad=True)
    torch.sqrt(x + 1).sum().backward()
    torch.log(x)
    stream = torch.cuda.Stream()
    for first, second in ((OpTimeMeasure(), slow), (slow, OpTimeMeasure())):
        told.clear()
        tool = first if second is slow else second
        first.start()
        second.start()
        try:
            torch.sqrt(x).sum().backward()
            with torch.cuda.stream(stream):
                torch.log(x)
        finally:
            second.stop()
            first.stop()
        assert told == [("torch.sqrt", "backward"), ("torch.log", "forward")]
        for row in tool.rows():
            assert row["max_ns"] < 0.2e9, (row["name"], row["kind"], row["max_ns"])
        assert find(tool.rows(), "log")["device"]["count"] == 1


def test_two_tools_share_the_calls():
    with OpObserve() as observe, OpTimeMeasure() as tool:
        step(parameters(4, 5), parameters(5, 3))
    forward = sum(row["count"] for row in tool.rows() if row["kind"] == "forward")
    assert forward == observe.counts()["applied"] == tool.counts()["applied"] > 0


# Modes


def test_sync_measures_the_host():
    stream = torch.cuda.Stream()
    x = torch.ones(8, device="cuda")
    with OpTimeMeasure(sync=True) as tool, torch.cuda.stream(stream):
        for _ in range(5):
            x = x + 1
    row = find(tool.rows(), "add")
    assert row["device"] == row["host"] and row["count"] == 5
    assert tool.describe()["sync"] is True


def test_full_console_prints_the_originals_tables(capsys):
    x = parameters(4, 4)
    with OpTimeMeasure(console="full"):
        x.exp().sum().backward()
    text = capsys.readouterr().out
    assert "torch.Tensor.exp    forward_id: " in text
    assert "forward_elasped" in text and "backward_elasped" in text and "saved to" not in text
    session.consoles[-1].close()  # as at exit
    assert "op elasped info saved to" in capsys.readouterr().out


def test_events_of_torch_serve_devices_without_a_helper():
    tool = _C.Tool("time", {"torch_events": True})
    tool.set_matcher(lambda name: True)
    tool.set_due(True)
    x = torch.ones(8, device="cuda", requires_grad=True)
    tool.start()
    try:
        for _ in range(4):
            (x * 2).sum().backward()
    finally:
        tool.stop()
    facts = tool.describe()
    assert facts["failed_events"] == 0 and facts["pending"] == 0
    assert find(facts["rows"], "mul")["device"]["count"] == 4
    assert find(facts["rows"], "mul", "backward")["device"]["count"] == 4
    assert facts["events"] > 0


def test_cpu_calls_on_request():
    with OpTimeMeasure(cpu=True) as tool:
        torch.ones(3).exp()
    assert find(tool.rows(), "exp")["device"]["count"] == 1


def test_threads():
    with OpTimeMeasure(threads="all") as tool:
        workers = [
            threading.Thread(target=lambda: [torch.ones(5, device="cuda").exp() for _ in range(50)]) for _ in "ab"
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert find(tool.rows(), "exp")["count"] == 100


def test_level_aten():
    with OpTimeMeasure(level="aten") as tool:
        F.linear(torch.ones(2, 3, device="cuda"), torch.ones(4, 3, device="cuda"), torch.ones(4, device="cuda"))
    assert any(row["name"].startswith("aten::") for row in tool.rows())


# Start, stop, step, errors


def test_a_new_start_begins_anew():
    tool = OpTimeMeasure()
    for calls in (3, 2):
        with tool:
            for _ in range(calls):
                torch.ones(3, device="cuda").exp()
        assert find(tool.rows(), "exp")["count"] == calls
    tool.stop()


def test_an_operator_that_raises_is_not_timed_and_others_go_on():
    with OpTimeMeasure() as tool:
        for _ in range(3):
            with pytest.raises(RuntimeError, match="size of tensor"):
                torch.ones(3, device="cuda") + torch.ones(4, device="cuda")
        torch.ones(3, device="cuda") + 1
    assert find(tool.rows(), "add")["count"] == 1


def test_profiler_stop_on_the_error_path_does_not_hide_the_error():
    tool = OpTimeMeasure()
    with pytest.raises(ZeroDivisionError), tool:
        torch.ones(3, device="cuda").exp()
        1 / 0  # noqa: B018
    assert find(tool.rows(), "exp")["count"] == 1 and not tool.is_active


def test_a_backward_that_fails_in_the_middle():
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, grad):
            raise KeyError("mine")

    x = parameters(4)
    with OpTimeMeasure() as tool:
        with pytest.raises(KeyError, match="mine"):
            Fails.apply(x.exp()).square().sum().backward()
        (x * 2).sum().backward()
    assert find(tool.rows(), "square", "backward")["count"] == 1
    assert find(tool.rows(), "mul", "backward")["count"] == 1


def test_share_is_of_the_watched_steps(monkeypatch):
    with OpTimeMeasure() as tool:
        for _ in range(3):
            torch.ones(1000, device="cuda").exp()
            tool.flush()  # ends no step
            tool.step()
        tool.step()  # nothing was called: does not count
        time.sleep(0.05)
    facts = tool.describe()
    assert facts["steps"] == 3
    total = sum(row["total_ns"] for row in tool.rows())
    assert sum(row["share"] for row in tool.rows()) == pytest.approx(total / facts["wall_ns"])
    assert 0 < total <= facts["wall_ns"]


def test_losses_are_bitwise_the_same():
    def train(tool):
        torch.manual_seed(3)
        model = torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.GELU(), torch.nn.Linear(12, 2)).cuda()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        losses = []
        with tool:
            for _ in range(8):
                loss = model(torch.randn(5, 6, device="cuda")).square().mean()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                losses.append(loss.item())
        return losses

    assert train(contextlib.nullcontext()) == train(OpTimeMeasure())


# Files


def test_trace_is_a_chrome_trace(tmp_path):
    x = parameters(4, 4)
    with OpTimeMeasure(trace=True) as tool:
        x.exp().sum().backward()
    (path,) = glob.glob(str(tmp_path / "op_tools_results/op_time_measure_result/trace_pid*.json"))
    tool.export_trace(tmp_path / "own.json")
    for name in (path, tmp_path / "own.json"):
        with open(name) as file:
            events = json.load(file)
        events = events["traceEvents"] if isinstance(events, dict) else events
        assert {"torch.Tensor.exp", "torch.Tensor.sum"} <= {event.get("name") for event in events}


def test_a_trace_needs_the_log():
    with pytest.raises(ValueError, match="log=0"):
        OpTimeMeasure(trace=True, log=False).start()


def test_without_a_log_there_is_a_table_and_no_file(tmp_path, capsys):
    with OpTimeMeasure(log=False) as tool:
        torch.ones(3, device="cuda").exp()
    assert find(tool.rows(), "exp")["count"] == 1
    assert not glob.glob(str(tmp_path / "op_tools_results/op_time_measure_result/*"))
    with pytest.raises(RuntimeError, match="no log"):
        tool.export_csv(tmp_path / "x.csv")


def test_records_carry_times_signature_and_arguments():
    x = parameters(4, 4)
    with OpTimeMeasure() as tool:
        x.exp().sum(dim=1).sum().backward()
    records = list(tool.records("time"))
    (forward,) = [r for r in records if r["name"] == "torch.Tensor.exp" and r["kind"] == "forward"]
    (backward,) = [r for r in records if r["name"] == "torch.Tensor.exp" and r["kind"] == "backward"]
    assert forward["id"] == backward["id"] and forward["signature"] == backward["signature"] == "float32[4,4]"
    assert forward["duration_ns"] > 0 and forward["device_ns"] > 0 and backward["device_ns"] > 0
    assert forward["args.0"]["shape"] == [4, 4] and forward["out"]["shape"] == [4, 4]
    assert backward["grad_out.0"]["shape"] == [4, 4] and backward["grad_in.0"]["shape"] == [4, 4]
    assert [r["kwargs.dim"] for r in records if "kwargs.dim" in r] == [1]


def test_summary_table(capsys):
    with OpTimeMeasure(top=1):
        x = torch.ones(3, device="cuda")
        x.exp()
        x.log()
    text = capsys.readouterr().err
    assert "op " in text and "share %" in text and "ms in operators of" in text
    assert "2 more rows; top=0 shows all" in text
