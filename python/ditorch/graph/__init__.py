"""The backend "dit" of torch.compile: graphs of AOTAutograd become words that C verifies, fuses, plans and runs."""

from __future__ import annotations

import contextlib
import functools
import json
import threading
import time
import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

from ..compiler import is_on_device
from . import cache, check, dicp_variables
from .cache import Graph
from .lower import Lowering
from .nodes import Value
from .split import run_as_it_is, split
from .words import UnsupportedGraph

_kept: list[Any] = []
"""The graphs of this process that were asked to be kept (`keep`), for explain and tests."""
_keeps = False
watchers: list[Any] = []
"""Functions of (module, what was compiled, why it was not, seconds); what they return is called instead."""


def settle() -> None:
    """Wait until code that is made in the background is there; for measurements and tests."""
    torch.ops.ditorch.graph_settle()


class Compiled(Graph):
    """One graph, loaded; called with a list of tensors and integers."""

    def __init__(self, module: torch.fx.GraphModule, count: int | None = None) -> None:
        """`count`: how many of its results the program gets; None: all of them."""
        self._begin(module, count)
        self.data, constants = self._lower(_supports if torch.ops.ditorch.graph_engine() else None)
        self.load(constants)

    def _begin(self, module: torch.fx.GraphModule | None, count: int | None) -> None:
        self._boxed_call = True  # on the object: torch's wrappers copy its __dict__ alone
        self.module, self.count = module, count  # None: it came from the cache
        self.lowering: Lowering | None = None
        self.lock = threading.Lock()
        self.refusal = ""  # why the engine could make no plan of the graph, and operators run instead

    def _lower(self, supports: Any) -> tuple[dict[str, Any], list[torch.Tensor]]:
        """The graph as plain data, and its constants as they are."""
        module = self.module
        lowering = Lowering(module, _get_operations(), torch.ops.ditorch.graph_has_row, supports, self.count).run()
        self.lowering = lowering if check.is_on() else None
        fakes = [value for node in module.graph.nodes for value in _list_fakes(node)]
        data = {
            "words": lowering.words.pack().numpy().tobytes(),
            "constants": [_keep_constant(constant) for constant in lowering.constants],
            "islands": lowering.islands,
            "refused": lowering.refused,
            "out_places": lowering.out_places,
            "tensor_places": lowering.tensor_places,
            "number_places": lowering.number_places,
            "arguments": sum(node.op == "placeholder" for node in module.graph.nodes),
            "is_backward": any(node.name.startswith("tangents") for node in module.graph.nodes),
            "device": next((fake.device.index or 0 for fake in fakes if is_on_device(fake)), 0),
        }
        return data, lowering.constants

    def load(self, constants: list[torch.Tensor] | None = None) -> None:
        data = self.data
        self.words = torch.frombuffer(bytearray(data["words"]), dtype=torch.int64)
        self.graph = torch.ops.ditorch.graph_load(self.words, data["device"])
        self.constants = constants if constants is not None else [_make_constant(kept) for kept in data["constants"]]
        self.islands, self.refused, self.device = data["islands"], data["refused"], data["device"]
        self.tensor_places, self.number_places = data["tensor_places"], data["number_places"]
        out_places = data["out_places"]
        is_plain = all(kind == "tensor" for kind, _ in out_places)
        is_direct = is_plain and len(self.tensor_places) == data["arguments"] and not self.constants
        # What a thread runs with.
        self.call = (self.graph, None if is_direct else self.constants, [] if is_plain else out_places)
        # What the forward has saved is the backward's own. Results that are copied need their targets to the end.
        self.lends = data["is_backward"] and not any(kind == "copy" for kind, _ in out_places)
        self.run = torch.ops.ditorch.graph_run.default._op  # an OpOverload adds a call in Python
        self.run_plain = torch.ops.ditorch.graph_call.default._op
        weakref.finalize(self, torch.ops.ditorch.graph_free, self.graph)

    def __getstate__(self) -> dict[str, Any]:
        if self.module is not None and torch.ops.ditorch.graph_engine():  # what runs where the engine refuses the graph
            with unset_fake_temporarily():
                self.data["alone"] = self._lower(None)[0]
        return super().__getstate__()

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._begin(None, None)

    def post_compile(self, example_inputs: Any, constants: Any, graph_kwargs: Any) -> None:
        with unset_fake_temporarily():
            self.load()
        if _keeps:
            _kept.append(self)

    def split(self, args: list[Any]) -> tuple[list[torch.Tensor], list[int]]:
        """The tensors and the integers that C takes."""
        return [*(args[i] for i in self.tensor_places), *self.constants], [args[i] for i in self.number_places]

    def __call__(self, args: list[Any]) -> Any:
        call = self.call
        tensors, numbers, handed = args, (), None
        if call[1] is not None:
            tensors = [args[i] for i in self.tensor_places]
            numbers = [args[i] for i in self.number_places]
            handed = {place: args[place] for kind, place in call[2] if kind == "argument"}
            args.clear()
        try:
            if call[1] is None and not self.lends:  # nothing but tensors goes in and comes out: no call more than that
                made = self.run_plain(call[0], tensors)
                tensors.clear()
                return made
            return self._run(call, tensors, numbers, handed)
        except NotImplementedError:
            refusal = torch.ops.ditorch.graph_refusal(call[0])
            given = torch.ops.ditorch.graph_take_back()
            if not refusal:
                raise
            tensors = given[: len(self.tensor_places)] or tensors
            self._refuse(call, refusal)  # nothing has run yet
            return self._run(self.call, tensors, numbers, handed)

    def _refuse(self, call: Any, refusal: str) -> None:
        """From now on the graph runs by the device's operators alone."""
        with self.lock, unset_fake_temporarily():
            if self.call is call:
                self.refusal = refusal
                self.data, constants = self._lower(None) if self.module is not None else (self.data["alone"], None)
                self.load(constants)

    def _run(self, call: Any, tensors: list[torch.Tensor], numbers: Sequence[int], handed: Any) -> Any:
        graph, constants, out_places = call
        if self.lends:
            torch.ops.ditorch.graph_lend.default([*tensors, *constants] if constants else tensors)
            tensors.clear()
            made, counted = self.run(graph, (), numbers, self.device)
        elif constants is None:  # nothing but tensors goes in and comes out
            made = self.run_plain(graph, tensors)
            tensors.clear()
            return made
        else:
            made, counted = self.run(graph, [*tensors, *constants] if constants else tensors, numbers, self.device)
        if not out_places:
            return made
        results, made, counted = [], iter(made), iter(counted)
        for kind, place in out_places:
            if kind == "copy":
                tensors[place].copy_(next(made))
            else:
                results.append(_pick(kind, place, made, counted, handed))
        return results

    def describe(self) -> list[dict[str, Any]]:
        return json.loads(torch.ops.ditorch.graph_describe(self.graph))


def _pick(kind: str, place: Any, made: Any, counted: Any, handed: Any) -> Any:
    """A result: what the program made or counted, an argument as it came, or what is always the same."""
    if kind in ("tensor", "number"):
        return next(made if kind == "tensor" else counted)
    return handed[place] if kind == "argument" else place


def _keep_constant(constant: torch.Tensor) -> tuple[Any, ...]:
    """A tensor as plain data."""
    host = constant.detach().cpu().contiguous()
    data = host.view(-1).view(torch.uint8).numpy().tobytes()
    return str(constant.device), str(host.dtype).removeprefix("torch."), tuple(host.shape), data


def _make_constant(kept: tuple[Any, ...]) -> torch.Tensor:
    device, name, shape, data = kept
    dtype = getattr(torch, name)
    made = torch.frombuffer(bytearray(data), dtype=dtype).reshape(shape) if data else torch.empty(shape, dtype=dtype)
    return made.to(device)


def _list_fakes(node: torch.fx.Node) -> list[torch.Tensor]:
    return [leaf for leaf in torch.utils._pytree.tree_leaves(node.meta.get("val")) if isinstance(leaf, torch.Tensor)]


@functools.cache
def _get_operations() -> dict[str, int]:
    return {name: number for number, name in enumerate(torch.ops.ditorch.graph_operations())}


@functools.cache
def _supports(op: int, folded: int, ndim: int, dtypes: tuple[int, ...]) -> bool:
    return torch.ops.ditorch.graph_supports(op, folded, ndim, dtypes)


def keep(on: bool = True) -> list[Any]:
    """Start (or stop) to keep the graphs that are compiled; the list of what was kept. An entry is a Compiled, or the
    reason why a graph runs as it is."""
    global _keeps
    _keeps = on
    _kept.clear()
    return _kept


def compile_graph(module: torch.fx.GraphModule, inputs: Any = None) -> Any:
    """The inner compiler: what AOTAutograd hands its graphs to."""
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

    made: Any
    reason, begin = "", time.perf_counter()
    try:
        with unset_fake_temporarily():  # the words are a real tensor
            made = Compiled(module, None if inputs is None else _count_results())
    except (UnsupportedGraph, GuardOnDataDependentSymNode) as error:
        reason, node = str(error).splitlines()[0], getattr(error, "node", None)
        if _can_split(module, node):
            made = split(module, node, reason, compile_graph)
        else:
            made = run_as_it_is(module, node, reason)
    if _keeps:
        _kept.append(reason or made)
    if not reason and check.is_on():
        made = check.Checked(module, made)
    for watch in watchers:
        made = watch(module, made, reason, time.perf_counter() - begin)
    return made


def _count_results() -> int | None:
    """Of the forward graph that AOTAutograd works on; a piece of it is compiled without inputs."""
    context = torch._guards.TracingContext.try_get()
    return context.fw_metadata.num_forward if context and context.fw_metadata else None


def _can_split(module: torch.fx.GraphModule, trouble: torch.fx.Node | None) -> bool:
    is_call = trouble is not None and trouble.op == "call_function"
    return is_call and sum(node.op == "call_function" for node in module.graph.nodes) > 1


@functools.cache
def _get_decompositions() -> dict[Any, Any]:
    aten = torch.ops.aten
    names = [
        aten.mse_loss, aten.mse_loss_backward, aten.smooth_l1_loss, aten.huber_loss, aten.elu, aten.elu_backward,
        aten.hardswish, aten.hardsigmoid, aten.softplus, aten.softplus_backward, aten.square, aten.logit,
        aten.binary_cross_entropy_with_logits, aten.addcmul_, aten.addcdiv_, aten.leaky_relu_backward,
        aten.native_dropout_backward, aten.hardtanh_backward, aten.var_mean, aten.std, aten.var, aten.glu,
        aten.logsumexp, aten.mish, aten.log_sigmoid_forward, aten.log_sigmoid_backward, aten.hardswish_backward,
        aten.hardsigmoid_backward,
    ]  # fmt: skip
    return torch._decomp.get_decompositions(names)


def backend(module: torch.fx.GraphModule, inputs: Any, **options: Any) -> Any:
    """torch.compile(..., backend="dit")."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    dicp_variables.warn()
    keeps = cache.is_possible() and not check.is_on() and not watchers
    compilers = [cache.make_compiler(compile_graph) if keeps else compile_graph for _ in range(3)]
    compiler = aot_autograd(
        fw_compiler=compilers[0],
        bw_compiler=compilers[1],
        inference_compiler=compilers[2],
        decompositions=_get_decompositions(),
        partition_fn=min_cut_rematerialization_partition,
        keep_inference_input_mutations=True,
    )
    with cache.keeping(module) if keeps else contextlib.nullcontext():
        return compiler(module, inputs)


__all__ = ["Compiled", "UnsupportedGraph", "Value", "backend", "compile_graph", "keep", "settle"]
