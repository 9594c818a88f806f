"""The host library's optimizer steps, list operators and gradient scaling against torch.optim and torch itself."""

from __future__ import annotations

import ctypes
import math

import pytest

torch = pytest.importorskip("torch")

from ditorch import diopi  # noqa: E402

FLOATS = (torch.float32, torch.float64)
HALVES = (torch.float16, torch.bfloat16)
SEED = 20240611


@pytest.fixture(scope="module")
def host():
    library = diopi.Library("host")
    yield library
    library.close()


@pytest.fixture
def generator():
    print(f"seed {SEED}")
    return torch.Generator().manual_seed(SEED)


def make(shape, dtype, generator, strided=False):
    if strided:
        return torch.randn((*shape[:-1], shape[-1] * 2), generator=generator, dtype=torch.float64).to(dtype)[..., ::2]
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def narrow(value):
    """A number as a parameter of type float takes it."""
    return ctypes.c_float(value).value


def train(make_optimizer, param, grads):
    """What torch.optim makes of the parameter, and the optimizer's state, after each gradient."""
    param = torch.nn.Parameter(param.clone())
    optimizer = make_optimizer([param])
    for grad in grads:
        param.grad = grad.clone()
        optimizer.step()
        yield param.detach().clone(), dict(optimizer.state[param].items())


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(("momentum", "nesterov"), ((0.0, False), (0.9, False), (0.9, True)))
def test_sgd(host, generator, momentum, nesterov, dtype):
    param = make((7, 90), dtype, generator)
    grads = [make((7, 90), dtype, generator) for _ in range(3)]
    got, buf = param.clone(), torch.zeros_like(param)
    options = {"lr": 0.1, "momentum": momentum, "weight_decay": 0.01, "nesterov": nesterov}
    for grad, (want, state) in zip(grads, train(lambda p: torch.optim.SGD(p, **options), param, grads), strict=True):
        kept = grad.clone()
        host.call("diopiSgd", got, grad, buf if momentum else None, 0.1, momentum, 0.0, 0.01, nesterov)
        torch.testing.assert_close(got, want)
        assert torch.equal(grad, kept)
        if momentum:
            torch.testing.assert_close(buf, state["momentum_buffer"])


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("amsgrad", (False, True))
@pytest.mark.parametrize("name", ("Adam", "AdamW"))
def test_adam(host, generator, name, amsgrad, dtype):
    param = make((5, 70), dtype, generator, strided=True)
    grads = [make((5, 70), dtype, generator) for _ in range(3)]
    lr, beta1, beta2, eps, decay = map(narrow, (0.01, 0.9, 0.99, 1e-8, 0.1))
    options = {"lr": lr, "betas": (beta1, beta2), "eps": eps, "weight_decay": decay, "amsgrad": amsgrad}
    got, m, v, most = param.clone(), *(torch.zeros_like(param) for _ in range(3))
    kind = getattr(torch.optim, name)
    for step, (want, state) in enumerate(train(lambda p: kind(p, **options), param, grads), 1):
        numbers = (lr, beta1, beta2, eps, decay, step, amsgrad)
        host.call(f"diopi{name}", got, grads[step - 1], m, v, most if amsgrad else None, *numbers)
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(m, state["exp_avg"])
        torch.testing.assert_close(v, state["exp_avg_sq"])
        if amsgrad:
            torch.testing.assert_close(most, state["max_exp_avg_sq"])


@pytest.mark.parametrize("amsgrad", (False, True))
@pytest.mark.parametrize("maximize", (False, True))
def test_fused_adamw(host, generator, maximize, amsgrad):
    shapes = ((4, 33), (500,), (), (0, 3))
    params = [
        torch.nn.Parameter(make(shape, torch.float32, generator) if shape else torch.ones(())) for shape in shapes
    ]
    got = [param.detach().clone() for param in params]
    states = [[torch.zeros_like(param) for param in got] for _ in range(3)]
    options = {"lr": 0.01, "betas": (0.9, 0.999), "weight_decay": 0.1, "amsgrad": amsgrad, "maximize": maximize}
    optimizer = torch.optim.AdamW(params, **options)
    for step in range(1, 4):
        grads = [torch.randn(param.shape, generator=generator) for param in params]
        for param, grad in zip(params, grads, strict=True):
            param.grad = grad.clone()
        optimizer.step()
        steps = [torch.tensor(float(step)) for _ in params]
        lists = (got, grads, states[0], states[1], states[2] if amsgrad else None, steps, len(got))
        host.call("diopiFusedAdamW", *lists, 0.01, 0.9, 0.999, 1e-8, 0.1, amsgrad, maximize)
        for param, value in zip(params, got, strict=True):
            torch.testing.assert_close(value, param.detach())
    before = [value.clone() for value in got]
    wrong = [*grads[:-1], torch.zeros(5)]
    lists = (got, wrong, states[0], states[1], states[2] if amsgrad else None, steps, len(got))
    assert host.invoke("diopiFusedAdamW", *lists, 0.01, 0.9, 0.999, 1e-8, 0.1, amsgrad, maximize) == 1
    assert all(torch.equal(a, b) for a, b in zip(before, got, strict=True)), "a refused call wrote"


def test_adadelta(host, generator):
    param = make((300,), torch.float64, generator)
    grads = [make((300,), torch.float64, generator) for _ in range(3)]
    lr, rho, eps, decay = map(narrow, (0.5, 0.9, 1e-6, 0.1))
    got, square, delta = param.clone(), torch.zeros_like(param), torch.zeros_like(param)
    options = {"lr": lr, "rho": rho, "eps": eps, "weight_decay": decay}
    for grad, (want, state) in zip(
        grads, train(lambda p: torch.optim.Adadelta(p, **options), param, grads), strict=True
    ):
        host.call("diopiAdadelta", got, grad, square, delta, lr, rho, eps, decay)
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(delta, state["acc_delta"])


@pytest.mark.parametrize("centered", (False, True))
@pytest.mark.parametrize("momentum", (0.0, 0.5))
def test_rmsprop(host, generator, momentum, centered):
    param = make((300,), torch.float64, generator)
    grads = [make((300,), torch.float64, generator) for _ in range(3)]
    lr, alpha, eps, decay = map(narrow, (0.1, 0.9, 1e-6, 0.1))
    got, square, average, buf = param.clone(), *(torch.zeros_like(param) for _ in range(3))
    options = {"lr": lr, "alpha": alpha, "eps": eps, "weight_decay": decay, "momentum": momentum, "centered": centered}
    for grad, (want, _) in zip(grads, train(lambda p: torch.optim.RMSprop(p, **options), param, grads), strict=True):
        states = (square, average if centered else None, buf if momentum else None)
        host.call("diopiRmsprop", got, grad, *states, lr, alpha, eps, decay, momentum, centered)
        torch.testing.assert_close(got, want)


def test_half_state(host, generator):
    """Half parameters with float state: computed in float, rounded once."""
    for dtype in HALVES:
        param, grad = make((100,), dtype, generator), make((100,), dtype, generator)
        got, buf = param.clone(), torch.zeros(100)
        host.call("diopiSgd", got, grad, buf, 0.1, 0.9, 0.0, 0.0, False)
        torch.testing.assert_close(got, (param.float() - 0.1 * grad.float()).to(dtype))
        torch.testing.assert_close(buf, grad.float())
    assert host.invoke("diopiSgd", torch.ones(3, dtype=torch.int32), got, None, 0.1, 0.0, 0.0, 0.0, False) != 0


def test_foreach(host, generator):
    for dtype in (*FLOATS, *HALVES, torch.int32, torch.complex64):
        inputs = [make(shape, torch.float64, generator).mul(5).to(dtype) for shape in ((3, 40), (7,), (0, 2))]
        for name, reference in (("add", torch._foreach_add), ("mul", torch._foreach_mul)):
            for number in (3, 2) if dtype is torch.int32 else (0.3, 2):
                outs = [torch.zeros_like(item) for item in inputs]
                host.call(f"diopiForeach{name}Scalar", outs, inputs, len(inputs), number)
                kept = [item.clone() for item in inputs]
                host.call(f"diopiForeach{name}InpScalar", kept, len(kept), number)
                for want, out, in_place in zip(reference(inputs, number), outs, kept, strict=True):
                    torch.testing.assert_close(out, want)
                    torch.testing.assert_close(in_place, want)
        outs, other = [torch.zeros_like(item) for item in inputs], torch.tensor(3, dtype=dtype)
        host.call("diopiForeachmulTensor", outs, inputs, len(inputs), other)
        host.call("diopiForeachmulInpTensor", inputs, len(inputs), other)
        for out, in_place in zip(outs, inputs, strict=True):
            torch.testing.assert_close(out, in_place)
    bad = [torch.ones(3), torch.ones(4, dtype=torch.int32)]
    assert host.invoke("diopiForeachmulInpScalar", bad, 2, 0.5) == diopi.DTYPE_NOT_SUPPORTED
    assert bad[0].tolist() == [1, 1, 1], "a refused call wrote"


def test_foreach_norm(host, generator):
    for dtype in (*FLOATS, *HALVES):
        inputs = [make((5, 700), dtype, generator, strided=True), make((9,), dtype, generator)]
        for order in (1, 2, 3.5, math.inf):
            outs = [torch.zeros((), dtype=dtype) for _ in inputs]
            host.call("diopiForeachnormScalar", outs, inputs, 2, order)
            for item, out in zip(inputs, outs, strict=True):
                torch.testing.assert_close(out, torch.linalg.vector_norm(item.double(), order).to(dtype))


@pytest.mark.parametrize("order", (2.0, 1.0, math.inf))
def test_clip_grad_norm(host, generator, order):
    for limit in (0.5, 1e6):
        params = [torch.nn.Parameter(torch.zeros(shape)) for shape in ((30, 4), (200,))]
        for param in params:
            param.grad = torch.randn(param.shape, generator=generator)
        grads = [param.grad.clone() for param in params]
        want = torch.nn.utils.clip_grad_norm_(params, limit, order)
        norm = (ctypes.c_double * 1)()
        host.call("diopiClipGradNorm", norm, grads, 2, limit, order, False)
        assert norm[0] == pytest.approx(float(want), rel=1e-5)
        for param, grad in zip(params, grads, strict=True):
            torch.testing.assert_close(grad, param.grad)
    grads[0][0, 0] = math.nan
    before = grads[1].clone()
    assert host.invoke("diopiClipGradNorm", norm, grads, 2, 0.1, order, True) == 1
    assert "error_if_nonfinite" in host.get_error() and torch.equal(before, grads[1])


def test_unscale(host, generator):
    for dtype in (*FLOATS, *HALVES):
        for poison in (None, math.inf, math.nan):
            grads = [make((40, 7), dtype, generator), make((9,), dtype, generator, strided=True)]
            if poison is not None:
                grads[1][3] = poison
            want = [grad.clone() for grad in grads]
            found, inverse = torch.zeros(1), torch.tensor([0.25])
            wanted = torch.zeros(1)
            torch._amp_foreach_non_finite_check_and_unscale_(want, wanted, inverse)
            host.call("diopiAmpForeachNonFiniteCheckAndUnscaleInp", grads, 2, found, inverse)
            assert torch.equal(found, wanted) and found.item() == (poison is not None)
            for a, b in zip(grads, want, strict=True):
                torch.testing.assert_close(a, b, equal_nan=True)
    assert host.invoke("diopiAmpForeachNonFiniteCheckAndUnscaleInp", grads, 2, torch.zeros(2), inverse) == 1


def test_update_scale(host):
    for flag in (0.0, 1.0):
        scale, tracker = torch.tensor([1024.0]), torch.zeros(1, dtype=torch.int32)
        want_scale, want_tracker = scale.clone(), tracker.clone()
        for _ in range(5):
            found = torch.tensor([flag])
            host.call("diopiAmpUpdateScaleInp", scale, tracker, found, 2.0, 0.5, 3)
            torch._amp_update_scale_(want_scale, want_tracker, found, 2.0, 0.5, 3)
            assert torch.equal(scale, want_scale) and torch.equal(tracker, want_tracker)
    huge = torch.tensor([3e38])
    host.call("diopiAmpUpdateScaleInp", huge, tracker, torch.zeros(1), 2.0, 0.5, 1)
    assert huge.item() == pytest.approx(3e38)
