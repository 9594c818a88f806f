"""alias=python: "cuda" becomes the device in the arguments of PyTorch's C functions.

The second line, for machines where the binary alias cannot be installed. Which functions take a device is asked of
PyTorch's operator schemas; functions without a schema are listed here. The functions stay the same objects (see
python/ext/py_redirect.c), so whatever knows torch's functions by identity goes on working; everything written in Python
inside torch ends in one of them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import torch
import torch.overrides

from . import _C, redirect_script, settings
from .library import DEVICE_TYPE
from .patches import Patches

_SPACES = ("_VariableFunctions", "_nn", "_fft", "_linalg", "_special", "_sparse", "_nested")
"""Where torch._C keeps functions that belong to operators."""

_TENSOR_EXTRAS = ("to", "new", "new_tensor", "_make_subclass", "_make_wrapper_subclass")
_FUNCTION_EXTRAS = (
    "_VariableFunctions.asarray",
    "_VariableFunctions.as_tensor",
    "_VariableFunctions.tensor",
    "_nested.nested_tensor",
    "_nn._parse_to",
)
_TEXT_EXTRAS = (
    "_dispatch_key_for_device",
    "_is_autocast_available",
    "_register_py_class_for_device",
    "get_autocast_dtype",
    "set_autocast_dtype",
)
_KEYS = (
    "_DispatchModule.fallback",
    "_DispatchModule.impl",
    "_DispatchModule.impl_with_aoti_compile",
    "_dispatch_get_computed_kernel_for_dispatch_key",
    "_dispatch_get_registrations_for_dispatch_key",
    "_dispatch_has_backend_fallback",
    "_dispatch_has_computed_kernel_for_dispatch_key",
    "_dispatch_has_kernel_for_dispatch_key",
    "_dispatch_is_included_in_alias",
    "_dispatch_kernel_for_dispatch_key_is_fallthrough",
    "_dispatch_key_parse",
    "_dispatch_library",
    "_dispatch_print_registrations_for_dispatch_key",
    "_parse_dispatch_key",
)
"""Functions that take the name of a dispatch key."""
_AUTOCAST = ("is_autocast_enabled", "set_autocast_enabled")
_AUTOCAST_GPU = {"get_autocast_gpu_dtype": "get_autocast_dtype", "set_autocast_gpu_dtype": "set_autocast_dtype"}


def device_operators() -> set[str]:
    """Names of the aten operators that take a device."""
    found = set()
    for schema in torch._C._jit_get_all_schemas():
        name = schema.name
        if name.startswith("aten::") and any(argument.name == "device" for argument in schema.arguments):
            found.add(name.removeprefix("aten::"))
    return found


def _find(path: str) -> Any:
    """The object torch._C.<path>, or None in a torch that has none."""
    found: Any = torch._C
    for part in path.split("."):
        found = getattr(found, part, None)
    return found


def _candidates() -> Iterator[tuple]:
    """(function or None, form[, substitute]) for everything that takes a device."""
    operators = device_operators()
    for space in map(_find, _SPACES):
        for name in sorted(operators):
            yield getattr(space, name, None), "device"
    methods = vars(torch._C.TensorBase)
    for name in sorted(operators.union(_TENSOR_EXTRAS)):
        method = methods.get(name)
        yield method.__func__ if isinstance(method, staticmethod) else method, "device"
    yield methods.get("numpy"), "nothing"
    for path in _FUNCTION_EXTRAS:
        yield _find(path), "device"
    for path in _TEXT_EXTRAS:
        yield _find(path), "text"
    for path in _KEYS:
        found = _find(path)
        yield getattr(found, "__func__", found), "key"
    for name in _AUTOCAST:
        yield _find(name), "autocast"
    for name, substitute in _AUTOCAST_GPU.items():
        yield _find(name), "autocast", _find(substitute)


def functions() -> list[tuple]:
    """What `_C.redirect_install` takes: every function once."""
    seen: set[int] = set()
    found = []
    for candidate in _candidates():
        function = candidate[0]
        if function is not None and id(function) not in seen:
            seen.add(id(function))
            found.append(candidate)
    return found


def classes() -> list[type]:
    """Classes of torch whose constructors take a device."""
    names = ("Generator", "Stream", "Event", "StorageBase")
    return [kind for kind in (getattr(torch._C, name, None) for name in names) if kind is not None]


def _install_operators(patches: Patches) -> None:
    """torch.ops.*: one C++ function parses the arguments of all operators that are called through their schema."""
    for kind in (torch._ops.OpOverload, torch._ops.OpOverloadPacket):
        patches.set(kind, "__call__", _redirected_call(kind.__call__))


def _redirected_call(native):
    device = torch.device

    def translate(value):
        return device(value) if isinstance(value, str) and (value == "cuda" or value.startswith("cuda:")) else value

    def __call__(self, /, *args, **kwargs):
        for value in args:
            if type(value) is str:
                args = tuple(map(translate, args))
                break
        if "device" in kwargs:
            kwargs["device"] = translate(kwargs["device"])
        return native(self, *args, **kwargs)

    __call__.__wrapped__ = native
    return __call__


def _verify(name: str, show: bool) -> None:
    """Ask PyTorch what it makes of "cuda" now."""
    shown = f"{'cuda' if show else name}:3"
    for device in (torch.device("cuda:3"), torch.device("cuda", 3), torch._C._nn._parse_to("cuda:3")[0]):
        if device != torch.device(name, 3) or str(device) != shown:
            raise NotImplementedError(
                f"after redirecting, 'cuda:3' became {device!r} instead of {shown!r}: the redirect was taken out again"
            )


def _forget_functions() -> None:
    """Empty torch's caches that are keyed by functions: a C function's hash is that of its code, which the redirect
    exchanges."""
    for module in (torch.overrides, sys.modules.get("torch.utils._device")):
        for value in list(vars(module).values()) if module else ():
            if hasattr(value, "cache_clear"):
                value.cache_clear()


_patches = Patches()


def install(name: str = "", number: int = DEVICE_TYPE) -> None:
    """Redirect to the device type of this name and c10 number (PrivateUse1 unless given); devices say "cuda" unless
    show_device_as_cuda is 0. A second call does nothing.

    Nothing stays changed when this raises.
    """
    if len(_patches):
        return
    name = name or torch._C._get_privateuse1_backend_name()
    show = bool(settings.get("show_device_as_cuda"))
    try:
        _patches.defer(_forget_functions)
        _C.redirect_install(torch.device, number, name, show, functions(), classes())
        _patches.defer(_C.redirect_restore)
        _forget_functions()
        if show:
            printed = (getattr(torch, "Stream", None), getattr(torch, "Event", None))
            _C.device_show_install(torch.device, number, name, *printed)
            _patches.defer(_C.device_show_restore)
        _verify(name, show)
        _install_operators(_patches)
        redirect_script.install(_patches, name, show)
    except BaseException:
        _patches.undo()
        raise


def uninstall() -> None:
    """Take everything back."""
    failures = _patches.undo()
    if failures:
        raise RuntimeError(f"the Python redirect could not be taken back: {failures}") from failures[0]
