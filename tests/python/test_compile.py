"""torch.compile on the device uses the graph engine, whatever the mode; said once; the CPU keeps Inductor's path."""

import ditorch  # noqa: F401
import pytest
import torch
from conftest import run_python
from ditorch import compiler


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()


@pytest.mark.parametrize(
    "options", [{}, {"mode": "reduce-overhead"}, {"mode": "max-autotune"}, {"backend": "inductor"}, {"fullgraph": True}]
)
def test_every_way_in(options):
    x = torch.randn(4, 4, device="cuda")
    function = torch.compile(lambda a: torch.relu(a @ a) + 1, **options)
    torch.testing.assert_close(function(x), torch.relu(x @ x) + 1)


def test_training_step():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)).cuda()
    x = torch.randn(5, 4, device="cuda")
    model(x).sum().backward()
    wanted = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    torch.compile(model)(x).sum().backward()
    for parameter, gradient in zip(model.parameters(), wanted, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


def test_device_only_inside_the_graph():
    function = torch.compile(lambda a: (a.cuda() + 1).cpu())
    assert torch.equal(function(torch.ones(3)), torch.full((3,), 2.0))


def test_streams_and_autocast_inside_the_graph():
    def function(a):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            b = a * 2
        torch.cuda.current_stream().wait_stream(stream)
        with torch.autocast("cuda"):
            return b @ b

    x = torch.ones(4, 4, device="cuda")
    result = torch.compile(function)(x)
    assert result.dtype is torch.float16 and result[0, 0].item() == 16


def test_graphs_on_the_cpu_are_left_alone():
    graph = torch.fx.symbolic_trace(lambda a: a + 1)
    assert not compiler.uses_device(graph, [torch.ones(1)])
    assert compiler.uses_device(graph, [torch.ones(1, device="cuda")])
    module = torch.fx.GraphModule(torch.nn.Linear(1, 1).cuda(), torch.fx.symbolic_trace(torch.nn.Linear(1, 1)).graph)
    assert compiler.uses_device(module, [torch.ones(1)])


def test_said_once(capfd, monkeypatch):
    monkeypatch.setattr(compiler, "_said", set())
    x = torch.ones(2, device="cuda")
    for k in range(3):
        torch.compile(lambda a, k=k: a + k)(x)
    assert capfd.readouterr().err.count("uses dit (the device's graph engine), not Inductor") == 1


@pytest.mark.parametrize(("options", "named"), [
    ({"mode": "reduce-overhead"}, "mode='reduce-overhead'"),
    ({"mode": "max-autotune", "backend": "dit"}, "mode='max-autotune'"),
    ({"options": {"max_autotune": True}}, "options={'max_autotune': True}"),
    ({"options": {"anything": 1}, "backend": "topsgraph"}, "options={'anything': 1}"),
    ({"mode": "default"}, ""),
    ({}, ""),
])  # fmt: skip
def test_what_is_ignored_is_named_once(options, named, monkeypatch, capfd):
    monkeypatch.setattr(compiler, "_said", set())
    x = torch.ones(2, device="cuda")
    for k in range(2):
        torch.compile(lambda a, k=k: a + k, **options)(x)
    said = [line for line in capfd.readouterr().err.splitlines() if "changes nothing" in line]
    assert len(said) == bool(named) and all(f"torch.compile({named})" in text for text in said)


def test_modes_of_the_cpu_are_its_own(monkeypatch):
    monkeypatch.setattr(compiler, "_said", set())
    torch.compile(lambda a: a + 1, mode="reduce-overhead", backend="inductor")  # nothing is compiled yet
    assert not compiler._said


def test_attention_inside_the_graph():
    x = torch.randn(1, 2, 4, 8, device="cuda")
    attention = torch.nn.functional.scaled_dot_product_attention
    torch.testing.assert_close(torch.compile(lambda a: attention(a, a, a) + 1)(x), attention(x, x, x) + 1)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_tool_that_starts_inside_of_a_compiled_function_breaks_the_graph(backend):
    import op_tools

    seen = []

    @torch.compile(backend=backend)
    def function(a):
        b = a + 1
        with op_tools.OpObserve(console="off", log=False) as observe:
            b = b * 2
        seen.append(observe.counts()["seen"])
        return b - 1

    x = torch.ones(3, device="cuda")
    for _ in range(2):
        assert torch.equal(function(x), torch.full((3,), 3.0, device="cuda"))
    assert seen == [1, 1]
    with op_tools.OpObserve(console="off", log=False) as observe:
        x + 1
    assert observe.counts()["seen"] == 1
    assert torch.equal(torch.compile(lambda a: a * 3, backend=backend)(x), x * 3), "the compiler has its thread back"


def test_cudagraphs_runs_without_a_capture():
    x = torch.randn(4, 4, device="cuda", requires_grad=True)
    result = torch.compile(lambda a: torch.relu(a @ a) + 1, backend="cudagraphs")(x)
    torch.testing.assert_close(result, torch.relu(x @ x) + 1)
    result.sum().backward()
    assert x.grad is not None


def test_ahead_of_time_is_refused_in_one_sentence():
    from ditorch.refusal import NotSupportedError

    program = torch.export.export(torch.nn.Linear(2, 2).cuda(), (torch.ones(1, 2, device="cuda"),))
    with pytest.raises(NotSupportedError, match=r"aoti_compile_and_package is not supported .* use torch.compile"):
        torch._inductor.aoti_compile_and_package(program)


def test_the_device_under_its_own_name():
    program = """
import ditorch, torch
x = torch.randn(4, 4, device="cuda", requires_grad=True)
assert x.device.type == "dit"
for backend in ("inductor", "aot_eager", "cudagraphs"):
    torch._dynamo.reset()
    result = torch.compile(lambda a: torch.relu(a @ a) + 1, backend=backend)(x)
    torch.testing.assert_close(result, torch.relu(x @ x) + 1)
    result.sum().backward()
"""
    run_python(program, DITORCH_SHOW_DEVICE_AS_CUDA="0")


def test_without_the_alias():
    """Views, rows, fusion and layouts under the device's own name; a graph of the CPU is not the device's."""
    program = """
        import torch, ditorch
        from ditorch import compiler, graph
        kept = graph.keep()
        model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.GELU(), torch.nn.LayerNorm(6)).to("dit")
        x = torch.randn(2, 3, 8, 8, device="dit").to(memory_format=torch.channels_last)
        for words in ({}, {"backend": "topsgraph"}, {"mode": "reduce-overhead"}, {"backend": "aot_eager"}):
            torch._dynamo.reset()
            made = torch.compile(model, **words)(x)
            torch.testing.assert_close(made.flatten(1), model(x).flatten(1))
            made.sum().backward()
        assert len(kept) == 6 and any(step["kind"] == "region" for step in kept[0].describe()[0]["steps"])
        assert kept[0].device == 0 and not kept[0].islands
        assert compiler.is_on_device(x) and not compiler.is_on_device(x.cpu())
        """
    run_python(program, DITORCH_ALIAS="off")
