"""Nothing makes a whole graph fall back: what the words cannot say runs as it is, counted in the ledger with its
reason, and what lies before and behind of it is compiled."""

import ditorch
import pytest
import torch
from ditorch import graph
from ditorch.graph.explain import Explanation
from ditorch.graph.explain_page import make_page


@pytest.fixture
def kept():
    torch._dynamo.reset()
    ditorch.reset_counters()
    yield graph.keep()
    graph.keep(False)


def compiles_to_the_same(function, *inputs, **options):
    leaves = torch.utils._pytree.tree_leaves
    wanted = leaves(function(*inputs))
    got = leaves(torch.compile(function, **options)(*inputs))
    assert len(got) == len(wanted)
    for mine, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(mine, other)


def list_islands():
    rows = [row for row in ditorch.operators() if row["operator"].startswith("island ")]
    return {row["operator"].removeprefix("island "): row["calls"] for row in rows}


def list_regions(kept):
    plans = [plan for each in kept if not isinstance(each, str) for plan in each.describe()]
    return [step["operations"] for plan in plans for step in plan["steps"] if step["kind"] == "region"]


def draw(*sizes):
    torch.manual_seed(0)
    return torch.randn(*sizes).cuda()


def choose(x):
    y = x * 2 + 1
    z = torch.cond(y.sum() > 0, lambda a: a.sin() * 2, lambda a: a.cos(), (y,))
    return z.exp() + y


def test_cond(kept):
    compiles_to_the_same(choose, draw(4, 8))
    assert list_islands() == {"cond: a higher-order operator": 1}
    assert len(list_regions(kept)) >= 2, "before and behind of it"


def test_cond_in_training(kept):
    leaves = [draw(4, 8).requires_grad_() for _ in range(2)]
    choose(leaves[0]).sum().backward()
    torch.compile(choose)(leaves[1]).sum().backward()
    torch.testing.assert_close(leaves[1].grad, leaves[0].grad)
    assert list_islands()["cond: a higher-order operator"] >= 2 and list_regions(kept)


def test_flex_attention(kept):
    attention = torch.nn.attention.flex_attention.flex_attention

    def function(q):
        return attention(q * 2, q, q, score_mod=lambda score, b, h, i, j: score + i - j) + 1

    compiles_to_the_same(function, draw(1, 2, 16, 16))
    assert list_islands()["flex_attention: a higher-order operator"] == 1
    assert list_regions(kept)[-1] == "LOAD NUMBER ADD"


def test_map_and_scan(kept):
    from torch._higher_order_ops.map import map as over
    from torch._higher_order_ops.scan import scan

    compiles_to_the_same(lambda x: over(lambda a: a.sin() + 1, x * 2) * 3, draw(4, 8))
    compiles_to_the_same(lambda x: scan(lambda c, a: (c + a, c * a), x[0] * 1.0, x * 2)[1] + 1, draw(4, 8))
    assert {name.split(":")[0] for name in list_islands()} == {"map_impl", "scan"}
    assert len(list_regions(kept)) >= 4


def test_an_input_that_cannot_be_said(kept):
    """It troubles its users alone, and nobody where it goes through as it is."""
    x = draw(4, 8)
    lazy = torch.randn(3, dtype=torch.complex64, device="cuda").conj()
    compiles_to_the_same(lambda c, a: (c, (a * 2).exp()), lazy, x)
    assert not list_islands() and list_regions(kept)
    compiles_to_the_same(lambda c, a: (c * 2, (a * 2).exp()), lazy, x)
    (reason,) = {name.split(": ", 1)[1] for name in list_islands() if "conj" in name}
    assert reason.startswith("it takes an input that is a conjugated tensor of torch.strided, torch.complex64")
    assert len(list_regions(kept)) == 2


def test_a_sparse_input(kept):
    """Dynamo does not trace those; a program may hand the engine such a graph itself."""
    from torch.fx.experimental.proxy_tensor import make_fx

    s, x = torch.eye(4).cuda().to_sparse(), draw(4, 8)
    module = make_fx(lambda s, x: (torch.mm(s, x * 2).exp() + 1, s), tracing_mode="fake")(s, x)
    module.graph.eliminate_dead_code()
    made = graph.compile_graph(module)([s, x])
    torch.testing.assert_close(made[0], (x * 2).exp() + 1)
    assert made[1] is s and len(list_regions(kept)) == 2
    ((name, calls),) = list_islands().items()
    assert calls == 1 and name.startswith("aten::mm: it takes an input that is a tensor of torch.sparse")


def test_results_that_are_numbers(kept):
    compiles_to_the_same(lambda x: (x * 2, True, 1.5, None, x.shape[0]), draw(4, 8))
    compiles_to_the_same(lambda x: (x * x.shape[0] + x.shape[0] / 7).sin(), draw(5, 8), dynamic=True)
    assert list_islands() == {"aten::add.Tensor: it takes a SymFloat": 1}
    assert len(list_regions(kept)) == 3


@torch._dynamo.config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True)
def test_numbers_that_only_a_run_tells(kept):
    def count(x):
        n = (x.sum() * 0 + 3).int().item()
        torch._check(n < 4)
        return x * n + 1

    compiles_to_the_same(count, draw(4, 8))
    compiles_to_the_same(lambda x: (x * 2 > 0).nonzero() * 2 + 1, draw(4, 8))
    found = list_islands()
    assert found["aten::_local_scalar_dense: it gives u0, which only a run of the program tells"] == 1
    assert found["aten::nonzero: the size u0, which only a run of the program tells"] == 1
    assert not [name for name in found if name.startswith("graph of")]
    assert len(list_regions(kept)) >= 4


@torch._dynamo.config.patch(capture_scalar_outputs=True)
def test_an_assertion_on_such_a_number_still_holds(kept):
    def count(x, y):
        n = y.item()
        torch._check(n < 4)
        return x * n

    compiled = torch.compile(count)
    compiled(draw(4), torch.tensor(3, device="cuda"))
    with pytest.raises(RuntimeError, match=r"u0 (<= 3|< 4)"):
        compiled(draw(4), torch.tensor(5, device="cuda"))


def test_a_graph_of_one_such_node(kept):
    compiles_to_the_same(lambda c: c * 2, torch.randn(3, dtype=torch.complex64, device="cuda").conj())
    assert any(isinstance(each, str) for each in kept) and list_islands()


def test_explain_names_where_a_graph_is_cut():
    """It said that such a graph runs operator by operator, though its pieces are compiled."""
    torch._dynamo.reset()
    explanation = Explanation()
    explanation.begin()
    try:
        torch.compile(choose)(draw(4, 8))
    finally:
        explanation.end()
    text = explanation.render()
    assert "cut at cond, which PyTorch runs (a higher-order operator); the pieces are graphs of their own" in text
    assert "operator by operator" not in text and "cut at cond" in make_page(explanation, "train.py")
