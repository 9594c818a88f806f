"""The console of the original (op_tools.legacy) against golden files, with real tensors on the device and on the CPU.

Addresses are replaced by one constant before they reach a table; locations and times are given by the events.
Write the golden files anew with: python tests/python/test_legacy_console.py
"""

import csv
import io
import math
import os
import sys
import threading

import pytest
import torch
from op_tools import save_op_args
from op_tools.legacy import console as legacy

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden", "console")
ADDRESS = 20067179823104
WHERE = "train.py:14 norm: y = x * torch.rsqrt(variance + eps)"
FOLDER = "op_tools_results/op_capture_results"


def forward(number, name, func, *args, extra=None, error=None, **kwargs):
    result = None if error else func(*args, **kwargs)
    event = {"id": number, "name": name, "func": func, "args": args, "kwargs": kwargs, "result": result}
    return "forward", {**event, "location": WHERE, "extra": extra, "error": error}


def backward(number, name, grad_outputs, grad_inputs, extra=None):
    event = {"id": number, "name": name, "grad_outputs": grad_outputs, "grad_inputs": grad_inputs, "location": WHERE}
    return "backward", {**event, "round": 0, "extra": extra}


def matrix(place, **options):
    return torch.tensor([[1.0, 2.0], [3.0, 4.0]], device=place, **options)


def observe_events(place):
    x, y = matrix(place), matrix(place, requires_grad=True)
    yield "apply", {"name": "torch.add"}
    yield forward(1, "torch.add", torch.add, x, y, alpha=2)
    yield "skip", {"name": "torch.mul"}
    yield "skip", {"name": "torch.mul"}
    yield forward(2, "torch.Tensor.sort", torch.Tensor.sort, x)
    yield forward(3, "torch.stack", torch.stack, [x, x.half()[:, :1].float().expand(2, 2)], dim=1)
    yield forward(4, "torch.add", torch.add, input=x, other=x)
    yield forward(5, "torch.Tensor.__setitem__", torch.Tensor.__setitem__, x, (0, slice(None)), 7.0)
    yield forward(6, "torch.Tensor.sum", torch.Tensor.sum, x, (0, 1), keepdim=True, dtype=torch.float64)
    yield forward(7, "torch.matmul", torch.matmul, x, torch.ones(3, device=place), error=RuntimeError("shapes"))


def time_events(place):
    x, y = matrix(place), matrix(place, requires_grad=True)
    yield "apply", {"name": "torch.Tensor.mul"}
    yield forward(1, "torch.Tensor.mul", torch.Tensor.mul, x, y, extra={"elasped_ms": 41.592597961425781})
    yield forward(2, "torch.nn.functional.normalize", torch.nn.functional.normalize, x, p=2.0, dim=1, eps=1e-12,
                  out=None, extra={"elasped_ms": 0.05388259887695312})  # fmt: skip
    yield backward(1, "torch.Tensor.mul", (x,), (None, x + 1), {"elasped_ms": 6.453752517700195})


def overflow_events(place):
    x = matrix(place)
    yield "apply", {"name": "torch.div"}
    yield forward(12, "torch.div", torch.div, x, 0.0, rounding_mode=None)
    yield forward(13, "torch.cat", torch.cat, [x[:0], x[:1]])
    yield forward(15, "torch.neg", torch.neg, x[:1, :1])
    yield forward(14, "torch.Tensor.to", torch.Tensor.to, x, torch.float64)
    yield backward(12, "torch.div", (x,), (x / 0, None))


def capture_events(place):
    x = matrix(place, requires_grad=True)

    def saved(*names):
        return {"key": "59/2024-10-09-11-40-14", "saved": [f"{FOLDER}/torch.Tensor.sort/71/59/{n}.pth" for n in names]}

    yield "skip", {"name": "torch.Tensor.div"}
    yield "apply", {"name": "torch.Tensor.sort"}
    yield forward(59, "torch.Tensor.sort", torch.Tensor.sort, x, extra=saved("input", "output"))
    yield backward(59, "torch.Tensor.sort", (x.detach(), None), (x.detach(),), saved("grad_inputs", "grad_outputs"))


EVENTS = {
    "observe": observe_events,
    "time": time_events,
    "overflow": overflow_events,
    "capture": capture_events,
}


def print_events(kind, place):
    text: list[str] = []
    options = {"save": lambda rows: "times.csv"} if kind == "time" else {}
    console = legacy.create(kind, write=text.append, **options)
    for name, event in EVENTS[kind](place):
        console.console(name, event)
    console.close()
    return "".join(text)


@pytest.fixture(autouse=True)
def one_address(monkeypatch):
    monkeypatch.setattr(save_op_args, "data_pointer", lambda tensor: ADDRESS)
    monkeypatch.delenv("OP_TOOLS_PRINT_STACK", raising=False)


@pytest.mark.parametrize("place", ["cpu", "cuda"])
@pytest.mark.parametrize("kind", EVENTS)
def test_golden(kind, place, device):
    with open(f"{GOLDEN}/{kind}-{place}.txt", encoding="utf-8", newline="") as file:
        wanted = file.read()
    assert print_events(kind, place) == wanted


def test_sample_of_the_original():
    """Numbers and rules as a published run of the original shows them."""
    rows = legacy.packect_data_to_dict_list
    one = {"device": "npu:0", "dtype": "float32", "numel": 200, "shape": "(10, 20)", "stride": (20, 1)}
    one.update(requires_grad=True, layout="torch.strided", data_ptr=20067179830784)
    two = {**one, "dtype": "int64", "requires_grad": False, "data_ptr": 20067179832832}
    table = legacy.dict_data_list_to_table(
        rows("torch.Tensor.sort inputs", {"args": (one,)})
        + rows("torch.Tensor.sort outputs", {"args": ((one, two),), "kwargs": {}})
    )
    with open(f"{GOLDEN}/sample.txt", encoding="utf-8") as file:
        assert str(table) + "\n" == file.read()


def test_blank_lines():
    """Gaps exactly as the original prints them."""
    x = torch.ones(1)
    pieces = {}
    for kind in EVENTS:
        text: list[str] = []
        legacy.create(kind, write=text.append).console(*forward(3, "op", torch.neg, x, extra={"key": "3/now"}))
        pieces[kind] = "".join(text)
    assert pieces["observe"].startswith(f"\n\n\nop  3\n{WHERE}\n+") and pieces["observe"].endswith("+\n\n\n\n")
    assert pieces["time"].startswith(f"\n\n\nop    forward_id: 3\n{WHERE}\n+") and pieces["time"].endswith("+\n\n\n\n")
    assert pieces["overflow"].startswith(f"\n\n\nop    forward_id: 3\n{WHERE}\n+")
    assert pieces["capture"].startswith(f"op    forward_id:3/now    {WHERE} \n+")
    assert pieces["capture"].endswith("+ \n\n\n\n\n")


def test_i5_lines_once_per_tool_and_operator(capsys):
    one, two = legacy.create("observe"), legacy.create("time")
    for console in (one, two, one):
        for kind in ("apply", "skip"):
            console.console(kind, {"name": "torch.add"})
    assert capsys.readouterr().out.splitlines() == [
        "apply OpObserveHook on torch.add",
        "skip OpObserveHook on torch.add",
        "apply OpTimeMeasureHook on torch.add",
        "skip OpTimeMeasureHook on torch.add",
    ]


def test_print_stack(monkeypatch):
    monkeypatch.setenv("OP_TOOLS_PRINT_STACK", "1")
    text: list[str] = []
    console = legacy.create("observe", write=text.append)

    def innermost_line():
        console.console("apply", {"name": "torch.neg"})
        console.console(*forward(1, "torch.neg", torch.neg, torch.ones(1)))
        console.console(*forward(2, "torch.neg", torch.neg, torch.ones(1)))

    innermost_line()
    # Before the apply line of the first call, before the block of the second; not twice for one call.
    stacks = [i for i, piece in enumerate(text) if "innermost_line" in piece]
    assert [text[1].startswith("apply "), "torch.neg  1" in text[2], "torch.neg  2" in text[4]] == [True] * 3
    assert stacks == [0, 3] and len(text) == 5
    last = text[0].splitlines()[-1]
    assert last.startswith(f"{__file__}:") and last.endswith(
        ' innermost_line console.console("apply", {"name": "torch.neg"})'
    )
    assert "op_tools" not in last


@pytest.mark.filterwarnings("error")
def test_o1_features_of_difficult_tensors(device):
    features = legacy.tensor_features
    for place in ("cpu", device):
        empty = {"inf_or_nan": False, "min": "", "max": "", "mean": "", "std": "", "norm": 0.0}
        assert list(features(torch.empty(0, device=place)).items()) == list(empty.items())
        single = features(torch.tensor([2.0], device=place))
        assert math.isnan(single.pop("std"))
        assert single == {"inf_or_nan": False, "min": 2.0, "max": 2.0, "mean": 2.0, "norm": 2.0}
        large = features(torch.tensor([1e300, 1e300], dtype=torch.float64, device=place))
        assert large["inf_or_nan"] is False and large["max"] == 1e300
        assert features(torch.tensor([3 + 4j], device=place))["max"] == 5.0
        assert features(torch.tensor([True, False], device=place))["mean"] == 0.5
        assert features(torch.tensor([1.0, math.inf], device=place).to(torch.float8_e5m2))["inf_or_nan"] is True
    assert features(torch.empty(2, device="meta")) == {"inf_or_nan": False}
    assert features(torch.eye(2).to_sparse())["max"] == 1.0


def test_feature_numbers_are_those_of_float32():
    x = torch.tensor([0.1, 0.2, 0.4], dtype=torch.float16)
    wide = x.float()
    assert legacy.tensor_features(x) == {
        "inf_or_nan": False,
        "min": wide.min().item(),
        "max": wide.max().item(),
        "mean": wide.mean().item(),
        "std": wide.std().item(),
        "norm": wide.norm().item(),
    }


# The time table


def time_console(tmp_path, monkeypatch, **options):
    monkeypatch.chdir(tmp_path)
    text: list[str] = []
    return legacy.create("time", write=text.append, **options), text


def read_csv(folder):
    (name,) = os.listdir(folder / "op_tools_results" / "op_time_measure_result")
    assert name.startswith(f"op_elasped_info_pid{os.getpid()}_") and name.endswith(".csv")
    with open(folder / "op_tools_results" / "op_time_measure_result" / name, newline="", encoding="utf-8") as file:
        return file.read()


def test_a15_header_once(tmp_path, monkeypatch):
    console, text = time_console(tmp_path, monkeypatch, limit=2)
    x = torch.ones(1)
    for i in range(1, 6):
        console.console(*forward(i, "torch.neg", torch.neg, x, extra={"elasped_ms": i}))
    console.close()
    console.close()
    data = read_csv(tmp_path)
    lines = list(csv.reader(io.StringIO(data, newline="")))
    assert lines[0] == list(legacy.TIME_FILE_COLUMNS) and [row[1] for row in lines[1:]] == ["1", "2", "3", "4", "5"]
    assert data.count("\r\n") == 6 and lines[1][2] == "1.00000000" and lines[1][3] == "-"
    assert lines[1][5].startswith("{'args': ({'device': 'cpu', 'dtype': 'float32'") and lines[1][7] == "-"
    assert sum("op elasped info saved to op_tools_results/op_time_measure_result/" in piece for piece in text) == 2


def test_late_backward_is_a_row_of_its_own(tmp_path, monkeypatch):
    console, _ = time_console(tmp_path, monkeypatch)
    x = torch.ones(1)
    console.console(*forward(1, "torch.neg", torch.neg, x, extra={"elasped_ms": 1.5}))
    console.console(*backward(1, "torch.neg", (x,), (x,), {"elasped_ms": 2.5}))
    console.close()
    console.console(*backward(1, "torch.neg", (x,), (x,), {"elasped_ms": 3.5}))
    console.close()
    rows = list(csv.reader(io.StringIO(read_csv(tmp_path), newline="")))[1:]
    assert [row[:5] for row in rows] == [
        ["torch.neg", "1", "1.50000000", "2.50000000", "ms"],
        ["torch.neg", "1", "-", "3.50000000", "ms"],
    ]


def test_unwritable_results_stop_nothing(tmp_path, monkeypatch):
    console, text = time_console(tmp_path, monkeypatch)
    (tmp_path / "op_tools_results").write_text("a file")
    console.console(*forward(1, "torch.neg", torch.neg, torch.ones(1), extra={"elasped_ms": 1.5}))
    console.close()
    assert "op elasped info can not be saved: " in text[-1]


def test_threads_do_not_mix():
    text: list[str] = []
    console = legacy.create("observe", write=text.append)
    event = forward(1, "torch.neg", torch.neg, torch.ones(1))
    threads = [threading.Thread(target=lambda: [console.console(*event) for _ in range(50)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(text) == 200 and len(set(text)) == 1


def test_console_never_stops_the_program(monkeypatch):
    class Closed:
        def write(self, text):
            raise ValueError("I/O operation on closed file")

    console = legacy.create("observe")
    for stream in (Closed(), None):
        monkeypatch.setattr(sys, "stdout", stream)
        console.console(*forward(1, "torch.neg", torch.neg, torch.ones(1)))
    monkeypatch.undo()
    monkeypatch.setenv("OP_TOOLS_PRINT_STACK", "nonsense")
    text: list[str] = []
    legacy.create("observe", write=text.append).console(*forward(1, "torch.neg", torch.neg, torch.ones(1)))
    assert len(text) == 1
    legacy.create("observe", write=text.append, print_stack=True).console("apply", {"name": "torch.neg"})
    assert len(text) == 3


def test_unknown_tool():
    with pytest.raises(ValueError, match="'autocompare'; valid: observe, time, overflow, capture"):
        legacy.create("autocompare")


if __name__ == "__main__":
    import ditorch  # noqa: F401

    save_op_args.data_pointer = lambda tensor: ADDRESS
    for kind in EVENTS:
        for place in ("cpu", "cuda"):
            with open(f"{GOLDEN}/{kind}-{place}.txt", "w", encoding="utf-8", newline="") as file:
                file.write(print_events(kind, place))
