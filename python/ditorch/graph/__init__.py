"""The backend "dit" of torch.compile: graphs of AOTAutograd become words that C verifies, fuses, plans and runs."""

from __future__ import annotations

import functools
import json
import threading
import time
import weakref
from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

from . import check, dicp_variables
from .lower import Lowering, Value
from .split import split
from .words import UnsupportedGraph

_kept: list[Any] = []
"""The graphs of this process that were asked to be kept (`keep`), for explain and tests."""
_keeps = False
watchers: list[Any] = []
"""Functions of (module, what was compiled, why it was not, seconds); what they return is called instead."""


def settle() -> None:
    """Wait until code that is made in the background is there; for measurements and tests."""
    torch.ops.ditorch.graph_settle()


class Compiled:
    """One graph, loaded; called with a list of tensors and integers."""

    def __init__(self, module: torch.fx.GraphModule) -> None:
        self._boxed_call = True  # on the object: torch's wrappers copy its __dict__ alone
        self.module = module
        self.lock = threading.Lock()
        self.refusal = ""  # why the engine could make no plan of the graph, and operators run instead
        self._load(_supports if torch.ops.ditorch.graph_engine() else None)
        inputs = [node.meta.get("val") for node in module.graph.nodes if node.op == "placeholder"]
        self.tensor_places = [i for i, value in enumerate(inputs) if isinstance(value, torch.Tensor)]
        self.number_places = [i for i, value in enumerate(inputs) if not isinstance(value, torch.Tensor)]
        fakes = [value for node in module.graph.nodes for value in _list_fakes(node)]
        self.device = next((fake.device.index or 0 for fake in fakes if fake.is_cuda), 0)

    def _load(self, supports: Any) -> None:
        lowering = Lowering(self.module, _get_operations(), torch.ops.ditorch.graph_has_row, supports).run()
        self.lowering = lowering if check.is_on() else None
        self.words = lowering.words.pack()
        self.graph = torch.ops.ditorch.graph_load(self.words)
        self.constants = lowering.constants
        self.islands, self.refused = lowering.islands, lowering.refused
        is_plain = all(kind == "tensor" for kind, _ in lowering.out_places)
        self.call = (self.graph, self.constants, [] if is_plain else lowering.out_places)  # what a thread runs with
        weakref.finalize(self, torch.ops.ditorch.graph_free, self.graph)

    def split(self, args: list[Any]) -> tuple[list[torch.Tensor], list[int]]:
        """The tensors and the integers that C takes."""
        return [*(args[i] for i in self.tensor_places), *self.constants], [args[i] for i in self.number_places]

    def __call__(self, args: list[Any]) -> Any:
        tensors = [args[i] for i in self.tensor_places]
        numbers = [args[i] for i in self.number_places]
        args.clear()
        call = self.call
        try:
            return self._run(call, tensors, numbers)
        except NotImplementedError:
            refusal = torch.ops.ditorch.graph_refusal(call[0])
            if not refusal:
                raise
            self._refuse(call, refusal)  # nothing has run yet
            return self._run(self.call, tensors, numbers)

    def _refuse(self, call: Any, refusal: str) -> None:
        """From now on the graph runs by the device's operators alone."""
        with self.lock, unset_fake_temporarily():
            if self.call is call:
                self.refusal = refusal
                self._load(None)

    def _run(self, call: Any, tensors: list[torch.Tensor], numbers: list[int]) -> Any:
        graph, constants, out_places = call
        all_tensors = [*tensors, *constants] if constants else tensors
        made, counted = torch.ops.ditorch.graph_run.default(graph, all_tensors, numbers, self.device)
        if not out_places:
            return made
        results, made, counted = [], iter(made), iter(counted)
        for kind, place in out_places:
            if kind == "copy":
                tensors[place].copy_(next(made))
            else:
                results.append(next(made) if kind == "tensor" else next(counted) if kind == "number" else None)
        return results

    def describe(self) -> list[dict[str, Any]]:
        return json.loads(torch.ops.ditorch.graph_describe(self.graph))


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
    from functorch.compile import make_boxed_func
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

    made: Any
    reason, begin = "", time.perf_counter()
    try:
        with unset_fake_temporarily():  # the words are a real tensor
            made = Compiled(module)
    except (UnsupportedGraph, GuardOnDataDependentSymNode) as error:
        reason, node = str(error).splitlines()[0], getattr(error, "node", None)
        whole = node is None or not _can_split(module)
        made = make_boxed_func(module.forward) if whole else split(module, node, compile_graph)
    if _keeps:
        _kept.append(reason or made)
    if not reason and check.is_on():
        made = check.Checked(module, made)
    for watch in watchers:
        made = watch(module, made, reason, time.perf_counter() - begin)
    return made


def _can_split(module: torch.fx.GraphModule) -> bool:
    return sum(node.op == "call_function" for node in module.graph.nodes) > 1


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
    compiler = aot_autograd(
        fw_compiler=compile_graph,
        bw_compiler=compile_graph,
        inference_compiler=compile_graph,
        decompositions=_get_decompositions(),
        partition_fn=min_cut_rematerialization_partition,
        keep_inference_input_mutations=True,
    )
    return compiler(module, inputs)


__all__ = ["Compiled", "UnsupportedGraph", "Value", "backend", "compile_graph", "keep", "settle"]
