"""RNN, LSTM and GRU: forward and backward against the CPU, layers, directions, projections, packed sequences, cells."""

import copy

import ditorch
import pytest
import torch
import torch.nn as nn
from ditorch import controls
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence

TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}
VARIANTS = [
    {},
    {"num_layers": 2},
    {"bidirectional": True},
    {"batch_first": True, "bias": False},
    {"num_layers": 2, "bidirectional": True, "batch_first": True},
]


def both(module):
    return module, copy.deepcopy(module).cuda()


def backward_equal(mine, wanted, modules, close):
    """Same loss on both sides, then all gradients."""
    for out in (mine, wanted):
        sum(t.float().square().sum() for t in out).backward()
    for a, b in zip(modules[1].parameters(), modules[0].parameters(), strict=False):
        close(a.grad, b.grad, **TOLERANCE)


@pytest.mark.parametrize("options", VARIANTS, ids=lambda o: "-".join(o) or "plain")
@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU], ids=lambda k: k.__name__)
def test_layers(kind, options, close):
    cpu, mine = both(kind(5, 7, **options))
    x = torch.randn(4, 6, 5)
    x_cpu, x_mine = x.clone().requires_grad_(), x.cuda().requires_grad_()
    wanted, got = cpu(x_cpu), mine(x_mine)
    close(got[0], wanted[0], **TOLERANCE)
    close(got[1], wanted[1], **TOLERANCE)
    flat = lambda r: [r[0], *(r[1] if isinstance(r[1], tuple) else [r[1]])]  # noqa: E731
    backward_equal(flat(got), flat(wanted), (cpu, mine), close)
    close(x_mine.grad, x_cpu.grad, **TOLERANCE)


def test_given_state_and_projection(close):
    cpu, mine = both(nn.LSTM(5, 7, num_layers=2, proj_size=3))
    x, h, c = torch.randn(4, 2, 5), torch.randn(2, 2, 3), torch.randn(2, 2, 7)
    wanted, got = cpu(x, (h, c)), mine(x.cuda(), (h.cuda(), c.cuda()))
    close(got[0], wanted[0], **TOLERANCE)
    backward_equal([got[0], *got[1]], [wanted[0], *wanted[1]], (cpu, mine), close)


def test_relu_rnn_and_unbatched(close):
    cpu, mine = both(nn.RNN(5, 7, nonlinearity="relu"))
    x = torch.randn(6, 5)
    close(mine(x.cuda())[0], cpu(x)[0], **TOLERANCE)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU], ids=lambda k: k.__name__)
def test_packed_sequences(kind, close):
    cpu, mine = both(kind(3, 4, bidirectional=True))
    sequences = [torch.randn(n, 3) for n in (5, 3, 1)]
    wanted, _ = cpu(pack_sequence(sequences))
    got, _ = mine(pack_sequence([s.cuda() for s in sequences]))
    close(pad_packed_sequence(got)[0], pad_packed_sequence(wanted)[0], **TOLERANCE)
    padded, lengths = torch.randn(4, 3, 3), torch.tensor([2, 4, 1])
    wanted, _ = cpu(pack_padded_sequence(padded, lengths, enforce_sorted=False))
    got, _ = mine(pack_padded_sequence(padded.cuda(), lengths, enforce_sorted=False))
    close(pad_packed_sequence(got)[0], pad_packed_sequence(wanted)[0], **TOLERANCE)


@pytest.mark.parametrize("kind", [nn.RNNCell, nn.LSTMCell, nn.GRUCell], ids=lambda k: k.__name__)
def test_cells(kind, close):
    cpu, mine = both(kind(3, 4))
    x = torch.randn(5, 3)
    wanted, got = cpu(x), mine(x.cuda())
    as_list = lambda r: list(r) if isinstance(r, tuple) else [r]  # noqa: E731
    close(as_list(got), as_list(wanted), **TOLERANCE)
    backward_equal(as_list(got), as_list(wanted), (cpu, mine), close)


def test_dropout_between_layers_obeys_seed_and_mode():
    model = nn.LSTM(3, 4, num_layers=2, dropout=0.5).cuda()
    x = torch.randn(5, 2, 3, device="cuda")
    torch.manual_seed(1)
    first = model(x)[0]
    torch.manual_seed(1)
    assert torch.equal(model(x)[0], first)
    assert not torch.equal(model(x)[0], first)
    model.eval()
    assert torch.equal(model(x)[0], model(x)[0])


def test_autocast(close):
    cpu, mine = both(nn.GRU(5, 6))
    x = torch.randn(4, 2, 5)
    with torch.autocast("cuda"):
        got = mine(x.cuda())[0]
    close(got.float(), cpu(x)[0], rtol=2e-2, atol=1e-2)


def test_double_backward(close):
    answers = []
    for device in ("cuda", "cpu"):
        torch.manual_seed(0)
        cell = nn.LSTMCell(2, 3).double().to(device)
        x = torch.ones(1, 2, dtype=torch.float64, device=device, requires_grad=True)
        (grad,) = torch.autograd.grad(cell(x)[0].sum(), x, create_graph=True)
        grad.square().sum().backward()
        answers.append(x.grad)
    close(*answers)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU], ids=lambda k: k.__name__)
def test_cells_on_the_cpu(kind, bias, close):
    """A vendor without the fused cells falls back to CPU kernels that PyTorch does not have; a forced fallback does."""
    net, x = kind(5, 7, bidirectional=True, bias=bias).cuda(), torch.randn(4, 3, 5, device="cuda", requires_grad=True)
    results = []
    for listed in "", "_thnn_fused_.*":
        with controls.use(force_fallback=listed):
            out = net(x)[0]
            results.append([out, *torch.autograd.grad(out.square().sum(), [x, *net.parameters()])])
    assert any("_thnn_fused" in row["operator"] for row in ditorch.fallbacks())
    for mine, wanted in zip(*results, strict=True):
        close(mine, wanted.cpu(), **TOLERANCE)
