"""The sparse pair of LMDeploy 0.18: which keys a query sees, and attention over them, against float64."""

import ditorch  # noqa: F401
import pytest
import torch
from ditorch.infer import composed_sparse, ops, vendors

LIMITS = {torch.float32: 2e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
BLOCK = 4


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)
    vendors.use("ascend")
    yield
    vendors._chosen.clear()


def make_batch(news, lengths, width, dtype):
    """A cache of one head in blocks that are not in order, and where queries end."""
    columns = max(-(-n // BLOCK) for n in lengths) + 1
    table = torch.randperm(columns * len(lengths), dtype=torch.int32).view(len(lengths), columns)
    cache = torch.randn(table.numel(), BLOCK, 1, width).to(dtype)
    rows = [cache[table[i].long()].flatten(0, 2)[:n].double() for i, n in enumerate(lengths)]
    return cache, table, rows, torch.tensor(news).cumsum(0), torch.tensor(lengths)


CASES = {"decode": ([1, 1, 1], [3, 21, 40]), "prefill": ([7, 0, 40], [7, 5, 40]), "chunk": ([3, 33], [20, 50])}


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("count", [1, 8, 64])
def test_indexer(dtype, case, count):
    """Each list has the best keys: those left out are no better than those in it, in float64."""
    news, lengths = CASES[case]
    cache, table, rows, ends, sizes = make_batch(news, lengths, 16, dtype)
    query = torch.randn(sum(news), 6, 16).to(dtype)
    weights = torch.randn(sum(news), 6).to(dtype)
    out = ops.lightning_indexer(
        query.cuda(), cache.cuda(), weights.cuda(), ends.cuda(), sizes.cuda(), table.cuda(), sparse_count=count
    )
    assert out.shape == (sum(news), 1, count) and out.dtype == torch.int32
    begin = 0
    for keys, new, length in zip(rows, news, lengths, strict=True):
        for i in range(new):
            token, seen = begin + i, length - new + i + 1
            scores = weights[token].double() @ (query[token].double() @ keys[:seen].t()).relu()
            found = out[token, 0].tolist()
            kept = found[: min(count, seen)]
            assert found[len(kept) :] == [-1] * (count - len(kept))
            assert len(set(kept)) == len(kept) and all(0 <= place < seen for place in kept)
            best = scores.sort(descending=True).values[: len(kept)]
            assert (scores[kept] - best).abs().max() <= LIMITS[torch.float32] * 16
        begin += new


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("rope", [True, False])
def test_attention_over_chosen_keys(dtype, case, rope):
    news, lengths = CASES[case]
    cache, table, rows, ends, sizes = make_batch(news, lengths, 24, dtype)
    tokens, heads = sum(news), 5
    query = torch.randn(tokens, heads, 24).to(dtype)
    chosen = torch.full((tokens, 1, 11), -1, dtype=torch.int32)
    expected = torch.zeros(tokens, heads, 16, dtype=torch.float64)
    sequence = [i for i, new in enumerate(news) for _ in range(new)]
    for token in range(tokens):
        keys = rows[sequence[token]]
        places = torch.randperm(len(keys))[: (token % 11) + 1]
        chosen[token, 0, : len(places)] = places.int()
        key = keys[places] if rope else keys[places][:, :16]
        scores = query[token, :, : key.shape[1]].double() @ key.t() * 0.3
        expected[token] = scores.softmax(-1) @ keys[places][:, :16]
    value = cache.cuda()[..., :16]
    more = {"query_rope": query[..., 16:].cuda(), "key_rope": cache.cuda()[..., 16:]} if rope else {}
    out = ops.sparse_flash_attention(
        query[..., :16].cuda(), value, value, chosen.cuda(), 0.3, block_table=table.cuda(),
        actual_seq_lengths_query=ends.cuda(), kv_seqlens=sizes.cuda(), **more,
    )  # fmt: skip
    error = ((out.cpu().double() - expected).abs() / (expected.abs() + 1)).max().item()
    assert out.dtype == dtype and error <= LIMITS[dtype], error


def test_a_query_without_keys_gives_zeros():
    cache, table, _, ends, sizes = make_batch([2], [6], 8, torch.float32)
    query = torch.randn(2, 3, 8).cuda()
    chosen = torch.full((2, 1, 4), -1, dtype=torch.int32)
    chosen[1, 0, 2] = 5
    out = ops.sparse_flash_attention(
        query, cache.cuda(), cache.cuda(), chosen.cuda(), 1.0, table.cuda(), ends.cuda(), sizes.cuda()
    )
    assert out[0].count_nonzero() == 0
    assert torch.equal(out[1, 0].cpu(), cache[table[0, 1].long(), 1, 0])


def test_the_parts_of_a_long_prompt_agree(monkeypatch):
    cache, table, _, ends, sizes = make_batch([20], [37], 8, torch.float32)
    query, weights = torch.randn(20, 3, 8).cuda(), torch.randn(20, 3).cuda()
    call = (query, cache.cuda(), weights, ends.cuda(), sizes.cuda(), table.cuda(), 6)
    found = []
    for count in (32, 3):
        monkeypatch.setattr(composed_sparse, "QUERIES", count)
        chosen = ops.lightning_indexer(*call)
        rest = (chosen, 1.0, table.cuda(), ends.cuda(), sizes.cuda())
        found.append((chosen, ops.sparse_flash_attention(query, cache.cuda(), cache.cuda(), *rest)))
    assert torch.equal(found[0][0], found[1][0])
    torch.testing.assert_close(found[0][1], found[1][1])


def test_a_cache_of_several_heads_is_refused():
    cache, table, _, ends, sizes = make_batch([1], [6], 8, torch.float32)
    wide = cache.expand(-1, -1, 2, -1)
    with pytest.raises(ValueError, match=r"'key' is .*valid: \(blocks, block, 1, elements\)"):
        ops.lightning_indexer(torch.randn(1, 3, 8), wide, torch.ones(1, 3), ends, sizes, table, 2)
