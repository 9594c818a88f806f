"""Shared fixtures: the device, CPU comparison, and child processes.

The test process runs torch on one thread, so that results do not depend on the machine.
"""

import os
import subprocess
import sys
import textwrap

import pytest
import torch

HERE = os.path.dirname(os.path.abspath(__file__))
torch.set_num_threads(1)


def child_environment(**changes):
    """Environment of a child process that finds the same ditorch; None removes a variable."""
    import ditorch

    home = os.path.dirname(os.path.dirname(os.path.abspath(ditorch.__file__)))
    environment = {k: v for k, v in os.environ.items() if not k.startswith("DITORCH_")}
    environment["PYTHONPATH"] = os.pathsep.join([home, environment.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    environment["OMP_NUM_THREADS"] = "1"
    for name, value in changes.items():
        environment.pop(name, None)
        if value is not None:
            environment[name] = str(value)
    return environment


def run_python(*arguments, check=True, timeout=120, cwd=None, **environment):
    """Run this interpreter with `arguments`; a first argument with a newline is a program text."""
    arguments = list(arguments)
    if arguments and "\n" in arguments[0]:
        arguments[:1] = ["-c", textwrap.dedent(arguments[0])]
    answer = subprocess.run(
        [sys.executable, "-W", "ignore", *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=child_environment(**environment),
        cwd=cwd,
    )
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
