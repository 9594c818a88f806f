"""torch.distributed over a vendor's collectives: "nccl" means theirs, and reductions that they lack are made of others.

The backend's name is translated where every process group is made, and AVG where every Python function of
torch.distributed ends: in the methods of ProcessGroup. Functions that a program imported by name long before are
therefore covered too, and torch itself has already mapped ranks and read keywords. AVG is SUM, divided when the work is
done: `wait` divides behind the reduction, in the order of the current stream, and an async handle stays async. C++ code
that calls a backend itself (DDP's reducer, functional collectives) does not pass here; the former never asks for AVG.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ..patches import Patches
from ..utils import div_inp
from .probe import Stack

NCCL = "nccl"

_METHODS = (
    "allreduce",
    "allreduce_coalesced",
    "reduce",
    "reduce_scatter",
    "_reduce_scatter_base",
    "reduce_scatter_single",
    "reduce_scatter_tensor_coalesced",
    "reduce_scatter_single_coalesced",
)
"""Methods of ProcessGroup that reduce; the first argument is what is written. Names differ between releases."""


def find_name(stack: Stack) -> str:
    """The name under which the vendor's collectives are registered; "" where there are none."""
    backend = torch.distributed.Backend
    for name in stack.row.collectives:
        if name in backend.backend_list:
            return name
    for name in backend._plugins:
        if stack.device in backend.backend_capability.get(name.lower(), ()):
            return name.lower()
    return ""


def install(patches: Patches, stack: Stack) -> None:
    """Nothing is done in a torch without torch.distributed."""
    if not torch.distributed.is_available():
        return
    name = find_name(stack)
    _install_names(patches, stack, name)
    if name and "AVG" in stack.row.lacks:
        Average(stack, name).install(patches)


# Names


def _replace(patches: Patches, stack: Stack, table: dict[Callable[..., Any], Callable[..., Any]]) -> None:
    """Put the new functions wherever a module holds an old one, imports by name included. The vendor's own package
    keeps what it holds."""
    by_id = {id(native): value for native, value in table.items()}
    own = (stack.row.package, stack.row.package + ".")
    for path, module in list(sys.modules.items()):
        if not isinstance(module, types.ModuleType) or path == own[0] or path.startswith(own[1]):
            continue
        for name, held in list(module.__dict__.items()):
            if id(held) in by_id:
                patches.set(module, name, by_id[id(held)])


def translate(backend: Any, old: str, new: str) -> Any:
    """`backend` with one name replaced: alone ("nccl") or in pairs ("cpu:gloo,cuda:nccl")."""
    if not isinstance(backend, str) or old not in backend.lower():
        return backend
    parts = [part.rpartition(":") for part in backend.lower().split(",")]
    return ",".join(f"{device}{colon}{new if kind == old else kind}" for device, colon, kind in parts)


def _install_names(patches: Patches, stack: Stack, name: str) -> None:
    dist, module = torch.distributed, torch.distributed.distributed_c10d
    native_helper, native_get = module._new_process_group_helper, module.get_backend
    signature = inspect.signature(native_helper)

    @functools.wraps(native_helper)
    def _new_process_group_helper(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        wanted = bound.arguments["backend"]
        if not name and wanted is not translate(wanted, NCCL, ""):
            raise RuntimeError(
                f"backend {wanted!r}: {stack.row.package} has registered no collectives for {stack.device} devices "
                f"(looked for {', '.join(stack.row.collectives)}); use backend='gloo' with CPU tensors"
            )
        bound.arguments["backend"] = translate(wanted, NCCL, name)
        return native_helper(*bound.args, **bound.kwargs)

    @functools.wraps(native_get)
    def get_backend(group: Any = None) -> str:
        found = native_get(group)
        return translate(found, name, NCCL) if name else found

    def is_nccl_available() -> bool:
        """The vendor's collectives answer for NCCL (torch.distributed.is_nccl_available)."""
        return bool(name)

    table = {native_helper: _new_process_group_helper, native_get: get_backend}
    _replace(patches, stack, {**table, module.is_nccl_available: is_nccl_available})
    if not isinstance(getattr(module, "default_pg_nccl_timeout", None), type(module.default_pg_timeout)):
        patches.set(module, "default_pg_nccl_timeout", module.default_pg_timeout)
    if name:
        patches.item(dist.Backend.default_device_backend_map, "cuda", name)


# AVG


def _flatten(tensors: Any) -> Iterator[torch.Tensor]:
    if isinstance(tensors, torch.Tensor):
        yield tensors
    elif isinstance(tensors, (list, tuple)):
        for item in tensors:
            yield from _flatten(item)


def divide(tensors: Any, count: int) -> None:
    """Divide in place, integers towards zero, as NCCL does."""
    for tensor in _flatten(tensors):
        guard = torch.inference_mode if tensor.is_inference() else torch.no_grad
        with guard():
            if tensor.is_floating_point() or tensor.is_complex():
                div_inp(tensor, count)
            else:
                tensor.div_(count, rounding_mode="trunc")


class _Division:
    """One division that is owed, done once."""

    def __init__(self, tensors: Any, count: int) -> None:
        self._lock = threading.Lock()
        self._tensors, self._count = tensors, count

    def pay(self) -> None:
        with self._lock:
            if self._tensors is not None:
                divide(self._tensors, self._count)
                self._tensors = None


@functools.cache
def work_class() -> type:
    """The class of the handles. torch.distributed.Work is its base, so that isinstance holds."""
    base = torch._C._distributed_c10d.Work

    class AveragedWork(base):
        """A vendor's handle, and divisions that follow it. Everything else is asked of the handle."""

        def __init__(self, work: Any, divisions: list[_Division]) -> None:
            super().__init__()
            self.work, self.divisions = work, divisions

        def _settle(self) -> None:
            for division in self.divisions:
                division.pay()

        def wait(self, *args: Any, **kwargs: Any) -> bool:
            done = self.work.wait(*args, **kwargs)
            self._settle()
            return done

        def synchronize(self) -> None:
            self.work.synchronize()
            self._settle()

        def block_current_stream(self) -> None:
            self.work.block_current_stream()
            self._settle()

        def is_completed(self) -> bool:
            """A handle that says so has its result in place: that includes the division. A failure is for wait() to
            raise."""
            done = self.work.is_completed()
            if done:
                with contextlib.suppress(Exception):
                    self.wait()
            return done

        def result(self) -> Any:
            self.wait()
            return self.work.result()

        def get_future(self) -> Any:
            def divided(future: Any) -> Any:
                value = future.value()
                self._settle()
                return value

            return self.work.get_future().then(divided)

    def forward(name: str) -> Callable[..., Any]:
        return lambda self, *args, **kwargs: getattr(self.work, name)(*args, **kwargs)

    for name in ("is_success", "exception", "source_rank", "get_future_result", "_source_rank", "_get_duration"):
        if hasattr(base, name):
            setattr(AveragedWork, name, forward(name))
    return AveragedWork


class Average:
    """AVG for one vendor's collectives."""

    def __init__(self, stack: Stack, name: str) -> None:
        self.device, self.name = stack.device, name
        self.average = torch.distributed.ReduceOp.AVG
        self.sum = torch.distributed.ReduceOp.SUM
        self.pending = threading.local()
        """Divisions owed to calls inside a coalescing block, which have no handle of their own."""

    def install(self, patches: Patches) -> None:
        kind = torch._C._distributed_c10d.ProcessGroup
        for name in _METHODS:
            native = getattr(kind, name, None)
            if native is not None:
                patches.set(kind, name, self.make(name, native))
        if hasattr(kind, "_end_coalescing"):
            patches.set(kind, "_end_coalescing", self.make_end(kind._end_coalescing))

    def make_end(self, native: Callable[..., Any]) -> Callable[..., Any]:
        """ProcessGroup._end_coalescing: its handle settles what the calls inside the block owe."""

        @functools.wraps(native)
        def _end_coalescing(group: Any, *args: Any, **kwargs: Any) -> Any:
            owed, self.pending.owed = getattr(self.pending, "owed", []), []
            work = native(group, *args, **kwargs)
            if work is None:
                for division in owed:
                    division.pay()
            return work_class()(work, owed) if owed and work is not None else work

        return _end_coalescing

    def serves(self, group: Any, tensors: Any) -> bool:
        """The group sends these tensors through the vendor's collectives."""
        tensor = next(_flatten(tensors), None)
        if tensor is None:
            return False
        config = torch.distributed.distributed_c10d._world.pg_backend_config.get(group, "")
        table = dict(pair.split(":", 1) for pair in config.split(",") if ":" in pair)
        names = (self.device, "cuda") if tensor.device.type in (self.device, "cuda") else (tensor.device.type,)
        return self.name in [table.get(name) for name in names]

    def replace(self, args: tuple, kwargs: dict[str, Any]) -> tuple[bool, tuple, dict[str, Any], Any]:
        """(AVG was asked for, arguments with SUM, the options object whose operator was exchanged or None)."""
        reduce_op = torch.distributed.ReduceOp
        for value in (*args[1:], *kwargs.values()):
            if hasattr(value, "reduceOp"):
                asked = value.reduceOp == self.average
                return asked, args, kwargs, value if asked else None
        kinds = (reduce_op, reduce_op.RedOpType)

        def swap(value: Any) -> Any:
            return self.sum if isinstance(value, kinds) and value == self.average else value

        found = any(isinstance(value, kinds) and value == self.average for value in (*args[1:], *kwargs.values()))
        return found, tuple(map(swap, args)), {key: swap(value) for key, value in kwargs.items()}, None

    def make(self, name: str, native: Callable[..., Any]) -> Callable[..., Any]:
        """The method `name`: AVG becomes SUM and a division."""

        @functools.wraps(native)
        def method(group: Any, *args: Any, **kwargs: Any) -> Any:
            average, new_args, new_kwargs, options = self.replace(args, kwargs)
            outputs = args[0] if args else next(iter(kwargs.values()), None)
            if not average or not self.serves(group, outputs):
                return native(group, *args, **kwargs)
            if any(tensor.dtype is torch.bool for tensor in _flatten(outputs)):
                raise TypeError(f"ProcessGroup.{name}: ReduceOp.AVG is not defined for bool tensors; use SUM or MAX")
            try:
                if options is not None:
                    options.reduceOp = self.sum
                work = native(group, *new_args, **new_kwargs)
            finally:
                if options is not None:
                    options.reduceOp = self.average
            if name == "reduce" and _root(options, args, kwargs) != group.rank():
                return work
            division = _Division(outputs, group.size())
            if work is None:  # a coalescing block is open
                self.pending.owed = [*getattr(self.pending, "owed", []), division]
                return None
            return work_class()(work, [division])

        return method


def _root(options: Any, args: tuple, kwargs: dict[str, Any]) -> int:
    """The rank in the group that gets the result of reduce."""
    if options is not None:
        return options.rootRank
    return kwargs.get("root", args[1] if len(args) > 1 and isinstance(args[1], int) else 0)
