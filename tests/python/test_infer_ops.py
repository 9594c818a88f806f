"""dlinfer's operators on the embedded device against float64, in the layouts that frameworks pass."""

import math

import ditorch  # noqa: F401
import pytest
import torch
from ditorch import ledger
from ditorch.infer import composed, fakes, operators, ops, vendors

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
LIMITS = {torch.float32: 2e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)
    vendors.use("maca")
    yield
    vendors._chosen.clear()


def make(*shape, dtype=torch.float32, scale=1.0):
    return (torch.randn(*shape) * scale).to(dtype)


def near(result, expected, dtype=None):
    dtype = dtype or result.dtype
    result, expected = result.cpu().double(), expected.double()
    assert result.shape == expected.shape
    error = ((result - expected).abs() / (expected.abs() + 1)).max().item() if result.numel() else 0.0
    assert error <= LIMITS[dtype], error


def ran_in_c(name):
    """The ledger's count of C calls of the operator."""
    return next((row["calls"] for row in ledger.operators() if row["operator"] == f"dlinfer::{name}"), 0)


def wide(*tensors):
    return [None if x is None else x.double() if x.is_floating_point() else x for x in tensors]


# Norms, activation, positions


@pytest.mark.parametrize("dtype", DTYPES)
def test_norms(dtype):
    pool = make(2, 5, 3 * 96, dtype=dtype)
    x, residual = pool[..., :96], pool[..., 96:192]  # strided rows
    weight = make(96, dtype=dtype)
    near(ops.rms_norm(x.cuda(), weight.cuda(), 1e-6), composed.rms_norm(*wide(x, weight), 1e-6))
    device = pool.cuda()
    out, added = ops.add_rms_norm(device[..., :96], device[..., 96:192], weight.cuda(), 1e-6)
    assert torch.equal(added.cpu(), x + residual)
    near(out, composed.rms_norm(*wide(x + residual, weight), 1e-6))
    q, scale = ops.rms_norm_w8a8(x.cuda(), weight.cuda(), 1e-6)
    assert q.dtype == torch.int8 and scale.shape == (2, 5)
    exact = composed.rms_norm(*wide(x, weight), 1e-6)
    assert (
        (q.cpu().double() * scale.cpu().double().unsqueeze(-1) - exact).abs() <= scale.cpu()[..., None] * 0.51
    ).all()
    q2, scale2, added2 = ops.add_rms_norm_w8a8(device[..., :96], device[..., 96:192], weight.cuda(), 1e-6)
    assert torch.equal(added2.cpu(), x + residual)
    exact = composed.rms_norm(*wide(x + residual, weight), 1e-6)
    assert ((q2.cpu().double() * scale2.cpu().unsqueeze(-1) - exact).abs() <= scale2.cpu()[..., None] * 0.51).all()


def test_norm_with_a_large_epsilon_and_a_large_last_element():
    x, weight = make(3, 21, scale=0.1), make(21)
    near(ops.rms_norm(x.cuda(), weight.cuda(), 0.5), composed.rms_norm(*wide(x, weight), 0.5))
    x[:, -1] = 9.0
    assert torch.equal(ops.dynamic_quant(x.cuda())[1].cpu(), torch.full((3,), 9.0) / 127)


def test_quant_of_zeros_and_ties():
    x = torch.zeros(2, 4)
    x[1] = torch.tensor([127.0, 0.5, 1.5, -2.5])
    q, scale = ops.dynamic_quant(x.cuda())
    assert scale.tolist() == [0.0, 1.0] and q.tolist() == [[0, 0, 0, 0], [127, 0, 2, -2]]


@pytest.mark.parametrize("dtype", DTYPES)
def test_silu_and_mul(dtype):
    x = make(3, 7, 2 * 40, dtype=dtype, scale=3)
    near(ops.silu_and_mul(x.cuda()), composed.silu_and_mul(x.double()))
    near(ops.silu_and_mul(x.cuda(), dim=-1), composed.silu_and_mul(x.double()))
    y = make(6, 5, dtype=dtype)
    near(ops.silu_and_mul(y.cuda(), dim=0), composed.silu_and_mul(y.t().double()).t())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [32, 16, 2])
@pytest.mark.parametrize("kind", ["apply_rotary_pos_emb", "apply_rotary_pos_emb_interleaved"])
def test_rotary(dtype, width, kind):
    qkv = make(9, (4 + 2 + 2) * 32, dtype=dtype)
    cos, sin = make(9, width), make(9, width)
    device = qkv.cuda().view(9, 8, 32)
    q, k = getattr(ops, kind)(device[:, :4], device[:, 4:6], cos.cuda(), sin.cuda())
    host = qkv.view(9, 8, 32).double()
    expected = getattr(composed, kind)(host[:, :4], host[:, 4:6], cos.double(), sin.double())
    near(q, expected[0])
    near(k, expected[1])
    assert torch.equal(q[..., width:].cpu(), qkv.view(9, 8, 32)[:, :4, width:])


# Caches


def make_caches(blocks, block, heads, width, dtype, value_width=None, heads_first=False):
    """Keys and values of a block side by side in one pool, as LMDeploy lays them out."""
    value_width = value_width or width
    shape = (heads, block) if heads_first else (block, heads)
    size = block * heads
    pool = make(blocks, size * (width + value_width), dtype=torch.float32).to(dtype).cuda()
    k = pool[:, : size * width].unflatten(1, (*shape, width))
    return k, pool[:, size * width :].unflatten(1, (*shape, value_width))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("vendor", ["ascend", "camb"])
@pytest.mark.parametrize("column", [False, True])
def test_fill_kv_cache(dtype, vendor, column):
    vendors.use(vendor)
    k_cache, v_cache = make_caches(4, 16, 2, 8, dtype, heads_first=vendor == "camb")
    before = k_cache.cpu().clone(), v_cache.cpu().clone()
    qkv = make(6, 3 * 2 * 8, dtype=dtype)
    views = [x.unflatten(1, (2, 8)) for x in qkv.cuda().chunk(3, 1)]
    slots = torch.tensor([15, -1, 16, 63, 5, 5])
    index = slots.to(torch.int64 if column else torch.int32).cuda()
    result = ops.fill_kv_cache(views[1], views[2], k_cache, v_cache, index.unsqueeze(1) if column else index)
    assert result[0] is k_cache and result[1] is v_cache
    for cache, old, rows in zip((k_cache, v_cache), before, qkv.chunk(3, 1)[1:], strict=False):
        expected = old.transpose(1, 2).clone() if vendor == "camb" else old.clone()
        for token, slot in enumerate(slots.tolist()):
            if slot >= 0:
                expected[slot // 16, slot % 16] = rows[token].view(2, 8)
        got = cache.cpu().transpose(1, 2) if vendor == "camb" else cache.cpu()
        assert torch.equal(got, expected)


@pytest.mark.parametrize("device", ["cuda", "cpu"])
@pytest.mark.parametrize("first", ["key", "value"])
def test_fill_pages_that_take_turns(device, first):
    """Keys and values as pages of one storage, in turns: the two caches overlap, their tokens do not."""
    pool = torch.zeros(6, 4, 1, 8, device=device)
    caches = pool[0:5], pool[1:6]
    key, value = make(2, 1, 8).to(device), make(2, 1, 8).to(device)
    k_cache, v_cache = caches if first == "key" else caches[::-1]
    slots = torch.tensor([0, 2 * 4 + 3], device=device)
    torch.ops.dlinfer.fill_kv_cache(key, value, k_cache, v_cache, slots, None, None, None, None, 0)
    turns = (key, value) if first == "key" else (value, key)
    assert torch.equal(pool[0, 0], turns[0][0]) and torch.equal(pool[1, 0], turns[1][0])
    assert torch.equal(pool[2, 3], turns[0][1]) and torch.equal(pool[3, 3], turns[1][1])
    assert pool.count_nonzero() == 32


@pytest.mark.parametrize("device", ["cuda", "cpu"])
@pytest.mark.parametrize("first", [0, 8])
def test_fill_leaves_a_value_inside_the_key(device, first):
    """MLA: the value is a part of the key's row, wherever it begins there, and not written for itself."""
    cache = torch.zeros(2, 4, 1, 24, device=device)
    key = make(1, 1, 24).to(device)
    inside = cache[..., first : first + 16]
    slots = torch.tensor([5], device=device)
    torch.ops.dlinfer.fill_kv_cache(
        key, torch.ones(1, 1, 16, device=device), cache, inside, slots, None, None, None, None, 0
    )
    assert torch.equal(cache[1, 1], key[0])


def test_fill_leaves_everything_when_a_slot_is_wrong():
    k_cache, v_cache = make_caches(2, 4, 1, 8, torch.float32)
    before = k_cache.clone()
    rows = make(2, 1, 8).cuda()
    for slot in (8, -2):
        with pytest.raises(RuntimeError, match=r"kv_indices.*valid: -1 to 7"):
            ops.fill_kv_cache(rows, rows, k_cache, v_cache, torch.tensor([0, slot]).cuda())
    assert torch.equal(k_cache, before)


# Attention


def make_table(lengths, block, blocks):
    most = max(-(-n // block) for n in lengths) + 1
    order = torch.randperm(blocks)
    table, at = torch.zeros(len(lengths), most, dtype=torch.int32), 0
    for i, n in enumerate(lengths):
        used = -(-n // block)
        table[i, :used] = order[at : at + used]
        at += used
    assert at <= blocks
    return table


OPTIONS = {
    "plain": {},
    "window": {"window": 7},
    "softcap": {"softcap": 1.5},
    "alibi": {"alibi_slopes": True},
    "sinks": {"sinks": True},
}


def fill_options(option, heads):
    # slopes are positive, as alibi's are: others would have their largest scores where float32 is coarse
    return {k: make(heads).abs() if v is True else v for k, v in OPTIONS[option].items()}


def to_device(options):
    return {k: v.cuda() if isinstance(v, torch.Tensor) else v for k, v in options.items()}


def positional(options, scale):
    return (
        scale,
        options.get("alibi_slopes"),
        options.get("sinks"),
        options.get("window", -1),
        options.get("softcap", 0.0),
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("option", OPTIONS)
def test_prefill(dtype, option):
    qkv = make(80, 4 + 2 + 2, 24, dtype=dtype)
    options = fill_options(option, 4)
    starts = torch.tensor([0, 1, 1, 9, 80], dtype=torch.int32)  # length 1, nothing, 8, 71
    q, k, v = qkv.double().split((4, 2, 2), 1)
    expected = torch.zeros(80, 4, 24, dtype=torch.float64)
    composed.prefill_attention(q, k, v, starts, True, *positional(options, 0.3), expected)
    device = qkv.cuda()
    dq = device[:, :4]
    before = ran_in_c("prefill_attention")
    out = ops.prefill_attention(
        dq, device[:, 4:6], device[:, 6:], None, None, starts.cuda(), starts.diff().cuda(), None, 71, 4, 2, None,
        softmax_scale=0.3, attn_output=dq, **to_device(options),
    )  # fmt: skip
    assert out.data_ptr() == dq.data_ptr() and ran_in_c("prefill_attention") == before + 1
    near(out, expected)
    near(device[:, :4], expected)
    assert torch.equal(device[:, 4:].cpu(), qkv[:, 4:])


def test_prefill_without_a_mask_is_not_causal():
    vendors.use("ascend")
    q, k, v = make(3, 7, 2, 16).unbind(0)
    lengths = torch.tensor([3, 4], dtype=torch.int32)
    out = torch.full((7, 2, 16), 9.0).cuda()
    ops.prefill_attention(
        q.cuda(), k.cuda(), v.cuda(), None, None, None, lengths, lengths, 4, 2, 2, [], attn_output=out
    )
    expected = torch.zeros(7, 2, 16, dtype=torch.float64)
    composed.prefill_attention(*wide(q, k, v), torch.tensor([0, 3, 7]), False, 0.25, None, None, -1, 0.0, expected)
    near(out, expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("vendor", ["ascend", "maca", "camb"])
def test_paged_prefill_mixed_histories(dtype, option, vendor):
    vendors.use(vendor)
    options = fill_options(option, 6)
    kv, new = [16, 1, 33, 100], [16, 1, 5, 40]
    k_cache, v_cache = make_caches(16, 16, 2, 24, dtype, heads_first=vendor == "camb")
    table = make_table(kv, 16, 16)
    starts = torch.tensor([0, *new]).cumsum(0)
    q = make(sum(new), 6, 24, dtype=dtype)
    caches = [x.transpose(1, 2) if vendor == "camb" else x for x in (k_cache, v_cache)]
    expected = torch.zeros(sum(new), 6, 24, dtype=torch.float64)
    composed.paged_prefill_attention(
        q.double(), *[x.cpu().double() for x in caches], table, starts, torch.tensor(kv), *positional(options, 0.2),
        None, None, 0, expected,
    )  # fmt: skip
    lengths = torch.tensor(kv, dtype=torch.int32)
    if vendor == "ascend":
        starts_given, q_len, kv_len = None, starts[1:], lengths  # on the host, ends
    else:
        starts_given, kv_len = starts.int().cuda(), lengths.cuda()
        q_len = torch.tensor(new, dtype=torch.int32).cuda()
    device = q.cuda()
    before = ran_in_c("paged_prefill_attention")
    out = ops.paged_prefill_attention(
        device, None, None, k_cache, v_cache, table.cuda(), 16, starts_given, q_len, kv_len, None, 40, 100, 6, 2, None,
        softmax_scale=0.2, attn_output=device, **to_device(options),
    )  # fmt: skip
    assert out is device and ran_in_c("paged_prefill_attention") == before + 1
    near(out, expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("option", OPTIONS)
def test_paged_decode_long_and_short(dtype, option):
    options = fill_options(option, 8)
    kv = [1300, 1, 16, 17, 513]  # several pieces, borders of blocks and pieces
    k_cache, v_cache = make_caches(128, 16, 2, 32, dtype)
    table = make_table(kv, 16, 128)
    q = make(5, 8, 32, dtype=dtype)
    expected = torch.zeros(5, 8, 32, dtype=torch.float64)
    composed.paged_decode_attention(
        q.double(), k_cache.cpu().double(), v_cache.cpu().double(), table, None, torch.tensor(kv),
        *positional(options, 1 / math.sqrt(32)), None, None, 0, expected,
    )  # fmt: skip
    ones = torch.ones(5, dtype=torch.int32).cuda()
    out = ops.paged_decode_attention(
        q.cuda(), k_cache, v_cache, table.cuda(), 16, ones, torch.tensor(kv).cuda(), -1, 8, 2, **to_device(options)
    )
    near(out, expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_mla(dtype):
    cache = make(8, 16, 1, 48, dtype=dtype).cuda()
    value = cache[..., :32]
    rows = make(3, 1, 48, dtype=dtype)
    slots = torch.tensor([0, 17, -1], dtype=torch.int32).cuda()
    ops.fill_kv_cache(rows.cuda(), torch.full((3, 1, 32), 7.0, dtype=dtype).cuda(), cache, value, slots)
    assert torch.equal(cache[0, 0].cpu(), rows[0]) and torch.equal(cache[1, 1].cpu(), rows[1])
    kv, table = torch.tensor([20, 128]), torch.arange(8, dtype=torch.int32).flip(0).expand(2, 8)
    q = make(2, 16, 48, dtype=dtype)
    expected = torch.zeros(2, 16, 32, dtype=torch.float64)
    host = cache.cpu().double()
    composed.paged_decode_attention(
        q.double(), host, host[..., :32], table, None, kv, 0.1, None, None, -1, 0.0, None, None, 0, expected
    )
    device = q.cuda()
    ops.paged_decode_attention(
        device, cache, value, table.contiguous().cuda(), 16, None, kv.cuda(), -1, 16, 1, head_size_v=32,
        softmax_scale=0.1, attn_output=device[..., :32],
    )  # fmt: skip
    near(device[..., :32], expected)
    assert torch.equal(device[..., 32:].cpu(), q[..., 32:])


def test_int8_cache():
    k_cache, v_cache = (torch.zeros(4, 16, 2, 32, dtype=torch.uint8).cuda() for _ in range(2))
    k, v = make(40, 2, 32), make(40, 2, 32)
    k[0, 0, 0], k[0, 0, 1] = 100.0, -100.0  # clamped
    scales, zeros = torch.tensor([0.03, 0.04]), torch.tensor([3.0, -2.0])
    ops.fill_kv_cache(
        k.cuda(), v.cuda(), k_cache, v_cache, torch.arange(40, dtype=torch.int32).cuda(),
        [scales[:1].cuda(), zeros[:1].cuda()], [scales[1:].cuda(), zeros[1:].cuda()], 8,
    )  # fmt: skip
    stored = k_cache.cpu().view(torch.int8).flatten(0, 1)[:40]
    assert torch.equal(stored.double(), (k / scales[0] - zeros[0]).round().clamp(-128, 127).double())
    stored = v_cache.cpu().view(torch.int8).flatten(0, 1)[:40]
    assert torch.equal(stored.double(), (v / scales[1] - zeros[1]).round().clamp(-128, 127).double())
    q, kv, table = make(1, 4, 32), torch.tensor([40]), torch.arange(4, dtype=torch.int32).view(1, 4)
    expected = torch.zeros(1, 4, 32, dtype=torch.float64)
    real = [
        (x.cpu().view(torch.int8).double() + z) * s
        for x, s, z in zip((k_cache, v_cache), scales.double(), zeros, strict=False)
    ]
    composed.paged_decode_attention(
        q.double(), *real, table, None, kv, 0.2, None, None, -1, 0.0, None, None, 0, expected
    )
    out = ops.paged_decode_attention(
        q.cuda(), k_cache, v_cache, table.cuda(), 16, None, kv.cuda(), -1, 4, 2, softmax_scale=0.2,
        kv_scales=scales.cuda(), kv_zeros=zeros.cuda(), quant_bits=8,
    )  # fmt: skip
    near(out, expected)


# Quantised products and experts


def pack(numbers, order):
    words = torch.zeros(numbers.shape[0], numbers.shape[1] // 8, dtype=torch.int64)
    for nibble, column in enumerate(order):
        words |= numbers[:, column::8].long() << (4 * nibble)
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [1, 9])
@pytest.mark.parametrize("packing", ["awq", "original", "no offset"])
def test_four_bit_weights(dtype, rows, packing):
    q, zero = torch.randint(0, 16, (64, 40)), torch.randint(0, 16, (2, 40))
    scale, x, bias = make(2, 40, dtype=dtype, scale=0.1), make(rows, 64, dtype=dtype), make(40, dtype=dtype)
    if packing == "awq":
        order = (0, 2, 4, 6, 1, 3, 5, 7)
        words, offset = pack(q, order), pack(zero, order)
    else:
        words, offset = pack(q ^ 8, range(8)), (8 - zero).to(dtype) if packing == "original" else None
        zero = zero if packing == "original" else torch.full_like(zero, 8)
    weight = (q - zero.repeat_interleave(32, 0)).double() * scale.double().repeat_interleave(32, 0)
    out = ops.weight_quant_matmul(
        x.cuda(), words.cuda(), scale.cuda(), None if offset is None else offset.cuda(), bias.cuda(), group_size=32
    )
    near(out, x.double() @ weight + bias.double())
    near(composed.weight_quant_matmul(x, words, scale, offset, bias, 32), x.double() @ weight + bias.double(), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_w8a8(dtype):
    a, b = (
        torch.randint(-128, 128, (1, 5, 300), dtype=torch.int8),
        torch.randint(-128, 128, (37, 300), dtype=torch.int8),
    )
    a_scale, b_scale, bias = torch.rand(1, 5) / 1e3, torch.rand(37, 1) / 1e2, make(37, dtype=dtype)
    out = ops.linear_w8a8(a.cuda(), b.cuda(), a_scale.cuda(), b_scale.cuda(), dtype, torch.int8, bias.cuda())
    assert out.dtype == dtype and out.shape == (1, 5, 37)
    expected = (a[0].double() @ b.double().t()) * a_scale.double().view(5, 1) * b_scale.double().view(1, 37)
    near(out[0], expected + bias.double())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tokens", [1, 50])
@pytest.mark.parametrize("renormalize", [False, True])
def test_experts(dtype, tokens, renormalize):
    logits, x = make(tokens, 8), make(tokens, 48, dtype=dtype)
    up, down = make(8, 2 * 40, 48, dtype=dtype, scale=0.2), make(8, 48, 40, dtype=dtype, scale=0.2)
    weights, ids = ops.moe_gating_topk_softmax(logits.cuda(), 2)
    best = logits.double().softmax(-1).topk(2)
    assert ids.dtype == torch.int32 and torch.equal(ids.cpu().long(), best.indices)
    near(weights, best.values)
    ids[0, 1] = 99  # an expert of another device
    kept = weights.clone()
    out = ops.fused_moe(x.cuda(), up.cuda(), down.cuda(), weights, ids, 2, renormalize)
    assert torch.equal(weights, kept)
    near(out, composed.fused_moe(*wide(x, up, down, weights.cpu()), ids.cpu(), renormalize))


def test_gating_in_groups():
    logits = make(6, 12)
    weights, ids = torch.ops.dlinfer.moe_gating_topk_softmax(logits.cuda(), 4, 2)
    expected = composed.moe_gating_topk_softmax(logits, 4, 2)
    assert torch.equal(ids.cpu(), expected[1])
    near(weights, expected[0])


# What is wrong is named; fakes, side streams, mutation


def decode(**changes):
    arguments = {
        "query": make(2, 4, 8).cuda(),
        "key_cache": make(4, 16, 2, 8).cuda(),
        "value_cache": make(4, 16, 2, 8).cuda(),
        "block_table": torch.zeros(2, 2, dtype=torch.int32).cuda(),
        "kv_seq_len": torch.tensor([5, 32]).cuda(),
        **changes,
    }
    return ops.paged_decode_attention(
        arguments["query"], arguments["key_cache"], arguments["value_cache"], arguments["block_table"], 16, None,
        arguments["kv_seq_len"], -1, arguments["query"].shape[1], 2,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("kv_seq_len", lambda: {"kv_seq_len": torch.tensor([5, 33]).cuda()}),
        ("kv_seq_len", lambda: {"kv_seq_len": torch.tensor([5]).cuda()}),
        ("kv_seq_len", lambda: {"kv_seq_len": torch.tensor([5.0, 3.0]).cuda()}),
        ("block_table", lambda: {"block_table": torch.full((2, 2), 4, dtype=torch.int32).cuda()}),
        ("block_table", lambda: {"block_table": torch.full((2, 2), -1).cuda()}),
        ("key_cache", lambda: {"key_cache": make(4, 16, 2, 8, dtype=torch.float16).cuda()}),
        ("query", lambda: {"query": make(2, 4, 9).cuda()}),
        ("query", lambda: {"query": make(2, 3, 8).cuda()}),
        ("value_cache", lambda: {"value_cache": make(4, 16, 2, 8)}),
    ],
)
def test_wrong_arguments_are_named(name, changes):
    with pytest.raises(RuntimeError, match=f"'{name}'"):
        decode(**changes())


def test_empty_batches():
    out = decode(
        query=make(0, 4, 8).cuda(), block_table=torch.zeros(0, 2).int().cuda(), kv_seq_len=torch.zeros(0).int().cuda()
    )
    assert out.shape == (0, 4, 8)
    assert torch.equal(decode(kv_seq_len=torch.tensor([0, 1]).cuda())[0].cpu(), torch.zeros(4, 8))
    assert ops.rms_norm(make(0, 8).cuda(), make(8).cuda(), 1e-6).shape == (0, 8)


def test_a_side_stream_keeps_order_and_reports():
    stream = torch.cuda.Stream()
    x, weight = make(64, 256), make(256)
    expected = composed.rms_norm(composed.rms_norm(*wide(x, weight), 1e-6), weight.double(), 1e-6)
    with torch.cuda.stream(stream):
        dx, dw = x.cuda(), weight.cuda()
        out = ops.rms_norm(ops.rms_norm(dx, dw, 1e-6), dw, 1e-6)
    stream.synchronize()
    near(out, expected)
    with pytest.raises(RuntimeError, match="block_table"), torch.cuda.stream(stream):
        decode(block_table=torch.full((2, 2), 9, dtype=torch.int32).cuda())
        stream.synchronize()


def test_fakes_agree_with_results():
    from torch._subclasses.fake_tensor import FakeTensorMode

    x, w = make(3, 8), make(8)
    calls = {
        "rms_norm": (x, w, 1e-6),
        "add_rms_norm": (x, x, w, 1e-6),
        "rms_norm_w8a8": (x, w, 1e-6, torch.int8),
        "add_rms_norm_w8a8": (x, x, w, 1e-6, torch.int8),
        "silu_and_mul": (x,),
        "dynamic_quant": (x, torch.int8),
        "moe_gating_topk_softmax": (x, 2, -1),
    }
    assert set(fakes.FAKES) == set(ops.OPERATORS)
    for name, arguments in calls.items():
        operator = getattr(torch.ops.dlinfer, name)
        real = operator(*[a.cuda() if isinstance(a, torch.Tensor) else a for a in arguments])
        with FakeTensorMode() as mode:
            fake = operator(*[mode.from_tensor(a) if isinstance(a, torch.Tensor) else a for a in arguments])
        for a, b in zip(
            real if isinstance(real, tuple) else (real,), fake if isinstance(fake, tuple) else (fake,), strict=False
        ):
            assert a.shape == b.shape and a.dtype == b.dtype, name


def test_schemas_declare_what_is_written():
    for name, written in {"fill_kv_cache": ["key_cache", "value_cache"], "prefill_attention": ["attn_output"]}.items():
        schema = getattr(torch.ops.dlinfer, name).default._schema
        assert [a.name for a in schema.arguments if a.alias_info and a.alias_info.is_write] == written


def test_capability_and_composed_float64():
    found = operators.capability()
    assert [name for name in found if found[name].runs == "c"] == list(ops.IN_C)
    assert found["linear"].runs == "composed" and found["fused_moe"].dtypes == ("float32", "float16", "bfloat16")
    x, weight = make(3, 8).double(), make(8).double()
    assert torch.allclose(ops.rms_norm(x.cuda(), weight.cuda(), 1e-6).cpu(), composed.rms_norm(x, weight, 1e-6))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_the_composed_form_on_the_cpu(dtype):
    q, kv = make(2, 4, 8, dtype=dtype), torch.tensor([5, 32])
    k, v = make(4, 16, 2, 8, dtype=dtype), make(4, 16, 2, 8, dtype=dtype)
    table = torch.tensor([[0, 1], [2, 3]], dtype=torch.int32)
    out = ops.paged_decode_attention(q, k, v, table, 16, None, kv, -1, 4, 2)
    near(
        out, ops.paged_decode_attention(q.cuda(), k.cuda(), v.cuda(), table.cuda(), 16, None, kv.cuda(), -1, 4, 2).cpu()
    )
