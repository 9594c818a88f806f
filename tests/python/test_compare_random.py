"""Random operators under OpAutoCompare: the same numbers, else the right distribution; generators stay as they were."""

import ditorch
import pytest
import torch
import torch.nn.functional as F
from op_tools import OpAutoCompare
from torch.nn import init

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


@pytest.fixture(autouse=True)
def in_own_directory(tmp_path, monkeypatch, device):
    monkeypatch.chdir(tmp_path)
    yield
    ditorch.fault("")


def watch(function, fault="", **options):
    tool = OpAutoCompare(**{"save": False, "rows": "none", "console": "off", **options})
    with ditorch.fault(fault), tool:
        function()
    return tool


def fill(dtype, count=500):
    return torch.zeros(count, device="cuda", dtype=dtype)


# The operators of defect A9 and their like: (name, function(dtype)).
A9 = {
    "uniform_": lambda d: fill(d).uniform_(-3, 5),
    "normal_": lambda d: fill(d).normal_(),
    "exponential_": lambda d: fill(d).exponential_(),
    "cauchy_": lambda d: fill(d).cauchy_(),
    "log_normal_": lambda d: fill(d).log_normal_(),
    "geometric_": lambda d: fill(d).geometric_(0.3),
    "bernoulli_": lambda d: fill(d).bernoulli_(0.3),
    "random_": lambda d: fill(d).random_(100),
    "normal": lambda d: torch.normal(fill(d), 1.0),
    "rand": lambda d: torch.rand(300, device="cuda", dtype=d),
    "randn": lambda d: torch.randn(300, device="cuda", dtype=d),
    "rand_like": lambda d: torch.rand_like(fill(d)),
    "randn_like": lambda d: torch.randn_like(fill(d)),
    "randint": lambda d: torch.randint(3, 17, (200,), device="cuda"),
    "randperm": lambda d: torch.randperm(70, device="cuda"),
    "multinomial": lambda d: torch.multinomial(fill(torch.float32).reshape(10, 50) + 0.1, 5),
    "poisson": lambda d: torch.poisson(fill(torch.float32) + 3),
    "kaiming_uniform_": lambda d: init.kaiming_uniform_(fill(d, 400).reshape(20, 20)),
    "xavier_normal_": lambda d: init.xavier_normal_(fill(d, 400).reshape(20, 20)),
    "trunc_normal_": lambda d: init.trunc_normal_(fill(torch.float32, 400).reshape(20, 20)),
    "orthogonal_": lambda d: init.orthogonal_(fill(torch.float32, 64).reshape(8, 8)),
    "gumbel_softmax": lambda d: F.gumbel_softmax(fill(torch.float32).reshape(50, 10)),
    "rrelu": lambda d: F.rrelu(fill(torch.float32) - 1, training=True),
    "new_empty": lambda d: fill(d).new_empty(30),
    "dropout": lambda d: F.dropout(fill(d) + 1, 0.3),
    "dropout1d": lambda d: F.dropout1d(fill(d).reshape(5, 10, 10) + 1, 0.3),
    "dropout2d": lambda d: F.dropout2d(fill(d).reshape(2, 10, 5, 5) + 1, 0.3),
    "dropout3d": lambda d: F.dropout3d(fill(d, 800).reshape(2, 10, 2, 4, 5) + 1, 0.3),
    "alpha_dropout": lambda d: F.alpha_dropout(fill(d) + 1, 0.3, True),
    "feature_alpha_dropout": lambda d: F.feature_alpha_dropout(fill(d).reshape(5, 10, 10) + 1, 0.3, True),
    "attention": lambda d: F.scaled_dot_product_attention(*[fill(d).reshape(1, 1, 50, 10)] * 3, dropout_p=0.2),
}


@pytest.mark.parametrize("name", A9)
def test_a9_clean_random_operators_are_not_accused(name):
    for seed, dtype in enumerate(DTYPES):
        torch.manual_seed(seed)
        tool = watch(lambda d=dtype: A9[name](d))
        assert tool.ok, tool.findings()


@pytest.mark.parametrize("name", [name for name in A9 if name not in ("new_empty",)])
def test_generators_are_not_disturbed(name):
    """The same numbers, and the same states afterwards, with and without the tool; the CPU's generator too."""

    def run():
        torch.manual_seed(11)
        cpu = torch.rand(3)
        first = A9[name](torch.float32)
        return cpu, first, torch.rand(5, device="cuda"), torch.rand(3), torch.cuda.get_rng_state()

    bare, watched = run(), []
    watch(lambda: watched.extend(run()))
    assert all(torch.equal(a, b) for a, b in zip(bare, watched, strict=True))


def test_a_generator_of_ones_own():
    generator = torch.Generator("cuda").manual_seed(4)
    want = torch.rand(50, device="cuda", generator=generator)
    state = generator.get_state()
    generator.manual_seed(4)
    got = []
    tool = watch(lambda: got.append(torch.rand(50, device="cuda", generator=generator)))
    assert tool.ok and tool.describe()["forward"]["compared"] == 1
    assert torch.equal(got[0], want) and torch.equal(generator.get_state(), state)


@pytest.mark.parametrize("name", ["uniform_", "normal_", "exponential_", "cauchy_", "rand", "randn", "bernoulli_"])
@pytest.mark.parametrize("kind", ["nan", "unwritten"])
def test_broken_draws_are_found(name, kind):
    tool = watch(lambda: A9[name](torch.float32), f"{kind}:*{name.rstrip('_')}*;{kind}:uniform*;{kind}:normal*")
    assert not tool.ok
    assert tool.findings()[0]["name"].rpartition(".")[2] == name


def test_one_wrong_number_is_found_where_the_cpu_draws_the_same():
    tool = watch(lambda: fill(torch.float32).exponential_(), "value:exponential_,scale=0.01")
    assert [finding["name"] for finding in tool.findings()] == ["torch.Tensor.exponential_"]
    assert "same state" in tool.findings()[0]["reason"]


def test_a_number_out_of_range_is_found():
    tool = watch(lambda: torch.randint(5, (100,), device="cuda"), "value:random*,scale=2;value:randint*,scale=2")
    assert not tool.ok and "from 0 to 4" in tool.findings()[0]["reason"]


def test_no_permutation_is_found():
    tool = watch(lambda: torch.randperm(40, device="cuda"), "value:randperm*,scale=0.1")
    assert not tool.ok and "permutation" in tool.findings()[0]["reason"]


# Dropout


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("training", [True, False])
def test_dropout_and_its_gradient(dtype, training):
    x = torch.randn(30, 40).to("cuda", dtype).requires_grad_()

    def run():
        y = F.dropout(x, 0.4, training)
        y.backward(torch.randn(30, 40).to("cuda", dtype))
        F.dropout(F.relu(x), 0.1, training).sum().backward()  # zeros tell nothing of the mask

    tool = watch(run)
    assert tool.ok, tool.findings()
    assert tool.describe()["backward"]["compared"] >= (4 if training else 2)  # without training there is no node


def test_wrong_dropout_is_found():
    x = torch.randn(2000, device="cuda").requires_grad_()
    tool = watch(lambda: F.dropout(x, 0.4), "value:native_dropout,scale=0.1,index=3;value:mul*,scale=0.1,index=3")
    assert not tool.ok and tool.findings()[0]["kind"] == "forward"
    tool = watch(lambda: F.dropout(x, 0.4).backward(torch.ones_like(x)), "value:native_dropout_backward,scale=0.5")
    assert not tool.ok and tool.findings()[0]["kind"] == "backward"


def test_wrong_share_of_dropout_is_found():
    """The device is told another probability than the CPU: what it drops is too little."""
    x = torch.ones(3000, device="cuda")
    tool = watch(lambda: F.dropout(x, 0.4), "unwritten:native_dropout")
    assert not tool.ok


@pytest.mark.parametrize("fault", ["", "value:native_dropout_backward,scale=0.25,index=3"])
def test_dropout_gradient_where_the_input_is_zero(fault):
    """There the result does not tell what was kept: the device's gradient is the scaled one or 0, and nothing else."""
    kept = set()
    for seed in range(8):
        torch.manual_seed(seed)
        x = torch.tensor([5.0, 0.0] * 20, device="cuda").requires_grad_()
        tool = watch(lambda x=x: F.dropout(x, 0.5).backward(torch.full_like(x, 3.0)), fault)
        kept.add(x.grad[3].item())
        assert tool.describe()["backward"]["compared"] == 1
        assert tool.ok == (not fault), tool.findings()
    assert kept == ({1.5, 7.5} if fault else {0.0, 6.0})


def test_thousands_of_clean_draws_never_cry_wolf():
    x = torch.ones(200, device="cuda")

    def run():
        for _ in range(300):
            F.dropout(x, 0.5)
            x.bernoulli(0.2)
            torch.randint(7, (60,), device="cuda")

    tool = watch(run)
    assert tool.ok and tool.describe()["forward"]["compared"] == 900
