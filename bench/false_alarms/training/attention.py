"""Attention: the fused function in its forms, nn.MultiheadAttention, an encoder, rotary embedding."""

import torch
from torch import nn
from torch.nn import functional as F

from false_alarms.training.scenario import DEVICE, network

BATCH, LENGTH, WIDTH, HEADS = 2, 12, 32, 4


class Attention(nn.Module):
    """Projections around the fused function; `groups` heads for keys and values."""

    def __init__(self, groups=HEADS, **options):
        super().__init__()
        self.groups, self.options = groups, options
        size = WIDTH // HEADS
        self.q, self.kv = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 2 * groups * size)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        batch, length, _ = x.shape
        q = self.q(x).view(batch, length, HEADS, -1).transpose(1, 2)
        k, v = self.kv(x).view(batch, length, 2, self.groups, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, **self.options)
        return self.out(y.transpose(1, 2).reshape(batch, length, WIDTH))


def make_attention(wrap, module):
    module = module.to(DEVICE)
    data = torch.randn(BATCH, LENGTH, WIDTH, device=DEVICE)
    return module, lambda: wrap(module)(data).float().square().mean()


@network
def sdpa_causal(wrap):
    return make_attention(wrap, Attention(is_causal=True))


@network
def sdpa_mask(wrap):
    mask = torch.rand(LENGTH, LENGTH, device=DEVICE) > 0.4
    mask.fill_diagonal_(True)
    return make_attention(wrap, Attention(attn_mask=mask))


@network
def sdpa_gqa(wrap):
    return make_attention(wrap, Attention(groups=2, is_causal=True, enable_gqa=True))


@network
def sdpa_dropout_0(wrap):
    return make_attention(wrap, Attention(dropout_p=0.0, scale=0.3))


@network
def multihead(wrap):
    module = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True).to(DEVICE)
    data = torch.randn(BATCH, LENGTH, WIDTH, device=DEVICE)
    return module, lambda: wrap(lambda x: module(x, x, x)[0])(data).float().square().mean()


@network
def multihead_padding(wrap):
    module = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True).to(DEVICE)
    data = torch.randn(BATCH, LENGTH, WIDTH, device=DEVICE)
    padding = torch.zeros(BATCH, LENGTH, dtype=torch.bool, device=DEVICE)
    padding[1, 9:] = True

    def attend(x):
        y, weights = module(x, x, x, key_padding_mask=padding)
        return y + weights.sum()

    return module, lambda: wrap(attend)(data).float().square().mean()


def make_encoder(wrap, dropout):
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 64, dropout, activation="gelu", batch_first=True)
    model = nn.ModuleList([nn.Embedding(28, WIDTH), nn.TransformerEncoder(layer, 2), nn.Linear(WIDTH, 28)]).to(DEVICE)
    tokens = torch.randint(0, 28, (BATCH, LENGTH + 1), device=DEVICE)

    def loss():
        hidden = wrap(model[1])(model[0](tokens[:, :-1]))
        return F.cross_entropy(model[2](hidden).flatten(0, 1), tokens[:, 1:].flatten(), label_smoothing=0.1)

    return model, loss


@network
def encoder(wrap):
    return make_encoder(wrap, 0.0)


@network
def encoder_dropout(wrap):
    return make_encoder(wrap, 0.1)


@network
def rotary(wrap):
    """Rotary embedding with concatenated halves, as decoders write it."""
    module = nn.Linear(WIDTH, WIDTH).to(DEVICE)
    data = torch.randn(BATCH, LENGTH, WIDTH, device=DEVICE)
    angle = torch.outer(torch.arange(LENGTH, device=DEVICE).float(), 100 ** -torch.linspace(0, 1, 4, device=DEVICE))
    cos, sin = angle.cos().repeat(1, 2), angle.sin().repeat(1, 2)

    def turn(x):
        x = module(x).view(BATCH, LENGTH, HEADS, -1).transpose(1, 2)
        left, right = x.chunk(2, -1)
        return x * cos + torch.cat([-right, left], -1) * sin

    return module, lambda: wrap(turn)(data).float().square().mean()
