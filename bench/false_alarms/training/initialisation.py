"""Parameters made on the device in their own dtype, as large models are, with every function of nn.init."""

import torch
from torch import nn

from false_alarms.training.scenario import DEVICE, call


@call()
def init_linear(dtype):
    yield
    nn.Linear(40, 56, device=DEVICE, dtype=dtype)
    nn.Linear(768, 300, device=DEVICE, dtype=dtype)


@call()
def init_convolution(dtype):
    yield
    nn.Conv1d(5, 7, 3, device=DEVICE, dtype=dtype)
    nn.Conv2d(12, 20, 3, device=DEVICE, dtype=dtype)
    nn.ConvTranspose2d(12, 20, 3, device=DEVICE, dtype=dtype)


@call()
def init_embedding(dtype):
    yield
    nn.Embedding(50, 24, padding_idx=0, device=DEVICE, dtype=dtype)
    nn.EmbeddingBag(50, 24, device=DEVICE, dtype=dtype)


@call()
def init_recurrent(dtype):
    yield
    nn.LSTM(13, 11, 2, device=DEVICE, dtype=dtype)
    nn.GRU(13, 11, device=DEVICE, dtype=dtype)


@call()
def init_attention(dtype):
    yield
    nn.MultiheadAttention(24, 4, device=DEVICE, dtype=dtype)
    nn.TransformerEncoderLayer(24, 4, 40, device=DEVICE, dtype=dtype)


@call()
def init_norms(dtype):
    yield
    nn.LayerNorm(24, device=DEVICE, dtype=dtype)
    nn.BatchNorm2d(24, device=DEVICE, dtype=dtype)
    nn.RMSNorm(24, device=DEVICE, dtype=dtype)


def fill(dtype, *functions):
    weight = torch.zeros(60, 36, dtype=dtype, device=DEVICE)
    yield
    for function in functions:
        function(weight)


@call()
def init_kaiming(dtype):
    return fill(dtype, nn.init.kaiming_uniform_, lambda w: nn.init.kaiming_normal_(w, mode="fan_out"))


@call()
def init_xavier(dtype):
    return fill(dtype, nn.init.xavier_uniform_, lambda w: nn.init.xavier_normal_(w, gain=1.7))


@call()
def init_truncated(dtype):
    return fill(dtype, lambda w: nn.init.trunc_normal_(w, std=0.02), nn.init.trunc_normal_)


@call(("float32",))
def init_orthogonal(dtype):
    return fill(dtype, nn.init.orthogonal_)


@call()
def init_uniform(dtype):
    """Bounds that the narrow dtypes do not have, close ones and unequal ones among them."""
    bounds = ((-0.1, 0.1), (-1 / 36**0.5, 1 / 36**0.5), (0.3, 0.7), (1.001, 1.1), (-1e-3, 1e-3))
    return fill(dtype, *[lambda w, b=b: nn.init.uniform_(w, *b) for b in bounds])


@call()
def init_normal(dtype):
    return fill(dtype, lambda w: nn.init.normal_(w, 0.1, 0.02), lambda w: nn.init.normal_(w))


@call()
def init_constant(dtype):
    functions = nn.init.eye_, nn.init.ones_, nn.init.zeros_
    return fill(dtype, *functions, lambda w: nn.init.constant_(w, 0.1), lambda w: nn.init.sparse_(w, 0.3))


@call()
def init_dirac(dtype):
    weight = torch.zeros(8, 8, 3, dtype=dtype, device=DEVICE)
    yield
    nn.init.dirac_(weight)


@call()
def init_draws(dtype):
    yield
    torch.randn(33, 7, device=DEVICE, dtype=dtype)
    torch.rand(33, 7, device=DEVICE, dtype=dtype)
    torch.empty(100, device=DEVICE, dtype=dtype).exponential_()
    torch.empty(100, device=DEVICE, dtype=dtype).bernoulli_(0.3)
