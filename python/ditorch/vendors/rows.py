"""The vendor stacks that ditorch knows, as data. A new one is one more row (and a fake package in its tests).

The order is the order in which DITORCH_BACKEND=auto tries them.
"""

from __future__ import annotations

import importlib
import types
from typing import NamedTuple


class Row(NamedTuple):
    """What is particular to one vendor's PyTorch package."""

    backend: str
    """Value of DITORCH_BACKEND."""
    package: str
    """Package whose import brings the device."""
    arch: str
    """The chip's name in the banner; an attribute of the package where it starts with a dot."""
    modules: tuple[str, ...]
    """Modules that answer torch.cuda, the first that exists wins."""
    devices: tuple[str, ...]
    """Device types, the first that PyTorch knows wins."""
    collectives: tuple[str, ...]
    """Names that stand for nccl, the first that is registered wins; else any that is registered for the device."""
    lacks: tuple[str, ...]
    """Reductions that the collectives do not have."""
    shims: tuple[str, ...]
    """Modules of the vendor that redirect CUDA calls on import, the first that exists wins."""
    natives: str
    """Module of the package's C names."""
    prefix: str
    """What stands for `_cuda_` in the C names."""
    capability: tuple[int, int] | None
    """What get_device_capability answers; None: what the vendor's module says."""


ROWS = (
    Row(
        backend="npu",
        package="torch_npu",
        arch="ascend",
        modules=("torch.npu", "torch_npu.npu"),
        devices=("npu",),
        collectives=("hccl",),
        lacks=("AVG",),
        shims=("torch_npu.contrib.transfer_to_npu",),
        natives="torch_npu._C",
        prefix="_npu_",
        capability=(8, 0),
    ),
    Row(
        backend="mlu",
        package="torch_mlu",
        arch="camb",
        modules=("torch.mlu", "torch_mlu.mlu"),
        devices=("mlu",),
        collectives=("cncl",),
        lacks=(),
        shims=("torch_mlu.utils.gpu_migration", "torch_mlu.utils.model_transfer.transfer"),
        natives="torch_mlu._MLUC",
        prefix="_mlu_",
        capability=(8, 0),
    ),
    Row(
        backend="biren",
        package="torch_br",
        arch="biren",
        modules=("torch.supa", "torch_br.supa"),
        devices=("supa",),
        collectives=("succl", "sccl"),
        lacks=("AVG",),
        shims=("torch_br.contrib.transfer_to_supa",),
        natives="torch_br._C",
        prefix="_supa_",
        capability=(8, 0),
    ),
    Row(
        backend="dipu",
        package="torch_dipu",
        arch=".vendor_type",
        modules=("torch_dipu.dipu",),
        devices=("dipu", "xpu"),
        collectives=("dicl",),
        lacks=("AVG",),
        shims=(),
        natives="torch_dipu._C",
        prefix="_dipu_",
        capability=None,
    ),
    Row(
        backend="musa",
        package="torch_musa",
        arch="musa",
        modules=("torch.musa", "torch_musa"),
        devices=("musa",),
        collectives=("mccl",),
        lacks=(),
        shims=("torchada",),
        natives="torch_musa._MUSAC",
        prefix="_musa_",
        capability=None,
    ),
)

BACKENDS = tuple(row.backend for row in ROWS)

NUMBERS = {"xpu": 12, "mps": 13, "hpu": 15, "ve": 16, "ipu": 18, "mtia": 19}
"""c10::DeviceType of the names that PyTorch has besides PrivateUse1's."""


def find_row(backend: str) -> Row:
    """The row of a value of DITORCH_BACKEND."""
    return ROWS[BACKENDS.index(backend)]


def find_module(path: str) -> types.ModuleType | None:
    """The module `path`, imported or as an attribute of its parent (torch.npu is often no file); None: there is
    none."""
    parent, _, name = path.rpartition(".")
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError as error:
        if error.name and not (path == error.name or path.startswith(error.name + ".")):
            raise
    found = getattr(find_module(parent), name, None) if parent else None
    return found if isinstance(found, types.ModuleType) else None
