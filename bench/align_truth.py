"""How many calls `ditorch compare` aligns right, measured with known truth: a small transformer against itself with
another attention, with activation checkpointing, with both, and on two ranks.

    PYTHONPATH=python python bench/align_truth.py

Every operator of the program stands on a line of its own, which the alignment does not look at.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests" / "python")]

from align_truth import measure  # noqa: E402

CASES = {
    "another attention": (["fused"], 1),
    "activation checkpointing": (["again"], 1),
    "both": (["fused", "again"], 1),
    "two ranks": ([], 2),
}


def record(folder, words, world=1):
    """The logs of one run."""
    script = str(ROOT / "tests" / "python" / "compare_truth.py")
    command = ["run", "--tool", "observe", "--option", "observe.stats=1", "--out", folder]
    if world > 1:
        command += ["--", sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(world)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "DITORCH_BANNER": "0", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", "-m", "ditorch", *command, script, *words]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    return sorted(map(str, Path(folder, "log").glob("*.dlog")))


def main():
    with tempfile.TemporaryDirectory() as folder:
        plain = record(os.path.join(folder, "plain"), [])
        for name, (words, world) in CASES.items():
            for log in record(os.path.join(folder, name.replace(" ", "-")), words, world):
                calls, pairs, right = measure(plain, [log])
                facts = {"against": name, "calls": calls, "pairs": pairs, "right_percent": round(100 * right, 2)}
                print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    main()
