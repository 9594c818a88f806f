"""What the forward has saved is given back while the backward runs: memory at its peak, beside a run that keeps it."""

import ditorch  # noqa: F401
import torch
from ditorch import graph

LAYERS, WIDTH = 8, 256


def train(compiled, weights, x):
    """The most memory of a backward above what there was before the forward."""
    for weight in weights:
        weight.grad = None
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    loss = compiled(x, *weights)
    torch.cuda.reset_peak_memory_stats()
    loss.backward()
    return torch.cuda.max_memory_allocated() - before


def test_saved_tensors_go_when_their_last_step_has_run():
    def function(x, *weights):
        for weight in weights:
            x = torch.cummax(x @ weight, 0).values  # an operator of the device, whose result the backward needs
        return x.sum()

    torch._dynamo.reset()
    torch.manual_seed(0)
    weights = [torch.randn(WIDTH, WIDTH).div(16).cuda().requires_grad_() for _ in range(LAYERS)]
    x = torch.randn(WIDTH, WIDTH).cuda()
    kept = graph.keep()
    compiled = torch.compile(function)
    train(compiled, weights, x)
    (backward,) = (made for made in kept if made.data["is_backward"])
    graph.keep(False)
    assert backward.lends
    early = train(compiled, weights, x)
    grads = [weight.grad.clone() for weight in weights]
    backward.lends = False
    late = train(compiled, weights, x)
    for weight, grad in zip(weights, grads, strict=True):
        assert torch.equal(weight.grad, grad)
    whole = WIDTH * WIDTH * 4
    assert late - early >= (LAYERS - 3) * whole, (early / whole, late / whole)


def test_plans_that_are_used_stay():
    """Of more sizes than plans are kept for, those that were used last."""
    torch._dynamo.reset()
    kept = graph.keep()
    compiled = torch.compile(lambda x: x.exp() * 2, dynamic=True)
    inputs = {n: torch.zeros(n, device="cuda") for n in (1000, *range(2, 50))}
    for n in range(2, 50):
        compiled(inputs[1000])
        assert compiled(inputs[n]).shape == (n,)
    (made,) = kept
    graph.keep(False)
    sizes = {plan["steps"][0]["sizes"][0] for plan in made.describe()}
    assert sizes == {1000, *range(19, 50)}, "32 plans"
