"""From the name in a capture to the function, without trusting the file that says it.

A capture may come from a stranger: its name must not make this process call anything but an operator. Found are
functions and methods that torch lists as overridable, its native functions, and dispatcher operators (aten::addmm);
functions of other packages only when the user names the package. Those that open files are refused.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

import torch

_SPACES = ("_VariableFunctions", "_nn", "_fft", "_linalg", "_special", "_sparse", "_nested")
"""Of torch._C: where native functions are."""
_REFUSED = {
    *("from_file", "load", "save", "module_load", "__reduce_ex__", "__reduce__", "__setstate__"),
    *("apply_", "map_", "map2_", "register_hook", "register_post_accumulate_grad_hook"),
    *("_view_func", "_view_func_unsafe", "_rev_view_func_unsafe"),
}
_ATEN = re.compile(r"(\w+)::(\w+)(?:\.(\w+))?")
_GETTERS = frozenset(("T", "mT", "H", "mH", "real", "imag", "data", "grad"))


class LookupFailure(LookupError):
    """There is no such operator, or it may not be called; the text says which."""


@functools.lru_cache(maxsize=1)
def _overridable() -> dict[int, Any]:
    """By address; the objects are held, so that no other takes one."""
    found = torch.overrides.get_overridable_functions()
    return {id(function): function for functions in found.values() for function in functions}


def find_function(name: str, modules: Sequence[str] = ()) -> Callable[..., Any]:
    """The operator of this name. `modules`: packages beyond torch whose functions may be imported and called."""
    function = _find(name, modules)
    if function is None:
        raise LookupFailure(
            f"there is no operator {name!r} in torch {torch.__version__}"
            + ("" if name.startswith(("torch.", "aten::")) else "; name its package to allow it (--allow-module)")
        )
    return function


def _find(name: str, modules: Sequence[str]) -> Callable[..., Any] | None:
    if name.rpartition(".")[2].rpartition(":")[2] in _REFUSED or name.split(".")[0].endswith("::from_file"):
        raise LookupFailure(f"{name!r} may read or write files or call what it is given: no capture makes it run")
    if "::" in name:
        return _find_dispatched(name)
    if name.startswith("torch.Tensor."):
        return _find_method(name.removeprefix("torch.Tensor."))
    space, _, last = name.rpartition(".")
    if not last.isidentifier():
        return None
    return _find_torch(space, last) or _find_foreign(space, last, modules)


def _find_dispatched(name: str) -> Callable[..., Any] | None:
    match = _ATEN.fullmatch(name)
    if match is None:
        return None
    space, operator, overload = match.groups()
    try:
        packet = getattr(getattr(torch.ops, space), operator)
        found = getattr(packet, overload) if overload else packet
        names = [f"{space}::{operator}" + (f".{item}" if item != "default" else "") for item in packet.overloads()]
    except (AttributeError, RuntimeError):
        return None
    known = any(torch._C._dispatch_has_kernel(item) for item in names if _is_dispatched(item))
    return found if known else None  # operators of TorchScript alone, which may do anything, are not there


def _is_dispatched(name: str) -> bool:
    try:
        torch._C._dispatch_has_kernel(name)
        return True
    except RuntimeError:
        return False


def _find_method(text: str) -> Callable[..., Any] | None:
    getter, _, more = text.partition(".")
    if more == "__get__" or (not more and getter in _GETTERS):
        return (lambda tensor: getattr(tensor, getter)) if getter in _GETTERS else None
    if more or not getter.isidentifier():
        return None
    found = getattr(torch.Tensor, getter, None)
    own = any(getter in vars(base) for base in torch.Tensor.__mro__ if base is not object)
    allowed = not getter.startswith("__") or id(found) in _overridable()
    return found if own and allowed and callable(found) and not isinstance(found, type) else None


def _find_torch(space: str, last: str) -> Callable[..., Any] | None:
    if space == "":  # torch._foreach_add_ and others have no module of their own
        return next((found for found in map(_native(last), _SPACES) if found is not None), None)
    if space.split(".")[0] != "torch":
        return None
    module: Any = torch
    for part in space.split(".")[1:]:
        module = getattr(module, part, None)
    found = getattr(module, last, None)
    if module is torch.nn.init:
        return found if last.endswith("_") and not last.startswith("_") and callable(found) else None
    return found if callable(found) and (id(found) in _overridable() or _is_native(found)) else None


def _native(name: str) -> Callable[[str], Any]:
    """space -> its native function of this name."""

    def find(space: str) -> Any:
        found = getattr(getattr(torch._C, space, None), name, None)
        return found if type(found) is type(torch.mm) else None

    return find


def _is_native(found: Any) -> bool:
    name = getattr(found, "__name__", "")
    return type(found) is type(torch.mm) and any(native == found for native in map(_native(name), _SPACES))


def _find_foreign(space: str, last: str, modules: Sequence[str]) -> Callable[..., Any] | None:
    from .utils import get_function_from_string

    if not any(space == module or space.startswith(module + ".") for module in modules):
        return None
    try:
        found = get_function_from_string(f"{space}.{last}")
    except (ImportError, AttributeError):
        return None
    return found if callable(found) else None
