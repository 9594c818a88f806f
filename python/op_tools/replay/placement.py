"""The arguments of a captured call, on a device of choice and fresh for every run.

Tensors keep dtype, shape, strides, offset, conjugate and negative bits, and what they share: memory is copied storage
by storage, and tensors that overlap in the capture overlap again. Tensors that were on the CPU beside a device's stay
there. A `request` of the judge (ditorch/judge.py) makes the arguments of one of its further runs: each tensor in
float64 or a few roundings away, on its own.

`make` gives the arguments of one run; no run sees what another one wrote. Depends on torch and ditorch.judge; runs with
torch-function modes off, so that a tool that is on does not see it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from ditorch.judge import Request

from ..containers import map_container, traverse_container
from ..reader.tagged import Described

_PLAIN = (torch.Tensor, torch.nn.Parameter, getattr(torch.nn, "Buffer", torch.Tensor))


class PlacementError(ValueError):
    """Arguments that cannot be put on a device; the text says which and why."""


@dataclass
class Placed:
    """The arguments of one run."""

    args: tuple
    kwargs: dict[str, Any]
    tensors: list[torch.Tensor]
    """All tensors of args, then of kwargs, in order; the same object as often as it occurs."""
    leaves: list[torch.Tensor | None]
    """Beside each tensor: what its gradient is asked for, None where there is none."""
    memory: list[torch.Tensor]
    """The copies of the storages."""


@dataclass
class _Group:
    """Tensors that share a storage, and a copy of that storage."""

    storage: torch.UntypedStorage
    device: torch.device
    extent: int = 0
    """Bytes that the tensors reach."""
    pristine: torch.Tensor | None = None

    def add(self, tensor: torch.Tensor) -> None:
        if tensor.numel():
            last = tensor.storage_offset() + sum(
                (size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
            )
            self.extent = max(self.extent, (last + 1) * tensor.dtype.itemsize)

    def load(self) -> None:
        """Bring the bytes to the device."""
        source = torch.empty(0, dtype=torch.uint8)
        source.set_(self.storage, 0, (self.extent,), (1,))
        moved = source.to(self.device)
        self.pristine = moved.clone() if moved is source else moved


@dataclass
class _Recipe:
    """How one tensor is made from the copy of its storage."""

    group: int
    dtype: torch.dtype
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    conj: bool
    neg: bool
    grad: bool
    parameter: bool

    def make(self, memory: torch.Tensor) -> torch.Tensor:
        tensor = torch.empty(0, dtype=self.dtype, device=memory.device)
        tensor.set_(memory.untyped_storage(), self.offset, self.size, self.stride)
        tensor = torch._neg_view(tensor) if self.neg else tensor
        return tensor.conj() if self.conj else tensor


class _Entry(torch.autograd.Function):
    """A tensor that is no leaf and may be written to; its gradient arrives at `leaf`."""

    @staticmethod
    def forward(ctx: Any, leaf: torch.Tensor, box: list[torch.Tensor]) -> torch.Tensor:
        return box[0]

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return grad, None


def is_plain(tensor: torch.Tensor) -> bool:
    """Strided memory of its own that can be copied as bytes."""
    return (
        tensor.layout == torch.strided
        and not tensor.is_quantized
        and not tensor.is_nested
        and tensor.device.type != "meta"
        and type(tensor) in _PLAIN
    )


class Placement:
    """The arguments of one call, for one device.

    `homes`: where the tensors were, in the order of `Placed.tensors` (texts such as "cpu" and "cuda:0"); without it, or
    when no tensor was on a device, all go to `device`. `request`: of the judge; `exact` then means an operator that
    computes nothing (judge.keeps_dtypes), and `writes` one that writes to its arguments: those that share memory keep
    sharing it, as they are."""

    def __init__(
        self,
        args: tuple,
        kwargs: dict,
        device: Any,
        *,
        request: Request | None = None,
        exact: bool = False,
        writes: bool = False,
        homes: list[str] | None = None,
    ) -> None:
        self.device = torch.device(device)
        self._request, self._exact = request, exact
        self._arguments = (tuple(args), dict(kwargs))
        self._groups: list[_Group] = []
        self._recipes: dict[int, _Recipe] = {}
        self._special: dict[int, torch.Tensor] = {}
        with torch._C.DisableTorchFunction(), torch.no_grad():
            self._plan(homes, writes)

    # Planning

    def _plan(self, homes: list[str] | None, writes: bool) -> None:
        self._check()
        tensors = self._list_tensors()
        if self._request is not None:
            double = any(tensor.dtype in (torch.float64, torch.complex128) for tensor in tensors)
            self._arguments = self._request.change_arguments(*self._arguments, double=double, exact=self._exact)
        moves = self._request is not None and self._request.kind not in ("native", "other")
        moves = moves and not (writes and _overlap(tensors))
        on_cpu = _stays(homes, tensors)
        by_storage: dict[int, int] = {}
        for place, tensor in enumerate(tensors):
            if id(tensor) in self._recipes or id(tensor) in self._special:
                continue
            device = torch.device("cpu") if id(tensor) in on_cpu else self.device
            if not is_plain(tensor):
                self._special[id(tensor)] = self._move_special(tensor, device, place if moves else -1)
            elif moves:
                self._recipes[id(tensor)] = self._describe_moved(tensor, device, place)
            else:
                self._recipes[id(tensor)] = self._describe(tensor, by_storage, device)
        for group in self._groups:
            if group.pristine is None:
                group.load()

    def _list_tensors(self) -> list[torch.Tensor]:
        return [value for value in traverse_container(self._arguments) if isinstance(value, torch.Tensor)]

    def _check(self) -> None:
        found = _find_described(self._arguments)
        if found is not None:
            text = ", ".join(f"{name}={fact!r}" for name, fact in found.facts.items())
            raise PlacementError(
                f"the capture has only a description of an argument ({found.kind}: {text[:200]}), not its value"
            )

    def _describe(self, tensor: torch.Tensor, by_storage: dict[int, int], device: torch.device) -> _Recipe:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in by_storage:
            by_storage[key] = len(self._groups)
            self._groups.append(_Group(storage, device))
        group = self._groups[by_storage[key]]
        if device.type != "cpu":
            group.device = device
        group.add(tensor)
        return _Recipe(
            by_storage[key],
            tensor.dtype,
            tensor.storage_offset(),
            tuple(tensor.shape),
            tensor.stride(),
            tensor.is_conj(),
            tensor.is_neg(),
            tensor.requires_grad,
            isinstance(tensor, torch.nn.Parameter),
        )

    def _describe_moved(self, tensor: torch.Tensor, device: torch.device, place: int) -> _Recipe:
        """In memory of its own, as the judge wants it."""
        moved = self._request.move(tensor, place, exact=self._exact).to(device)
        own = moved.clone() if moved.untyped_storage()._cdata == tensor.untyped_storage()._cdata else moved
        own = own.resolve_conj().resolve_neg()
        numbers = own.untyped_storage().nbytes() // own.element_size()
        self._groups.append(_Group(own.untyped_storage(), device, pristine=own.as_strided((numbers,), (1,), 0)))
        return _Recipe(
            len(self._groups) - 1,
            own.dtype,
            own.storage_offset(),
            tuple(own.shape),
            own.stride(),
            False,
            False,
            tensor.requires_grad,
            isinstance(tensor, torch.nn.Parameter),
        )

    def _move_special(self, tensor: torch.Tensor, device: torch.device, place: int) -> torch.Tensor:
        if tensor.device.type == "meta":
            return tensor
        moved = tensor.detach()
        if place >= 0 and not moved.is_quantized:
            moved = self._request.move(moved, place, exact=self._exact)
        return moved.to(device)

    # One run

    @property
    def nbytes(self) -> int:
        """Of the copies."""
        return sum(group.pristine.nbytes for group in self._groups)

    def make(self, grad: str = "leaf", fresh: bool = True) -> Placed:
        """The arguments of one run. `grad`: `leaf` (tensors that require grad are leaves), `inner` (they are results of
        something, as an operator that writes to them needs it) or `none`. `fresh=False` hands out the same memory
        again, for operators that do not write."""
        if grad not in ("leaf", "inner", "none"):
            raise ValueError(f"grad is {grad!r}; valid: leaf, inner, none")
        with torch._C.DisableTorchFunction():
            with torch.no_grad():
                memory = [group.pristine.clone() if fresh else group.pristine for group in self._groups]
            made: dict[int, tuple[torch.Tensor, torch.Tensor | None]] = {}
            args, kwargs = map_container(self._arguments, lambda value: self._make_one(value, memory, grad, made))
        pairs = [made[id(tensor)] for tensor in self._list_tensors()]
        return Placed(args, kwargs, [pair[0] for pair in pairs], [pair[1] for pair in pairs], memory)

    def differs(self, placed: Placed) -> bool:
        """Whether somebody has written other values to the arguments of a run."""
        with torch._C.DisableTorchFunction(), torch.no_grad():
            pairs = [(group.pristine, memory) for group, memory in zip(self._groups, placed.memory, strict=True)]
            return any(not torch.equal(a.view(torch.uint8), b.view(torch.uint8)) for a, b in pairs if a is not b)

    def _make_one(self, value: Any, memory: list[torch.Tensor], grad: str, made: dict) -> Any:
        if isinstance(value, torch.Tensor):
            if id(value) not in made:
                made[id(value)] = self._make_tensor(value, memory, grad)
            return made[id(value)][0]
        if isinstance(value, torch.device):
            return value if value.type in ("cpu", "meta") else self.device
        if isinstance(value, torch.Generator):
            return self._make_generator(value)
        if isinstance(value, str) and _names_device(value):
            return str(self.device)
        return value

    def _make_tensor(
        self, source: torch.Tensor, memory: list[torch.Tensor], grad: str
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        recipe = self._recipes.get(id(source))
        with torch.no_grad():
            if recipe is None:
                tensor = self._special[id(source)]
                tensor = tensor if tensor is source else tensor.clone()
            else:
                tensor = recipe.make(memory[recipe.group])
        wants = source.requires_grad and grad != "none"
        wants = wants and (tensor.is_floating_point() or tensor.is_complex())
        if not wants:
            is_parameter = recipe is not None and recipe.parameter
            return (torch.nn.Parameter(tensor, requires_grad=False) if is_parameter else tensor), None
        if grad == "leaf":
            tensor = torch.nn.Parameter(tensor) if recipe and recipe.parameter else tensor.detach().requires_grad_()
            return tensor, tensor
        with torch.enable_grad():
            leaf = torch.zeros((), dtype=tensor.dtype, device=tensor.device).expand(tensor.shape).requires_grad_()
            return _Entry.apply(leaf, [tensor]), leaf

    def _make_generator(self, source: torch.Generator) -> torch.Generator:
        device = "cpu" if source.device.type == "cpu" else self.device
        generator = torch.Generator(device)
        try:
            generator.set_state(source.get_state())
        except RuntimeError:  # the state of another kind of device
            generator.manual_seed(source.initial_seed())
        return generator


def _overlap(tensors: list[torch.Tensor]) -> bool:
    """Do two different tensors lie in one storage?"""
    plain = {id(tensor): tensor for tensor in tensors if is_plain(tensor)}
    return len({tensor.untyped_storage()._cdata for tensor in plain.values()}) < len(plain)


def _stays(homes: list[str] | None, tensors: list[torch.Tensor]) -> set[int]:
    """Tensors that were on the CPU while others were not."""
    if not homes or len(homes) != len(tensors):
        return set()
    if all(home in ("", "cpu", "meta") for home in homes):
        return set()
    return {id(tensor) for tensor, home in zip(tensors, homes, strict=True) if home == "cpu"}


def _find_described(value: Any, depth: int = 0) -> Described | None:
    """A value that the capture could only describe, at any depth."""
    if isinstance(value, Described):
        return value
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, (list, tuple, set, frozenset)) and depth < 64:
        return next(filter(None, (_find_described(item, depth + 1) for item in value)), None)
    return None


def _names_device(text: str) -> bool:
    from ..utils import _device_of_text

    device = _device_of_text(text)
    return device is not None and device.type not in ("cpu", "meta")
