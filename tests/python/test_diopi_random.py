"""The host library's random operators: distributions, reproducibility, and independence of layout."""

from __future__ import annotations

import math

import pytest
import torch
from ditorch import diopi

HOST = diopi.Library("host")
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
SEED = 1234
COUNT = 200_000


def philox(seed, counter):
    """Four words of Philox 4x32-10, written out."""
    c = [counter & 0xFFFFFFFF, counter >> 32 & 0xFFFFFFFF, 0, 0]
    key = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        p, q = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [q >> 32 ^ c[1] ^ key[0], q & 0xFFFFFFFF, p >> 32 ^ c[3] ^ key[1], p & 0xFFFFFFFF]
        key = [key[0] + 0x9E3779B9 & 0xFFFFFFFF, key[1] + 0xBB67AE85 & 0xFFFFFFFF]
    return c


def words(offset, count, seed=SEED):
    """The first `count` words from an offset."""
    return [word for i in range((count + 3) // 4) for word in philox(seed, offset + i)][:count]


def fill(function, out, *arguments, offset=0):
    """Call an in-place random function on a fresh generator; the generator afterwards."""
    generator = diopi.Generator(SEED, offset)
    HOST.call(function, out, *arguments, generator)
    return generator


def strided(shape, dtype):
    """A tensor whose memory order is not that of its elements."""
    return torch.zeros([*reversed(shape), 2], dtype=dtype)[..., 0].permute(*reversed(range(len(shape))))


def test_uniform_uses_the_words_of_the_sequence():
    out = torch.empty(1003)
    generator = fill("diopiUniformInp", out, 0.0, 1.0, offset=5)
    want = torch.tensor([(word >> 8) / 2**24 for word in words(5, 1003)])
    assert torch.equal(out, want)
    assert generator.offset == 5 + (1003 + 3) // 4
    wide = torch.empty(7, dtype=torch.float64)
    generator = fill("diopiUniformInp", wide, 2.0, 4.0)
    pairs = words(0, 14)
    want = [2 + 2 * ((high << 32 | low) >> 11) / 2**53 for high, low in zip(pairs[::2], pairs[1::2], strict=True)]
    assert wide.tolist() == want and generator.offset == (14 + 3) // 4


@pytest.mark.parametrize("dtype", FLOATS)
def test_uniform_and_normal_moments(dtype):
    out = torch.empty(COUNT, dtype=dtype)
    fill("diopiUniformInp", out, -1.0, 3.0)
    values = out.double()
    assert values.min() >= -1 and values.max() <= 3
    assert abs(values.mean() - 1) < 0.02 and abs(values.var() - 16 / 12) < 0.02
    fill("diopiNormalInp", out, 2.0, 3.0)
    values = (out.double() - 2) / 3
    assert abs(values.mean()) < 0.02 and abs(values.std() - 1) < 0.02
    assert abs((values**3).mean()) < 0.05 and abs((values**4).mean() - 3) < 0.15
    share = (values.abs() < 1).double().mean().item()
    assert abs(share - math.erf(1 / math.sqrt(2))) < 0.01
    halves = values[::2] * values[1::2]
    assert abs(halves.mean()) < 0.02


def test_normal_matches_its_formula():
    out = torch.empty(1000)
    fill("diopiNormal", out, 0.0, 1.0)
    numbers = words(0, 1000)
    for i in range(0, 1000, 2):
        radius = math.sqrt(-2 * math.log(((numbers[i] >> 8) + 1) / 2**24))
        angle = 2 * math.pi * (numbers[i + 1] >> 8) / 2**24
        assert abs(out[i].item() - radius * math.cos(angle)) < 2e-6 * max(1, radius)
        assert abs(out[i + 1].item() - radius * math.sin(angle)) < 2e-6 * max(1, radius)


def test_normal_of_tensors():
    mean, std = torch.arange(6.0).view(2, 3), torch.tensor([0.0, 1.0, 100.0])
    plain, out = torch.empty(2, 3), torch.empty(2, 3)
    fill("diopiNormal", plain, 0.0, 1.0)
    fill("diopiNormalTensor", out, mean, std)
    torch.testing.assert_close(out, mean + plain * std)
    fill("diopiNormalTensorScalar", out, mean, 2.0)
    torch.testing.assert_close(out, mean + plain * 2)
    fill("diopiNormalScalarTensor", out, 5.0, std)
    torch.testing.assert_close(out, 5 + plain * std)
    before = out.clone()
    assert HOST.invoke("diopiNormalScalarTensor", out, 5.0, -std, diopi.Generator(SEED, 0)) == 1
    assert "std" in HOST.get_error() and torch.equal(out, before)


def test_layout_does_not_matter():
    for function, arguments, dtype in (
        ("diopiUniformInp", (0.0, 1.0), torch.float32),
        ("diopiNormalInp", (0.0, 1.0), torch.float64),
        ("diopiBernoulliScalar", (0.3,), torch.uint8),
        ("diopiRandomInp", (0, 1000), torch.int64),
    ):
        a, b = torch.zeros(33, 50, dtype=dtype), strided((33, 50), dtype)
        fill(function, a, *arguments)
        fill(function, b, *arguments)
        assert torch.equal(a, b) and a.double().std() > 0


@pytest.mark.parametrize("dtype", (*FLOATS, torch.bool, torch.int64))
def test_bernoulli(dtype):
    out = torch.empty(COUNT, dtype=dtype)
    generator = fill("diopiBernoulliScalar", out, 0.3)
    assert generator.offset == COUNT // 4
    assert abs(out.double().mean() - 0.3) < 0.01 and out.double().unique().tolist() == [0, 1]
    for p in (0.0, 1.0):
        fill("diopiBernoulliScalar", out, p)
        assert (out.double() == p).all()
    chance = torch.linspace(0, 1, COUNT).to(dtype if dtype.is_floating_point else torch.float32)
    fill("diopiBernoulli", out, chance)
    assert abs(out[: COUNT // 10].double().mean() - 0.05) < 0.02 and abs(out.double().mean() - 0.5) < 0.02
    if dtype.is_floating_point:
        same = chance.clone()
        fill("diopiBernoulliInp", same)
        assert torch.equal(same, out)
    chance[5] = 1.5
    before = out.clone()
    assert HOST.invoke("diopiBernoulli", out, chance, diopi.Generator(SEED, 0)) == 1
    assert "1.5" in HOST.get_error() and torch.equal(out, before)


def test_random_integers():
    out = torch.empty(COUNT, dtype=torch.int64)
    fill("diopiRandomInp", out, -5, 6)
    assert out.unique().tolist() == list(range(-5, 6)) and abs(out.double().mean()) < 0.03
    generator = fill("diopiRandomInp", out, -(2**62), 2**62)
    assert generator.offset == COUNT // 2
    assert out.min() < -(2**61) and out.max() > 2**61
    for dtype, largest in ((torch.uint8, 255), (torch.int8, 127), (torch.bool, 1), (torch.float16, 2048)):
        small = torch.empty(COUNT, dtype=dtype)
        fill("diopiRandomInp", small, 0, None)
        assert small.double().min() == 0 and small.double().max() >= largest * 0.99
        assert small.double().max() <= largest
    assert HOST.invoke("diopiRandomInp", out, 5, 5, diopi.Generator(SEED, 0)) == 1
    assert "from" in HOST.get_error()
    assert HOST.invoke("diopiRandomInp", torch.empty(3, dtype=torch.int8), 0, 1000, diopi.Generator(SEED, 0)) == 1


def test_randperm():
    for n in (0, 1, 5, 4097):
        for dtype in (torch.int64, torch.int32, torch.float64):
            out = torch.empty(n, dtype=dtype)
            generator = fill("diopiRandperm", out, n)
            assert out.sort().values.tolist() == list(range(n)) and generator.offset == (n + 3) // 4
    places = torch.stack([torch.empty(4, dtype=torch.int64) for _ in range(4000)])
    for i in range(4000):
        fill("diopiRandperm", places[i], 4, offset=i)
    for value in range(4):
        for place in range(4):
            assert abs((places[:, place] == value).double().mean() - 0.25) < 0.04
    assert HOST.invoke("diopiRandperm", torch.empty(300, dtype=torch.int8), 300, diopi.Generator(SEED, 0)) == 1
    assert "int8" in HOST.get_error()


def test_multinomial():
    weights = torch.tensor([[0.0, 1.0, 3.0, 6.0], [5.0, 0.0, 5.0, 0.0]])
    out = torch.empty(2, 40000, dtype=torch.int64)
    fill("diopiMultinomial", out, weights, 40000, True)
    share = torch.nn.functional.one_hot(out, 4).double().mean(1)
    assert (share - weights / 10).abs().max() < 0.01
    hits = torch.zeros(4)
    for i in range(3000):
        pair = torch.empty(3, dtype=torch.int64)
        fill("diopiMultinomial", pair, weights[0], 3, False, offset=100 * i)
        assert sorted(pair.tolist()) == [1, 2, 3]
        hits[pair[0]] += 1
    assert (hits / 3000 - weights[0] / 10).abs().max() < 0.04
    for bad, samples in ((weights[1], 3), (-weights[0], 1), (torch.zeros(4), 1), (weights[0], 5)):
        one = torch.full((samples,), 9)
        assert HOST.invoke("diopiMultinomial", one, bad, samples, False, diopi.Generator(SEED, 0)) == 1
        assert (one == 9).all()


@pytest.mark.parametrize("dtype", FLOATS)
def test_dropout(dtype):
    x = torch.ones(400, 500, dtype=dtype)
    out, mask = torch.empty_like(x), torch.empty(x.shape, dtype=torch.bool)
    generator = diopi.Generator(SEED, 3)
    HOST.call("diopiDropout", out, mask, x, 0.25, True, generator)
    assert generator.offset == 3 + 50000 and abs(mask.double().mean() - 0.75) < 0.01
    assert torch.equal(out, (mask * torch.tensor(1 / 0.75, dtype=torch.float64)).to(dtype))
    want = torch.tensor([word < 0.75 * 2**32 for word in words(3, 1000)])
    assert torch.equal(mask.view(-1)[:1000], want)
    same, again = x.clone(), torch.empty(x.shape, dtype=torch.uint8)
    HOST.call("diopiDropoutInp", same, again, 0.25, True, diopi.Generator(SEED, 3))
    assert torch.equal(same, out) and torch.equal(again.bool(), mask)
    HOST.call("diopiDropout", out, mask, x * 2, 0.25, False, diopi.Generator(SEED, 3))
    assert torch.equal(out, x * 2) and mask.all()
    features = torch.empty(400, 1, dtype=torch.bool)
    HOST.call("diopiDropout", out, features, x, 0.25, True, diopi.Generator(SEED, 3))
    assert torch.equal(out != 0, features.expand(400, 500)) and 0.6 < features.double().mean() < 0.9
    torch.testing.assert_close(out[features.view(-1)].double().mean().item(), 4 / 3, rtol=1e-2, atol=0)


def test_refusals():
    x, out = torch.ones(4), torch.zeros(4)
    generator = diopi.Generator(SEED, 0)
    for function, arguments, word in (
        ("diopiUniformInp", (1.0, 0.0, generator), "from"),
        ("diopiUniformInp", (0.0, 1.0, None), "generator"),
        ("diopiNormal", (0.0, -1.0, generator), "std"),
        ("diopiBernoulliScalar", (1.5, generator), "p"),
        ("diopiNormalTensor", (torch.ones(3), x, generator), "mean"),
        ("diopiDropout", (torch.zeros(4, dtype=torch.bool), x, 2.0, True, generator), "p"),
        ("diopiDropout", (torch.zeros(3, dtype=torch.bool), x, 0.5, True, generator), "mask"),
        ("diopiRandperm", (5, generator), "out"),
    ):
        assert HOST.invoke(function, out, *arguments) == 1, function
        assert HOST.get_error().startswith(function) and f"'{word}'" in HOST.get_error(), HOST.get_error()
        assert torch.equal(out, torch.zeros(4)) and generator.offset == 0
    assert HOST.invoke("diopiNormal", torch.zeros(4, dtype=torch.int64), 0.0, 1.0, generator) == 1000
