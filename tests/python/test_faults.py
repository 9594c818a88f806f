"""The fault hook: every kind of damage is seen by a comparison with the CPU, on C operators and on fallbacks alike."""

import os
import subprocess
import sys
import time

import ditorch
import pytest
import torch
from conftest import HERE, child_environment

pytestmark = pytest.mark.usefixtures("warm_children")

# One operator that runs in C and one that falls back; `test_targets_are_what_they_claim` keeps this true.
TARGETS = {
    "c": ("aten::mul*", lambda x, y: x * y),
    "fallback": ("aten::atan2*", lambda x, y: torch.atan2(x, y)),
}
VISIBLE = ["value", "precision", "nan", "stride", "input", "unwritten"]


def inputs():
    generator = torch.Generator().manual_seed(1)
    return torch.randn(6, 5, generator=generator).t(), torch.randn(6, 5, generator=generator).t()


def differs(function):
    """Does a comparison with the CPU notice anything, in the result or in the inputs?"""
    x, y = inputs()
    x_d, y_d = x.cuda(), y.cuda()
    wanted, got = function(x, y), function(x_d, y_d)
    try:
        torch.testing.assert_close(got.cpu(), wanted)
        torch.testing.assert_close(x_d.cpu(), x)
        torch.testing.assert_close(y_d.cpu(), y)
    except AssertionError:
        return True
    return False


@pytest.fixture(autouse=True)
def no_rules_left():
    yield
    ditorch.fault("")
    for _, function in TARGETS.values():
        assert not differs(function)


def test_targets_are_what_they_claim():
    for where, (pattern, function) in TARGETS.items():
        ditorch.reset_counters()
        differs(function)
        stem = pattern.strip("*")
        tables = {"c": ditorch.operators(), "fallback": ditorch.fallbacks()}
        assert any(row["operator"].startswith(stem) for row in tables[where]), (where, pattern)


@pytest.mark.parametrize("where", TARGETS)
def test_nothing_differs_without_a_fault(where):
    assert not differs(TARGETS[where][1])


@pytest.mark.parametrize("where", TARGETS)
@pytest.mark.parametrize("kind", VISIBLE)
def test_every_kind_is_seen(kind, where):
    pattern, function = TARGETS[where]
    with ditorch.fault(f"{kind}:{pattern}") as fault:
        assert differs(function), f"{kind} went unnoticed"
        assert fault.count == 1
    assert not differs(function)


@pytest.mark.parametrize("where", TARGETS)
def test_error_raises_and_names_the_operator(where):
    pattern, function = TARGETS[where]
    with (
        ditorch.fault(f"error:{pattern}"),
        pytest.raises(RuntimeError, match="injected fault.*" + pattern.strip("*").split(":")[-1]),
    ):
        differs(function)


@pytest.mark.parametrize("where", TARGETS)
def test_slow_takes_at_least_that_long_and_changes_nothing(where):
    pattern, function = TARGETS[where]
    with ditorch.fault(f"slow:{pattern},ms=60") as fault:
        start = time.perf_counter()
        assert not differs(function)
        assert time.perf_counter() - start >= 0.06 and fault.count == 1


def test_call_number_and_ranges():
    def hits(rule, calls=5):
        x = torch.ones(3, device="cuda")
        with ditorch.fault(rule):
            return [i + 1 for i in range(calls) if (x * 2).isnan().any().item()]

    assert hits("nan:aten::mul.*,call=3") == [3]
    assert hits("nan:mul,call=2-4") == [2, 3, 4]
    assert hits("nan:mul,call=4+") == [4, 5]
    assert hits("nan:mul") == [1, 2, 3, 4, 5]


def test_dtype_filter():
    with ditorch.fault("nan:mul,dtype=float64"):
        assert not (torch.ones(3, device="cuda") * 2).isnan().any()
        assert (torch.ones(3, device="cuda", dtype=torch.float64) * 2).isnan().any()


def test_probability_is_seeded():
    def pattern():
        x = torch.ones(3, device="cuda")
        with ditorch.fault("nan:mul,probability=0.5,seed=7"):
            return [(x * 2).isnan().any().item() for _ in range(40)]

    first = pattern()
    assert first == pattern() and 5 < sum(first) < 35


def test_several_rules():
    with ditorch.fault("nan:mul,call=1; value:atan2,scale=0.5"):
        assert differs(TARGETS["c"][1]) and differs(TARGETS["fallback"][1])
        assert not differs(TARGETS["c"][1])


def test_in_place_and_backward_are_reached():
    with ditorch.fault("nan:mul_*"):
        x = torch.ones(3, device="cuda")
        x.mul_(2)
        assert x.isnan().any()
    x = torch.ones(3, 3, device="cuda", requires_grad=True)
    y = x.softmax(-1)
    with ditorch.fault("nan:_softmax_backward_data*"):
        y.sum().backward()
    assert x.grad.isnan().any()


@pytest.mark.parametrize(
    "text", ["wrong:mul", "nan", "nan:mul,call=x", "nan:mul,color=red", "nan:mul,dtype=float99", "nan:,", ";;:"]
)
def test_bad_rules_name_the_word_and_the_valid_ones(text):
    with ditorch.fault("nan:mul"):
        with pytest.raises((ValueError, RuntimeError)) as caught:
            ditorch.fault(text)
        assert len(str(caught.value)) > 20
        assert (torch.ones(2, device="cuda") * 2).isnan().any()  # the old rules still hold
    if text.startswith("wrong"):
        assert all(kind in str(caught.value) for kind in [*VISIBLE, "slow", "error"])


def test_environment_variable(python):
    answer = python(
        """
        import torch, ditorch
        print((torch.ones(3, device="cuda") * 2).isnan().any().item())
    """,
        DITORCH_FAULT="nan:mul,call=1",
    )
    assert answer.stdout.strip() == "True"
    answer = python("import torch, ditorch\n", check=False, DITORCH_FAULT="wrong:mul")
    assert answer.returncode != 0 and "wrong" in answer.stderr and "precision" in answer.stderr


def test_rules_that_never_act_are_named(python):
    text = "fault 'nan:mm;nan:mul': rule 1 matched none of 2 operator calls"
    with pytest.warns(RuntimeWarning, match=text), ditorch.fault("nan:mm;nan:mul"):
        torch.ones(3, device="cuda") * 2
    program = 'import torch, ditorch\nx = torch.ones(3, device="cuda") * 2\n'
    idle = "ditorch: fault 'nan:mm': rule 1 matched none of"
    assert idle in python(program, DITORCH_FAULT="nan:mm").stderr
    assert idle not in python(program + "x.view(1, 3) @ x\n", DITORCH_FAULT="nan:mm|mv|addmv").stderr
    assert idle not in python("import torch, ditorch\n", DITORCH_FAULT="nan:mm").stderr  # nothing ran


def test_the_operator_database_run_can_fail():
    """A damaged operator turns its entry of the OpInfo run red, and only its own."""
    runner = os.path.join(os.path.dirname(HERE), "torch", "opinfo.py")
    arguments = [sys.executable, runner, "--ops", "mul,tril", "--dtypes", "float32", "--samples", "6", "--jobs", "1"]
    answer = subprocess.run(
        arguments, capture_output=True, text=True, env=child_environment(DITORCH_FAULT="value:mul.Tensor,call=2+")
    )
    assert answer.returncode == 1 and "WRONG mul [float32]: " in answer.stdout and "values differ" in answer.stdout, (
        answer.stdout + answer.stderr
    )
    assert "WRONG tril" not in answer.stdout


def test_a_training_step_goes_wrong_where_it_should():
    def loss():
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 4).cuda()
        out = model(torch.ones(2, 4, device="cuda")).relu().sum()
        out.backward()
        return out.item(), model.weight.grad.sum().item()

    clean = loss()
    assert clean == loss()
    with ditorch.fault("value:relu*,scale=0.2"):
        assert loss() != clean
    assert loss() == clean
