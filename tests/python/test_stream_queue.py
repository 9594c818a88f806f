"""Operators on a side stream are queued there: the caller goes on, and the results are those of the default stream."""

import os

import pytest
import torch
import torch.nn.functional as F
from gate import Gate

aten = torch.ops.aten


def _image(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(5)).cuda()


def _norm_backward(x):
    weight = torch.ones(8, device="cuda")
    out, mean, scale = torch.native_batch_norm(x, weight, weight, None, None, True, 0.1, 1e-5)
    return aten.native_batch_norm_backward(out, x, weight, None, None, mean, scale, True, 1e-5, [True, True, True])


CASES = {
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "batch_norm backward": _norm_backward,
    "group_norm": lambda x: F.group_norm(x, 2),
    "instance_norm": lambda x: F.instance_norm(x.transpose(2, 3)),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[1:]),
    "mse_loss": lambda x: F.mse_loss(x, x.flip(0)),
    "bce": lambda x: F.binary_cross_entropy_with_logits(x, x.sigmoid(), reduction="none"),
    "sort": lambda x: x.sort(1),
    "topk": lambda x: x.topk(3, 2),
    "conv2d": lambda x: F.conv2d(x, x[:, :, :3, :3].contiguous(), padding=1),
    "conv2d backward": lambda x: aten.convolution_backward(
        x,
        x,
        x[:, :, :3, :3].repeat(4, 1, 1, 1)[:8].contiguous(),
        [8],
        [1, 1],
        [1, 1],
        [1, 1],
        False,
        [0, 0],
        1,
        [True] * 3,
    ),
    "max_pool2d": lambda x: F.max_pool2d(x, 2, return_indices=True),
    "max_pool2d backward": lambda x: aten.max_pool2d_with_indices_backward(
        x[:, :, ::2, ::2], x, [2, 2], [2, 2], [0, 0], [1, 1], False, F.max_pool2d(x, 2, return_indices=True)[1]
    ),
    "avg_pool2d": lambda x: F.avg_pool2d(x, 2),
    "softmax backward": lambda x: aten._softmax_backward_data(x, x.softmax(1), 1, torch.float32),
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x),
    "normal_": lambda x: torch.empty_like(x).normal_(1, 2),
    "uniform_": lambda x: torch.empty_like(x).uniform_(),
}


def _flat(value):
    return list(value) if isinstance(value, (tuple, list)) else [value]


@pytest.mark.parametrize("name", CASES)
def test_operator_is_queued(name):
    x = _image(2, 8, 12, 12)
    torch.cuda.manual_seed(7)
    wanted = [part.cpu() for part in _flat(CASES[name](x))]
    stream = torch.cuda.Stream()
    torch.cuda.manual_seed(7)
    gate = Gate(stream)
    with torch.cuda.stream(stream):
        got = _flat(CASES[name](x))
        assert not stream.query(), "the call waited for the stream"
        gate.open()
        stream.synchronize()
    for mine, want in zip(got, wanted, strict=True):
        assert torch.equal(mine.cpu(), want)


def test_order_events_and_reuse():
    """A chain over two streams with events; memory that record_stream keeps is not used again before its time."""
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    x = _image(2, 8, 12, 12)
    wanted = F.max_pool2d(F.group_norm(F.conv2d(x, x[:, :, :3, :3], padding=1), 2), 2).sort(1).values.cpu()
    gate = Gate(first)
    for round_ in range(20):
        with torch.cuda.stream(first):
            y = F.group_norm(F.conv2d(x, x[:, :, :3, :3], padding=1), 2)
            done = first.record_event()
        with torch.cuda.stream(second):
            second.wait_event(done)
            z = F.max_pool2d(y, 2).sort(1).values
        y.record_stream(second)
        del y
        with torch.cuda.stream(first):
            torch.full((2, 2, 12, 12), float(round_), device="cuda")  # would land in y's memory
        if round_ == 0:
            gate.open()
        second.synchronize()
        assert torch.equal(z.cpu(), wanted)


@pytest.mark.skipif(os.environ.get("DITORCH_VENDOR") == "opaque", reason="a failure of that device stays")
def test_failure_is_reported_by_the_next_wait():
    """Positions outside of the plane are found when the work runs: the stream's wait says so, once."""
    x = _image(1, 1, 4, 4)
    stream = torch.cuda.Stream()
    indices = torch.full((1, 1, 2, 2), 99, device="cuda")
    with torch.cuda.stream(stream):
        aten.max_pool2d_with_indices_backward(x[:, :, :2, :2], x, [2, 2], [2, 2], [0, 0], [1, 1], False, indices)
    with pytest.raises(RuntimeError, match="indices"):
        stream.synchronize()
    stream.synchronize()
