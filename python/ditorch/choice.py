"""Which device answers to "cuda", and why."""

from __future__ import annotations

from typing import NamedTuple

from . import settings
from .vendors import probe, rows

VALID = ("auto", "cuda", "nvidia", *rows.BACKENDS, "host", "none")


class Choice(NamedTuple):
    """The chosen backend and the reason, as `ditorch doctor` prints it."""

    backend: str
    reason: str
    stack: probe.Stack | None = None
    """The vendor's stack, when the backend is a vendor's."""
    notes: tuple[str, ...] = ()
    """Stacks that are installed and were passed over, with the reason."""


def choose() -> Choice:
    """Decide from the options and from what torch can do already. Vendor packages are imported; nothing else is
    changed."""
    wanted = settings.get("backend")
    if int(settings.get("disable_mock")) > 0:
        return Choice("none", "DITORCH_DISABLE_MOCK is set: nothing is patched")
    if wanted == "none":
        return Choice("none", "backend=none: nothing is patched")
    if wanted == "host":
        return Choice("host", "backend=host was asked for")
    if wanted == "nvidia":
        return Choice("nvidia", "backend=nvidia was asked for: NVIDIA devices by ditorch's own vendor library")
    if wanted in rows.BACKENDS:
        return _choose_vendor(wanted)
    import torch

    if torch.cuda.is_available():
        return Choice("cuda", f"torch {torch.__version__} has a CUDA device of its own: nothing is patched")
    if wanted == "cuda":
        raise RuntimeError(
            f"DITORCH_BACKEND=cuda, but torch {torch.__version__} sees no CUDA device "
            "(torch.cuda.is_available() is False); "
            f"valid: {', '.join(VALID)}. Use auto or host for the embedded device."
        )
    return _choose_first()


def _choose_vendor(wanted: str) -> Choice:
    """The vendor that was asked for, or an error that says what is wrong with its stack."""
    stack = probe.probe(rows.find_row(wanted))
    if stack.state == probe.READY:
        return Choice(wanted, f"backend={wanted} was asked for: {stack.message}", stack)
    raise RuntimeError(
        f"DITORCH_BACKEND={wanted}, but {stack.message}. Repair or install {stack.row.package}, "
        f"or choose another backend; valid: {', '.join(VALID)}"
    )


def _choose_first() -> Choice:
    """backend=auto without CUDA: the first vendor whose stack works, else the embedded device."""
    notes: list[str] = []
    for row in rows.ROWS:
        stack = probe.probe(row)
        if stack.state == probe.READY:
            return Choice(row.backend, f"backend=auto, no CUDA device, and {stack.message}", stack, tuple(notes))
        if stack.state != probe.MISSING:
            notes.append(f"backend {row.backend}: {stack.message}")
    import torch

    reason = f"backend=auto and torch {torch.__version__} sees no CUDA device"
    taken = find_foreign_name()
    if taken:
        notes.append(
            f"backend host: PyTorch's custom device type is taken by {taken!r} in this process. To use the embedded "
            "device set DITORCH_BACKEND=host, which imports no vendor package (and TORCH_DEVICE_BACKEND_AUTOLOAD=0 "
            "where torch itself imports one)"
        )
        return Choice(
            "none", f"{reason}, and the custom device type is {taken!r}: nothing is patched", None, tuple(notes)
        )
    return Choice("host", reason, None, tuple(notes))


def find_foreign_name() -> str:
    """Name under which another package has taken PyTorch's one custom device type; "" while it is free, or ours."""
    import torch

    name = torch._C._get_privateuse1_backend_name()
    return "" if name in ("privateuseone", "dit") else name
