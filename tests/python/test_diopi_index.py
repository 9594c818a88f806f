"""The host library's indexing, embedding, shape and layout operators against PyTorch on the CPU.

Every operator is called on several memory layouts of every tensor argument and on every dtype it has; moved elements
must be equal bit for bit. Argument errors must give a code and a text and leave the output as it was.
"""

from __future__ import annotations

import ctypes
import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from ditorch import diopi

HOST = diopi.Library("host")
SEED = 71
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
COMPLEX = (torch.complex64, torch.complex128)
SUMS = (*FLOATS, *INTEGERS, torch.bool, *COMPLEX)
MOVED = (torch.float32, torch.bfloat16, torch.float64, torch.bool, torch.complex128)
NUMBERS = {0: torch.uint8, 1: torch.int8, 2: torch.int16, 3: torch.int32, 4: torch.int64, 5: torch.float16}
NUMBERS |= {6: torch.float32, 7: torch.float64, 9: torch.complex64, 10: torch.complex128, 11: torch.bool}
NUMBERS |= {15: torch.bfloat16}
LAYOUTS = ("contiguous", "offset", "strided", "permuted")
aten = torch.ops.aten


def draw(shape, dtype=torch.float32, seed=SEED):
    """Random values of the dtype; the seed is the test's."""
    shape = tuple(shape)
    generator = torch.Generator().manual_seed(seed + 31 * len(shape) + sum(shape))
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    if not (dtype.is_floating_point or dtype.is_complex):
        return torch.randint(0 if dtype == torch.uint8 else -9, 9, shape, generator=generator).to(dtype)
    real = torch.randn(shape, generator=generator, dtype=torch.float64)
    return real.to(dtype) * (1 + 2j) if dtype.is_complex else real.to(dtype)


def positions(shape, size, dtype=torch.int64, seed=SEED, low=0):
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randint(low, size, tuple(shape), generator=generator).to(dtype)


def restride(tensor, layout):
    """The same values in another memory layout."""
    if layout == "offset":
        return torch.cat([tensor.new_zeros(3), tensor.reshape(-1)])[3:].view(tensor.shape)
    if layout == "strided":
        return tensor.new_zeros([*tensor.shape, 2])[..., 1].copy_(tensor)
    if layout == "permuted":
        order = list(reversed(range(tensor.dim())))
        return tensor.permute(order).contiguous().permute(order)
    return tensor.contiguous()


def place(shape, dtype, layout="contiguous"):
    """An output with rubbish in it."""
    return restride(torch.full(tuple(shape), 1, dtype=dtype), layout)


def make(result):
    """The tensor that a library made for a result of unknown size."""
    dtype = NUMBERS[result.dtype]
    flat = torch.frombuffer(bytearray(result.data) or bytearray(16), dtype=dtype)
    return flat[: math.prod(result.shape)].reshape(result.shape)


def run(function, reference, *arguments, layout="contiguous"):
    """Call a function whose first argument is an output like `reference`, and compare."""
    out = place(reference.shape, reference.dtype, layout)
    HOST.call(function, out, *arguments)
    torch.testing.assert_close(out, reference, rtol=0, atol=0, equal_nan=True)


def run_made(function, reference, *arguments):
    result = diopi.Required()
    HOST.call(function, result, *arguments)
    assert tuple(result.shape) == tuple(reference.shape)
    assert NUMBERS[result.dtype] == reference.dtype
    torch.testing.assert_close(make(result), reference, rtol=0, atol=0, equal_nan=True)


def refuse(text, function, out, *arguments, code=1):
    """An argument error: the code, a text that says `text`, and nothing written."""
    tensors = [t for t in (out if isinstance(out, list) else [out]) if isinstance(t, torch.Tensor)]
    before = [t.clone() for t in tensors]
    with pytest.raises(diopi.Error) as error:
        HOST.call(function, out, *arguments)
    assert error.value.code == code
    assert text in error.value.text
    assert function in error.value.text
    for tensor, copy in zip(tensors, before, strict=True):
        torch.testing.assert_close(tensor, copy, rtol=0, atol=0, equal_nan=True)


def close(out, reference, terms=1):
    """Sums of half types keep float sums here and are rounded once; PyTorch rounds after each term in places."""
    factor = {torch.float16: 2**-11, torch.bfloat16: 2**-8, torch.float32: 2**-23, torch.complex64: 2**-22}
    bound = factor.get(out.dtype, 2**-51) * 2 * terms
    torch.testing.assert_close(out, reference.to(out.dtype), rtol=bound, atol=bound, equal_nan=True)


# Embedding


@pytest.mark.parametrize("dtype", [*MOVED, torch.int64, torch.int8])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_embedding(dtype, layout):
    for shape, kind in itertools.product(((4, 7), (), (0,), (3, 0), (600,)), (torch.int64, torch.int32)):
        weight, indices = restride(draw((50, 19), dtype), layout), restride(positions(shape, 50, kind), layout)
        run("diopiEmbedding", weight[indices.long()], weight, indices, -1, False, False, layout=layout)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_embedding_backward(dtype, layout):
    for shape, padding, scaled in (
        ((4, 7), -1, False),
        ((40,), 2, False),
        ((), -1, False),
        ((0,), 0, False),
        ((60,), 3, True),
    ):
        if scaled and not dtype.is_floating_point:
            continue
        indices = restride(positions(shape, 11), layout)
        grad = restride(draw((*shape, 530), dtype), layout)
        out = place((11, 530), dtype, layout)
        HOST.call("diopiEmbeddingBackward", out, grad, indices, 11, padding, scaled, False)
        wide = grad.double() if dtype.is_floating_point else grad
        expected = aten.embedding_dense_backward(wide, indices, 11, padding, scaled)
        if dtype in (torch.float32, torch.float64) and not scaled:
            assert torch.equal(out, aten.embedding_dense_backward(grad, indices, 11, padding, False))  # the same order
        elif dtype.is_floating_point:
            close(out, expected, terms=8 if dtype == torch.float32 else 1)
        else:
            assert torch.equal(out, expected)


def test_embedding_backward_sums_half_in_float():
    grad = torch.ones(1000, 3, dtype=torch.bfloat16)
    out = place((2, 3), torch.bfloat16)
    HOST.call("diopiEmbeddingBackward", out, grad, torch.zeros(1000, dtype=torch.int64), 2, -1, False, False)
    assert out[0].tolist() == [1000.0] * 3


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("norm", [2.0, 1.0, 3.0, 0.5, math.inf])
def test_embedding_renorm(dtype, norm):
    weight = draw((20, 9), dtype)
    weight[0] *= 0.01
    indices = positions((2, 8), 10)
    expected = torch.embedding_renorm_(weight.double(), indices, 1.5, norm)
    table = restride(weight, "strided")
    HOST.call("diopiEmbeddingRenorm_", table, indices, 1.5, norm)
    close(table, expected, terms=4)
    assert torch.equal(table[10:], weight[10:])


def test_embedding_errors():
    weight, out = draw((5, 3)), place((2, 3), torch.float32)
    refuse(
        "holds 5; valid for a dimension of size 5: 0 to 4",
        "diopiEmbedding",
        out,
        weight,
        torch.tensor([1, 5]),
        -1,
        False,
        False,
    )
    refuse("holds -1", "diopiEmbedding", out, weight, torch.tensor([-1, 2]), -1, False, False)
    refuse("'indices' is float32", "diopiEmbedding", out, weight, torch.tensor([1.0, 2.0]), -1, False, False, code=1000)
    refuse(
        "'out' has shape [2, 3]; it must be [3, 3]",
        "diopiEmbedding",
        out,
        weight,
        torch.tensor([1, 2, 0]),
        -1,
        False,
        False,
    )
    refuse("'weight' has 1 dim", "diopiEmbedding", out, weight[0], torch.tensor([1, 2]), -1, False, False)
    refuse("'indices' is NULL", "diopiEmbedding", out, weight, None, -1, False, False)
    refuse("float64", "diopiEmbedding", place((2, 3), torch.float64), weight, torch.tensor([1, 2]), -1, False, False)
    refuse("'out' shares memory", "diopiEmbedding", weight[:2], weight, torch.tensor([1, 2]), -1, False, False)
    refuse(
        "holds 9",
        "diopiEmbeddingBackward",
        place((5, 3), torch.float32),
        draw((2, 3)),
        torch.tensor([1, 9]),
        5,
        -1,
        False,
        False,
    )
    refuse(
        "num_weights",
        "diopiEmbeddingBackward",
        place((5, 3), torch.float32),
        draw((2, 3)),
        torch.tensor([1, 1]),
        6,
        -1,
        False,
        False,
    )
    refuse(
        "bool",
        "diopiEmbeddingBackward",
        place((5, 3), torch.bool),
        draw((2, 3), torch.bool),
        torch.tensor([1, 1]),
        5,
        -1,
        False,
        False,
        code=1000,
    )
    refuse("holds 7", "diopiEmbeddingRenorm_", weight, torch.tensor([7]), 1.0, 2.0)


# Cat, stack, split, meshgrid


@pytest.mark.parametrize("dtype", MOVED)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_cat(dtype, layout):
    for dim in (0, 1, 2, -1):
        shapes = [[3, 4, 5] for _ in range(3)]
        for shape, size in zip(shapes, (2, 0, 6), strict=True):
            shape[dim] = size
        parts = [restride(draw(shape, dtype), layout) for shape in shapes]
        run("diopiCat", torch.cat(parts, dim), parts, 3, dim, layout=layout)
    parts = [torch.empty(0, dtype=dtype), draw((2, 3), dtype), torch.empty(0, dtype=dtype)]
    run("diopiCat", torch.cat(parts, 1), parts, 3, 1)
    wide = [draw((65, 300), dtype), draw((65, 217), dtype)]
    run("diopiCat", torch.cat(wide, 1), wide, 2, 1, layout=layout)


def test_cat_converts_and_expands():
    parts = [draw((2, 3), torch.float16), draw((1, 3), torch.int32).expand(4, 3)]
    run("diopiCat", torch.cat([p.double() for p in parts]), parts, 2, 0)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_stack_split_meshgrid(layout):
    parts = [restride(draw((3, 4), seed=seed), layout) for seed in range(3)]
    for dim in (0, 1, 2, -1, -3):
        run("diopiStack", torch.stack(parts, dim), parts, 3, dim, layout=layout)
    x = restride(draw((4, 9, 3)), layout)
    for sizes, dim in (((2, 0, 7), 1), ((1, 3), 0), ((3,), -1)):
        expected = torch.split_with_sizes(x, sizes, dim)
        outs = [place(e.shape, e.dtype, layout) for e in expected]
        HOST.call("diopiSplitWithSizes", outs, len(outs), x, sizes, dim)
        assert all(torch.equal(o, e) for o, e in zip(outs, expected, strict=True))
    axes = [*(restride(draw((n,)), layout) for n in (2, 3, 4)), draw(())]
    expected = torch.meshgrid(*axes, indexing="ij")
    outs = [place(e.shape, e.dtype, layout) for e in expected]
    HOST.call("diopiMeshGrid", outs, axes, 4)
    assert all(torch.equal(o, e) for o, e in zip(outs, expected, strict=True))


def test_cat_errors():
    a, b = draw((2, 3)), draw((2, 4))
    refuse("at least 1", "diopiCat", place((2, 3), a.dtype), [], 0, 0)
    refuse("'tensors[1]' has shape [2, 4]", "diopiCat", place((4, 3), a.dtype), [a, b], 2, 0)
    refuse("the inputs have 7", "diopiCat", place((2, 8), a.dtype), [a, b], 2, 1)
    refuse("'dim' is 2", "diopiCat", place((2, 7), a.dtype), [a, b], 2, 2)
    refuse("'tensors[1]' is NULL", "diopiCat", place((2, 7), a.dtype), [a, None], 2, 1)
    whole = draw((4, 3))
    refuse("shares memory", "diopiCat", whole, [whole[:2], a], 2, 0)
    refuse("reaches one element", "diopiCat", torch.zeros(1, 7).expand(2, 7), [a, b], 2, 1)
    refuse("2 tensors", "diopiStack", place((3, 2, 3), a.dtype), [a, a], 2, 0)
    refuse("[2, 4]", "diopiStack", place((2, 2, 3), a.dtype), [a, b], 2, 0)
    refuse(
        "give 4", "diopiSplitWithSizes", [place((2, 1), a.dtype), place((2, 3), a.dtype)], 2, draw((2, 5)), (1, 3), 1
    )
    refuse(
        "'outs[1]' has shape", "diopiSplitWithSizes", [place((2, 1), a.dtype), place((2, 3), a.dtype)], 2, b, (1, 2), 1
    )
    refuse("as many", "diopiSplitWithSizes", [place((2, 1), a.dtype)], 1, b, (1, 3), 1)
    refuse("2 dimensions; valid: 0 and 1", "diopiMeshGrid", [place((2, 3), a.dtype)] * 2, [a, a], 2)


# Gather and scatter


@pytest.mark.parametrize("dtype", [*MOVED, torch.int16])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_gather(dtype, layout):
    x = restride(draw((5, 6, 7), dtype), layout)
    for dim, kind in itertools.product((0, 1, 2, -2), (torch.int64, torch.int32)):
        index = restride(positions((4, 5, 6), x.shape[dim], kind), layout)
        run("diopiGather", x.gather(dim, index.long()), x, dim, index, layout=layout)
    run("diopiGather", x.reshape(-1)[:1][0], x.reshape(-1)[0], 0, torch.tensor(0))
    empty = torch.empty((0, 6, 7), dtype=torch.int64)
    run("diopiGather", x.gather(0, empty), x, 0, empty)
    wide = positions((6, 1), 5).expand(6, 7)
    run("diopiGather", x[:, 0].gather(0, wide), x[:, 0], 0, wide)


@pytest.mark.parametrize("dtype", SUMS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_gather_backward(dtype, layout):
    x = draw((5, 6, 7), dtype)
    for dim in (0, 1, 2):
        index = restride(positions((4, 5, 6), 5), layout)
        grad = restride(draw((4, 5, 6), dtype), layout)
        out = place(x.shape, dtype, layout)
        HOST.call("diopiGatherBackward", out, grad, x, dim, index)
        close(out, torch.zeros_like(x).scatter_add(dim, index, grad))


@pytest.mark.parametrize("dtype", SUMS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.filterwarnings("ignore")
def test_scatter(dtype, layout):
    x, src = restride(draw((5, 6, 7), dtype), layout), restride(draw((6, 6, 8), dtype, seed=1), layout)
    kinds = (torch.int64, torch.int32) if layout == "strided" else (torch.int64,)
    for dim, reduce, kind in itertools.product((0, 1, 2), ("", "add", "multiply"), kinds):
        index = restride(positions((5, 6, 7), x.shape[dim], kind), layout)
        more = {"reduce": reduce} if reduce else {}
        expected = x.scatter(dim, index.long(), src, **more)
        out = place(x.shape, dtype, layout)
        HOST.call("diopiScatter", out, x, dim, src, index, reduce)
        close(out, expected)
        out = restride(x, layout).clone()
        HOST.call("diopiScatterInp", out, dim, src, index, reduce)
        close(out, expected)
        expected = x.scatter(dim, index.long(), 1, **more)
        out = place(x.shape, dtype, layout)
        HOST.call("diopiScatterScalar", out, x, dim, True if dtype == torch.bool else 1, index, reduce)
        close(out, expected)
        HOST.call("diopiScatterScalar", out, out, dim, 0, index, "")
        close(out, expected.scatter(dim, index.long(), 0))


def test_scatter_small():
    x = torch.tensor(3.0)
    run("diopiScatter", torch.tensor(5.0), x, 0, torch.tensor(5.0), torch.tensor(0), "")
    x = draw((3, 4))
    run("diopiScatter", x, x, 0, draw((3, 4)), torch.empty((0, 4), dtype=torch.int64), None)
    many = torch.zeros(1000, dtype=torch.int64)
    run("diopiScatter", torch.tensor([999.0, 0.0]), torch.zeros(2), 0, torch.arange(1000.0), many, "")
    half = torch.zeros(2, dtype=torch.bfloat16)
    run(
        "diopiScatter",
        torch.tensor([1000.0, 0], dtype=half.dtype),
        half,
        0,
        torch.ones(1000, dtype=half.dtype),
        many,
        "add",
    )


def test_gather_scatter_errors():
    x, index = draw((3, 4)), torch.tensor([[0, 2, 1, 3]])
    refuse("holds 3; valid for a dimension of size 3", "diopiGather", place((1, 4), x.dtype), x, 0, index)
    refuse("nowhere longer", "diopiGather", place((4, 1), x.dtype), x, 1, torch.zeros((4, 1), dtype=torch.int64))
    refuse("1 dimensions", "diopiGather", place((4,), x.dtype), x, 1, torch.zeros((4,), dtype=torch.int64))
    refuse("int16; valid: int32, int64", "diopiGather", place((1, 4), x.dtype), x, 1, index.to(torch.int16), code=1000)
    refuse("valid: '', 'add', 'multiply'", "diopiScatterInp", x, 0, x.clone(), index, "mean")
    refuse("holds 3", "diopiScatterInp", x, 0, x.clone(), index, "add")
    refuse("nowhere longer than 'src'", "diopiScatterInp", x, 1, draw((1, 3)), index, "")
    refuse("'src' is float64", "diopiScatterInp", x, 1, x.double(), index, "")
    refuse("shares memory", "diopiScatterInp", x, 1, x, index, "")
    refuse("cannot hold", "diopiScatterInpScalar", x.half(), 1, 1e6, index, "")
    refuse("uint16", "diopiScatterInp", x.to(torch.uint16), 1, x.to(torch.uint16), index, "add", code=1000)
    refuse("'value' is NULL", "diopiScatterInpScalar", x, 1, None, index, "")


# Index, index_put, index_select, index_fill


def index_cases():
    """Lists of indices for a tensor of shape (5, 6, 7)."""
    a, b = torch.tensor([0, -1, 3]), torch.tensor([[1], [-6]])
    mask = draw((5, 6), torch.bool)
    return {
        "first": [a],
        "last": [None, None, a],
        "middle": [None, a, None],
        "two": [a, a],
        "neighbours": [None, b, a],
        "apart": [a, None, b],
        "all": [a, a.to(torch.int32), b],
        "number": [torch.tensor(-2)],
        "empty": [torch.empty(0, dtype=torch.int64)],
        "empty2": [None, torch.empty((2, 0), dtype=torch.int64)],
        "mask1": [draw((5,), torch.bool)],
        "mask2": [mask],
        "mask3": [draw((5, 6, 7), torch.bool)],
        "mask_last": [None, draw((6, 7), torch.bool, seed=3)],
        "mask_byte": [mask.to(torch.uint8)],
        "mask_none": [torch.zeros(5, dtype=torch.bool)],
        "mask_and_list": [torch.tensor([True, False, True, True, False]), None, a],
        "expanded": [a[:1].expand(4), positions((4,), 6)],
        "long": [positions((1500,), 5, low=-5)],
        "nothing": [None],
    }


@pytest.mark.parametrize("name", index_cases())
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.filterwarnings("ignore")
def test_index(name, layout):
    indices = [None if i is None else restride(i, layout) for i in index_cases()[name]]
    for dtype in MOVED:
        x = restride(draw((5, 6, 7), dtype), layout)
        run_made("diopiIndex", aten.index(x, indices) if name != "nothing" else x, x, indices, len(indices))


def put(x, indices, values, accumulate):
    if indices == [None]:
        return x + values if accumulate else values.expand(x.shape)
    indices = [i.bool() if i is not None and i.dtype == torch.uint8 else i for i in indices]
    return aten.index_put(x, indices, values, accumulate)


@pytest.mark.parametrize("name", index_cases())
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.filterwarnings("ignore")
def test_index_put(name, layout):
    indices = [None if i is None else restride(i, layout) for i in index_cases()[name]]
    for dtype in (torch.float32, torch.float16, torch.bool, torch.int64, torch.complex64):
        x = restride(draw((5, 6, 7), dtype), layout)
        part = aten.index(x, indices) if name != "nothing" else x
        shapes = {part.shape, part.shape[1:], ()}
        for shape, accumulate in itertools.product(shapes, (False, True)):
            values = restride(draw(shape, dtype, seed=5), layout)
            if not accumulate and len(shape) and name in ("expanded", "long", "all"):
                values = values[(0,) * len(shape)].expand(shape)  # duplicates: only one value has one result
            out = place(x.shape, dtype, layout)
            HOST.call("diopiIndexPut", out, x, values, indices, len(indices), accumulate)
            wide = torch.float64 if dtype == torch.float16 else dtype  # half types are summed in a wider one
            close(out, put(x.to(wide), indices, values.to(wide), accumulate), terms=4)
            again = restride(x, layout).clone()
            HOST.call("diopiIndexPutInp", again, values, indices, len(indices), accumulate)
            assert torch.equal(again, out)
        grad = restride(draw(part.shape, dtype, seed=6), layout)
        expected = put(torch.zeros_like(x, dtype=wide), indices, grad.to(wide), True)
        out = place(x.shape, dtype, layout)
        HOST.call("diopiIndexBackward", out, torch.zeros_like(x), indices, len(indices), grad)
        close(out, expected, terms=4)
        given = place(x.shape, dtype, layout)
        HOST.call("diopiIndexBackward", given, None, indices, len(indices), grad)
        assert torch.equal(out, given)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_index_places(layout):
    """Index tensors that are not neighbours come first in the result, also where the first dimension is whole."""
    x = restride(draw((3, 4, 5, 6)), layout)
    a, b = torch.tensor([[0, 3], [1, -1]]), torch.tensor([5, -6])
    for indices in ([None, a, None, b], [None, a, b[:1].clamp(max=4)], [a[:, :1].clamp(max=2), None, None, b]):
        run_made("diopiIndex", aten.index(x, indices), x, indices, len(indices))
        values = draw(aten.index(x, indices).shape, seed=3)
        run("diopiIndexPut", aten.index_put(x, indices, values, True), x, values, indices, len(indices), True)


@pytest.mark.parametrize("dtype", SUMS)
def test_index_put_sums(dtype):
    x, index = draw((70, 300), dtype), positions((900,), 70, low=-70)
    values = draw((900, 300), dtype, seed=9)
    wide = dtype if dtype in (*INTEGERS, torch.bool) else torch.complex128 if dtype.is_complex else torch.float64
    out = x.clone()
    HOST.call("diopiIndexPutInp", out, values, [index], 1, True)
    close(out, x.to(wide).index_put((index,), values.to(wide), True), terms=64 if dtype != torch.float16 else 2)
    column = draw((4000,), dtype)
    out = x[0].clone()
    HOST.call("diopiIndexPutInp", out, column, [positions((4000,), 300)], 1, True)
    expected = x[0].to(wide).index_put((positions((4000,), 300),), column.to(wide), True)
    close(out, expected, terms=64 if dtype != torch.float16 else 2)


def test_index_put_last_write_stays():
    out = torch.zeros(3, 200)
    values = torch.arange(4.0)[:, None].expand(4, 200)
    HOST.call("diopiIndexPutInp", out, values, [torch.tensor([2, 1, 2, 1])], 1, False)
    assert out[:, 7].tolist() == [0, 3, 2]


@pytest.mark.parametrize("dtype", [*MOVED, torch.int16])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_index_select(dtype, layout):
    x = restride(draw((5, 6, 7), dtype), layout)
    for dim, kind in itertools.product((0, 1, 2, -1), (torch.int64, torch.int32)):
        index = restride(positions((9,), x.shape[dim], kind), layout)
        expected = x.index_select(dim, index)
        run("diopiIndexSelect", expected, x, dim, index, layout=layout)
        if dtype in (torch.float32, torch.bfloat16):
            out = place(x.shape, dtype, layout)
            HOST.call("diopiIndexSelectBackward", out, expected, x.shape, dim, index)
            wide = torch.zeros(x.shape, dtype=torch.float64)
            close(out, wide.index_add_(dim, index, expected.double()), terms=4)
        value = True if dtype == torch.bool else 3
        expected = x.index_fill(dim, index.long(), value)
        run("diopiIndexFillScalar", expected, x, dim, index, value, layout=layout)
        run("diopiIndexFill", expected, x, dim, index, torch.tensor(value).to(dtype), layout=layout)
        for function, number in (("diopiIndexFillInpScalar", value), ("diopiIndexFillInp", torch.tensor(value))):
            out = restride(x, layout).clone()
            HOST.call(function, out, dim, index, number)
            assert torch.equal(out, expected)
    run("diopiIndexSelect", x[0, 0, 0], x[0, 0, 0], 0, torch.tensor([0]).reshape(()))
    back = torch.tensor([-1, 0])
    run("diopiIndexFillScalar", x.index_fill(1, back, 0), x, 1, back, 0)


def test_index_errors():
    x, a = draw((3, 4)), torch.tensor([0, 3])
    refuse("'indices[0]' holds 3; valid for a dimension of size 3: -3 to 2", "diopiIndex", diopi.Required(), x, [a], 1)
    refuse("'indices[1]' holds -5", "diopiIndex", diopi.Required(), x, [a.clamp(max=1), a - 5], 2)
    refuse("3 'indices'; valid: 0 to 2", "diopiIndex", diopi.Required(), x, [a, a, a], 3)
    refuse("does not broadcast", "diopiIndex", diopi.Required(), x, [a.clamp(max=1), torch.tensor([0, 1, 2])], 2)
    refuse("mask of shape [4]", "diopiIndex", diopi.Required(), x, [torch.ones(4, dtype=torch.bool)], 1)
    refuse(
        "more than the 2 dimensions", "diopiIndex", diopi.Required(), x, [None, torch.ones((4, 1), dtype=torch.bool)], 2
    )
    refuse("float32; valid: int32", "diopiIndex", diopi.Required(), x, [draw((2,))], 1, code=1000)
    refuse("'values' has shape [3, 4]", "diopiIndexPutInp", x, draw((3, 4)), [a.clamp(max=1)], 1, False)
    refuse("holds 3", "diopiIndexPutInp", x, draw((2, 4)), [a], 1, True)
    refuse("'values' is float64", "diopiIndexPutInp", x, draw((2, 4)).double(), [a.clamp(max=1)], 1, True)
    refuse("shares memory", "diopiIndexPutInp", x, x[:2], [a.clamp(max=1)], 1, False)
    refuse(
        "uint32", "diopiIndexPutInp", x.to(torch.uint32), x[:2].to(torch.uint32), [a.clamp(max=1)], 1, True, code=1000
    )
    refuse("holds 3", "diopiIndexSelect", place((2, 4), x.dtype), x, 0, a)
    refuse("it must be [2, 4]", "diopiIndexSelect", place((3, 4), x.dtype), x, 0, a.clamp(max=1))
    refuse("holds -1", "diopiIndexSelect", place((2, 4), x.dtype), x, 0, a.clamp(max=1) - 1)
    refuse("holds 3; valid for a dimension of size 3: -3", "diopiIndexFillInpScalar", x, 0, a, 1.0)
    refuse("must be one number", "diopiIndexFillInp", x, 0, a.clamp(max=1), draw((2,)))


# Select and slice


@pytest.mark.parametrize("dtype", MOVED)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_select_slice(dtype, layout):
    x = restride(draw((5, 6, 7), dtype), layout)
    for dim, index in ((0, 2), (1, -1), (-1, 0)):
        part = x.select(dim, index)
        run("diopiSelect", part, x, dim, index, layout=layout)
        run(
            "diopiSelectBackward",
            aten.select_backward(part, x.shape, dim, index),
            part,
            x.shape,
            dim,
            index,
            layout=layout,
        )
        src = restride(draw(part.shape, dtype, seed=2), layout)
        run("diopiSelectScatter", torch.select_scatter(x, src, dim, index), x, src, dim, index, layout=layout)
    for dim, start, end, step in ((0, 1, 4, 1), (1, -4, 100, 2), (2, 0, -1, 3), (-1, 5, 2, 1), (0, -99, 99, 5)):
        part = aten.slice(x, dim, start, end, step)
        run("diopiSlice", part, x, dim, start, end, step, layout=layout)
        back = aten.slice_backward(part, x.shape, dim, start, end, step)
        run("diopiSliceBackward", back, part, x.shape, dim, start, end, step, layout=layout)
        src = restride(draw(part.shape, dtype, seed=2), layout)
        expected = torch.slice_scatter(x, src, dim, start, end, step)
        run("diopiSliceScatter", expected, x, src, dim, start, end, step, layout=layout)
    same = x.clone()
    HOST.call("diopiSelectScatter", same, same, draw((6, 7), dtype), 0, 1)
    assert torch.equal(same, torch.select_scatter(x, draw((6, 7), dtype), 0, 1))


def test_select_errors():
    x = draw((3, 4))
    refuse("'index' is 3; valid for a dimension of size 3: -3 to 2", "diopiSelect", place((4,), x.dtype), x, 0, 3)
    refuse("at least 1", "diopiSelect", place((), x.dtype), x[0, 0], 0, 0)
    refuse("'step' is 0", "diopiSlice", place((3, 4), x.dtype), x, 0, 0, 3, 0)
    refuse("it must be [2, 4]", "diopiSlice", place((3, 4), x.dtype), x, 0, 0, 2, 1)
    refuse("it must be [3, 5]", "diopiSliceBackward", place((3, 4), x.dtype), x, (3, 5), 0, 0, 3, 1)
    refuse("'src' has shape", "diopiSelectScatter", place((3, 4), x.dtype), x, draw((3,)), 0, 0)


# Masks


@pytest.mark.parametrize("dtype", [*MOVED, torch.int16])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_masked_fill(dtype, layout):
    value = True if dtype == torch.bool else 3
    for shape in ((5, 6, 7), (6, 1), (), (1, 6, 7)):
        x, mask = restride(draw((5, 6, 7), dtype), layout), restride(draw(shape, torch.bool), layout)
        expected = x.masked_fill(mask, value)
        run("diopiMaskedFillScalar", expected, x, mask, value, layout=layout)
        run("diopiMaskedFill", expected, x, mask, torch.tensor(value).to(dtype), layout=layout)
        for function, number in (("diopiMaskedFillInpScalar", value), ("diopiMaskedFillInp", torch.tensor(value))):
            out = restride(x, layout).clone()
            HOST.call(function, out, mask, number)
            assert torch.equal(out, expected)
    small = draw((6, 1), dtype)
    mask = draw((5, 6, 7), torch.bool)
    run("diopiMaskedFillScalar", small.masked_fill(mask, value), small, mask, value)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (torch.int8, 300),
        (torch.uint8, 300),
        (torch.uint8, -300),
        (torch.int8, 200.0),
        (torch.int64, math.inf),
        (torch.float16, 1e6),
        (torch.float32, 1e300),
        (torch.int32, math.nan),
        (torch.int16, -40000),
    ],
)
def test_masked_fill_refuses_what_does_not_fit(dtype, value):
    x, mask = torch.zeros(3, dtype=dtype), torch.ones(3, dtype=torch.bool)
    with pytest.raises(RuntimeError):
        x.masked_fill(mask, value)
    refuse("cannot hold", "diopiMaskedFillInpScalar", x, mask, value)
    refuse("cannot hold", "diopiMaskedFillInp", x, mask, torch.tensor(value, dtype=torch.float64))


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (torch.uint8, -1),
        (torch.int64, 1.5),
        (torch.float16, math.inf),
        (torch.bool, 5),
        (torch.float16, -math.inf),
        (torch.bool, 2.5),
    ],
)
def test_masked_fill_values(dtype, value):
    x, mask = torch.zeros(3, dtype=dtype), torch.tensor([True, False, True])
    run("diopiMaskedFillScalar", x.masked_fill(mask, value), x, mask, value)


@pytest.mark.parametrize("dtype", [*MOVED, torch.int16, torch.float16, torch.complex64])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_masked_select_and_nonzero(dtype, layout):
    for shape, kind in itertools.product(((5, 6, 7), (7,), ()), (torch.bool, torch.uint8)):
        x, mask = restride(draw((5, 6, 7), dtype), layout), restride(draw(shape, torch.bool).to(kind), layout)
        chosen = mask.bool()
        part = x.masked_select(chosen)
        run_made("diopiMaskedSelect", part, x, mask)
        source = restride(draw((6, 50), dtype, seed=4), layout)
        run("diopiMaskedScatter", x.masked_scatter(chosen, source), x, mask, source, layout=layout)
        back = aten.masked_select_backward(part, x, chosen)
        run("diopiMaskedSelectBackward", back, part, x, mask, layout=layout)
    run_made("diopiMaskedSelect", x[0, 0].masked_select(x.bool()), x[0, 0], x.bool())
    for shape in ((5, 6, 7), (0, 3), (300, 257), (11,), ()):
        y = draw(shape, dtype) if dtype == torch.bool else draw(shape, torch.int8).to(dtype)
        y = restride(y.masked_fill(draw(shape, torch.bool), 0), layout)
        run_made("diopiNonzero", y.nonzero(), y)


def test_nonzero_special():
    x = torch.tensor([0.0, -0.0, math.nan, math.inf, 1e-45])
    run_made("diopiNonzero", x.nonzero(), x)
    x = torch.tensor([0.0, -0.0, math.nan], dtype=torch.bfloat16)
    run_made("diopiNonzero", x.nonzero(), x)
    x = torch.tensor([0j, complex(0, 1), complex(-0.0, -0.0), 1 + 0j], dtype=torch.complex128)
    run_made("diopiNonzero", x.nonzero(), x)


def test_mask_errors():
    x, mask = draw((3, 4)), draw((3, 4), torch.bool)
    refuse("float32; valid: bool, uint8", "diopiMaskedFillInpScalar", x, x.clone(), 1.0, code=1000)
    refuse("broadcast", "diopiMaskedFillInpScalar", x, mask[:2], 1.0)
    refuse("broadcast", "diopiMaskedFillInpScalar", x, mask.expand(2, 3, 4), 1.0)
    refuse("must be one number", "diopiMaskedFillInp", x, mask, draw((2,)))
    refuse("'value' is NULL", "diopiMaskedFillInp", x, mask, None)
    refuse("elements; 'mask' is true", "diopiMaskedScatter", place((3, 4), x.dtype), x, mask | True, draw((5,)))
    refuse("elements; 'mask' is true", "diopiMaskedSelectBackward", place((3, 4), x.dtype), draw((13,)), x, mask | True)
    refuse("do not broadcast", "diopiMaskedSelect", diopi.Required(), x, mask[:2])


# Shapes and layouts


@pytest.mark.parametrize("dtype", MOVED)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_permute_expand_repeat(dtype, layout):
    x = restride(draw((3, 4, 5), dtype), layout)
    for a, b in ((0, 1), (1, 2), (-1, 0), (1, 1)):
        run("diopiTranspose", x.transpose(a, b), x, a, b, layout=layout)
    for order in itertools.permutations(range(3)):
        run("diopiPermute", x.permute(order), x, order, layout=layout)
    run("diopiPermute", x.permute(-1, 0, 1), x, (-1, 0, 1), layout=layout)
    run("diopiExpand", x[:, :1].expand(2, 3, 6, 5), x[:, :1], layout=layout)
    for repeats in ((1, 2, 3), (2, 1, 1, 4), (0, 1, 1), (1, 1, 1)):
        run("diopiRepeat", x.repeat(repeats), x, repeats, layout=layout)
    scalar = draw((), dtype)
    run("diopiTranspose", scalar, scalar, 0, -1)
    run("diopiPermute", scalar, scalar, ())
    run("diopiRepeat", scalar.repeat(3, 2), scalar, (3, 2))
    big = draw((130, 70), dtype)
    run("diopiTranspose", big.t(), big, 0, 1, layout=layout)
    cube = restride(draw((3, 33, 70), dtype), layout)
    run("diopiPermute", cube.permute(2, 0, 1), cube, (2, 0, 1), layout=layout)


@pytest.mark.parametrize("dtype", MOVED)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_roll_flip(dtype, layout):
    x = restride(draw((3, 4, 5), dtype), layout)
    for shifts, dims in (((2,), (0,)), ((-1, 7), (2, 1)), ((1, 1), (0, 0)), ((4,), ()), ((-13,), ()), ((0,), (1,))):
        run("diopiRoll", torch.roll(x, shifts, dims), x, shifts, dims, layout=layout)
    for dims in ((0,), (2,), (0, -1), (0, 1, 2), ()):
        run("diopiFlip", x.flip(dims), x, dims, layout=layout)
    empty = torch.empty((0, 3), dtype=dtype)
    run("diopiRoll", empty, empty, (2,), (0,))
    run("diopiFlip", empty, empty, (0,))
    scalar = draw((), dtype)
    run("diopiFlip", scalar, scalar, ())
    run("diopiRoll", scalar, scalar, (3,), ())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_pad(layout):
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.complex64):
        x = restride(draw((2, 3, 5, 6), dtype), layout)
        for pad in ((1, 2), (0, 0, 3, 1), (2, -1, -1, 2), (1, 1, 0, 2, 3, 0), (0, 1, 1, 0, -1, 0, 2, 2), (-2, -4), ()):
            expected = F.pad(x, pad, value=2)
            run("diopiPad", expected, x, pad, "constant", 2.0, layout=layout)
            run("diopiPad", F.pad(x, pad), x, pad, "constant", None, layout=layout)
    for dtype, mode in itertools.product(
        (torch.float32, torch.float64, torch.bfloat16), ("reflect", "replicate", "circular")
    ):
        x = restride(draw((2, 3, 5, 6), dtype), layout)
        for pad in ((1, 2, 3, 4), (5, 0, 0, 4), (0, 0, 0, 0), (2, 2, 2, 2)):
            run("diopiPad", F.pad(x, pad, mode=mode), x, pad, mode, None, layout=layout)
        for pad in ((2, 3), (5, 5)):
            run("diopiPad", F.pad(x[0], pad, mode=mode), x[0], pad, mode, None, layout=layout)
        run("diopiPad", F.pad(x[None], (1, 2, 3, 4, 1, 2), mode=mode), x[None], (1, 2, 3, 4, 1, 2), mode, None)
    x = restride(draw((2, 5, 6)), layout)
    for mode in ("replicate", "circular"):
        run("diopiPad", F.pad(x, (3, -2), mode=mode), x, (3, -2), mode, None)


@pytest.mark.parametrize("dtype", [*MOVED, torch.int8])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_triangles(dtype, layout):
    for shape, diagonal in itertools.product(((4, 5), (2, 3, 6, 4), (3, 0, 4), (70, 700)), (0, 1, -2, 9, -9, 2**62)):
        x = restride(draw(shape, dtype), layout)
        run("diopiTril", x.tril(min(diagonal, 2000)), x, diagonal, layout=layout)
        expected = x.triu(min(diagonal, 2000))
        run("diopiTriu", expected, x, diagonal, layout=layout)
        out = restride(x, layout).clone()
        HOST.call("diopiTriuInp", out, diagonal)
        assert torch.equal(out, expected)


@pytest.mark.parametrize("dtype", SUMS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_unfold(dtype, layout):
    x = restride(draw((3, 10, 4), dtype), layout)
    for dim, size, step in ((1, 3, 2), (1, 4, 1), (0, 3, 5), (-1, 2, 3), (1, 1, 4), (1, 10, 1), (0, 0, 2)):
        windows = x.unfold(dim, size, step)
        run("diopiUnfold", windows, x, dim, size, step, layout=layout)
        grad = restride(draw(windows.shape, dtype, seed=8), layout)
        out = place(x.shape, dtype, layout)
        HOST.call("diopiUnfoldBackward", out, grad, x.shape, dim, size, step)
        expected = torch.zeros(x.shape, dtype=dtype if not dtype.is_floating_point else torch.float64)
        at = dim % x.dim()
        for j, k in itertools.product(range(windows.shape[at]), range(size)):
            expected.select(at, j * step + k).add_(grad.select(at, j).select(-1, k))
        close(out, expected, terms=4)


def test_unfold_of_a_number():
    x = torch.tensor(3.0)
    run("diopiUnfold", x.unfold(0, 1, 1), x, 0, 1, 1)
    run("diopiUnfoldBackward", x, x.reshape(1), (), 0, 1, 1)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_one_hot(layout):
    for shape, classes in (((4, 5), 9), ((), 4), ((0,), 3), ((7,), -1)):
        index = restride(positions(shape, 3 if classes < 0 else classes), layout)
        expected = F.one_hot(index, classes)
        run("diopiOneHot", expected, index, classes, layout=layout)


def test_shape_errors():
    x = draw((3, 4))
    refuse("'dims' names dimension 1 twice", "diopiPermute", place((4, 4), x.dtype), x, (1, 1))
    refuse("'dims' has 1 entries", "diopiPermute", place((3, 4), x.dtype), x, (0,))
    refuse("it must be [4, 3]", "diopiTranspose", place((3, 4), x.dtype), x, 0, 1)
    refuse("'dim0' is 2", "diopiTranspose", place((3, 4), x.dtype), x, 2, 1)
    refuse("does not broadcast", "diopiExpand", place((2, 4), x.dtype), x)
    refuse("'repeats_size' has 1 entries", "diopiRepeat", place((3, 4), x.dtype), x, (2,))
    refuse("'repeats_size[0]' is -1", "diopiRepeat", place((3, 4), x.dtype), x, (-1, 1))
    refuse("too large", "diopiRepeat", place((3, 4), x.dtype), x, (2**62, 1))
    refuse("2 'shifts' and 1 'dims'", "diopiRoll", place((3, 4), x.dtype), x, (1, 2), (0,))
    refuse("'dims' is 5", "diopiRoll", place((3, 4), x.dtype), x, (1,), (5,))
    refuse("twice", "diopiFlip", place((3, 4), x.dtype), x, (0, -2))
    refuse("valid: constant, reflect", "diopiPad", place((3, 5), x.dtype), x, (1, 0), "mirror", None)
    refuse("'mode' is '(NULL)'", "diopiPad", place((3, 5), x.dtype), x, (1, 0), None, None)
    refuse("at most 3 for this mode", "diopiPad", place((3, 8), x.dtype), x, (4, 0), "reflect", None)
    refuse("at most 4 for this mode", "diopiPad", place((3, 9), x.dtype), x, (5, 0), "circular", None)
    refuse("leaves nothing", "diopiPad", place((3, 0), x.dtype), x, (-5, 1), "constant", None)
    refuse("'pad' has 3 entries", "diopiPad", place((3, 4), x.dtype), x, (1, 0, 1), "constant", None)
    refuse("at least 2", "diopiTril", place((3,), x.dtype), x[:, 0], 0)
    refuse("'size' is 5", "diopiUnfold", place((3, 4), x.dtype), x, 1, 5, 1)
    refuse("'step' is 0", "diopiUnfold", place((3, 4), x.dtype), x, 1, 2, 0)
    refuse("holds 4", "diopiOneHot", place((2, 4), torch.int64), torch.tensor([0, 4]), 4)
    refuse("'num_classes' is 0", "diopiOneHot", place((2, 4), torch.int64), torch.tensor([0, 3]), 0)


def test_every_function_refuses_null():
    families = ("indexing", "embedding", "shape_layout")
    filler = {"i": 0, "b": False, "d": 1.0, "f": 1.0, "z": (), "s": None, "C": None, "D": None}
    for info in diopi.list_functions():
        if info.family not in families:
            continue
        assert HOST.has(info.name)
        arguments = [filler.get(kind) for kind in info.kinds[1:]]
        assert HOST.invoke(info.name, *arguments) == 1, info.name
        assert info.name in HOST.get_error()
        assert HOST.invoke(info.name, *arguments, has_context=False) == 1


def test_results_do_not_depend_on_threads():
    """The library's own threads: blocks of work are cut in the same places for any number of them."""
    core = diopi._core
    core.dit_parallel_set_threads.argtypes = [ctypes.c_int]
    x, index = draw((500, 300)), positions((3000,), 500)
    grad, mask = draw((3000, 300)), draw((500, 300), torch.bool)
    answers = []
    for threads in (1, 2, 5):
        core.dit_parallel_set_threads(threads)
        made = []
        for function, shape, arguments in (
            ("diopiEmbeddingBackward", (500, 300), (grad, index, 500, -1, False, False)),
            ("diopiIndexSelectBackward", (500, 300), (grad, (500, 300), 0, index)),
            ("diopiIndexSelect", (3000, 300), (x, 0, index)),
            ("diopiScatter", (500, 300), (x, 0, grad, index[:, None].expand(3000, 300), "add")),
            ("diopiIndexPut", (500, 300), (x, grad, [index], 1, False)),
            ("diopiMaskedFillScalar", (500, 300), (x, mask, 2.0)),
            ("diopiTriu", (500, 300), (x, 3)),
        ):
            out = place(shape, torch.float32)
            HOST.call(function, out, *arguments)
            made.append(out)
        half = x.bfloat16()
        HOST.call("diopiIndexPutInp", half, grad.bfloat16(), [index], 1, True)
        chosen, found = diopi.Required(), diopi.Required()
        HOST.call("diopiMaskedSelect", chosen, x, mask)
        HOST.call("diopiNonzero", found, mask)
        answers.append([*made, half, make(chosen), make(found)])
    core.dit_parallel_set_threads(0)
    for other in answers[1:]:
        assert all(torch.equal(a, b) for a, b in zip(answers[0], other, strict=True))
    torch.testing.assert_close(answers[0][3], x.scatter_add(0, index[:, None].expand(3000, 300), grad))


def memory_calls():
    """Calls that need memory of their own, and what they write."""
    x, index, mask = draw((20, 9)), positions((30,), 20), draw((20, 9), torch.bool)
    half, turned = x.bfloat16(), draw((9, 20)).t()
    return {
        "diopiEmbeddingBackward": (place((20, 9), x.dtype), draw((30, 9)), index, 20, -1, False, False),
        "diopiEmbeddingRenorm_": (x.clone(), index, 0.1, 2.0),
        "diopiIndexPutInp": (half, draw((30, 9), half.dtype), [index], 1, True),
        "diopiScatterInp": (half, 0, half.clone(), positions((20, 9), 20), "add"),
        "diopiIndex": (diopi.Required(), x, [mask], 1),
        "diopiMaskedSelect": (diopi.Required(), x, mask),
        "diopiNonzero": (diopi.Required(), x),
        "diopiMaskedScatter": (place((20, 9), x.dtype), x, mask, turned),
        "diopiRoll": (place((9, 20), x.dtype).t(), turned, (5,), ()),
    }


@pytest.mark.parametrize("function", memory_calls())
def test_memory(function):
    """Nothing is left behind, also when the n-th allocation fails; a failure is a code with a text."""
    core = diopi._core
    core.dit_alloc_get_live.restype = ctypes.c_int64
    core.dit_alloc_set_failure.argtypes = [ctypes.c_int64]
    HOST.call(function, *memory_calls()[function])
    live, failures = core.dit_alloc_get_live(), 0
    for after in range(40):
        arguments = memory_calls()[function]
        core.dit_alloc_set_failure(after)
        try:
            code = HOST.invoke(function, *arguments)
        except ValueError:  # a handle of an argument
            code = None
        finally:
            core.dit_alloc_set_failure(-1)
        assert core.dit_alloc_get_live() == live
        assert code in (None, 0, 1)
        failures += code == 1
    assert code == 0
    assert failures >= 1
    assert HOST.get_error().startswith(f"{function}: no memory")
