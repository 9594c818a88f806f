"""Autograd on the device: gradients, hooks, checkpointing, torch.func, threads, errors."""

import copy
import threading

import ditorch  # noqa: F401
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint, checkpoint_sequential


def pair(*shape, dtype=torch.float32):
    cpu = torch.randn(*shape, dtype=dtype, requires_grad=True)
    return cpu, cpu.detach().cuda().requires_grad_()


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x * 2 + 1).relu(),
        lambda x: F.gelu(x),
        lambda x: x.softmax(-1) @ x.t(),
        lambda x: torch.cat([x, x * 2]).sum(0),
        lambda x: F.layer_norm(x, (4,)),
        lambda x: x.clone().mul_(3).add_(x),
        lambda x: x[:, 1:].t().contiguous().mean(0),
        lambda x: x / (1 + x.abs().sum(1, keepdim=True)),
    ],
    ids=["arithmetic", "gelu", "softmax-mm", "cat", "layer_norm", "in-place", "views", "broadcast"],
)
def test_gradcheck(function):
    x = torch.randn(3, 4, dtype=torch.float64, device="cuda", requires_grad=True)
    assert torch.autograd.gradcheck(function, (x,), fast_mode=True)
    assert torch.autograd.gradgradcheck(function, (x,), fast_mode=True)


def test_graph_features(close):
    cpu, mine = pair(4, 5)
    seen = []
    mine.register_hook(lambda grad: seen.append(grad.device) or grad * 2)
    loss_cpu, loss = (cpu**2).sum(), (mine**2).sum()
    loss_cpu.backward(retain_graph=True)
    loss.backward(retain_graph=True)
    close(mine.grad, cpu.grad * 2)
    loss.backward()
    close(mine.grad, cpu.grad * 4)
    assert [d.type for d in seen] == ["cuda", "cuda"]
    with torch.no_grad():
        assert not (mine * 2).requires_grad
    with torch.inference_mode():
        assert (mine * 2).is_inference()


def test_custom_function(close):
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad * 3 * x * x

    cpu, mine = pair(6)
    Cube.apply(cpu).sum().backward()
    Cube.apply(mine).sum().backward()
    close(mine.grad, cpu.grad)


def test_in_place_after_save_is_noticed():
    x = torch.ones(3, device="cuda", requires_grad=True)
    y = x.exp()
    z = y.sum()
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        (z + y.exp().sum()).backward()


def test_leaf_in_place_is_refused():
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        torch.ones(3, device="cuda", requires_grad=True).add_(1)


def test_gradients_cross_devices(close):
    cpu, _ = pair(3)
    (cpu.cuda() * torch.arange(3.0, device="cuda")).sum().backward()
    assert cpu.grad.device.type == "cpu"
    assert cpu.grad.tolist() == [0, 1, 2]


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint_with_dropout(reentrant):
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 1)).cuda()
    x = torch.randn(4, 8, device="cuda", requires_grad=True)
    gradients = []
    for wrap in (False, True):
        torch.manual_seed(5)
        model.zero_grad()
        y = checkpoint(model, x, use_reentrant=reentrant) if wrap else model(x)
        y.sum().backward()
        gradients.append(model[0].weight.grad.clone())
    assert gradients[0].abs().sum() > 0
    torch.testing.assert_close(gradients[0], gradients[1])


def test_checkpoint_sequential():
    model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(4)]).cuda()
    x = torch.randn(2, 4, device="cuda", requires_grad=True)
    wanted = model(x)
    torch.testing.assert_close(checkpoint_sequential(model, 2, x, use_reentrant=False), wanted)


def test_saved_tensors_on_cpu():
    x = torch.randn(5, device="cuda", requires_grad=True)
    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        y = (x * x).sum()
    y.backward()
    torch.testing.assert_close(x.grad, 2 * x.detach())


def test_anomaly_mode_names_the_place():
    x = torch.zeros(2, device="cuda", requires_grad=True)
    with torch.autograd.detect_anomaly(check_nan=True), pytest.raises(RuntimeError, match="returned nan values"):
        (x.sqrt() * 0).sum().backward()


def test_an_exception_in_backward_reaches_the_caller():
    x = torch.ones(2, device="cuda", requires_grad=True)
    y = x * 2

    def raise_error(grad):
        raise KeyError("from the hook")

    y.register_hook(raise_error)
    with pytest.raises(KeyError, match="from the hook"):
        y.sum().backward()


def test_threads_train_side_by_side():
    errors, results = [], {}

    def train(seed):
        try:
            generator = torch.Generator().manual_seed(seed)
            weight = torch.randn(6, 6, generator=generator).cuda().requires_grad_()
            x = torch.randn(6, 6, generator=generator).cuda()
            for _ in range(10):
                loss = (x @ weight).square().mean()
                loss.backward()
                with torch.no_grad():
                    weight -= 0.1 * weight.grad
                    weight.grad = None
            results.setdefault(seed, []).append(weight.detach().cpu())
        except Exception as error:
            errors.append(error)

    for _round in range(2):
        threads = [threading.Thread(target=train, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not errors
    for first, second in results.values():
        assert torch.equal(first, second)


def test_parallel_backward_into_one_leaf():
    weight = torch.ones(10, device="cuda", requires_grad=True)

    def run():
        (weight * 2).sum().backward()

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert weight.grad.tolist() == [16.0] * 10


@pytest.mark.parametrize(
    "make,shape",
    [
        (lambda: nn.LayerNorm(6), (4, 6)),
        (lambda: nn.LayerNorm([5, 6], elementwise_affine=False), (4, 5, 6)),
        (lambda: nn.RMSNorm(6), (4, 6)),
        (lambda: nn.GroupNorm(2, 6), (3, 6, 5)),
        (lambda: nn.BatchNorm1d(6), (4, 6)),
        (lambda: nn.BatchNorm2d(3), (2, 3, 4, 4)),
        (lambda: nn.InstanceNorm2d(3, affine=True), (2, 3, 4, 4)),
        (lambda: nn.LocalResponseNorm(2), (2, 4, 3, 3)),
    ],
    ids=["layer", "layer2d", "rms", "group", "batch1d", "batch2d", "instance", "local"],
)
def test_norm_layers(make, shape, close):
    cpu = make()
    mine = copy.deepcopy(cpu).cuda()
    x = torch.randn(shape, requires_grad=True)
    y = x.detach().cuda().requires_grad_()
    weight = torch.randn(shape)
    wanted, got = cpu(x), mine(y)
    close(got, wanted)
    wanted.backward(weight)
    got.backward(weight.cuda())
    close(y.grad, x.grad, rtol=1e-4, atol=1e-5)
    close([p.grad for p in mine.parameters()], [p.grad for p in cpu.parameters()], rtol=1e-4, atol=1e-5)


# torch.func


def test_func_transforms(close):
    weight, x = torch.randn(4, 3), torch.randn(5, 3)

    def loss(w, row):
        return torch.tanh(w @ row).square().sum()

    for transform in (
        lambda w, x: torch.func.grad(loss)(w, x[0]),
        lambda w, x: torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(w, x),
        lambda w, x: torch.func.jacrev(lambda r: torch.tanh(w @ r))(x[0]),
        lambda w, x: torch.func.jacfwd(lambda r: torch.tanh(w @ r))(x[0]),
        lambda w, x: torch.func.hessian(lambda r: loss(w, r))(x[0]),
        lambda w, x: torch.func.vjp(lambda r: w @ r, x[0])[1](torch.ones(4, device=w.device))[0],
        lambda w, x: torch.func.jvp(lambda r: (w @ r).sin(), (x[0],), (x[1],))[1],
        lambda w, x: torch.func.vmap(lambda r: r.softmax(0) + 1)(x),
    ):
        close(transform(weight.cuda(), x.cuda()), transform(weight, x))


def test_functional_call_and_vmap_over_models(close):
    models = [nn.Linear(3, 2) for _ in range(3)]
    x = torch.randn(4, 3)
    wanted = torch.stack([m(x) for m in models])
    parameters, buffers = torch.func.stack_module_state([m.cuda() for m in models])

    def call(p, b, data):
        return torch.func.functional_call(models[0], (p, b), (data,))

    close(torch.vmap(call, in_dims=(0, 0, None))(parameters, buffers, x.cuda()), wanted)


def test_vmap_randomness():
    torch.manual_seed(0)
    rows = torch.vmap(lambda x: x + torch.rand_like(x), randomness="different")(torch.zeros(3, 4, device="cuda"))
    assert not torch.equal(rows[0], rows[1])
    rows = torch.vmap(lambda x: x + torch.rand_like(x), randomness="same")(torch.zeros(3, 4, device="cuda"))
    assert torch.equal(rows[0], rows[1])


def test_jvp_forward_mode(close):
    import torch.autograd.forward_ad as forward_ad

    x, t = torch.randn(4), torch.randn(4)
    answers = []
    for device in ("cuda", "cpu"):
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x.to(device), t.to(device))
            answers.append(forward_ad.unpack_dual(dual.exp() * dual).tangent.clone())
    close(*answers)


HESSIANS = {
    "attention": lambda x: F.scaled_dot_product_attention(x, x.sin(), x.cos()),
    "convolution": lambda x: F.conv2d(x.square(), x.cos()[..., :2, :2], padding=1),
    "transposed": lambda x: F.conv_transpose2d(x, x.mT.transpose(0, 1)[..., :1, :1], output_padding=1, dilation=2),
    "norms": lambda x: F.layer_norm(F.group_norm(x, 1), x.shape[-2:]),
    "losses": lambda x: F.cross_entropy(x, x.detach().softmax(1), label_smoothing=0.1) + F.huber_loss(x, x.tanh()),
    "pools": lambda x: F.avg_pool2d(x.pow(3), 2, 1) + F.adaptive_avg_pool2d(x.exp(), (2, 2)),
    "resize": lambda x: F.interpolate(x.pow(3), scale_factor=2, mode="bilinear") + F.pixel_shuffle(x, 1).mean(),
    "folds": lambda x: x.logsumexp(1) * x.var(1) + x.prod(1) + x.cumsum(2).norm(dim=1),
    "places": lambda x: x.pow(3).roll(1, 2).flip(3)[..., [0, 2, 0]].select_scatter(x[..., 0], 3, 1),
    "choices": lambda x: torch.where(x > 0, x.pow(3), x.sigmoid()).clamp(-0.5, 2).masked_fill(x < -1, 0),
    "activations": lambda x: F.gelu(x) + F.silu(x) * F.mish(x) + F.softplus(x) + F.elu(x) + F.hardswish(x),
    "linear algebra": lambda x: torch.linalg.det(x) + torch.linalg.inv(x + 4).sum((2, 3)),
}


@pytest.mark.parametrize("name", HESSIANS)
def test_hessians(name, close):
    """Reverse and forward derivatives of each other, over a batch of directions."""
    x = torch.randn(1, 2, 3, 3, dtype=torch.float64)
    with sdpa_kernel(SDPBackend.MATH):  # the CPU's own kernel has no forward derivative
        wanted = torch.func.hessian(lambda y: HESSIANS[name](y).sin().sum())(x)
    mine = torch.func.hessian(lambda y: HESSIANS[name](y).sin().sum())(x.cuda())
    assert wanted.abs().max() > 0
    close(mine, wanted)
