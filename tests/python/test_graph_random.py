"""Random programs under backend="dit" equal eager ones (random_graphs.py); a broken engine is found and shrunk."""

import logging
import os

import ditorch  # noqa: F401
import pytest
import random_graphs
import torch

MANY = int(os.environ.get("DIT_RANDOM_GRAPHS", "4000"))  # of test_many


@pytest.fixture(autouse=True)
def quiet():
    logging.disable(logging.ERROR)  # Dynamo tells of every graph break
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", range(40, 60))
def test_sample(seed):
    assert random_graphs.check(seed) == ""


@pytest.mark.full
@pytest.mark.parametrize("first", range(10_000, 10_000 + MANY, 250))
def test_many(first):
    reports = [random_graphs.check(seed) for seed in range(first, min(first + 250, 10_000 + MANY))]
    assert [report for report in reports if report] == []


def test_a_mistake_is_found_and_shrunk(monkeypatch):
    """Every sum loses its sign."""
    from ditorch.graph import elementwise

    monkeypatch.setitem(elementwise.BINARY, "mul", "MAXIMUM")
    program = random_graphs.Program(
        1, {"x0": ([(4, 3)], "float32", "plain"), "x1": ([(3,)], "float32", "strided")},
        ["v0 = x0.relu()", "v1 = v0 * x1", "v2 = x0 - 1", "v3 = v2.abs()"], set(), False,
    )  # fmt: skip
    assert "v1" in random_graphs.find_difference(program)
    small = random_graphs.shrink(program)
    assert len(small.statements) < 4 and any("*" in line for line in small.statements)


def test_statements_are_dropped_when_they_raise():
    program = random_graphs.Maker(3).make()
    space = {"torch": torch}
    exec(program.get_source(), space)
    space["program"](**random_graphs.make_arguments(program, 0))


def test_empty_rows_have_values_of_their_own():
    """A group of empty rows took a value of its level from outside and never wrote it."""

    def function(empty, x):
        return empty.sum() * 0 + 1, x.to(torch.float32).sum(-1, keepdim=True)

    empty, x = torch.zeros(0, device="cuda"), torch.full((1, 1, 1), 1.5, dtype=torch.bfloat16, device="cuda")
    got = torch.compile(function, backend="dit", dynamic=False)(empty, x)
    assert [value.item() for value in got] == [1.0, 1.5]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.to(torch.int16).round(),
        lambda x: torch.nn.functional.logsigmoid(x).sum(),
        lambda x: torch.nn.functional.elu(x[:0], alpha=1.2) * 2 + 1,
        lambda x: torch.where(x.T > 0, x.T, 0).sum(0, keepdim=True),
        lambda x: torch.as_strided(x[1:3], (8, 2), (3, 1), 0) + 1,
    ],
    ids=[
        "round of integers",
        "a buffer of the device's own",
        "numbers for tensors",
        "a column of strides",
        "as_strided",
    ],
)
def test_found_by_the_database(function):
    x = torch.linspace(-2, 2, 24, device="cuda").view(8, 3).requires_grad_(True)
    y = x.detach().clone().requires_grad_(True)
    torch._dynamo.reset()
    got, wanted = torch.compile(function, backend="dit")(x), function(y)
    torch.testing.assert_close(got, wanted)
    if wanted.requires_grad:
        got.float().sum().backward()
        wanted.float().sum().backward()
        torch.testing.assert_close(x.grad, y.grad)
