"""torch.compile on the device: graphs that touch it go to the graph engine or to aot_eager instead of Inductor.

Inductor's "cuda" path always means Triton kernels. Its wrapper object stands behind every mode, options and
backend="inductor", so one override covers them all; graphs on the CPU alone still go to Inductor.
"""

from __future__ import annotations

import functools
import importlib.metadata
import sys
from collections.abc import Mapping
from typing import Any

import torch

from . import installation, library, settings
from .patches import Patches
from .refusal import refuse

_said: set[str] = set()


def _say(text: str) -> None:
    """Once in a process."""
    if text not in _said:
        _said.add(text)
        print(f"ditorch: {text}", file=sys.stderr)


def say_ignored(backend: str, mode: str | None, options: Mapping[str, Any] | None) -> None:
    """What torch.compile was given and what has no effect here; once for each text."""
    words = [f"mode={mode!r}"] if mode and mode != "default" else []
    words += [f"options={dict(options)!r}"] if options else []
    if words:
        _say(
            f"torch.compile({', '.join(words)}) changes nothing with the backend {backend!r}: it works in one way, and "
            "what modes and Inductor's options mean there is in docs/compile.md"
        )


def list_ignored(wrapper: Any) -> tuple[str | None, dict[str, Any]]:
    """Mode and options of Inductor's wrapper, which keeps both as one dictionary."""
    from torch._inductor import list_mode_options

    mode = getattr(wrapper, "ditorch_mode", None)
    meant = list_mode_options(mode, wrapper.dynamic) if mode and mode != "default" else {}
    config = getattr(wrapper, "config", {})
    return mode, {name: value for name, value in config.items() if name not in meant or meant[name] != value}


def find_lack() -> str:
    """Why there is no graph engine in this process; empty: there is one."""
    chosen = installation.state.choice
    if library.is_loaded():
        return ""
    if chosen is not None and chosen.stack is not None:
        owner = chosen.stack.row.package
        return f"the graph engine runs devices of ditorch's own library, and this one belongs to {owner}"
    return f"ditorch offers no device here ({chosen.reason if chosen else 'it is not installed'})"


def _lookup(name: str) -> Any:
    """The backend of this name, or what stands for it where the graph engine is not; it is said once."""
    from torch._dynamo.backends.registry import lookup_backend

    lack = find_lack() if name == "dit" else ""
    if lack:
        _say(f"torch.compile on this device runs operator by operator (aot_eager): {lack}")
        return lookup_backend("aot_eager")
    return lookup_backend(name)


def _lookup_default() -> Any:
    """The backend of the option `compile_backend`; it is said once."""
    name = settings.get("compile_backend")
    if name != "dit" or not find_lack():
        what = "the device's graph engine" if name == "dit" else "operator by operator"
        _say(f"torch.compile on this device uses {name} ({what}), not Inductor")
    return _lookup(name)


def is_on_device(value: Any) -> bool:
    """Is it a tensor, real or fake, of the device that ditorch is in place for, under whatever name?"""
    if not isinstance(value, torch.Tensor):
        return False
    target = installation.state.target
    name = target[0] if target else torch._C._get_privateuse1_backend_name()
    return value.device.type == torch.device(name).type


def uses_device(graph_module, inputs) -> bool:
    """Does any input, parameter, buffer or intermediate value of the graph live on the device?"""
    if any(is_on_device(leaf) for leaf in torch.utils._pytree.tree_leaves(inputs)):
        return True
    if isinstance(graph_module, torch.nn.Module):
        held = [*graph_module.parameters(), *graph_module.buffers()]
        if any(map(is_on_device, held)):
            return True
    graph = getattr(graph_module, "graph", None)
    for node in getattr(graph, "nodes", ()):
        for key in ("example_value", "val"):
            if any(is_on_device(leaf) for leaf in torch.utils._pytree.tree_leaves(node.meta.get(key))):
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
        return _lookup_default()(model_, inputs_)

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
        return _lookup_default()(model, inputs)

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


def _make_engine(name: str, about: str) -> Any:
    """The graph engine as a backend called `name`."""

    def engine(model, inputs, mode=None, options=None):
        if find_lack():
            return _lookup("dit")(model, inputs)
        from .graph import backend

        say_ignored("dit", mode, options)
        return backend(model, inputs)

    engine.__name__, engine.__doc__ = name, about
    return engine


def dit_inductor(model, inputs, mode=None, options=None):
    """PyTorch's Inductor for the CPU, with copies: an oracle."""
    from .graph.inductor import backend

    say_ignored("dit_inductor", mode, options)
    return backend(model, inputs)


_DICP = "DICP's name; the engine is that of the vendor library that is loaded."
_BACKENDS = (
    _make_engine("dit", "Fused regions in C, the device's operators for the rest."),
    _make_engine("ascendgraph", _DICP),
    _make_engine("topsgraph", _DICP),
    dit_inductor,
)


def patch_registry(patches: Patches, module) -> None:
    """torch._dynamo.backends.registry: the graph engine under the name "dit" and those of DICP, and Inductor for the
    CPU behind the device. Without the engine a package's own backend of such a name stays."""
    own = set() if library.is_loaded() else importlib.metadata.entry_points(group="torch_dynamo_backends").names
    for function in _BACKENDS:
        if function.__name__ not in module._COMPILER_FNS and function.__name__ not in own:
            module.register_backend(function, name=function.__name__)
