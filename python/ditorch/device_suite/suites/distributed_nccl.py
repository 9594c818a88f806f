"""torch.distributed over nccl (PyTorch's distributed_test.py)."""

from ditorch.device_suite.suites._distributed import TestDistBackendWithSpawn

__all__ = ["TestDistBackendWithSpawn"]
