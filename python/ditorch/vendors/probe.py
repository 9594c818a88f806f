"""Is a vendor's stack there, and does it work? Every way in which it does not has a message of its own."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
import types
from typing import Any, NamedTuple

from .. import dipu_names
from .rows import NUMBERS, Row, find_module

MISSING, BROKEN, UNUSABLE, READY = "not installed", "import fails", "unusable", "ready"

_REQUIRED = ("is_available", "device_count", "current_device", "set_device", "synchronize")
"""Without these torch.cuda cannot be answered at all."""


class Stack(NamedTuple):
    """A vendor's stack in this process."""

    row: Row
    state: str
    message: str = ""
    package: types.ModuleType | None = None
    module: types.ModuleType | None = None
    """What answers torch.cuda."""
    device: str = ""
    number: int = 0
    """c10::DeviceType."""
    presents_cuda: bool = False
    """The package itself made torch.cuda work when it was imported."""

    @property
    def arch(self) -> str:
        """The chip, as in the banner."""
        text = self.row.arch
        return str(getattr(self.package, text[1:], self.row.backend)) if text.startswith(".") else text

    @property
    def version(self) -> str:
        """Version of the package; torch's, where it has none of its own."""
        found = getattr(self.package, "__version__", None)
        return str(found) if found else str(sys.modules["torch"].__version__)


def is_installed(row: Row) -> bool:
    """There is such a package, and it is not a name that ditorch itself supplies. Nothing is imported."""
    try:
        spec = importlib.util.find_spec(row.package)
    except ValueError:  # imported, and made by hand: it has no spec
        return True
    except ImportError:
        return False
    if dipu_names.is_stub(spec):
        return dipu_names.find_real() is not None
    return spec is not None and not type(spec.loader).__module__.startswith("ditorch.")


def _first_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else ''}".rstrip(": ")


def _where(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""


def _find_device(row: Row) -> tuple[str, int]:
    """Name and number of the vendor's device type; ("", 0) when PyTorch knows none of its names."""
    import torch

    own = torch._C._get_privateuse1_backend_name()
    for name in row.devices:
        if name == own:
            return name, 20
        if name in NUMBERS:
            return name, NUMBERS[name]
    return "", 0


def _check_module(row: Row) -> tuple[types.ModuleType | None, str]:
    """(what answers torch.cuda, "") or (None, what is wrong with it)."""
    for path in row.modules:
        module = find_module(path)
        if module is not None:
            break
    else:
        return None, f"{row.package} has none of the modules {', '.join(row.modules)}"
    missing = [name for name in _REQUIRED if not callable(getattr(module, name, None))]
    if missing:
        return None, f"{path} has no {', '.join(missing)}; the installation of {row.package} is not complete"
    try:
        if not module.is_available():
            return None, f"{path}.is_available() is False: no device, or no driver for it"
        if module.device_count() < 1:
            return None, f"{path}.device_count() is {module.device_count()}: no device is visible to this process"
    except Exception as error:
        return None, f"{path} fails when asked for its devices: {_first_line(error)}{_where(error)}"
    return module, ""


def probe(row: Row) -> Stack:
    """Import the package and ask for its devices. Exceptions of the package become a message."""
    if not is_installed(row):
        return Stack(row, MISSING, f"the package {row.package} is not installed")
    import torch

    try:
        package: Any = importlib.import_module(row.package)
        module, problem = _check_module(row)
    except Exception as error:
        return Stack(row, BROKEN, f"import {row.package} raised {_first_line(error)}{_where(error)}")
    if module is None:
        return Stack(row, UNUSABLE, problem, package)
    device, number = _find_device(row)
    if not device:
        known = torch._C._get_privateuse1_backend_name()
        return Stack(
            row,
            UNUSABLE,
            f"PyTorch knows no device type {' or '.join(row.devices)} after import {row.package} "
            f"(its custom device is named {known!r})",
            package,
        )
    count = module.device_count()
    message = f"{row.package} {getattr(package, '__version__', '')}".rstrip() + f", {count} device{'s' * (count != 1)}"
    return Stack(row, READY, message, package, module, device, number, bool(torch.cuda.is_available()))
