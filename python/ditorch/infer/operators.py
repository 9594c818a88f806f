"""torch.ops.dlinfer.*: defined from the table, computed by C where the device's library has the function (the door
finds it by its name), else composed. The composed form is the CPU's kernel, which the door falls back to where the host
can read the device's memory, and that of every other device. Where it cannot, the door takes it from the slot of
devices without kernels (MAIA's) and runs it on the device: caches stay where they are."""

from __future__ import annotations

import torch

from . import composed, fakes
from .ops import IN_C, OPERATORS

_OTHERS = ("CUDA", "XPU", "MPS", "HPU", "PrivateUse1")


def is_ours() -> bool:
    """Is PrivateUse1 the device of ditorch, whose door has a way for every operator?"""
    return torch._C._get_privateuse1_backend_name() == "dit"


def define() -> torch.library.Library:
    """Once per process: the library object must stay alive."""
    library = torch.library.Library("dlinfer", "FRAGMENT")
    for name, schema in OPERATORS.items():
        library.define(name + schema)
        function = getattr(composed, name)
        if name not in IN_C:
            library.impl(name, function, "CompositeExplicitAutograd")
            continue
        for key in ("CPU", "MAIA") if is_ours() else ("CPU", *_OTHERS):  # the alias takes "CUDA" for its own
            library.impl(name, function, key)
        torch.library.register_fake(f"dlinfer::{name}", fakes.FAKES[name], lib=library)
    return library


LIBRARY = define()


def capability() -> dict[str, str]:
    """Operator -> `c` where the embedded device computes it in C (float32, float16, bfloat16), else `composed`."""
    return {name: "c" if name in IN_C and is_ours() else "composed" for name in OPERATORS}
