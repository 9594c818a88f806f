"""compare_accuracy and module_tools.compare: the table, the verdicts, the first layer that is wrong, the metric set."""

import csv
import json
import math
import os
import pickle
import zipfile

import ditorch
import numpy
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from module_tools import CompLayerAcc, cmp_accuracy, compare_accuracy, judge, metrics, naming
from module_tools import compare as command
from test_module_tools import Gpt, LeNet, Lstm, loss_of, make_input

GOLDEN = os.path.join(os.path.dirname(__file__), "golden", "module_tools.txt")


def run(folder, kind, place, benchmark, fault="", steps=1, fixed=False, seed=3, weights=True):
    """A short training under the tool; the number of faults that fired."""
    torch.manual_seed(seed)
    model = kind()
    data = [make_input(kind, "cpu") for _ in range(steps)]
    model = model.to(place)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with CompLayerAcc(model, benchmark, fixed, folder, weights=weights) as tool, ditorch.fault(fault) as faults:
        for x in data:
            loss_of(model(x.to(place))).backward()
            optimizer.step()
            optimizer.zero_grad()
            tool.step()
        return faults.count


def save(folder, side, kind, name, rank=0, **item):
    path = f"{folder}/rank{rank}/{side}/{kind}"
    os.makedirs(path, exist_ok=True)
    torch.save({"layer_name": name, **item}, f"{path}/{name}.pt")


def save_original(folder, side, layers, rank=0):
    """A folder as the original writes it: one file per layer, no steps."""
    for name, (inputs, output, grad_input) in layers.items():
        save(folder, side, "forward", name, rank, input=inputs, output=output)
        save(folder, side, "backward", name, rank, grad_input=grad_input, grad_output=(torch.ones(1),))
    root = f"{folder}/rank{rank}/{side}"
    for file in ("modules_full_name.txt", "modules_full_name_run.txt"):
        with open(f"{root}/{file}", "w") as out:
            out.writelines(f"{name}\n" for name in layers)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    return tmp_path


# The table


def test_the_table_is_that_of_the_original(folder, capsys):
    one, two = torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.5])
    expected = {
        "LeNet.conv1": ((one,), one, (None,)),
        "LeNet.pool": ((one,), (one, {"a": one}), (one,)),
        "LeNet.gone": ((one,), one, (one,)),
        "LeNet": ((one,), one, (one, one)),
    }
    real = {
        "LeNet.conv1": ((one,), one + 1e-4, (None,)),
        "LeNet.pool": ((one,), (one, {"a": two}), (one,)),
        "LeNet.new": ((one,), one, (one,)),
        "LeNet": ((one,), two, (one, two)),
    }
    save_original(folder, "expected", expected)
    save_original(folder, "real", real)
    os.remove(f"{folder}/rank0/real/backward/LeNet.conv1.pt")
    os.remove(f"{folder}/rank0/expected/backward/LeNet.conv1.pt")
    result = compare_accuracy(folder)
    text = capsys.readouterr().out
    if os.environ.get("UPDATE_GOLDEN"):
        with open(GOLDEN, "w") as file:
            file.write(text)
    with open(GOLDEN) as file:
        assert text == file.read()
    assert not result.ok and result.only_expected == ["LeNet.gone"] and result.only_real == ["LeNet.new"]


def test_steps_and_calls_are_rows(folder, capsys):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.f = nn.Linear(2, 2)

        def forward(self, x):
            return self.f(self.f(x))

    torch.manual_seed(0)
    model = Net()
    for benchmark in (True, False):
        with CompLayerAcc(model, benchmark, False, folder) as tool:
            for i in range(2):
                model(torch.full((1, 2), float(i)))
                tool.step()
    capsys.readouterr()
    result = compare_accuracy(folder)
    lines = [line.split("|")[2].strip() for line in capsys.readouterr().out.splitlines() if line.startswith("| ")][1:]
    one = ["Net.f (step 0, call 0)", "Net.f (step 0, call 1)", "Net (step 0, call 0)"]
    assert lines == one + [line.replace("step 0", "step 1") for line in one]
    assert result.ok and result.first == []
    assert [row.step for row in compare_accuracy(folder, steps=1).rows] == [1, 1, 1]


def test_several_ranks_and_a_missing_side(folder, monkeypatch, capsys):
    model = nn.Linear(2, 2)
    for rank in ("0", "2"):
        monkeypatch.setenv("RANK", rank)
        for benchmark in (True, False) if rank == "0" else (True,):
            with CompLayerAcc(model, benchmark, False, folder):
                model(torch.ones(1, 2))
    result = compare_accuracy(folder)
    out = capsys.readouterr().out
    assert "No.(rank0)" in out and "rank2: nothing to compare" in out
    assert not result.ok and len(result.errors) == 1
    assert cmp_accuracy.single_process_cmp_accuracy(folder / "rank0").ok
    with pytest.raises(FileNotFoundError, match="does not exist; give the data_path"):
        compare_accuracy(folder / "nowhere")
    with pytest.raises(FileNotFoundError, match="has no rank<N> folder"):
        compare_accuracy(folder / "rank0" / "expected")


def test_csv_and_json(folder):
    run(folder, LeNet, "cpu", True)
    run(folder, LeNet, "cpu", False, seed=4)
    result = compare_accuracy(folder, csv_path=folder / "out.csv", json_path=folder / "out.json")
    with open(folder / "out.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    with open(folder / "out.json") as file:
        data = json.load(file)
    assert data["ok"] is False and data["first"] == result.first and len(data["items"]) == len(rows)
    bad = [row for row in rows if row["allclose"] == "0"]
    assert {row["what"] for row in bad} >= {"forward", "input", "weights"} and all(row["err"] for row in bad)


# Verdicts


def pair(folder, expected, real, **options):
    save(folder, "expected", "forward", "Net", input=(), output=expected)
    save(folder, "real", "forward", "Net", input=(), output=real)
    result = compare_accuracy(folder, **options)
    return result.ok, result.rows[0].forward


def test_m4_every_difference_is_reported_per_item(folder):
    one = torch.ones(2)
    for expected, real, part in [
        (one, one.double(), "dtype: expected float32, real float64"),
        (one, torch.ones(3), "shape: expected [2], real [3]"),
        (one, None, "expected: float32[2], real: None"),
        (None, one, "expected: None, real: float32[2]"),
        (one, 1.0, "expected: float32[2], real: float"),
        ("a", "b", "expected: 'a', real: 'b'"),
        (True, False, "expected: True, real: False"),
        (2, 3, "max_diff: 1.000000, expected: 2.000000, real: 3.000000, relative err: 0.500000"),
        (0, 3, "relative err: inf"),
        (10**400, 10**400 + 1, "expected: 1000"),
        (torch.zeros(1), torch.ones(1), "max_diff: 1.000000, expected: 0.000000, real: 1.000000, relative err: inf"),
        (one, one * math.nan, "max_diff: nan"),
        (torch.complex(one, one), one, "dtype: expected complex64, real float32"),
    ]:
        ok, cell = pair(folder, {"bad": expected, "good": one}, {"bad": real, "good": one})
        assert not ok and part in cell["bad"]["err"] and cell["bad"]["allclose"] == 0, (cell, part)
        assert cell["good"] == {"allclose": 1}


def test_m4_lengths_and_keys_that_differ(folder):
    one = torch.ones(2)
    _, cell = pair(folder, (one, one), (one,))
    assert cell == {"0": {"allclose": 1}, "1": {"allclose": 0, "err": "only in expected: float32[2]"}}
    _, cell = pair(folder, {"a": one}, {"a": one, "b": None})
    assert cell["b"] == {"allclose": 0, "err": "only in real: None"}
    ok, cell = pair(folder, {"allclose": one, "error": one}, {"allclose": one, "error": one + 1})
    assert not ok and cell["allclose"] == {"allclose": 1} and cell["error"]["allclose"] == 0


def test_what_agrees(folder):
    odd = torch.tensor([math.nan, math.inf, -math.inf, 1.0])
    for value in (odd, None, (), [None], 1.5, True, "t", torch.zeros(0), torch.tensor(2**62), torch.ones(2).bool()):
        ok, _ = pair(folder, value, value)
        assert ok, value
    assert pair(folder, odd, torch.tensor([math.nan, math.inf, math.inf, 1.0]))[0] is False
    assert pair(folder, torch.tensor(2**62), torch.tensor(2**62 + 1), atol=0.5, rtol=0)[0] is False
    ok, cell = pair(folder, torch.ones(2), torch.ones(2).bfloat16(), check_dtype=False)
    assert ok and cell == {"allclose": 1, "err": "dtype: expected float32, real bfloat16"}


def test_m4_atol_and_rtol_are_not_swapped(folder):
    big, small = torch.tensor([1000.0]), torch.tensor([0.0])
    assert pair(folder, big, big + 5, atol=0.0, rtol=1e-2)[0]
    assert not pair(folder, big, big + 5, atol=1e-2, rtol=0.0)[0]
    assert pair(folder, small, small + 5e-3, atol=1e-2, rtol=0.0)[0]
    assert not pair(folder, small, small + 5e-3, atol=0.0, rtol=1e-2)[0]
    # Relative to the expected value, not to the real one.
    assert pair(folder, torch.tensor([2.0]), torch.tensor([1.0]), atol=0.0, rtol=0.5)[0]
    assert not pair(folder, torch.tensor([1.0]), torch.tensor([2.0]), atol=0.0, rtol=0.6)[0]


def test_the_verdict_in_c_and_in_torch_is_the_same(monkeypatch):
    generator = torch.Generator().manual_seed(5)
    cases = []
    for dtype in (torch.float32, torch.bfloat16, torch.float64, torch.complex64, torch.int64, torch.uint8, torch.bool):
        for scale in (0, 1e-4, 1e-2, 1):
            a = torch.randn(50, generator=generator) * 3
            cases.append((a.to(dtype), (a + scale * torch.randn(50, generator=generator)).to(dtype)))
    cases.append((torch.tensor([math.nan, math.inf]), torch.tensor([math.nan, 1.0])))
    native = [metrics.is_close(a, b, 1e-2, 1e-3) for a, b in cases]
    monkeypatch.delitem(__import__("sys").modules, "ditorch._C")
    assert native == [metrics.is_close(a, b, 1e-2, 1e-3) for a, b in cases]
    assert True in native and False in native


# By the rule


def run_side(folder, benchmark, place, dtype, fault=""):
    """One step of a small bfloat16 network, or of the same in float64."""
    torch.manual_seed(4)
    model = nn.Sequential(nn.Linear(96, 96), nn.Tanh(), nn.Linear(96, 96)).bfloat16().to(dtype).to(place)
    x = torch.randn(24, 96).bfloat16().to(dtype).to(place)
    with CompLayerAcc(model, benchmark, False, folder), ditorch.fault(fault) as faults:
        model(x).float().square().sum().backward()
        return faults.count


@pytest.fixture
def sides(folder):
    """(data, wide, native): `expected` and the two runs of the CPU; `real` is the test's."""
    run_side(folder / "data", True, "cpu", torch.bfloat16)
    run_side(folder / "wide", True, "cpu", torch.float64)
    run_side(folder / "native", True, "cpu", torch.bfloat16)
    return folder / "data", folder / "wide", folder / "native"


def test_the_rule_judges_by_a_float64_run_and_a_native_run(sides, capsys):
    data, wide, native = sides
    run_side(data, False, "cuda", torch.bfloat16)
    result = compare_accuracy(data, rule="auto", wide=wide, native=native)
    assert result.ok, result.first
    assert "(rule: auto)" in capsys.readouterr().out
    assert run_side(data, False, "cuda", torch.bfloat16, "value:tanh,scale=0.3")
    result = compare_accuracy(data, rule="auto", wide=wide, native=native)
    assert not result.ok and [row.name for row in result.rows if not judge.is_equal(row.forward)]
    record = next(r for r in cmp_accuracy.list_records(result) if not r["allclose"])
    assert "float64: " in record["err"] and "allowed " in record["err"]


def test_an_error_that_fixed_tolerances_miss_is_seen_by_the_rule(sides):
    """A float32 buffer off by a hundred roundings is within 1e-3."""
    data, wide, native = sides
    run_side(data, False, "cuda", torch.bfloat16)
    x = torch.linspace(1, 2, 128)
    for folder, side, value in (
        (data, "expected", x), (data, "real", x * (1 + 1e-5)), (wide, "expected", x.double()), (native, "expected", x),
    ):  # fmt: skip
        save(folder, side, "forward/step0", "extra.call0", layer="extra", output=value, input=())
    assert compare_accuracy(data).ok
    result = compare_accuracy(data, rule="auto", wide=wide, native=native)
    assert [row.name for row in result.rows if not row.ok] == ["extra"]


def test_what_the_two_runs_cannot_decide_is_noted():
    x = torch.linspace(1, 2, 128)
    evidence = judge.Evidence(None, x, "output")
    cell = judge.compare_values([x * 1.5], [x], judge.Rule(), evidence=judge.Evidence([None], [x], "output"))
    assert judge.is_equal(cell) and cell["0"]["err"].startswith("undecided: no float64 reference")
    assert evidence.get(0) == judge.Evidence(None, None, "output")


def test_the_rule_needs_both_runs(sides, folder):
    data, wide, native = sides
    for options in ({"rule": "auto"}, {"rule": "auto", "wide": wide}, {"wide": wide, "native": native}, {"rule": "x"}):
        with pytest.raises(ValueError, match="rule"):
            compare_accuracy(data, **options)
    with pytest.raises(FileNotFoundError, match="rank0"):
        compare_accuracy(data, rule="auto", wide=folder, native=native)


def test_metrics_against_numpy():
    generator = torch.Generator().manual_seed(7)
    expected = torch.randn(3, 40, generator=generator)
    real = expected + 2e-3 * torch.randn(3, 40, generator=generator)
    m = metrics.measure(real, expected, 1e-3, 1e-3)
    a, b = real.numpy().astype(numpy.float64).ravel(), expected.numpy().astype(numpy.float64).ravel()
    d = numpy.abs(a - b)
    assert m.cosine == pytest.approx(a @ b / numpy.linalg.norm(a) / numpy.linalg.norm(b), abs=1e-14)
    assert (m.norm1, m.norm2) == (pytest.approx(d.sum()), pytest.approx(numpy.linalg.norm(d)))
    assert m.max_abs == d.max() and m.index == tuple(numpy.unravel_index(d.argmax(), (3, 40)))
    assert m.above == (d > 1e-3).sum() and m.above_fraction == m.above / 120
    assert m.violating == (d > 1e-3 + 1e-3 * numpy.abs(b)).sum() and m.violating_fraction == m.violating / 120
    assert 0 < m.violating < m.above
    assert (m.expected, m.real) == (b[d.argmax()], a[d.argmax()])


def test_metrics_of_odd_values():
    m = metrics.measure(torch.tensor([math.nan, 1.0]), torch.tensor([2.0, 1.0]), 1e-3, 1e-3)
    assert m.violating == m.above == 1 and math.isnan(m.max_abs) and m.index == (0,)
    one, two = torch.tensor([1.0]), torch.tensor([2.0])
    assert metrics.measure(two, one, 0.0, 0.6).violating == 1  # relative to the expected value
    assert metrics.measure(one, two, 0.0, 0.6).violating == 0
    m = metrics.measure(torch.tensor([math.inf, 1.0]), torch.tensor([math.inf, 1.0]), 1e-3, 1e-3)
    assert m.violating == 0 and m.norm1 == 0
    assert metrics.measure(torch.zeros(3), torch.zeros(3), 1e-3, 1e-3).both_zero
    m = metrics.measure(torch.tensor([2**62 + 1, -(2**62)]), torch.tensor([2**62, 2**62]), 0.5, 0)
    assert m.violating == 2 and m.max_abs == 2.0**63
    assert metrics.measure(torch.tensor([1 + 2j]), torch.tensor([1 + 3j]), 1e-3, 1e-3).violating == 1
    json.dumps(m.to_dict(), allow_nan=False)


# Who is wrong


CASES = [
    (LeNet, "value:convolution,call=2,scale=0.2", "LeNet.conv2 output"),
    (LeNet, "value:addmm,call=1,scale=0.2", "LeNet.fc1 output"),
    (LeNet, "value:*batch_norm*,scale=0.2", "LeNet.norm output"),
    (LeNet, "value:max_pool2d*,scale=0.2", "LeNet output"),
    (LeNet, "value:convolution_backward,call=1,scale=0.5", "LeNet.conv2 grad_input"),
    (LeNet, "value:mm,call=1,scale=0.5", "LeNet.fc2 "),
    (Gpt, "value:*layer_norm,call=2,scale=0.5", "Gpt.layers.1.norm output"),
    (Gpt, "value:embedding,scale=0.5", "Gpt.embed output"),
    (Gpt, "value:*softmax*,call=1,scale=0.9", "Gpt.layers.0 output"),
    (Lstm, "value:_thnn_fused_lstm_cell,call=2,scale=0.9", "Lstm.rnn output"),
]


@pytest.mark.parametrize(("kind", "fault", "culprit"), CASES, ids=[f"{c[0].__name__}-{c[1]}" for c in CASES])
def test_the_faulty_layer_of_the_device_is_named_first(folder, kind, fault, culprit):
    run(folder, kind, "cpu", True, steps=2)
    fired = run(folder, kind, "cuda", False, fault, steps=2)
    if not fired:
        pytest.fail(f"the fault {fault!r} did not fire")
    result = compare_accuracy(folder)
    assert not result.ok
    assert result.first[0].startswith(f"first difference: {culprit}"), result.first
    assert "step 0" in result.first[0]
    kind_of = "its grad_output agreed" if "grad_input" in result.first[0] else "agreed"
    assert kind_of in result.first[0]


@pytest.mark.parametrize("kind", [LeNet, Gpt, Lstm])
def test_a_device_without_fault_is_accused_of_nothing(folder, kind):
    run(folder, kind, "cpu", True, steps=2)
    run(folder, kind, "cuda", False, steps=2)
    result = compare_accuracy(folder)
    assert result.ok and result.first == [] and len(result.rows) >= 6 and result.weights


def test_a_fault_between_the_layers_is_placed(folder):
    run(folder, LeNet, "cpu", True)
    assert run(folder, LeNet, "cuda", False, "value:relu,call=1,scale=0.5")
    first = compare_accuracy(folder).first[0]
    assert first.endswith("after LeNet.conv1 and before LeNet.conv2, whose input differs"), first


def test_a_fault_between_the_layers_in_backward_is_placed(folder):
    run(folder, LeNet, "cpu", True)
    assert run(folder, LeNet, "cuda", False, "value:threshold_backward,call=1,scale=0.5")
    first = compare_accuracy(folder).first[0]
    assert "LeNet.fc1 grad_output, step 0" in first and first.endswith("between LeNet.fc2 and LeNet.fc1"), first


def test_with_fixed_input_only_the_faulty_layer_differs(folder):
    run(folder, LeNet, "cpu", True)
    assert run(folder, LeNet, "cuda", False, "value:convolution,call=1,scale=0.2", fixed=True)
    result = compare_accuracy(folder)
    wrong = [row.name for row in result.rows if not judge.is_equal(row.forward)]
    assert wrong == ["LeNet.conv1"] and result.first[0].startswith("first difference: LeNet.conv1 output")


def test_weights_that_differ_are_not_the_layer_s_fault(folder):
    torch.manual_seed(0)
    model, x = LeNet(), make_input(LeNet, "cpu")
    with CompLayerAcc(model, True, False, folder):
        model(x)
    with torch.no_grad():
        model.conv2.weight[0].mul_(1.5)
    with CompLayerAcc(model, False, False, folder):
        model(x)
    first = compare_accuracy(folder).first[0]
    assert first.startswith("first difference: LeNet.conv2 weights, before step 0: weight: max_diff"), first
    assert "they make LeNet.conv2 output, step 0 differ" in first


def test_data_that_differs_is_no_layer_s_fault(folder):
    model = LeNet()
    for benchmark in (True, False):
        with CompLayerAcc(model, benchmark, False, folder):
            model(make_input(LeNet, "cpu"))
    assert "LeNet input, step 0: the runs were given different data" in compare_accuracy(folder).first[0]


def test_a_wrong_weight_gradient_is_found(folder):
    class Scale(nn.Module):
        def __init__(self, factor):
            super().__init__()
            self.f, self.factor = nn.Linear(3, 3), factor
            self.f.weight.register_hook(lambda grad: grad * self.factor)

        def forward(self, x):
            return self.f(x)

    for factor in (1, 2):
        torch.manual_seed(0)
        model = Scale(factor)
        with CompLayerAcc(model, factor == 1, False, folder):
            model(torch.ones(2, 3)).sum().backward()
    result = compare_accuracy(folder)
    assert not result.ok and result.first[0].startswith(
        "first difference: Scale.f weight gradient, step 0: its grad_out"
    )


def test_a_gradient_that_is_lost_is_a_difference(folder):
    class Net(nn.Module):
        def __init__(self, cut):
            super().__init__()
            self.a, self.b, self.cut = nn.Linear(2, 2), nn.Linear(2, 2), cut

        def forward(self, x):
            h = self.a(x)
            return self.b(h.detach() if self.cut else h)

    for cut in (False, True):
        torch.manual_seed(0)
        model = Net(cut)
        with CompLayerAcc(model, not cut, False, folder, weights=False):
            model(torch.ones(1, 2)).sum().backward()
    result = compare_accuracy(folder)
    row = next(row for row in result.rows if row.name == "Net.a")
    assert row.backward == {"error": "only in expected: no gradient came to it in real"} and not result.ok
    with CompLayerAcc(model, False, False, folder, weights=False), torch.no_grad():
        model(torch.ones(1, 2))  # a run without backward is no difference
    assert compare_accuracy(folder).ok


def test_a_layer_that_raised_is_an_error(folder):
    class Net(nn.Module):
        def forward(self, x):
            if self.fail:
                raise RuntimeError("device lost")
            return x

    model = Net()
    model.fail = False
    with CompLayerAcc(model, True, False, folder):
        model(torch.ones(1))
    model.fail = True
    with CompLayerAcc(model, False, False, folder), pytest.raises(RuntimeError, match="device lost"):
        model(torch.ones(1))
    result = compare_accuracy(folder)
    assert not result.ok and result.rows[0].forward == {"error": "real raised RuntimeError: device lost"}
    assert result.first == ["first difference: Net output, step 0: real raised RuntimeError: device lost"]


# Folders of all kinds


def test_the_original_s_folder_against_ours(folder):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    x = torch.ones(1, 2)
    y = model[0](x).detach()
    layers = {"Sequential.0": ((x,), y, (None,)), "Sequential.1": ((y,), y.relu(), (None,))}
    save_original(folder, "expected", {**layers, "Sequential": ((x,), y.relu(), (None,))})
    with CompLayerAcc(model, False, False, folder) as tool:
        model(torch.zeros(1, 2))  # an earlier iteration: the original keeps the last one only
        tool.step()
        model(x)
    result = compare_accuracy(folder)
    assert [row.name for row in result.rows] == ["Sequential.0", "Sequential.1", "Sequential"]
    assert all(judge.is_equal(row.forward) for row in result.rows)


def test_device_tensors_in_a_file_are_read_on_the_cpu(folder, device):
    one = torch.ones(2, device=device)
    save(folder, "expected", "forward", "Net", input=(one,), output=one)
    save(folder, "real", "forward", "Net", input=(one,), output=one)
    assert compare_accuracy(folder).ok


def test_names_under_a_wrapper_are_matched(folder):
    one = torch.ones(2)
    save_original(folder, "expected", {"Net.a": ((one,), one, (one,)), "Net": ((one,), one, (one,))})
    wrapped = {
        "DistributedDataParallel.module.a": ((one,), one, (one,)),
        "DistributedDataParallel.module": ((one,), one, (one,)),
    }
    save_original(folder, "real", wrapped)
    result = compare_accuracy(folder)
    assert result.ok and [row.name for row in result.rows] == ["Net.a", "Net"]


class Evil:
    def __reduce__(self):
        return os.system, ("touch evil",)


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_broken_and_malicious_files_are_one_error_each(folder, monkeypatch):
    monkeypatch.chdir(folder)
    one = torch.ones(200)
    names = ["Net.evil", "Net.cut", "Net.text", "Net.list", "Net.empty", "Net.good"]
    for side in ("expected", "real"):
        save_original(folder, side, dict.fromkeys(names, ((one,), one, (one,))))
    path = folder / "rank0/real/forward"
    with open(path / "Net.evil.pt", "wb") as file:
        pickle.dump({"layer_name": "Net.evil", "output": Evil()}, file)
    data = (path / "Net.cut.pt").read_bytes()
    (path / "Net.cut.pt").write_bytes(data[: len(data) // 2])
    (path / "Net.text.pt").write_text("not a tensor")
    torch.save([1, 2], path / "Net.list.pt")
    (path / "Net.empty.pt").write_bytes(b"")
    result = compare_accuracy(folder)
    assert not result.ok and not os.path.exists(folder / "evil")
    cells = {row.name: row.forward for row in result.rows}
    assert cells["Net.good"] == {"allclose": 1}
    assert all("error" in cells[name] for name in names[:-1]), cells
    assert "Net.evil output, step 0: real: " in result.first[0] and "agreed" not in result.first[0]
    torch.save(Evil(), path / "Net.evil.pt")
    with zipfile.ZipFile(path / "Net.evil.pt") as archive:
        assert archive.namelist()
    assert "error" in {row.name: row.forward for row in compare_accuracy(folder).rows}["Net.evil"]
    assert not os.path.exists(folder / "evil")


def test_bytes_changed_at_random_never_stop_the_comparison(folder):
    seed = 11
    generator = torch.Generator().manual_seed(seed)
    one = torch.arange(8.0)
    for side in ("expected", "real"):
        save(folder, side, "forward", "Net", input=(one,), output={"a": one, "b": [one, 3, "x"]})
    path = folder / "rank0/real/forward/Net.pt"
    data = path.read_bytes()
    for _ in range(150):
        broken = bytearray(data)
        for _ in range(1 + int(torch.randint(4, (1,), generator=generator))):
            broken[int(torch.randint(len(data), (1,), generator=generator))] = int(
                torch.randint(256, (1,), generator=generator)
            )
        path.write_bytes(broken)
        result = compare_accuracy(folder)
        assert len(result.rows) == 1, f"seed {seed}"


def test_steps_text():
    chosen = naming.parse_steps("0, 4-6,9")
    assert [step for step in range(12) if chosen(step)] == [0, 4, 5, 6, 9]
    assert naming.parse_steps(range(2))(1) and not naming.parse_steps([3])(1) and naming.parse_steps(3)(3)
    for text in ("", "a", "3-", "-3", "1,,2"):
        with pytest.raises(ValueError, match="is no step; valid: numbers and ranges"):
            naming.parse_steps(text)


# The command line


def test_m7_importing_does_nothing_and_folders_are_arguments(folder, python):
    answer = python("-c", "import module_tools.compare", cwd=folder)
    assert answer.stdout == answer.stderr == "" and os.listdir(folder) == []


def test_m7_the_command_prints_the_metric_set(folder, capsys):
    run(folder, LeNet, "cpu", True)
    assert run(folder, LeNet, "cuda", False, "value:convolution,call=2,scale=0.2")
    capsys.readouterr()
    assert command.main([str(folder)]) == 1
    out = capsys.readouterr().out
    heads = [line for line in out.splitlines() if line.startswith("=" * 20 + " ")]
    layers = ["conv1", "conv2", "norm", "fc1", "fc2"]
    forward = [f"FWD (output) - LeNet.{name}.call0.pt" for name in layers] + ["FWD (output) - LeNet.call0.pt"]
    backward = [text.replace("FWD (output)", "BWD (grad_input)") for text in reversed(forward)]
    assert heads == [f"{'=' * 20} {text} {'=' * 20}" for text in forward + backward]
    assert "cosine similarity: 1.000000000" in out and "[0] both None" in out
    assert "violating atol 0.001 + rtol 0.001 * |expected|: 0 of" in out
    assert "first difference: LeNet.conv2 output, step 0" in out


def test_exit_status_and_options(folder, capsys, python):
    run(folder, LeNet, "cpu", True, steps=2)
    run(folder, LeNet, "cpu", False, steps=2)
    sides = [str(folder / "rank0" / side) for side in ("expected", "real")]
    assert command.main(sides) == 0
    capsys.readouterr()
    out = folder / "out.jsonl"
    words = [*sides, "--quiet", "--weights", "--steps", "1", "--layers", "*.conv?", "--json", str(out)]
    assert command.main(words) == 0
    records = [json.loads(line) for line in out.read_text().splitlines()]
    assert {r["step"] for r in records} == {1} and {r["layer_name"] for r in records} == {"LeNet.conv1", "LeNet.conv2"}
    assert {r["kind"] for r in records} == {"forward", "backward", "weights", "gradients"}
    assert capsys.readouterr().out == f"{len(records)} compared, 0 differ\n"
    assert command.main([str(folder), "--layers", "nothing"]) == 2
    assert command.main([sides[0], sides[0]]) == 2
    assert command.main([str(folder / "nowhere")]) == 2
    assert "is no folder" in capsys.readouterr().err
    answer = python("-m", "ditorch", "compare-modules", str(folder), check=False)
    assert answer.returncode == 0 and "compared, 0 differ" in answer.stdout


def test_the_command_takes_two_data_folders(folder, capsys):
    run(folder / "a", LeNet, "cpu", True)
    run(folder / "b", LeNet, "cpu", True, seed=9)  # both are `expected` runs, of two machines
    assert command.main([str(folder / "a"), str(folder / "b"), "--quiet"]) == 1
    assert command.main([str(folder / "a"), str(folder / "b"), "--quiet", "--allow-failed-pattern", "^LeNet"]) == 0
    assert command.main([str(folder / "a"), str(folder / "b"), "--quiet", "--allow-failed-pattern", "conv"]) == 1
    assert command.main([str(folder / "a"), str(folder / "b"), "--allow-failed-pattern", "("]) == 2
    assert command.main([str(folder / "a" / "rank0"), str(folder / "b" / "rank0"), "--quiet"]) == 1


def test_the_command_reports_what_cannot_be_measured(folder, capsys):
    one = torch.ones(2)
    save_original(folder, "expected", {"Net": ((one,), (one, one, torch.zeros(2), None, 3), (None,))})
    save_original(folder, "real", {"Net": ((one,), (one.double(), torch.ones(3), torch.zeros(2), None, 4), (None,))})
    assert command.main([str(folder)]) == 1
    out = capsys.readouterr().out
    for text in ("[0] dtype: expected torch.float32", "[1] shape: expected [2]", "[2] both all zero", "[3] both None"):
        assert text in out
    assert "[4] max_diff: 1.000000" in out
    assert command.main([str(folder), "--no-check-dtype"]) == 1


def test_a_module_that_is_a_function_of_its_own(folder):
    """A custom autograd function around a layer keeps its identity and its gradient."""

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 3

    class Net(nn.Module):
        def forward(self, x):
            return Double.apply(x)

    x = torch.ones(2, requires_grad=True)
    with CompLayerAcc(Net(), True, False, folder) as tool:
        F.relu(tool.model(x)).sum().backward()
    item = torch.load(f"{folder}/rank0/expected/backward/Net.pt", weights_only=True)
    assert torch.equal(item["grad_input"][0], torch.full((2,), 3.0)) and torch.equal(x.grad, item["grad_input"][0])
