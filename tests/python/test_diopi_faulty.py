"""The device on a library that lies: results are wrong where the rules say, and the tools name the operator."""

from __future__ import annotations

SHOW = """
import torch
x = torch.linspace(-1, 1, 12, device="cuda").reshape(3, 4)
print((x.cpu().softmax(1) - x.softmax(1).cpu()).abs().max().item() > 1e-3)
print((x.cpu().exp() - x.exp().cpu()).abs().max().item() > 1e-3)
"""


def run(python, code, **environment):
    return python(
        "import torch, ditorch" + code, DITORCH_DIOPI_LIB="faulty", DITORCH_BANNER="0", **environment
    ).stdout.split()


def test_without_rules_everything_is_right(python):
    assert run(python, SHOW) == ["False", "False"]


def test_a_rule_breaks_one_operator_and_no_other(python):
    assert run(python, SHOW, DITORCH_FAULTY="value:diopiSoftmax,scale=0.5") == ["True", "False"]
    assert run(python, SHOW, DITORCH_FAULTY="value:diopiExp*,scale=0.5") == ["False", "True"]


def test_an_error_of_the_library_reaches_the_program(python):
    code = """
import torch
try:
    torch.rand(3, device="cuda").softmax(0)
except RuntimeError as error:
    print(str(error).splitlines()[0].replace(" ", "_"))
"""
    (text,) = run(python, code, DITORCH_FAULTY="error:diopiSoftmax")
    assert text == "diopiSoftmax_failed:_diopiErrorOccurred:_injected_fault:_diopiSoftmax_failed"


def test_a_bad_rule_or_library_is_told_at_the_first_call(python):
    code = "\nimport torch\ntorch.rand(3, device='cuda').softmax(0)"
    options = {"DITORCH_DIOPI_LIB": "faulty", "DITORCH_BANNER": "0", "check": False}
    answer = python("import torch, ditorch" + code, DITORCH_FAULTY="burn:diopiSoftmax", **options)
    assert answer.returncode == 1 and "unknown kind 'burn'; valid: value, precision" in answer.stderr
    answer = python("import torch, ditorch" + code, DITORCH_FAULTY_LIB="faulty", **options)
    assert answer.returncode == 1 and "would wrap itself" in answer.stderr


def test_the_comparison_names_the_broken_operator(python):
    code = """
import torch
from op_tools import OpAutoCompare
x = torch.randn(64, 64, device="cuda")
with OpAutoCompare(console="off") as tool:
    y = torch.relu(x) @ x
    z = torch.tanh(y).softmax(1)
print(*sorted({finding["name"] for finding in tool.findings()}))
"""
    assert run(python, code, DITORCH_FAULTY="value:diopiTanh*,scale=0.5") == ["torch.tanh"]
