"""A linear layer into every loss, and cross entropy of few and many classes."""

import torch
from torch import nn
from torch.nn import functional as F

from false_alarms.training.scenario import DEVICE, network


def make_linear(wrap, outputs, rows=16, width=32):
    """A layer, and a function that gives its output for fixed data."""
    layer = nn.Linear(width, outputs).to(DEVICE)
    data = torch.randn(rows, width, device=DEVICE)
    return layer, lambda: wrap(layer)(data)


def make_labels(classes, rows=16):
    return torch.randint(0, classes, (rows,), device=DEVICE)


def make_cross_entropy(wrap, classes, rows=16, **options):
    layer, output = make_linear(wrap, classes, rows)
    labels = make_labels(classes, rows)
    return layer, lambda: F.cross_entropy(output(), labels, **options)


@network
def cross_entropy_10(wrap):
    return make_cross_entropy(wrap, 10)


@network
def cross_entropy_28(wrap):
    return make_cross_entropy(wrap, 28)


@network
def cross_entropy_64(wrap):
    return make_cross_entropy(wrap, 64)


@network
def cross_entropy_1000(wrap):
    return make_cross_entropy(wrap, 1000, rows=8)


@network
def cross_entropy_50000(wrap):
    return make_cross_entropy(wrap, 50000, rows=3)


@network
def cross_entropy_smoothing(wrap):
    return make_cross_entropy(wrap, 28, label_smoothing=0.1)


@network
def cross_entropy_weights(wrap):
    return make_cross_entropy(wrap, 28, weight=torch.rand(28, device=DEVICE) + 0.1)


@network
def cross_entropy_ignore(wrap):
    layer, output = make_linear(wrap, 28)
    labels = make_labels(28)
    labels[::3] = -100
    return layer, lambda: F.cross_entropy(output(), labels, ignore_index=-100, label_smoothing=0.05)


@network
def cross_entropy_sum(wrap):
    return make_cross_entropy(wrap, 64, reduction="sum")


@network
def cross_entropy_each(wrap):
    layer, output = make_linear(wrap, 64)
    labels, share = make_labels(64), torch.rand(16, device=DEVICE)
    return layer, lambda: (F.cross_entropy(output(), labels, reduction="none") * share).mean()


@network
def cross_entropy_probabilities(wrap):
    layer, output = make_linear(wrap, 28)
    target = torch.rand(16, 28, device=DEVICE).softmax(-1)
    return layer, lambda: F.cross_entropy(output(), target)


@network
def cross_entropy_pixels(wrap):
    layer = nn.Conv2d(4, 12, 1).to(DEVICE)
    data, labels = torch.randn(2, 4, 8, 8, device=DEVICE), torch.randint(0, 12, (2, 8, 8), device=DEVICE)
    return layer, lambda: F.cross_entropy(wrap(layer)(data), labels)


# The others


def make_regression(wrap, loss, **options):
    layer, output = make_linear(wrap, 24)
    target = torch.randn(16, 24, device=DEVICE)
    return layer, lambda: loss(output(), target, **options)


@network
def mse(wrap):
    return make_regression(wrap, F.mse_loss)


@network
def l1(wrap):
    return make_regression(wrap, F.l1_loss)


@network
def smooth_l1(wrap):
    return make_regression(wrap, F.smooth_l1_loss, beta=0.3)


@network
def huber(wrap):
    return make_regression(wrap, F.huber_loss, delta=0.7)


@network
def bce_with_logits(wrap):
    layer, output = make_linear(wrap, 24)
    target, weight = torch.rand(16, 24, device=DEVICE), torch.rand(24, device=DEVICE) * 3
    return layer, lambda: F.binary_cross_entropy_with_logits(output(), target, pos_weight=weight)


@network
def kl_div(wrap):
    layer, output = make_linear(wrap, 24)
    target = torch.randn(16, 24, device=DEVICE).softmax(-1)
    return layer, lambda: F.kl_div(output().log_softmax(-1), target, reduction="batchmean")


@network
def nll(wrap):
    layer, output = make_linear(wrap, 28)
    labels = make_labels(28)
    return layer, lambda: F.nll_loss(output().log_softmax(-1), labels)


@network
def cosine_embedding(wrap):
    layer, output = make_linear(wrap, 24)
    other, sign = torch.randn(16, 24, device=DEVICE), torch.randint(0, 2, (16,), device=DEVICE) * 2 - 1
    return layer, lambda: F.cosine_embedding_loss(output(), other, sign, margin=0.1)


@network
def cosine_similarity(wrap):
    layer, output = make_linear(wrap, 24)
    other = torch.randn(16, 24, device=DEVICE)
    return layer, lambda: 1 - F.cosine_similarity(output(), other, dim=-1).mean()


@network
def triplet(wrap):
    layer, output = make_linear(wrap, 24)
    other = torch.randn(2, 16, 24, device=DEVICE)
    return layer, lambda: F.triplet_margin_loss(output(), other[0], other[1], margin=1.0)


@network
def ctc(wrap):
    layer = nn.Linear(16, 12).to(DEVICE)
    data = torch.randn(20, 3, 16, device=DEVICE)
    labels = torch.randint(1, 12, (3, 6), device=DEVICE)
    lengths = torch.full((3,), 20, dtype=torch.long), torch.tensor([6, 4, 5])
    return layer, lambda: F.ctc_loss(wrap(layer)(data).log_softmax(-1).float(), labels, *lengths)
