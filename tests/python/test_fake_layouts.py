"""Tracing sees the strides that the device's operators really give: convolution, its gradients, attention."""

import ditorch  # noqa: F401
import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()


def assert_told(function, *args):
    """Strides, sizes and dtypes of the real call and of the traced one."""

    def describe(result):
        leaves = result if isinstance(result, (tuple, list)) else [result]
        return [(t.shape, t.stride(), t.dtype) if isinstance(t, torch.Tensor) else None for t in leaves]

    real = describe(function(*args))
    mode = FakeTensorMode()
    traced = [mode.from_tensor(a) for a in args]
    with mode:
        assert describe(function(*traced)) == real


@pytest.mark.parametrize("last", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_convolution(spatial, last):
    shapes = [(2, 3, *[6] * spatial), (4, 3, *[3] * spatial)]
    tensors = [torch.randn(shape, device="cuda") for shape in shapes]
    formats = {2: torch.channels_last, 3: torch.channels_last_3d}
    if spatial in formats:
        tensors = [t.to(memory_format=formats[spatial]) if on else t for t, on in zip(tensors, last, strict=True)]
    convolve = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[spatial]
    assert_told(lambda x, w: convolve(x, w, padding=1), *tensors)
    ones = [1] * spatial

    def backward(g, x, w):
        back = torch.ops.aten.convolution_backward
        return back(g, x, w, [4], ones, ones, ones, False, [0] * spatial, 1, [True] * 3)

    grad = torch.ones(2, 4, *[6] * spatial, device="cuda")
    assert_told(backward, grad, *tensors)
    if spatial == 2:
        grad = grad.to(memory_format=torch.channels_last)
        assert_told(backward, grad, *tensors)
        known = backward(grad.cpu(), *[t.cpu() for t in tensors])
        assert [t.stride() for t in backward(grad, *tensors)] == [t.stride() for t in known]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("order", ["heads first", "heads second"])
def test_attention(order, causal, dtype):
    make = [torch.randn(2, 8, 4, 16, device="cuda", dtype=dtype) for _ in range(3)]
    q, k, v = make if order == "heads first" else [t.transpose(1, 2) for t in make]
    forward = torch.ops.aten._scaled_dot_product_fused_attention_overrideable
    assert_told(lambda *a: F.scaled_dot_product_attention(*a, is_causal=causal), q, k, v)
    assert_told(lambda *a: forward(*a, None, 0.0, causal)[:2], q, k, v)
    out, sums = forward(q, k, v, None, 0.0, causal)[:2]

    def backward(g, q, k, v, out, sums):
        back = torch.ops.aten._scaled_dot_product_fused_attention_overrideable_backward
        wanted = [True, True, True, False]
        return back(g, q, k, v, None, wanted, out, sums, None, None, q.shape[2], k.shape[2], 0.0, causal, None, None)

    assert_told(backward, torch.ones_like(out), q, k, v, out, sums)


def test_masked_attention():
    q = torch.randn(2, 4, 8, 16, device="cuda")
    assert_told(lambda q, m: F.scaled_dot_product_attention(q, q, q, m), q, torch.randn(8, 8, device="cuda"))


@pytest.mark.parametrize("dynamic", [False, True])
def test_attention_stays_one_operator(dynamic):
    graphs = []

    def keep(graph_module, inputs):
        graphs.append(graph_module)
        return graph_module.forward

    from torch._dynamo.backends.common import aot_autograd

    x = torch.randn(2, 4, 8, 16, device="cuda", requires_grad=True)
    backend = aot_autograd(fw_compiler=keep)
    compiled = torch.compile(lambda a: F.scaled_dot_product_attention(a, a, a), backend=backend, dynamic=dynamic)
    compiled(x).sum().backward()
    gradient, x.grad = x.grad, None
    F.scaled_dot_product_attention(x, x, x).sum().backward()
    torch.testing.assert_close(gradient, x.grad)
    names = [str(node.target) for graph in graphs for node in graph.graph.nodes]
    assert any("_fused_attention_overrideable.default" in name for name in names)
    assert any("_fused_attention_overrideable_backward" in name for name in names)
    assert not any("bmm" in name or "softmax" in name for name in names)


def test_compiled_channels_last_convolution_is_flattened():
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.Flatten())
    model = model.cuda().to(memory_format=torch.channels_last)
    x = torch.randn(2, 3, 8, 8, device="cuda").to(memory_format=torch.channels_last)
    compiled = torch.compile(model)(x)
    torch.testing.assert_close(compiled, model(x))
    compiled.sum().backward()


def test_the_cpu_keeps_its_rules():
    x = torch.randn(2, 3, 6, 6).to(memory_format=torch.channels_last)
    assert_told(lambda x, w: F.conv2d(x, w), x, torch.randn(4, 3, 3, 3))


@pytest.mark.parametrize("norm", [F.layer_norm, F.rms_norm])
def test_norms_of_transposed_inputs_are_row_major(norm):
    x = torch.randn(5, 2).t()
    assert_told(lambda a: norm(a, (5,)), x.cuda())
    assert norm(x.cuda(), (5,)).stride() == norm(x, (5,)).stride() == (5, 1)
