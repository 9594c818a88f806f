"""Facilities that are accepted and have no effect on the device: NVTX ranges and the settings of TunableOp."""

from __future__ import annotations

import itertools
import threading

from ..refusal import refusing
from .state import fetch, store


class Nvtx:
    """torch._C._nvtx: keeps the nesting depth that range_push and range_pop answer, and nothing else."""

    def __init__(self) -> None:
        self._local = threading.local()
        self._handles = itertools.count(1)

    def rangePushA(self, message: str) -> int:
        depth = getattr(self._local, "depth", 0)
        self._local.depth = depth + 1
        return depth

    def rangePop(self) -> int:
        depth = getattr(self._local, "depth", 0) - 1
        self._local.depth = max(depth, 0)
        return max(depth, -1)

    def rangeStartA(self, message: str) -> int:
        return next(self._handles)

    def rangeEnd(self, handle: int) -> None:
        return None

    def markA(self, message: str) -> None:
        return None

    def deviceRangeStart(self, message: str, stream: int) -> int:
        return next(self._handles)

    def deviceRangeEnd(self, handle: int, stream: int) -> None:
        return None


def tunable_natives() -> dict[str, object]:
    """torch.cuda.tunable: the settings are kept and answered; there are no GEMM kernels to choose from."""
    prefix = "_cuda_tunableop_"
    names: dict[str, object] = {
        "_cuda_record_untuned_enable": store("record_untuned"),
        "_cuda_record_untuned_is_enabled": fetch("record_untuned", False),
        prefix + "enable": store("tunable"),
        prefix + "is_enabled": fetch("tunable", False),
        prefix + "tuning_enable": store("tuning"),
        prefix + "tuning_is_enabled": fetch("tuning", True),
        prefix + "get_results": lambda: (),
        prefix + "get_validators": lambda: (),
        prefix + "read_file": refusing("torch.cuda.tunable.read_file", "it has no tunable GEMM kernels"),
        prefix + "set_numerical_check_tolerances": lambda enable, atol=1e-5, rtol=1e-5: None,
    }
    defaults = {
        "max_tuning_duration": 30,
        "max_tuning_iterations": 100,
        "filename": "tunableop_results.csv",
        "rotating_buffer_size": 0,
    }
    for key, default in defaults.items():
        names[f"{prefix}set_{key}"] = store(f"tunable_{key}")
        names[f"{prefix}get_{key}"] = fetch(f"tunable_{key}", default)
    return names
