"""PyTorch's tests of torch.distributed (distributed_test.py), a process per rank, over the backend that the
environment names (../cases/sources.py).

The ranks are forked from the worker, which has not touched the device: they start at once.
"""

from __future__ import annotations

import torch
from torch.testing._internal.distributed.distributed_test import DistributedTest, TestDistBackend


class TestDistBackendWithSpawn(TestDistBackend, DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self._spawn_processes()

    def _spawn_processes(self):
        self._start_processes(torch.multiprocessing.get_context("fork").Process)


del TestDistBackend
