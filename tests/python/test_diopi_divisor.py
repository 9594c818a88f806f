"""The host library's integer divisions: a divisor that is 0 in the dtype of the division is an error, not a signal."""

import random

import pytest

torch = pytest.importorskip("torch")

from ditorch import diopi  # noqa: E402

INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
TRUNC, FLOOR = 1, 2


@pytest.fixture(scope="module")
def host():
    library = diopi.Library("host")
    yield library
    library.close()


def refuse(host, function, out, *arguments):
    before = out.clone()
    with pytest.raises(diopi.Error) as error:
        host.call(function, out, *arguments)
    assert error.value.code == 1 and "division by zero" in error.value.text and function in error.value.text
    assert torch.equal(out, before), "something was written"


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_zero_after_narrowing(host, dtype):
    x = torch.tensor([1, 5, 9], dtype=dtype)
    bits = torch.iinfo(dtype).bits
    zeros = [0] if bits == 64 else [0, 2**bits, 3 * 2**bits, 2**40]
    for zero in zeros:
        out = torch.full_like(x, 77)
        refuse(host, "diopiRemainderScalar", out, x, zero)
        refuse(host, "diopiDivScalar", out, x, zero, TRUNC)
        refuse(host, "diopiDivScalar", out, x, zero, FLOOR)
        refuse(host, "diopiDivInpScalar", x.clone(), zero, FLOOR)
        refuse(host, "diopiRemainderTensor", out, x, torch.tensor(zero))
        refuse(host, "diopiDiv", out, x, torch.tensor(zero), TRUNC)
        refuse(host, "diopiRemainder", out, 7, torch.tensor([1, 0, 2], dtype=dtype))
    for number in (3, 2**bits + 3) if bits < 64 else (3,):
        out = torch.empty_like(x)
        host.call("diopiRemainderScalar", out, x, number)
        assert out.tolist() == [1, 2, 0]
        host.call("diopiRemainderTensor", out, x, torch.tensor(number))
        assert out.tolist() == [1, 2, 0]


def make_pairs():
    """Blocks of 256 pairs: small ones, quotients next to whole numbers where double ends, and numbers beyond that."""
    random.seed(0)
    top = 2**53 - 1
    for _ in range(256):
        yield random.randint(-(2**20), 2**20), random.choice((-1, 1)) * random.randint(1, 1000)
    for _ in range(256):
        y = random.choice((-1, 1)) * random.randint(1, 2 ** random.randint(1, 52))
        x = top // y * y + random.choice((-1, 0, 1))
        yield (x if abs(x) <= top else x - 2 * (x > 0) + 1), y
    for _ in range(256):
        y = random.choice((-1, 1)) * random.randint(1, 2 ** random.randint(1, 62))
        yield random.choice((2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63) + 1, 2**53)), y


def test_floor_of_whole_numbers(host):
    pairs = list(make_pairs())
    x, y = (torch.tensor(side) for side in zip(*pairs, strict=True))
    out = torch.empty_like(x)
    host.call("diopiDiv", out, x, y, FLOOR)
    assert out.tolist() == [a // b for a, b in pairs]
    host.call("diopiDiv", out[:300], x[:300], y[:300], FLOOR)  # a part of a block
    assert out[:300].tolist() == [a // b for a, b in pairs[:300]]
    host.call("diopiDivScalar", out, x, -7, FLOOR)
    assert out.tolist() == [a // -7 for a, _ in pairs]
