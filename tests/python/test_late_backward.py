"""A backward on the CPU before ditorch is imported: the device's backward works, and the detour goes away."""

import os
import subprocess
import sys

import ditorch
import pytest

pytestmark = pytest.mark.usefixtures("warm_children")

FIRST = """
import threading, torch
def run():
    x = torch.ones(3, requires_grad=True)
    (x * x).sum().backward()
"""
THEN = """
import ditorch
def check(device):
    x = torch.full((3,), 2.0, device=device, requires_grad=True)
    (x * x).sum().backward()
    assert x.grad.tolist() == [4.0, 4.0, 4.0], x.grad
for index in range(torch.cuda.device_count()):
    check(f"cuda:{index}")
check("cpu")
assert torch.autograd._engine_run_backward is torch.autograd.graph._engine_run_backward
threads = [threading.Thread(target=check, args=("cuda",)) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
y = torch.ones(2, device="cuda", requires_grad=True)
print(torch.autograd.grad((y * 3).sum(), y)[0].tolist())
"""


IN_THREAD = "thread = threading.Thread(target=run); thread.start(); thread.join()"


@pytest.mark.parametrize("before", ["run()", "", IN_THREAD], ids=["main", "never", "thread"])
def test_backward_before_import(before, monkeypatch):
    monkeypatch.setenv("DITORCH_HOST_DEVICES", "2")
    monkeypatch.setenv("PYTHONPATH", os.path.dirname(os.path.dirname(ditorch.__file__)))
    program = FIRST + before + THEN
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.splitlines()[-1] == "[3.0, 3.0]"
