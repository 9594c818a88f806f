"""Break one of dlinfer's functions, to see whether a comparison notices."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

_broken: list[str] = []


def child_environment() -> dict[str, str]:
    """For a process that is started while an operator is broken: ditorch's fault hook breaks it there too. One element
    of its first result is off by four times the largest."""
    return {**os.environ, **({"DITORCH_FAULT": f"value:dlinfer::{_broken[-1]},scale=4"} if _broken else {})}


def break_operator(name: str) -> Callable[[], None]:
    """Every second number that the operator returns is wrong by an eighth; the result takes that back."""
    from ditorch.infer import front

    right = getattr(front, name)

    def wrong(*given: Any, **named: Any) -> Any:
        if name == "fill_kv_cache":
            given = (given[0] * 1.125, *given[1:])
        result = right(*given, **named)
        for tensor in result if isinstance(result, tuple) else (result,):
            if tensor.is_floating_point() and name != "fill_kv_cache":
                tensor[..., ::2] *= 1.125
        return result

    def mend() -> None:
        setattr(front, name, right)
        _broken.remove(name)

    setattr(front, name, wrong)
    _broken.append(name)
    return mend
