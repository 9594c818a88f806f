"""Where the libraries are, and which adapter belongs to the torch that is running.

An adapter links libtorch's C++ interface, which changes with every minor release: one lies in `torch-<minor>` for each
that this package was built for.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable

DIRECTORY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib")
ADAPTER = "libdit_torch.so"
BUILD_RECORD = "build.json"
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


def get_minor(version: str) -> str:
    """2.13 of 2.13.0+cpu."""
    return ".".join(version.split(".")[:2])


def list_minors() -> list[str]:
    """Of torch, that there are adapters for."""
    try:
        names = [name.removeprefix("torch-") for name in os.listdir(DIRECTORY) if name.startswith("torch-")]
    except OSError:
        return []
    found = [name for name in names if os.path.exists(_find(name, ADAPTER))]
    return sorted(found, key=lambda name: [int(part) if part.isdigit() else 0 for part in name.split(".")])


def _find(minor: str, name: str) -> str:
    return os.path.join(DIRECTORY, f"torch-{minor}", name)


def read_build(minor: str) -> dict:
    """What CMake recorded about the build of an adapter; {} when there is no record."""
    try:
        with open(_find(minor, BUILD_RECORD), encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return {}


def find_adapter(running: str) -> str:
    """The path of the adapter for this version of torch; ImportError when there is none."""
    minors = list_minors()
    if not minors:
        raise ImportError(f"ditorch's adapter is missing: there is none in {DIRECTORY}. Build it: {REBUILD}")
    if get_minor(running) not in minors:
        raise ImportError(
            f"ditorch was built for torch {', '.join(minors)}, but torch {running} is running; install torch "
            f"{minors[-1]}, or rebuild ditorch for this torch: {REBUILD}"
        )
    return _find(get_minor(running), ADAPTER)


def load_adapter() -> None:
    """Load the adapter into the process. It cannot be unloaded; a second call does nothing."""
    global _loaded
    if _loaded:
        return
    import torch

    path = find_adapter(torch.__version__)
    try:
        torch.ops.load_library(path)
    except OSError as error:
        built = read_build(get_minor(torch.__version__)).get("torch", "an unknown version")
        raise ImportError(
            f"ditorch's adapter {path} does not load into torch {torch.__version__} (built for {built}): {error}. "
            f"Rebuild ditorch: {REBUILD}"
        ) from error
    built = torch.ops.ditorch.torch_version()
    if get_minor(built) != get_minor(torch.__version__):
        raise ImportError(f"{path} was built for torch {built}; rebuild ditorch: {REBUILD}")
    _loaded = True


def is_loaded() -> bool:
    """Has this package loaded its adapter? A vendor's stack does without."""
    return _loaded


def call_unseen(function: Callable[..., object], *args: object) -> None:
    """Call one of the adapter's operators without a row in a running profile."""
    import torch

    torch._C._autograd._enable_record_function(False)
    try:
        function(*args)
    finally:
        torch._C._autograd._enable_record_function(True)
