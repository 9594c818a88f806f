"""A backward on the CPU before `import ditorch`: PyTorch's engine counted the devices then, without ours.

Whether that happened cannot be asked, so the first backward afterwards adds what is missing, if anything is
(adapter/torch/Backward.cpp), and takes this detour away again.
"""

from __future__ import annotations

from typing import Any

from .library import call_unseen
from .patches import Patches


def install(patches: Patches) -> None:
    import torch

    native = torch.autograd._engine_run_backward

    def run_backward(*args: Any, **kwargs: Any) -> Any:
        call_unseen(torch.ops.ditorch.grow_engine)
        if torch.autograd._engine_run_backward is run_backward:
            torch.autograd._engine_run_backward = native
        return native(*args, **kwargs)

    patches.set(torch.autograd, "_engine_run_backward", run_backward)
