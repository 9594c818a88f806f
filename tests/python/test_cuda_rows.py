"""Sizes that the conformance suite does not have: sums in many parts, rows of a language model, images by channels.

The kernels of vectors run over the emulated driver, in a process of their own; the emulated device reads the memory of
CPU tensors, so that the library's own calls are enough.
"""

import os

import pytest
from conftest import run_python
from cuda_emulator import EMULATOR, needs_emulator

START = """
import ctypes, torch
from ditorch import diopi
error = diopi._Error()
assert diopi._core.dit_runtime_init(b"cuda", ctypes.byref(error)) == 0, error.message
library, driver, context = diopi.Library("cuda"), ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0 and driver.cuCtxSetCurrent(context) == 0
def call(*arguments):
    library.call(*arguments)
    assert driver.cuCtxSynchronize() == 0
def check(name, got, want, digits=1.0):
    got, want = got.double(), want.detach().double()
    limit = digits * {torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 4e-3}[dtype]
    away = ((got - want).abs() / (want.abs() + want.abs().mean())).max().item()
    assert away < limit, (name, dtype, tuple(got.shape), away)
torch.manual_seed(0)
for dtype in (torch.float32, torch.bfloat16, torch.float16):
"""

REDUCTIONS = """
    for shape, dims in (((300001,), [0]), ((3, 40000), [1]), ((40, 1024), [1]), ((900, 384), [0]), ((2000, 8), [0]),
                        ((3, 200, 64), [1]), ((5, 7, 12, 12), [0, 2, 3]), ((9, 33), [1])):
        x, kept = torch.randn(shape).to(dtype), [size for dim, size in enumerate(shape) if dim not in dims]
        out = torch.empty(kept, dtype=dtype)
        for name, want in (("Sum", x.double().sum(dims)), ("Mean", x.double().mean(dims))):
            call("diopi" + name, out, x, dims)
            check(name, out, want, 4)
        call("diopiNorm", out, x, 2.0, dims)
        check("norm", out, torch.linalg.vector_norm(x.double(), 2, dims))
"""

ROWS = """
    for rows, length in ((3, 4096), (9, 768), (30, 64), (1, 5120), (1, 40000)):
        x, grad = (torch.randn(rows, length).to(dtype) for _ in range(2))
        weight, bias = (torch.randn(length).to(dtype) for _ in range(2))
        mean, scale, out = torch.empty(rows, 1), torch.empty(rows, 1), torch.empty_like(x)
        call("diopiLayerNorm", out, mean, scale, x, weight, bias, [length], 1e-5)
        exact = [tensor.double().requires_grad_() for tensor in (x, weight, bias)]
        want = torch.nn.functional.layer_norm(exact[0], (length,), *exact[1:], 1e-5)
        check("layer norm", out, want)
        want.backward(grad.double())
        grads = [torch.empty_like(tensor) for tensor in (x, weight, bias)]
        call("diopiLayerNormBackward", *grads, grad, x, weight, bias, mean, scale, [length])
        for got, tensor in zip(grads, exact):
            check("gradient of layer norm", got, tensor.grad, 4)
    for rows, length in ((3, 4096), (9, 768), (30, 64), (1, 32000), (1, 50257), (1, 70000)):
        x, grad = (torch.randn(rows, length) * 2).to(dtype), torch.randn(rows, length).to(dtype)
        out, slope = torch.empty_like(x), torch.empty_like(x)
        x[0, ::2] = -60000
        for name, function in (("Softmax", torch.softmax), ("LogSoftmax", torch.log_softmax)):
            call("diopi" + name, out, x, -1)
            check(name, out, function(x.double(), -1), 2)
            call("diopi" + name + "Backward", slope, grad, out, -1)
            y, g = out.double(), grad.double()
            want = (g - (g * y).sum(-1, True)) * y if name == "Softmax" else g - y.exp() * g.sum(-1, True)
            check("gradient of " + name, slope, want, 10)
"""

CHANNELS = """
    for shape in ((2, 64, 14, 14), (3, 5, 7, 7), (2, 256, 4, 4), (2, 8, 20, 20)):
        for layout in (torch.contiguous_format, torch.channels_last):
            x, grad = ((torch.randn(shape) + 2).to(dtype).to(memory_format=layout) for _ in range(2))
            weight, bias, mean, scale = (torch.randn(shape[1]) for _ in range(4))
            running = torch.zeros(shape[1]), torch.ones(shape[1])
            out, exact = torch.empty_like(x), [tensor.double().requires_grad_() for tensor in (x, weight, bias)]
            call("diopiBatchNorm", out, mean, scale, x, weight, bias, *running, True, 0.1, 1e-5)
            want = torch.nn.functional.batch_norm(exact[0], None, None, *exact[1:], True, 0.1, 1e-5)
            check("batch norm", out, want)
            want.backward(grad.double())
            grads = torch.empty_like(x), torch.empty(shape[1]), torch.empty(shape[1])
            call("diopiBatchNormBackward", *grads, grad, x, weight, *running, mean, scale, True, 1e-5)
            for got, tensor in zip(grads, exact):
                check("gradient of batch norm", got, tensor.grad, 4)
"""


@needs_emulator
@pytest.mark.parametrize("work", [REDUCTIONS, ROWS, CHANNELS], ids=["reductions", "rows", "channels"])
def test_large_sizes(work):
    path = os.pathsep.join(filter(None, [str(EMULATOR[-1].parent), os.environ.get("LD_LIBRARY_PATH", "")]))
    run_python(START + work, LD_LIBRARY_PATH=path, DITORCH_BACKEND="none")
