"""Shared fixtures: the device, CPU comparison, and child processes.

The test process runs torch on one thread, so that results do not depend on the machine.
"""

import atexit
import functools
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap

import nursery
import pytest
import torch
from longest_first import pytest_collection_modifyitems, pytest_terminal_summary  # noqa: F401

HERE = os.path.dirname(os.path.abspath(__file__))
torch.set_num_threads(1)

# For tests that are about host memory itself, when the suite runs with DITORCH_VENDOR=opaque.
open_memory = pytest.mark.skipif(
    os.environ.get("DITORCH_VENDOR") == "opaque", reason="about device memory that the host can read"
)
# For tests of the judge's rule for the embedded device, which computes as the CPU does; a chip may round otherwise.
careful_device = pytest.mark.skipif(
    os.environ.get("DITORCH_VENDOR") == "opaque", reason="about a device that is held to the CPU's own error"
)


def child_environment(**changes):
    """Environment of a child process that finds the same ditorch; None removes a variable."""
    import ditorch

    home = os.path.dirname(os.path.dirname(os.path.abspath(ditorch.__file__)))
    environment = {k: v for k, v in os.environ.items() if not k.startswith("DITORCH_") or k == "DITORCH_VENDOR"}
    paths = list(filter(None, environment.get("PYTHONPATH", "").split(os.pathsep)))
    environment["PYTHONPATH"] = os.pathsep.join(paths if paths[:1] == [home] else [home, *paths])
    environment["OMP_NUM_THREADS"] = "1"
    for name, value in changes.items():
        environment.pop(name, None)
        if value is not None:
            environment[name] = str(value)
    return environment


@functools.cache
def start_nursery(trains=False):
    """For programs that train there is a second one, with what the first optimizer imports: as much again as torch."""
    made = nursery.Nursery(child_environment(), *["torch._dynamo"] * trains)
    atexit.register(made.close)
    return made


@functools.cache
def warm_interpreter(trains=False):
    """The path of a program that takes the words of this interpreter, and runs them in a process that has imported
    torch already, if that cannot tell the difference (born.py). `trains`: and the parts that optimizers need."""
    folder = tempfile.mkdtemp(prefix="born")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    address = start_nursery(trains).start().hex()
    path = os.path.join(folder, "python")
    words = shlex.join([nursery.INTERPRETER, "-IS", os.path.join(HERE, "born.py"), address, nursery.INTERPRETER, path])
    with open(path, "w") as file:
        file.write(f'#!/bin/sh\nexec {words} "$@"\n')
    os.chmod(path, 0o755)
    return path


@pytest.fixture(scope="module")
def warm_children():
    """What a module's tests start by sys.executable, and the workers that ditorch starts, has imported torch already:
    for modules that are not about the start of a process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", warm_interpreter())
        for name in ("PYTHONPATH", "OMP_NUM_THREADS"):
            patch.setenv(name, child_environment()[name])
        from ditorch import call_worker

        patch.setattr(call_worker, "COMMAND", [sys.executable, *call_worker.COMMAND[1:]])
        yield


def run_python(*arguments, check=True, timeout=600, cwd=None, warm=None, trains=None, **environment):
    """Run this interpreter with `arguments`; a first argument with a newline is a program text. `warm`: in a process
    that has imported torch already (nursery.py); by default a program that cannot tell the difference is. `trains`:
    and what optimizers need; by default a program text that names them and compiles nothing has it."""
    words = list(map(str, arguments))
    environment = child_environment(**environment)
    if words and "\n" in words[0]:
        words[:1] = ["-c", textwrap.dedent(words[0])]
        if trains is None:
            trains = "optim" in words[1] and not any(word in words[1] for word in ("compile", "_dynamo", "_inductor"))
    trains = bool(trains)
    if warm is None:
        warm = nursery.can_be_born(words, environment, child_environment())
    if warm:
        settings = {"environment": environment, "cwd": cwd, "timeout": timeout}
        if words[0] == "-m":  # its workers, ranks and runs
            settings["executable"] = warm_interpreter(trains)
        answer = start_nursery(trains).run(*words, **settings)
    else:
        command = [nursery.INTERPRETER, "-W", "ignore", *words]
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
