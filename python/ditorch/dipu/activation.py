"""What `import torch_dipu` changes in torch: "dipu" as a device text, Tensor.dipu and is_dipu, loading of files that
DIPU wrote.

Invariant: every change is on the installation's undo list. "dipu" is a second name of the device in PyTorch's own
parser (the binary alias) or in its arguments (the Python redirect); results print as they do without it.
"""

from __future__ import annotations

import functools
import warnings
from typing import Any

import torch
import torch.serialization

from .. import _C, installation
from ..library import DEVICE_TYPE
from ..patches import Patches
from . import distributed, streams
from .device import DEVICE_NAME, devicectx, get_index, get_type

NAME = "dipu"


def activate(patches: Patches) -> None:
    """Everything. Called once per installation, by the first `import torch_dipu`."""
    _install_text(patches)
    _install_methods(patches)
    _install_autocast(patches)
    _install_package(patches)
    streams.add_names(patches)
    distributed.add_name(patches)


def is_text(value: Any) -> bool:
    """ "dipu" or "dipu:1"."""
    return isinstance(value, str) and value.partition(":")[0] == NAME


def _install_text(patches: Patches) -> None:
    if installation.state.alias == "python":
        _C.redirect_second_name(NAME)
        patches.defer(lambda: _C.redirect_second_name(None))
        return
    if installation.state.alias == "off":
        try:
            _C.alias_install(DEVICE_TYPE, False, None)
        except (RuntimeError, OSError, NotImplementedError) as error:
            warnings.warn(
                f'torch_dipu: "dipu" is not understood as a device text ({error}); '
                f"use torch_dipu.dipu.diputype, which is {DEVICE_NAME!r}",
                RuntimeWarning,
                stacklevel=2,
            )
            return
        patches.defer(_C.alias_restore)
        _C.alias_second_name(NAME, False)
        return
    _C.alias_second_name(NAME, True)
    patches.defer(lambda: _C.alias_second_name(None, True))


# Methods of tensors and storages


def dipu(self, device=None, non_blocking=False, memory_format=torch.preserve_format):
    """Copy of this tensor in device memory, or the tensor itself when it is there already."""
    if device is None:
        target = torch.device(DEVICE_NAME)
    elif isinstance(device, int) and not isinstance(device, bool):
        target = torch.device(DEVICE_NAME, get_index(device, optional=True))
    else:
        target = torch.device(device)
    if target.type != get_type():
        raise RuntimeError(f"Invalid device, must be dipu device, but got: {target}")
    return self.to(target, non_blocking=non_blocking, memory_format=memory_format)


def storage_dipu(self, device=None, non_blocking=False):
    """Copy of this storage in device memory, or the storage itself when it is there already."""
    index = get_index(device, optional=True)
    if self.device.type == get_type() and (device is None or self.device.index == index):
        return self
    with devicectx(index):
        copy = torch.UntypedStorage(self.nbytes(), device=torch.device(DEVICE_NAME, index))
        copy.copy_(self, non_blocking)
    return copy


def is_dipu(self) -> bool:
    """True for what lies in device memory."""
    return self.device.type == get_type()


def _install_methods(patches: Patches) -> None:
    patches.set(torch.Tensor, "dipu", dipu)
    patches.set(torch.Tensor, "is_dipu", property(is_dipu))
    patches.set(torch.UntypedStorage, "dipu", storage_dipu)
    patches.set(torch.UntypedStorage, "is_dipu", property(is_dipu))


# Texts that torch's Python code compares before it parses them


def _translated(native: Any) -> Any:
    """A constructor whose device argument, the first, may be "dipu"."""
    names = ("device_type", "device")

    @functools.wraps(native)
    def __init__(self, *args, **kwargs):
        if args and is_text(args[0]):
            args = (get_type(), *args[1:])
        for name in names:
            if is_text(kwargs.get(name)):
                kwargs[name] = get_type()
        native(self, *args, **kwargs)

    return __init__


def _install_autocast(patches: Patches) -> None:
    for kind in (torch.amp.autocast_mode.autocast, torch.amp.grad_scaler.GradScaler):
        patches.set(kind, "__init__", _translated(kind.__init__))


# Files


def _restore(storage: Any, location: str) -> Any:
    """A storage whose file or whose reader says "dipu" goes where the device is."""
    if not is_text(location):
        return None
    return torch.serialization.default_restore_location(storage, location.replace(NAME, get_type(), 1))


def _install_package(patches: Patches) -> None:
    registry = torch.serialization._package_registry
    entry = (15, lambda storage: None, _restore)
    torch.serialization.register_package(*entry)
    added = next(element for element in registry if element[2] is _restore)
    patches.defer(lambda: registry.remove(added))
