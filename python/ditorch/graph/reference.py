"""A captured graph run again without the engine: on the device operator by operator, and on the CPU as the judge asks
(in float64, at inputs a few roundings away). Depends on torch and ditorch.judge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..judge import Judgement, Request, Runs, is_careful, judge


def draws(node: torch.fx.Node) -> bool:
    """Does the operator take random numbers?"""
    return isinstance(node.target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in node.target.tags


def copy_input(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def evaluate(node: torch.fx.Node, args: Any, kwargs: Any) -> Any:
    """One operator; arguments that it writes to are copied first."""
    if isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable:
        args, kwargs = torch.utils._pytree.tree_map(copy_input, (args, kwargs))
    return node.target(*args, **kwargs)


def cut(
    module: torch.fx.GraphModule, nodes: list[torch.fx.Node], values: dict[torch.fx.Node, Any]
) -> tuple[torch.fx.GraphModule, list[Any]]:
    """Some operators of a graph as one of their own that gives all their results, and what it is called with."""
    graph, inputs = torch.fx.Graph(), []
    made: dict[torch.fx.Node, torch.fx.Node] = {}
    for node in nodes:
        for argument in node.all_input_nodes:
            if argument not in made:
                made[argument] = graph.placeholder(argument.name)
                made[argument].meta = argument.meta
                inputs.append(values[argument])
        made[node] = graph.node_copy(node, made.__getitem__)
    graph.output(tuple(made[node] for node in nodes))
    return torch.fx.GraphModule(module, graph), inputs


class CpuGraph(torch.fx.Interpreter):
    """The graph on the CPU, in the dtypes of a run of the judge. `drawn`: what random operators gave on the device."""

    def __init__(self, module: torch.fx.GraphModule, request: Request, drawn: dict[str, Any]) -> None:
        super().__init__(module)
        self.request, self.drawn = request, drawn

    def _change(self, value: Any) -> Any:
        if isinstance(value, torch.device):
            return torch.device("cpu")
        if isinstance(value, torch.dtype):
            return self.request.get_dtype(value)
        return value

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        value = super().get_attr(target, args, kwargs)
        return self.request.move(value.detach().cpu(), 0, exact=True) if isinstance(value, torch.Tensor) else value

    def run_node(self, node: torch.fx.Node) -> Any:
        if node.name in self.drawn:
            kept = self.drawn[node.name]
            return torch.utils._pytree.tree_map(lambda x: self.request.move(x.cpu(), 0, exact=True), kept)
        return super().run_node(node)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if isinstance(target, torch._ops.OpOverload):
            args, kwargs = torch.utils._pytree.tree_map(self._change, (args, kwargs))
        return super().call_function(target, args, kwargs)


def run_on_cpu(module: torch.fx.GraphModule, inputs: Sequence[Any], request: Request, drawn: dict[str, Any]) -> list:
    """The results, then the inputs as the graph leaves them: tensors alone."""
    places = iter(range(len(inputs)))
    moved = [
        request.move(value.detach().cpu().clone(), next(places)) if isinstance(value, torch.Tensor) else value
        for value in inputs
    ]
    with torch.no_grad():
        results = CpuGraph(module, request, drawn).run(*moved)
    leaves = torch.utils._pytree.tree_leaves([*results, *moved])
    return [value for value in leaves if isinstance(value, torch.Tensor)]


def judge_graph(
    module: torch.fx.GraphModule, inputs: Sequence[Any], got: Sequence[Any], drawn: dict[str, Any]
) -> list[Judgement]:
    """Of every tensor of the results and of the inputs afterwards."""
    runs = Runs(lambda request: run_on_cpu(module, inputs, request, drawn))
    first = runs("native")
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    verdicts = []
    for place, value in enumerate(value for value in got if isinstance(value, torch.Tensor)):
        if isinstance(first, str):
            verdicts.append(Judgement("unknown", f"the CPU cannot run the graph: {first}"))
            continue
        verdicts.append(
            judge(
                "", value.cpu(), first[place], runs, inputs=[t.cpu() for t in tensors], index=place,
                careful=is_careful(value.device),
            )
        )  # fmt: skip
    return verdicts
