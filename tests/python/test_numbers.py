"""Numbers beside tensors: what does not fit the dtype, zero divisors, NaN limits. The device does what the CPU does."""

import math
import random
import zlib

import ditorch  # noqa: F401
import pytest
import torch
import torch.nn.functional as F

INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
DTYPES = (*INTEGERS, torch.bool, torch.float16, torch.bfloat16, torch.float32, torch.float64)
VALUES = (300, -300, -5, 2**40, -(2**40), 2**63 - 1, 1.5, 1e39, -1e39, math.nan, math.inf, True, 7e4, 65536.0, 3.4e38)


def index(x):
    return torch.zeros(1, dtype=torch.int64, device=x.device)


# name: function of the tensor and the number
OPERATORS = {
    "clamp_min": lambda x, v: torch.clamp_min(x, v),
    "clamp_max": lambda x, v: torch.clamp_max(x, v),
    "clamp": lambda x, v: torch.clamp(x, v, v),
    "clamp_": lambda x, v: x.clamp_(v, v),
    "clamp out": lambda x, v: torch.clamp(x, v, v, out=torch.empty_like(x)),
    "fill_": lambda x, v: x.fill_(v),
    "masked_fill": lambda x, v: x.masked_fill(x > 2, v),
    "threshold": lambda x, v: torch.threshold(x, v, v),
    "threshold_": lambda x, v: torch.threshold_(x, v, v),
    "hardtanh": lambda x, v: F.hardtanh(x, -1, v),
    "hardtanh low": lambda x, v: F.hardtanh(x, v, 3),
    "scatter": lambda x, v: x.scatter(0, index(x), v),
    "index_fill": lambda x, v: x.index_fill(0, index(x), v),
    "add": lambda x, v: x + v,
    "add_": lambda x, v: x.add_(v),
    "sub": lambda x, v: x - v,
    "mul": lambda x, v: x * v,
    "mul_": lambda x, v: x.mul_(v),
    "eq": lambda x, v: x == v,
    "lt": lambda x, v: x < v,
    "ge": lambda x, v: x >= v,
    "and": lambda x, v: x & v,
    "or": lambda x, v: x | v,
    "addcmul": lambda x, v: torch.addcmul(x, x, x, value=v),
    "addcdiv": lambda x, v: torch.addcdiv(x, x, x, value=v),
    "pow": lambda x, v: x**v,
    "rpow": lambda x, v: v**x,
    "rsub": lambda x, v: v - x,
    "full_like": lambda x, v: torch.full_like(x, v),
    "new_full": lambda x, v: x.new_full((2,), v),
    "full": lambda x, v: torch.full((2,), v, dtype=x.dtype, device=x.device),
    "where": lambda x, v: torch.where(x > 2, x, v),
    "arange": lambda x, v: torch.arange(v, v + 2, dtype=x.dtype, device=x.device),
    "pad": lambda x, v: F.pad(x, (1, 1), value=v),
    "alpha": lambda x, v: torch.add(x, x, alpha=v),
    "sub alpha": lambda x, v: torch.sub(x, x, alpha=v),
    "lerp": lambda x, v: torch.lerp(x.float(), x.float(), float(v)),
    "leaky_relu": lambda x, v: F.leaky_relu(x, v),
    "isin": lambda x, v: torch.isin(x, v),
    "index_put_": lambda x, v: x.index_put_((index(x),), torch.tensor(v, device=x.device)),
    "fill_diagonal_": lambda x, v: x.repeat(3, 1).fill_diagonal_(v),
    "foreach_add": lambda x, v: torch._foreach_add([x, x], v)[1],
}
DIVISIONS = {
    "remainder": torch.remainder,
    "floor_divide": torch.floor_divide,
    "trunc": lambda x, v: torch.div(x, v, rounding_mode="trunc"),
    "floor": lambda x, v: torch.div(x, v, rounding_mode="floor"),
    "fmod": torch.fmod,
    "reversed": lambda x, v: torch.remainder(v, x),
    "remainder_": lambda x, v: x.remainder_(v),
    "floor_divide_": lambda x, v: x.floor_divide_(v),
    "trunc_": lambda x, v: x.div_(v, rounding_mode="trunc"),
    "out": lambda x, v: torch.remainder(x, v, out=torch.empty_like(x)),
    "shift left": lambda x, v: x << v,
    "shift right": lambda x, v: x >> v,
    "gcd": lambda x, v: torch.gcd(x, torch.as_tensor(v).to(x.dtype).to(x.device)),
    "lcm": lambda x, v: torch.lcm(x, torch.as_tensor(v).to(x.dtype).to(x.device)),
}


def outcome(function, x, number):
    """The result on the CPU, or the error's class and text."""
    try:
        return function(x.clone(), number).cpu()
    except Exception as error:  # compared with the CPU's
        return type(error), str(error).split("\n")[0].replace("cuda:0", "cpu")


def compare(name, function, x, number, device_number=None):
    wanted = outcome(function, x, number)
    mine = outcome(function, x.cuda(), number if device_number is None else device_number)
    what = f"{name}({x[:4].tolist()} {x.dtype}, {number!r}): {mine}, the CPU {wanted}"
    if isinstance(wanted, tuple):
        assert mine == wanted, what
        return
    assert isinstance(mine, torch.Tensor) and mine.dtype == wanted.dtype, what
    torch.testing.assert_close(mine, wanted, rtol=2e-6, atol=0, equal_nan=True, msg=what)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_number_that_does_not_fit(dtype):
    x = torch.tensor([1, 5, 9]).repeat(32).to(dtype)  # whole vectors: the CPU rounds more often in the rest
    for name, function in OPERATORS.items():
        for number in VALUES:
            compare(name, function, x, number)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_random_numbers(dtype):
    seed = zlib.crc32(str(dtype).encode())
    print(f"seed {seed}")
    chance = random.Random(seed)
    x = torch.tensor([1, 5, 9, 0]).repeat(32).to(dtype)
    for _ in range(150):
        power = 2 ** chance.choice((0, 4, 7, 8, 15, 16, 24, 31, 32, 53, 62))
        near = chance.choice((0, 1, -1)) * power + chance.randint(-2, 2)
        number = chance.choice((near, float(near), near + 0.5, chance.uniform(-1, 1) * 10.0 ** chance.randint(-40, 60)))
        name = chance.choice([name for name in OPERATORS if name not in ("rpow", "pow", "addcdiv")])
        compare(name, OPERATORS[name], x, number)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_divisor_that_becomes_zero(dtype):
    """A divisor is narrowed to the tensor's dtype before anyone divides by it; 256 is 0 in uint8."""
    x = torch.tensor([1, 5, 9, 100]).to(dtype)
    numbers = (0, 1, 3, -1, 256, 512, 2**16, 2**32, 2**40, 257, 2**40 + 3, -256)
    for name, function in DIVISIONS.items():
        for number in numbers:
            compare(name, function, x, number)
            if name != "reversed":
                divisor = torch.tensor(number)
                compare(name + " 0-d", function, x, divisor, divisor.cuda())
                compare(name + " 0-d CPU", function, x, divisor)
                row = torch.tensor([1, number, 3, 4])
                if name not in ("out", "remainder_", "floor_divide_", "trunc_"):
                    compare(name + " 1-d", function, x, row, row.cuda())


def test_most_negative_by_minus_one():
    for dtype in (torch.int32, torch.int64):
        x = torch.tensor([torch.iinfo(dtype).min, 7], dtype=dtype, device="cuda")
        assert (x % -1).tolist() == [0, 0]
        assert torch.div(x, -1, rounding_mode="trunc").tolist() == [torch.iinfo(dtype).min, -7]


def test_half_beyond_its_range_is_computed_in_float():
    """As CUDA does: the number does not fit into a half, the result does."""
    x = torch.tensor([60000.0], dtype=torch.half, device="cuda")
    assert (x - 70000.0).item() == -10000.0
    assert torch.add(x, -70000.0).item() == -10000.0
    assert torch.sub(x, x, alpha=2).item() == -60000.0
