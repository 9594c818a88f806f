"""The gradients of one call of a layer, read from the autograd graph without changing it.

A full backward hook puts functions of its own around a module: its outputs may then not be changed in place and are
other objects. Here the nodes that the call made are watched instead. The nodes made between the beginning and the end
of the call have sequence numbers in that range; of these, the edges that lead to an input carry the part of its
gradient that comes through this layer (a hook on the input itself would see the sum over all its users), and the edges
that end at an output carry the gradient that came in.

Invariant: the hooks hold numbers and copies, never a tensor of the graph; what they return is None.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from . import snapshot

_NO_TASK = -1
_MAX_NODES = 200_000
_LEAF = 1 << 63  # the accumulators of leaves have the largest number


def get_sequence() -> int:
    """The number of the next node that this thread makes."""
    return torch._C._autograd._get_sequence_nr() if hasattr(torch._C._autograd, "_get_sequence_nr") else 0


def get_graph_task() -> int:
    """The backward pass that this thread is in; -1: none."""
    return torch._C._current_graph_task_id()


def get_edge(tensor: torch.Tensor) -> tuple[Any, int] | None:
    """(node, output number) at which the gradient of a tensor arrives; None when it has none."""
    if not tensor.requires_grad or not snapshot.is_readable(tensor):
        return None
    edge = torch.autograd.graph.get_gradient_edge(tensor)
    return edge.node, edge.output_nr


@dataclass(eq=False)
class Owner:
    """What a call tells, and to whom. `done(round, grad_input, grad_kwargs, grad_output)`; `run` calls a function and
    keeps its failures from the program, or does not call it any more."""

    done: Callable[[int, tuple, dict, tuple], None]
    run: Callable[..., Any]
    partial: set[Call]
    """Calls of which something came and not all."""
    handles: list[Any]
    """Of hooks on nodes that outlive the graph: the owner removes them when the step ends."""


class Slot:
    """The place of one tensor in a structure of gradients."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index


def _make_slots(value: Any) -> tuple[Any, list[torch.Tensor]]:
    tensors: list[torch.Tensor] = []

    def leaf(item: Any) -> Any:
        if not isinstance(item, torch.Tensor):
            return None
        tensors.append(item)
        return Slot(len(tensors) - 1)

    return snapshot.transform(value, leaf), tensors


def _fill(spec: Any, values: dict[int, Any]) -> Any:
    return snapshot.transform(spec, lambda item: values.get(item.index) if isinstance(item, Slot) else None)


class Call:
    """Collects the gradients of one call and gives them to its owner when a backward pass has walked the whole call, or
    when `finish` says that nothing more comes."""

    def __init__(self, args: tuple, kwargs: dict, start: int, owner: Owner) -> None:
        (self._args, self._kwargs), tensors = _make_slots((args, kwargs))
        with torch._C.DisableTorchFunction():
            self._edges = [get_edge(tensor) for tensor in tensors]
        self._start = start
        self._owner = owner
        self._lock = threading.RLock()
        self._output: Any = ()
        self._expected = 0
        self._task = _NO_TASK
        self._round = -1
        self._events = 0
        self._inputs: dict[int, Any] = {}
        self._outputs: dict[int, Any] = {}

    def watch(self, output: Any) -> bool:
        """The call ended: put hooks on its nodes. False when there is no gradient to come."""
        self._output, tensors = _make_slots(output if isinstance(output, tuple) else (output,))
        with torch._C.DisableTorchFunction():
            edges = [get_edge(tensor) for tensor in tensors]
            inputs = self._edges
            self._edges = []  # the nodes of the inputs belong to the program
            if not any(edges):
                return False
            self._watch_outputs(edges, inputs)
            self._watch_inputs([edge[0] for edge in edges if edge], inputs)
        return True

    def _watch_outputs(self, edges: list, inputs: list) -> None:
        slots: dict[Any, list[tuple[int, int]]] = {}
        for index, edge in enumerate(edges):
            if edge:
                slots.setdefault(edge[0], []).append((index, edge[1]))
        for node, places in slots.items():
            # A tensor that the layer only passed on: what comes in goes out.
            through = [(i, number) for i, edge in enumerate(inputs) if edge and edge[0] is node for number in [edge[1]]]
            through = [pair for pair in through if any(pair[1] == number for _, number in places)]
            self._expected += 1
            handle = node.register_prehook(self._make_hook(self._take_outputs, places, through))
            if node._sequence_nr() >= _LEAF:
                self._owner.handles.append(handle)

    def _make_hook(self, method: Callable, *args: Any) -> Callable:
        def hook(grads: tuple, *_: Any) -> None:
            self._owner.run(method, grads, *args)

        return hook

    def _take_outputs(self, grads: tuple, places: list, through: list) -> None:
        with self._lock:
            self._begin()
            for index, number in places:
                self._outputs[index] = _copy(grads, number)
            for index, number in through:
                self._inputs[index] = _copy(grads, number)
            self._end()

    def _watch_inputs(self, roots: list, inputs: list) -> None:
        wanted: dict[tuple[Any, int], list[int]] = {}
        for index, edge in enumerate(inputs):
            if edge:
                wanted.setdefault(edge, []).append(index)
        if not wanted:
            return
        for node, places in _find_frontier(roots, wanted, self._start):
            self._expected += 1
            node.register_hook(self._make_hook(self._take_inputs, places))

    def _take_inputs(self, grads: tuple, places: list[tuple[int, list[int]]]) -> None:
        with self._lock:
            self._begin()
            for number, slots in places:
                grad = _copy(grads, number)
                for slot in slots if grad is not None else ():
                    self._inputs[slot] = _add(self._inputs.get(slot), grad)
            self._end()

    def _begin(self) -> None:
        task = get_graph_task()
        if task != self._task:
            self._finish()
            self._task = task
            self._round += 1
        self._owner.partial.add(self)

    def _end(self) -> None:
        self._events += 1
        if self._events >= self._expected:
            self._finish()

    def finish(self) -> None:
        """Nothing more comes of the pass that was under way."""
        with self._lock:
            self._finish()

    def _finish(self) -> None:
        self._owner.partial.discard(self)
        if not self._events:
            return
        grads = _fill(self._args, self._inputs), _fill(self._kwargs, self._inputs), _fill(self._output, self._outputs)
        self._events, self._inputs, self._outputs = 0, {}, {}
        self._owner.done(max(self._round, 0), *grads)


def _copy(grads: tuple, number: int) -> Any:
    grad = grads[number] if number < len(grads) else None
    if not isinstance(grad, torch.Tensor):
        return None
    with snapshot.quiet():
        return snapshot.copy_tensor(grad)


def _add(total: Any, grad: Any) -> Any:
    if not isinstance(total, torch.Tensor) or not isinstance(grad, torch.Tensor):
        return grad
    with snapshot.quiet():
        return total + grad


def _find_frontier(roots: list, wanted: dict, start: int) -> list[tuple[Any, list[tuple[int, list[int]]]]]:
    """Nodes of the call with edges that lead to its inputs: [(node, [(edge number, input slots)])]."""
    found = []
    queue = [node for node in dict.fromkeys(roots) if _is_inside(node, start)]
    seen = set(queue)
    while queue and len(seen) < _MAX_NODES:
        node = queue.pop()
        places = []
        for number, edge in enumerate(node.next_functions):
            if edge in wanted:
                places.append((number, wanted[edge]))
            elif edge[0] is not None and edge[0] not in seen and _is_inside(edge[0], start):
                seen.add(edge[0])
                queue.append(edge[0])
        if places:
            found.append((node, places))
    return found


def _is_inside(node: Any, start: int) -> bool:
    return start <= node._sequence_nr() < _LEAF
