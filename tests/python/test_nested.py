"""Nested tensors: strided ones run PyTorch's own composition, jagged ones are Python; both as on the CPU."""

import ditorch  # noqa: F401
import pytest
import torch
import torch.nn.functional as F


def parts(*lengths, width=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(n, width, generator=generator) for n in lengths]


def build(device, *lengths, layout=torch.strided, requires_grad=True, **options):
    return torch.nested.nested_tensor(
        [p.to(device) for p in parts(*lengths, **options)], layout=layout, requires_grad=requires_grad
    )


def flat(value):
    return [t.detach() for t in value.unbind()] if value.is_nested else [value.detach()]


def test_as_nested_tensor_with_a_gradient():
    """Ended the process."""
    a = torch.ones(2, 3, device="cuda", requires_grad=True)
    nested = torch.nested.as_nested_tensor([a, a * 2])
    assert nested.is_nested and nested.is_cuda and nested.layout is torch.strided
    nested.to_padded_tensor(0).square().sum().backward()
    assert a.grad.is_cuda and torch.equal(a.grad.cpu(), torch.full((2, 3), 10.0))


WEIGHT = torch.randn(5, 4, generator=torch.Generator().manual_seed(1))
UNARY = {
    "relu": F.relu,
    "gelu": F.gelu,
    "silu": F.silu,
    "neg": torch.neg,
    "sin": torch.sin,
    "clone": torch.clone,
    "times a number": lambda x: x * 3,
    "plus itself": lambda x: x + x,
    "times itself": lambda x: x * x,
    "softmax": lambda x: F.softmax(x, -1),
    "layer norm": lambda x: F.layer_norm(x, (4,), WEIGHT[0].to(x.device), WEIGHT[1].to(x.device)),
    "linear": lambda x: F.linear(x, WEIGHT.to(x.device)),
    "matmul": lambda x: x.matmul(x.transpose(1, 2)),
    "transpose": lambda x: x.transpose(1, 2).contiguous(),
    "padded": lambda x: x.to_padded_tensor(0.5),
    "select": lambda x: x[1],
    "chunk": lambda x: x.chunk(2, -1)[0].contiguous(),
    "reshape": lambda x: x.reshape(3, -1, 2, 2).transpose(1, 2).contiguous(),
    "dropout": lambda x: F.dropout(x, 0.0),
    "sum": lambda x: x.sum(-1, keepdim=True),
    "half": lambda x: x.half().float(),
}


@pytest.mark.parametrize("name", UNARY)
def test_strided(name):
    results = []
    for device in ("cpu", "cuda"):
        x = build(device, 2, 3, 5)
        y = UNARY[name](x)
        padded = y.to_padded_tensor(0) if y.is_nested else y
        if name != "chunk":  # the CPU has no gradient for it
            padded.square().sum().backward()
        results.append((y, x.grad if name != "chunk" else y))
    for mine, wanted in zip(results[1], results[0], strict=True):
        for a, b in zip(flat(mine), flat(wanted), strict=True):
            assert a.is_cuda
            torch.testing.assert_close(a.cpu(), b)


def test_moving():
    x = build("cpu", 2, 3, requires_grad=False)
    y = x.cuda()
    assert y.is_nested and y.is_cuda and y.cpu().is_nested
    for a, b, c in zip(y.unbind(), x.unbind(), y.cpu().unbind(), strict=True):
        assert a.is_cuda and torch.equal(a.cpu(), b) and torch.equal(c, b)
    z = torch.nested.nested_tensor([p.cuda() for p in parts(2, 3)])
    z.copy_(y * 2)
    assert torch.equal(z.unbind()[1].cpu(), x.unbind()[1] * 2)


def test_what_is_missing_is_refused():
    with pytest.raises((NotImplementedError, RuntimeError)):
        torch.linalg.svd(build("cuda", 2, 3))
    with pytest.raises((NotImplementedError, RuntimeError)):
        torch.cumsum(build("cuda", 2, 3), 1)


@pytest.mark.parametrize("name", ["relu", "times a number", "plus itself", "linear", "layer norm", "softmax", "padded"])
def test_jagged(name):
    results = []
    for device in ("cpu", "cuda"):
        x = build(device, 2, 3, 5, layout=torch.jagged)
        y = UNARY[name](x)
        (y.values() if y.is_nested else y).square().sum().backward()
        results.append((y, x.grad))
    for mine, wanted in zip(results[1], results[0], strict=True):
        for a, b in zip(flat(mine), flat(wanted), strict=True):
            assert a.is_cuda
            torch.testing.assert_close(a.cpu(), b)


def test_encoder_with_padding():
    """The fast path packs a padded batch into a nested tensor."""
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    encoder = torch.nn.TransformerEncoder(layer, 2)
    x, mask = torch.randn(3, 5, 16), torch.arange(5) >= torch.tensor([5, 3, 2])[:, None]
    with torch.no_grad():
        wanted = encoder(x, src_key_padding_mask=mask)
        got = encoder.cuda()(x.cuda(), src_key_padding_mask=mask.cuda())
    torch.testing.assert_close(got.cpu()[~mask], wanted[~mask], rtol=1e-4, atol=1e-4)
