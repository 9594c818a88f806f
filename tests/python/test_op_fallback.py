"""OpFallback: operators on the CPU instead of the device, and a program that does not notice."""

import copy
import threading
import typing

import ditorch
import pytest
import torch
import torch.nn.functional as F
from op_tools import OpDtypeCast, OpFallback, OpObserve

QUIET = {"log": False, "console": "off"}


def fallback(**options):
    return OpFallback(**{**QUIET, **options})


def row(tool, name):
    return next(r for r in tool.rows() if r["name"] == name)


def seeded(seed=0):
    torch.manual_seed(seed)
    torch.cuda.manual_seed(seed)


def equal(a, b):
    """The same tensor in every respect that a program can see, but its address."""
    assert type(a) is type(b)
    assert a.device == b.device and a.dtype == b.dtype and a.shape == b.shape and a.layout == b.layout
    assert a.requires_grad == b.requires_grad and a.is_leaf == b.is_leaf
    if a.layout == torch.strided:
        assert a.stride() == b.stride() and a.is_conj() == b.is_conj() and a.is_neg() == b.is_neg()
    torch.testing.assert_close(a.detach().cpu(), b.detach().cpu(), equal_nan=True)


def both(function, make, level="torch", **options):
    """The function on the device and under the tool, on arguments made twice; returns both results and arguments."""
    answers = []
    for on in (False, True):
        seeded()
        arguments = make()
        if on:
            with fallback(level=level, **options):
                result = function(*arguments)
        else:
            result = function(*arguments)
        answers.append((result, arguments))
    return answers


def check(function, make, gradients=True, level="torch"):
    (a, args_a), (b, args_b) = both(function, make, level=level)
    results_a, results_b = flat(a), flat(b)
    assert len(results_a) == len(results_b)
    assert type(a) is type(b)
    for x, y in zip(results_a, results_b, strict=True):
        equal(x, y)
    for x, y in zip(flat(args_a), flat(args_b), strict=True):
        equal(x, y)
    for i, x in enumerate(flat(args_a)):  # the same results are the same arguments
        for j, r in enumerate(results_a):
            assert (r is x) == (results_b[j] is flat(args_b)[i])
    if gradients:
        for results, arguments in ((results_a, args_a), (results_b, args_b)):
            roots = [r for r in results if r.requires_grad and r.grad_fn is not None]
            roots = roots or [t for t in flat(arguments) if t.grad_fn is not None and t.requires_grad]
            if roots:
                torch.autograd.backward([r.abs().sum() for r in roots])
        for x, y in zip(flat(args_a), flat(args_b), strict=True):
            if x.is_leaf:
                assert (x.grad is None) == (y.grad is None)
                if x.grad is not None:
                    torch.testing.assert_close(x.grad, y.grad)
    return a, b


def flat(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        return [t for v in value.values() for t in flat(v)]
    return [t for v in value for t in flat(v)] if isinstance(value, (list, tuple, set)) else []


def randn(*shape, grad=False, dtype=torch.float32):
    return torch.randn(*shape, device="cuda", dtype=dtype, requires_grad=grad)


# It really runs on the CPU


def test_the_operator_runs_on_the_cpu_and_a_broken_one_is_got_around():
    a, b = randn(8, 8), randn(8, 8)
    right = (a.cpu() @ b.cpu()).cuda()
    with ditorch.fault("value:mm,scale=0.5"):
        assert not torch.allclose(a @ b, right)
        with fallback() as tool:
            assert torch.allclose(a @ b, right)
    assert row(tool, "torch.Tensor.matmul")["count"] == 1


def test_lists_choose_operators():
    a, b = randn(8, 8), randn(8, 8)
    right = (a.cpu() @ b.cpu()).cuda()
    with ditorch.fault("value:mm,scale=0.5"):
        with fallback(list="torch.Tensor.add"):
            assert not torch.allclose(a @ b, right)
        with fallback(disable_list="torch.Tensor.matmul"):
            assert not torch.allclose(a @ b, right)
        with fallback(condition_func=lambda x, y: x.dim() == 3):
            assert not torch.allclose(a @ b, right)


def test_level_aten_takes_the_backward_too():
    a, b = randn(8, 8, grad=True), randn(8, 8)
    right = torch.ones(8, 8) @ b.cpu().t()
    with ditorch.fault("value:mm,scale=0.5"), fallback(level="aten") as tool:
        (a @ b).sum().backward()
    assert torch.allclose(a.grad.cpu(), right, atol=1e-5)
    assert row(tool, "aten::mm")["count"] == 2


# Results


@pytest.mark.parametrize("level", ["torch", "aten"])
def test_results_are_those_of_the_device(level):
    for function, make in [
        (torch.add, lambda: (randn(3, 4, grad=True), randn(4, grad=True))),
        (torch.matmul, lambda: (randn(3, 4, grad=True), randn(4, 5))),
        (F.linear, lambda: (randn(3, 4), randn(5, 4, grad=True), randn(5, grad=True))),
        (F.conv2d, lambda: (randn(2, 3, 8, 8, grad=True), randn(4, 3, 3, 3, grad=True))),
        (F.layer_norm, lambda: (randn(3, 4, grad=True), (4,), randn(4), randn(4))),
        (torch.Tensor.exp, lambda: (randn(4, 3).t(),)),
        (torch.Tensor.neg, lambda: (randn(4, 6)[:, ::2],)),
        (torch.Tensor.add, lambda: (randn(2, 3, 4, 5).to(memory_format=torch.channels_last), 1)),
        (torch.sum, lambda: (randn(3, 4, grad=True),)),
        (torch.argmax, lambda: (randn(3, 4),)),
        (torch.cat, lambda: ((randn(2, 3), randn(4, 3, grad=True)),)),
        (torch.stack, lambda: ([randn(2, 3, grad=True), randn(2, 3)],)),
        (torch.eq, lambda: (randn(3), randn(3))),
        (torch.outer, lambda: (randn(0), randn(3))),
        (torch.Tensor.cumsum, lambda: (randn(3, 4), 1)),
        (torch.where, lambda: (randn(3, 4) > 0, randn(3, 4, grad=True), 0.0)),
        (torch.einsum, lambda: ("ij,kj->ik", randn(3, 4), randn(5, 4))),
        (F.one_hot, lambda: (torch.arange(5, device="cuda"), 7)),
    ]:
        check(function, make, level=level)


def test_i11_i12_return_types():
    x = randn(3, 4, grad=True)
    with fallback():
        biggest, ordered, equal_all = x.max(dim=1), x.sort(), torch.equal(x, x)
        number, nothing, flag = x.sum().item(), x.__setitem__, torch.allclose(x, x)
        assert torch.is_nonzero(x.sum() * 0 + 1) is True
    assert type(biggest) is torch.return_types.max and biggest.values.requires_grad
    assert type(ordered) is torch.return_types.sort and ordered.indices.device.type == "cuda"
    assert equal_all is True and flag is True and isinstance(number, float) and callable(nothing)


def test_named_tuples_and_none():
    class Pair(typing.NamedTuple):
        left: torch.Tensor
        right: object

    x = randn(3)

    def function(tensor):
        return Pair(tensor * 2, None)

    with fallback():
        pair = Pair(x * 2, None)
        assert x.__setitem__(0, 1.0) is None  # F4
    assert pair.left.device.type == "cuda" and function(x).right is None


def test_f3_transfers_and_devices():
    x, c = randn(3), torch.randn(3)
    with fallback() as tool:
        assert x.to("cpu").device.type == "cpu" and x.cpu().device.type == "cpu"
        assert c.cuda().device.type == "cuda" and c.to("cuda:0").device.type == "cuda"
        assert x.to(torch.float64).dtype == torch.float64
        assert torch.zeros_like(x, device="cpu").device.type == "cpu"
        assert torch.zeros_like(c, device="cuda").device.type == "cuda"
        assert torch.tensor([1.0, 2.0], device="cuda").device.type == "cuda"
        assert torch.tensor([x.sum(), x.sum()]).device.type == "cpu"
        assert torch.zeros(2, device="meta").is_meta
    assert row(tool, "torch.Tensor.cpu")["exempt"] == {"transfer": 1}


@pytest.mark.parametrize("device", [0, "cuda", "cuda:0", torch.device("cuda", 0)], ids=str)
def test_f8_named_devices(device):
    with ditorch.fault("value:arange,scale=0"), fallback() as tool:
        x = torch.arange(4, device=device)
        y = torch.full((2,), 3.0, device=device, requires_grad=True)
    assert x.device == torch.device("cuda:0") and x.tolist() == [0, 1, 2, 3]
    assert y.is_leaf and y.requires_grad
    assert row(tool, "torch.arange")["count"] == 1


def test_default_devices():
    with fallback(), torch.device("cuda"):
        x = torch.ones(3)
        y = F.one_hot(torch.arange(3), 4)
        z = torch.nn.functional.kl_div(x, x, reduction="batchmean")
    assert x.device.type == y.device.type == z.device.type == "cuda"


def test_default_devices_do_not_reach_into_the_operator():
    def makes_one_inside(tensor):
        return tensor + torch.ones(3)

    x = randn(3)
    with torch.device("cuda"), fallback() as tool:
        y = torch.overrides.handle_torch_function(makes_one_inside, (x,), x)
    torch.testing.assert_close(y, x + torch.ones(3, device="cuda"))
    assert sum(r["count"] for r in tool.rows()) == 1


def test_cpu_index_tensors_are_left_alone():
    check(lambda x, i: x[i], lambda: (randn(4, 3, grad=True), torch.tensor([0, 2])))
    check(lambda x, i: x[:, i], lambda: (randn(4, 3), torch.tensor([True, False, True])))
    index = torch.tensor([0, 2])
    x = randn(4)
    with fallback():
        x[index] = 5.0
    assert x.cpu()[index].tolist() == [5.0, 5.0] and index.device.type == "cpu"


def test_packed_sequences():
    rnn = torch.nn.LSTM(3, 4, batch_first=True).cuda()
    x, lengths = randn(2, 5, 3), torch.tensor([5, 3])

    def run():
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
        assert packed.batch_sizes.device.type == "cpu"
        padded, sizes = torch.nn.utils.rnn.pad_packed_sequence(rnn(packed)[0], batch_first=True)
        assert sizes.device.type == "cpu" and padded.device.type == "cuda"
        return padded.detach()

    plain = run()
    with fallback():
        torch.testing.assert_close(run(), plain)


# In-place and out=


def test_f2_in_place():
    check(lambda x, y: (x * 1).mul_(y), lambda: (randn(3, grad=True), randn(3, grad=True)))
    check(lambda x, y: x.add_(y), lambda: (randn(3, 4), randn(4)))
    check(lambda x, y: x.add_(y), lambda: (randn(3, 4), randn(4, grad=True)))
    check(lambda x: F.relu(x * 1, inplace=True), lambda: (randn(3, grad=True),))
    check(lambda x: x.t().mul_(2), lambda: (randn(3, 4),))
    check(lambda x: x[:, ::2].mul_(2), lambda: (randn(3, 4),))
    check(lambda x: x.zero_(), lambda: (randn(3, 4).t(),))


def test_f2_in_place_through_views_of_a_graph():
    def function(x, y):
        z = x * 2
        z[1:].mul_(y)
        z.view(-1).add_(1)
        z[0] = y * 3
        return z

    check(function, lambda: (randn(3, 4, grad=True), randn(4, grad=True)))


def test_f2_a_chain_of_writes_and_reads():
    def function(x, w):
        h = x @ w
        saved = h.exp()
        h = h.clone()
        h.mul_(2).add_(saved)
        return h.sigmoid_()

    check(function, lambda: (randn(3, 4, grad=True), randn(4, 4, grad=True)))


def test_f2_setitem():
    check(lambda x, y: x.__setitem__((slice(None), 0), y), lambda: (randn(3, 4), randn(3)), gradients=False)
    check(lambda x: x.__setitem__(x > 0, 0.0), lambda: (randn(3, 4),), gradients=False)


def test_f2_out():
    def into(x, out):
        result = torch.exp(x, out=out)
        assert result is out
        return result

    check(into, lambda: (randn(3), randn(3)))
    x = randn(3)
    expected = x.cpu().exp()
    with fallback():
        assert torch.exp(x, out=x) is x  # input is output
    torch.testing.assert_close(x.cpu(), expected)


def test_f2_out_is_resized():
    check(lambda x, y, o: torch.add(x, y, out=o), lambda: (randn(3, 4), randn(4), torch.empty(0, device="cuda")))
    check(lambda x, v, i: torch.sort(x, dim=1, out=(v, i)), lambda: (randn(3, 4), *_sort_out()), gradients=False)
    check(
        lambda x, y, o: torch.mm(x, y, out=o),
        lambda: (randn(3, 4), randn(4, 5), torch.empty(0, device="cuda")),
    )


def _sort_out():
    return torch.empty(0, device="cuda"), torch.empty(0, dtype=torch.int64, device="cuda")


def test_arguments_that_are_only_read_keep_their_version():
    x, w = randn(4, grad=True), torch.ones(4, device="cuda")
    with fallback():
        before = x._version, w._version
        results = [x.sort(), x.max(), x.sum(), torch.add(x, w), F.layer_norm(x, (4,), w), x.topk(2), x.clone()]
        F.batch_norm(x[:, None], w[:1], w[:1], training=False)
        assert (x._version, w._version) == before
    assert len(results) == 7


def test_f2_a_leaf_cannot_be_changed():
    x = randn(3, grad=True)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad") as plain:
        x.add_(1)
    with fallback(), pytest.raises(RuntimeError, match="a leaf Variable that requires grad") as under:
        x.add_(1)
    assert str(plain.value) == str(under.value)
    with fallback(), torch.no_grad():
        before = x.detach().cpu().clone()
        x.add_(1)
    torch.testing.assert_close(x.detach().cpu(), before + 1)


def test_f2_lists_of_tensors():
    def function(xs, ys):
        torch._foreach_mul_(xs, 2.0)
        torch._foreach_add_(xs, ys, alpha=0.5)
        return xs

    check(function, lambda: ([randn(3), randn(2, 2).t()], [randn(3), randn(2, 2)]))
    check(torch._foreach_add, lambda: ([randn(3, grad=True), randn(40)], [randn(3), randn(40)]))
    check(lambda xs: torch._foreach_neg_(xs), lambda: ([randn(2) for _ in range(60)],), gradients=False)


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, foreach=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.1, foreach=False),
    "adamw-foreach": lambda p: torch.optim.AdamW(p, lr=0.1, foreach=True),
    "adamw-fused": lambda p: torch.optim.AdamW(p, lr=0.1, fused=True),
    "sgd-fused": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, fused=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.1),
    "lbfgs": lambda p: torch.optim.LBFGS(p, lr=0.1, max_iter=3),
}


@pytest.mark.parametrize("level", ["torch", "aten"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_f2_optimizers(name, level):
    def train(on):
        seeded(3)
        model = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2)).cuda()
        x = randn(6, 4)
        try:
            optimizer = OPTIMIZERS[name](model.parameters())
        except RuntimeError as error:
            pytest.skip(str(error))

        def closure():
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            return loss

        def steps():
            return [optimizer.step(closure).item() for _ in range(3)]

        if on:
            with fallback(level=level):
                losses = steps()
        else:
            losses = steps()
        return losses, [p.detach().cpu() for p in model.parameters()]

    losses, parameters = train(False)
    other, others = train(True)
    assert losses[0] != losses[-1]
    torch.testing.assert_close(losses, other, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(parameters, others, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("level", ["torch", "aten"])
def test_f2_running_statistics(level):
    def function(x, mean, var, w, b):
        return F.batch_norm(x, mean, var, w, b, training=True, momentum=0.5)

    def make():
        return randn(6, 4, grad=True), torch.zeros(4, device="cuda"), torch.ones(4, device="cuda"), randn(4), randn(4)

    check(function, make, level=level)
    check(lambda x, m, v, w, b: torch.batch_norm(x, w, b, m, v, True, 0.5, 1e-5, False), make, level=level)
    check(lambda x, m, v, w, b: F.batch_norm(x, weight=w, running_var=v, running_mean=m, training=True), make)
    bn = torch.nn.BatchNorm1d(4).cuda()
    with fallback(level=level):
        bn(randn(6, 4))
    assert bn.num_batches_tracked.item() == 1 and bn.running_mean.abs().sum() > 0
    assert bn.running_mean.device.type == "cuda"


def test_f2_changes_hidden_from_autograd():
    """embedding(max_norm=...) writes to its weight, a leaf, under no_grad."""

    def function(i, w):
        return F.embedding(i, w, max_norm=0.5)

    check(function, lambda: (torch.tensor([1, 2], device="cuda"), randn(4, 3, grad=True)))


def test_inference_mode():
    def function(x, y):
        with torch.inference_mode():
            z = torch.ones(3, device="cuda")
            z.add_(y)
            x.mul_(2)
            z[0] = 4
            return z.exp_() + x

    x, y = randn(3), randn(3)
    plain = function(x.clone(), y)
    with fallback():
        mine = x.clone()
        under = function(mine, y)
    assert under.is_inference()
    torch.testing.assert_close(under.cpu().clone(), plain.cpu().clone())
    torch.testing.assert_close(mine, x * 2)


# Views and aliasing


def test_f6_views_stay_views():
    x = randn(4, 6)
    with fallback() as tool:
        views = [
            *(x.view(-1), x[1:], x[:, ::2], x[0], x.t(), x.reshape(3, 8), x.flatten(), x.contiguous(), x.unsqueeze(0)),
            *(x.expand(2, 4, 6), x.narrow(0, 1, 2), x.squeeze(), *x.unbind(), *x.chunk(2), x[..., None], x.detach()),
            *(F.dropout(x, 0.5, training=False), x.expand_as(x), x.to("cuda"), torch.atleast_2d(x), x.view_as(x)),
            *(x.float(), x.real, x.data, *iter(x), torch.nn.Identity()(x), x.contiguous(), x.positive(), x.mT),
        ]
        storage = x.untyped_storage().data_ptr()
        assert all(v.untyped_storage().data_ptr() == storage for v in views)
        x.zero_()
        assert all((v == 0).all() for v in views)
    assert row(tool, "torch.Tensor.view")["exempt"] == {"view": 1}


def test_f6_identity_results():
    x = randn(4, 6)
    with fallback():
        assert x.contiguous() is x or x.contiguous().data_ptr() == x.data_ptr()
        assert F.dropout(x, 0.5, training=False).data_ptr() == x.data_ptr()
        y = x.t().contiguous()
        assert y.data_ptr() != x.data_ptr() and y.is_contiguous()


def test_f6_bookkeeping_acts_on_the_tensor_itself():
    x = randn(3, grad=True)
    seen = []
    with fallback():
        y = x * 2
        y.retain_grad()
        y.register_hook(lambda g: seen.append(g.device.type))
        y.sum().backward()
        z = torch.empty(0, device="cuda").set_(x.detach())
        y.record_stream(torch.cuda.current_stream())
        assert "cuda" in repr(x) and copy.deepcopy(x).device.type == "cuda"
    assert y.grad is not None and seen == ["cuda"]
    assert z.data_ptr() == x.data_ptr()


def test_results_share_memory_as_they_do_on_the_device():
    x = randn(4)

    def function():
        parts = torch.tensor_split(x + 1, 2)
        return parts[0].untyped_storage().data_ptr() == parts[1].untyped_storage().data_ptr()

    plain = function()
    with fallback():
        assert function() == plain


def test_in_place_on_overlapping_arguments():
    check(lambda x: x.add_(x), lambda: (randn(6),), gradients=False)
    check(lambda x: x.mul_(x.view_as(x)), lambda: (randn(6),), gradients=False)
    messages = []
    for on in (False, True):
        x = randn(6)
        with fallback() if on else torch.enable_grad(), pytest.raises(RuntimeError) as error:
            x[:-1].add_(x[1:])
        messages.append(str(error.value))
    assert messages[0] == messages[1]


# Autograd


def test_double_backward():
    def run(on):
        seeded()
        x = randn(3, grad=True)
        with fallback() if on else torch.enable_grad():
            y = (x.pow(3) * x.sin()).sum()
            (g,) = torch.autograd.grad(y, x, create_graph=True)
            (h,) = torch.autograd.grad(g.sum(), x)
        return g.detach().cpu(), h.cpu()

    torch.testing.assert_close(run(False), run(True))


def test_gradients_reach_parameters_and_hooks():
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 3)).cuda()
    x = randn(5, 4)
    model(x).sum().backward()
    plain = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    with fallback():
        model(x).sum().backward()
    for p, g in zip(model.parameters(), plain, strict=True):
        assert p.grad.device.type == "cuda" and type(p.grad) is torch.Tensor
        torch.testing.assert_close(p.grad, g)


def test_a_graph_outlives_the_tool():
    x = randn(3, grad=True)
    with fallback():
        y = x.exp()
    y.sum().backward()
    torch.testing.assert_close(x.grad, y.detach())


def test_complex_numbers_and_bits():
    make = lambda: (randn(3, 4, dtype=torch.complex64, grad=True),)  # noqa: E731
    check(lambda z: z.conj() @ z.t(), make)
    check(lambda z: z.conj().imag.exp(), make)
    check(lambda z: torch.view_as_real(z.conj().resolve_conj()).sum(0), make)
    check(lambda z: z.abs(), make)
    check(lambda z: z.detach().conj().mul_(2j), make, gradients=False)


def test_subclasses_and_parameters():
    class Mine(torch.Tensor):
        pass

    x = randn(3).as_subclass(Mine)
    p = torch.nn.Parameter(randn(3))
    with fallback():
        y, z = x + 1, p * 2
        with torch.no_grad():
            same = p.add_(1)
    assert type(y) is Mine and y.device.type == "cuda"
    assert type(z) is torch.Tensor and z.requires_grad
    assert same is p and type(p) is torch.nn.Parameter


def test_sparse_tensors():
    s = torch.eye(3, device="cuda").to_sparse()
    x = randn(3, 2)
    with fallback():
        y, d, t = torch.sparse.mm(s, x), s.to_dense(), s + s
    torch.testing.assert_close(y, x)
    assert d.device.type == "cuda" and t.is_sparse and t.device.type == "cuda"


def test_tensors_without_values_are_left_alone():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with fallback():
        assert (torch.ones(2, device="meta") + 1).is_meta
        with FakeTensorMode():
            assert (torch.empty(3, device="cuda") + 1).shape == (3,)
        x = randn(3)
        torch.testing.assert_close(torch.func.vmap(torch.sin)(x).cpu(), x.cpu().sin())
        torch.testing.assert_close(torch.func.grad(lambda t: t.sin().sum())(x).cpu(), x.cpu().cos())


# Errors and the retry


def test_f5_the_original_error_is_raised():
    a, b = randn(3, 4), randn(3, 4)
    with fallback(), pytest.raises(RuntimeError, match="cannot be multiplied"):
        a @ b
    h = randn(3, 4, dtype=torch.float16)
    with fallback() as tool, pytest.raises(RuntimeError, match="cannot be multiplied"):
        h @ h
    assert row(tool, "torch.Tensor.matmul")["failed"] == 1


def test_f5_mixed_dtypes_are_still_refused():
    with fallback(), pytest.raises(RuntimeError, match="dtype"):
        randn(3, 4, dtype=torch.float16) @ randn(4, 3)


def test_a_failed_run_changes_nothing():
    x = randn(4)
    before = x.clone()

    def breaks(tensor):
        tensor.add_(1)
        raise RuntimeError("no luck")

    with fallback(), pytest.raises(RuntimeError, match="no luck"):
        torch.overrides.handle_torch_function(breaks, (x,), x)
    assert torch.equal(x, before)


HALVES = [torch.float16, torch.bfloat16]


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_f1_f7_retry_in_float32(dtype):
    """An operator that the CPU does not have in half precision: one retry, the result in the program's dtype, with
    gradients; tensors inside lists too (F7)."""
    calls = []

    def picky(tensors, scale):
        calls.append([t.dtype for t in tensors])
        if any(t.dtype == dtype for t in tensors):
            tensors[0].data.add_(100)  # a failed run may leave its twins in any state
            raise RuntimeError(f"\"picky_cpu\" not implemented for '{dtype}'")
        return torch.add(tensors[0], tensors[1]) * scale

    x, y = randn(3, grad=True, dtype=dtype), randn(3, dtype=dtype)
    expected = (x.detach().cpu().float() + y.cpu().float()) * 2
    with fallback() as tool:
        result = torch.overrides.handle_torch_function(picky, (x, y), [x, y], 2)
    assert result.device.type == "cuda" and result.requires_grad
    assert len(calls) == 2
    assert result.dtype == dtype
    torch.testing.assert_close(result.detach().cpu().float(), expected, rtol=2e-2, atol=2e-2)
    result.sum().backward()
    assert x.grad.dtype == dtype and (x.grad == 2).all()
    (found,) = [r for r in tool.rows() if r["retries"]]
    assert found["retries"] == 1 and found["count"] == 1


def test_f1_retry_writes_back_in_the_dtype_of_the_argument():
    def picky_(tensor):
        if tensor.dtype == torch.float16:
            raise RuntimeError("\"picky_cpu\" not implemented for 'Half'")
        return tensor.mul_(3)

    x = randn(3, dtype=torch.float16)
    expected = x.cpu().float() * 3
    with fallback():
        result = torch.overrides.handle_torch_function(picky_, (x,), x)
    assert result is x and x.dtype == torch.float16
    torch.testing.assert_close(x.cpu().float(), expected, rtol=1e-2, atol=1e-2)


def test_f5_a_retry_that_fails_raises_the_first_error():
    def hopeless(tensor):
        raise RuntimeError(f"\"hopeless_cpu\" not implemented for '{tensor.dtype}'")

    x = randn(3, dtype=torch.float16)
    with fallback(), pytest.raises(RuntimeError, match=r"for 'torch.float16'"):
        torch.overrides.handle_torch_function(hopeless, (x,), x)


def test_f1_a_real_operator_without_a_half_kernel():
    x = torch.randn(3, 3).half().cuda()
    try:
        torch.linalg.inv(x.cpu())
        pytest.skip("this CPU has linalg.inv in half precision")
    except RuntimeError:
        pass
    with fallback() as tool:
        result = torch.linalg.inv(x)
    assert result.dtype == torch.float16 and result.device.type == "cuda"
    torch.testing.assert_close(result.cpu().float(), torch.linalg.inv(x.cpu().float()), rtol=2e-2, atol=2e-2)
    assert row(tool, "torch.linalg.inv")["retries"] == 1


# Random numbers


def test_trap_random_operators_need_their_own_rule():
    def draw():
        x = torch.rand(4, device="cuda")
        y = torch.empty(3, device="cuda").normal_()
        z = F.dropout(torch.ones(64, device="cuda"), 0.5)
        p = torch.randperm(9, device="cuda")
        return x, y, z, p, torch.randn_like(x), torch.multinomial(x, 2)

    with fallback():
        torch.cuda.manual_seed(7)
        first = draw()
        after = torch.cuda.get_rng_state()
        again = draw()
        torch.cuda.manual_seed(7)
        repeated = draw()
        assert torch.equal(torch.cuda.get_rng_state(), after)
        torch.cuda.manual_seed(8)
        other = draw()
    for a, b in zip(first, repeated, strict=True):
        assert torch.equal(a, b) and a.device.type == "cuda"
    assert not torch.equal(first[0], again[0]) and not torch.equal(first[0], other[0])
    assert 10 < first[2].count_nonzero() < 54


def test_the_cpu_generator_is_not_disturbed():
    torch.manual_seed(5)
    expected = torch.rand(6)
    torch.manual_seed(5)
    with fallback():
        head = torch.rand(3)
        torch.rand(100, device="cuda")
        F.dropout(randn(8), 0.5)
        torch.nn.functional.scaled_dot_product_attention(randn(1, 2, 4), randn(1, 2, 4), randn(1, 2, 4), dropout_p=0.5)
        tail = torch.rand(3)
    assert torch.equal(torch.cat([head, tail]), expected)


def test_random_state_moves_only_when_numbers_are_drawn():
    x, q = randn(8), randn(1, 2, 4)
    with fallback():
        before = torch.cuda.get_rng_state()
        F.dropout(x, 0.5, training=False)
        F.scaled_dot_product_attention(q, q, q)
        assert torch.equal(torch.cuda.get_rng_state(), before)
        F.dropout(x, 0.5)
        assert not torch.equal(torch.cuda.get_rng_state(), before)


def test_generators_of_the_device():
    def draw(seed):
        g = torch.Generator("cuda").manual_seed(seed)
        return torch.rand(4, device="cuda", generator=g), torch.empty(3, device="cuda").uniform_(generator=g)

    with fallback():
        default = torch.cuda.get_rng_state()
        a, b, c = draw(1), draw(1), draw(2)
        assert torch.equal(torch.cuda.get_rng_state(), default)
    assert torch.equal(a[0], b[0]) and torch.equal(a[1], b[1]) and not torch.equal(a[0], c[0])
    g = torch.Generator("cpu")
    with pytest.raises(RuntimeError, match="generator") as plain:
        torch.rand(4, device="cuda", generator=g)
    with fallback(), pytest.raises(RuntimeError, match="generator") as under:
        torch.rand(4, device="cuda", generator=g)
    assert str(plain.value) == str(under.value)


def test_numbers_of_the_embedded_fallback_are_kept():
    """Operators that the embedded device itself draws on the CPU give the same numbers."""
    for function in (
        lambda: torch.poisson(torch.full((6,), 3.0, device="cuda")),
        lambda: torch.empty(6, device="cuda").cauchy_(),
    ):
        torch.cuda.manual_seed(11)
        plain = function(), torch.cuda.get_rng_state()
        torch.cuda.manual_seed(11)
        with fallback():
            under = function(), torch.cuda.get_rng_state()
        assert torch.equal(plain[0], under[0]) and torch.equal(plain[1], under[1])


# Autocast

AUTOCAST = {
    # autocast's own dtype
    "linear": lambda x, h, w: F.linear(x, w),
    "matmul": lambda x, h, w: x @ w,
    "conv": lambda x, h, w: F.conv1d(x[None], w[:, :, None]),
    "bmm": lambda x, h, w: torch.bmm(x[None], w[None]),
    "mv": lambda x, h, w: torch.mv(x, w[0]),
    "addmv": lambda x, h, w: torch.addmv(w[0], x, w[1]),
    "addr": lambda x, h, w: torch.addr(x, w[0], w[1]),
    "multi_dot": lambda x, h, w: torch.linalg.multi_dot([x, w, x]),
    "einsum": lambda x, h, w: torch.einsum("ij,kj->ik", x, w),
    "prelu": lambda x, h, w: F.prelu(x, w[0, :1].abs()),
    "sdpa": lambda x, h, w: F.scaled_dot_product_attention(x[None], w[None], x[None]),
    # float32
    "softmax": lambda x, h, w: h.softmax(-1),
    "F.softmax": lambda x, h, w: F.softmax(h, -1),
    "log_softmax": lambda x, h, w: torch.log_softmax(h, -1),
    "layer_norm": lambda x, h, w: F.layer_norm(h, (4,)),
    "group_norm": lambda x, h, w: F.group_norm(h, 2),
    "exp": lambda x, h, w: h.exp(),
    "pow": lambda x, h, w: h**2,
    "sum": lambda x, h, w: h.sum(),
    "cumsum": lambda x, h, w: h.cumsum(0),
    "norm": lambda x, h, w: h.norm(),
    "vector_norm": lambda x, h, w: torch.linalg.vector_norm(h),
    "cdist": lambda x, h, w: torch.cdist(h, h),
    "mse_loss": lambda x, h, w: F.mse_loss(h, h + 1),
    "cross_entropy": lambda x, h, w: F.cross_entropy(h, torch.arange(4, device="cuda")),
    "bce": lambda x, h, w: F.binary_cross_entropy_with_logits(h, (w > 0).to(h.dtype)),
    "interpolate": lambda x, h, w: F.interpolate(h[None], size=8),
    # the widest dtype
    "dot": lambda x, h, w: torch.dot(h[0], w[0]),
    "addcdiv": lambda x, h, w: torch.addcdiv(h, w, w.abs() + 1),
    "atan2": lambda x, h, w: torch.atan2(h, h),
    # the dtypes that they get
    "add": lambda x, h, w: h + w,
    "relu": lambda x, h, w: F.relu(h),
    "gelu": lambda x, h, w: F.gelu(x),
    "cat": lambda x, h, w: torch.cat([h, w]),
    "stack": lambda x, h, w: torch.stack([h, h]),
    "trace": lambda x, h, w: torch.trace(h),
    "pad": lambda x, h, w: F.pad(h[None], (1, 1), mode="reflect"),
    "exp_": lambda x, h, w: h.clone().exp_(),
    "exp out": lambda x, h, w: torch.exp(h.detach(), out=torch.empty_like(h)),
    # several inside
    "attention": lambda x, h, w: F.multi_head_attention_forward(
        *(x, x, x, 4, 2, w.repeat(3, 1), None, None, None, False, 0.0, w, None), need_weights=False
    )[0],
}


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("name", AUTOCAST)
def test_autocast_gives_the_dtypes_of_the_device(name, dtype):
    def function(x, w):
        with torch.autocast("cuda", dtype=dtype):
            return AUTOCAST[name](x, x.to(dtype), w)

    results = both(function, lambda: (randn(4, 4, grad=True), randn(4, 4)))
    (plain, _), (under, _) = results
    assert under.dtype == plain.dtype and under.requires_grad == plain.requires_grad
    torch.testing.assert_close(under.detach().float(), plain.detach().float(), rtol=2e-2, atol=2e-2)
    assert not torch.is_autocast_enabled("cpu")


def test_autocast_of_the_cpu_does_not_reach_the_device():
    x = randn(4, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16), fallback():
        assert (x @ x).dtype == torch.float32
        assert (x.cpu() @ x.cpu()).dtype == torch.bfloat16
        assert torch.is_autocast_enabled("cpu")


# The tool


def test_ledger_log_and_summary(tmp_path, capsys):
    x = randn(256, 256)
    with OpFallback(results=str(tmp_path)) as tool:
        for _ in range(3):
            y = x @ x
        y.add_(1)
        y.view(-1)
    found = row(tool, "torch.Tensor.matmul")
    assert found["count"] == 3 and found["down"] == 3 * x.nbytes and found["up"] == 3 * x.nbytes
    assert found["cpu_ns"] > 0 and found["down_ns"] > 0 and found["up_ns"] > 0
    assert row(tool, "torch.Tensor.add_")["up"] == x.nbytes
    assert row(tool, "torch.Tensor.view")["exempt"] == {"view": 1} and row(tool, "torch.Tensor.view")["count"] == 0
    assert "torch.Tensor.matmul" in str(tool.ledger()) and len(tool.ledger(1)) == 1
    text = capsys.readouterr()
    assert "torch.Tensor.matmul" in text.out + text.err and "left on the device: 1 view" in text.out + text.err
    records = [r for r in tool.records("call") if r["name"] == "torch.Tensor.matmul"]
    assert len(records) == 3 and records[0]["down"] == x.nbytes and records[0]["up"] == x.nbytes
    assert records[0]["cpu_ns"] > 0 and records[0]["out"]["shape"] == [256, 256]


def test_a_second_start_counts_anew():
    tool = fallback()
    for _ in range(2):
        with tool:
            randn(3) + 1
    assert row(tool, "torch.Tensor.add")["count"] == 1


def test_full_console(capsys, tmp_path):
    x = torch.arange(6.0, device="cuda").view(2, 3)
    with OpFallback(console="full", log=False, results=str(tmp_path)):
        y = x + 1
        x.t()
    text = capsys.readouterr().out
    lines = text.split("\n")
    assert lines[0] == "apply OpFallbackHook on torch.Tensor.add"
    head = next(line for line in lines if line.startswith("fallback    "))
    assert head.startswith("fallback    torch.Tensor.add    forward_id: ") and head.endswith("  ")
    assert text.index("\n\n\nfallback") > 0 and "y = x + 1" in lines[lines.index(head) + 1]
    for label in ("input(device)[0]", "input(cpu)[0]", "output(device)", "output(cpu)"):
        assert f"torch.Tensor.add {label} " in text
    assert text.count("fallback    ") == 1 and y.device.type == "cuda"
    cells = next(line for line in lines if "torch.Tensor.add input(cpu)[0]" in line).split("|")
    assert cells[2].strip() == "cpu" and cells[3].strip() == "float32"


def test_full_console_tells_of_the_cast(capsys, tmp_path):
    def picky(tensor):
        if tensor.dtype == torch.float16:
            raise RuntimeError("\"picky_cpu\" not implemented for 'Half'")
        return tensor * 2

    x = randn(3, dtype=torch.float16)
    with OpFallback(console="full", log=False, results=str(tmp_path)):
        torch.overrides.handle_torch_function(picky, (x,), x)
    text = capsys.readouterr().out
    assert "  cpu_dtype_cast_info: {torch.float16: torch.float32, torch.bfloat16: torch.float32}\n" in text


USAGES = {
    "plain": {},
    "disable list": {"OP_FALLBACK_DISABLE_LIST": "torch.Tensor.add,torch.Tensor.sub"},
    "list": {"OP_FALLBACK_LIST": "torch.Tensor.sort,torch.cat"},
    "an exempt operator": {"OP_FALLBACK_LIST": "torch.Tensor.cpu,torch.Tensor.add"},
    "empty list": {"OP_FALLBACK_LIST": ""},
    "both": {"OP_FALLBACK_LIST": "torch.Tensor.mul,torch.Tensor.add", "OP_FALLBACK_DISABLE_LIST": "torch.Tensor.add"},
}


@pytest.mark.parametrize("usage", USAGES)
def test_usages_of_the_reference(usage, monkeypatch):
    """reference 4.2, test_op_fallback: the same program under each way to choose operators, three times each."""
    for name, value in USAGES[usage].items():
        monkeypatch.setenv(name, value)

    def program():
        x = torch.randn(3, 4).cuda().half().requires_grad_()  # the device draws other numbers than the CPU
        y = (x + x) * x - 1
        values, indices = y.sort(dim=1)
        assert values.device.type == indices.device.type == "cuda"
        assert torch.cat((x, y)).device.type == "cuda"
        assert torch.arange(5, device="cuda").device.type == "cuda"
        assert y.cpu().device.type == "cpu" and (y.detach().cpu() + 1).cuda().device.type == "cuda"
        assert y.grad_fn is not None and not y.is_leaf
        y.sum().backward()
        assert x.grad.dtype == torch.float16
        return y.detach().cpu(), x.grad.cpu()

    seeded(4)
    expected = program()
    tool = fallback()
    for _ in range(3):
        seeded(4)
        tool.start()
        result = program()
        tool.end()
        torch.testing.assert_close(result, expected, rtol=1e-2, atol=1e-2)
    ran = {r["name"] for r in tool.rows() if r["count"]}
    wanted = USAGES[usage].get("OP_FALLBACK_LIST")
    assert "torch.Tensor.cpu" not in ran
    assert ("torch.Tensor.add" in ran) == (usage in ("plain", "an exempt operator"))
    assert ran if wanted != "" else not ran


def test_threads():
    failures = []

    def work(seed):
        try:
            generator = torch.Generator().manual_seed(seed)
            for _ in range(30):
                a = torch.randn(8, 8, generator=generator)
                got = (a.cuda() @ a.cuda()).add_(1).cpu()
                torch.testing.assert_close(got, a @ a + 1)
                torch.rand(3, device="cuda")
        except Exception as error:
            failures.append(error)

    with fallback(threads="all"):
        threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures


def test_training_is_the_same():
    def train(on):
        seeded(1)
        model = torch.nn.Sequential(
            *(torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(inplace=True), torch.nn.MaxPool2d(2)),
            *(torch.nn.Flatten(), torch.nn.Linear(36, 5)),
        ).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        x, t = randn(4, 1, 8, 8), torch.tensor([0, 1, 2, 3], device="cuda")
        losses = []
        tool = fallback()
        if on:
            tool.start()
        for _ in range(4):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), t)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        tool.stop()
        return losses, {k: v.cpu() for k, v in model.state_dict().items()}

    plain, under = train(False), train(True)
    torch.testing.assert_close(plain, under, rtol=1e-4, atol=1e-5)


def test_mixed_precision_training_is_the_same():
    def train(on):
        seeded(2)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)).cuda()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        scaler = torch.amp.GradScaler("cuda", init_scale=2.0**17, growth_interval=2)
        x, y = randn(6, 4), torch.ones(6, 2, device="cuda")
        history = []
        with fallback() if on else torch.enable_grad():
            for _ in range(5):
                optimizer.zero_grad()
                with torch.autocast("cuda", dtype=torch.float16):
                    loss = F.mse_loss(model(x), y)
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
                history.append((loss.item(), scaler.get_scale()))
        return history

    plain = train(False)
    assert len({scale for _, scale in plain}) > 1 and plain[0][0] != plain[-1][0]
    torch.testing.assert_close(plain, train(True), rtol=1e-3, atol=1e-4)


def test_the_device_sees_the_cast_of_another_tool():
    """OpDtypeCast inside: the CPU computes in float32, the program gets its float16."""
    seen = []

    def look(tensor):
        seen.append((tensor.device.type, tensor.dtype))
        return tensor * 2

    x = randn(3, dtype=torch.float16)
    with OpDtypeCast(**QUIET), fallback():
        result = torch.overrides.handle_torch_function(look, (x,), x)
        product = x @ x
    assert seen == [("cpu", torch.float32)]
    assert result.dtype == product.dtype == torch.float16 and result.device.type == "cuda"
    torch.testing.assert_close(result, x * 2)


def test_watching_tools_see_the_call_as_the_program_made_it():
    x = randn(3)
    with OpObserve(console="off") as observe, fallback():
        x + 1
        x.add_(1)
    records = list(observe.records("call"))
    assert [r["name"] for r in records] == ["torch.Tensor.add", "torch.Tensor.add_"]
    assert all(r["args.0"]["device"] == "cuda" and r["out"]["device"] == "cuda" for r in records)


def test_hooked_functions():
    from op_tools import apply_feature, remove_feature

    x = randn(4, 4)
    right = x.cpu() @ x.cpu()
    hooks = apply_feature("torch.mm", "fallback")
    try:
        with ditorch.fault("value:mm,scale=0.5"):
            assert torch.allclose(torch.mm(x, x).cpu(), right, atol=1e-5)
            assert not torch.allclose((x @ x).cpu(), right, atol=1e-5)
    finally:
        remove_feature("torch.mm")
    del hooks


def test_checkpointing_and_dropout():
    from torch.utils.checkpoint import checkpoint

    w = randn(6, 6, grad=True)

    def run(use):
        torch.cuda.manual_seed(3)
        w.grad = None
        x = torch.ones(4, 6, device="cuda", requires_grad=True)

        def block(t):
            return F.dropout(t @ w, 0.5).relu()

        with fallback():
            y = checkpoint(block, x, use_reentrant=False) if use else block(x)
            y.sum().backward()
        return y.detach().cpu(), w.grad.cpu().clone()

    torch.testing.assert_close(run(False), run(True))


def test_nothing_leaks():
    import gc

    x = randn(64, 64, grad=True)

    def once():
        with torch.no_grad():
            y = x.detach().clone()
            y.add_(1)
        (x @ x.t() + y).sum().backward()
        x.grad = None

    with fallback():
        once()
        gc.collect()
        before = torch.cuda.memory_allocated(), sum(type(o) is torch.Tensor for o in gc.get_objects())
        for _ in range(20):
            once()
        gc.collect()
        after = torch.cuda.memory_allocated(), sum(type(o) is torch.Tensor for o in gc.get_objects())
    assert before == after


def write_and_return_a_part(x):
    x.add_(1)
    return x[1:]


def test_f6_a_part_of_an_argument_that_was_written_stays_a_part_of_it(device):
    from op_tools import apply_feature, remove_feature

    x = torch.zeros(4, 3, device="cuda")
    apply_feature([write_and_return_a_part], "fallback")
    try:
        part = write_and_return_a_part(x)
    finally:
        remove_feature()
    assert part.device == x.device and part.data_ptr() == x[1:].data_ptr() and part.shape == (3, 3)
    part.fill_(7)
    assert x.cpu().tolist() == [[1.0] * 3, *[[7.0] * 3] * 3]


# Conversions, copies and moves


CONVERSIONS = {
    "to dtype": lambda x: x.to(torch.float64),
    "to dtype by name": lambda x: x.to(dtype=torch.float16),
    "to device and dtype": lambda x: x.to("cuda", torch.float64),
    "to other": lambda x: x.to(torch.ones(1, dtype=torch.float64, device="cuda")),
    "to a copy": lambda x: x.to(torch.float32, copy=True),
    "to cpu and dtype": lambda x: x.to("cpu", torch.float64),
    "type": lambda x: x.type(torch.float16),
    "type by text": lambda x: x.type("torch.cuda.DoubleTensor"),
    "type of the cpu": lambda x: x.type("torch.DoubleTensor"),
    "type_as": lambda x: x.type_as(torch.ones(1, dtype=torch.float64, device="cuda")),
    "double": lambda x: x.double(),
    "as_tensor": lambda x: torch.as_tensor(x, dtype=torch.float64),
    "contiguous": lambda x: x.t().contiguous(),
    "reshape": lambda x: x.t().reshape(-1),
    "flatten": lambda x: x.t().flatten(),
    "ravel": lambda x: x.t().ravel(),
    "clone": lambda x: x.clone(),
    "copy_": lambda x: torch.zeros(4, 6, dtype=torch.float64, device="cuda").copy_(x),
    "copy_ of the same dtype": lambda x: torch.zeros(4, 6, device="cuda").copy_(x),
}


@pytest.mark.parametrize("name", CONVERSIONS)
def test_what_converts_or_copies_runs_on_the_cpu(name):
    """And gives what a sound device gives."""
    x = torch.arange(24.0).view(4, 6).cuda()
    wanted = CONVERSIONS[name](x)
    with fallback() as tool:
        result = CONVERSIONS[name](x)
    equal(result, wanted)
    ran = [r["name"] for r in tool.rows() if r["count"]]
    assert ran, tool.rows()


MOVES = {
    "to cpu": lambda x: x.to("cpu"),
    "cpu": lambda x: x.cpu(),
    "to the device it is on": lambda x: x.to("cuda"),
    "to its own dtype": lambda x: x.to(torch.float32),
    "cuda": lambda x: x.cuda(),
    "copy_ from the cpu": lambda x: x.copy_(torch.ones(4, 6)),
    "copy_ to the cpu": lambda x: torch.ones(4, 6).copy_(x),
    "view": lambda x: x.view(24),
    "reshape without a copy": lambda x: x.reshape(24),
    "flatten without a copy": lambda x: x.flatten(),
    "contiguous already": lambda x: x.contiguous(),
    "transpose": lambda x: x.t(),
    "type of its own": lambda x: x.type(torch.float32),
}


@pytest.mark.parametrize("name", MOVES)
def test_moves_and_views_stay_with_the_device(name):
    x = torch.arange(24.0).view(4, 6).cuda()
    plain = MOVES[name](x)
    with fallback() as tool:
        result = MOVES[name](x)
    assert not [r for r in tool.rows() if r["count"]], tool.rows()
    assert result.device == plain.device and (result.data_ptr() == x.data_ptr()) == (plain.data_ptr() == x.data_ptr())
    torch.testing.assert_close(result.cpu(), plain.cpu())


def test_a_tensor_of_the_cpu_is_converted_before_it_moves():
    with fallback() as tool:
        y = torch.arange(6.0).to("cuda", torch.float16)
    assert y.is_cuda and y.dtype == torch.float16 and row(tool, "torch.Tensor.to")["count"] == 1
    assert torch.equal(y.float().cpu(), torch.arange(6.0))


@pytest.mark.parametrize("level", ["torch", "aten"])
def test_gradients_go_through_conversions(level):
    check(
        lambda x: (x.to(torch.float64) * 2).t().reshape(-1),
        lambda: (torch.rand(3, 4).cuda().requires_grad_(),),
        level=level,
    )


def test_conversions_below_the_functions_run_on_the_cpu():
    x = torch.rand(3, 4).cuda()
    with fallback(level="aten") as tool:
        y = x.to(torch.float64)
        z = x.cpu()
    rows = {r["name"]: r for r in tool.rows()}
    assert rows["aten::_to_copy"]["count"] == 1 and rows["aten::_to_copy"]["exempt"] == {"transfer": 1}
    assert torch.equal(y.cpu(), z.double())


def test_random_numbers_are_the_cpus_from_the_devices_seed():
    """As the page says: repeatable, and not those of the device."""
    draws = (
        lambda: torch.randn(3, device="cuda"),
        lambda: torch.randperm(50, device="cuda"),
        lambda: torch.empty(3, device="cuda").normal_(),
    )
    for draw in draws:
        with fallback():
            seeded(1)
            first = draw()
            seeded(1)
            assert torch.equal(first, draw())
