"""Norms, embeddings, experts, convolutions, recurrent layers, gradient accumulation."""

import torch
from torch import nn
from torch.nn import functional as F

from false_alarms.training.scenario import DEVICE, network


def make_sequence(wrap, *layers, shape):
    model = nn.Sequential(*layers).to(DEVICE)
    data = torch.randn(shape, device=DEVICE)
    return model, lambda: wrap(model)(data).float().square().mean()


@network
def layer_norm(wrap):
    return make_sequence(wrap, nn.Linear(24, 48), nn.LayerNorm(48), nn.GELU(), nn.Linear(48, 8), shape=(16, 24))


@network
def rms_norm(wrap):
    return make_sequence(wrap, nn.Linear(24, 48), nn.RMSNorm(48), nn.SiLU(), nn.Linear(48, 8), shape=(16, 24))


@network
def group_norm(wrap):
    return make_sequence(wrap, nn.Conv2d(3, 16, 3), nn.GroupNorm(4, 16), nn.ReLU(), shape=(2, 3, 10, 10))


@network
def batch_norm(wrap):
    layers = nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(1024, 8), nn.BatchNorm1d(8)
    return make_sequence(wrap, *layers, shape=(4, 3, 10, 10))


@network
def instance_norm(wrap):
    layers = nn.Conv2d(3, 16, 3), nn.InstanceNorm2d(16, affine=True), nn.LeakyReLU(0.1)
    return make_sequence(wrap, *layers, shape=(2, 3, 10, 10))


@network
def written_rms_norm(wrap):
    layer = nn.Linear(24, 48).to(DEVICE)
    data = torch.randn(16, 24, device=DEVICE)

    def norm(x):
        wide = layer(x).float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)

    return layer, lambda: wrap(norm)(data).square().sum()


# Embeddings


@network
def embedding_padding(wrap):
    model = nn.Sequential(nn.Embedding(40, 24, padding_idx=0), nn.Linear(24, 28)).to(DEVICE)
    tokens, labels = torch.randint(0, 40, (4, 9), device=DEVICE), torch.randint(0, 28, (36,), device=DEVICE)
    tokens[:, 6:] = 0
    return model, lambda: F.cross_entropy(wrap(model[1])(model[0](tokens)).flatten(0, 1), labels)


def make_bag(wrap, mode):
    model = nn.Sequential(nn.EmbeddingBag(40, 24, mode=mode), nn.Linear(24, 28)).to(DEVICE)
    tokens, labels = torch.randint(0, 40, (30,), device=DEVICE), torch.randint(0, 28, (5,), device=DEVICE)
    starts = torch.tensor([0, 4, 4, 11, 25], device=DEVICE)
    return model, lambda: F.cross_entropy(wrap(model[1])(model[0](tokens, starts)), labels)


@network
def embedding_bag_sum(wrap):
    return make_bag(wrap, "sum")


@network
def embedding_bag_mean(wrap):
    return make_bag(wrap, "mean")


@network
def embedding_bag_max(wrap):
    return make_bag(wrap, "max")


# Experts


class Experts(nn.Module):
    """Two of four experts for each token; `add` puts their answers together."""

    def __init__(self, add, width=24):
        super().__init__()
        self.add = add
        self.gate = nn.Linear(width, 4, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 48), nn.GELU(), nn.Linear(48, width)) for _ in "1234"
        )

    def forward(self, x):
        weights, chosen = torch.topk(self.gate(x).float().softmax(-1), 2, dim=-1)
        weights = (weights / weights.sum(-1, keepdim=True)).to(x.dtype)
        result = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows, slot = torch.where(chosen == number)
            if rows.numel():
                result = self.add(result, rows, expert(x[rows]).to(x.dtype) * weights[rows, slot, None])
        return x + result


def make_experts(wrap, add):
    model = Experts(add).to(DEVICE)
    data = torch.randn(20, 24, device=DEVICE)
    return model, lambda: wrap(model)(data).square().mean()


@network
def experts_index_add(wrap):
    return make_experts(wrap, lambda result, rows, values: result.index_add(0, rows, values))


@network
def experts_index_put(wrap):
    return make_experts(wrap, lambda result, rows, values: result.index_put((rows,), values, accumulate=True))


@network
def experts_scatter_add(wrap):
    def add(result, rows, values):
        return result.scatter_add(0, rows[:, None].expand_as(values), values)

    return make_experts(wrap, add)


# Convolutions and recurrent layers


@network
def channels_last(wrap):
    layers = [nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(inplace=True), nn.MaxPool2d(2)]
    layers += [nn.Conv2d(16, 16, 3, groups=16), nn.Conv2d(16, 24, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    model = nn.Sequential(*layers, nn.Linear(24, 10)).to(DEVICE, memory_format=torch.channels_last)
    data = torch.randn(4, 3, 12, 12, device=DEVICE).to(memory_format=torch.channels_last)
    labels = torch.randint(0, 10, (4,), device=DEVICE)
    return model, lambda: F.cross_entropy(wrap(model)(data), labels)


@network
def upsampling(wrap):
    layers = nn.Conv2d(3, 8, 3, stride=2), nn.ConvTranspose2d(8, 8, 3, stride=2), nn.Upsample(scale_factor=2)
    return make_sequence(wrap, *layers, nn.Conv2d(8, 3, 3), nn.Sigmoid(), shape=(2, 3, 9, 9))


def make_recurrent(wrap, layer):
    model = nn.ModuleList([nn.Embedding(28, 16), layer, nn.Linear(20, 28)]).to(DEVICE)
    tokens = torch.randint(0, 28, (7, 3), device=DEVICE)

    def loss():
        hidden = wrap(lambda x: model[1](x)[0])(model[0](tokens[:-1]))
        return F.cross_entropy(model[2](hidden).flatten(0, 1), tokens[1:].flatten())

    return model, loss


@network
def lstm(wrap):
    return make_recurrent(wrap, nn.LSTM(16, 20, 2))


@network
def gru(wrap):
    return make_recurrent(wrap, nn.GRU(16, 20))


# The shape of the step


@network
def accumulation(wrap):
    """Four small batches of one step; the gradients are added up."""
    model = nn.Sequential(nn.Linear(24, 48), nn.GELU(), nn.Linear(48, 28)).to(DEVICE)
    data, labels = torch.randn(4, 8, 24, device=DEVICE), torch.randint(0, 28, (4, 8), device=DEVICE)

    def loss():
        for rows, answers in zip(data[:-1], labels[:-1], strict=True):
            (F.cross_entropy(wrap(model)(rows), answers) / 4).backward()
        return F.cross_entropy(wrap(model)(data[-1]), labels[-1]) / 4

    return model, loss


@network
def in_place(wrap):
    model = nn.Sequential(nn.Linear(24, 48), nn.ReLU(inplace=True), nn.Linear(48, 24)).to(DEVICE)
    data = torch.randn(16, 24, device=DEVICE)

    def change(x):
        y = model(x)
        y[:, ::2].mul_(2)
        y[3:5] += 1
        return y.clamp_(-2, 2).masked_fill_(y > 1.5, 0.5)

    return model, lambda: wrap(change)(data).float().square().mean()


# Autocast keeps the cast of a leaf: calls that share one share its gradient


@network
def shared_layer(wrap):
    """One layer twice, the second time on its own output."""
    layer = nn.Linear(24, 24).to(DEVICE)
    data = torch.randn(16, 24, device=DEVICE)
    return layer, lambda: wrap(lambda x: layer(layer(x).relu()))(data).float().square().mean()


@network
def shared_input(wrap):
    """Two layers of one leaf that has a gradient."""
    model = nn.ModuleList([nn.Linear(24, 24), nn.Linear(24, 24)]).to(DEVICE)
    data = torch.randn(16, 24, device=DEVICE, requires_grad=True)
    return model, lambda: wrap(lambda x: model[0](x) * model[1](x))(data).float().square().mean()


@network
def tied_embedding(wrap):
    model = nn.ModuleList([nn.Embedding(28, 24), nn.Linear(24, 24), nn.Linear(24, 28, bias=False)]).to(DEVICE)
    model[2].weight = model[0].weight
    tokens, labels = torch.randint(0, 28, (4, 6), device=DEVICE), torch.randint(0, 28, (24,), device=DEVICE)

    def loss():
        hidden = wrap(model[1])(model[0](tokens))
        return F.cross_entropy(model[2](hidden).flatten(0, 1).float(), labels)

    return model, loss
