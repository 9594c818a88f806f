"""What the host device does not do is refused by name, with one clear error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn


class NotSupportedError(NotImplementedError):
    """A CUDA facility that has no counterpart on the ditorch host device (a RuntimeError, as torch's own refusals
    are)."""


def refuse(name: str, why: str) -> NoReturn:
    """Raise the one error for `name`. `why` says why, or what to use instead."""
    raise NotSupportedError(f"{name} is not supported on the ditorch host device: {why}")


def refusing(name: str, why: str) -> Callable[..., NoReturn]:
    """A function that refuses whatever it is called with."""

    def refused(*args: Any, **kwargs: Any) -> NoReturn:
        refuse(name, why)

    refused.__name__ = refused.__qualname__ = name.rpartition(".")[2]
    refused.__doc__ = f"Not supported on the ditorch host device: {why}"
    return refused
