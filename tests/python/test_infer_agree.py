"""Every operator of dlinfer: what it does at once is what its fake kernel says, what a CUDA graph replays, and what
torch.compile makes of it. And the functions that are no operators."""

import ditorch  # noqa: F401
import pytest
import torch
from ditorch.infer import operators, ops, vendors
from torch._subclasses.fake_tensor import FakeTensorMode

DTYPE = torch.float16
INT8 = torch.int8


def rows(*shape):
    return (torch.randn(*shape) / 4).to(DTYPE)


def whole(*values):
    return torch.tensor(values, dtype=torch.int32)


def bytes_(*shape):
    return torch.randint(-128, 128, shape, dtype=INT8)


TABLE = whole(1, 4, 8, 2).view(2, 2)


def caches():
    return rows(9, 4, 2, 8), rows(9, 4, 2, 8)


def paged(starts):
    rest = (0.3, None, None, -1, 0.0, None, None, 0, rows(3, 4, 8))
    return (rows(3, 4, 8), *caches(), whole(1, 4, 8, 2, 3, 5).view(3, 2)[: 3 if starts is None else 2], starts,
            whole(5, 8, 2) if starts is None else whole(5, 8), *rest)  # fmt: skip


CASES = {
    "rms_norm": lambda: (rows(3, 32), rows(32), 1e-6),
    "add_rms_norm": lambda: (rows(3, 32), rows(3, 32), rows(32), 1e-6),
    "rms_norm_w8a8": lambda: (rows(3, 32), rows(32), 1e-6, INT8),
    "add_rms_norm_w8a8": lambda: (rows(3, 32), rows(3, 32), rows(32), 1e-6, INT8),
    "silu_and_mul": lambda: (rows(3, 32),),
    "apply_rotary_pos_emb": lambda: (rows(3, 4, 8), rows(3, 2, 8), rows(3, 8), rows(3, 8)),
    "apply_rotary_pos_emb_interleaved": lambda: (rows(3, 4, 8), rows(3, 2, 8), rows(3, 8), rows(3, 8)),
    "fill_kv_cache": lambda: (rows(3, 2, 8), rows(3, 2, 8), *caches(), whole(5, -1, 11), None, None, None, None, 0),
    "prefill_attention": lambda: (rows(3, 4, 8), rows(3, 2, 8), rows(3, 2, 8), whole(0, 2, 3), True, 0.3, None, None,
                                  -1, 0.0, rows(3, 4, 8)),
    "paged_prefill_attention": lambda: paged(whole(0, 2, 3)),
    "paged_decode_attention": lambda: paged(None),
    "linear": lambda: (rows(3, 32), rows(5, 32), rows(5)),
    "dynamic_quant": lambda: (rows(3, 32), INT8),
    "linear_w8a8": lambda: (whole(*range(96)).view(3, 32).to(INT8), whole(*range(64)).view(2, 32).to(INT8),
                            torch.rand(3, 1), torch.rand(2), DTYPE, None),
    "weight_quant_matmul": lambda: (rows(3, 32), torch.randint(1 << 30, (32, 2), dtype=torch.int32), rows(2, 16),
                                    torch.randint(1 << 30, (2, 2), dtype=torch.int32), None, 16),
    "moe_gating_topk_softmax": lambda: (rows(3, 8), 2, -1),
    "fused_moe": lambda: (rows(3, 16), rows(4, 24, 16), rows(4, 16, 12), torch.rand(3, 2), whole(0, 1, 3, 2, 1, 0)
                          .view(3, 2), True),
    "linear_w8a8_static": lambda: (rows(3, 32), bytes_(5, 32), torch.tensor([0.1]), torch.tensor([3.0]), torch.rand(5),
                                   DTYPE, whole(9, -8, 7, 0, 1)),
    "fused_moe_w8a8": lambda: (rows(3, 16), bytes_(4, 24, 16), torch.rand(4, 24) / 99, bytes_(4, 16, 12),
                               torch.rand(4, 16) / 99, torch.rand(3, 2), whole(0, 1, 3, 2, 1, 0).view(3, 2), True),
    "lightning_indexer": lambda: (rows(3, 4, 8), rows(9, 4, 1, 8), rows(3, 4), whole(2, 3), whole(5, 8), TABLE, 6),
    "sparse_flash_attention": lambda: (rows(3, 4, 8), rows(9, 4, 1, 8), rows(9, 4, 1, 8),
                                       whole(4, 0, -1, 3, -1, 1, 7, 2, 6).view(3, 1, 3), 0.3, TABLE, whole(2, 3),
                                       whole(5, 8), rows(3, 4, 2), rows(9, 4, 1, 2)),
}  # fmt: skip


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)
    yield
    vendors._chosen.clear()


def find_written(name):
    """Places of the arguments that are written."""
    schema = getattr(torch.ops.dlinfer, name).default._schema.arguments
    return [i for i, one in enumerate(schema) if one.alias_info and one.alias_info.is_write]


def run(operator, arguments, written):
    """Results, and the arguments that were written."""
    out = operator(*arguments)
    results = [] if out is None else [out] if isinstance(out, torch.Tensor) else list(out)
    return [*results, *[arguments[i] for i in written]]


def clone(arguments):
    return [x.clone() if isinstance(x, torch.Tensor) else x for x in arguments]


def test_every_operator_has_a_case():
    assert set(CASES) == set(operators.OPERATORS)


@pytest.mark.parametrize("name", CASES)
def test_all_ways_agree(name):
    given = [x.cuda() if isinstance(x, torch.Tensor) else x for x in CASES[name]()]
    how = getattr(torch.ops.dlinfer, name), find_written(name)

    def call(*arguments):
        return run(how[0], arguments, how[1])

    expected = call(*clone(given))
    assert len(expected) > 0

    with FakeTensorMode() as mode:
        fakes = [mode.from_tensor(x) if isinstance(x, torch.Tensor) else x for x in given]
        shapes = [(x.shape, x.dtype, x.stride(), x.device) for x in call(*fakes)]
    assert shapes == [(x.shape, x.dtype, x.stride(), x.device) for x in expected]

    kept, graph = clone(given), torch.cuda.CUDAGraph()
    call(*clone(kept))
    with torch.cuda.graph(graph):
        replayed = call(*kept)
    for old, new in zip(kept, given, strict=True):  # what stood there while it was captured does not count
        if isinstance(old, torch.Tensor):
            old.copy_(new)
    graph.replay()
    assert all(torch.equal(a, b) for a, b in zip(replayed, expected, strict=True))

    torch._dynamo.reset()
    compiled = torch.compile(call, fullgraph=True)
    assert all(torch.equal(a, b) for a, b in zip(compiled(*clone(given)), expected, strict=True))


# Functions that are no operators


def test_contiguous_caches():
    k, v, more = rows(2, 3, 2, 8).cuda(), rows(2, 3, 2, 8).cuda(), rows(2, 1, 2, 8).cuda()
    keys, values = ops.fill_contiguous_kvcache(k, v, more, more * 2)
    assert torch.equal(keys, torch.cat((k, more), 1)) and torch.equal(values, torch.cat((v, more * 2), 1))
    assert ops.get_cache_len(keys) == 4


def attend(q, k, v, mask, scale):
    """Float64, (B, T, H, D)."""
    q, k, v = (x.cpu().double().transpose(1, 2) for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q @ k.transpose(2, 3) * scale
    if mask is not None:
        scores = scores.masked_fill(mask, -torch.inf)
    return (scores.softmax(-1) @ v).transpose(1, 2)


@pytest.mark.parametrize("causal", [False, True])
def test_fused_attention(causal):
    q, k, v = (torch.randn(2, 5, heads, 8).cuda() for heads in (4, 2, 2))
    out = ops.fused_attention(q, k, v, [torch.ones(5, 5, dtype=torch.bool)] if causal else [])
    mask = torch.ones(5, 5, dtype=torch.bool).triu(1) if causal else None
    torch.testing.assert_close(out.cpu().double(), attend(q, k, v, mask, 8**-0.5), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layout", ["BSH", "BSND", "BNSD"])
def test_incre_flash_attention(layout):
    q, k, v = (torch.randn(2, tokens, 4, 8).cuda() for tokens in (1, 6, 6))
    expected = attend(q, k, v, None, 0.4)
    turn = {"BSH": lambda x: x.flatten(2), "BSND": lambda x: x, "BNSD": lambda x: x.transpose(1, 2)}[layout]
    out = ops.incre_flash_attention(turn(q), turn(k), turn(v), 4, layout, 0.4)
    torch.testing.assert_close(out.cpu().double(), turn(expected), rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match=r"input_layout.*'TND'.*valid: 'BSH', 'BSND', 'BNSD'"):
        ops.incre_flash_attention(q, k, v, 4, "TND")


@pytest.mark.parametrize(("dtype", "width"), [(torch.float16, 16), (torch.int8, 32)])
def test_transdata(dtype, width):
    x = torch.randint(-9, 9, (18, 40)).to(dtype)
    out = ops.transdata(x.cuda()).cpu()
    assert out.shape == (1, -(-40 // width), 32, width)
    for row in range(32):
        for column in range(out.shape[1] * width):
            inside = row < 18 and column < 40
            assert out[0, column // width, row, column % width] == (x[row, column] if inside else 0)
    with pytest.raises(ValueError, match=r"transdata_type.*29.*valid: 2"):
        ops.transdata(x.cuda(), 29)
