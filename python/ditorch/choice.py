"""Which device answers to "cuda", and why."""

from __future__ import annotations

from typing import NamedTuple

from . import settings


class Choice(NamedTuple):
    """The chosen backend and the reason, as `ditorch doctor` prints it."""

    backend: str
    reason: str


def choose() -> Choice:
    """Decide from the options and from what torch can do already. Nothing is changed."""
    wanted = settings.get("backend")
    if int(settings.get("disable_mock")) > 0:
        return Choice("none", "DITORCH_DISABLE_MOCK is set: nothing is patched")
    if wanted == "none":
        return Choice("none", "backend=none: nothing is patched")
    if wanted == "host":
        return Choice("host", "backend=host was asked for")
    import torch

    available = torch.cuda.is_available()
    if wanted == "cuda" and not available:
        raise RuntimeError(
            f"DITORCH_BACKEND=cuda, but torch {torch.__version__} sees no CUDA device "
            "(torch.cuda.is_available() is False); "
            "valid: auto, cuda, host, none. Use auto or host for the embedded device."
        )
    if available:
        return Choice("cuda", f"torch {torch.__version__} has a CUDA device of its own: nothing is patched")
    return Choice("host", f"backend=auto and torch {torch.__version__} sees no CUDA device")
