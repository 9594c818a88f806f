"""Pooling with depth, CTC, and the loops that take half types and composed operators in one pass, against the CPU."""

import itertools

import ditorch
import pytest
import torch
import torch.nn.functional as F
from twice import draw

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)

# Pooling with depth, CTC


def _volumes(dtype):
    x = draw((2, 3, 6, 7, 8), dtype)
    yield x
    yield x[0]
    yield x.contiguous(memory_format=torch.channels_last_3d)
    yield x.transpose(2, 4)
    yield x[..., ::2]


def _compare_pool(function, x):
    """Results, indices and the gradient: values, shapes and strides as the CPU's, all of it in C."""
    answers = []
    for device in ("cpu", "cuda"):
        ditorch.reset_counters()
        own = x.to(device).requires_grad_()
        out = function(own)
        parts = list(out) if isinstance(out, tuple) else [out]
        (grad,) = torch.autograd.grad(parts[0], own, torch.ones_like(parts[0]))
        answers.append([part.detach() for part in parts] + [grad])
    assert not ditorch.fallbacks()
    for want, got in zip(*answers, strict=True):
        assert got.stride() == want.stride()
        torch.testing.assert_close(got.cpu(), want)


POOLS_3D = {
    "max": lambda x: F.max_pool3d(x, 2, return_indices=True),
    "max lists": lambda x: F.max_pool3d(x, (2, 3, 2), (1, 2, 2), (1, 1, 0), ceil_mode=True, return_indices=True),
    "max dilated": lambda x: F.max_pool3d(x, 2, dilation=(1, 2, 2)),
    "avg": lambda x: F.avg_pool3d(x, 3, 2, 1, ceil_mode=True),
    "avg exclusive": lambda x: F.avg_pool3d(x, (2, 3, 2), 2, 1, count_include_pad=False),
    "avg divisor": lambda x: F.avg_pool3d(x, 2, divisor_override=3),
    "adaptive avg": lambda x: F.adaptive_avg_pool3d(x, (2, 3, 3)),
    "adaptive max": lambda x: F.adaptive_max_pool3d(x, (2, None, 3), return_indices=True),
}


@pytest.mark.parametrize("name", POOLS_3D)
@pytest.mark.parametrize("dtype", (torch.float32, torch.float64, torch.bfloat16))
def test_pool3d(name, dtype):
    for x in _volumes(dtype):
        if "avg" in name and dtype == torch.bfloat16:  # the CPU has no such kernel, or adds in bfloat16
            got = POOLS_3D[name](x.cuda())
            torch.testing.assert_close(got.cpu(), POOLS_3D[name](x.float()).to(dtype))
            continue
        _compare_pool(POOLS_3D[name], x)


def test_pool3d_errors_and_empty():
    x = torch.randn(2, 3, 4, 4, 4)
    for function in (
        lambda x: F.max_pool3d(x, 2, padding=2),
        lambda x: F.avg_pool3d(x, 9),
        lambda x: F.avg_pool3d(x, 7, 1, 3),
    ):
        with pytest.raises(RuntimeError) as want:
            function(x)
        with pytest.raises(RuntimeError) as got:
            function(x.cuda())
        assert str(got.value) == str(want.value)
    assert F.avg_pool3d(x[:0].cuda(), 2).shape == (0, 3, 2, 2, 2)


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64))
@pytest.mark.parametrize("zero_infinity", (False, True))
@pytest.mark.parametrize("reduction", ("none", "mean", "sum"))
def test_ctc_loss(dtype, zero_infinity, reduction):
    generator = torch.Generator().manual_seed(3)
    steps, batch, classes, longest = 20, 4, 6, 5
    probs = torch.randn(steps, batch, classes, generator=generator).to(dtype).log_softmax(2)
    targets = torch.randint(1, classes, (batch, longest), generator=generator)
    labels = torch.tensor([5, 0, 3, 4])
    flat = torch.cat([targets[i, :n] for i, n in enumerate(labels.tolist())])
    short = torch.tensor([20, 12, 1, 15])  # the third has no path: an infinite loss
    for target, lengths in itertools.product((targets, flat), (torch.full((batch,), steps), short)):
        answers = []
        for device in ("cpu", "cuda"):
            ditorch.reset_counters()
            own = probs.to(device).requires_grad_()
            loss = F.ctc_loss(own, target.to(device), lengths, labels, reduction=reduction, zero_infinity=zero_infinity)
            answers.append((loss.detach(), torch.autograd.grad(loss, own, torch.ones_like(loss))[0]))
        fallen = {row["operator"] for row in ditorch.fallbacks()}
        assert not fallen & {"aten::_ctc_loss", "aten::_ctc_loss_backward"}
        for want, got in zip(*answers, strict=True):
            torch.testing.assert_close(got.cpu(), want, equal_nan=True, rtol=1e-4, atol=1e-5)


def test_ctc_loss_single_and_wrong():
    probs = torch.randn(9, 4).log_softmax(1)
    target = torch.tensor([1, 2, 2])
    want = F.ctc_loss(probs, target, torch.tensor(9), torch.tensor(3), reduction="none")
    got = F.ctc_loss(probs.cuda(), target.cuda(), torch.tensor(9), torch.tensor(3), reduction="none")
    assert got.shape == want.shape
    torch.testing.assert_close(got.cpu(), want)
    for arguments in (((12,), (3,), 0), ((9,), (3,), 7)):
        with pytest.raises(RuntimeError) as want:
            F.ctc_loss(probs[:, None], target[None], *arguments)
        with pytest.raises(RuntimeError) as got:
            F.ctc_loss(probs[:, None].cuda(), target[None].cuda(), *arguments)
        assert str(got.value) == str(want.value)


# In one piece by the device's kernels


@pytest.mark.parametrize("dtype", FLOATS)
def test_nansum_and_amin_in_one_piece(dtype):
    x = draw((3, 5, 2, 70, 3), dtype)
    x[0, 1] = float("nan")
    for own in (x, x.transpose(1, 3), x[..., ::2], x[:, :1].expand(3, 5, 2, 70, 3)):
        for dim, keep in itertools.product(((0,), (4,), (1, 3), (0, 1, 2, 3, 4)), (False, True)):
            ditorch.reset_counters()
            got = [own.cuda().nansum(dim, keep), own.cuda().amin(dim, keep)]
            assert not ditorch.fallbacks()
            total = own.double().nansum(dim, keep).to(dtype)  # the CPU rounds half types on the way
            for mine, want in zip(got, (total, own.amin(dim, keep)), strict=True):
                assert mine.shape == want.shape
                torch.testing.assert_close(mine.cpu(), want, equal_nan=True)


@pytest.mark.parametrize("dtype", (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool))
def test_bitwise_xor_in_one_piece(dtype):
    a = torch.randint(-120, 120, (65, 1100)).to(dtype)
    b = torch.randint(-120, 120, (65, 1100)).to(dtype)
    for x, y in ((a, b), (a.t(), b.t()), (a[:, ::2], b[:, 1::2]), (a, b[:1]), (a[0, 0], b), (a[:0], b[:0])):
        assert torch.equal((x.cuda() ^ y.cuda()).cpu(), x ^ y)
    mine = a.cuda()
    mine ^= b.cuda()
    assert torch.equal(mine.cpu(), a ^ b)


# bfloat16 and float16 without a detour


@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float16))
def test_signs_of_every_half_number(dtype):
    bits = torch.arange(-32768, 32768, dtype=torch.int32).to(torch.int16)
    x = bits.view(dtype)
    for function in (torch.neg, torch.abs):
        for own in (x, x.view(256, 256).t(), x[::3]):
            want, got = function(own), function(own.cuda()).cpu()
            number = ~own.isnan()
            assert torch.equal(got[number].view(torch.int16), want[number].view(torch.int16))
            assert got[~number].isnan().all()


@pytest.mark.parametrize("name", ("add", "sub", "mul", "div", "maximum", "minimum"))
def test_bfloat16_in_one_pass(name):
    """The same bits as the CPU's, which rounds once; mixed dtypes and numbers take the other way."""
    function = getattr(torch, name)
    special = torch.tensor([0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1e-40, -1e-40, 3.38e38])
    x = torch.cat([special.repeat_interleave(8), torch.randn(70000)]).to(torch.bfloat16)
    y = torch.cat([special.repeat(8), torch.randn(70000)]).to(torch.bfloat16)
    pairs = [(x, y), (x[::2], y[::2]), (x[:4096].view(64, 64).t(), y[:4096].view(64, 64)), (x[:99], y[7])]
    for a, b in [*pairs, (x, y.float()), (x.float(), y), (x, y[9].float())]:
        want, got = function(a, b), function(a.cuda(), b.cuda()).cpu()
        assert got.dtype == want.dtype
        assert torch.equal(got.nan_to_num(7), want.nan_to_num(7)) and torch.equal(got.isnan(), want.isnan())


@pytest.mark.parametrize("dtype", (torch.uint8, torch.bfloat16, torch.float32, torch.float64, torch.complex128))
@pytest.mark.parametrize("count", (1, 2, 3, 17))
def test_join_of_single_elements(dtype, count):
    parts = [torch.randn(9, 13).to(dtype) for _ in range(count)]
    for dim in (0, 1, 2):
        assert torch.equal(torch.stack([part.cuda() for part in parts], dim).cpu(), torch.stack(parts, dim))
    columns = [part[:, :1].contiguous() for part in parts]
    whole = torch.cat([part.cuda() for part in columns], 1)
    assert torch.equal(whole.cpu(), torch.cat(columns, 1))
    for got, want in zip(torch.unsafe_split(whole, 1, 1), columns, strict=True):
        assert torch.equal(got.cpu(), want)


@pytest.mark.parametrize("length", (7, 512, 4096, 4097, 9000))
def test_softmax_of_short_and_long_lines(length):
    for dtype, log in itertools.product(FLOATS, (False, True)):
        function = torch.log_softmax if log else torch.softmax
        x = draw((3, length), dtype)
        for own, dim in ((x, 1), (x.t(), 0), (x.t().contiguous(), 0), (x[:, ::2], 1)):
            torch.testing.assert_close(function(own.cuda(), dim).cpu(), function(own, dim))


@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float16))
def test_norms_of_half_types_by_rows(dtype):
    """Against float32 arithmetic on the same numbers, rounded once."""
    x = draw((3, 8, 57, 41), dtype)
    weight, bias = torch.rand(8) + 0.5, torch.randn(8)
    for own in (x, x.contiguous(memory_format=torch.channels_last), x.transpose(0, 1).contiguous().transpose(0, 1)):
        half = [weight.to(dtype), bias.to(dtype)]
        for function in (
            lambda x, w, b: F.batch_norm(x, None, None, w, b, True),
            lambda x, w, b: F.group_norm(x, 2, w, b),
            lambda x, w, b: F.instance_norm(x, None, None, w, b),
            lambda x, w, b: F.layer_norm(x, x.shape[1:], None, None),
        ):
            want = function(own.float(), *[part.float() for part in half]).to(dtype)
            got = function(own.cuda(), *[part.cuda() for part in half])
            torch.testing.assert_close(got.cpu(), want, rtol=1.6e-2 if dtype == torch.bfloat16 else 2e-3, atol=1e-3)
