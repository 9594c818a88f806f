"""Values of a call as plain data: tensors as compact copies on the CPU, containers as tuple, list and dict.

What is made here is read back by torch.load(weights_only=True), so nothing but plain data is in it: a named tuple is a
tuple, a dataclass a dict of its fields, an object that has no plain form is {"__ditorch__": "object", "type": ...}.
Invariant: a copy shares no memory with the program, and making it leaves no trace in the autograd graph, in the modes
that watch operators, or in the random state.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

TAG = "__ditorch__"
_MAX_DEPTH = 100
_PLAIN = (bool, int, float, complex, str, bytes)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Own work: not seen by torch-function modes (the operator tools), not recorded by autograd."""
    with torch._C.DisableTorchFunction(), torch.no_grad():
        yield


# One tensor


def is_readable(tensor: torch.Tensor) -> bool:
    """False for tensors without values to copy: meta, fake, not yet initialised, wrapped by a function transform."""
    fake = sys.modules.get("torch._subclasses.fake_tensor")
    if tensor.device.type == "meta" or (fake is not None and isinstance(tensor, fake.FakeTensor)):
        return False
    if isinstance(tensor, torch.nn.parameter.UninitializedTensorMixin):
        return False
    return not torch._C._functorch.is_functorch_wrapped_tensor(tensor)


def describe_tensor(tensor: torch.Tensor, reason: str) -> dict[str, Any]:
    """What stands in a file for a tensor that has no values."""
    lazy = isinstance(tensor, torch.nn.parameter.UninitializedTensorMixin)
    shape = [] if lazy else [int(size) for size in tensor.shape]
    return {TAG: "tensor", "dtype": str(tensor.dtype), "shape": shape, "reason": reason}


def _unwrap(tensor: torch.Tensor) -> torch.Tensor:
    """The plain tensor inside a subclass: the local part of a distributed one, the result of a collective."""
    for method in ("trigger_wait", "to_local"):
        if type(tensor) is not torch.Tensor and hasattr(tensor, method):
            tensor = getattr(tensor, method)()
    tensor = tensor.detach()
    return tensor if type(tensor) is torch.Tensor else tensor.as_subclass(torch.Tensor)


def copy_tensor(tensor: torch.Tensor) -> Any:
    """Its values on the CPU in memory of their own; strides are kept where they leave no holes."""
    if not is_readable(tensor):
        return describe_tensor(tensor, "no values")
    if tensor.device.type == "cuda" and torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
        return describe_tensor(tensor, "inside the capture of a CUDA graph")
    try:
        plain = _unwrap(tensor)
        copy = plain.clone() if plain.device.type == "cpu" else plain.cpu()
        if copy.layout == torch.strided:
            copy = copy.resolve_conj().resolve_neg()
        return copy
    except (RuntimeError, NotImplementedError, AttributeError, TypeError) as error:
        return describe_tensor(tensor, str(error).splitlines()[0] if str(error) else type(error).__name__)


def count_bytes(value: Any) -> int:
    """Of the tensors in a snapshot; one that stands there twice counts once."""
    items: list[Any] = []
    flatten(value, items, [])
    with contextlib.suppress(RuntimeError, NotImplementedError):
        return sum({id(item): _count_one(item) for item in items if isinstance(item, torch.Tensor)}.values())
    return 0


def _count_one(tensor: torch.Tensor) -> int:
    return tensor.nbytes if tensor.layout == torch.strided else tensor._nnz() * tensor.element_size()


# Containers


def _fields(value: Any) -> dict[str, Any] | None:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if hasattr(value, f.name)}
    return None


def children(value: Any) -> dict[Any, Any] | list | tuple | None:
    """The parts of a container as dict, list or tuple (a named tuple is a tuple); None: one item."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, tuple):
        return tuple(value)
    if isinstance(value, list):
        return list(value)
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=repr)
    return _fields(value)


def _key(key: Any) -> Any:
    return key if type(key) in (str, int, bool, float) or key is None else str(key)


def _open(value: Any, path: tuple[int, ...]) -> dict[Any, Any] | list | tuple | None:
    """The parts of a container; None for an item: also for a container inside itself."""
    if isinstance(value, (torch.Tensor, str, torch.Size)) or id(value) in path or len(path) >= _MAX_DEPTH:
        return None
    return children(value)


# The functions that walk are not closures of themselves: such a cycle would hold the tensors until the next collection.
def transform(value: Any, leaf: Callable[[Any], Any], path: tuple[int, ...] = ()) -> Any:
    """Plain containers of the same shape with `leaf` of every item."""
    parts = _open(value, path)
    if parts is None:
        return leaf(value)
    path = (*path, id(value))
    if isinstance(parts, dict):
        return {_key(key): transform(part, leaf, path) for key, part in parts.items()}
    return type(parts)(transform(part, leaf, path) for part in parts)


def take(value: Any) -> Any:
    """A snapshot. A tensor that stands in it twice is copied once and stays one object."""
    memo: dict[int, Any] = {}

    def leaf(item: Any) -> Any:
        if isinstance(item, torch.Tensor):
            if id(item) not in memo:
                memo[id(item)] = copy_tensor(item)
            return memo[id(item)]
        return _plain(item)

    with quiet():
        return transform(value, leaf)


def _plain(item: Any) -> Any:
    if item is None or type(item) in _PLAIN or isinstance(item, torch.dtype):
        return item
    if isinstance(item, torch.Size):
        return tuple(int(size) for size in item)
    if isinstance(item, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return str(item)
    for kind in (bool, int, float, str):  # subclasses: enumerations, numpy scalars
        if isinstance(item, kind):
            return kind(item)
    array = _array(item)
    if array is not None:
        return array
    return {TAG: "object", "type": f"{type(item).__module__}.{type(item).__qualname__}"}


def _array(item: Any) -> Any:
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(item, (numpy.ndarray, numpy.generic)):
        return None
    try:
        copy = torch.from_numpy(numpy.array(item, copy=True))
    except (TypeError, ValueError):
        return None
    return copy if isinstance(item, numpy.ndarray) else copy.item()


# Putting stored values in the place of live ones


class _Put(torch.autograd.Function):
    """The stored value; the gradient goes to the live one as if nothing had been replaced."""

    @staticmethod
    def forward(ctx: Any, live: torch.Tensor, stored: torch.Tensor) -> torch.Tensor:
        return _fill_like(live, stored)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple:
        return grad, None


def _fill_like(live: torch.Tensor, stored: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(live, requires_grad=False).copy_(stored)


class Replacement:
    """Stored values for the live tensors of a structure, on the device and in the dtype of each live one."""

    def __init__(self) -> None:
        self.replaced = 0
        self.problems: list[str] = []
        self._memo: dict[tuple[int, int], torch.Tensor] = {}

    def apply(self, live: Any, stored: Any, where: str) -> Any:
        """`live` with other values; containers keep their types. What does not fit stays live and is a problem."""
        from op_tools.containers import map_container

        stored_items: list[Any] = []
        paths: list[str] = []
        flatten(stored, stored_items, paths, where)
        by_path = dict(zip(paths, stored_items, strict=True))
        live_items: list[Any] = []
        live_paths: list[str] = []
        flatten(live, live_items, live_paths, where)
        fresh: dict[int, torch.Tensor] = {}
        for path, item in zip(live_paths, live_items, strict=True):
            if isinstance(item, torch.Tensor):
                fresh[id(item)] = self._replace(item, by_path.get(path), path)
        if not fresh:
            return live
        return map_container(live, lambda item: fresh.get(id(item), item) if isinstance(item, torch.Tensor) else item)

    def _replace(self, live: torch.Tensor, stored: Any, path: str) -> torch.Tensor:
        if not isinstance(stored, torch.Tensor):
            self.problems.append(f"{path}: no stored tensor")
            return live
        if live.shape != stored.shape or live.layout != torch.strided or not is_readable(live):
            self.problems.append(f"{path}: stored {list(stored.shape)}, live {list(live.shape)} {live.layout}")
            return live
        key = (id(live), id(stored))
        if key not in self._memo:
            with torch._C.DisableTorchFunction():
                if live.requires_grad and torch.is_grad_enabled():
                    self._memo[key] = _Put.apply(live, stored)
                else:
                    with torch.no_grad():
                        self._memo[key] = _fill_like(live, stored)
        self.replaced += 1
        return self._memo[key]


def flatten(value: Any, items: list, paths: list[str], path: str = "", inside: tuple[int, ...] = ()) -> None:
    """Every item with its place: `input.0`, `kwargs.mask`."""
    parts = _open(value, inside)
    if parts is None or (isinstance(parts, dict) and TAG in parts):
        items.append(value)
        paths.append(path)
        return
    inside = (*inside, id(value))
    for key, part in parts.items() if isinstance(parts, dict) else enumerate(parts):
        flatten(part, items, paths, f"{path}.{_key(key)}" if path else str(_key(key)), inside)
