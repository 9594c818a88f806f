"""Hot operators by typed arguments (adapter/torch/Direct.cpp): the same results, identities, versions and errors as by
boxed ones. torch.add and the like call them typed, torch.ops.aten.add.Tensor boxed."""

import ditorch
import pytest
import torch
import torch.nn.functional as F

SEED = 20260707


def make(*shape, dtype=torch.float32):
    generator = torch.Generator().manual_seed(SEED)
    if dtype.is_floating_point:
        return torch.rand(*shape, generator=generator, dtype=dtype) + 0.1
    return torch.randint(1, 9, shape, generator=generator, dtype=dtype)


A, B, C = make(4, 6), make(4, 6).flip(0), make(4, 6).flip(1)
ROWS = torch.tensor([3, 0, 2])
CASES = {
    "add": (lambda m: torch.add(m(A), m(B), alpha=2), lambda m: torch.ops.aten.add.Tensor(m(A), m(B), alpha=2)),
    "add number": (lambda m: m(A) + 1.5, lambda m: torch.ops.aten.add.Tensor(m(A), 1.5)),
    "add bool": (lambda m: m(A) + True, lambda m: torch.ops.aten.add.Scalar(m(A), True)),
    "add expanded": (lambda m: m(A) + m(B)[:1], lambda m: torch.ops.aten.add.Tensor(m(A), m(B)[:1])),
    "mul": (lambda m: m(A).t() * m(B).t(), lambda m: torch.ops.aten.mul.Tensor(m(A).t(), m(B).t())),
    "clamp": (lambda m: m(A).clamp(max=0.5), lambda m: torch.ops.aten.clamp(m(A), None, 0.5)),
    "gelu": (lambda m: F.gelu(m(A), approximate="tanh"), lambda m: torch.ops.aten.gelu(m(A), approximate="tanh")),
    "where": (
        lambda m: torch.where(m(A) > 0.5, m(B), m(C)),
        lambda m: torch.ops.aten.where.self(m(A) > 0.5, m(B), m(C)),
    ),
    "sum": (lambda m: m(A).sum((0, -1), keepdim=True), lambda m: torch.ops.aten.sum.dim_IntList(m(A), [0, -1], True)),
    "sum dtype": (lambda m: m(A).sum(dtype=torch.float64), lambda m: torch.ops.aten.sum(m(A), dtype=torch.float64)),
    "max": (lambda m: m(A).max(1), lambda m: torch.ops.aten.max.dim(m(A), 1)),
    "cat": (lambda m: torch.cat((m(A), m(B)), 1), lambda m: torch.ops.aten.cat([m(A), m(B)], 1)),
    "cat 0": (lambda m: torch.cat((m(A), m(A)[:0], m(B))), lambda m: torch.ops.aten.cat([m(A), m(A)[:0], m(B)])),
    "cat types": (lambda m: torch.cat((m(A), m(A).half())), lambda m: torch.ops.aten.cat([m(A), m(A).half()])),
    "stack": (lambda m: torch.stack((m(A), m(B))), lambda m: torch.ops.aten.stack([m(A), m(B)])),
    "index_select": (lambda m: m(A).index_select(0, m(ROWS)), lambda m: torch.ops.aten.index_select(m(A), 0, m(ROWS))),
    "embedding": (lambda m: F.embedding(m(ROWS), m(A)), lambda m: torch.ops.aten.embedding(m(A), m(ROWS))),
    "layer_norm": (
        lambda m: F.layer_norm(m(A), (6,)),
        lambda m: torch.ops.aten.native_layer_norm(m(A), [6], None, None, 1e-5)[0],
    ),
    "layer_norm weight": (
        lambda m: F.layer_norm(m(A), (6,), m(B)[0], m(C)[0]),
        lambda m: torch.ops.aten.native_layer_norm(m(A), [6], m(B)[0], m(C)[0], 1e-5)[0],
    ),
    "foreach": (
        lambda m: torch._foreach_mul([m(A), m(B)], 2.0),
        lambda m: torch.ops.aten._foreach_mul.Scalar([m(A), m(B)], 2.0),
    ),
    "conj": (lambda m: torch.complex(m(A), m(B)).conj() * 2.0,) * 2,
    "integers": (
        lambda m: make_int(m) / make_int(m).flip(0),
        lambda m: torch.ops.aten.div.Tensor(make_int(m), make_int(m).flip(0)),
    ),
}


def make_int(move):
    return move(make(4, 6, dtype=torch.int32))


def leaves(result):
    return [result] if isinstance(result, torch.Tensor) else list(result)


@pytest.mark.parametrize("name", CASES)
def test_results(name):
    typed, boxed = CASES[name]
    expected = leaves(typed(lambda tensor: tensor))
    for way in (typed, boxed):
        got = leaves(way(lambda tensor: tensor.cuda()))
        assert len(got) == len(expected)
        for mine, theirs in zip(got, expected, strict=True):
            assert mine.is_cuda and mine.dtype == theirs.dtype and mine.stride() == theirs.stride()
            torch.testing.assert_close(mine.cpu(), theirs, rtol=1e-5, atol=1e-6)


def test_equal_is_a_bool():
    a = A.cuda()
    assert torch.equal(a, A.cuda()) is True
    assert torch.equal(a, B.cuda()) is False


def test_written_arguments_come_back_themselves():
    x, y = A.cuda(), B.cuda()
    place = x.data_ptr()
    assert x.add_(y) is x and x.mul_(2) is x and x.relu_() is x and x.zero_() is x and x.fill_(3) is x
    assert x.data_ptr() == place
    out = torch.empty(4, 6, device="cuda")
    assert torch.add(A.cuda(), y, out=out) is out
    assert torch.ops.aten.mul.out(A.cuda(), y, out=out) is out
    torch.testing.assert_close(out.cpu(), A * B)


def test_a_result_is_a_tensor_of_its_own():
    x = A.cuda()
    before = torch.cuda.memory_allocated()
    results = [x + x for _ in range(10)]
    assert len({result.data_ptr() for result in results}) == 10
    del results
    assert torch.cuda.memory_allocated() == before


@pytest.mark.parametrize("way", ["typed", "boxed"])
def test_foreach_counts_versions(way):
    tensors = [A.cuda(), B.cuda()]
    versions = [tensor._version for tensor in tensors]
    if way == "typed":
        torch._foreach_add_(tensors, 1.0)
    else:
        torch.ops.aten._foreach_add_.Scalar(tensors, 1.0)
    assert [tensor._version for tensor in tensors] == [version + 1 for version in versions]


def test_an_operator_that_c_declines_falls_back_once():
    x = torch.rand(4).to(torch.float8_e5m2).cuda()
    ditorch.reset_counters()
    assert not torch.equal(x, torch.zeros(4).to(torch.float8_e5m2).cuda())
    assert [row["calls"] for row in ditorch.fallbacks() if row["operator"] == "aten::equal"] == [1]
    assert not [row for row in ditorch.operators() if row["operator"] == "aten::equal"]


def test_errors_are_pytorchs():
    x = A.cuda()
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        x + B
    with pytest.raises(RuntimeError, match="must match the size"):
        x + torch.ones(5, device="cuda")
    with pytest.raises(RuntimeError, match="alpha must not be a floating point"):
        torch.add(make_int(torch.Tensor.cuda), make_int(torch.Tensor.cuda), alpha=1.5)


def test_backward_with_absent_gradients():
    x, weight = A.cuda().requires_grad_(), B[0].cuda()
    y, reference = A.clone().requires_grad_(), B[0]
    F.layer_norm(x, (6,), weight).sum().backward()
    F.layer_norm(y, (6,), reference).sum().backward()
    torch.testing.assert_close(x.grad.cpu(), y.grad, rtol=1e-4, atol=1e-5)


def test_the_current_device_stays(python):
    answer = python(
        """
        import torch
        import ditorch
        x = torch.ones(4, device="cuda:1")
        y = x + x
        print(y.device.index, torch.cuda.current_device(), y.sum().item())
        """,
        DITORCH_HOST_DEVICES=2,
    )
    assert answer.stdout.splitlines()[-1] == "1 0 8.0"
