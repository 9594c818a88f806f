"""The int8 operators that LMDeploy 0.18 added: a linear with fixed scales, and experts; against whole numbers and
float64."""

import ditorch  # noqa: F401
import dlinfer
import dlinfer.ops
import pytest
import torch
from ditorch import ledger
from ditorch.infer import operators, ops

LIMITS = {torch.float32: 2e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
DTYPES = list(LIMITS)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def near(result, expected):
    assert result.shape == expected.shape
    error = ((result.cpu().double() - expected).abs() / (expected.abs() + 1)).max().item() if result.numel() else 0.0
    assert error <= LIMITS[result.dtype], error


def calls(name):
    return sum(row["calls"] for row in ledger.operators() if row["operator"] == f"dlinfer::{name}")


def int8(*shape):
    return torch.randint(-128, 128, shape, dtype=torch.int8)


def quantise(x):
    """Rows of float64 as whole numbers and their scales."""
    scale = x.abs().amax(-1, keepdim=True) / 127
    return torch.round(x / scale), scale


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(5, 48), (2, 3, 48), (0, 48)], ids=str)
@pytest.mark.parametrize("bias", [True, False])
def test_linear_with_fixed_scales(dtype, shape, bias):
    """As ModelSlim writes them: the offset's part of the sums is taken back by quant_bias."""
    x, weight = (torch.randn(shape) * 2).to(torch.bfloat16 if dtype == torch.bfloat16 else torch.float32), int8(40, 48)
    scale, offset = torch.tensor([0.05]), torch.tensor([-7.0])
    deq = torch.rand(40) / 900
    extra = torch.randint(-9000, 9000, (40,), dtype=torch.int32) if bias else None
    before = calls("linear_w8a8")
    out = ops.linear_w8a8_static(
        x.cuda(), weight.cuda(), scale.cuda(), offset.cuda(), deq.cuda(), dtype,
        quant_bias=None if extra is None else extra.cuda(),
    )  # fmt: skip
    assert out.dtype == dtype and calls("linear_w8a8") == before + 1  # the product is C's
    q = torch.round(x.float() / scale + offset).clamp(-128, 127).double()
    near(out, (q @ weight.double().t() + (0 if extra is None else extra.double())) * deq.double())
    same = ops.linear_w8a8_static(
        q.to(torch.int8).cuda(), weight.cuda(), scale.cuda(), offset.cuda(), deq.cuda(), dtype,
        quant_bias=None if extra is None else extra.cuda(),
    )  # fmt: skip
    assert torch.equal(same, out)


def experts(x, up, up_scales, down, down_scales, weights, ids):
    """Token by token, in float64."""
    q, scale = quantise(x.double())
    out = torch.zeros(x.shape, dtype=torch.float64)
    for token in range(len(x)):
        for weight, number in zip(weights[token], ids[token], strict=True):
            if 0 <= number < len(up):
                sums = (up[number].double() @ q[token]) * scale[token] * up_scales[number].flatten().double()
                gate, rest = sums.chunk(2)
                inner, inner_scale = quantise(torch.nn.functional.silu(gate) * rest)
                row = (down[number].double() @ inner) * inner_scale * down_scales[number].flatten().double()
                out[token] += weight.double() * row
    return out


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("column", [True, False])
def test_experts(dtype, column):
    """An id outside the experts adds nothing; scales as rows or columns."""
    tokens, width, inner = 9, 32, 24
    x = torch.randn(tokens, width).to(dtype)
    up, down = int8(4, 2 * inner, width), int8(4, width, inner)
    scales = [torch.rand(4, n, *([1] if column else [])) / 300 for n in (2 * inner, width)]
    weights, ids = torch.rand(tokens, 2), torch.randint(0, 4, (tokens, 2))
    ids[3] = torch.tensor([-1, 4])
    experts_ = [t.cuda() for t in (up, scales[0], down, scales[1])]
    out = ops.fused_moe_w8a8(x.cuda(), *experts_, weights.cuda(), ids.cuda(), 2, False)
    assert out.dtype == dtype and out[3].count_nonzero() == 0
    expected = experts(x, up, scales[0], down, scales[1], weights, ids)
    # a number between two whole ones may be rounded the other way: a step of a scale in some sums
    assert ((out.cpu().double() - expected).abs() <= 0.01 * expected.abs().max() + LIMITS[dtype]).all()
    whole = ops.fused_moe_w8a8(x.cuda(), *experts_, weights.cuda(), ids.cuda(), 2, True)
    shares = weights / weights.sum(-1, keepdim=True)
    expected = experts(x, up, scales[0], down, scales[1], shares, ids)
    assert ((whole.cpu().double() - expected).abs() <= 0.01 * expected.abs().max() + LIMITS[dtype]).all()


def test_no_tokens():
    up, down, scale = int8(2, 16, 8).cuda(), int8(2, 8, 8).cuda(), torch.ones(2, 16, 1).cuda()
    none = torch.zeros(0, 8).cuda()
    ids = torch.zeros(0, 2, dtype=torch.int64).cuda()
    assert ops.fused_moe_w8a8(none, up, scale, down, scale[:, :8], none[:, :2], ids, 2, True).shape == (0, 8)


NEW = ("linear_w8a8_static", "fused_moe_w8a8", "lightning_indexer", "sparse_flash_attention")


def test_they_are_named_and_composed():
    assert {dlinfer.capability()[name].runs for name in NEW} == {"composed"}
    assert all(hasattr(dlinfer.ops, name) and name in operators.OPERATORS for name in NEW)


def test_shapes_without_numbers():
    """What a compiler sees: fakes, which run no part."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        x, weight = torch.empty(3, 5, 8, dtype=torch.float16), torch.empty(6, 8, dtype=torch.int8)
        one = torch.empty(6)
        call = torch.ops.dlinfer
        out = call.linear_w8a8_static(x, weight, one[:1], one[:1], one, torch.bfloat16, None)
        assert out.shape == (3, 5, 6) and out.dtype == torch.bfloat16
        ids, up, down = torch.empty(5, 2).long(), weight.new_empty(4, 12, 8), weight.new_empty(4, 8, 6)
        out = call.fused_moe_w8a8(x[0], up, one, down, one, torch.empty(5, 2), ids, True)
        assert out.shape == (5, 8) and out.dtype == torch.float16
        key, table = torch.empty(9, 4, 1, 8, dtype=torch.float16), ids.int()
        query = x[0].unsqueeze(1)
        chosen = call.lightning_indexer(query, key, x[0, :, :1], ids[:, 0], ids[:, 0], table, 7)
        assert chosen.shape == (5, 1, 7) and chosen.dtype == torch.int32
        out = call.sparse_flash_attention(
            query, key, key[..., :6], chosen, 0.5, table, ids[:, 0], ids[:, 0], None, None
        )
        assert out.shape == (5, 1, 6)
