"""A graph with nodes that the words cannot say becomes pieces: what lies between those nodes is compiled, and they are
called as they are."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch


class _Piece(torch.nn.Module):
    """A compiled piece where torch.fx wants a module."""

    def __init__(self, compiled: Callable[[list[Any]], Any]) -> None:
        super().__init__()
        self.compiled = compiled

    def forward(self, *args: Any) -> Any:
        results = self.compiled(list(args))
        return results[0] if self.is_single else results

    is_single = False


def _number_pieces(module: torch.fx.GraphModule, trouble: torch.fx.Node) -> dict[torch.fx.Node, int]:
    """0: before the node; 1: it, and the parts of its result; 2: behind it."""
    numbers: dict[torch.fx.Node, int] = {}
    at = 0
    for node in module.graph.nodes:
        if node is trouble:
            at, numbers[node] = 2, 1
        elif node.target is operator.getitem and node.args[0] is trouble:
            numbers[node] = 1
        elif node.target is torch.ops.aten.copy_.default:  # inputs change when all has been read
            numbers[node] = 2
        else:
            numbers[node] = at
    for node in reversed(list(numbers)):  # numbers of Python that nothing in front of the node needs come with it
        if numbers[node] == 0 and _is_number(node) and all(numbers[user] > 0 for user in node.users):
            numbers[node] = 1
    return numbers


def _is_number(node: torch.fx.Node) -> bool:
    is_computed = node.op == "call_function" and not isinstance(node.target, torch._ops.OpOverload)
    return is_computed and isinstance(node.meta.get("val"), (torch.SymBool, torch.SymFloat, torch.SymInt, bool, float))


def _wrap_outputs(piece: torch.fx.GraphModule) -> bool:
    """Results as a tuple, as AOTAutograd's graphs have them. True: it was one value."""
    (output,) = (node for node in piece.graph.nodes if node.op == "output")
    if isinstance(output.args[0], (list, tuple)):
        return False
    output.args = ((output.args[0],),)
    piece.recompile()
    return True


class _Island(torch.nn.Module):
    """What PyTorch runs, counted in the ledger as the islands inside of graphs are."""

    def __init__(self, module: torch.fx.GraphModule, what: str, reason: str) -> None:
        super().__init__()
        self.module, self.row = module, f"island {what}: {reason}"

    def forward(self, *args: Any) -> Any:
        torch.ops.ditorch.graph_count(self.row)
        return self.module(*args)


def _name(target: Any) -> str:
    if isinstance(target, torch._ops.OpOverload):
        return f"{target._schema.name}.{target._schema.overload_name}".rstrip(".")
    return target.name() if isinstance(target, torch._ops.HigherOrderOperator) else str(target)


def run_as_it_is(module: torch.fx.GraphModule, trouble: torch.fx.Node | None, reason: str) -> Callable[..., Any]:
    """A graph that cannot be cut, as a boxed function."""
    from functorch.compile import make_boxed_func

    calls = sum(node.op == "call_function" for node in module.graph.nodes)
    is_one = trouble is not None and trouble.op == "call_function" and calls == 1
    what = _name(trouble.target) if is_one else f"graph of {calls} operators"
    return make_boxed_func(_Island(module, what, reason).forward)


def split(
    module: torch.fx.GraphModule, trouble: torch.fx.Node, reason: str, compile_piece: Callable[..., Any]
) -> Callable[..., Any]:
    """The graph as a boxed function; `compile_piece` makes one of what lies before and behind of `trouble`."""
    from functorch.compile import make_boxed_func
    from torch.fx.passes.split_module import split_module

    numbers = _number_pieces(module, trouble)
    whole = split_module(module, None, lambda node: numbers[node], keep_original_order=True)
    for name, piece in list(whole.named_children()):
        if not isinstance(piece, torch.fx.GraphModule) or not name.startswith("submod_"):
            continue
        if name == "submod_1":
            setattr(whole, name, _Island(piece, _name(trouble.target), reason))
            continue
        made = _Piece(lambda args: args)
        made.is_single = _wrap_outputs(piece)
        made.compiled = compile_piece(piece)
        setattr(whole, name, made)
    boxed = make_boxed_func(whole.forward)
    boxed.cut_at = _name(trouble.target)
    return boxed
