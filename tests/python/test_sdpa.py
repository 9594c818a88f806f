"""Scaled dot product attention and multi-head attention: values, gradients, masks, groups, kernels by name, dropout."""

import copy

import ditorch  # noqa: F401
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

MASK = torch.tensor([[True, False, True, True, False]]).expand(4, 5).clone()
CASES = {
    "plain": {},
    "causal": {"is_causal": True},
    "boolean mask": {"attn_mask": MASK},
    "float mask": {"attn_mask": torch.randn(4, 5, generator=torch.Generator().manual_seed(0))},
    "batched mask": {"attn_mask": torch.randn(2, 1, 4, 5, generator=torch.Generator().manual_seed(0))},
    "scale": {"scale": 0.3},
}


def qkv(dtype=torch.float32, heads=3, kv_heads=3):
    generator = torch.Generator().manual_seed(3)
    shapes = (2, heads, 4, 8), (2, kv_heads, 5, 8), (2, kv_heads, 5, 8)
    return [torch.randn(s, generator=generator).to(dtype) for s in shapes]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name, dtype, close):
    options = {
        k: v.to(dtype) if isinstance(v, torch.Tensor) and v.is_floating_point() else v for k, v in CASES[name].items()
    }
    on_device = {k: v.cuda() if isinstance(v, torch.Tensor) else v for k, v in options.items()}
    cpu = [t.requires_grad_() for t in qkv(dtype)]
    mine = [t.detach().cuda().requires_grad_() for t in cpu]
    tolerance = {"rtol": 3e-2, "atol": 3e-2} if dtype in (torch.bfloat16, torch.float16) else {}
    wanted, got = F.scaled_dot_product_attention(*cpu, **options), F.scaled_dot_product_attention(*mine, **on_device)
    close(got, wanted, **tolerance)
    weight = torch.randn(wanted.shape).to(dtype)
    wanted.backward(weight)
    got.backward(weight.cuda())
    close([t.grad for t in mine], [t.grad for t in cpu], **tolerance)


def test_grouped_queries(close):
    q, k, v = qkv(heads=6, kv_heads=3)
    wanted = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    close(F.scaled_dot_product_attention(q.cuda(), k.cuda(), v.cuda(), enable_gqa=True), wanted)


def test_transposed_views(close):
    x = torch.randn(2, 6, 3, 8)
    y = x.transpose(1, 2)
    close(
        F.scaled_dot_product_attention(*[x.cuda().transpose(1, 2)] * 3, is_causal=True),
        F.scaled_dot_product_attention(y, y, y, is_causal=True),
    )


def test_choice_of_kernels(close):
    q, k, v = qkv()
    wanted = F.scaled_dot_product_attention(q, k, v)
    with sdpa_kernel(SDPBackend.MATH):
        close(F.scaled_dot_product_attention(q.cuda(), k.cuda(), v.cuda()), wanted)
    with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):
        close(F.scaled_dot_product_attention(q.cuda(), k.cuda(), v.cuda()), wanted)
    with torch.backends.cuda.sdp_kernel(enable_flash=False, enable_math=True, enable_mem_efficient=False):
        close(F.scaled_dot_product_attention(q.cuda(), k.cuda(), v.cuda()), wanted)


def test_dropout_obeys_the_seed():
    q, k, v = (t.cuda() for t in qkv())
    torch.manual_seed(1)
    first = F.scaled_dot_product_attention(q, k, v, dropout_p=0.5)
    torch.manual_seed(1)
    assert torch.equal(F.scaled_dot_product_attention(q, k, v, dropout_p=0.5), first)
    assert not torch.equal(F.scaled_dot_product_attention(q, k, v, dropout_p=0.5), first)


@pytest.mark.parametrize("backends", [[SDPBackend.MATH], [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION]], ids=str)
def test_derivatives_of_float64(backends):
    """CUDA has no fused kernel of float64: there the composed form runs, which can be differentiated again."""
    q, k, v = (t.double().cuda().requires_grad_() for t in qkv())
    with sdpa_kernel(backends):
        assert torch.autograd.gradgradcheck(F.scaled_dot_product_attention, (q, k, v), fast_mode=True)
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(q.detach(), torch.ones_like(q))
            made = F.scaled_dot_product_attention(dual, k.detach(), v.detach())
            assert torch.autograd.forward_ad.unpack_dual(made).tangent is not None


def test_second_derivative_of_a_fused_kernel_is_refused_by_name():
    q, k, v = (t.cuda().requires_grad_() for t in qkv())
    (first,) = torch.autograd.grad(F.scaled_dot_product_attention(q, k, v).sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match=r"derivative for aten::_scaled_dot_product_.*_backward is not implemented"):
        torch.autograd.grad(first.pow(2).sum(), q)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    "options", [{}, {"batch_first": True}, {"kdim": 6, "vdim": 7}, {"add_bias_kv": True, "bias": False}], ids=str
)
def test_multihead_attention(options, training, close):
    cpu = nn.MultiheadAttention(8, 2, **options).train(training)
    mine = copy.deepcopy(cpu).cuda()
    x = torch.randn(3, 3, 8)
    k, v = torch.randn(3, 3, options.get("kdim", 8)), torch.randn(3, 3, options.get("vdim", 8))
    padding = torch.tensor([[False, False, True]] * 3)
    for weights in (True, False):
        with torch.no_grad():
            wanted = cpu(x, k, v, key_padding_mask=padding, need_weights=weights)
            got = mine(x.cuda(), k.cuda(), v.cuda(), key_padding_mask=padding.cuda(), need_weights=weights)
        close(got[0], wanted[0])
        if weights:
            close(got[1], wanted[1])


@pytest.mark.parametrize("padded", [False, True])
def test_transformer_encoder_in_evaluation(padded, close):
    """The inference fast path, with and without a padding mask (which turns on nested tensors where they exist)."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    cpu = nn.TransformerEncoder(layer, 2).eval()
    mine = copy.deepcopy(cpu).cuda()
    x = torch.randn(2, 4, 8)
    mask = torch.tensor([[False] * 4, [False, False, False, True]]) if padded else None
    with torch.no_grad():
        wanted = cpu(x, src_key_padding_mask=mask)
        got = mine(x.cuda(), src_key_padding_mask=mask.cuda() if padded else None)
    if padded:  # padded places hold anything
        wanted, got = wanted[:, :3], got[:, :3]
    close(got, wanted, rtol=1e-4, atol=1e-5)
