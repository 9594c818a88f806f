"""Which operators of PyTorch a model needs: DICP's context, over graphs of any inner compiler or of the graph engine.

With no compiler given it listens to `graph.watchers` while the context is open, so every function that is compiled by
the backend "dit" meanwhile is read; with `inner_commpiler_func` and `compile_fx_func` the context is itself a backend.
Depends on torch alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch


def list_operators(module: torch.fx.GraphModule) -> Iterator[str]:
    """Of a graph and of the graphs inside of it (branches, loops)."""
    for node in module.graph.nodes:
        target = node.target
        if node.op == "call_function" and isinstance(target, (torch._ops.OpOverload, torch._ops.HigherOrderOperator)):
            yield str(target)
        elif node.op == "get_attr" and isinstance(held := getattr(module, target, None), torch.fx.GraphModule):
            yield from list_operators(held)


class InnerCompilerOpCollectorContext:
    """with InnerCompilerOpCollectorContext(...) as collector: compile and run a model; at the end the operators of all
    its graphs are printed, sorted.

    inner_commpiler_func, compile_fx_func  an inner compiler and the function that is given it under the name
        `inner_compiler_param_key`; `collector.compile_fx` (or the collector itself) is then a backend. None: those
        of the engine
    collector_name  beginning of the files' names
    write_file  write <name>_op.txt
    bypass_graph_module  graphs run as they are, uncompiled
    cache_graph_module  write every graph to <name>_graph_<i>.txt
    """

    def __init__(
        self,
        inner_commpiler_func: Callable[..., Any] | None = None,
        compile_fx_func: Callable[..., Any] | None = None,
        collector_name: str = "module",
        inner_compiler_param_key: str = "inner_compile",
        write_file: bool = False,
        bypass_graph_module: bool = True,
        cache_graph_module: bool = False,
    ) -> None:
        if (inner_commpiler_func is None) != (compile_fx_func is None):
            raise ValueError(
                "InnerCompilerOpCollectorContext: inner_commpiler_func and compile_fx_func belong together; give both, "
                "or neither for the graph engine's own"
            )
        self.inner_commpiler_func, self.compile_fx_func = inner_commpiler_func, compile_fx_func
        self.collector_name, self.inner_compiler_param_key = collector_name, inner_compiler_param_key
        self.write_file, self.bypass_graph_module = write_file, bypass_graph_module
        self.cache_graph_module = cache_graph_module
        self.operators: set[str] = set()
        self.graphs = 0
        self._lock = threading.Lock()

    def __enter__(self) -> InnerCompilerOpCollectorContext:
        if self.compile_fx_func is None:
            from . import watchers

            watchers.append(self._watch)
        return self

    def __exit__(self, *error: Any) -> None:
        if self.compile_fx_func is None:
            from . import watchers

            watchers.remove(self._watch)
        names = sorted(self.operators)
        print(f"{self.collector_name}: {len(names)} operators in {self.graphs} graphs")
        print("\n".join(names))
        if self.write_file:
            path = f"{self.collector_name}_op.txt"
            with open(path, "w", encoding="utf-8") as file:
                file.writelines(f"{name}\n" for name in names)
            print(f"op collected in {path}")

    def __call__(self, module: torch.fx.GraphModule, inputs: Any, **options: Any) -> Any:
        return self.compile_fx(module, inputs, **options)

    def compile_fx(self, module: torch.fx.GraphModule, inputs: Any, **options: Any) -> Any:
        """The backend: `compile_fx_func` with an inner compiler that reads what it is given."""
        if self.compile_fx_func is None:
            from . import backend

            return backend(module, inputs)
        return self.compile_fx_func(module, inputs, **{**options, self.inner_compiler_param_key: self._compile_inner})

    def _compile_inner(self, module: torch.fx.GraphModule, inputs: Any, *args: Any, **options: Any) -> Any:
        assert self.inner_commpiler_func is not None
        self._collect(module)
        return self._run_as_is(module) or self.inner_commpiler_func(module, inputs, *args, **options)

    def _watch(self, module: torch.fx.GraphModule, made: Any, reason: str, seconds: float) -> Any:
        self._collect(module)
        return self._run_as_is(module) or made

    def _run_as_is(self, module: torch.fx.GraphModule) -> Any:
        from functorch.compile import make_boxed_func

        return make_boxed_func(module.forward) if self.bypass_graph_module else None

    def _collect(self, module: torch.fx.GraphModule) -> None:
        with self._lock:
            number = self.graphs
            self.graphs += 1
            self.operators.update(list_operators(module))
        if self.cache_graph_module:
            path = f"{self.collector_name}_graph_{number}.txt"
            with open(path, "w", encoding="utf-8") as file:
                file.write(f"{module.graph}\n")
            print(f"graph {number} is cached to {path}")
