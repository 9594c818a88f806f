"""torch.compile on the device: graphs that touch it go to the graph engine or to aot_eager instead of Inductor.

Inductor's "cuda" path always means Triton kernels. Its wrapper object stands behind every mode, options and
backend="inductor", so one override covers them all; graphs on the CPU alone still go to Inductor.
"""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Mapping
from typing import Any

import torch

from . import settings
from .patches import Patches
from .refusal import refuse

_said = False
_said_ignored: set[str] = set()


def say_ignored(backend: str, mode: str | None, options: Mapping[str, Any] | None) -> None:
    """What torch.compile was given and what has no effect here; once for each text."""
    words = [f"mode={mode!r}"] if mode and mode != "default" else []
    words += [f"options={dict(options)!r}"] if options else []
    text = (
        f"ditorch: torch.compile({', '.join(words)}) changes nothing with the backend {backend!r}: it works in one "
        "way, and what modes and Inductor's options mean there is in docs/compile.md"
    )
    if words and text not in _said_ignored:
        _said_ignored.add(text)
        warnings.warn(text, RuntimeWarning, stacklevel=2)


def list_ignored(wrapper: Any) -> tuple[str | None, dict[str, Any]]:
    """Mode and options of Inductor's wrapper, which keeps both as one dictionary."""
    from torch._inductor import list_mode_options

    mode = getattr(wrapper, "ditorch_mode", None)
    meant = list_mode_options(mode, wrapper.dynamic) if mode and mode != "default" else {}
    config = getattr(wrapper, "config", {})
    return mode, {name: value for name, value in config.items() if name not in meant or meant[name] != value}


def _lookup() -> Any:
    """The backend of the option `compile_backend`; it is said once."""
    global _said
    from torch._dynamo.backends.registry import lookup_backend

    name = settings.get("compile_backend")
    if not _said:
        _said = True
        what = "the device's graph engine" if name == "dit" else "operator by operator"
        print(f"ditorch: torch.compile on this device uses {name} ({what}), not Inductor", file=sys.stderr)
    return lookup_backend(name)


def _on_device(value) -> bool:
    return isinstance(value, torch.Tensor) and value.is_cuda


def uses_device(graph_module, inputs) -> bool:
    """Does any input, parameter, buffer or intermediate value of the graph live on the device?"""
    if any(_on_device(leaf) for leaf in torch.utils._pytree.tree_leaves(inputs)):
        return True
    if isinstance(graph_module, torch.nn.Module):
        held = [*graph_module.parameters(), *graph_module.buffers()]
        if any(map(_on_device, held)):
            return True
    graph = getattr(graph_module, "graph", None)
    for node in getattr(graph, "nodes", ()):
        for key in ("example_value", "val"):
            if any(_on_device(leaf) for leaf in torch.utils._pytree.tree_leaves(node.meta.get(key))):
                return True
    return False


def install(patches: Patches) -> None:
    """Override the call of torch's Inductor wrapper."""
    wrapper = torch._TorchCompileInductorWrapper
    native = wrapper.__call__

    native_mode = wrapper.apply_mode

    def __call__(self, model_, inputs_, **kwargs):
        if not uses_device(model_, inputs_):
            return native(self, model_, inputs_, **kwargs)
        say_ignored(settings.get("compile_backend"), *list_ignored(self))
        return _lookup()(model_, inputs_)

    def apply_mode(self, mode):
        self.ditorch_mode = mode
        native_mode(self, mode)

    patches.set(wrapper, "__call__", __call__)
    patches.set(wrapper, "apply_mode", apply_mode)


def patch_cudagraphs(patches: Patches, module) -> None:
    """torch._dynamo.backends.cudagraphs: there is nothing to capture; graphs of the device run without."""
    backend = module.CudagraphsBackend
    native = backend.__call__

    def __call__(model, inputs, **kwargs):
        if not uses_device(model, inputs):
            return native(model, inputs, **kwargs)
        return _lookup()(model, inputs)

    patches.set(backend, "__call__", staticmethod(__call__))


def patch_inductor(patches: Patches, module) -> None:
    """torch._inductor: ahead-of-time compilation for the device is refused in one sentence."""
    for name in ("aoti_compile_and_package", "aot_compile"):
        native = getattr(module, name)

        def compile_ahead(program, *args, _native=native, _name=name, **kwargs):
            graph = getattr(program, "graph_module", program)
            held = getattr(program, "state_dict", {})
            if uses_device(graph, [args, kwargs, held if isinstance(held, dict) else {}]):
                refuse(
                    f"torch._inductor.{_name}",
                    "AOTInductor writes Triton kernels; use torch.compile, or move the model to the CPU",
                )
            return _native(program, *args, **kwargs)

        patches.set(module, name, functools.wraps(native)(compile_ahead))


def patch_registry(patches: Patches, module) -> None:
    """torch._dynamo.backends.registry: the graph engine under the name "dit" and those of DICP, and Inductor for the
    CPU behind the device."""

    def dit(model, inputs, mode=None, options=None):
        """Fused regions in C, the device's operators for the rest."""
        from .graph import backend

        say_ignored("dit", mode, options)
        return backend(model, inputs)

    def ascendgraph(model, inputs, mode=None, options=None):
        """DICP's name; the engine is that of the vendor library that is loaded."""
        return dit(model, inputs, mode, options)

    def topsgraph(model, inputs, mode=None, options=None):
        """DICP's name; the engine is that of the vendor library that is loaded."""
        return dit(model, inputs, mode, options)

    def dit_inductor(model, inputs, mode=None, options=None):
        """PyTorch's Inductor for the CPU, with copies: an oracle."""
        from .graph.inductor import backend

        say_ignored("dit_inductor", mode, options)
        return backend(model, inputs)

    for function in (dit, ascendgraph, topsgraph, dit_inductor):
        if function.__name__ not in module._COMPILER_FNS:
            module.register_backend(function, name=function.__name__)
