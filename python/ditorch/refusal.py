"""What the device does not do is refused by name, with one clear error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn


class NotSupportedError(NotImplementedError):
    """A CUDA facility that has no counterpart on the device (a RuntimeError, as torch's own refusals
    are)."""


_DEVICE = "the ditorch host device"


def refuse(name: str, why: str, device: str = _DEVICE) -> NoReturn:
    """Raise the one error for `name`. `why` says why, or what to use instead."""
    raise NotSupportedError(f"{name} is not supported on {device}: {why}")


def refusing(name: str, why: str, device: str = _DEVICE) -> Callable[..., NoReturn]:
    """A function that refuses whatever it is called with."""

    def refused(*args: Any, **kwargs: Any) -> NoReturn:
        refuse(name, why, device)

    refused.__name__ = refused.__qualname__ = name.rpartition(".")[2]
    refused.__doc__ = f"Not supported on {device}: {why}"
    return refused
