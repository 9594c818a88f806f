"""Shared fixtures: the device, CPU comparison, and child processes.

The test process runs torch on one thread, so that results do not depend on the machine.
"""

import atexit
import functools
import os
import subprocess
import sys
import textwrap

import nursery
import pytest
import torch

HERE = os.path.dirname(os.path.abspath(__file__))
LONG = ["verdict_corpus", "device_cases", "scripts", "distributed", "replay", "collectives", "dipu_names", "repro"]
"""Files that take longest. They come first, so that no worker is left with one of them while the others are done."""
torch.set_num_threads(1)

# For tests that are about host memory itself, when the suite runs with DITORCH_VENDOR=opaque.
open_memory = pytest.mark.skipif(
    os.environ.get("DITORCH_VENDOR") == "opaque", reason="about device memory that the host can read"
)
# For tests of the judge's rule for the embedded device, which computes as the CPU does; a chip may round otherwise.
careful_device = pytest.mark.skipif(
    os.environ.get("DITORCH_VENDOR") == "opaque", reason="about a device that is held to the CPU's own error"
)


def pytest_collection_modifyitems(items):
    places = {f"test_{name}.py": place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: places.get(item.path.name, len(LONG)))


def child_environment(**changes):
    """Environment of a child process that finds the same ditorch; None removes a variable."""
    import ditorch

    home = os.path.dirname(os.path.dirname(os.path.abspath(ditorch.__file__)))
    environment = {k: v for k, v in os.environ.items() if not k.startswith("DITORCH_") or k == "DITORCH_VENDOR"}
    environment["PYTHONPATH"] = os.pathsep.join([home, environment.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    environment["OMP_NUM_THREADS"] = "1"
    for name, value in changes.items():
        environment.pop(name, None)
        if value is not None:
            environment[name] = str(value)
    return environment


@functools.cache
def start_nursery():
    made = nursery.Nursery(child_environment())
    atexit.register(made.close)
    return made


def run_python(*arguments, check=True, timeout=600, cwd=None, warm=None, **environment):
    """Run this interpreter with `arguments`; a first argument with a newline is a program text. `warm`: in a process
    that has imported torch already (nursery.py); by default a program text that cannot tell the difference is."""
    words = list(map(str, arguments))
    environment = child_environment(**environment)
    if words and "\n" in words[0]:
        words[:1] = ["-c", textwrap.dedent(words[0])]
        if warm is None:
            warm = nursery.can_be_born(words[1], environment, child_environment())
    if warm:
        answer = start_nursery().run(*words, environment=environment, cwd=cwd, timeout=timeout)
    else:
        command = [sys.executable, "-W", "ignore", *words]
        settings = {"capture_output": True, "text": True, "timeout": timeout, "env": environment, "cwd": cwd}
        answer = subprocess.run(command, **settings)
    if check and answer.returncode != 0:
        raise AssertionError(f"exit status {answer.returncode}\n{answer.stdout[-3000:]}\n{answer.stderr[-6000:]}")
    return answer


@pytest.fixture
def python():
    """Function that runs a program text or a script in a child process (see run_python)."""
    return run_python


@pytest.fixture(scope="session")
def device():
    import ditorch  # noqa: F401

    return torch.device("cuda")


@pytest.fixture(autouse=True)
def fixed_seed():
    torch.manual_seed(20240517)


@pytest.fixture
def close():
    """close(device_value, cpu_value): device, dtype, shape and values agree, with torch.testing's tolerances."""

    def check(mine, wanted, **tolerance):
        if isinstance(wanted, (tuple, list)):
            assert len(mine) == len(wanted)
            for a, b in zip(mine, wanted, strict=False):
                check(a, b, **tolerance)
        elif isinstance(wanted, torch.Tensor):
            assert mine.device.type == "cuda", mine.device
            torch.testing.assert_close(mine.detach().cpu(), wanted.detach(), equal_nan=True, **tolerance)
        else:
            assert mine == wanted

    return check
