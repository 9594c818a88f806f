"""The C loops of the inference operators at their borders, against float64: few and many rows of queries, tiles of
keys, heads whose width is no multiple of a vector, experts with few and many tokens, quantised products of every row
count."""

import ditorch  # noqa: F401
import pytest
import torch
from ditorch import _C
from ditorch.infer import composed, ops, vendors

LIMITS = {torch.float32: 2e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)
    vendors.use("maca")
    yield
    vendors._chosen.clear()


def make(*shape, dtype=torch.float32, scale=1.0):
    return (torch.randn(*shape) * scale).to(dtype)


def near(result, expected):
    expected = expected.double()
    assert result.shape == expected.shape
    error = ((result.cpu().double() - expected).abs() / (expected.abs() + 1)).max().item()
    assert error <= LIMITS[result.dtype], error


def attend(q, k, v, table, starts, lengths, *, scales=None, zeros=None, bits=0, **options):
    """C and float64: (result, expected)."""
    out = torch.empty(*q.shape[:2], v.shape[-1], dtype=q.dtype).cuda()
    more = (0.3, options.get("slopes"), options.get("sinks"), options.get("window", -1), options.get("softcap", 0.0))
    device = [x.cuda() if isinstance(x, torch.Tensor) else x for x in more]
    parts = [None if x is None else x.cuda() for x in (table, starts, lengths, scales, zeros)]
    torch.ops.dlinfer.paged_prefill_attention(q.cuda(), k.cuda(), v.cuda(), *parts[:3], *device, *parts[3:], bits, out)
    expected = torch.zeros(out.shape, dtype=torch.float64)
    if bits:
        k, v = ((x.double() + z) * s for x, z, s in zip((k, v), zeros.double(), scales.double(), strict=True))
    wide = [x.double() if isinstance(x, torch.Tensor) else x for x in more]
    composed.paged_prefill_attention(
        q.double(), k.double(), v.double(), table, starts, lengths, *wide, None, None, 0, expected
    )
    return out, expected


def make_batch(news, lengths, block, heads, width, value_width, dtype):
    columns = max(-(-n // block) for n in lengths)
    blocks = columns * len(lengths)
    table = torch.randperm(blocks, dtype=torch.int32).view(len(lengths), columns)
    q = make(sum(news), heads[0], width, dtype=dtype)
    k, v = make(blocks, block, heads[1], width, dtype=dtype), make(blocks, block, heads[1], value_width, dtype=dtype)
    return q, k, v, table, torch.tensor([0, *news]).cumsum(0), torch.tensor(lengths)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("heads", [(1, 1), (3, 3), (6, 2), (7, 1), (8, 1), (9, 1), (18, 1), (65, 1)])
def test_groups_of_heads(dtype, heads):
    """8 rows are the most that are done one by one; 64 fill a block of lanes."""
    near(*attend(*make_batch([1, 1, 1], [31, 32, 97], 16, heads, 24, 24, dtype)))


@pytest.mark.parametrize("width", [1, 8, 17, 40, 64, 80, 129])
@pytest.mark.parametrize("value_width", [5, 64, 96])
@pytest.mark.parametrize("new", [1, 20])
def test_widths(width, value_width, new):
    near(*attend(*make_batch([new, new], [33, 70], 7, (4, 2), width, value_width, torch.bfloat16)))


@pytest.mark.parametrize("new", [1, 2, 9, 63, 64, 65, 130, 300])
@pytest.mark.parametrize(
    "options", [{}, {"window": 1}, {"window": 70}, {"softcap": 0.7}, {"slopes": True}, {"sinks": True}], ids=str
)
def test_borders_of_tiles(new, options):
    options = {k: make(4).abs() if v is True else v for k, v in options.items()}
    near(*attend(*make_batch([new, 0, new], [new + 64, 5, new], 16, (4, 2), 32, 32, torch.float32), **options))


@pytest.mark.parametrize("length", [511, 512, 513, 1024, 1537])
@pytest.mark.parametrize("heads", [(4, 2), (16, 1)], ids=["few", "many"])
@pytest.mark.parametrize("options", [{}, {"window": 600}, {"sinks": True}], ids=str)
def test_pieces_of_a_long_sequence(length, heads, options):
    options = {k: make(heads[0]) if v is True else v for k, v in options.items()}
    near(*attend(*make_batch([1], [length], 32, heads, 32, 16, torch.float32), **options))


@pytest.mark.parametrize("new", [1, 30])
@pytest.mark.parametrize("options", [{}, {"softcap": 2.0}, {"sinks": True}, {"window": 9}], ids=str)
def test_int8_caches(new, options):
    options = {k: make(4) if v is True else v for k, v in options.items()}
    q, _, _, table, starts, lengths = make_batch([new, new], [new, 90], 16, (4, 2), 40, 24, torch.float32)
    k, v = (torch.randint(-128, 128, (table.numel(), 16, 2, n), dtype=torch.int8) for n in (40, 24))
    scales, zeros = torch.tensor([0.011, 0.02]), torch.tensor([3.0, -7.0])
    near(*attend(q, k, v, table, starts, lengths, scales=scales, zeros=zeros, bits=8, **options))


@pytest.mark.parametrize("new", [1, 12])
def test_heads_before_tokens(new):
    """A cache whose heads do not lie together: read head by head."""
    q, k, v, *rest = make_batch([new, new], [40, 77], 16, (4, 2), 32, 32, torch.float16)
    expected = attend(q, k, v, *rest)[1]
    k, v = (x.transpose(1, 2).contiguous().cuda().transpose(1, 2) for x in (k, v))
    out = torch.empty(q.shape, dtype=q.dtype).cuda()
    torch.ops.dlinfer.paged_prefill_attention(
        q.cuda(), k, v, *[x.cuda() for x in rest], 0.3, None, None, -1, 0.0, None, None, 0, out
    )
    near(out, expected)


@pytest.mark.parametrize("new", [1, 20])
def test_nan_stays_in_its_sequence(new):
    q, k, v, table, *rest = make_batch([new, new], [50, 60], 16, (4, 2), 32, 32, torch.float32)
    k[table[0, 0], 3, 0] = float("nan")
    out, expected = attend(q, k, v, table, *rest)
    assert torch.equal(out.isnan().cpu(), expected.isnan()) and expected[:new, :2].isnan().all()
    near(out[new:], expected[new:])


def test_threads_do_not_change_bits():
    batches = [make_batch([1] * 3, [1500, 7, 600], 16, (8, 2), 64, 64, torch.bfloat16)]
    batches.append(make_batch([200], [300], 16, (8, 2), 64, 64, torch.bfloat16))
    found = []
    try:
        for threads in (1, 3):
            _C.set_num_threads(threads)
            found.append([attend(*batch)[0].cpu() for batch in batches])
    finally:
        _C.set_num_threads(0)
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 2, 4, 5, 8, 9, 300])
@pytest.mark.parametrize(
    ("depth", "group", "outputs"), [(192, 96, 72), (64, 64, 64), (100, 0, 8), (63, 21, 40), (256, 128, 136)]
)
def test_four_bit_shapes(dtype, rows, depth, group, outputs):
    q = torch.randint(0, 16, (depth, outputs))
    groups = depth // (group or depth)
    scale, offset = make(groups, outputs, scale=0.1), torch.randint(-8, 8, (groups, outputs)).float()
    packed = torch.zeros(depth, outputs // 8, dtype=torch.int64)
    for nibble in range(8):
        packed |= (q[:, nibble::8] ^ 8) << (4 * nibble)
    words = torch.where(packed >= 2**31, packed - 2**32, packed).to(torch.int32)
    x = make(depth, rows, dtype=dtype).t() if rows == 2 else make(rows, depth, dtype=dtype)
    scale, offset = scale.to(dtype), offset.to(dtype)
    out = ops.weight_quant_matmul(x.cuda(), words.cuda(), scale.cuda(), offset.cuda(), group_size=group)
    wide = [n.double().repeat_interleave(depth // groups, 0) for n in (offset, scale)]
    near(out, x.double() @ ((q - 8 + wide[0]) * wide[1]))


@pytest.mark.parametrize("rows", [1, 3, 4, 33, 70])
@pytest.mark.parametrize(("depth", "outputs"), [(1, 1), (31, 5), (33, 34), (64, 6)])
def test_w8a8_shapes(rows, depth, outputs):
    a, b = (torch.randint(-128, 128, (n, depth), dtype=torch.int8) for n in (rows, outputs))
    scales = torch.rand(rows) / 30, torch.rand(outputs, 1) / 30
    out = ops.linear_w8a8(a.cuda(), b.cuda(), *[s.cuda() for s in scales], torch.float32)
    near(out, (a.double() @ b.double().t()) * scales[0].double()[:, None] * scales[1].double().t())


def test_w8a8_of_the_largest_numbers():
    """131,072 products of -128 by -128 do not fit 32 bits."""
    a = torch.full((1, 140000), -128, dtype=torch.int8)
    one = torch.ones(1)
    out = ops.linear_w8a8(a.cuda(), a.cuda(), one.cuda(), one.view(1, 1).cuda(), torch.float32)
    assert out.item() == 140000 * 128 * 128


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("tokens", [8, 9, 70, 200])
@pytest.mark.parametrize(("width", "inner"), [(48, 40), (530, 33), (64, 64)])
def test_crowds_of_tokens(dtype, tokens, width, inner):
    """One expert has all tokens, one none, one two: few and many rows, blocks of 64, depths beyond a tile."""
    x = make(tokens, width, dtype=dtype)
    up, down = make(4, 2 * inner, width, dtype=dtype, scale=0.1), make(4, width, inner, dtype=dtype, scale=0.1)
    ids = torch.full((tokens, 2), 2, dtype=torch.int32)
    ids[:, 1] = 3
    ids[2:, 1] = -1
    weights = torch.rand(tokens, 2)
    out = ops.fused_moe(x.cuda(), up.cuda(), down.cuda(), weights.cuda(), ids.cuda(), 2, False)
    near(out, composed.fused_moe(*[n.double() for n in (x, up, down, weights)], ids, False))


def test_products_without_columns():
    """An empty sum is 0: the bias alone is left."""
    bias = make(8).cuda()
    empty = torch.zeros(0, 8).cuda()
    a, b = torch.zeros(2, 0, dtype=torch.int8).cuda(), torch.zeros(8, 0, dtype=torch.int8).cuda()
    whole = ops.linear_w8a8(a, b, torch.ones(0).cuda(), torch.ones(8, 1).cuda(), torch.float32, bias=bias)
    packed = ops.weight_quant_matmul(
        make(3, 0).cuda(), torch.zeros(0, 1, dtype=torch.int32).cuda(), empty, empty, bias, group_size=4
    )
    assert torch.equal(whole.cpu(), bias.cpu().expand(2, 8)) and torch.equal(packed.cpu(), bias.cpu().expand(3, 8))
    out = ops.fused_moe(
        make(20, 8).cuda(), make(2, 0, 8).cuda(), make(2, 8, 0).cuda(), torch.ones(20, 1).cuda(),
        torch.zeros(20, 1, dtype=torch.int32).cuda(), 1, False,
    )  # fmt: skip
    assert torch.equal(out.cpu(), torch.zeros(20, 8))
