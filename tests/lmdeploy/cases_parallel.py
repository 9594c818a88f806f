"""Two devices that share each layer. Each model in a process of its own: a second engine of one process takes the port
of the first one's workers."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile

from case_list import Setup, case
from faulty import child_environment

SECONDS = 400
"""A hang ends here."""


def _run(setup: Setup, kind: str) -> tuple[bool, str]:
    command = [sys.executable, "tests/lmdeploy/run.py", setup.device, kind, "--tp", "2"]
    environment = {**child_environment(), "DITORCH_HOST_DEVICES": "2"}
    for name in ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE"):
        environment.pop(name, None)
    command += ["--graph"] if setup.graph else []
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, stdout=output, stderr=errors, env=environment, start_new_session=True)
        try:
            process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            return False, f"no answer within {SECONDS} s"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # LMDeploy's workers may outlive it
            process.wait()
        output.seek(0), errors.seek(0)
        return _judge(output.read(), errors.read(), process.returncode)


def _judge(output: bytes, errors: bytes, code: int) -> tuple[bool, str]:
    found = re.search(rb"(\d+/\d+) tokens.*: (right|WRONG)", output)
    if found is None:
        return False, errors.decode(errors="replace")[-300:]
    return found[2] == b"right" and code == 0, found[1].decode()


@case("two devices (tp=2, executor mp), Llama", fault="add_rms_norm")
def tp_llama(setup: Setup) -> tuple[bool, str]:
    return _run(setup, "llama")


@case("two devices (tp=2, executor mp), Mixtral", fault="fused_moe", devices=("maca",))
def tp_mixtral(setup: Setup) -> tuple[bool, str]:
    return _run(setup, "mixtral")
