"""torch.profiler with CUDA activities: the host device has no tracer of its own, its operators show up as CPU work.

PyTorch would otherwise fall back to CUDA events through stubs that a build without CUDA does not have, and print a
stack trace for every operator.
"""

from __future__ import annotations

import torch
import torch.autograd.profiler

from .patches import Patches


def install(patches: Patches) -> None:
    """Make profile() trace the CPU side, and emit_nvtx() a plain context."""
    module = torch.autograd.profiler
    native = module.profile.__init__

    def __init__(self, enabled=True, **kwargs):
        if kwargs.get("use_device") in ("cuda", "dit") or kwargs.get("use_cuda"):
            kwargs["use_cpu"] = True
        native(self, enabled, **kwargs)
        fallback = getattr(module.ProfilerState, "KINETO_GPU_FALLBACK", None)
        if getattr(self, "profiler_kind", None) == fallback:
            self.profiler_kind = module.ProfilerState.KINETO

    patches.set(module.profile, "__init__", __init__)
    patches.set(module.emit_nvtx, "__enter__", lambda self: self)
    patches.set(module.emit_nvtx, "__exit__", lambda self, *exc_info: False)
