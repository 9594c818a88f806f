"""ditorch's tools on a program that serves a model: the operator that ditorch's fault hook broke must come out, by its
name in dlinfer. Right here means that the tool found it, so there is nothing more to break."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile

from case_list import Setup, case

SECONDS = 400


def _run(setup: Setup, tool: str, fault: str, kind: str = "llama") -> str:
    """Everything that a run of the model under the tool says."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "ditorch", "run", "--tool", tool, "--out", folder]
        command += ["tests/lmdeploy/serve_like.py", setup.device, kind]
        path = os.pathsep.join(["tests/lmdeploy", *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**os.environ, "DITORCH_FAULT": fault, "PYTHONPATH": path}
        done = subprocess.run(command, capture_output=True, env=environment, timeout=SECONDS, check=False)
    return (done.stdout + done.stderr).decode(errors="replace")


@case("`ditorch run --tool autocompare` names a wrong operator", fault="", modes=("eager",))
def tool_autocompare(setup: Setup) -> tuple[bool, str]:
    text = _run(setup, "autocompare", "value:dlinfer::silu_and_mul")
    names = set(re.findall(r"OpAutoCompare: (\S+) is wrong", text))
    return names == {"dlinfer.silu_and_mul"}, ", ".join(sorted(names))


@case("`ditorch run --tool nan` names the operator of the first NaN", fault="", modes=("eager",))
def tool_nan(setup: Setup) -> tuple[bool, str]:
    text = _run(setup, "nan", "nan:dlinfer::add_rms_norm")
    found = re.search(r"^.*dlinfer\.\S+.*$", text, re.M)
    first = re.search(r"dlinfer\.\w+", found[0])[0] if found else "nothing"
    return first == "dlinfer.add_rms_norm", first


@case("`ditorch run --tool time` names a slow operator", fault="", modes=("eager",))
def tool_time(setup: Setup) -> tuple[bool, str]:
    text = _run(setup, "time", "slow:dlinfer::fused_moe,ms=20", "mixtral")
    found = re.search(r"most time: (\w+)", text)
    return bool(found) and found[1] == "fused_moe", found[1] if found else "nothing"
