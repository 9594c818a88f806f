"""Warm starts: graphs of the backend "dit" come from AOTAutograd's cache, and whatever is wrong there is a miss."""

import copy
import os

import ditorch  # noqa: F401
import pytest
import torch
from compile_cases import TRAINED
from conftest import run_python
from ditorch import graph
from ditorch.graph import cache
from torch._dynamo.utils import counters

WORDS = b"DITG1\0\0\0"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    yield tmp_path
    graph.keep(False)


def compile_again(function, *arguments, dynamic=None):
    """What the function gives when it is compiled anew, and what the cache did."""
    torch._dynamo.reset()
    counters["aot_autograd"].clear()
    result = torch.compile(function, backend="dit", dynamic=dynamic)(*arguments)
    said = {name.removeprefix("autograd_cache_") for name in counters["aot_autograd"] if "cache" in name}
    return result, said


def chain(x):
    return torch.softmax(x * 2 + torch.arange(x.shape[1], device="cuda"), -1)


@pytest.mark.parametrize("dynamic", [False, True])
def test_the_second_time_is_a_hit(dynamic):
    x = torch.randn(4, 8, device="cuda")
    first, said = compile_again(chain, x, dynamic=dynamic)
    assert said == {"miss", "saved"}
    kept = graph.keep()
    second, said = compile_again(chain, x, dynamic=dynamic)
    assert said == {"hit"} and torch.equal(first, second)
    assert kept[0].describe()[0]["regions"] >= 1, "what came from the cache is kept as what was compiled"


def test_training_from_the_cache():
    make, loss_of = TRAINED["llama"]()
    torch.manual_seed(0)
    model = make().to("cuda")
    twin, gradients = copy.deepcopy(model), []
    for which, saids in ((model, {"miss", "saved"}), (twin, {"hit"})):
        torch._dynamo.reset()
        counters["aot_autograd"].clear()
        loss_of(torch.compile(which, backend="dit")).backward()
        said = {name.removeprefix("autograd_cache_") for name in counters["aot_autograd"] if "cache" in name}
        assert said == saids
        gradients.append([p.grad for p in which.parameters()])
    for one, other in zip(*gradients, strict=True):
        assert torch.equal(one, other)


def test_constants_are_kept():
    x = torch.randn(3, 4, device="cuda")
    wanted = x + torch.tensor([1.5, float("nan"), -0.0, float("inf")], device="cuda")
    for saids in ({"miss", "saved"}, {"hit"}):
        got, said = compile_again(lambda a: a + torch.tensor([1.5, float("nan"), -0.0, float("inf")]).cuda(), x)
        torch.testing.assert_close(got, wanted, equal_nan=True)
        assert said == saids


def find_entry(folder):
    (entry,) = [os.path.join(at, name) for at, _, names in os.walk(folder / "aotautograd") for name in names]
    return entry


@pytest.mark.parametrize("damage", ["cut", "empty", "word", "other"])
def test_damage_is_a_miss(damage, folder):
    x = torch.randn(4, 8, device="cuda")
    wanted, _ = compile_again(chain, x)
    path = find_entry(folder)
    with open(path, "rb") as file:
        data = file.read()
    place = data.index(WORDS) + 40
    changed = {
        "cut": data[:-30],
        "empty": b"",
        "word": data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :],
        "other": b"something else",
    }
    with open(path, "wb") as file:
        file.write(changed[damage])
    got, said = compile_again(chain, x)
    assert torch.equal(got, wanted) and said == {"miss", "saved"}
    got, said = compile_again(chain, x)
    assert torch.equal(got, wanted) and said == {"hit"}


def test_another_build_is_a_miss(monkeypatch):
    x = torch.randn(4, 8, device="cuda")
    compile_again(chain, x)
    monkeypatch.setattr(cache, "get_fingerprint", lambda: "of another build")
    assert compile_again(chain, x)[1] == {"miss", "saved"}


def test_a_graph_in_pieces_is_not_kept():
    x = torch.tensor([1.0, 0.0, 2.0], device="cuda")
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        for _ in range(2):
            got, said = compile_again(lambda a: torch.nonzero(a * 2) + 1, x)
            assert got.tolist() == [[1], [3]] and "hit" not in said and "saved" not in said


def test_a_checked_graph_is_not_taken_from_the_cache(monkeypatch):
    x = torch.randn(4, 8, device="cuda")
    compile_again(chain, x)
    monkeypatch.setenv("DITORCH_COMPILE_CHECK", "1")
    assert compile_again(chain, x)[1] == set()


PROGRAM = """
import sys, torch, ditorch
sys.path.insert(0, "tests/python")
from compile_cases import TRAINED
from torch._dynamo.utils import counters
torch.manual_seed(0)
make, loss_of = TRAINED["gpt"]()
model = make().cuda()
loss = loss_of(torch.compile(model, backend="dit"))
loss.backward()
print("cache", sorted(name for name in counters["aot_autograd"] if "cache" in name))
print("loss", loss.item(), sum(p.grad.abs().sum() for p in model.parameters()).item())
"""


@pytest.mark.full
def test_a_second_process_traces_nothing(folder):
    said = [run_python(PROGRAM, TORCHINDUCTOR_CACHE_DIR=str(folder)).stdout.splitlines()[-2:] for _ in range(2)]
    assert "saved" in said[0][0] and said[1][0] == "cache ['autograd_cache_hit']"
    assert said[0][1] == said[1][1]
