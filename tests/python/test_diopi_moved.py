"""Operators that only move elements, on the device against the CPU: every dtype, layouts, 0-d, empty, out=."""

import pytest
import torch
import torch.nn.functional as F
from twice import draw, layouts, positions, twice

PLAIN = (torch.float32, torch.bfloat16, torch.float64, torch.int32, torch.uint8, torch.bool)
COMPLEX = (torch.complex64, torch.complex128)
UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)
INDEX = positions((3,), 4)
SPREAD = positions((2, 5, 6), 4)
MASK = draw((4, 5, 6), torch.bool)

MOVES = {
    "index_select": lambda x: x.index_select(0, INDEX.to(x.device)),
    "gather": lambda x: x.gather(0, SPREAD.to(x.device)),
    "gather_int32": lambda x: x.gather(0, SPREAD.int().to(x.device)),
    "scatter": lambda x: x.scatter(0, SPREAD.to(x.device), x.flip(0)),
    "scatter_": lambda x: x.clone().scatter_(0, SPREAD.to(x.device), x.flip(0)),
    "scatter_value": lambda x: x.scatter(0, SPREAD.to(x.device), 1),
    "index": lambda x: x[:, INDEX.to(x.device)],
    "index_put_": lambda x: x.clone().index_put_((INDEX.to(x.device),), x[0].clone()),
    "index_fill": lambda x: x.index_fill(0, INDEX.to(x.device), 1),
    "index_copy": lambda x: x.index_copy(0, INDEX[:1].to(x.device), x[1:2].clone()),
    "masked_fill": lambda x: x.masked_fill(MASK.to(x.device), 1),
    "masked_select": lambda x: x.masked_select(MASK.to(x.device)),
    "masked_scatter": lambda x: x.masked_scatter(MASK.to(x.device), x.flip(0).contiguous()),
    "nonzero": lambda x: x.nonzero(),
    "flip": lambda x: x.flip(0, 2),
    "roll": lambda x: x.roll(2, 1),
    "cat": lambda x: torch.cat([x, x[:2]]),
    "stack": lambda x: torch.stack([x.contiguous(), x.contiguous()], 1),
    "contiguous": lambda x: x.permute(2, 0, 1).contiguous(),
    "pad": lambda x: F.pad(x, (1, 2)),
    "repeat": lambda x: x.repeat(2, 1, 1),
    "tril": lambda x: x.tril(),
    "tril_": lambda x: x.clone().tril_(1),
    "triu_": lambda x: x.clone().triu_(1),
    "zero_": lambda x: x.clone().zero_(),
    "fill_": lambda x: x.clone().fill_(3),
    "embedding": lambda x: F.embedding(INDEX.to(x.device), x[0]),
    "pixel_shuffle": lambda x: F.pixel_shuffle(x[:, :4].reshape(4, 4, 6), 2),
    "pixel_unshuffle": lambda x: F.pixel_unshuffle(x[:, :4].reshape(4, 4, 6), 2),
    "narrow_copy": lambda x: torch.narrow_copy(x, 1, 1, 3),
}


@pytest.mark.parametrize("name", MOVES)
def test_every_dtype_and_layout(name):
    for dtype in (*PLAIN, *COMPLEX):
        for x in layouts(draw((4, 5, 6), dtype)):
            twice(MOVES[name], x)


@pytest.mark.parametrize("dtype", UNSIGNED)
@pytest.mark.parametrize("name", ["index", "cat", "stack", "contiguous", "repeat", "zero_", "fill_"])
def test_unsigned(name, dtype):
    for x in layouts(draw((4, 5, 6), dtype)):
        twice(MOVES[name], x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64, torch.int32])
def test_0d(dtype):
    x, y, zero = draw((), dtype), draw((), dtype, seed=3), torch.tensor(0)
    twice(lambda x, i: x.gather(0, i), x, zero)
    twice(lambda x, i, y: x.scatter(0, i, y), x, zero, y)
    twice(lambda x, i, y: x.scatter_(0, i, y), x.clone(), zero, y)
    twice(lambda x, i: x.index_select(0, i), x, zero)
    twice(lambda x, i: x.index_fill(0, i, 1), x, zero)
    twice(lambda x, i, y: x.index_copy(0, i, y), x, zero, y)
    twice(lambda x, i, y: x.index_add(0, i, y), x, zero, y)


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_empty(dtype):
    nothing, x = torch.empty(0, dtype=torch.int64), draw((3,), dtype)
    none = x[:0]
    twice(lambda x, i: x.gather(0, i), x, nothing)
    twice(lambda x, i, y: x.scatter(0, i, y), x, nothing, none)
    twice(lambda x, i, y: x.scatter_(0, i, y), x.clone(), nothing, none)
    twice(lambda x, i, y: x.index_copy(0, i, y), x, nothing, none)
    twice(lambda x, i, y: x.index_add(0, i, y), x, nothing, none)
    twice(lambda x: torch.cat([x, x]), none)
    twice(lambda x: x.roll(1, 0), none)
    twice(lambda x: x.roll(1, 0), torch.empty(0, 4, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.complex64])
def test_index_add(dtype):
    for x in layouts(draw((4, 5, 6), dtype)):
        for dim, shape in ((0, (3, 5, 6)), (1, (4, 3, 6)), (-1, (4, 5, 3))):
            index, source = torch.tensor([2, 0, 2]), draw(shape, dtype, seed=5)
            twice(lambda x, i, y, dim=dim: x.index_add(dim, i, y), x, index, source)
            twice(lambda x, i, y, dim=dim: x.clone().index_add_(dim, i, y), x, index, source)
            twice(lambda x, i, y, dim=dim: x.index_add(dim, i.int(), y, alpha=2), x, index, source)
    twice(
        lambda x, i, y: x.index_add(0, i, y),
        draw((4,), dtype),
        torch.tensor([1]),
        draw((1,), dtype).double(),
        in_c=False,
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_out(dtype):
    """Right, empty, too small and of another dtype: resized, warned about or refused as on the CPU."""
    x, y = draw((4, 5, 6), dtype), draw((4, 5, 6), dtype, seed=5)
    outs = (draw((4, 5, 6), dtype), x[:0].clone(), draw((2,), dtype), torch.empty(0, dtype=torch.float16))
    for out in outs:
        exact = out.dtype == dtype
        twice(lambda x, i, o: torch.index_select(x, 0, i, out=o), x, INDEX, out.clone(), in_c=exact)
        twice(lambda x, i, o: torch.gather(x, 0, i, out=o), x, SPREAD, out.clone(), in_c=exact)
        twice(lambda x, i, y, o: torch.scatter(x, 0, i, y, out=o), x, SPREAD, y, out.clone(), in_c=exact)
        twice(lambda x, i, o: torch.scatter(x, 0, i, 2, out=o), x, SPREAD, out.clone(), in_c=exact)
        twice(lambda x, i, y, o: torch.scatter_add(x, 0, i, y, out=o), x, SPREAD, y, out.clone(), in_c=exact)
        twice(lambda x, i, y, o: torch.index_add(x, 0, i, y, out=o), x, INDEX, x[:3], out.clone(), in_c=exact)
        twice(lambda x, i, y, o: torch.index_copy(x, 0, i, y, out=o), x, INDEX[:1], x[:1], out.clone(), in_c=exact)
        twice(lambda x, m, o: torch.masked_select(x, m, out=o), x, MASK, out.clone(), in_c=exact)
    places = x.nonzero()
    twice(lambda x, o: torch.nonzero(x, out=o), x, torch.empty_like(places).contiguous())
    twice(lambda x, o: torch.nonzero(x, out=o), x, torch.empty(0, dtype=torch.int64), in_c=False)


WRONG = {
    "index": lambda x, i: x[i],
    "index_select": lambda x, i: x.index_select(0, i),
    "gather": lambda x, i: x.gather(0, i[:, None]),
    "scatter": lambda x, i: x.scatter(0, i[:, None], 1.0),
    "scatter_add_": lambda x, i: x.scatter_add_(0, i[:, None], x.clone()),
    "index_fill_": lambda x, i: x.index_fill_(0, i, 1.0),
    "index_put_": lambda x, i: x.index_put_((i,), x[0].clone()),
    "index_add_": lambda x, i: x.index_add_(0, i, x[:1].clone()),
    "index_copy_": lambda x, i: x.index_copy_(0, i, x[:1].clone()),
    "embedding": lambda x, i: F.embedding(i, x),
    "nll_loss": lambda x, i: F.nll_loss(x[:1], i),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("value", [5, -9])
def test_index_out_of_range(name, value):
    """The CPU's exception; its words too where a new tensor is made, else the library's; and nothing written."""
    x, index = draw((3, 4)), torch.tensor([0, value] if name == "index_put_" else [value])
    with pytest.raises((IndexError, RuntimeError)) as wanted:
        WRONG[name](x.clone(), index)
    mine = x.cuda()
    with pytest.raises(type(wanted.value)) as failed:
        WRONG[name](mine, index.cuda())
    if name.endswith("_"):
        assert f"holds {value}; valid for a dimension of size 3" in str(failed.value)
    else:
        assert str(failed.value).splitlines()[0] == str(wanted.value).splitlines()[0]
    assert torch.equal(mine.cpu(), x)
