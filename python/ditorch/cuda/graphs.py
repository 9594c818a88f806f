"""torch.cuda.CUDAGraph on the device: a tape of the operators that ran while capturing, run again over the same
storages.

Capturing computes, since shapes of results must be known, but leaves no trace: storages that were there before and are
written get their content back when the capture ends, generators their state. What would wait for the device (reading
a number, copying to the CPU, shapes that depend on values) is refused, as CUDA refuses it. A replay writes results
where the capture left them (`out=` where the operator has it, else a copy). Tensors of the capture stay allocated as
long as the graph does. The capture belongs to its thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from .. import _C
from ..patches import Patches
from . import pools

_READS = {
    "aten::_local_scalar_dense",
    "aten::equal",
    "aten::is_nonzero",
    "aten::item",
    "aten::masked_select",
    "aten::nonzero",
    "aten::unique_dim",
    "aten::_unique",
    "aten::_unique2",
    "aten::unique_consecutive",
    "aten::bincount",
}
_local = threading.local()


def _is_ours(value: Any) -> bool:
    return isinstance(value, Tensor) and value.device.type not in ("cpu", "meta")


def _place(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _tensors(values: Any) -> list[Tensor]:
    return [value for value in tree_leaves(values) if isinstance(value, Tensor)]


def _find_out(operator: Any) -> tuple[Any, list[str]] | None:
    """The overload that takes the same arguments and `out`, and the names of its outs."""
    same = [(a.name, str(a.type)) for a in operator._schema.arguments]
    for name in operator._overloadpacket.overloads():
        other = getattr(operator._overloadpacket, name)
        outs = [a.name for a in other._schema.arguments if a.is_out]
        rest = [(a.name, str(a.type)) for a in other._schema.arguments if not a.is_out]
        if outs and rest == same and len(outs) == len(operator._schema.returns):
            return other, outs
    return None


def _refuse(operator: Any, given: Any, results: list[Tensor]) -> str:
    """Why this call cannot be captured; empty: it can."""
    name = operator._schema.name
    if name in ("aten::index", "aten::index_put_", "aten::_index_put_impl_") and any(
        x.dtype in (torch.bool, torch.uint8) for x in _tensors(given[0][1])
    ):
        return f"{name} with a mask has a shape that depends on values"
    if name in _READS:
        return f"{name} reads a value of the device"
    if name in ("aten::_to_copy", "aten::copy_", "aten::_copy_from", "aten::_copy_from_and_resize"):
        target = results[0] if results else None
        if target is not None and target.device.type == "cpu" and any(_is_ours(x) for x in _tensors(given)):
            return f"{name} copies to the CPU"
    return ""


class _Tape(TorchDispatchMode):
    """Runs, checks and writes down what a program does on the device."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Callable[[], Any]] = []
        self.kept: list[Any] = []
        self.made: set[int] = set()
        self.saved: dict[int, tuple[Tensor, Tensor]] = {}
        self.failed = ""
        self.states = [torch.cuda.get_rng_state(i) for i in range(torch.cuda.device_count())]

    def __torch_dispatch__(self, operator: Any, types: Any, given: Any = (), named: Any = None) -> Any:
        named = named or {}
        if any(_is_ours(x) for x in _tensors((given, named))):
            self._fail(_refuse(operator, (given, named), []))
        written = self._find_written(operator, given, named)
        for tensor in written:
            self._save(tensor)
        result = operator(*given, **named)
        results = _tensors(result)
        if any(map(_is_ours, results)) or any(map(_is_ours, _tensors((given, named)))):
            self._fail(_refuse(operator, (given, named), results))
            self._record(operator, given, named, result, bool(written))
        return result

    def _fail(self, why: str) -> None:
        if why:
            self.failed = why
            raise RuntimeError(
                f"operation not permitted while a CUDA graph is captured: {why}; do it before or after the capture"
            )

    def _find_written(self, operator: Any, given: Any, named: Any) -> list[Tensor]:
        if operator.namespace == "c10d":  # their schemas do not say what they write
            return [x for x in _tensors((given, named)) if _is_ours(x)]
        out = []
        for position, argument in enumerate(operator._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                value = given[position] if position < len(given) else named.get(argument.name)
                out += [x for x in _tensors(value) if _is_ours(x)]
        return out

    def _save(self, tensor: Tensor) -> None:
        """The content of a storage from before the capture."""
        place = _place(tensor)
        if place and place not in self.made and place not in self.saved:
            whole = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())
            self.saved[place] = (whole, whole.clone())

    def _record(self, operator: Any, given: Any, named: Any, result: Any, writes: bool) -> None:
        before = {_place(x) for x in _tensors((given, named)) if _is_ours(x)}
        fresh = [(i, x) for i, x in enumerate(_tensors(result)) if _is_ours(x) and _place(x) not in before]
        self.kept.append((given, named, result))
        self.made.update(_place(x) for _, x in fresh)
        if not writes and not fresh:
            return  # a view
        if operator.namespace == "c10d":
            self.steps.append(lambda: self._communicate(operator, given, named))
            return
        out = None if writes or len(fresh) != len(_tensors(result)) else _find_out(operator)
        if out is not None and all(x.is_contiguous() for _, x in fresh):
            call, names = out
            targets = dict(zip(names, (x for _, x in fresh), strict=False))
            self.steps.append(lambda: call(*given, **named, **targets))
        elif operator._schema.name in ("aten::empty.memory_format", "aten::empty", "aten::empty_strided"):
            return
        else:
            self.steps.append(lambda: self._again(operator, given, named, fresh))

    @staticmethod
    def _communicate(operator: Any, given: Any, named: Any) -> None:
        """A collective; the program's own wait for it is no operator, so what follows waits here."""
        for leaf in tree_leaves(operator(*given, **named)):
            if isinstance(leaf, torch.ScriptObject):
                leaf.wait()

    @staticmethod
    def _again(operator: Any, given: Any, named: Any, fresh: list[tuple[int, Tensor]]) -> None:
        leaves = _tensors(operator(*given, **named)) if fresh else operator(*given, **named)
        for i, target in fresh:
            target.copy_(leaves[i])

    def restore(self) -> None:
        """Storages and generators as they were before the capture."""
        for whole, content in self.saved.values():
            whole.copy_(content)
        self.saved.clear()
        for i, state in enumerate(self.states):
            torch.cuda.set_rng_state(state, i)


class Graph:
    """The methods that torch.cuda.CUDAGraph gets."""

    _tape: _Tape | None = None
    _token: tuple[int, int] = (0, 0)
    _device = 0
    _drop: Callable[[], Any] | None = None

    def __new__(cls, keep_graph: bool = False) -> Any:
        return object.__new__(cls)

    def __init__(self, keep_graph: bool = False) -> None:
        self._tracker = None

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global", check_input_liveness: bool = False):
        if capture_error_mode not in ("global", "thread_local", "relaxed"):
            raise RuntimeError(
                f"'capture_error_mode' is {capture_error_mode!r}; valid: 'global', 'thread_local', 'relaxed'"
            )
        if getattr(_local, "tape", None) is not None:
            raise RuntimeError("this thread captures a CUDA graph already; end that capture first")
        self.reset()
        self._token = tuple(pool) if pool is not None else graph_pool_handle()
        self._device = torch.cuda.current_device()
        self._tape = _local.tape = _Tape()
        self._drop = pools.drop_with(self, self._token[1])
        _C.memory_pool_begin(self._device, self._token[1])
        self._tape.__enter__()

    def capture_end(self) -> None:
        tape, _local.tape = getattr(_local, "tape", None), None
        if tape is None or tape is not self._tape:
            raise RuntimeError("capture_end() without capture_begin() of this graph in this thread")
        tape.__exit__(None, None, None)
        _C.memory_pool_end(self._device, self._token[1])
        with torch.inference_mode():
            tape.restore()
        torch.cuda.synchronize()  # a capture runs nothing on CUDA: no stream may find it under way

    def replay(self) -> None:
        if self._tape is None or getattr(_local, "tape", None) is self._tape:
            raise RuntimeError("replay() of a CUDA graph that was not captured; capture_end() comes first")
        if self._tape.failed:
            raise RuntimeError(f"replay() of a CUDA graph whose capture failed: {self._tape.failed}")
        with torch.inference_mode():
            for step in self._tape.steps:
                step()

    def reset(self) -> None:
        self._tape = None
        if self._drop is not None:
            self._drop()
            self._drop = None

    def pool(self) -> tuple[int, int]:
        return self._token

    def instantiate(self) -> None:
        """A tape needs no more than its end."""

    def enable_debug_mode(self) -> None:
        """Nothing more is written down."""


def graph_pool_handle() -> tuple[int, int]:
    """A pool of its own for each call; graphs that share one keep it together."""
    return (0, pools.new_number())


def is_current_stream_capturing() -> bool:
    """Is a graph captured in this thread?"""
    return getattr(_local, "tape", None) is not None


_METHODS = (
    *("__new__", "__init__", "capture_begin", "capture_end", "replay", "reset", "pool", "instantiate"),
    *("enable_debug_mode", "_tape", "_token", "_device", "_drop"),
)


def install(patches: Patches) -> None:
    """torch's own class gets these methods, so that isinstance and annotations go on working."""
    for name in _METHODS:
        patches.set(torch.cuda.graphs.CUDAGraph, name, vars(Graph)[name])
    for owner in (torch.cuda.graphs, torch.cuda):
        patches.set(owner, "graph_pool_handle", graph_pool_handle)
        patches.set(owner, "is_current_stream_capturing", is_current_stream_capturing)
