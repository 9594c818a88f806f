"""Calls inside the backward pass: recomputation of checkpoints, custom backward functions, gradient hooks."""

import ditorch  # noqa: F401
import pytest
import torch
import torch.nn.functional as F
from test_engine_backward import Recorder, assert_same, leaf
from torch.utils.checkpoint import checkpoint, checkpoint_sequential


def block(x, w):
    return torch.tanh(F.linear(torch.exp(x), w))


def names(recorder, recompute):
    found = [
        c["name"].split(".")[-1] for c in recorder.calls.values() if c["recompute"] is recompute and not c["failed"]
    ]
    return [name for name in found if name in ("exp", "linear", "tanh", "sin", "mul", "sum")]


@pytest.fixture(params=["cpu", "cuda"])
def place(request):
    return request.param


@pytest.fixture(params=["tensor", "autograd"])
def start(request):
    """Both ways in: Tensor.backward, which the mode sees and is taken off for, and torch.autograd.backward."""
    return torch.Tensor.backward if request.param == "tensor" else torch.autograd.backward


def test_reentrant_recompute_is_seen_and_tagged(place, start):
    x, w = leaf(3, 4, place=place), leaf(4, 4, place=place)
    with Recorder() as recorder:
        y = checkpoint(block, x * 1, w, use_reentrant=True)
        start(y.sum())
    assert names(recorder, False) == ["mul", "exp", "linear", "tanh", "sum"]
    assert names(recorder, True) == ["exp", "linear", "tanh"]
    # Only the recomputed graph has nodes: its calls have the backward events, in a run inside the run.
    events = [(e["name"].split(".")[-1], e["recompute"], e["complete"]) for e in recorder.ends]
    assert events == [
        ("sum", False, True),
        ("tanh", True, True),
        ("linear", True, True),
        ("exp", True, True),
        ("mul", False, True),
    ]
    assert_same(recorder.one("linear")["grad_inputs"][1], w.grad)


@pytest.mark.parametrize("early_stop", [True, False])
def test_plain_recompute_is_seen_and_tagged(place, start, early_stop):
    from torch.utils.checkpoint import set_checkpoint_early_stop

    x, w = leaf(3, 4, place=place), leaf(4, 4, place=place)
    with Recorder() as recorder, set_checkpoint_early_stop(early_stop):
        y = checkpoint(block, x * 1, w, use_reentrant=False)
        start(y.sum())
        recorder.calls_left = recorder.kept()
    assert names(recorder, False) == ["mul", "exp", "linear", "tanh", "sum"]
    recomputed = names(recorder, True)
    assert recomputed[:2] == ["exp", "linear"]
    # The recomputed graph is never run: the events are those of the forward's calls.
    assert [(e["name"].split(".")[-1], e["recompute"]) for e in recorder.ends] == [
        ("sum", False),
        ("tanh", False),
        ("linear", False),
        ("exp", False),
        ("mul", False),
    ]
    assert all(e["complete"] and e["round"] == 0 for e in recorder.ends)
    assert_same(recorder.one("linear")["grad_inputs"][1], w.grad)


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpoint_changes_nothing_and_leaves_nothing(use_reentrant, place):
    def run(watch):
        torch.manual_seed(3)
        model = torch.nn.Sequential(
            *[torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5)) for _ in range(4)]
        )
        model = model.to(place)
        x = torch.randn(3, 4, device=place, requires_grad=True)
        if watch:
            with Recorder() as recorder:
                recorder.tell = lambda kind, event: None
                checkpoint_sequential(model, 2, x, use_reentrant=use_reentrant).sum().backward()
                assert recorder.kept() == 0
        else:
            checkpoint_sequential(model, 2, x, use_reentrant=use_reentrant).sum().backward()
        return [x.grad, *(p.grad for p in model.parameters())]

    for plain, watched in zip(run(False), run(True), strict=True):
        assert torch.equal(plain, watched)


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_nested_checkpoints(use_reentrant):
    x, w = leaf(3, 4), leaf(4, 4)

    def outer(x, w):
        return torch.sin(checkpoint(block, x, w, use_reentrant=use_reentrant))

    with Recorder() as recorder:
        checkpoint(outer, x * 1, w, use_reentrant=use_reentrant).sum().backward()
    assert names(recorder, True).count("exp") >= 2  # the outer recomputation, and the inner one inside it
    grads = [e for e in recorder.of("linear") if e["grad_inputs"][1] is not None]
    assert len(grads) == 1
    assert_same(grads[0]["grad_inputs"][1], w.grad)


def test_i7_custom_backward_is_seen_and_tagged(place, start):
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            ctx.save_for_backward(a)
            return torch.sin(a)

        @staticmethod
        def backward(ctx, g):
            (a,) = ctx.saved_tensors
            return torch.mul(g, torch.cos(a))

    x = leaf(3, place=place)
    with Recorder() as recorder:
        start(Scaled.apply(x * 1).sum())
    assert names(recorder, False) == ["mul", "sin", "sum"]
    assert [c["name"] for c in recorder.calls.values() if c["recompute"]] == ["torch.cos", "torch.mul"]
    assert_same(x.grad, torch.cos(x))


def test_second_order_calls_of_a_custom_backward():
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            ctx.save_for_backward(a)
            return a * a

        @staticmethod
        def backward(ctx, g):
            (a,) = ctx.saved_tensors
            return torch.mul(torch.mul(g, 2), a)

    x = leaf(3)
    with Recorder() as recorder:
        (g,) = torch.autograd.grad(Square.apply(x).sum(), x, create_graph=True)
        recorder.ends.clear()
        g.sum().backward()
    # A call made by the backward pass has a window of its own.
    tagged = [e for e in recorder.ends if e["recompute"]]
    assert len(tagged) >= 1 and all(e["name"] == "torch.mul" for e in tagged)
    assert_same(x.grad, torch.full_like(x, 2.0))


def test_autograd_grad_inside_a_forward():
    x = leaf(3)
    with Recorder() as recorder:
        y = torch.exp(x)
        (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        torch.mul(g, 2).sum().backward()
    assert not [c for c in recorder.calls.values() if c["recompute"]]
    assert len(recorder.of("exp")) == 2


def test_trap_recompute_runs_ops_twice_under_the_same_name():
    x, w = leaf(3, 4), leaf(4, 4)
    with Recorder() as recorder:
        checkpoint(block, x, w, use_reentrant=False).sum().backward()
    linear = [c for c in recorder.calls.values() if c["name"].endswith("linear")]
    assert [c["recompute"] for c in linear] == [False, True]
    assert linear[0]["id"] != linear[1]["id"]


def test_gradient_hooks_are_inside_the_backward():
    x = leaf(3)
    with Recorder() as recorder:
        y = x * 2
        y.register_hook(lambda g: torch.mul(g, 3))
        y.sum().backward()
    assert [c["name"] for c in recorder.calls.values() if c["recompute"]] == ["torch.mul"]
    assert x.grad.tolist() == [6.0] * 3


def test_error_inside_recompute_leaves_the_mode_right():
    x = leaf(3)
    flag = {"fail": False}

    def shaky(a):
        b = torch.exp(a)
        if flag["fail"]:
            raise KeyError("during recomputation")
        return torch.sin(b)

    with Recorder() as recorder:
        y = checkpoint(shaky, x * 1, use_reentrant=True).sum()
        flag["fail"] = True
        with pytest.raises(KeyError):
            y.backward()
        before = len(recorder.calls)
        torch.exp(x)
        assert len(recorder.calls) == before + 1  # seen once, not twice, not never
        assert not recorder.calls[max(recorder.calls)]["recompute"]
    before = len(recorder.calls)
    torch.exp(x)
    assert len(recorder.calls) == before


def test_tool_stopped_inside_the_backward():
    x = leaf(3)
    recorder = Recorder()
    recorder.__enter__()
    y = x * 2
    y.register_hook(lambda g: recorder.__exit__())
    z = torch.exp(y).sum()
    z.backward()
    assert len(recorder.ends) == 3  # windows outlive the tool
    before = len(recorder.calls)
    torch.exp(x).sum().backward()
    assert len(recorder.calls) == before


def test_tool_started_inside_the_backward():
    x = leaf(3)
    recorder = Recorder()
    y = x * 2
    y.register_hook(lambda g: recorder.__enter__() and None)
    torch.exp(y).sum().backward()
    try:
        before = len(recorder.calls)
        torch.exp(x)
        assert len(recorder.calls) == before + 1
    finally:
        recorder.__exit__()
    assert len(recorder.calls) == before + 1
    torch.exp(x)
    assert len(recorder.calls) == before + 1
