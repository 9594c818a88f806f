"""What torch.compile made of a program: graphs, breaks, islands, recompiles, steps, bytes and time.

Dynamo tells of breaks and recompiles in its logs, which are read here and not printed; the graph engine tells of the
rest. Depends on torch and on the hooks of this package.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import time
from typing import Any

import torch

from .locate import get_place

LOGS = {
    "torch._dynamo.symbolic_convert.__graph_breaks": "break",
    "torch._dynamo.output_graph.__graph_breaks": "break",
    "torch._dynamo.guards.__recompiles": "recompile",
}
BREAK = re.compile(r"Graph break in user code at ([^\n]+?)\n(?:Graph Break Reason: )?\s*(.*)", re.S)
RECOMPILE = re.compile(r"Recompiling function (\S+) in ([^\n]+)\n(.*)", re.S)


class _Reader(logging.Handler):
    """Keeps the messages of one logger."""

    def __init__(self, kind: str, found: list[dict[str, Any]]) -> None:
        super().__init__(logging.DEBUG)
        self.kind, self.found = kind, found

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        matched = (BREAK if self.kind == "break" else RECOMPILE).search(text)
        if matched is None:
            return
        if self.kind == "break":
            row = {"place": matched[1].strip(), "reason": _shorten(matched[2])}
        else:
            reasons = [line.split(": ", 1)[-1] for line in matched[3].splitlines() if re.match(r"\s*- \d+/\d+", line)]
            row = {"function": matched[1], "place": matched[2].strip(), "reason": "; ".join(reasons)}
        self.found.append(row)


def _shorten(text: str) -> str:
    """The sentence that says what it is, and the explanation."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    kept = lines[:1] + [line for line in lines[1:] if line.startswith("Explanation:")]
    return " ".join(kept)[:300]


class Watched:
    """A compiled graph whose calls are counted and timed."""

    def __init__(self, module: torch.fx.GraphModule, made: Any, row: dict[str, Any]) -> None:
        self._boxed_call = True
        self.made, self.row = made, row

    def __call__(self, args: list[Any]) -> Any:
        begin = time.perf_counter()
        try:
            return self.made(args)
        finally:
            self.row["calls"] += 1
            self.row["seconds"] += time.perf_counter() - begin


class Explanation:
    """Collects from `begin` to `end`."""

    def __init__(self, lack: str = "") -> None:
        """`lack`: why there is no graph engine."""
        self.lack = lack
        self.graphs: list[dict[str, Any]] = []
        self.breaks: list[dict[str, Any]] = []
        self.recompiles: list[dict[str, Any]] = []
        self.sources: dict[str, str] = {}
        """Of the kernels, by the name of a file; equal ones once."""
        self._made: list[tuple[dict[str, Any], Any]] = []
        self._handlers: list[tuple[logging.Logger, logging.Handler, int, bool]] = []

    def begin(self) -> None:
        from . import watchers

        watchers.append(self.watch)
        torch.ops.ditorch.graph_set_timing(True)
        torch._logging._internal.log_state.enable_artifact("recompiles")  # asked for by name, not by level
        for name, kind in LOGS.items():
            logger = logging.getLogger(name)
            handler = _Reader(kind, self.breaks if kind == "break" else self.recompiles)
            self._handlers.append((logger, handler, logger.level, logger.propagate))
            logger.addHandler(handler)
            logger.setLevel(logging.DEBUG)
            logger.propagate = False

    def end(self) -> None:
        from . import watchers

        watchers.remove(self.watch)
        torch.ops.ditorch.graph_set_timing(False)
        torch._logging._internal.log_state.artifact_names.discard("recompiles")
        for logger, handler, level, propagates in self._handlers:
            logger.removeHandler(handler)
            logger.setLevel(level)
            logger.propagate = propagates
        for row, made in self._made:
            row["plans"] = made.describe()
            self._measure(made.graph, [step for plan in row["plans"] for step in plan["steps"]])
            row["islands"], row["refused"], row["refusal"] = dict(made.islands), dict(made.refused), made.refusal
        self._made.clear()

    def _measure(self, graph: int, steps: list[dict[str, Any]]) -> None:
        """Bytes, time and source of each step."""
        counts, sources = torch.ops.ditorch.graph_measure(graph), torch.ops.ditorch.graph_sources(graph)
        ending = "cu" if torch.ops.ditorch.graph_engine() == "cuda" else "c"
        for i, step in enumerate(steps):
            step["bytes"], step["seconds"], step["calls"] = counts[3 * i], counts[3 * i + 1] / 1e9, counts[3 * i + 2]
            if sources[i]:
                name = f"region-{hashlib.sha256(sources[i].encode()).hexdigest()[:12]}.{ending}"
                self.sources[name] = sources[i]
                step["source"] = name

    def write_sources(self, folder: str) -> None:
        os.makedirs(folder, exist_ok=True)
        for name, text in self.sources.items():
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(text)

    def watch(self, module: torch.fx.GraphModule, made: Any, reason: str, seconds: float) -> Any:
        """The hook of compile_graph: `made` is the compiled graph, or what runs instead for a `reason`."""
        nodes = [node for node in module.graph.nodes if node.op == "call_function"]
        names = [node.name for node in module.graph.nodes if node.op == "placeholder"]
        row = {
            "kind": "backward" if any(name.startswith("tangents") for name in names) else "forward",
            "place": next((place for place in map(get_place, nodes) if place), ""),
            "operators": len(nodes), "unplanned": reason, "cut_at": getattr(made, "cut_at", ""),
            "compile_seconds": round(seconds, 4),
            "calls": 0, "seconds": 0.0, "islands": dict(getattr(made, "islands", {})), "plans": [],
            "refused": dict(getattr(made, "refused", {})), "refusal": "",
        }  # fmt: skip
        self.graphs.append(row)
        if not reason:
            self._made.append((row, getattr(made, "made", made)))
        return Watched(module, made, row)

    def to_json(self) -> dict[str, Any]:
        return {
            "format": "ditorch-compile-explain", "version": 1, "torch": torch.__version__,
            "graphs": self.graphs, "breaks": self.breaks, "recompiles": self.recompiles,
        }  # fmt: skip

    def render(self) -> str:
        total = sum(row["compile_seconds"] for row in self.graphs)
        lines = [
            f"ditorch compile: {len(self.graphs)} graphs in {total:.2f} s, {len(self.breaks)} graph breaks, "
            f"{len(self.recompiles)} recompiles"
        ]
        if self.lack:
            lines.append(f"  graphs run operator by operator: {self.lack}")
        elif not self.graphs:
            lines.append("  nothing was compiled: the program never called a function of torch.compile on the device")
        for number, row in enumerate(self.graphs):
            lines += _render_graph(number, row)
        lines += [f"break      {row['place']}: {row['reason']}" for row in self.breaks]
        lines += [f"recompile  {row['function']} {row['place']}: {row['reason']}" for row in self.recompiles]
        return "\n".join(lines)


def _count_subgraphs(plan: dict[str, Any]) -> str:
    return f"{plan['subgraphs']} subgraphs, " if plan["subgraphs"] else ""


def name_step(step: dict[str, Any]) -> str:
    """A step of a plan in a few words."""
    if step["kind"] == "region":
        return f"region {step['name']} [{'x'.join(map(str, step['sizes']))}] by {step['runs']}"
    if step["kind"] == "subgraph":
        return f"subgraph of {step['nodes']} nodes by {step['name']} ({step['runs']}, from {step['from']})"
    return f"{'operator' if step['kind'] == 'row' else 'island'} {step['name']}"


def say_unplanned(row: dict[str, Any]) -> str:
    """How a graph runs that is no plan."""
    if row["cut_at"]:
        return f"cut at {row['cut_at']}, which PyTorch runs ({row['unplanned']}); the pieces are graphs of their own"
    return f"runs operator by operator: {row['unplanned']}"


def say_cost(step: dict[str, Any]) -> str:
    each = f"{step['seconds'] / step['calls'] * 1e6:,.3g} us" if step["calls"] else "not run"
    return f"{step['bytes']:,} bytes, {each}"


def _render_operators(steps: list[dict[str, Any]]) -> list[str]:
    """A line for each operator, the one that took longest first."""
    sums: dict[str, list[float]] = {}
    for step in steps:
        one = sums.setdefault(name_step(step), [0, 0, 0.0])
        one[0] += 1
        one[1] += step["bytes"]
        one[2] += step["seconds"] / (step["calls"] or 1)
    ordered = sorted(sums.items(), key=lambda item: -item[1][2])
    return [f"    {name}: {n} calls, {size:,} bytes, {took * 1e6:,.3g} us" for name, (n, size, took) in ordered]


def _render_graph(number: int, row: dict[str, Any]) -> list[str]:
    time_each = f"{row['seconds'] / row['calls'] * 1e3:.3g} ms each" if row["calls"] else "never called"
    head = f"graph {number:<4} {row['kind']} {row['place']}"
    lines = [f"{head}: {row['operators']} operators, {row['calls']} calls, {time_each}"]
    if row["unplanned"]:
        lines.append(f"  {say_unplanned(row)}")
    for plan in row["plans"]:
        lines.append(
            f"  {plan['regions']} regions, {_count_subgraphs(plan)}{plan['rows']} operators of the device, "
            f"{plan['islands']} islands; arena {plan['arena']} of {plan['unplanned']} bytes"
        )
        for step in plan["steps"]:
            if step["kind"] in ("region", "subgraph"):
                lines.append(f"    {name_step(step)} ({say_cost(step)}): {step['operations']}")
        lines += _render_operators([step for step in plan["steps"] if step["kind"] in ("row", "island")])
        lines += [f"    refused: a subgraph of {each['nodes']} nodes: {each['reason']}" for each in plan["refusals"]]
    if row["refusal"]:
        lines.append(f"  by the device's operators: {row['refusal']}")
    lines += [f"  operator {name}: {reason}" for name, reason in row["refused"].items()]
    lines += [f"  island {name}: {reason}" for name, reason in row["islands"].items()]
    return lines
