"""torch.ops.dlinfer.*: defined from the table, computed by C where the device's library has the function (the door
finds it by its name), else composed. The composed form is the CPU's kernel, which the door falls back to where the host
can read the device's memory, and that of every other device. Where it cannot, the door takes it from the slot of
devices without kernels (MAIA's) and runs it on the device: caches stay where they are."""

from __future__ import annotations

from typing import NamedTuple

import torch

import ditorch

from . import composed, fakes
from .ops import IN_C, MODES, OPERATORS

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
            torch.library.register_fake(f"dlinfer::{name}", fakes.FAKES[name], lib=library)
            continue
        for key in ("CPU", "MAIA") if is_ours() else ("CPU", *_OTHERS):  # the alias takes "CUDA" for its own
            library.impl(name, function, key)
        torch.library.register_fake(f"dlinfer::{name}", fakes.FAKES[name], lib=library)
    return library


LIBRARY = define()


class Capability(NamedTuple):
    """How the device computes an operator; `dtypes` and `modes` are what C takes (others are composed)."""

    runs: str  # "c" or "composed"
    dtypes: tuple[str, ...] = ()
    modes: str = ""


def capability() -> dict[str, Capability]:
    """Of every operator: `c` where the operator library of the device has the function (it is asked), else
    `composed`."""
    has: list[str] = []
    if is_ours():
        torch.cuda.init()
        has = ditorch._C.infer_functions()
    return {name: Capability("c", *MODES[name]) if name in has else Capability("composed") for name in OPERATORS}
