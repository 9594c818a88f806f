"""Vendor stacks: other people's PyTorch packages (torch_npu, torch_mlu, ...) behind "cuda".

`rows` is what is known of each vendor, `probe` finds out whether its stack works, `surface` and `natives` answer
torch.cuda, `collectives` answers torch.distributed. Nothing here knows a vendor by name except the rows.
"""

from __future__ import annotations

import importlib

from ..patches import Patches
from .probe import Stack


def find_shim(stack: Stack) -> str:
    """The vendor's own transfer shim, by the name of its module; RuntimeError where it has none."""
    from .rows import find_module

    for name in stack.row.shims:
        try:
            if find_module(name) is not None:
                return name
        except Exception as error:
            raise RuntimeError(
                f"DITORCH_USE_VENDOR_SHIM=1, but import {name} raised {type(error).__name__}: {error}"
            ) from error
    tried = ", ".join(stack.row.shims)
    raise RuntimeError(
        f"DITORCH_USE_VENDOR_SHIM=1, but {stack.row.package} has no transfer shim"
        f"{f' (tried {tried})' if tried else ''}; set DITORCH_USE_VENDOR_SHIM=0 to use that of ditorch"
    )


def use_shim(name: str) -> None:
    """Import the vendor's shim. It cannot be taken back."""
    importlib.import_module(name)


def install_extras(patches: Patches, stack: Stack) -> None:
    """What vendors' shims leave out: get_device_capability with a device, and C names of torch that programs call."""
    import torch

    from . import natives, surface

    answers = surface.Surface(stack).answers()
    patches.set(
        torch.cuda, "get_device_capability", answers.get("get_device_capability", torch.cuda.get_device_capability)
    )
    natives.install(patches, stack, only_missing=True)
