"""Failures that show no error: tied weights, lost devices, lost running statistics, dead seeds."""

import copy

import ditorch  # noqa: F401
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

# Parameters keep their identity


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 6)
        self.head = nn.Linear(6, 11, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        return self.head(self.embedding(tokens))


@pytest.mark.parametrize("move", [lambda m: m.cuda(), lambda m: m.to("cuda"), lambda m: m.to(torch.device("cuda", 0))])
def test_tied_weights_survive_the_move(move):
    model = Tied()
    weight = model.embedding.weight
    move(model)
    assert model.head.weight is model.embedding.weight is weight
    assert weight.is_cuda and weight.device == torch.device("cuda:0")
    loss = F.cross_entropy(model(torch.arange(5, device="cuda")), torch.arange(5, device="cuda"))
    loss.backward()
    with torch.no_grad():
        model.embedding.weight.sub_(model.embedding.weight.grad)
    assert model.head.weight.data_ptr() == model.embedding.weight.data_ptr()
    assert len(list(model.parameters())) == 1


def test_parameters_stay_the_same_objects_both_ways():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    before = [id(p) for p in model.parameters()]
    model.cuda()
    assert [id(p) for p in model.parameters()] == before
    model.cpu()
    assert [id(p) for p in model.parameters()] == before
    assert all(p.device.type == "cpu" for p in model.parameters())


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam])
def test_optimizer_built_before_the_move_trains(kind, close):
    torch.manual_seed(0)
    cpu = nn.Linear(5, 3)
    model = copy.deepcopy(cpu)
    optimizers = [kind(cpu.parameters(), lr=0.1), kind(model.parameters(), lr=0.1)]
    model.cuda()
    x = torch.randn(7, 5)
    start = model.weight.detach().clone()
    for module, optimizer, data in ((cpu, optimizers[0], x), (model, optimizers[1], x.cuda())):
        for _ in range(3):
            optimizer.zero_grad()
            module(data).square().mean().backward()
            optimizer.step()
    assert not torch.equal(model.weight, start)
    close(model.weight, cpu.weight)


def test_assignment_to_data_changes_the_device():
    parameter = nn.Parameter(torch.ones(3))
    parameter.data = parameter.data.cuda()
    assert parameter.is_cuda
    parameter.data = parameter.data.cpu()
    assert not parameter.is_cuda


def test_gradients_move_with_the_module():
    model = nn.Linear(2, 2)
    model(torch.ones(1, 2)).sum().backward()
    model.cuda()
    assert model.weight.grad.is_cuda


# Any device argument means a device result

EXPRESSIONS = {
    "1 - x": lambda x, c: 1 - x,
    "2 / x": lambda x, c: 2 / x,
    "2 ** x": lambda x, c: 2**x,
    "7 // x": lambda x, c: 7 // x,
    "7 % x": lambda x, c: 7 % x,
    "1 > x": lambda x, c: x < 1,
    "rsub": lambda x, c: torch.rsub(x, 3),
    "cpu scalar - x": lambda x, c: torch.tensor(1.5) - x,
    "cpu scalar / x": lambda x, c: torch.tensor(1.5) / x,
    "cpu scalar * x": lambda x, c: torch.tensor(3) * x,
    "x.sub(cpu scalar)": lambda x, c: x.sub(torch.tensor(2.0)),
    "where(c, x, 0)": lambda x, c: torch.where(c, x, 0.0),
    "where(c, 0, x)": lambda x, c: torch.where(c, 0.0, x),
    "where(cpu scalars)": lambda x, c: torch.where(c, torch.tensor(1.0), torch.tensor(2.0)),
    "maximum(cpu scalar, x)": lambda x, c: torch.maximum(torch.tensor(0.1), x),
    "atan2(cpu scalar, x)": lambda x, c: torch.atan2(torch.tensor(0.1), x),
    "pow(cpu scalar, x)": lambda x, c: torch.pow(torch.tensor(2.0), x),
    "xlogy(2, x)": lambda x, c: torch.xlogy(2, x),
    "lerp": lambda x, c: torch.lerp(x, x + 1, 0.5),
    "clamp": lambda x, c: x.clamp(min=0.2),
    "masked_fill": lambda x, c: x.masked_fill(c, torch.tensor(9.0)),
    "new_zeros": lambda x, c: x.new_zeros(3),
    "new_tensor": lambda x, c: x.new_tensor([1.0, 2.0]),
    "zeros_like": lambda x, c: torch.zeros_like(x),
    "x[index]": lambda x, c: x[torch.tensor([0, 1])],
    "x[mask]": lambda x, c: x[c],
    "one_hot": lambda x, c: F.one_hot(x.long(), 10),
    "tril": lambda x, c: x.tril(),
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_results_stay_on_the_device(name, close):
    x = torch.linspace(0.1, 2.5, 6).view(2, 3)
    condition = x > 1
    wanted = EXPRESSIONS[name](x, condition)
    close(EXPRESSIONS[name](x.cuda(), condition.cuda()), wanted)


# Statistics that schemas do not declare


@pytest.mark.parametrize("momentum", [0.1, None])
@pytest.mark.parametrize(
    "make,shape",
    [
        (lambda m: nn.BatchNorm1d(4, momentum=m), (6, 4)),
        (lambda m: nn.BatchNorm2d(4, momentum=m), (3, 4, 5, 5)),
        (lambda m: nn.BatchNorm3d(4, momentum=m), (2, 4, 3, 3, 3)),
        (lambda m: nn.InstanceNorm2d(4, momentum=m or 0.3, track_running_stats=True, affine=True), (3, 4, 5, 5)),
    ],
    ids=["batch1d", "batch2d", "batch3d", "instance2d"],
)
def test_running_statistics(make, shape, momentum, close):
    cpu = make(momentum)
    model = copy.deepcopy(cpu).cuda()
    for step in range(3):
        x = torch.randn(shape) * (step + 1) + step
        close(model(x.cuda()), cpu(x))
    assert cpu.running_mean.abs().sum() > 0.01
    close(model.running_mean, cpu.running_mean)
    close(model.running_var, cpu.running_var)
    close(model.num_batches_tracked, cpu.num_batches_tracked)
    model.eval()
    cpu.eval()
    x = torch.randn(shape)
    close(model(x.cuda()), cpu(x))


def test_running_statistics_channels_last_and_functional(close):
    x = torch.randn(2, 3, 4, 4)
    mean, variance = torch.zeros(3), torch.ones(3)
    mean_d, variance_d = mean.cuda(), variance.cuda()
    wanted = F.batch_norm(x, mean, variance, training=True)
    close(F.batch_norm(x.cuda().to(memory_format=torch.channels_last), mean_d, variance_d, training=True), wanted)
    close([mean_d, variance_d], [mean, variance])


def test_embedding_renorm_mutates_the_weight(close):
    weight = torch.randn(5, 4) * 3
    weight_d = weight.cuda()
    tokens = torch.tensor([0, 2, 2])
    close(F.embedding(tokens.cuda(), weight_d, max_norm=1.0), F.embedding(tokens, weight, max_norm=1.0))
    close(weight_d, weight)


# Seeds

DRAWS = {
    "rand": lambda: torch.rand(50, device="cuda"),
    "randn": lambda: torch.randn(50, device="cuda"),
    "randint": lambda: torch.randint(0, 10**6, (50,), device="cuda"),
    "randperm": lambda: torch.randperm(50, device="cuda"),
    "rand_like": lambda: torch.rand_like(torch.empty(50, device="cuda")),
    "uniform_": lambda: torch.empty(50, device="cuda").uniform_(),
    "normal_": lambda: torch.empty(50, device="cuda").normal_(2, 3),
    "normal": lambda: torch.normal(torch.zeros(50, device="cuda"), 1.0),
    "exponential_": lambda: torch.empty(50, device="cuda").exponential_(),
    "bernoulli": lambda: torch.bernoulli(torch.full((50,), 0.5, device="cuda")),
    "multinomial": lambda: torch.multinomial(torch.ones(50, device="cuda"), 20),
    "random_": lambda: torch.empty(50, device="cuda", dtype=torch.int64).random_(),
    "dropout": lambda: F.dropout(torch.ones(50, device="cuda"), 0.5),
    "dropout2d": lambda: F.dropout2d(torch.ones(5, 10, 1, 1, device="cuda"), 0.5).flatten(),
    "rrelu": lambda: F.rrelu(-torch.ones(50, device="cuda"), training=True),
    "gumbel_softmax": lambda: F.gumbel_softmax(torch.zeros(50, device="cuda")),
    "poisson": lambda: torch.poisson(torch.full((50,), 40.0, device="cuda")),
    "init": lambda: nn.init.kaiming_uniform_(torch.empty(5, 10, device="cuda")).flatten(),
}


@pytest.mark.parametrize("name", DRAWS)
def test_seeds_rule_every_draw(name):
    draw = DRAWS[name]
    torch.manual_seed(1)
    first, second = draw(), draw()
    assert first.is_cuda and not torch.equal(first, second)
    torch.manual_seed(1)
    assert torch.equal(draw(), first) and torch.equal(draw(), second)
    torch.cuda.manual_seed(1)
    assert torch.equal(draw(), first)
    torch.cuda.manual_seed_all(1)
    assert torch.equal(draw(), first)
    torch.manual_seed(2)
    assert not torch.equal(draw(), first)


@pytest.mark.parametrize("name", DRAWS)
def test_state_is_saved_and_restored(name):
    draw = DRAWS[name]
    draw()
    state = torch.cuda.get_rng_state()
    first = draw()
    torch.cuda.set_rng_state(state)
    assert torch.equal(draw(), first)
    torch.cuda.set_rng_state_all([state])
    assert torch.equal(draw(), first)


def test_fork_rng_keeps_the_outer_state():
    torch.manual_seed(3)
    wanted = torch.rand(4, device="cuda")
    torch.manual_seed(3)
    with torch.random.fork_rng():
        torch.rand(9, device="cuda")
        torch.manual_seed(99)
    assert torch.equal(torch.rand(4, device="cuda"), wanted)


def test_generators_are_independent():
    own = torch.Generator(device="cuda").manual_seed(5)
    assert own.device.type == "cuda" and own.initial_seed() == 5
    torch.manual_seed(7)
    default = torch.rand(4, device="cuda")
    first = torch.rand(4, device="cuda", generator=own)
    own.manual_seed(5)
    torch.manual_seed(7)
    assert torch.equal(torch.rand(4, device="cuda", generator=own), first)
    assert torch.equal(torch.rand(4, device="cuda"), default)
    state = own.get_state()
    second = torch.randn(4, device="cuda", generator=own)
    own.set_state(state)
    assert torch.equal(torch.randn(4, device="cuda", generator=own), second)


def test_a_cpu_generator_on_the_device_is_refused():
    with pytest.raises(RuntimeError, match=r"(?i)generator"):
        torch.rand(3, device="cuda", generator=torch.Generator())


def test_device_draws_leave_the_cpu_generator_alone():
    torch.manual_seed(11)
    wanted = torch.rand(4)
    torch.manual_seed(11)
    for draw in DRAWS.values():
        draw()
    assert torch.equal(torch.rand(4), wanted)


def test_initial_seed_and_seed():
    torch.cuda.manual_seed(1234)
    assert torch.cuda.initial_seed() == 1234
    torch.cuda.seed()
    assert torch.cuda.initial_seed() != 1234


def test_dropout_drops_what_it_should():
    torch.manual_seed(0)
    x = torch.ones(20000, device="cuda", requires_grad=True)
    y = F.dropout(x, 0.3)
    kept = (y != 0).float().mean().item()
    assert abs(kept - 0.7) < 0.02
    assert torch.allclose(y[y != 0], torch.tensor(1 / 0.7, device="cuda"))
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())
    assert torch.equal(F.dropout(x, 0.3, training=False), x)
    assert F.dropout(x, 1.0).abs().sum().item() == 0
