"""backend="dit" over what people compile (compile_cases.py): forward, backward, optimizer; no island unexplained."""

import copy

import compile_cases
import ditorch  # noqa: F401
import pytest
import torch
from compile_cases import DEVICE, FUNCTIONS, TRAINED
from ditorch import graph, settings

OF_PYTORCH = {
    "aten::arange", "aten::arange.start_step", "aten::randn_like", "aten::rand_like", "aten::new_empty_strided",
    "aten::_scaled_dot_product_fused_attention_overrideable",
    "aten::_scaled_dot_product_fused_attention_overrideable_backward",
}  # fmt: skip
"""Operators that the device has no row for: PyTorch writes numbers in order, draws, and the CPU's kernels attend."""


@pytest.fixture(autouse=True)
def kept():
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield graph.keep()
    graph.keep(False)


@pytest.fixture
def chosen():
    """The graph engine where Inductor is asked for."""
    settings.load(overrides={"compile_backend": "dit"})
    yield
    settings.load()


def list_islands(kept):
    return {name for entry in kept if not isinstance(entry, str) for name in entry.islands}


def run_pair(function, compiled, arguments):
    """What both give for the same random numbers, and what became of their arguments."""
    results = []
    for run in (function, compiled):
        given = [argument.clone() for argument in arguments]
        torch.manual_seed(3)
        results.append([run(*given), *given])
    return results


@pytest.mark.parametrize("name", FUNCTIONS)
def test_forward(name, kept):
    case = FUNCTIONS[name]
    function, *arguments = case.make()
    twin = copy.deepcopy(function) if isinstance(function, torch.nn.Module) else function
    compiled = torch.compile(twin, backend="dit", **case.options)
    for _ in range(2):
        wanted, got = run_pair(function, compiled, arguments)
        for one, other in zip(got, wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
        graph.settle()
    assert list_islands(kept) <= OF_PYTORCH | set(case.islands)
    reasons = [entry for entry in kept if isinstance(entry, str)]
    assert all(any(why in reason for why in case.splits) for reason in reasons), reasons


def train(make, loss_of, backend, compiles_optimizer=False, autocast=None, dynamic=None, steps=3):
    """Losses, and the parameters and gradients at the end."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = make().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    run, update = model, optimizer.step
    if backend:
        run = torch.compile(model, backend=backend, dynamic=dynamic)
        update = torch.compile(optimizer.step, backend=backend) if compiles_optimizer else optimizer.step
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        torch.manual_seed(step)
        with torch.autocast(DEVICE, dtype=autocast, enabled=autocast is not None):
            loss = loss_of(run)
        loss.backward()
        update()
        losses.append(loss.detach())
    held = [*model.parameters(), *model.buffers()]
    return torch.stack(losses), [p.detach() for p in held], [p.grad for p in model.parameters()]


def check_training(kept, name, tolerance=1e-4, **options):
    make, loss_of = TRAINED[name](**({"dropout": options.pop("dropout")} if "dropout" in options else {}))
    wanted = train(make, loss_of, None, autocast=options.get("autocast"))
    got = train(make, loss_of, "dit", **options)
    torch.testing.assert_close(got[0].float(), wanted[0].float(), rtol=tolerance, atol=tolerance)
    for mine, eager in zip(got[1:], wanted[1:], strict=True):
        torch.testing.assert_close(mine, eager, rtol=30 * tolerance, atol=10 * tolerance)
    assert list_islands(kept) <= OF_PYTORCH
    return [entry for entry in kept if isinstance(entry, str)]


@pytest.mark.parametrize("name", TRAINED)
def test_training(name, kept):
    assert check_training(kept, name) == []


@pytest.mark.full
@pytest.mark.parametrize("name", TRAINED)
def test_training_with_a_compiled_optimizer(name, kept):
    assert check_training(kept, name, compiles_optimizer=True) == []


@pytest.mark.full
@pytest.mark.parametrize("name", TRAINED)
def test_training_with_symbols(name, kept):
    assert check_training(kept, name, dynamic=True) == []


@pytest.mark.full
@pytest.mark.parametrize("name", TRAINED)
def test_training_in_bfloat16(name, kept):
    check_training(kept, name, tolerance=2e-2, autocast=torch.bfloat16)


def test_training_with_dropout(kept):
    assert check_training(kept, "gpt", dropout=0.2) == []


@pytest.mark.full
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "aot_eager_decomp_partition", "inductor", "cudagraphs"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_other_backends(name, backend, chosen):
    case = FUNCTIONS[name]
    if name == "dropout" and backend == "aot_eager_decomp_partition":
        pytest.skip("PyTorch decomposes dropout into other draws")
    function, *arguments = case.make()
    twin = copy.deepcopy(function) if isinstance(function, torch.nn.Module) else function
    wanted, got = run_pair(function, torch.compile(twin, backend=backend, **case.options), arguments)
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.full
@pytest.mark.parametrize("mode", ["reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"])
def test_modes(mode, chosen, kept):
    function, *arguments = FUNCTIONS["pointwise"].make()
    torch.testing.assert_close(torch.compile(function, mode=mode)(*arguments), function(*arguments))
    assert len(kept) == 1


@pytest.mark.parametrize("trains", [pytest.param(True, marks=pytest.mark.full), False])
@pytest.mark.parametrize("name", [*(pytest.param(name, marks=pytest.mark.full) for name in ("gpt", "llama")), "resnet"])
def test_twenty_batch_sizes_are_one_recompile(name, trains, kept):
    torch._dynamo.utils.counters.clear()
    make, _ = TRAINED[name]()
    model = make().to(DEVICE).train(trains)
    twin = copy.deepcopy(model)
    compiled = torch.compile(twin, backend="dit")
    for batch in range(2, 22):
        _, loss_of = TRAINED[name](batch)
        with torch.set_grad_enabled(trains):
            wanted, got = loss_of(model), loss_of(compiled)
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)
        if trains:
            wanted.backward(), got.backward()
    for mine, eager in zip(twin.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, eager.grad, rtol=1e-3, atol=1e-4)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 2
    assert len(kept) <= 4 and not any(isinstance(entry, str) for entry in kept)


def test_a_batch_norm_in_evaluation_that_gives_its_statistics():
    given = [compile_cases.draw(2, 3, 4), *(compile_cases.draw(3).exp() for _ in range(4))]
    results = []
    for wrap in (lambda f: f, lambda f: torch.compile(f, backend="dit")):
        x = given[0].clone().requires_grad_()
        run = wrap(lambda x, w, b, m, v: torch.native_batch_norm(x * 2, w, b, m, v, False, 0.1, 1e-5))
        made = run(x, *given[1:])
        made[0].square().sum().backward()
        results.append((*made, x.grad))
    torch.testing.assert_close(results[1], results[0])


@pytest.mark.parametrize("kind", ["weights", "masks"])
def test_attention_backward(kind):
    attention = torch.nn.functional.scaled_dot_product_attention
    mask = None if kind == "weights" else compile_cases.draw(6, 6)
    gradients = []
    for wrap in (lambda f: f, lambda f: torch.compile(f, backend="dit")):
        torch.manual_seed(1)
        q = compile_cases.draw(2, 2, 6, 8).requires_grad_()
        wrap(lambda a: attention(a, a * 2, a, attn_mask=mask, is_causal=mask is None))(q).sin().sum().backward()
        gradients.append(q.grad)
    torch.testing.assert_close(gradients[1], gradients[0])


@pytest.mark.full
def test_compiled_autograd(kept):
    make, loss_of = TRAINED["gpt"]()
    results = []
    for compiles in (False, True):
        torch.manual_seed(0)
        model = make().to(DEVICE)
        if compiles:
            with torch._dynamo.compiled_autograd._enable(torch.compile(backend="dit")):
                loss_of(torch.compile(model, backend="dit")).backward()
        else:
            loss_of(model).backward()
        results.append([p.grad for p in model.parameters()])
    for mine, eager in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(mine, eager, rtol=1e-3, atol=1e-4)
    assert list_islands(kept) <= OF_PYTORCH


@pytest.mark.full
def test_an_exported_program_compiles():
    model, tokens = compile_cases.Gpt().to(DEVICE).eval(), compile_cases.draw_words(3, 16)
    program = torch.export.export(model, (tokens,), dynamic_shapes=({0: torch.export.Dim("batch", min=2, max=64)},))
    compiled = torch.compile(program.module(), backend="dit")
    torch.testing.assert_close(compiled(tokens), model(tokens), rtol=1e-4, atol=1e-5)


@pytest.mark.full
def test_flex_attention(chosen):
    from torch.nn.attention.flex_attention import flex_attention

    q = compile_cases.draw(1, 2, 16, 16)
    wanted = torch.nn.functional.scaled_dot_product_attention(q, q, q)
    torch.testing.assert_close(torch.compile(flex_attention)(q, q, q), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.full
def test_a_model_of_a_library(chosen, kept):
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=64, **sizes)).to(DEVICE)
    tokens = compile_cases.draw_words(2, 12)
    losses, gradients = [], []
    for run in (model, torch.compile(model)):
        model.zero_grad()
        losses.append(run(input_ids=tokens, labels=tokens).loss)
        losses[-1].backward()
        gradients.append([p.grad.clone() for p in model.parameters()])
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-3, atol=1e-4)
    assert kept
