"""Which step of a compiled graph is wrong. One run is traced: what each step read and what it wrote. Every operator is
then computed again from what the steps themselves had before them, so that an error is seen where it is made and not
where it arrives.

A step that reads other numbers than were written has had its memory overwritten, or a view of it is not what it should
be; a step that writes other numbers than its operators give is itself wrong. Depends on torch and reference.py.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import torch

from . import reference
from .nodes import Value
from .words import UnsupportedGraph

KINDS = {
    "region": "fused region", "subgraph": "subgraph", "row": "operator of the device",
    "island": "operator run by PyTorch",
}  # fmt: skip


@dataclasses.dataclass
class Finding:
    """What is wrong in a graph. `cause`: value, overwritten, alias or unknown."""

    cause: str = "unknown"
    why: str = "every step is right by itself; what the graph hands over is not"
    step: int = -1
    steps: int = 0
    spans: list[int] = dataclasses.field(default_factory=list)
    """The steps that the named operator is made of; what lies between them has no name in the graph."""
    kind: str = ""
    nodes: list[str] = dataclasses.field(default_factory=list)
    node: str = ""
    operator: str = ""
    place: str = ""
    graph: int = 0
    result: int = 0
    results: int = 0
    judgement: Any = None
    folder: str = ""
    part: Any = None
    inputs: list[Any] = dataclasses.field(default_factory=list)
    """The step's operators as a graph, and what they were given."""


@dataclasses.dataclass
class Seen:
    """One copy of the trace."""

    step: int
    is_after: bool
    tensor: int
    owner: int
    at: int
    bytes: int
    value: torch.Tensor


class Trace:
    """A traced run of a compiled graph, and what its tensors belong to."""

    def __init__(self, made: Any, inputs: list[Any]) -> None:
        self.lowering = made.lowering
        tensors, numbers = made.split([reference.copy_input(value) for value in inputs])
        values, rows, self.step_of = torch.ops.ditorch.graph_trace.default(made.graph, tensors, numbers, made.device)
        groups = [rows[i : i + 6] for i in range(0, len(rows), 6)]
        self.seen = [Seen(row[0], bool(row[1]), *row[2:], value) for row, value in zip(groups, values, strict=True)]
        self.steps = max(self.step_of, default=-1) + 1

    def get_storage(self, tensor: int) -> int:
        return self.lowering.words.tensors[tensor][2]

    def find_write(self, node: torch.fx.Node, storage: int) -> Seen | None:
        steps = {self.step_of[i] for i, origin in enumerate(self.lowering.origins) if origin is node}
        found = [s for s in self.seen if s.is_after and s.step in steps and self.get_storage(s.tensor) == storage]
        return found[-1] if found else None

    def get_nodes(self, step: int) -> list[torch.fx.Node]:
        found = [origin for i, origin in enumerate(self.lowering.origins) if self.step_of[i] == step]
        return list(dict.fromkeys(found))


class Walk:
    """The operators of a graph once more, each from what the run had; `wrong`: steps to the verdicts against them."""

    def __init__(self, module: torch.fx.GraphModule, trace: Trace, inputs: list[Any], drawn: dict[str, Any]) -> None:
        self.module, self.trace, self.drawn = module, trace, drawn
        self.values: dict[torch.fx.Node, Any] = {}
        self.computed: dict[torch.fx.Node, Any] = {}  # before what was seen took its place
        self.order = {node: place for place, node in enumerate(module.graph.nodes)}
        self.checks: list[tuple[int, torch.fx.Node, int, torch.Tensor, torch.Tensor]] = []
        places = iter(inputs)
        for node in module.graph.nodes:
            if node.op == "placeholder":
                self.values[node] = reference.copy_input(next(places))
            elif node.op == "get_attr":
                self.values[node] = getattr(module, str(node.target))
            elif node.op == "call_function":
                self._visit(node)

    def _visit(self, node: torch.fx.Node) -> None:
        def read(value: Any) -> Any:
            return self.values[value] if isinstance(value, torch.fx.Node) else value

        args, kwargs = (torch.fx.node.map_aggregate(part, read) for part in (node.args, node.kwargs))
        value = self.drawn[node.name] if node.name in self.drawn else reference.evaluate(node, args, kwargs)
        self.computed[node] = value
        is_many = isinstance(value, (list, tuple))
        leaves = list(value) if is_many else [value]
        lowered = self.trace.lowering.values.get(node)
        lowered = list(lowered) if isinstance(lowered, (list, tuple)) else [lowered]
        for place, (leaf, mine) in enumerate(zip(leaves, lowered, strict=False)):
            if not isinstance(leaf, torch.Tensor) or not isinstance(mine, Value):
                continue
            seen = self.trace.find_write(node, mine.storage)
            if seen is None or seen.value.numel() != leaf.numel():
                continue
            found = seen.value.reshape(leaf.shape)
            self.checks.append((seen.step, node, place, found, leaf))
            leaves[place] = found
        self.values[node] = tuple(leaves) if is_many else leaves[0]


def is_same(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return bool(((a == b) | (a != a) & (b != b)).all()) if a.numel() else True


def get_place(node: torch.fx.Node) -> str:
    """file:line (source) of the program, as far as the graph knows it."""
    found = re.findall(r'File "([^"]+)", line (\d+), in [^\n]*\n\s*([^\n]*)', node.meta.get("stack_trace") or "")
    return f"{found[-1][0]}:{found[-1][1]} ({found[-1][2].strip()})" if found else ""


def describe_operator(node: torch.fx.Node) -> str:
    return f"{str(node.target).removesuffix('.default')}({', '.join(map(str, node.args))})"


def locate(module: torch.fx.GraphModule, made: Any, inputs: list[Any], drawn: dict[str, Any]) -> Finding:
    """The first step that is wrong; the trace is a run of the same plan."""
    trace = Trace(made, inputs)
    walk = Walk(module, trace, inputs, drawn)
    finding = Finding(steps=trace.steps)
    for step in range(trace.steps):
        if _check_reads(trace, walk, step, finding) or _check_writes(walk, trace, made, step, finding):
            _describe_step(trace, made, step, finding)
            break
    return finding


def _describe_step(trace: Trace, made: Any, step: int, finding: Finding) -> None:
    nodes = trace.get_nodes(step)
    finding.step, finding.nodes = step, [node.name for node in nodes]
    plans = made.describe()
    kinds = [plan["steps"][step]["kind"] for plan in plans if len(plan["steps"]) == trace.steps]
    finding.kind = KINDS[kinds[0]] if kinds else "step"
    named = next((node for node in nodes if node.name == finding.node), nodes[0] if nodes else None)
    if named is not None:
        finding.spans = sorted({trace.step_of[i] for i, n in enumerate(trace.lowering.origins) if n is named})
        finding.place = finding.place or get_place(named)


# What a step reads


def _check_reads(trace: Trace, walk: Walk, step: int, finding: Finding) -> bool:
    lowered = {}
    for node, value in trace.lowering.values.items():
        leaves = list(value) if isinstance(value, (list, tuple)) else [value]
        known = walk.values.get(node)
        known = list(known) if isinstance(known, (list, tuple)) else [known]
        for place, leaf in enumerate(leaves):
            if isinstance(leaf, Value) and place < len(known) and isinstance(known[place], torch.Tensor):
                lowered.setdefault(leaf.tensor_index, (node, known[place]))
    for seen in trace.seen:
        if seen.step != step or seen.is_after:
            continue
        written = [s for s in trace.seen if s.is_after and s.step < step and s.tensor == seen.owner]
        if seen.tensor in lowered:
            node, wanted = lowered[seen.tensor]
        elif written and seen.tensor == seen.owner:
            node, wanted = _find_origin(trace, written[-1]), written[-1].value
        else:
            continue
        if is_same(seen.value, wanted.reshape(seen.value.shape) if wanted.numel() == seen.value.numel() else wanted):
            continue
        return _tell_read(trace, seen, node, finding, written)
    return False


def _find_origin(trace: Trace, seen: Seen) -> torch.fx.Node | None:
    """The operator whose result the step wrote there."""
    storage, nodes = trace.get_storage(seen.tensor), trace.get_nodes(seen.step)
    for node in nodes:
        value = trace.lowering.values.get(node)
        leaves = list(value) if isinstance(value, (list, tuple)) else [value]
        if any(isinstance(leaf, Value) and leaf.storage == storage for leaf in leaves):
            return node
    return nodes[0] if nodes else None


def _tell_read(trace: Trace, seen: Seen, node: Any, finding: Finding, written: list[Seen]) -> bool:
    """The memory is not what it was, or the view is wrong."""
    name = node.name if node is not None else f"tensor {seen.tensor}"
    finding.node = name
    finding.operator = describe_operator(node) if node is not None and node.op == "call_function" else "an input"
    last = written[-1].step if written else -1
    over = [
        other for other in trace.seen
        if other.is_after and last < other.step < seen.step and seen.at >= 0 and other.owner != seen.owner
        and other.at >= 0 and other.at < seen.at + seen.bytes and seen.at < other.at + other.bytes
    ]  # fmt: skip
    if over:
        origin = _find_origin(trace, over[-1])
        finding.cause = "overwritten"
        finding.why = (
            f"step {seen.step} reads {name}, which step {last} wrote, after step {over[-1].step}"
            f"{f' ({origin.name})' if origin is not None else ''} wrote to the same bytes of the arena"
        )
    elif seen.tensor != seen.owner:
        finding.cause = "alias"
        finding.why = f"step {seen.step} reads {name} as a view of other elements than PyTorch's"
    else:
        finding.cause = "overwritten"
        finding.why = f"step {seen.step} finds other numbers in {name} than step {last} has written"
    return True


# What a step writes


def _check_writes(walk: Walk, trace: Trace, made: Any, step: int, finding: Finding) -> bool:
    """All operators of the step together: how far they may be off depends on what lies between them."""
    checks = [check for check in walk.checks if check[0] == step and not is_same(check[3], check[4])]
    nodes = sorted(trace.get_nodes(step), key=walk.order.__getitem__)
    if not checks or not nodes:
        return False
    finding.part, finding.inputs = reference.cut(walk.module, nodes, walk.values)
    found = {(node, place): value for at, node, place, value, _ in walk.checks if at == step}
    leaves = []
    for node in nodes:
        eager = walk.computed[node]
        many = isinstance(eager, (list, tuple))
        for place, leaf in enumerate(eager if many else [eager]):
            leaves.append((node, found.get((node, place), leaf)))
    verdicts = reference.judge_graph(finding.part, finding.inputs, [leaf for _, leaf in leaves], walk.drawn)
    owners = [node for node, leaf in leaves if isinstance(leaf, torch.Tensor)]
    for node, verdict in zip(owners, verdicts, strict=False):
        if verdict.is_wrong:
            finding.cause, finding.judgement = "value", verdict
            node = _narrow(finding, walk, made, nodes) or node
            finding.node, finding.operator = node.name, describe_operator(node)
            finding.why = (
                f"given what the step read, {verdict.wrong} of {verdict.numel} elements are wrong: "
                f"{verdict.value:.9g} instead of {verdict.reference:.9g} ({verdict.reason})"
            )
            return True
    return False


def _narrow(finding: Finding, walk: Walk, made: Any, nodes: list[torch.fx.Node]) -> torch.fx.Node | None:
    """The first operator of a region that is wrong given its own arguments, when all of the region's results are
    written down; None when they are all right then."""
    if len(nodes) < 2:
        return None
    try:
        compiled = type(made)(finding.part)
        results = compiled([reference.copy_input(value) for value in finding.inputs])
    except (RuntimeError, NotImplementedError, UnsupportedGraph):
        return None
    values = {**walk.values, **dict(zip(nodes, results, strict=True))}
    for node in nodes:
        part, inputs = reference.cut(walk.module, [node], values)
        eager = part(*[reference.copy_input(value) for value in inputs])[0]
        if not isinstance(eager, torch.Tensor) or is_same(values[node], eager):
            continue
        if reference.judge_graph(part, inputs, [values[node]], walk.drawn)[0].is_wrong:
            return node
    return None
