"""What a process group says when something goes wrong. `dist_failure.py KIND` with torchrun's variables set; rank 0
prints the exception it gets and how long that took."""

import os
import signal
import sys
import time
import warnings
from datetime import timedelta

import ditorch  # noqa: F401
import torch
import torch.distributed as dist

warnings.simplefilter("ignore")
torch.set_num_threads(1)
kind = sys.argv[1]
timeout = timedelta(seconds=float(os.environ.get("DIST_TIMEOUT", 60)))
if kind == "start":  # world size mismatch, missing master: the error comes from here
    dist.init_process_group("nccl", timeout=timeout)
    sys.exit("started")
dist.init_process_group("nccl", timeout=timeout)
rank = dist.get_rank()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2000, 200).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
began = time.monotonic()
try:
    for step in range(6):
        if step == 3 and rank == 1:
            if kind == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            elif kind == "hang":
                time.sleep(600)
            elif kind == "leave":
                raise SystemExit(7)
            elif kind == "abort":
                time.sleep(600)
        if step == 3 and kind == "abort":
            work = dist.all_reduce(torch.ones(3, device="cuda"), async_op=True)
            dist.group.WORLD._get_backend(torch.device("cuda")).abort()
            work.wait()
        optimizer.zero_grad()
        model(torch.ones(4, 2000, device="cuda")).sum().backward()
        optimizer.step()
except Exception as error:
    print(f"after {time.monotonic() - began:.1f} s {type(error).__name__}: {error}", flush=True)
    try:
        dist.all_reduce(torch.ones(3, device="cuda"))
    except Exception as later:
        print(f"then {type(later).__name__}: {later}", flush=True)
    raise
