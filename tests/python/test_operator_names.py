"""Names of operators in all places that take them: every spelling people know is understood, and what matches nothing
says so with the nearest names."""

import os
import warnings

import ditorch
import pytest
import torch
import torch.nn.functional as F
from ditorch import _C, controls
from op_tools import OpObserve
from op_tools.selection import NameList

QUIET = {"log": False, "console": "off"}


# Faults

SOFTMAX = (
    "softmax",
    "torch.softmax",
    "F.softmax",
    "torch.nn.functional.softmax",
    "aten::softmax",
    "_softmax",
    "aten::_softmax",
    "torch.ops.aten._softmax",
    "aten::_softmax.default",
    "*softmax*",
    "mm|softmax",
)


@pytest.mark.parametrize("name", SOFTMAX)
def test_a_fault_takes_every_name_of_an_operator(name):
    x = torch.rand(4, 5, device="cuda")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with ditorch.fault(f"nan:{name}") as fault:
            assert torch.softmax(x, 1).isnan().any().item()
            assert fault.count == 1


COMPOSED = {
    "conv2d": lambda: F.conv2d(torch.rand(1, 1, 4, 4, device="cuda"), torch.rand(1, 1, 2, 2, device="cuda")),
    "linear": lambda: F.linear(torch.rand(2, 3, device="cuda"), torch.rand(4, 3, device="cuda")),
    "matmul": lambda: torch.rand(2, 3, device="cuda") @ torch.rand(3, 2, device="cuda"),
    "cross_entropy": lambda: F.cross_entropy(torch.rand(2, 3, device="cuda"), torch.tensor([0, 1], device="cuda")),
    "layer_norm": lambda: F.layer_norm(torch.rand(2, 3, device="cuda"), (3,)),
    "max_pool2d": lambda: F.max_pool2d(torch.rand(1, 1, 4, 4, device="cuda"), 2),
    "Tensor.add_": lambda: torch.zeros(3, device="cuda").add_(1),
    "add.out": lambda: torch.add(torch.zeros(3, device="cuda"), 1, out=torch.empty(3, device="cuda")),
    "torch.square": lambda: torch.rand(3, device="cuda").square(),
}


@pytest.mark.parametrize("name", COMPOSED)
def test_a_function_that_is_made_of_others_means_those(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with ditorch.fault(f"slow:{name},ms=0") as fault:
            COMPOSED[name]()
            assert fault.count


@pytest.mark.parametrize(("name", "near"), [("sofmax", "softmax"), ("torch.sofmax", "softmax"), ("ad.out", "add.out")])
def test_a_fault_that_matches_nothing_is_told(name, near):
    said = f"fault rule 1: '{name}' matches no operator; the nearest are .*{near}"
    with pytest.warns(RuntimeWarning, match=said), ditorch.fault(f"nan:{name}"):
        pass


def test_an_operator_that_needs_no_kernel_is_told():
    said = "fault rule 2: 'is_floating_point' never comes to the device itself"
    with pytest.warns(RuntimeWarning, match=said), ditorch.fault("nan:mm; nan:is_floating_point"):
        pass


def test_the_example_of_the_readme_fires(python):
    program = """
        import ditorch, torch
        print(torch.softmax(torch.rand(3, device="cuda"), 0).isnan().any().item())
        """
    assert python(program, DITORCH_FAULT="nan:softmax", DITORCH_BANNER="0").stdout.split() == ["True"]
    program = "import warnings\nwarnings.simplefilter('always')\nimport ditorch\n"
    answer = python(program, DITORCH_FAULT="nan:sofmax", DITORCH_BANNER="0")
    assert "fault rule 1: 'sofmax' matches no operator; the nearest are softmax" in answer.stderr


def test_what_was_injected_is_known_afterwards():
    x = torch.rand(3, 3, device="cuda")
    with ditorch.fault("nan:mm") as outer:
        x @ x
        with ditorch.fault("nan:exp") as inner:
            x.exp(), x.exp()
        x @ x
    x @ x
    assert (outer.count, inner.count) == (2, 2)
    assert "2 injected" in repr(outer) and "2 injected" in repr(inner)


# Controls


@pytest.mark.parametrize(
    "name", ["add.out,conv2d", ".*.Scalar", "torch.add", "Tensor.add_", "F.softmax", "aten::mm.default"]
)
def test_controls_take_the_same_names(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with controls.use(force_fallback=name):
            pass


@pytest.mark.parametrize(
    ("name", "near"), [("nosuchop", "nearest"), ("sofmax", "softmax"), ("torch.sofmax", "softmax")]
)
def test_controls_tell_what_matches_nothing(name, near):
    with (
        pytest.warns(
            UserWarning, match=f"'{name}' matches no operator; the nearest are .*{near if near != 'nearest' else ''}"
        ),
        controls.use(force_fallback=name),
    ):
        pass


def test_controls_follow_the_environment(capfd, monkeypatch):
    """DIPU's variables are changeable while a program runs."""
    x = torch.rand(3, device="cuda")
    monkeypatch.setenv("DIPU_DUMP_OP_ARGS", "2")
    x.exp()
    out = capfd.readouterr().out
    assert "--[aten::exp]" in out and "numel: 3" in out, out
    monkeypatch.delenv("DIPU_DUMP_OP_ARGS")
    x.exp()
    assert "aten::exp" not in capfd.readouterr().out
    ditorch.reset_counters()
    monkeypatch.setenv("DIPU_FORCE_FALLBACK_OPS_LIST", "exp")
    x.exp()
    monkeypatch.delenv("DIPU_FORCE_FALLBACK_OPS_LIST")
    assert [row["operator"] for row in ditorch.fallbacks()] == ["aten::exp"]
    with pytest.raises(ValueError, match="DIPU_DUMP_OP_ARGS"):
        os.environ["DIPU_DUMP_OP_ARGS"] = "9"
        x.exp()
    os.environ.pop("DIPU_DUMP_OP_ARGS", None)
    x.exp()


# Lists of the tools

WANTED = {
    "softmax": (
        "torch.softmax",
        "torch.Tensor.softmax",
        "torch.nn.functional.softmax",
        "aten::_softmax",
        "aten::softmax",
    ),
    "F.softmax": ("torch.nn.functional.softmax", "aten::_softmax"),
    "Tensor.add_": ("torch.Tensor.add_", "aten::add_"),
    "torch.add": ("torch.add", "aten::add"),
    "aten::add.out": ("aten::add", "torch.add", "torch.Tensor.add"),
    "torch.ops.aten.add.Tensor": ("aten::add", "torch.add", "torch.Tensor.add"),
    "torch.nn.functional.conv2d": ("torch.nn.functional.conv2d", "aten::convolution"),
    "flash_attn_func": ("flash_attn.interface.flash_attn_func",),
}


@pytest.mark.parametrize("entry", WANTED)
def test_lists_take_the_names_that_people_know(entry):
    names = NameList(entry, "the list")
    assert [name for name in WANTED[entry] if not names.match(name)] == []
    for other in ("torch.mul", "aten::mul", "torch.Tensor.add__"):
        assert not names.match(other)


def test_a_word_selects_at_both_levels():
    x = torch.rand(2, 3, device="cuda")
    for level, wanted in (("torch", "torch.softmax"), ("aten", "aten::_softmax")):
        with OpObserve(list="softmax", level=level, results="r", console="off") as observe:
            torch.softmax(x + 1, 1)
        assert [call["name"] for call in observe.calls()] == [wanted]


@pytest.fixture(autouse=True)
def clean(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("options", "near"),
    [
        ({"list": "sofmax"}, "softmax"),
        ({"list": ".*[.]sofmax"}, "softmax"),
        ({"include": "*.sofmax"}, "softmax"),
        ({"disable_list": "adddd"}, "add"),
    ],
)
def test_an_entry_that_matches_nothing_is_told_at_the_start(options, near, capsys, monkeypatch):
    from op_tools import console

    monkeypatch.setattr(console, "_said", set())
    with OpObserve(console="short", log=False, **options):
        pass
    said = [line for line in capsys.readouterr().err.splitlines() if "matches no operator of torch" in line]
    assert len(said) == 1 and near in said[0], said


def test_parts_are_words():
    assert "_softmax" in _C.operator_parts("softmax") and "convolution" in _C.operator_parts("aten::conv2d.padding")
    with pytest.raises(TypeError):
        _C.operator_parts(3)
