"""torch.cuda.CUDAGraph on the device: capture leaves no trace, replay computes over the same storages."""

from __future__ import annotations

import copy

import ditorch  # noqa: F401  makes the device cuda
import pytest
import torch

pytestmark = pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream")


def _make_net() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 4)).cuda()


def test_replay_computes_what_eager_computes():
    net, x, graph = _make_net(), torch.randn(8, 16, device="cuda"), torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        assert torch.cuda.is_current_stream_capturing()
        y = net(x).softmax(-1).view(2, 16)[:, :12].contiguous()
    assert not torch.cuda.is_current_stream_capturing()
    for _ in range(2):
        x.normal_()
        graph.replay()
        with torch.no_grad():
            assert torch.equal(y, net(x).softmax(-1).view(2, 16)[:, :12].contiguous())


def test_capture_leaves_no_trace_and_replay_does():
    counter, cache, graph = torch.zeros(3, device="cuda"), torch.zeros(4, 2, device="cuda"), torch.cuda.CUDAGraph()
    slot = torch.tensor([1], device="cuda")
    torch.cuda.manual_seed(5)
    with torch.cuda.graph(graph):
        counter += 1
        cache[slot] = counter[:2]
        noise = torch.rand(4, device="cuda")
    assert counter.tolist() == [0, 0, 0]
    assert cache.sum().item() == 0
    torch.cuda.manual_seed(5)
    expected = [torch.rand(4, device="cuda") for _ in range(2)]
    torch.cuda.manual_seed(5)
    graph.replay()
    assert torch.equal(noise, expected[0])
    slot.fill_(3)
    graph.replay()
    assert torch.equal(noise, expected[1])
    assert counter.tolist() == [2, 2, 2]
    assert cache.tolist() == [[0, 0], [1, 1], [0, 0], [2, 2]]


@pytest.mark.parametrize(
    "read",
    [lambda x: x.sum().item(), lambda x: x.cpu(), lambda x: x.nonzero(), lambda x: x[x > 0], lambda x: bool(x[0])],
)
def test_host_reads_are_refused(read):
    x, graph = torch.ones(3, device="cuda"), torch.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="not permitted while a CUDA graph is captured"), torch.cuda.graph(graph):
        read(x)
    assert not torch.cuda.is_current_stream_capturing()
    with pytest.raises(RuntimeError, match="capture failed"):
        graph.replay()


def test_a_whole_training_step():
    net, x, t = _make_net(), torch.randn(8, 16, device="cuda"), torch.randn(8, 4, device="cuda")
    other, graph = copy.deepcopy(net), torch.cuda.CUDAGraph()
    steps = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (net, other)]
    with torch.cuda.graph(graph):
        torch.nn.functional.mse_loss(net(x), t).backward()
        steps[0].step()
    for _ in range(3):
        x.normal_(), t.normal_()
        graph.replay()
        steps[1].zero_grad()
        torch.nn.functional.mse_loss(other(x), t).backward()
        steps[1].step()
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), other.parameters(), strict=True))


def test_make_graphed_callables():
    net = torch.nn.Linear(16, 16).cuda()
    other = copy.deepcopy(net)
    made = torch.cuda.make_graphed_callables(net, (torch.randn(8, 16, device="cuda", requires_grad=True),))
    results = []
    x = torch.randn(8, 16, device="cuda")
    for module in (made, other):
        z = x.clone().requires_grad_()
        out = module(z)
        out.square().sum().backward()
        results.append((out.detach().clone(), z.grad.clone(), module.weight.grad.clone()))
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_handles_and_order_of_calls():
    first, second = torch.cuda.graph_pool_handle(), torch.cuda.graph_pool_handle()
    assert first != second
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="not captured"):
        graph.replay()
    with torch.cuda.graph(graph, pool=first, capture_error_mode="thread_local"):
        torch.ones(2, device="cuda") + 1
        with pytest.raises(RuntimeError, match="captures a CUDA graph already"):
            torch.cuda.CUDAGraph().capture_begin()
    assert graph.pool() == first
    graph.reset()
    with pytest.raises(RuntimeError, match="not captured"):
        graph.replay()
    with pytest.raises(RuntimeError, match="capture_error_mode"):
        graph.capture_begin(capture_error_mode="loose")
