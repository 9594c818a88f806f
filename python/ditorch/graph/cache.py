"""Warm starts: what AOTAutograd makes of a program is kept in its own cache on disk, graphs as words, so that the next
process traces nothing. The cache is PyTorch's (TORCHINDUCTOR_CACHE_DIR, TORCHINDUCTOR_AUTOGRAD_CACHE=0 turns it off);
what is damaged or of another build is a miss.

A graph that is split, checked or explained is not kept. Depends on torch alone.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import time
from collections.abc import Callable
from typing import Any

import torch
import torch._functorch.config as functorch_config
from torch._functorch._aot_autograd import schemas
from torch._functorch._aot_autograd.autograd_cache import BypassAOTAutogradCache
from torch._inductor.output_code import OutputCode

OPTIONS = {"bundled_autograd_cache": True, "force_non_lazy_backward_lowering": True}
"""Entries hold the graphs themselves; both graphs are there when AOTAutograd returns."""


def is_possible() -> bool:
    """Older versions of PyTorch keep Inductor's graphs alone."""
    has_options = all(hasattr(functorch_config, name) for name in OPTIONS)
    return has_options and hasattr(schemas, "SerializableAOTDispatchCompiler")


class Graph(OutputCode):
    """A compiled graph that can be kept: `data` is plain. A subclass loads it and is called with a list."""

    data: Any = None

    def load(self) -> None:
        """Make `data` runnable in this process."""
        raise NotImplementedError

    def __getstate__(self) -> dict[str, Any]:
        return {"data": self.data, "sum": _sum(self.data), "ns": self._time_taken_ns}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if _sum(state["data"]) != state["sum"]:
            raise ValueError("a graph in the cache is damaged")
        self.data, self._time_taken_ns = state["data"], state["ns"]

    def prepare_for_serialization(self) -> None:
        pass

    def post_compile(self, example_inputs: Any, constants: Any, graph_kwargs: Any) -> None:
        self.load()

    def set_triton_bundle(self, triton_bundle: Any) -> None:
        pass


class Loose(OutputCode):
    """A graph that no file can hold."""

    def __init__(self, function: Callable[[list[Any]], Any]) -> None:
        self._boxed_call = True
        self.function = function

    def __call__(self, args: list[Any]) -> Any:
        return self.function(args)

    def prepare_for_serialization(self) -> None:
        raise BypassAOTAutogradCache("a graph that runs in pieces")


def _sum(data: Any) -> str:
    return hashlib.sha256(repr(data).encode()).hexdigest()


@functools.cache
def get_fingerprint() -> str:
    """Changes with the libraries and the code that writes words. The engine has one of its own."""
    here = os.path.dirname(os.path.abspath(__file__))
    folders = [here, os.path.join(os.path.dirname(here), "lib")]
    files = sorted(os.path.join(folder, name) for folder in folders for name in os.listdir(folder))
    stats = [(file, os.stat(file)) for file in files if file.endswith((".py", ".so"))]
    rows = [(file, stat.st_size, stat.st_mtime_ns) for file, stat in stats]
    return hashlib.sha256(repr([rows, torch.ops.ditorch.graph_engine()]).encode()).hexdigest()


def make_compiler(compile_graph: Callable[..., Any]) -> Any:
    """`compile_graph` as AOTAutograd wants it for graphs that it keeps."""

    def compile_to_keep(module: torch.fx.GraphModule, inputs: Any) -> OutputCode:
        begin = time.perf_counter_ns()
        made = compile_graph(module, inputs)
        made = made if isinstance(made, Graph) else Loose(made)
        made._time_taken_ns = time.perf_counter_ns() - begin
        return made

    return schemas.SerializableAOTDispatchCompiler(OutputCode, compile_to_keep)


def keeping(module: torch.fx.GraphModule) -> contextlib.AbstractContextManager[Any]:
    """While AOTAutograd works on `module`, whose attribute becomes a part of the key."""
    module._ditorch_fingerprint = get_fingerprint() + torch.ops.ditorch.graph_fingerprint()
    return functorch_config.patch(OPTIONS)
