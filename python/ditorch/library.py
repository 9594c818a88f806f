"""Where the libraries are, and whether the adapter was built for the torch that is running."""

from __future__ import annotations

import json
import os
from collections.abc import Callable

DIRECTORY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib")
ADAPTER = os.path.join(DIRECTORY, "libdit_torch.so")
BUILD_RECORD = os.path.join(DIRECTORY, "build.json")
REBUILD = "pip install --no-build-isolation --force-reinstall . (or cmake --build build/dev in a source tree)"

DEVICE_TYPE = 20
"""c10::DeviceType::PrivateUse1."""

_loaded = False


def find_headers() -> str:
    """Folder of dit/ and diopi/, for -I: in the package when it is installed, beside python/ in a source tree."""
    package = os.path.dirname(DIRECTORY)
    places = [os.path.join(package, "include"), os.path.join(os.path.dirname(os.path.dirname(package)), "include")]
    for place in places:
        if os.path.isfile(os.path.join(place, "diopi", "functions.h")):
            return place
    raise FileNotFoundError(f"the headers of ditorch are in none of {', '.join(places)}; reinstall ditorch")


def read_build() -> dict:
    """What CMake recorded about the build; {} when there is no record."""
    try:
        with open(BUILD_RECORD, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return {}


def check_version(built: str, running: str) -> None:
    """The adapter links libtorch's C++ interface, which changes with every minor release."""
    if built.split(".")[:2] != running.split(".")[:2]:
        raise ImportError(
            f"ditorch's adapter was built for torch {built}, but torch {running} is running; "
            "major and minor version must "
            f"match. Install torch {'.'.join(built.split('.')[:2])}, or rebuild ditorch for this torch: {REBUILD}"
        )


def load_adapter() -> None:
    """Load the adapter into the process. It cannot be unloaded; a second call does nothing."""
    global _loaded
    if _loaded:
        return
    import torch

    if not os.path.exists(ADAPTER):
        raise ImportError(f"ditorch's adapter is missing: {ADAPTER} does not exist. Build it: {REBUILD}")
    built = read_build().get("torch")
    if built:
        check_version(built, torch.__version__)
    try:
        torch.ops.load_library(ADAPTER)
    except OSError as error:
        raise ImportError(
            f"ditorch's adapter {ADAPTER} does not load into torch {torch.__version__} "
            f"(built for {built or 'an unknown version'}): {error}. Rebuild ditorch: {REBUILD}"
        ) from error
    check_version(torch.ops.ditorch.torch_version(), torch.__version__)
    _loaded = True


def call_unseen(function: Callable[..., object], *args: object) -> None:
    """Call one of the adapter's operators without a row in a running profile."""
    import torch

    torch._C._autograd._enable_record_function(False)
    try:
        function(*args)
    finally:
        torch._C._autograd._enable_record_function(True)
