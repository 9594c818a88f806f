"""CPU twins of device tensors, and arguments rebuilt around them (python/ext/tools/twin.c, remap.c)."""

import collections
import dataclasses
import random
import typing

import ditorch  # noqa: F401
import pytest
import torch
from ditorch import _C

DTYPES = [
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int16, torch.int32),
    *(torch.int64, torch.bool, torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.uint16),
]


def twin(*tensors, **options):
    made = _C.tools_twin(tensors, **options)
    return made if len(tensors) != 1 else made[0]


def check(original, copy, grad=True):
    """The copy is the original on the CPU, in every respect but its address."""
    assert copy.device.type == "cpu"
    assert copy.dtype == original.dtype and copy.shape == original.shape and copy.layout == original.layout
    if original.layout == torch.strided:
        assert copy.stride() == original.stride()
        assert copy.is_conj() == original.is_conj() and copy.is_neg() == original.is_neg()
    if grad:
        assert copy.requires_grad == original.requires_grad
    expected, got = original.detach().cpu(), copy.detach()
    if expected.layout != torch.strided:
        expected, got = expected.to_dense(), got.to_dense()
    if expected.dtype.itemsize == 1 and expected.dtype.is_floating_point:
        expected, got = expected.view(torch.uint8), got.contiguous().view(torch.uint8)
    assert torch.equal(expected, got)


def make(shape, dtype=torch.float32):
    values = torch.randint(0, 2 if dtype == torch.bool else 7, shape)
    return values.to(dtype).to("cuda")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtypes_and_layouts(dtype):
    x = make((4, 6, 5), dtype)
    views = [x, x.transpose(0, 2), x[1:3], x[:, ::2], x[..., 1], x[2, 3, 4], x[:0], x[:, :1].expand(4, 6, 5)]
    views += [x.permute(2, 0, 1)[1:, :, 2:], x.as_strided((3, 4), (2, 1)), x.as_strided((2, 0, 3), (5, 9, 2))]
    views += [make((2, 3, 4, 4), dtype).to(memory_format=torch.channels_last)]
    for view in views:
        for copy_cpu in (False, True):
            check(view, twin(view, copy_cpu=copy_cpu))
            check(view, twin(view, attached=True, copy_cpu=copy_cpu))


def test_a_twin_has_its_own_memory():
    x = make((3, 4))
    t = twin(x)
    t.add_(1)
    assert torch.equal(t - 1, x.cpu())
    assert not t._is_view() and t.is_leaf


def test_conjugate_and_negative_bits():
    z = torch.randn(3, 4, dtype=torch.complex64, device="cuda")
    for tensor in (z.conj(), z.conj()[:, ::2], torch._neg_view(z.real), z.conj().imag, torch._neg_view(z).conj()):
        assert tensor.is_conj() or tensor.is_neg()
        check(tensor, twin(tensor))
        check(tensor, twin(tensor, attached=True))


def test_cpu_tensors_stay_unless_copies_are_wanted():
    x, index, cpu_sparse = make((3, 4)), torch.tensor([0, 2]), torch.eye(3).to_sparse()
    a, b, c = twin(x, index, cpu_sparse)
    assert b is index and c is cpu_sparse
    check(x, a)
    a, b, c = twin(x, index, cpu_sparse, copy_cpu=True)
    assert b is not index and b.data_ptr() != index.data_ptr() and torch.equal(b, index)
    assert c is not cpu_sparse and torch.equal(c.to_dense(), torch.eye(3))


def test_the_same_object_has_the_same_twin():
    x = make((3, 4))
    a, b = twin(x, x)
    assert a is b
    (a, b), c = twin([x, x], x)
    assert a is b and b is c
    s = torch.eye(3).to_sparse()
    a, b = twin(s, s, copy_cpu=True)
    assert a is b


@pytest.mark.parametrize("attached", [False, True])
def test_overlap_is_kept(attached):
    base = make((6, 6))
    x, y, z = base, base.t(), base[2:4, ::2]
    for group in ([x, y], [x, z], [y, z], [z, x, y], [z, z, x]):
        twins = _C.tools_twin(tuple(group), attached=attached)
        for original, copy in zip(group, twins, strict=True):
            check(original, copy)
        before = [t.clone() for t in group]
        with torch.no_grad():
            group[0].mul_(3)
            twins[0].mul_(3)
        for original, copy, old in zip(group, twins, before, strict=True):
            check(original, copy)
            assert not torch.equal(original, old)


def test_overlap_of_different_dtypes():
    x = make((4, 4))
    bits, half = x.view(torch.int32), x.view(torch.float16)[:, 1::2]
    a, b, c = twin(x, bits, half)
    for original, copy in ((x, a), (bits, b), (half, c)):
        check(original, copy)
    a.fill_(1.0)
    assert (b == 0x3F800000).all() and (c == 1.875).all()


def test_interleaved_chunks_do_not_share():
    """q, k and v of one projection: their addresses interleave, their elements do not."""
    joint = torch.arange(2.0 * 5 * 12, device="cuda").view(2, 5, 12)
    q, k, v = joint.chunk(3, dim=-1)
    twins = twin(q, k, v)
    for original, copy in zip((q, k, v), twins, strict=True):
        check(original, copy)
        assert copy.untyped_storage().nbytes() < joint.untyped_storage().nbytes()
    assert len({t.untyped_storage().data_ptr() for t in twins}) == 3


def test_random_views_of_one_buffer():
    """Whatever views of one buffer come together: writing to one shows in the others exactly as on the device."""
    seed = 20261115
    print("seed", seed)
    draw = random.Random(seed)
    for _ in range(200):
        base = torch.arange(120.0, device="cuda")

        def view():
            sizes = [draw.randint(1, 4) for _ in range(draw.randint(0, 3))]
            strides = [draw.choice([0, 1, 2, 3, 4, 8, 12]) for _ in sizes]
            last = sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
            return base.as_strided(sizes, strides, draw.randint(0, 119 - last))  # noqa: B023

        views = [view() for _ in range(draw.randint(1, 4))]
        twins = _C.tools_twin(tuple(views), attached=draw.random() < 0.5)
        for original, copy in zip(views, twins, strict=True):
            check(original, copy)
        writable = [
            i for i, v in enumerate(views) if 0 not in [s for s, n in zip(v.stride(), v.shape, strict=True) if n > 1]
        ]
        for i in writable[:1]:
            try:
                views[i].fill_(-1)
            except RuntimeError:  # overlaps with itself
                continue
            twins[i].fill_(-1)
        for original, copy in zip(views, twins, strict=True):
            check(original, copy)


def test_detached_twins_are_leaves():
    x = make((3, 4)).requires_grad_()
    for tensor in (x, x * 2, (x * 2)[:, ::2], x.expand(2, 3, 4), torch.nn.Parameter(make((2,)))):
        copy = twin(tensor)
        check(tensor, copy)
        assert copy.is_leaf and copy.requires_grad and copy.grad_fn is None


def test_attached_gradients_are_elementwise():
    for function in (
        lambda t: t,
        lambda t: t * 2,
        lambda t: t[:, ::2],
        lambda t: t.t(),
        lambda t: t[:, :1].expand(3, 4),
        lambda t: t.as_strided((3, 3), (1, 1)),
    ):
        x = make((3, 4)).requires_grad_()
        y = function(x)
        if y is not x:
            y.retain_grad()
        copy = twin(y, attached=True)
        check(y, copy)
        assert copy.grad_fn is not None
        gradient = torch.randn(copy.shape)
        copy.backward(gradient)
        assert y.grad.device.type == "cuda" and torch.equal(y.grad.cpu(), gradient)


def test_attached_conjugate_gradients():
    z = torch.randn(3, 4, dtype=torch.complex64, device="cuda", requires_grad=True)
    c = z.conj()
    c.retain_grad()
    copy = twin(c, attached=True)
    check(c, copy)
    gradient = torch.randn(3, 4, dtype=torch.complex64)
    copy.backward(gradient)
    assert torch.equal(c.grad.cpu().resolve_conj(), gradient)
    assert torch.equal(z.grad.cpu().resolve_conj(), gradient.conj().resolve_conj())


def test_attached_overlapping_gradients():
    x = (make((4, 4)).requires_grad_() * 1).requires_grad_()
    y = x.t()
    x.retain_grad()
    a, b = twin(x, y, attached=True)
    (a * 2 + b * 3).sum().backward()
    assert torch.equal(x.grad.cpu(), torch.full((4, 4), 5.0))


def test_nothing_flows_without_grad_mode():
    x = make((3, 4)).requires_grad_()
    with torch.no_grad():
        assert not twin(x, attached=True).requires_grad
        assert not twin(x[:, ::2], attached=True).requires_grad
    with torch.inference_mode():
        assert not twin(x, attached=True).requires_grad


def test_sparse_and_subclasses():
    s = torch.eye(3, device="cuda").to_sparse()
    check(s, twin(s))

    class Mine(torch.Tensor):
        pass

    m = make((3, 4)).as_subclass(Mine)
    m.unit = "metre"
    copy = twin(m)
    assert type(copy) is Mine and copy.unit == "metre"
    check(m, copy)
    assert type(twin(m[:, ::2])) is Mine


def test_tensors_without_values_are_refused():
    x = make((2,))
    with pytest.raises(TypeError, match=r"tensor 1 .*meta"):
        twin(x, torch.empty(2, device="meta"))
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = torch.empty(2)
    with pytest.raises(TypeError, match="FakeTensor"):
        twin(fake)


# Arguments


class Pair(typing.NamedTuple):
    left: object
    right: object


class Named(tuple):
    def __new__(cls, label, *items):
        made = super().__new__(cls, items)
        made.label = label
        return made


class Items(list):
    pass


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: object
    n: int = 3


@dataclasses.dataclass
class Slotted:
    __slots__ = ("x",)
    x: object


def test_i11_i12_containers_keep_their_type():
    x = make((2, 3))
    sort = x.sort()
    values = [
        *([x, 1], (x, None), {"a": x}, {x}, frozenset([x]), Pair(x, 2), Named("n", x, x), Frozen(x), Slotted(x)),
        *(sort, collections.OrderedDict(b=x, a=1), collections.defaultdict(list, k=x), Items([x, 2])),
    ]
    for value in values:
        copy = twin(value)
        assert type(copy) is type(value) and copy is not value
    assert twin(Pair(x, 2)).left.device.type == "cpu"
    assert twin(Named("n", x)).label == "n"
    assert twin(Frozen(x)).x.device.type == "cpu" and twin(Frozen(x)).n == 3
    assert twin(Slotted(x)).x.device.type == "cpu"
    assert twin(sort).values.device.type == "cpu" and torch.equal(twin(sort).indices, sort.indices.cpu())
    assert list(twin(collections.OrderedDict(b=x, a=1))) == ["b", "a"]
    assert twin(collections.defaultdict(list, k=x)).default_factory is list
    assert x.device.type == "cuda" and values[0][0] is x  # the arguments themselves are untouched


def test_what_does_not_change_is_passed_on_itself():
    values = [
        torch.Size([2, 3]),
        [1, 2],
        {"a": 1},
        Frozen(1),
        Pair(1, 2),
        (torch.ones(2),),
        slice(1, 2),
        Ellipsis,
        "cuda",
    ]
    for value in values:
        assert twin(value) is value


def test_f8_devices_are_replaced():
    device = torch.device("cuda", 0)
    assert twin(device) == torch.device("cpu")
    assert _C.tools_twin((1, "cuda:0", [device])) == (1, torch.device("cpu"), [torch.device("cpu")])
    for kept in (torch.device("meta"), torch.device("cpu")):
        assert twin(kept) is kept
    assert _C.tools_twin(("dit", 0)) == ("dit", 0)  # an equation of einsum


def test_a_container_that_holds_itself_ends():
    x = make((2,))
    loop = [x]
    loop.append(loop)
    assert twin(loop)[0].device.type == "cpu"
