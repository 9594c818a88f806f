"""LMDeploy's OpenAI server under 64 requests at a time for minutes: no error, each answer as alone, memory stays.

python tests/lmdeploy/soak.py maca --graph --seconds 600
"""

from __future__ import annotations

import argparse
import asyncio

import cases_server
import dlinfer  # the device first: LMDeploy looks for it while it is imported
import server
from case_list import make_model


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("device", choices=["ascend", "maca", "camb"])
    parser.add_argument("--graph", action="store_true")
    parser.add_argument("--seconds", type=float, default=600)
    arguments = parser.parse_args()
    dlinfer.use_vendor(arguments.device)
    folder, model = make_model()
    with server.start(folder, arguments.device, arguments.graph, environment=cases_server.INVARIANT) as running:
        load = asyncio.run(cases_server.put_load(running, 1 << 30, arguments.seconds))
    right, note = cases_server.judge(load, folder, model)
    different = sorted(set(load.differing()))
    right = right and not different
    first, last = (size >> 20 for size in (load.memory[0], load.memory[-1]))
    print(f"{note}; {len(load.memory)} rounds, memory {first} MiB after the first and {last} MiB after the last, "
          f"{load.growth() / 2**20:+.1f} MiB in the second half: {'right' if right else 'WRONG'}")  # fmt: skip
    for line in different:
        print(line)
    return 0 if right else 1


if __name__ == "__main__":
    raise SystemExit(main())
