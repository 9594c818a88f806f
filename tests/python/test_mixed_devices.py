"""Lists over several devices, results on the wrong one, and lazy copies."""

import copy

import ditorch  # noqa: F401
import pytest
import torch


def pair():
    return [torch.arange(6.0).view(2, 3), torch.ones(4)]


@pytest.mark.parametrize("source, target", [("cuda", "cpu"), ("cpu", "cuda")])
def test_foreach_copy_across(source, target):
    values, room = [t.to(source) for t in pair()], [torch.zeros_like(t, device=target) for t in pair()]
    versions = [t._version for t in room]
    torch._foreach_copy_(room, values)
    for got, wanted in zip(room, pair(), strict=True):
        assert got.device.type == target and torch.equal(got.cpu(), wanted)
    assert [t._version - v for t, v in zip(room, versions, strict=True)] == [1, 1]


@pytest.mark.parametrize("dtype", [torch.float16, torch.int64])
def test_foreach_copy_converts(dtype):
    room = [torch.zeros_like(t, dtype=dtype, device="cuda") for t in pair()]
    torch._foreach_copy_(room, pair(), non_blocking=True)
    assert all(torch.equal(a.cpu(), b.to(dtype)) for a, b in zip(room, pair(), strict=True))


def mixed():
    return [t.to(device) for t, device in zip(pair(), ("cuda", "cpu"), strict=True)]


def test_mixed_lists():
    lists = mixed()
    devices = [t.device.type for t in lists]
    assert [t.device.type for t in torch._foreach_norm(lists)] == devices
    assert torch.allclose(torch._foreach_norm(lists)[0].cpu(), pair()[0].norm())
    added = torch._foreach_add(lists, lists, alpha=2)
    assert [t.device.type for t in added] == devices
    assert all(torch.equal(a.cpu(), b * 3) for a, b in zip(added, pair(), strict=True))
    torch._foreach_mul_(lists, 2.0)
    assert all(torch.equal(a.cpu(), b * 2) for a, b in zip(lists, pair(), strict=True))
    torch._foreach_zero_(lists)
    assert all(t.count_nonzero() == 0 for t in lists)
    total = torch.nn.utils.get_total_norm(mixed())
    assert torch.allclose(total.cpu(), torch.nn.utils.get_total_norm(pair()))


def test_lists_that_do_not_fit_are_refused():
    with pytest.raises(RuntimeError, match="same device"):
        torch._foreach_add([t.cuda() for t in pair()], pair())


@pytest.mark.parametrize("op", ["_foreach_addcdiv", "_foreach_addcmul"])
def test_scalars_in_a_tensor(op):
    a, b, c = ([t + n for t in pair()] for n in (1, 2, 3))
    scalars = torch.tensor([0.5, 2.0])
    wanted = getattr(torch, op)(a, b, c, scalars)
    mine = [[t.cuda() for t in part] for part in (a, b, c)]
    got = getattr(torch, op)(*mine, scalars)
    assert all(torch.allclose(x.cpu(), y) and x.is_cuda for x, y in zip(got, wanted, strict=True))
    getattr(torch, op + "_")(*mine, scalars)
    assert all(torch.allclose(x.cpu(), y) for x, y in zip(mine[0], wanted, strict=True))
    with pytest.raises(RuntimeError, match="Expected scalars to be on CPU"):
        getattr(torch, op)(*mine, scalars.cuda())


def test_between_devices(python):
    assert (
        "good"
        in python(
            """
        import torch, ditorch
        a = [torch.ones(3, device=f"cuda:{i}") * i for i in (0, 1)]
        b = [torch.zeros(3, device="cuda:1") for i in (0, 1)]
        torch._foreach_copy_(b, a)
        assert [t.device.index for t in b] == [1, 1] and [t.sum().item() for t in b] == [0, 3]
        assert [t.device.index for t in torch._foreach_norm(a)] == [0, 1]
        print("good")
        """,
            DITORCH_HOST_DEVICES=2,
        ).stdout
    )


# Results on the CPU

REFUSED = {
    "add": lambda out: torch.add(torch.ones((), device="cuda"), 1, out=out),
    "sum": lambda out: torch.sum(torch.ones(3, device="cuda"), 0, out=out),
    "exp": lambda out: torch.exp(torch.ones((), device="cuda"), out=out),
    "norm": lambda out: torch.linalg.vector_norm(torch.ones(3, device="cuda"), out=out),
    "dot": lambda out: torch.dot(torch.ones(3, device="cuda"), torch.ones(3, device="cuda"), out=out),
    "median": lambda out: torch.nanmean(torch.ones(3, device="cuda"), out=out),
    "in place": lambda out: out.add_(torch.ones((), device="cuda")),
    "hypot": lambda out: out.hypot_(torch.ones((), device="cuda")),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_scalar_on_the_cpu_is_no_place_for_a_result(name):
    out = torch.zeros(())
    with pytest.raises(RuntimeError, match="to be on the same device"):
        REFUSED[name](out)
    assert out.item() == 0


def test_a_scalar_on_the_cpu_may_be_an_argument():
    x = torch.ones(3, device="cuda")
    assert torch.equal((x + torch.tensor(2.0)).cpu(), torch.full((3,), 3.0))
    assert torch.zeros(()).fill_(x[0]).item() == 1 and torch.zeros(()).copy_(x[0]).item() == 1
    assert x.add_(torch.tensor(2.0)).tolist() == [3, 3, 3]


# Lazy copies

WRITERS = {
    "add_": lambda t: t.add_(1),
    "mul_": lambda t: t.mul_(t),
    "fill_": lambda t: t.fill_(9),
    "zero_": lambda t: t.zero_(),
    "copy_": lambda t: t.copy_(torch.full_like(t, 7)),
    "copy_ from the CPU": lambda t: t.copy_(torch.full((2, 3), 7.0)),
    "copy_ converting": lambda t: t.copy_(torch.full((2, 3), 7, dtype=torch.int32).cuda()),
    "out=": lambda t: torch.exp(torch.ones(2, 3, device="cuda"), out=t),
    "fallback": lambda t: t.erfinv_(),
    "index": lambda t: t.__setitem__((0, 1), 5),
    "view": lambda t: t[1].add_(1),
    "random": lambda t: t.uniform_(),
    "foreach": lambda t: torch._foreach_add_([t], 1.0),
    "sort": lambda t: torch.sort(torch.randn(2, 3, device="cuda"), out=(t, torch.empty(0, dtype=torch.int64).cuda())),
    "pointer": lambda t: t.data_ptr() and t.add_(1),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_lazy_copy_is_written_apart(name):
    for write_copy in (True, False):
        original = torch.arange(6.0).view(2, 3).cuda()
        lazy = torch._lazy_clone(original)
        before = copy.deepcopy(original)
        written, other = (lazy, original) if write_copy else (original, lazy)
        WRITERS[name](written)
        assert torch.equal(other, before), name
        assert not torch.equal(written, before), name
        assert written.data_ptr() != other.data_ptr()


def test_reading_leaves_a_lazy_copy_lazy():
    original = torch.ones(4, device="cuda")
    lazy = torch._lazy_clone(original)
    assert torch._C._is_cow_tensor(lazy)
    assert (lazy + original).sum().item() == 8
    assert torch._C._is_cow_tensor(lazy) and torch._C._is_cow_tensor(original)


def test_fill_both_at_once():
    original = torch.ones(4, device="cuda")
    lazy = torch._lazy_clone(original)
    torch._foreach_add_([original, lazy], [1.0, 2.0])
    assert original.tolist() == [2] * 4 and lazy.tolist() == [3] * 4
