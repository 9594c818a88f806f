"""The ledger: which operators ran in C, which fell back; counts, bytes, times."""

import threading

import ditorch
import pytest
import torch


@pytest.fixture(autouse=True)
def from_zero():
    torch.ones(1, device="cuda")
    ditorch.reset_counters()


def rows(table):
    return {row["operator"]: row for row in table}


def calls(table, stem):
    return sum(row["calls"] for row in table if row["operator"].startswith(stem))


def test_c_operators_are_counted():
    x = torch.ones(8, 8, device="cuda")
    ditorch.reset_counters()
    for _ in range(5):
        x @ x
    for _ in range(3):
        x * x
    table = ditorch.operators()
    assert calls(table, "aten::mm") == 5
    assert calls(table, "aten::mul") == 3
    assert calls(ditorch.fallbacks(), "aten::mm") == 0
    row = next(r for r in table if r["operator"].startswith("aten::mm"))
    assert row["bytes"] == 5 * 3 * 8 * 8 * 4


def test_fallbacks_are_counted_and_timed():
    x = torch.rand(100, 100, device="cuda")
    ditorch.reset_counters()
    for _ in range(4):
        torch.linalg.inv(x)
    table = [r for r in ditorch.fallbacks() if "inv" in r["operator"]]
    assert sum(r["calls"] for r in table) == 4
    assert sum(r["milliseconds"] for r in table) > 0
    assert sum(r["bytes"] for r in table) >= 4 * 2 * 100 * 100 * 4


@pytest.mark.parametrize(
    "name",
    ["add", "sub", "mul", "div", "mm", "addmm", "bmm", "relu", "gelu", "softmax", "sum", "mean", "copy", "fill", "cat"],
)
def test_the_first_operators_run_in_c(name):
    x = torch.rand(4, 4, device="cuda")
    run = {
        "add": lambda: x + x,
        "sub": lambda: x - x,
        "mul": lambda: x * 2,
        "div": lambda: x / x,
        "mm": lambda: x @ x,
        "addmm": lambda: torch.addmm(x[0], x, x),
        "bmm": lambda: torch.bmm(x[None], x[None]),
        "relu": lambda: x.relu(),
        "gelu": lambda: torch.nn.functional.gelu(x),
        "softmax": lambda: x.softmax(-1),
        "sum": lambda: x.sum(0),
        "mean": lambda: x.mean(),
        "copy": lambda: torch.empty_like(x).copy_(x.t()),
        "fill": lambda: x.clone().fill_(2),
        "cat": lambda: torch.cat([x, x]),
    }[name]
    ditorch.reset_counters()
    run()
    assert [r["operator"] for r in ditorch.operators()], f"{name} did not run in C"
    assert not list(ditorch.fallbacks()), f"{name} fell back: {[r['operator'] for r in ditorch.fallbacks()]}"


def test_backward_is_counted():
    x = torch.rand(4, 4, device="cuda", requires_grad=True)
    y = (x @ x).sum()
    ditorch.reset_counters()
    y.backward()
    assert calls(ditorch.operators(), "aten::mm") == 2


def test_threads_add_up():
    def work():
        x = torch.ones(4, 4, device="cuda")
        for _ in range(250):
            x * x

    ditorch.reset_counters()
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert calls(ditorch.operators(), "aten::mul") == 1000


def test_cpu_work_is_not_counted():
    torch.ones(4, 4) @ torch.ones(4, 4)
    assert not list(ditorch.operators()) and not list(ditorch.fallbacks())


def test_timing_of_c_operators():
    x = torch.rand(64, 64, device="cuda")
    ditorch.set_timing(True)
    try:
        x @ x
    finally:
        ditorch.set_timing(False)
    assert sum(r["milliseconds"] for r in ditorch.operators() if r["operator"].startswith("aten::mm")) > 0


def test_table_at_exit(python):
    program = """
        import torch, ditorch
        x = torch.ones(3, 3, device="cuda")
        x @ x
        torch.linalg.inv(x + torch.eye(3, device="cuda"))
    """
    answer = python(program, DITORCH_LEDGER=1)
    assert "aten::mm" in answer.stderr and "inv" in answer.stderr
    assert "aten::mm" not in python(program).stderr


def test_conversions_of_the_adaptor_are_shown_per_operator(python, tmp_path):
    """Half types by float32, as the rules say: what was converted how often, for the operator that asked for it."""
    (tmp_path / "rules.yaml").write_text("- common_config:\n    dtype: (float16)->float32\n")
    program = """
        import torch, ditorch
        half, full = (torch.ones(3, 4, device="cuda", dtype=d) for d in (torch.float16, torch.float32))
        ditorch.reset_counters()
        for _ in range(5):
            half @ half.T.contiguous()
        full * full
        table = ditorch.operators()
        rows = {row["operator"]: row for row in table}
        assert table.columns[-3:] == ("converted", "composed", "conversions"), table.columns
        row = rows["aten::mm"]
        assert row["converted"] == 5 and row["composed"] == 0, row
        assert row["conversions"] == "15 float16->float32", row
        assert rows["aten::mul.Tensor"]["converted"] == 0 and rows["aten::mul.Tensor"]["conversions"] == "", rows
        ditorch.reset_counters()
        full * full
        assert ditorch.operators().columns == ("operator", "calls", "bytes", "milliseconds")
    """
    options = {"DITORCH_DIOPI_LIB": "adapt", "DITORCH_ADAPT_RULES": str(tmp_path / "rules.yaml")}
    python(program, DITORCH_BANNER="0", **options)
    program = "import torch, ditorch\nx = torch.ones(2, device='cuda').half()\nx + x"
    answer = python(program, DITORCH_LEDGER=1, **options)
    assert "conversions" in answer.stderr and "float16->float32" in answer.stderr
