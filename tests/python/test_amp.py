"""Automatic mixed precision: autocast in fp16 and bf16, and the gradient scaler."""

import ditorch  # noqa: F401
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

LOW = [torch.float16, torch.bfloat16]


@pytest.mark.parametrize("dtype", LOW, ids=str)
def test_result_types(dtype):
    x, w = torch.randn(4, 4, device="cuda"), torch.randn(4, 4, device="cuda")
    image, kernel = torch.randn(1, 2, 5, 5, device="cuda"), torch.randn(3, 2, 3, 3, device="cuda")
    with torch.autocast("cuda", dtype=dtype):
        for result in (
            x @ w,
            F.linear(x, w),
            torch.addmm(x, x, w),
            torch.bmm(x[None], w[None]),
            F.conv2d(image, kernel),
            torch.einsum("ij,jk->ik", x, w),
            torch.matmul(x, w),
            torch.baddbmm(x[None], x[None], w[None]),
            F.scaled_dot_product_attention(x[None, None], w[None, None], w[None, None]),
        ):
            assert result.dtype is dtype and result.is_cuda
        low = x @ w
        for result in (
            low.softmax(-1),
            low.log_softmax(-1),
            low.exp(),
            low.pow(2),
            low.sum(),
            F.layer_norm(low, (4,)),
            F.cross_entropy(low, torch.arange(4, device="cuda")),
            F.mse_loss(low, low),
            low.norm(),
            low.cumsum(0),
            F.softplus(low),
            torch.cdist(low, low),
        ):
            assert result.dtype is torch.float32
        assert (low + x).dtype is torch.float32  # promotes to the widest
        assert torch.cat([low, x]).dtype is torch.float32
        assert torch.relu(low).dtype is dtype
        with torch.autocast("cuda", enabled=False):
            assert (x @ w).dtype is torch.float32
    assert (x @ w).dtype is torch.float32


def test_state_queries():
    assert not torch.is_autocast_enabled()
    assert not torch.is_autocast_enabled("cuda")
    with torch.autocast("cuda"):
        assert torch.is_autocast_enabled() and torch.is_autocast_enabled("cuda")
        assert torch.get_autocast_gpu_dtype() is torch.float16
        assert torch.get_autocast_dtype("cuda") is torch.float16
        assert not torch.is_autocast_enabled("cpu")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert torch.get_autocast_gpu_dtype() is torch.bfloat16
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not torch.is_autocast_enabled("cuda")
        assert (torch.ones(2, 2, device="cuda") @ torch.ones(2, 2, device="cuda")).dtype is torch.float32


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_the_older_spellings():
    x = torch.randn(3, 3, device="cuda")
    with torch.cuda.amp.autocast():
        assert (x @ x).dtype is torch.float16
    with torch.cuda.amp.autocast(dtype=torch.bfloat16):
        assert (x @ x).dtype is torch.bfloat16

    @torch.autocast("cuda")
    def decorated(y):
        return y @ y

    assert decorated(x).dtype is torch.float16
    with torch.amp.autocast(device_type="cuda"):
        assert (x @ x).dtype is torch.float16


def test_unsafe_loss_is_refused():
    with torch.autocast("cuda"), pytest.raises(RuntimeError, match="unsafe to autocast"):
        F.binary_cross_entropy(torch.full((3,), 0.5, device="cuda"), torch.ones(3, device="cuda"))


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_custom_forward_and_backward():
    class Multiply(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            assert not torch.is_autocast_enabled("cuda")
            return a @ b

        @staticmethod
        @torch.amp.custom_bwd(device_type="cuda")
        def backward(ctx, grad):
            a, b = ctx.saved_tensors
            return grad @ b.t(), a.t() @ grad

    a = torch.randn(3, 3, device="cuda", requires_grad=True)
    with torch.autocast("cuda"):
        y = Multiply.apply(a.half(), a)
    assert y.dtype is torch.float32
    y.sum().backward()
    assert a.grad.dtype is torch.float32


@pytest.mark.parametrize("dtype", LOW, ids=str)
def test_training_follows_fp32(dtype):
    losses = {}
    for amp in (False, True):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4))
        x, y = torch.randn(32, 16).cuda(), torch.randint(0, 4, (32,)).cuda()
        model.cuda()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        scaler = torch.amp.GradScaler("cuda", enabled=amp and dtype is torch.float16, init_scale=1024)
        losses[amp] = []
        for _ in range(8):
            with torch.autocast("cuda", dtype=dtype, enabled=amp):
                loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses[amp].append(loss.item())
        assert all(p.dtype is torch.float32 and p.grad.dtype is torch.float32 for p in model.parameters())
    assert losses[True][-1] < losses[True][0]
    assert losses[True] != losses[False]
    torch.testing.assert_close(torch.tensor(losses[True]), torch.tensor(losses[False]), rtol=2e-2, atol=2e-2)


def test_scaler_skips_overflow_and_recovers():
    weight = nn.Parameter(torch.ones(3, device="cuda"))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scaler = torch.amp.GradScaler("cuda", init_scale=8.0, growth_interval=2)
    scaler.scale((weight * float("inf")).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert weight.tolist() == [1, 1, 1] and scaler.get_scale() == 4.0
    for _ in range(2):
        optimizer.zero_grad()
        scaler.scale(weight.sum() * 0.25).backward()
        assert weight.grad.tolist() == [1, 1, 1]
        scaler.unscale_(optimizer)
        assert weight.grad.tolist() == [0.25] * 3
        scaler.step(optimizer)
        scaler.update()
    assert weight.tolist() == [0.5] * 3 and scaler.get_scale() == 8.0
    other = torch.amp.GradScaler("cuda")
    other.load_state_dict(scaler.state_dict())
    assert other.get_scale() == 8.0


def test_scaler_with_a_fused_optimizer():
    weight = nn.Parameter(torch.ones(3, device="cuda"))
    optimizer = torch.optim.AdamW([weight], lr=0.1, fused=True)
    scaler = torch.amp.GradScaler("cuda", init_scale=4.0)
    scaler.scale((weight * float("nan")).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert weight.tolist() == [1, 1, 1] and scaler.get_scale() == 2.0
    optimizer.zero_grad()
    scaler.scale(weight.sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    reference = nn.Parameter(torch.ones(3))
    reference.grad = torch.ones(3)
    torch.optim.AdamW([reference], lr=0.1).step()
    torch.testing.assert_close(weight.detach().cpu(), reference.detach())


def test_weight_cache_does_not_serve_old_values():
    layer = nn.Linear(4, 4, bias=False).cuda()
    x = torch.ones(1, 4, device="cuda")
    results = []
    for _ in range(2):
        with torch.autocast("cuda"):
            results.append(layer(x).float())
        with torch.no_grad():
            layer.weight.mul_(2)
    torch.testing.assert_close(results[1], results[0] * 2)
