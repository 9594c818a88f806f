"""The names of the graph engine's backends, and the environment variables of DICP."""

import ditorch  # noqa: F401
import pytest
import torch
from ditorch import graph


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()


def function(x):
    return torch.softmax(x.sin() * 2, -1)


@pytest.mark.parametrize("name", ["ascendgraph", "topsgraph", "dit"])
def test_names_of_dicp_are_the_engine(name):
    kept = graph.keep()
    x = torch.randn(4, 8, device="cuda")
    torch.testing.assert_close(torch.compile(function, backend=name)(x), function(x))
    assert len(kept) == 1
    graph.keep(False)


@pytest.mark.full  # the compiler takes its time
def test_inductor_behind_the_device():
    pytest.importorskip("torch._inductor")
    model = torch.nn.Linear(8, 4).cuda()
    x = torch.randn(3, 8, device="cuda")

    def step(x):
        return model(x).relu().sum(), x.sin()

    try:
        got = torch.compile(step, backend="dit_inductor")(x)
    except Exception as error:
        if "C++ compiler" in str(error):
            pytest.skip("no C++ compiler")
        raise
    assert got[1].is_cuda
    torch.testing.assert_close(got, step(x))
    got[0].backward()
    mine = model.weight.grad.clone()
    model.zero_grad()
    step(x)[0].backward()
    torch.testing.assert_close(mine, model.weight.grad)


def test_inductor_without_a_compiler_is_one_sentence(monkeypatch):
    from torch._inductor import config

    monkeypatch.setattr(config.cpp, "cxx", ("no-such-compiler",))
    with pytest.raises(Exception, match="needs a C\\+\\+ compiler"):
        torch.compile(function, backend="dit_inductor")(torch.randn(4, 8, device="cuda"))


@pytest.mark.parametrize(("name", "said"), [
    ("SD_FP16", "autocast"), ("DICP_SD_CLAST", "channels_last"), ("DICP_TOPS_DEBUG", "explain"),
    ("TEST_DICP_INFER", "always"), ("DICP_TOPS_DIPU", "always"), ("DICP_TOPS_DEVICE_ID", "tensors"),
    ("DICP_NO_SUCH", "none of DICP's"),
])  # fmt: skip
def test_variables_without_effect_are_said(name, said):
    from ditorch.graph import dicp_variables

    (text,) = dicp_variables.list_ignored({name: "1"})
    assert name in text and said in text


def test_variables_that_are_off_say_nothing():
    from ditorch.graph import dicp_variables

    assert dicp_variables.list_ignored({"SD_FP16": "0", "DICP_TOPS_DEBUG": "False", "LOCAL_RANK": "1"}) == []
