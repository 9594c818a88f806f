"""Two devices that share each layer. Each model in a process of its own: a second engine of one process takes the port
of the first one's workers."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from case_list import Setup, case
from faulty import child_environment

SECONDS = 400
"""A hang ends here."""


def _run(setup: Setup, kind: str, executor: str) -> tuple[bool, str]:
    command = [sys.executable, "tests/lmdeploy/run.py", setup.device, kind, "--tp", "2", "--executor", executor]
    environment = {**child_environment(), "DITORCH_HOST_DEVICES": "2"}
    if executor == "ray":
        environment["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"] = "1"
    for name in ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE"):
        environment.pop(name, None)
    command += ["--graph"] if setup.graph else []
    with subprocess.Popen(command, stdout=-1, stderr=-1, env=environment, start_new_session=True) as process:
        try:
            output, errors = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            return False, f"no answer within {SECONDS} s"
    found = re.search(rb"(\d+/\d+) tokens.*: (right|WRONG)", output)
    if found is None:
        return False, errors.decode(errors="replace")[-300:]
    return found[2] == b"right" and process.returncode == 0, found[1].decode()


@case("two devices (tp=2, executor mp), Llama", fault="add_rms_norm")
def tp_llama(setup: Setup) -> tuple[bool, str]:
    return _run(setup, "llama", "mp")


@case("two devices (tp=2, executor mp), Mixtral", fault="fused_moe", devices=("maca",))
def tp_mixtral(setup: Setup) -> tuple[bool, str]:
    return _run(setup, "mixtral", "mp")


@case("two devices (tp=2, executor ray), Llama", fault="add_rms_norm", devices=("maca",), modes=("eager",))
def tp_ray(setup: Setup) -> tuple[bool, str]:
    return _run(setup, "llama", "ray")
