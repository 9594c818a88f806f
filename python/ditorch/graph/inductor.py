"""backend="dit_inductor": PyTorch's own Inductor for the CPU, behind the device. After AOTAutograd every graph is
written anew for the CPU; its inputs are copied there and its results back. An oracle for the graph engine's results,
not a fast way. Depends on torch, and on a C++ compiler."""

from __future__ import annotations

import copy
from typing import Any

import torch

from ..compiler import is_on_device


def _change(value: Any) -> Any:
    return torch.device("cpu") if isinstance(value, torch.device) else value


def _to_cpu(value: Any) -> Any:
    return value.detach().cpu() if isinstance(value, torch.Tensor) else value


def _write_for_cpu(module: torch.fx.GraphModule) -> tuple[torch.fx.GraphModule, list[Any]]:
    """The graph with the CPU in the place of the device, and stand-ins of its inputs."""
    from torch._guards import detect_fake_mode
    from torch.fx.passes.fake_tensor_prop import FakeTensorProp

    values = [node.meta.get("val") for node in module.graph.nodes if node.op == "placeholder"]
    mode = detect_fake_mode(values) or torch._subclasses.FakeTensorMode()
    moved = copy.deepcopy(module)
    for node in moved.graph.nodes:
        node.args, node.kwargs = torch.utils._pytree.tree_map(_change, (node.args, node.kwargs))
        if node.op == "get_attr":
            held = getattr(moved, str(node.target))
            setattr(moved, str(node.target), _to_cpu(held))
    moved.recompile()

    def stand_in(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        with mode:
            return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="cpu")

    stands = [stand_in(value) for value in values]
    FakeTensorProp(moved, mode).propagate_dont_convert_inputs(*stands)
    return moved, stands


def _check_compiler() -> None:
    from torch._inductor import cpp_builder, exc

    try:
        cpp_builder.get_cpp_compiler()
    except (exc.InvalidCxxCompiler, OSError):
        raise RuntimeError(
            'backend="dit_inductor" needs a C++ compiler: install g++ or name one in CXX; backend="dit" needs none'
        ) from None


def compile_on_cpu(module: torch.fx.GraphModule, inputs: Any) -> Any:
    """The inner compiler."""
    from torch._inductor.compile_fx import compile_fx_inner

    moved, stands = _write_for_cpu(module)
    with torch._inductor.config.patch(layout_optimization=False):  # what is saved for the backward keeps its strides
        compiled = compile_fx_inner(moved, stands)
    fakes = [node.meta.get("val") for node in module.graph.nodes if node.op == "placeholder"]
    device = next((fake.device for fake in fakes if is_on_device(fake)), "cuda")
    (out,) = (node for node in module.graph.nodes if node.op == "output")
    homes = [node.meta["val"].device if isinstance(node, torch.fx.Node) and isinstance(node.meta.get("val"),
             torch.Tensor) else device for node in out.args[0]]  # fmt: skip

    places = [node for node in module.graph.nodes if node.op == "placeholder"]
    targets = [node.args[0] for node in module.graph.nodes if node.target is torch.ops.aten.copy_.default]
    written = [place for place, node in enumerate(places) if node in targets]

    def run(args: list[Any]) -> list[Any]:
        given = list(args)
        args.clear()
        lent = [_to_cpu(value) for value in given]
        results = compiled(list(lent))
        for place in written:
            given[place].copy_(lent[place])
        return [x.to(home) if isinstance(x, torch.Tensor) else x for x, home in zip(results, homes, strict=True)]

    run._boxed_call = True
    return run


def backend(module: torch.fx.GraphModule, inputs: Any, **options: Any) -> Any:
    """torch.compile(..., backend="dit_inductor")."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.partitioners import min_cut_rematerialization_partition
    from torch._inductor.decomposition import select_decomp_table

    _check_compiler()
    compiler = aot_autograd(
        fw_compiler=compile_on_cpu,
        bw_compiler=compile_on_cpu,
        inference_compiler=compile_on_cpu,
        decompositions=select_decomp_table(),
        partition_fn=min_cut_rematerialization_partition,
        keep_inference_input_mutations=True,
    )
    return compiler(module, inputs)
