"""CPU affinity: off unless asked for, inside what the process has, one share per device or local rank (the arithmetic
is tested in C)."""

import os

import ditorch  # noqa: F401
import torch

PROGRAM = """
import os, torch, ditorch
before = os.sched_getaffinity(0)
torch.cuda.set_device(torch.cuda.device_count() - 1)
torch.ones(1, device="cuda")
print(*sorted(os.sched_getaffinity(0)))
assert os.sched_getaffinity(0) <= before
"""


def test_dipu_25_nothing_is_bound_by_default():
    before = os.sched_getaffinity(0)
    torch.cuda.set_device(0)
    torch.ones(1, device="cuda")
    assert os.sched_getaffinity(0) == before


def test_a_local_rank_has_cpus_of_its_own(python):
    cpus = sorted(os.sched_getaffinity(0))
    result = python(PROGRAM, DIPU_CPU_AFFINITY=1, LOCAL_RANK=1, LOCAL_WORLD_SIZE=2)
    assert result.stdout.split() == [str(cpus[1 % len(cpus)])]
