"""Helpers of the operator tools that users' scripts import: containers, devices, names, comparison, location.

Names and meanings are those of the original op_tools. Importing this module touches no device and reads no environment;
nothing here ever writes the environment.
"""

from __future__ import annotations

import functools
import importlib
import linecache
import math
import os
import re
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

from .comparison import compare_result, get_error_tolerance, tensor_cos_similarity
from .containers import map_container, traverse_container

__all__ = [
    "compare_result",
    "current_location",
    "get_dtype_cast_dict_form_str",
    "get_error_tolerance",
    "get_function_from_string",
    "get_option",
    "is_cpu_op",
    "is_inf_or_nan",
    "is_inplace_op",
    "is_opname_match",
    "is_view_op",
    "map_container",
    "set_option_if_empty",
    "tensor_cos_similarity",
    "to_device",
    "traverse_container",
]

# Devices

_DEVICE_TEXT = re.compile(r"[a-z_0-9]+(:[0-9]+)?").fullmatch


@functools.lru_cache(maxsize=256)
def _device_of_text(text: str) -> torch.device | None:
    if not _DEVICE_TEXT(text):
        return None
    try:
        return torch.device(text)
    except RuntimeError:
        return None


def is_readable(tensor: torch.Tensor) -> bool:
    """False for tensors without memory: meta and fake ones."""
    fake = sys.modules.get("torch._subclasses.fake_tensor")
    return tensor.device.type != "meta" and not (fake is not None and isinstance(tensor, fake.FakeTensor))


def _device_of(obj: Any, text: bool = True) -> torch.device | None:
    """The device that an argument names or lives on, None when it is the CPU or nothing of that kind."""
    if isinstance(obj, torch.Tensor):
        device = obj.device if is_readable(obj) else None
    elif isinstance(obj, torch.device):
        device = obj
    elif text and isinstance(obj, str):
        device = _device_of_text(obj)
    else:
        return None
    return None if device is None or device.type in ("cpu", "meta") else device


def is_cpu_op(*args: Any, **kwargs: Any) -> tuple[bool, torch.device]:
    """(True, cpu) when no argument is on a device or names one, else (False, that device).

    Positional arguments decide first, then keyword tensors, then `device=`. Meta and fake tensors have no memory to
    look at and count as CPU."""
    for obj in traverse_container(args):
        device = _device_of(obj)
        if device is not None:
            return False, device
    wanted = kwargs.get("device")
    for obj in traverse_container(list(kwargs.values())) if kwargs else ():
        device = _device_of(obj, text=False)
        if device is not None and obj is not wanted:
            return False, device
    if wanted is not None:
        device = wanted if isinstance(wanted, torch.device) else torch.device(wanted)
        if device.type not in ("cpu", "meta"):
            return False, device
    return True, torch.device("cpu")


def to_device(
    device: Any, obj: Any, detach: bool = False, dtype_cast_dict: dict[torch.dtype, torch.dtype] | None = None
) -> Any:
    """`obj` with its tensors cast by `dtype_cast_dict` and moved to `device`; devices, and strings that name one,
    become the target. With `detach`, tensors are cut from the graph and keep requires_grad."""
    casts = dtype_cast_dict or {}

    def move(item: Any) -> Any:
        if isinstance(item, torch.Tensor):
            if not detach:
                return item.to(casts.get(item.dtype, item.dtype)).to(device)
            result = item.detach().to(casts.get(item.dtype, item.dtype)).to(device)
            if item.requires_grad and (result.is_floating_point() or result.is_complex()):
                result.requires_grad_(True)
            return result
        if isinstance(item, torch.device):
            return torch.device(device)
        if isinstance(item, str) and _device_of_text(item) is not None:
            return str(device)
        return item

    return map_container(obj, move)


# Values


def _tensor_has_nonfinite(tensor: torch.Tensor) -> bool:
    if not (tensor.is_floating_point() or tensor.is_complex()) or not is_readable(tensor):
        return False
    tensor = tensor.detach()
    if tensor.layout != torch.strided:
        tensor = tensor._values() if tensor.layout == torch.sparse_coo else tensor.values()
    if tensor.dtype.itemsize == 1:
        tensor = tensor.float()
    return not bool(torch.isfinite(tensor).all())


def is_inf_or_nan(x: Any) -> Any:
    """Whether a value holds an infinity or a NaN; for containers a container of answers (tuples become plain)."""
    if isinstance(x, torch.Tensor):
        return _tensor_has_nonfinite(x)
    if isinstance(x, float):
        return not math.isfinite(x)
    if isinstance(x, complex):
        return not (math.isfinite(x.real) and math.isfinite(x.imag))
    if isinstance(x, tuple):
        return tuple(is_inf_or_nan(item) for item in x)
    if isinstance(x, (list, set)):
        return type(x)([is_inf_or_nan(item) for item in x])
    if isinstance(x, dict):
        return {key: is_inf_or_nan(value) for key, value in x.items()}
    return False


# Names of operators


_LIST_TOKEN = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.", re.DOTALL)  # an escape, a character set, one character


def _split_list(text: str) -> list[str]:
    """Entries of a list, stripped; a comma inside brackets belongs to its regular expression."""
    entries, depth = [""], 0
    for token in _LIST_TOKEN.findall(text):
        depth += (token in "({") - (token in ")}" and depth > 0)
        if token == "," and depth == 0:
            entries.append("")
        else:
            entries[-1] += token
    return [entry.strip() for entry in entries if entry.strip()]


@functools.lru_cache(maxsize=1024)
def _compile_list(text: str) -> tuple[frozenset[str], tuple[re.Pattern, ...]]:
    names, patterns = set(), []
    for entry in _split_list(text):
        names.add(entry)
        if not all(part.isidentifier() for part in entry.split(".")):
            try:
                patterns.append(re.compile(entry))
            except re.error as error:
                raise ValueError(
                    f"operator list {text!r}: {entry!r} is neither an operator name nor a regular expression: "
                    f"{error.msg} at position {error.pos}"
                ) from None
    return frozenset(names), tuple(patterns)


def is_opname_match(name: str | None, op_pattern: str | None = None) -> bool:
    """Whether `name` is in a comma-separated list of names and regular expressions (which must match the whole name).

    A name of None matches nothing, a list of None everything. A bad regular expression is a ValueError."""
    if name is None:
        return False
    if op_pattern is None:
        return True
    names, patterns = _compile_list(op_pattern)
    return name in names or any(pattern.fullmatch(name) for pattern in patterns)


_INPLACE_OPS = frozenset(("torch.Tensor.__setitem__", "torch.Tensor.to", "torch.Tensor.contiguous"))


def is_inplace_op(name: str, *args: Any, **kwargs: Any) -> bool:
    """Whether the operator changes an argument (or may return it): by name, by `inplace=`, by `out=` being one of the
    positional arguments."""
    if kwargs.get("inplace"):
        return True
    out = kwargs.get("out")
    if out is not None and any(item is out for item in args):
        return True
    own = name.startswith("torch.Tensor.") and name.endswith("_") and not name.endswith("__")
    return own or name in _INPLACE_OPS


def is_view_op(name: str) -> bool:
    """Whether the operator, a method of tensors, may return a view of its first argument."""
    from .traits import get_traits  # of the extension, which importing this module does not need

    return name.startswith("torch.Tensor.") and "view" in get_traits(name)


def get_function_from_string(func_str: str) -> Any:
    """The object with this dotted name; packages are imported as far as the name needs."""
    parts = [part.strip() for part in func_str.split(".")]
    if not all(parts):
        raise ValueError(f"{func_str!r} is no dotted name; wanted is e.g. 'torch.nn.functional.linear'")
    found = importlib.import_module(parts[0])
    for i, part in enumerate(parts[1:], 2):
        try:
            found = getattr(found, part)
        except AttributeError:
            module = ".".join(parts[:i])
            if not hasattr(found, "__path__"):
                raise
            try:
                found = importlib.import_module(module)
            except ModuleNotFoundError as error:
                if error.name != module:
                    raise
                raise AttributeError(f"module {'.'.join(parts[: i - 1])!r} has no attribute {part!r}") from None
    return found


def get_dtype_cast_dict_form_str(config: str | None) -> dict[torch.dtype, torch.dtype]:
    """{torch.float16: torch.float32} of 'torch.float16->torch.float32', several separated by commas; {} for nothing."""
    casts = {}
    for entry in (config or "").split(","):
        if not entry.strip():
            continue
        names = [name.strip() for name in entry.split("->")]
        if len(names) != 2 or not all(names):
            raise ValueError(
                f"dtype map {config!r}: {entry.strip()!r} is not of the form 'torch.float16->torch.float32'"
            )
        # Looked up, never imported: the text may come from anywhere.
        dtypes = [getattr(torch, name[6:], None) if name.startswith("torch.") else None for name in names]
        for name, dtype in zip(names, dtypes, strict=True):
            if not isinstance(dtype, torch.dtype):
                raise ValueError(f"dtype map {config!r}: {name!r} is no torch.dtype, such as torch.float32")
        casts[dtypes[0]] = dtypes[1]
    return casts


# Where a call came from

_INTERNAL_PACKAGES = frozenset(
    ("torch", "op_tools", "ditorch", "torch_npu", "torch_mlu", "torch_br", "torch_dipu", "torch_xla")
)


_TOOL_PACKAGES = frozenset(("op_tools", "ditorch"))


def _is_internal(frame: FrameType) -> bool:
    return frame.f_globals.get("__name__", "").partition(".")[0] in _INTERNAL_PACKAGES


def _frame_text(frame: FrameType, separator: str) -> str:
    code = frame.f_code
    source = linecache.getline(code.co_filename, frame.f_lineno, frame.f_globals).strip()
    return f"{code.co_filename}:{frame.f_lineno} {code.co_name}{separator} {source}"


def write_stack(write: Callable[[str], Any] | None = None, frame: FrameType | None = None) -> None:
    """A frame (by default the nearest one outside the tools) and its callers, outermost first."""
    frame = frame or sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _TOOL_PACKAGES:
        frame = frame.f_back
    lines: list[str] = []
    walker: FrameType | None = frame
    while walker is not None:
        lines.append(_frame_text(walker, "") + "\n")
        walker = walker.f_back
    (write or sys.stdout.write)("".join(reversed(lines)))


def wants_stack() -> bool:
    """Whether OP_TOOLS_PRINT_STACK is above 0."""
    text = os.environ.get("OP_TOOLS_PRINT_STACK", "0").strip() or "0"
    try:
        return int(text) > 0
    except ValueError:
        raise ValueError(f"OP_TOOLS_PRINT_STACK={text!r} is no whole number; wanted is 0 or 1") from None


def current_location(name: str | None = None, stack_depth: int = -1, print_stack: bool = False) -> str:
    """The nearest caller outside torch and the tools, as "<file>:<line> <function>: <source line>".

    `stack_depth` says where to begin: -1 here, -2 at the caller, 0 at the outermost frame. `print_stack` (or the
    variable OP_TOOLS_PRINT_STACK) prints the callers of the caller first. `name` is accepted and not used."""
    here = sys._getframe()
    frames = [here]
    while frames[-1].f_back is not None:
        frames.append(frames[-1].f_back)
    if print_stack or wants_stack():
        write_stack(frame=frames[min(2, len(frames) - 1)])
    start = -1 - stack_depth if stack_depth < 0 else len(frames) - 1 - stack_depth
    start = min(max(start, 0), len(frames) - 1)
    found = next((frame for frame in frames[start:] if not _is_internal(frame)), frames[-1])
    return _frame_text(found, ":")


# Options of the process

_options: dict[str, Any] = {}  # values given by set_option_if_empty
_shown: dict[tuple[str, Any], Any] = {}
_options_lock = threading.Lock()


def _show(name: str, key: Any, value: Any) -> None:
    with _options_lock:
        if value is None or _shown.get((name, key)) == value:
            return
        _shown[(name, key)] = value
    print(f"option: {name}={value}")


def get_option(name: str, default: Any = None) -> Any:
    """The environment's value, else the one of set_option_if_empty, else `default`, which stays the caller's own: it is
    kept for nobody else. A value that was not seen before is printed."""
    value = os.environ.get(name)
    if value is None:
        value = _options.get(name, default)
    _show(name, default, value)
    return value


def set_option_if_empty(name: str, value: Any) -> None:
    """Give an option a value for this process, unless the environment or an earlier call did."""
    if name not in os.environ:
        with _options_lock:
            value = _options.setdefault(name, value)
        _show(name, None, value)
