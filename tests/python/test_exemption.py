"""ditorch.exempt: packages that see the truth. ditorch.audit: what was redirected, and who uses it."""

import os

import pytest
from conftest import HERE, child_environment, run_python

FAKES = os.path.join(HERE, "fakes")

PACKAGE = """
import torch

def look(x):
    return [torch.cuda.is_available(), torch.cuda.device_count(), x.device.type, str(x.device), repr(x.device),
            x.is_cuda, torch.device("cuda", 1).type, x.untyped_storage().is_cuda]

def equal(x):
    return [torch.device("cuda:0") == x.device, hash(x.device) == hash(torch.device("cuda:0"))]

def make():
    try:
        return str(torch.ones(1, device="cuda").device)
    except Exception as error:
        return type(error).__name__

def call(function, *arguments):
    return function(*arguments)

def move(module):
    return next(module.to("cuda").parameters())
"""

PROGRAM = """
import sys, torch
sys.path.insert(0, {folder!r})
import ditorch
import seer.inner, other
x = torch.ones(2, device="cuda")
aliased = [True, torch.cuda.device_count(), "cuda", "cuda:0", "device(type='cuda', index=0)", True, "cuda", True]
truth = [False, 0, {real!r}, "{real}:0", "device(type='{real}', index=0)", False, "cuda", False]
assert seer.inner.look(x) == aliased, seer.inner.look(x)
plain = torch.cuda.is_available
assert ditorch.exempt("seer") == ["seer"]
assert seer.inner.look(x) == truth, (seer.inner.look(x), truth)
assert seer.inner.equal(x) == [False, False]  # a true CUDA device is another one
assert seer.inner.make() != "cuda:0"
assert other.look(x) == aliased and other.make() == "cuda:0" and other.equal(x) == [True, True]
# what counts is whose line it is: code of others that an exempt package calls is not exempt, torch's included
assert seer.inner.call(other.look, x) == aliased and other.call(seer.inner.look, x) == truth
assert seer.inner.move(torch.nn.Linear(1, 1)).is_cuda
# names that only begin alike are others
assert ditorch.exempt("o") == ["o", "seer"] and other.look(x) == aliased
import threading
answers = []
thread = threading.Thread(target=lambda: answers.append(seer.inner.look(x)))
thread.start(); thread.join()
assert answers == [truth]
try:
    ditorch.exempt("no name!")
except ValueError as error:
    assert "no name!" in str(error)
else:
    raise AssertionError("a bad name was taken")
gate = torch.cuda.is_available
assert gate.__wrapped__ is plain and gate.__name__ == "is_available" and gate.__doc__ == plain.__doc__, gate
assert torch.Tensor.cuda(torch.ones(1)).is_cuda and torch.ones(1).cuda().is_cuda
assert torch.cuda.device_count(*()) == aliased[1]
try:
    torch.cuda.set_device("nonsense:7")
except RuntimeError as error:
    assert "nonsense" in str(error)
assert ditorch.exempt("seer", "o", on=False) == [] and seer.inner.look(x) == aliased
assert torch.cuda.is_available is plain  # the gates are gone
# audit
table = ditorch.audit(True)
names = {{row["name"]: row for row in table}}
assert '"cuda"' in names and len(table) > 30, len(table)
assert names["torch.cuda.device_count"]["was"] == "torch.cuda.device_count"
for _ in range(3):
    other.look(x)
torch.ones(1, device="cuda")
rows = {{row["name"]: row for row in ditorch.audit()}}
assert rows["torch.cuda.is_available"]["calls"] == 3 and rows["torch.cuda.is_available"]["callers"] == "other 3"
assert rows['"cuda"']["callers"] == "other 3, __main__ 1", rows['"cuda"']
assert rows["Tensor.is_cuda"]["calls"] == 6, rows["Tensor.is_cuda"]
ditorch.audit(False)
assert torch.cuda.is_available is plain
assert all(row["calls"] == "" for row in ditorch.audit())
ditorch.exempt("seer")
ditorch.uninstall()
assert not torch.cuda.is_available() and torch.cuda.is_available.__module__ == "torch.cuda"
assert len(ditorch.audit()) == 0
assert other.look(x) == truth and seer.inner.look(x) == truth
ditorch.install(banner=False)
assert other.look(x) == aliased and seer.inner.look(x) == truth  # exemptions are kept
print("done")
"""


def write_packages(folder):
    (folder / "seer").mkdir()
    (folder / "seer" / "__init__.py").write_text("")
    (folder / "seer" / "inner.py").write_text(PACKAGE)
    (folder / "other.py").write_text(PACKAGE)


@pytest.mark.parametrize("backend, alias", [("host", "binary"), ("host", "python"), ("npu", "binary")])
def test_exempt_package_sees_the_truth(tmp_path, backend, alias):
    write_packages(tmp_path)
    path = os.pathsep.join([child_environment()["PYTHONPATH"], FAKES])
    real = "dit" if backend == "host" else backend
    program = PROGRAM.format(folder=str(tmp_path), real=real)
    answer = run_python(program, PYTHONPATH=path, DITORCH_BACKEND=backend, DITORCH_ALIAS=alias)
    assert answer.stdout.strip() == "done"


def test_exempt_and_audit_by_option(tmp_path):
    write_packages(tmp_path)
    answer = run_python(
        f"""
        import sys, torch
        sys.path.insert(0, {str(tmp_path)!r})
        import ditorch, seer.inner, other
        x = torch.ones(2, device="cuda")
        print(seer.inner.look(x)[:3], other.look(x)[:3])
        """,
        DITORCH_EXEMPT="seer, elsewhere",
        DITORCH_AUDIT="1",
        DITORCH_BACKEND="host",
    )
    assert answer.stdout.strip() == "[False, 0, 'dit'] [True, 1, 'cuda']"
    lines = [line for line in answer.stderr.splitlines() if line.startswith("torch.cuda.is_available")]
    assert "ditorch audit:" in answer.stderr and len(lines) == 1 and lines[0].rstrip().endswith("other 1")


def test_nothing_is_wrapped_before_somebody_is_exempt():
    import ditorch
    import torch
    from ditorch import _C

    assert ditorch.exempt() == [] and _C.exempt_counts() is None
    wrapped = [row["name"] for row in ditorch.audit() if "gate" in str(row["now"])]
    assert not wrapped and not isinstance(torch.cuda.is_available, _C.Gate)


def test_gate_checks_its_arguments():
    from ditorch import _C

    with pytest.raises(TypeError, match="two callables"):
        _C.Gate(1, print, "name")
    for bad in ({"x": 2}, {"": 3}, {1: 3}):
        with pytest.raises(ValueError, match="exempt package"):
            _C.exempt_set(bad)
    with pytest.raises(TypeError, match="must be a dict"):
        _C.exempt_set(["x"])
    gate = _C.Gate(int, lambda a, b=2, **rest: (a, b, rest), "label")
    assert gate(1) == (1, 2, {}) and gate(1, b=3, c=4) == (1, 3, {"c": 4}) and gate.label == "label"
    assert gate.old is int and "label" in repr(gate)
    with pytest.raises(AttributeError):
        gate.missing  # noqa: B018
    with pytest.raises(ZeroDivisionError):
        _C.Gate(int, lambda: 1 // 0, "label")()
