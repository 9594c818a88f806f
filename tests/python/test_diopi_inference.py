"""The host library's functions for inference and linear algebra, where one call of the conformance suite cannot tell:
draws of sampling, dropout that two calls share, questions for scratch, groups of processes, code without a LAPACK.
"""

from __future__ import annotations

import ctypes
import math

import pytest
import torch
from ditorch import diopi

HOST = diopi.Library("host")


def _kept(result: diopi.Required) -> torch.Tensor:
    dtype = {0: torch.uint8, 4: torch.int64, 6: torch.float32, 7: torch.float64}[result.dtype]
    return torch.frombuffer(bytearray(result.data or b"\0" * 8), dtype=dtype)[: math.prod(result.shape)].reshape(
        result.shape
    )


def _attend(q, k, v, p, seed):
    out, kept = torch.empty_like(q), [diopi.Required() for _ in range(4)]
    generator = diopi.Generator(seed, 5)
    common = (p, 0.3, False, -1, -1, q.shape[2], "BSND")
    HOST.call("diopiCustomizedFlashAttention", out, *kept, generator, q, k, v, None, None, *common)
    return out, [_kept(one) for one in kept], generator


def test_the_gradient_of_attention_has_the_mask_of_its_forward_call():
    torch.manual_seed(1)
    q, k, v, grad = (torch.randn(2, 9, 3, 8) for _ in range(4))
    out, (mask, most, total, softmax), generator = _attend(q, k, v, 0.5, 77)
    assert generator.offset > 5 and mask.tolist() == [77, 5] and softmax.numel() == 0
    assert not torch.equal(out, _attend(q, k, v, 0.5, 78)[0])
    grads = [torch.empty_like(x) for x in (q, k, v)]
    common = (0.5, 0.3, False, -1, -1, 3, "BSND")
    given = (grad, q, k, v, None, out, None, mask, most, total, softmax)
    HOST.call("diopiCustomizedFlashAttentionBackward", *grads, *given, *common)
    # out is linear in v, so both sums are the same bilinear form of v and grad under one mask
    assert float((out * grad).sum()) == pytest.approx(float((v * grads[2]).sum()), rel=1e-4)
    given = (grad, q, k, v, None, out, None, torch.tensor([78, 5]), most, total, softmax)
    HOST.call("diopiCustomizedFlashAttentionBackward", *grads, *given, *common)
    assert float((out * grad).sum()) != pytest.approx(float((v * grads[2]).sum()), rel=1e-2)
    code = HOST.invoke("diopiCustomizedFlashAttentionBackward", *grads, *given[:7], mask[:1], *given[8:], *common)
    assert code != diopi.SUCCESS and "'dropout_mask' is not what the forward call gave" in HOST.get_error()


COUNT = 4000


def _sample(function, logits, k, p):
    """Tokens of COUNT sequences with the same logits and generators of their own."""
    ids = torch.full((2, COUNT), -7)
    generators = [diopi.Generator(seed, 0) for seed in range(COUNT)]
    ends, finished = torch.zeros(COUNT, dtype=torch.int64), torch.zeros(COUNT, dtype=torch.bool)
    lengths, ps = torch.ones(COUNT, dtype=torch.int32), torch.full((COUNT,), p)
    rows = logits.expand(COUNT, -1).contiguous()
    scratch = (None, 0) if function == "diopiTopKSampling" else (None, 0, None, 0)
    chosen = (torch.full((COUNT,), k, dtype=torch.int32), ps) if k else (ps,)
    state = (ends, finished, lengths, 1, COUNT, logits.numel())
    HOST.call(function, ids, rows, *scratch, 0, *state, *chosen, None, None, None, generators)
    assert ids[0].eq(-7).all() and lengths.eq(2).all() and torch.equal(finished, ids[1] == 0)
    assert all(generator.offset == 1 for generator in generators)
    return torch.bincount(ids[1], minlength=logits.numel()).to(torch.float64) / COUNT


def _check_shares(found, wanted):
    spread = 5 * (wanted * (1 - wanted) / COUNT).sqrt()
    assert ((found - wanted).abs() <= spread).all(), (found, wanted)


def test_top_k_draws_by_the_probabilities_of_the_largest():
    logits = torch.tensor([0.1, 2.0, -1.0, 1.5, 0.9, 1.0])
    wanted = torch.zeros(6, dtype=torch.float64)
    wanted[[1, 3, 5]] = torch.softmax(logits[[1, 3, 5]].double(), 0)
    _check_shares(_sample("diopiTopKSampling", logits, 3, 1.0), wanted)
    inside = torch.zeros(6, dtype=torch.float64)  # p cuts the last share off
    share = 0.7
    inside[1] = wanted[1] / share
    inside[3] = 1 - inside[1]
    assert wanted[1] + wanted[3] > share
    _check_shares(_sample("diopiTopKSampling", logits, 3, share), inside)


def test_top_p_draws_among_the_likeliest():
    logits = torch.log(torch.tensor([0.05, 0.4, 0.3, 0.15, 0.1]))
    wanted = torch.tensor([0.0, 0.4, 0.2, 0.0, 0.0], dtype=torch.float64) / 0.6
    _check_shares(_sample("diopiTopPSampling", logits, None, 0.6), wanted)
    only = torch.tensor([0.0, 1.0, 0.0, 0.0, 0.0], dtype=torch.float64)
    assert torch.equal(_sample("diopiTopPSampling", logits, None, 0.39), only)


def test_draws_from_a_large_vocabulary():
    logits = torch.linspace(-1, 1, 900)[torch.randperm(900, generator=torch.Generator().manual_seed(1))]
    logits[torch.arange(100, 300, 40)] = float("nan")
    whole = _sample("diopiTopKSampling", logits, 70, 1.0)
    largest = torch.where(logits.isnan(), -torch.inf, logits).topk(70)
    assert whole.count_nonzero() == whole[largest.indices].count_nonzero() > 60
    logits = logits.nan_to_num(-3)
    spread = _sample("diopiTopPSampling", logits, None, 1.0)  # walks far beyond the first ones
    order = logits.argsort(descending=True)
    share = torch.softmax(logits.double(), 0)[order].reshape(30, 30).sum(1)
    _check_shares(spread[order].reshape(30, 30).sum(1), share)
    equal = _sample("diopiTopKSampling", torch.zeros(300), 9, 1.0)  # the lower ids
    assert equal.count_nonzero() == 9 and (equal[:9] > 0.05).all()


def test_a_question_for_scratch_is_answered_and_nothing_is_done():
    x, weight = torch.ones(2, 3), torch.ones(3, 3)
    size = (ctypes.c_int64 * 1)(-1)
    HOST.call("diopiFusedSiluFfnInp", x, weight, weight, weight, None, size, 0)
    assert size[0] == 0 and torch.equal(x, torch.ones(2, 3))
    HOST.call("diopiFusedSiluFfnInp", x, weight, weight, weight, None, size, 0)
    assert not torch.equal(x, torch.ones(2, 3))


def test_a_product_over_several_processes_is_not_here(monkeypatch):
    a, b, out = torch.ones(2, 3), torch.ones(3, 4), torch.zeros(2, 4)
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert HOST.invoke("diopiMatmulAllReduce", out, a, b, None, "tp", "sum", 0, 0) == diopi.NO_IMPLEMENT
    assert out.eq(0).all()
    monkeypatch.setenv("WORLD_SIZE", "1")
    HOST.call("diopiMatmulAllReduce", out, a, b, None, "tp", "sum", 0, 0)
    assert out.eq(3).all()


def test_of_equal_places_the_last_stays():
    pool = torch.zeros(5, 2)
    HOST.call("diopiDestIndexCopyKV", pool, torch.tensor([[1.0, 1], [2, 2], [3, 3]]), torch.tensor([4, 1, 4]))
    assert pool[:, 0].tolist() == [0, 2, 0, 0, 3]


def test_other_memory_formats_are_not_here():
    assert HOST.invoke("diopiNativeMemoryFormatCast", diopi.Required(), torch.ones(2), 3) != diopi.SUCCESS
    assert "'format' is 3; this device has format 0 alone" in HOST.get_error()


def test_linear_algebra_without_a_library_gives_the_same(python):
    command = ["-m", "ditorch", "conform", "run", "--family", "linalg", "--function", "Cholesky*", "Triangular*"]
    command += ["LinalgQR", "--dtype", "float32", "complex128", "--layout", "contiguous", "--quiet"]
    answer = python(*command, DITORCH_HOST_BLAS="none", DITORCH_BACKEND="none")
    assert "fail" not in answer.stdout, answer.stdout
