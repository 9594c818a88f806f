"""What CUDA has and the CPU's kernels refuse: LU without pivoting, fused Adam with states of another dtype, out= of
float16 FFTs; and faults of copies, which a fallback to the CPU must cure."""

import ditorch
import pytest
import torch
from op_tools import OpFallback

DTYPES = (torch.float32, torch.float64, torch.complex64, torch.complex128)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(5, 5), (2, 3, 70, 130), (130, 70), (0, 3), (3, 0, 4), (0, 4, 4)])
def test_lu_without_pivoting(dtype, shape):
    torch.manual_seed(0)
    a = torch.randn(shape, dtype=dtype) + 20 * torch.eye(*shape[-2:], dtype=dtype)
    x = a.cuda()
    lu, pivots, info = torch.linalg.lu_factor_ex(x, pivot=False)
    p, lower, upper = torch.linalg.lu(x, pivot=False)
    steps = min(shape[-2:])
    assert p.shape == (0,) and lower.shape == (*shape[:-1], steps) and upper.shape == (*shape[:-2], steps, shape[-1])
    expected = torch.arange(1, steps + 1, dtype=torch.int32).expand(*shape[:-2], steps)
    assert torch.equal(pivots.cpu(), expected) and not info.cpu().any()
    assert lu.mT.is_contiguous()
    torch.testing.assert_close((lower @ upper).cpu(), a, rtol=1e-5, atol=1e-4)
    assert torch.equal(lower.cpu().diagonal(dim1=-2, dim2=-1), torch.ones(*shape[:-2], steps, dtype=dtype))


def test_lu_without_pivoting_of_a_view_with_out_and_gradient():
    torch.manual_seed(0)
    base = torch.randn(6, 6, dtype=torch.complex64) + 9 * torch.eye(6)
    view = base.cuda().t()[1:5, 1:5].conj()
    out = torch.empty(0, dtype=torch.complex64, device="cuda"), torch.empty(0, dtype=torch.int32, device="cuda")
    lu, pivots = torch.linalg.lu_factor(view, pivot=False, out=out)
    assert lu is out[0] and pivots.shape == (4,)
    lower = lu.cpu().tril(-1) + torch.eye(4)
    torch.testing.assert_close(lower @ lu.cpu().triu(), view.cpu(), rtol=1e-4, atol=1e-4)
    x = (torch.randn(4, 4, dtype=torch.float64) + 5 * torch.eye(4)).cuda().requires_grad_()
    assert torch.autograd.gradcheck(lambda a: torch.linalg.lu(a, pivot=False)[1:], x)


def test_lu_without_pivoting_tells_a_zero_pivot():
    x = torch.tensor([[0.0, 1.0], [1.0, 0.0]], device="cuda")
    assert torch.linalg.lu_factor_ex(x, pivot=False)[2].item() == 1
    with pytest.raises(RuntimeError, match="U\\[1,1\\] is zero"):
        torch.linalg.lu_factor_ex(x, pivot=False, check_errors=True)
    with pytest.raises(RuntimeError):  # as the CPU: not of integers
        torch.linalg.lu_factor(torch.ones(2, 2, dtype=torch.int64, device="cuda"), pivot=False)


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "ihfft", "irfft", "hfft", "fft2", "rfft2", "irfftn", "hfft2"])
def test_fft_of_float16_with_out(name):
    torch.manual_seed(0)
    x = torch.randn(8, 8).half()
    expected = getattr(torch.fft, name)(x.float())
    dtype = torch.complex32 if expected.is_complex() else torch.float16
    for size in (0, *([] if expected.dim() != 2 else [expected.shape])):
        out = torch.empty(size, dtype=dtype, device="cuda")
        assert getattr(torch.fft, name)(x.cuda(), out=out) is out
        torch.testing.assert_close(out.cpu().to(expected.dtype), expected, rtol=2e-3, atol=2e-2)


def test_fft_of_float16_with_a_wrong_out():
    with pytest.raises(RuntimeError, match="expects a complex output tensor"):
        torch.fft.fft(torch.ones(4, device="cuda").half(), out=torch.empty(4, device="cuda").half())


@pytest.mark.parametrize("amsgrad", [False, True])
def test_fused_adam_with_bfloat16_states(amsgrad):
    def run(device, state_dtype):
        torch.manual_seed(0)
        params = [torch.randn(n).to(device) for n in (7, 300)]
        grads = [torch.full_like(p, 0.25) for p in params]
        states = [[torch.zeros_like(p, dtype=state_dtype) for p in params] for _ in range(3)]
        steps = [torch.tensor(1.0, device=device) for _ in params]
        torch._fused_adamw_(
            params, grads, states[0], states[1], states[2] if amsgrad else [], steps, lr=1e-2, beta1=0.9, beta2=0.99,
            weight_decay=0.1, eps=1e-8, amsgrad=amsgrad, maximize=False, grad_scale=None, found_inf=None,
        )  # fmt: skip
        return [t.cpu() for t in params], [t.cpu() for t in states[0] + states[1]]

    (mine, my_states), (theirs, their_states) = run("cuda", torch.bfloat16), run("cpu", torch.float32)
    assert all(state.dtype is torch.bfloat16 for state in my_states)
    for a, b in zip(my_states, their_states, strict=True):
        torch.testing.assert_close(a.float(), b, rtol=1e-2, atol=1e-6)
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rule", ["value:_to_copy", "value:copy_", "value:to", "value:torch.Tensor.float"])
def test_a_wrong_cast_is_cured_by_the_fallback(rule):
    x, y = torch.ones(8, dtype=torch.bfloat16, device="cuda"), torch.zeros(8, device="cuda")
    casts = {
        "float": lambda: x.float(), "to": lambda: x.to(torch.float64), "type": lambda: x.type(torch.float16),
        "copy_": lambda: y.copy_(x),
    }  # fmt: skip
    with ditorch.fault(rule) as fault:
        for name, cast in casts.items():
            assert not cast().eq(1).all(), name
        assert str(len(casts)) in repr(fault)
        with OpFallback(console="off", log=0):
            for name, cast in casts.items():
                assert cast().eq(1).all(), name
    assert x.float().eq(1).all()


def test_a_fault_of_copies_counts_once_and_leaves_others_alone():
    x, y = torch.ones(4, device="cuda"), torch.zeros(4, device="cuda")
    with ditorch.fault("value:_to_copy"):
        assert y.copy_(x).eq(1).all(), "nothing is converted"
        assert (x + 1).eq(2).all() and x.cpu().eq(1).all()
    with ditorch.fault("value:to,call=2"):  # both names of a converting copy are one call
        assert x.double().eq(1).all() and not x.double().eq(1).all() and x.double().eq(1).all()
    with ditorch.fault("error:copy_"), pytest.raises(RuntimeError, match="injected fault: aten::copy_ failed"):
        y.copy_(x)
