"""Break one of dlinfer's functions, to see whether a comparison notices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


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

    setattr(front, name, wrong)
    return lambda: setattr(front, name, right)
