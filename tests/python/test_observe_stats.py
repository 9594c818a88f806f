"""OpObserve with stats=1: what a call and its backward wrote, in numbers and a hash."""

from __future__ import annotations

import math

import ditorch  # noqa: F401
import op_tools
import pytest
import torch


def observe(function, tmp_path, **options):
    """The records of one function's calls, without the tools' own."""
    tool = op_tools.OpObserve(results=str(tmp_path), console="off", **options)
    with tool:
        function()
    return [record for record in tool.records() if record["type"] in ("call", "backward")]


def get(records, name, kind="call"):
    (record,) = [r for r in records if r["type"] == kind and r["name"].rpartition(".")[2] == name]
    return record


def test_numbers_are_those_of_the_result(tmp_path):
    x = torch.tensor([[1.0, -4.0, math.nan], [math.inf, 2.0, 0.5]], device="cuda")
    record = get(observe(lambda: x * 2, tmp_path, stats=True), "mul")
    finite = torch.tensor([2.0, -8.0, 4.0, 1.0])
    assert (record["stats.numel"], record["stats.nan"], record["stats.inf"]) == (6, 1, 1)
    assert record["stats.norm"] == pytest.approx(float(finite.norm()))
    assert record["stats.mean"] == pytest.approx(float(finite.mean()))
    assert record["stats.min"] == -8.0 and record["stats.max"] == math.inf and record["stats.dtype"] == "float32"


def test_several_results_are_one(tmp_path):
    x = torch.tensor([3.0, 1.0, 2.0], device="cuda")
    record = get(observe(lambda: torch.sort(x), tmp_path, stats=True), "sort")
    assert record["stats.numel"] == 6 and record["stats.max"] == 3.0 and record["stats.min"] == 0.0


def test_the_hash_tells_values_apart(tmp_path):
    x = torch.arange(6.0, device="cuda")
    hashes = []
    for factor in (1.0, 1.0, 1.0000001):
        hashes.append(get(observe(lambda f=factor: x * f, tmp_path, stats=True), "mul")["stats.hash"])
    assert hashes[0] == hashes[1] != hashes[2]


def test_what_changed_in_place_counts(tmp_path):
    x = torch.zeros(4, device="cuda")

    def change():
        x[1:3] = 5.0

    record = get(observe(change, tmp_path, stats=True), "__setitem__")
    assert record["stats.numel"] == 4 and record["stats.max"] == 5.0


def test_the_backward_has_a_record(tmp_path):
    x = torch.ones(3, device="cuda", requires_grad=True)
    records = observe(lambda: (x * 3).sum().backward(), tmp_path, stats=True)
    record = get(records, "mul", "backward")
    assert record["stats.max"] == 3.0 and record["id"] == get(records, "mul")["id"]


def test_uninitialised_memory_has_no_numbers(tmp_path):
    records = observe(lambda: torch.empty(4, device="cuda") if True else None, tmp_path, stats=True)
    assert not [key for key in get(records, "empty") if key.startswith("stats.")]


def test_without_the_option_nothing_is_added(tmp_path):
    x = torch.ones(3, device="cuda", requires_grad=True)
    records = observe(lambda: (x * 3).sum().backward(), tmp_path)
    assert {record["type"] for record in records} == {"call"}
    assert not [key for record in records for key in record if key.startswith("stats.")]


def test_the_results_stay_the_same(tmp_path):
    def train():
        torch.manual_seed(3)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 1)).cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(3):
            loss = model(torch.randn(5, 4, device="cuda")).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        return [parameter.detach().cpu().clone() for parameter in model.parameters()]

    seen = []
    plain = train()
    observe(lambda: seen.extend(train()), tmp_path, stats=True)
    assert all(torch.equal(one, other) for one, other in zip(plain, seen, strict=True))
