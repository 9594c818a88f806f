"""Memory that nobody has written yet: made, seen through views, written in parts, given as out=."""

import torch

from false_alarms.training.scenario import DEVICE, call

DTYPES = ("float32", "bfloat16", "float16", "int64", "bool")


def make_empty(dtype, *shape):
    return torch.empty(*shape, dtype=dtype, device=DEVICE)


def make_values(dtype, *shape):
    return torch.randint(0, 2, shape, device=DEVICE).to(dtype)


@call(DTYPES)
def empty_views(dtype):
    yield
    x = make_empty(dtype, 6, 8)
    x.t(), x[1:4, ::2], x.view(-1), x.reshape(4, 12), x.unsqueeze(0).expand(3, 6, 8), x.chunk(2), x.unbind(0)
    x.permute(1, 0).contiguous(), x.flatten(), x.select(0, 2), x.diagonal()
    torch.empty_like(x), x.new_empty(3), torch.empty_strided((2, 3), (1, 2), dtype=dtype, device=DEVICE)


@call(DTYPES)
def empty_written_in_parts(dtype):
    yield
    x = make_empty(dtype, 6, 8)
    x[:3].fill_(1)
    x[4].copy_(make_values(dtype, 8))
    x.view(-1)[::5] = 0
    x[:, 2] = make_values(dtype, 6)
    x.t()[3:5].zero_()
    x.diagonal().fill_(1)
    x[3:] = 1


@call(DTYPES)
def empty_by_index(dtype):
    yield
    x, rows = make_empty(dtype, 6, 8), torch.tensor([4, 1], device=DEVICE)
    x[rows] = make_values(dtype, 2, 8)
    x.index_fill_(0, rows, 1)
    x.index_copy_(0, rows, make_values(dtype, 2, 8))
    x.scatter_(1, torch.zeros(6, 1, dtype=torch.long, device=DEVICE), make_values(dtype, 6, 1))
    x.masked_fill_(torch.ones(6, 8, dtype=torch.bool, device=DEVICE), 1)


@call(DTYPES)
def empty_as_out(dtype):
    yield
    a, b = make_values(dtype, 6, 8), make_values(dtype, 6, 8)
    torch.cat([a, b], out=make_empty(dtype, 12, 8))
    torch.maximum(a, b, out=make_empty(dtype, 6, 8))
    torch.where(a > 0, a, b)
    torch.stack([a, b], out=make_empty(dtype, 2, 6, 8))
    torch.index_select(a, 0, torch.tensor([2, 2], device=DEVICE), out=make_empty(dtype, 2, 8))


@call()
def empty_arithmetic_out(dtype):
    yield
    a, b = torch.randn(2, 6, 6, device=DEVICE).to(dtype)
    torch.add(a, b, out=make_empty(dtype, 6, 6))
    torch.mm(a, b, out=make_empty(dtype, 6, 6))
    torch.exp(a, out=make_empty(dtype, 6, 6).t())
    torch.sum(a, 0, out=make_empty(dtype, 6))


@call()
def empty_drawn(dtype):
    yield
    x = make_empty(dtype, 40, 8)
    x[:20].normal_()
    x[20:].uniform_(-0.1, 0.1)
    x.t()[2].zero_()


@call()
def empty_cache(dtype):
    """A cache of keys that is filled token by token and read up to the last one."""
    yield
    cache = make_empty(dtype, 2, 16, 8)
    for position in range(4):
        cache[:, position] = torch.randn(2, 8, device=DEVICE).to(dtype)
        torch.matmul(cache[:, : position + 1], cache[:, position, :, None])


@call()
def empty_padded(dtype):
    yield
    x = torch.randn(3, 5, device=DEVICE).to(dtype).requires_grad_()
    y = torch.empty(3, 8, dtype=dtype, device=DEVICE)
    y[:, :5] = x
    y[:, 5:] = 0
    y.square().sum().backward()
