"""From the name in a capture to the function, without trusting the file that says it.

A capture may come from a stranger: its name must not make this process call anything but an operator. Found are
functions and methods that torch lists as overridable, those of torch.nn.functional, native functions, and dispatcher
operators (aten::addmm, aten.addmm.default); functions of other packages only when the user names the package. Those
that open files are refused, and so are functions among the arguments that are no operators: some operators call what
they are given.
"""

from __future__ import annotations

import functools
import re
import types
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from ..containers import traverse_container

_SPACES = ("_VariableFunctions", "_nn", "_fft", "_linalg", "_special", "_sparse", "_nested")
"""Of torch._C: where native functions are."""
_REFUSED = {
    *("from_file", "load", "save", "module_load", "__reduce_ex__", "__reduce__", "__setstate__"),
    *("apply_", "map_", "map2_", "register_hook", "register_post_accumulate_grad_hook"),
    *("_view_func", "_view_func_unsafe", "_rev_view_func_unsafe"),
}
_ATEN = re.compile(r"(\w+)(?:::|\.)(\w+)(?:\.(\w+))?")
_PLAIN = (bool, int, float, complex)
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


def check_arguments(args: Any, kwargs: Any) -> None:
    """LookupFailure for a function or class among them that is no operator, dtype or plain type of torch."""
    for value in traverse_container((args, kwargs)):
        if not callable(value) or isinstance(value, torch.Tensor):
            continue
        if not is_operator(value) and all(value is not kind for kind in _PLAIN) and not _is_tensor_type(value):
            raise LookupFailure(f"an argument is {value!r}, which an operator could call: no capture makes it run")


def _is_tensor_type(value: Any) -> bool:
    """torch.Tensor, torch.cuda.FloatTensor ..."""
    return isinstance(value, type(torch.FloatTensor)) or (isinstance(value, type) and issubclass(value, torch.Tensor))


def _find(name: str, modules: Sequence[str]) -> Callable[..., Any] | None:
    if any(part in _REFUSED for part in re.split(r"[.:]+", name)):
        raise LookupFailure(f"{name!r} may read or write files or call what it is given: no capture makes it run")
    if "::" in name:
        return _find_dispatched(name)
    if name.startswith("torch.Tensor."):
        return _find_method(name.removeprefix("torch.Tensor."))
    space, _, last = name.rpartition(".")
    if not last.isidentifier():
        return None
    found = _find_torch(space, last) or _find_foreign(space, last, modules)
    return found or (_find_dispatched(name) if space and not space.startswith("torch.") else None)


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
        return _make_getter(getter) if getter in _GETTERS else None
    if more or not getter.isidentifier():
        return None
    found = getattr(torch.Tensor, getter, None)
    own = any(getter in vars(base) for base in torch.Tensor.__mro__ if base is not object)
    allowed = not getter.startswith("__") or id(found) in _overridable()
    return found if own and allowed and callable(found) and not isinstance(found, type) else None


@functools.lru_cache(maxsize=len(_GETTERS))
def _make_getter(name: str) -> Callable[..., Any]:
    return lambda tensor: getattr(tensor, name)


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
    return found if callable(found) and is_operator(found) else None


def is_operator(function: Any) -> bool:
    """A function of torch that computes, by itself."""
    if id(function) in _overridable() or _is_native(function):
        return True
    functional = isinstance(function, types.FunctionType) and function.__module__ == "torch.nn.functional"
    return functional and not function.__name__.startswith("_") and vars(F).get(function.__name__) is function


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
    from ..utils import get_function_from_string

    if not any(space == module or space.startswith(module + ".") for module in modules):
        return None
    try:
        found = get_function_from_string(f"{space}.{last}")
    except (ImportError, AttributeError):
        return None
    return found if callable(found) else None
