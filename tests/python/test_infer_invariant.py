"""Option host_batch_invariant: a row of a product has the same bits whatever rows stand beside it."""

import ditorch  # noqa: F401
import pytest
import torch
from ditorch import _C
from ditorch.infer import ops, vendors

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
ROWS = 64
F = torch.nn.functional


@pytest.fixture(autouse=True)
def invariant():
    torch.manual_seed(0)
    vendors.use("maca")
    _C.option_set("host_batch_invariant", "1")
    yield
    _C.option_set("host_batch_invariant", "0")
    vendors._chosen.clear()


def make(*shape, dtype=torch.float32):
    return torch.randn(*shape).to(dtype).cuda()


def check(function, *rows):
    """The function of the first and of the last m rows, for every m, is that part of the function of all rows."""
    whole = function(*rows).cpu()
    for count in range(1, ROWS + 1):
        first = function(*[x[:count] for x in rows]).cpu()
        last = function(*[x[-count:] for x in rows]).cpu()
        assert torch.equal(first, whole[:count]), count
        assert torch.equal(last, whole[-count:]), count


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("inner", "outputs"), [(64, 40), (300, 130), (128, 2100)])
def test_linear(dtype, inner, outputs):
    x, weight, bias = make(ROWS, inner, dtype=dtype), make(outputs, inner, dtype=dtype), make(outputs, dtype=dtype)
    check(lambda x: F.linear(x, weight), x)
    check(lambda x: F.linear(x, weight, bias), x)
    if outputs < 2000:
        turned = weight.t().contiguous()
        check(lambda x: x @ turned, x)


@pytest.mark.parametrize("dtype", DTYPES)
def test_four_bits(dtype):
    weight = torch.randint(-(2**31), 2**31 - 1, (256, 24), dtype=torch.int32).cuda()
    scale, zero = make(2, 192, dtype=dtype) / 64, weight[:2].clone()
    x = make(ROWS, 256, dtype=dtype)
    check(lambda x: ops.weight_quant_matmul(x, weight, scale, zero, group_size=128), x)
    check(lambda x: ops.weight_quant_matmul(x, weight, scale, None, group_size=128), x)


def test_eight_bits():
    a, b = (torch.randint(-127, 128, (rows, 300), dtype=torch.int8).cuda() for rows in (ROWS, 70))
    rows, columns = torch.rand(ROWS, 1).cuda(), torch.rand(70).cuda()
    check(lambda a, rows: ops.linear_w8a8(a, b, rows, columns, torch.float16), a, rows)
    check(lambda x: torch.cat([part.float().view(len(x), -1) for part in ops.dynamic_quant(x)], 1), make(ROWS, 300))


@pytest.mark.parametrize("dtype", DTYPES)
def test_experts(dtype):
    up, down = make(4, 96, 80, dtype=dtype) / 8, make(4, 80, 48, dtype=dtype) / 8
    weights, ids = ops.moe_gating_topk_softmax(make(ROWS, 4), 2)
    check(
        lambda x, weights, ids: ops.fused_moe(x, up, down, weights, ids, 2, True),
        make(ROWS, 80, dtype=dtype),
        weights,
        ids,
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_no_product(dtype):
    """Norms, activation and attention hold to it with and without the option."""
    _C.option_set("host_batch_invariant", "0")
    x, weight = make(ROWS, 96, dtype=dtype), make(96, dtype=dtype)
    check(lambda x: ops.rms_norm(x, weight, 1e-6), x)
    check(lambda x: ops.silu_and_mul(x), x)
    check(lambda x: torch.softmax(x, -1), x)
    caches = [make(9, 16, 2, 32, dtype=dtype) for _ in range(2)]
    table = (torch.arange(ROWS * 3, dtype=torch.int32).view(ROWS, 3) % 9).cuda()
    lengths = (torch.arange(ROWS, dtype=torch.int32) % 48 + 1).cuda()

    def attend(query, table, lengths):
        return ops.paged_decode_attention(query, *caches, table, 16, None, lengths, 48, 4, 2)

    check(attend, make(ROWS, 4, 32, dtype=dtype), table, lengths)
