"""Facilities that need nothing of the device: NVTX ranges (they go to torch.profiler), settings of TunableOp."""

from __future__ import annotations

from .. import profiler
from ..refusal import refusing
from .state import fetch, store


class Nvtx:
    """torch._C._nvtx: while a profiler runs, ranges and marks are in its trace; otherwise only the depth is kept."""

    def rangePushA(self, message: str) -> int:
        return profiler.ranges.push(str(message))

    def rangePop(self) -> int:
        return profiler.ranges.pop()

    def rangeStartA(self, message: str) -> int:
        return profiler.ranges.start(str(message))

    def rangeEnd(self, handle: int) -> None:
        profiler.ranges.end(handle)

    def markA(self, message: str) -> None:
        profiler.ranges.mark(str(message))

    # On the embedded device a range "on the stream" is shown between the two calls on the host.
    def deviceRangeStart(self, message: str, stream: int) -> int:
        return profiler.ranges.start(str(message))

    def deviceRangeEnd(self, handle: int, stream: int) -> None:
        profiler.ranges.end(handle)


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
