"""What the import says: once in words what "cuda" is now, and one line per process in the form that programs read."""

from __future__ import annotations

import multiprocessing
import os
import sys

from . import _C, settings
from .choice import Choice


def tell(chosen: Choice) -> None:
    """On standard error."""
    stack = chosen.stack
    if is_first_process():
        print(f"ditorch: {describe(chosen)}", file=sys.stderr)
    own = f"{chosen.backend} ditorch:{_C.version()}"
    text = f"{stack.arch} {stack.row.package}:{stack.version}" if stack else own
    print(f"ditorch: {text} pid: {os.getpid()}", file=sys.stderr)


def is_first_process() -> bool:
    """Not a further rank of a launcher, and no worker of multiprocessing."""
    starting = getattr(multiprocessing.current_process(), "_inheriting", False)  # spawned, and reading its program
    is_child = starting or multiprocessing.parent_process() is not None
    return os.environ.get("RANK", "0") in ("", "0") and not is_child


def describe(chosen: Choice) -> str:
    """`cuda is the embedded device (runs on the CPU), because no accelerator was found`."""
    is_off = settings.get("alias") == "off"
    name = (chosen.stack.device if chosen.stack else "dit") if is_off else "cuda"
    stays = "; cuda stays what it was (alias=off)" if is_off else ""
    return f"{name} is {_describe_device(chosen)}, because {_explain(chosen)}{stays}"


def _describe_device(chosen: Choice) -> str:
    if chosen.stack is not None:
        return f"the {chosen.stack.arch} device of {chosen.stack.row.package} {chosen.stack.version}"
    if chosen.backend == "nvidia":
        return "the NVIDIA device, by ditorch's own library"
    vendor = settings.get("vendor")
    if vendor != "host":
        return f"the device of the vendor library {vendor!r}"
    return "the embedded device (runs on the CPU)"


def _explain(chosen: Choice) -> str:
    if settings.get("backend") != "auto":
        return f"backend={settings.get('backend')} was asked for"
    return "there is no CUDA device and its package works" if chosen.stack else "no accelerator was found"
