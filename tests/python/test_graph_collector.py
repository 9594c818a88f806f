"""DICP's operator collector: the operators of every graph, sorted, by name."""

import ditorch  # noqa: F401
import pytest
import torch
from dicp.tools.op_collector import InnerCompilerOpCollectorContext
from ditorch import graph

WANTED = ["aten.add.Tensor", "aten.relu.default", "aten.sum.default"]


@pytest.fixture(autouse=True)
def fresh(tmp_path, monkeypatch):
    torch._dynamo.reset()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def function(x):
    return torch.relu(x + 1).sum()


@pytest.mark.parametrize("bypass", [True, False])
def test_graphs_of_the_engine(bypass, fresh, capsys):
    x = torch.randn(5, 3, device="cuda")
    kept = graph.keep()
    with InnerCompilerOpCollectorContext(
        collector_name="small", write_file=True, bypass_graph_module=bypass, cache_graph_module=True
    ) as collector:
        torch.testing.assert_close(torch.compile(function, backend="dit")(x), function(x))
    graph.keep(False)
    said = capsys.readouterr().out.splitlines()
    assert said == [
        "graph 0 is cached to small_graph_0.txt",
        "small: 3 operators in 1 graphs",
        *WANTED,
        "op collected in small_op.txt",
    ]
    assert (fresh / "small_op.txt").read_text().splitlines() == WANTED
    assert "aten.relu" in (fresh / "small_graph_0.txt").read_text()
    assert sorted(collector.operators) == WANTED and not graph.watchers and not kept


def test_another_compiler(fresh, capsys):
    from torch._dynamo.backends.common import aot_autograd

    inner, seen = [], []

    def compile_inner(module, inputs):
        inner.append(module)
        return module.forward

    def compile_fx(module, inputs, my_inner):
        seen.append(my_inner)
        return aot_autograd(fw_compiler=my_inner)(module, inputs)

    x = torch.randn(5, 3, device="cuda")
    with InnerCompilerOpCollectorContext(
        compile_inner, compile_fx, inner_compiler_param_key="my_inner", bypass_graph_module=False
    ) as collector:
        torch.testing.assert_close(torch.compile(function, backend=collector.compile_fx)(x), function(x))
    assert len(inner) == 1 and len(seen) == 1 and "module: 3 operators in 1 graphs" in capsys.readouterr().out
    assert not list(fresh.iterdir()), "nothing is written that was not asked for"


def test_training_has_two_graphs(capsys):
    x = torch.randn(5, 3, device="cuda", requires_grad=True)
    with InnerCompilerOpCollectorContext() as collector:
        torch.compile(function, backend="dit")(x).backward()
    assert collector.graphs == 2 and "aten.threshold_backward.default" in collector.operators


def test_half_of_a_compiler_is_refused():
    with pytest.raises(ValueError, match="belong together"):
        InnerCompilerOpCollectorContext(lambda: None)
