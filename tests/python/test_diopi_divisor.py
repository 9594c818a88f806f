"""The host library's integer divisions: a divisor that is 0 in the dtype of the division is an error, not a signal."""

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
