"""Attention kernels that programs name: flash, efficient and cuDNN's, by sdpa_kernel and by their operators."""

import ditorch  # noqa: F401
import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

aten = torch.ops.aten
KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION]
HALF = (torch.float16, torch.bfloat16)
DTYPES = [torch.float32, torch.float64, *HALF]


def tensors(*shapes, dtype=torch.float32, seed=3):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in shapes]


def loose(dtype):
    return {"rtol": 3e-2, "atol": 3e-2} if dtype in HALF else {}


def reference(q, k, v, mask=None, is_causal=False, scale=None, gqa=False):
    """PyTorch's composition on the CPU in float64, rounded to the dtype at the end."""
    with sdpa_kernel(SDPBackend.MATH):
        wide = [t.double() for t in (q, k, v)]
        mask = mask.double() if mask is not None and mask.is_floating_point() else mask
        result = F.scaled_dot_product_attention(*wide, mask, is_causal=is_causal, scale=scale, enable_gqa=gqa)
    return result.to(q.dtype)


CASES = {
    "plain": {},
    "causal": {"is_causal": True},
    "boolean mask": {"attn_mask": torch.arange(30).view(5, 6) % 3 > 0},
    "float mask": {"attn_mask": tensors((2, 1, 5, 6), seed=9)[0]},
    "scale": {"scale": 0.3},
    "groups": {"enable_gqa": True},
}


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_every_kernel_answers(kernel, dtype, name, close):
    options = dict(CASES[name])
    heads = 4 if name == "groups" else 2
    cpu = [t.requires_grad_() for t in tensors((2, heads, 5, 8), (2, 2, 6, 8), (2, 2, 6, 8), dtype=dtype)]
    mine = [t.detach().cuda().requires_grad_() for t in cpu]
    mask = options.pop("attn_mask", None)
    mask = mask.to(dtype) if mask is not None and mask.is_floating_point() else mask
    scale, causal, gqa = options.get("scale"), options.get("is_causal", False), options.get("enable_gqa", False)
    wanted = reference(*cpu, mask, causal, scale, gqa)
    with sdpa_kernel(kernel):
        got = F.scaled_dot_product_attention(*mine, None if mask is None else mask.cuda(), **options)
    close(got, wanted, **loose(dtype))
    weight = tensors(wanted.shape, dtype=dtype, seed=4)[0]
    wanted.backward(weight)
    got.backward(weight.cuda())
    close([t.grad for t in mine], [t.grad for t in cpu], **loose(dtype))


@pytest.mark.parametrize("kernel", KERNELS[:2], ids=lambda kernel: kernel.name)
def test_the_mask_gets_its_gradient(kernel, close):
    q, k, v, mask = tensors((2, 2, 5, 8), (2, 2, 6, 8), (2, 2, 6, 8), (1, 2, 5, 6))
    cpu, mine = mask.clone().requires_grad_(), mask.cuda().requires_grad_()
    reference(q, k, v, cpu).square().sum().backward()
    with sdpa_kernel(kernel):
        F.scaled_dot_product_attention(q.cuda(), k.cuda(), v.cuda(), mine).square().sum().backward()
    close(mine.grad, cpu.grad)
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION), pytest.raises(RuntimeError, match="No available kernel"):
        F.scaled_dot_product_attention(q.cuda(), k.cuda(), v.cuda(), mine)


def test_a_mask_without_gradient_beside_inputs_with_one():
    q, k, v, mask = (t.cuda() for t in tensors((2, 2, 5, 8), (2, 2, 6, 8), (2, 2, 6, 8), (5, 6)))
    mask.requires_grad_()
    for wanted in ([True, False, False], [False, True, False], [False, False, True], [False] * 3):
        inputs = [t.detach().requires_grad_(w) for t, w in zip((q, k, v), wanted, strict=True)]
        mask.grad = None
        with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
            F.scaled_dot_product_attention(*inputs, mask).sum().backward()
        assert [t.grad is not None for t in inputs] == wanted and mask.grad is not None


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_dropout_follows_the_seed(kernel):
    q, k, v = (t.cuda() for t in tensors((1, 2, 40, 8), (1, 2, 50, 8), (1, 2, 50, 8)))

    def run(seed):
        torch.manual_seed(seed)
        inputs = [t.clone().requires_grad_() for t in (q, k, v)]
        with sdpa_kernel(kernel):
            first = F.scaled_dot_product_attention(*inputs, dropout_p=0.4)
            second = F.scaled_dot_product_attention(*inputs, dropout_p=0.4)
        first.sum().backward()
        return first, second, *[t.grad for t in inputs]

    a, b, c = run(5), run(5), run(6)
    assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))
    assert not torch.equal(a[0], c[0]) and not torch.equal(a[0], a[1])
    mean = torch.stack([run(seed)[0] for seed in range(60)]).mean(0)
    torch.testing.assert_close(mean, F.scaled_dot_product_attention(q, k, v), rtol=0, atol=0.35)


def test_efficient_dropout_mask_is_the_one_that_is_told(close):
    """Forward and backward with dropout against the composition with the mask of _fill_mem_eff_dropout_mask_."""
    p, (q, k, v, weight) = 0.3, tensors((2, 2, 7, 8), (2, 2, 9, 8), (2, 2, 9, 8), (2, 2, 7, 8))
    mine = [t.cuda().requires_grad_() for t in (q, k, v)]
    torch.manual_seed(11)
    torch.rand(5, device="cuda")
    out, _, seed, offset = aten._scaled_dot_product_efficient_attention(*mine, None, True, p, False)
    assert seed.item() == 11 and seed.device.type == "cpu"
    numbers = aten._fill_mem_eff_dropout_mask_(torch.empty(2, 2, 7, 9, device="cuda"), p, seed.item(), offset.item())
    keep = (numbers > p).double().cpu() / (1 - p)
    cpu = [t.double().requires_grad_() for t in (q, k, v)]
    scores = torch.softmax(cpu[0] @ cpu[1].transpose(-2, -1) * 8**-0.5, -1) * keep
    wanted = scores @ cpu[2]
    close(out, wanted.float())
    out.backward(weight.cuda())
    wanted.backward(weight.double())
    close([t.grad for t in mine], [t.grad.float() for t in cpu])


def test_flash_dropout_is_in_the_debug_mask(close):
    q, k, v = (t.cuda() for t in tensors((1, 2, 7, 8), (1, 2, 9, 8), (1, 2, 9, 8)))
    out, *_, weights = aten._scaled_dot_product_flash_attention(q, k, v, 0.5, False, True)
    kept = weights.clamp_min(0) * 2
    close(out, (kept.cpu() @ v.cpu()))
    assert 0.2 < (weights < 0).float().mean().item() < 0.8


def test_nothing_left_to_choose():
    q = torch.ones(1, 1, 2, 8, device="cuda")
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION), pytest.raises(RuntimeError, match="No available kernel"):
        F.scaled_dot_product_attention(q[0], q[0], q[0])
    with sdpa_kernel([]), pytest.raises(RuntimeError, match="No viable backend"):
        F.scaled_dot_product_attention(q, q, q)
    with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):
        assert F.scaled_dot_product_attention(q[0], q[0], q[0]).shape == (1, 2, 8)


def test_empty_lengths():
    q, k = torch.ones(1, 2, 3, 8, device="cuda"), torch.ones(1, 2, 0, 8, device="cuda")
    with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
        assert F.scaled_dot_product_attention(q, k, k).tolist() == torch.zeros(1, 2, 3, 8).tolist()
        assert F.scaled_dot_product_attention(k, q, q).shape == (1, 2, 0, 8)


# Packed sequences

LENGTHS = [(3, 5), (1, 1), (4, 4), (0, 2), (6, 3)]


def packed(dtype=torch.float32, kv_heads=2):
    q_lengths, k_lengths = zip(*LENGTHS, strict=True)
    q, k, v = tensors((sum(q_lengths), 4, 8), (sum(k_lengths), kv_heads, 8), (sum(k_lengths), kv_heads, 8), dtype=dtype)
    cum = [torch.tensor([0, *torch.tensor(n).cumsum(0).tolist()], dtype=torch.int32) for n in (q_lengths, k_lengths)]
    return q, k, v, *cum, max(q_lengths), max(k_lengths)


def by_sequence(q, k, v, cum_q, cum_k, window=(-1, -1), scale=None):
    """One sequence at a time in float64; the band's corner is that of the last query and key."""
    parts = []
    for i in range(len(cum_q) - 1):
        a, b = q[cum_q[i] : cum_q[i + 1]].double(), k[cum_k[i] : cum_k[i + 1]].double()
        c = v[cum_k[i] : cum_k[i + 1]].double()
        b, c = (t.repeat_interleave(q.shape[1] // k.shape[1], 1) for t in (b, c))
        scores = torch.einsum("shd,thd->hst", a, b) * (scale or a.shape[-1] ** -0.5)
        distance = torch.arange(b.shape[0]) - torch.arange(a.shape[0])[:, None] - (b.shape[0] - a.shape[0])
        hidden = torch.zeros_like(distance, dtype=torch.bool)
        if window[0] >= 0:
            hidden |= distance < -window[0]
        if window[1] >= 0:
            hidden |= distance > window[1]
        weights = torch.softmax(scores.masked_fill(hidden, float("-inf")), -1).nan_to_num(0)
        parts.append(torch.einsum("hst,thd->shd", weights, c))
    return torch.cat(parts).to(q.dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("window", [(-1, -1), (-1, 0), (2, 1), (1, 0)], ids=str)
def test_varlen(dtype, window, close):
    from torch.nn.attention.varlen import varlen_attn

    q, k, v, cum_q, cum_k, max_q, max_k = packed(dtype)
    cpu = [t.requires_grad_() for t in (q, k, v)]
    mine = [t.detach().cuda().requires_grad_() for t in cpu]
    wanted = by_sequence(*cpu, cum_q, cum_k, window)
    got = varlen_attn(*mine, cum_q.cuda(), cum_k.cuda(), max_q, max_k, window_size=window, enable_gqa=True)
    close(got, wanted, **loose(dtype))
    weight = tensors(wanted.shape, dtype=dtype, seed=8)[0]
    wanted.backward(weight)
    got.backward(weight.cuda())
    close([t.grad for t in mine], [t.grad for t in cpu], **loose(dtype))


def test_varlen_pages(close):
    from torch.nn.attention.varlen import varlen_attn

    q, k, v, cum_q, cum_k, max_q, max_k = packed(kv_heads=4)
    used = cum_k.diff()
    table, pages = torch.zeros(len(used), 3, dtype=torch.int32), []
    for i, length in enumerate(used.tolist()):
        for page in range((length + 1) // 2):
            table[i, page] = len(pages)
            first, end = int(cum_k[i]) + 2 * page, int(cum_k[i + 1])
            missing = max(0, first + 2 - end)
            pages.append([F.pad(t[first : min(first + 2, end)], (0, 0, 0, 0, 0, missing)) for t in (k, v)])
    order = torch.randperm(len(pages))
    keys, values = (torch.stack([pages[i][n] for i in order]) for n in (0, 1))
    table = torch.argsort(order).to(torch.int32)[table.long()]
    got = varlen_attn(
        q.cuda(),
        keys.cuda(),
        values.cuda(),
        cum_q.cuda(),
        None,
        max_q,
        max_k,
        window_size=(-1, 0),
        seqused_k=used.cuda(),
        block_table=table.cuda(),
    )
    close(got, by_sequence(q, k, v, cum_q, cum_k, (-1, 0)))


def test_flash_forward_dense(close):
    q, k, v = tensors((2, 5, 4, 8), (2, 7, 4, 8), (2, 7, 4, 8))
    out, sums, *_ = aten._flash_attention_forward(q.cuda(), k.cuda(), v.cuda(), None, None, 5, 7, 0.0, True, False)
    for i in range(2):
        whole = torch.tensor([0, 5]), torch.tensor([0, 7])
        close(out[i], by_sequence(q[i], k[i], v[i], *whole, (-1, 0)))
    assert sums.shape == (2, 4, 5)


@pytest.mark.parametrize("kind", [0, 1, 2])
def test_efficient_forward(kind, close):
    q, k, v, bias, weight = tensors((2, 5, 4, 8), (2, 7, 4, 8), (2, 7, 4, 6), (2, 4, 5, 7), (2, 5, 4, 6))
    cpu = [t.double().requires_grad_() for t in (q, k, v, bias)]
    mine = [t.cuda().requires_grad_() for t in (q, k, v, bias)]
    out, *_ = aten._efficient_attention_forward(*mine, None, None, 5, 7, 0.0, kind, True)
    shown = torch.ones(5, 7, dtype=torch.bool).tril({0: 9, 1: 0, 2: 2}[kind])
    scores = torch.einsum("bshd,bthd->bhst", cpu[0], cpu[1]) * 8**-0.5 + cpu[3]
    weights = torch.softmax(scores.masked_fill(~shown, float("-inf")), -1)
    wanted = torch.einsum("bhst,bthd->bshd", weights, cpu[2])
    close(out, wanted.float())
    out.backward(weight.cuda())
    wanted.backward(weight.double())
    close([t.grad for t in mine], [t.grad.float() for t in cpu])


def test_efficient_forward_packed(close):
    q, k, v, cum_q, cum_k, max_q, max_k = packed(kv_heads=4)
    cpu = [t.requires_grad_() for t in (q, k, v)]
    mine = [t.detach().cuda()[None].requires_grad_() for t in cpu]
    out, sums, *_ = aten._efficient_attention_forward(
        *mine, None, cum_q.cuda(), cum_k.cuda(), max_q, max_k, 0.0, 0, True
    )
    wanted = by_sequence(*cpu, cum_q, cum_k)
    close(out[0], wanted)
    assert sums.shape == (len(LENGTHS), 4, max_q)
    wanted.square().sum().backward()
    out.square().sum().backward()
    close([t.grad[0] for t in mine], [t.grad for t in cpu])


def test_jagged_attention(close):
    parts = [tensors((n, 16), seed=n)[0] for n in (3, 5, 2)]

    def run(device):
        nested = torch.nested.nested_tensor([p.to(device) for p in parts], layout=torch.jagged, requires_grad=True)
        x = nested.unflatten(-1, [2, 8]).transpose(1, 2)
        y = F.scaled_dot_product_attention(x, x, x).transpose(1, 2).flatten(-2)
        y.values().square().sum().backward()
        return y.values(), nested.grad.values()

    close(run("cuda"), run("cpu"))
