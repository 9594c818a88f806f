"""dlinfer.framework.lmdeploy_ext: imported by LMDeploy before it builds an engine for a dlinfer device type.

LMDeploy's files stay as they are; what it asks of dlinfer at run time is answered here, each row of `_PATCHES` for one
reason. Depends on: graphs of ditorch.cuda; `lmdeploy_graph` for the buffers of graph mode.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import inspect
import sys
import types
import warnings
from typing import Any

import torch

from . import front, lmdeploy_failures, lmdeploy_graph, lmdeploy_requests, lmdeploy_sampling, vendors
from .operators import is_ours

_ALIBI = "LMDeploy does not pass alibi slopes to dlinfer: this model would be wrong"
_BACKEND = "lmdeploy.pytorch.backends.dlinfer.op_backend"
_AGENT = "lmdeploy.pytorch.engine.model_agent.agent"
KNOWN = ((0, 13), (0, 18))
"""First and last version whose calls were read."""


def check_version() -> str:
    """LMDeploy's version; a warning where its calls are not known."""
    try:
        text = importlib.metadata.version("lmdeploy")
    except importlib.metadata.PackageNotFoundError:
        return ""
    version = tuple(int(part) for part in text.split(".")[:2])
    if not KNOWN[0] <= version <= KNOWN[1]:
        warnings.warn(f"dlinfer knows LMDeploy 0.13 to 0.18; this is {text}, whose calls may differ", stacklevel=2)
    return text


def _forget_engine(backend: Any) -> None:
    """What a backend's class keeps of the engine before: the slots of its caches, the scales of its int8 caches."""
    if getattr(backend, "total_slots", None) is not None:
        backend.total_slots = None
    scales = getattr(sys.modules[backend.__module__], "AscendKVQuantMeta", None)
    if scales is not None:
        scales.has_set_value = False


def _refuse_broken(device: str) -> None:
    """0.18.0's own code for maca and camb passes what its own class of metadata does not take."""
    from lmdeploy.pytorch.backends.dlinfer.attention import DlinferAttentionMetadata

    if device != "ascend" and "max_q_seq_len" not in DlinferAttentionMetadata.__dataclass_fields__:
        raise NotImplementedError(
            f"LMDeploy {importlib.metadata.version('lmdeploy')} cannot run device type {device!r} with any dlinfer; "
            "use device_type='ascend', or LMDeploy 0.17.0"
        )


def _choose_vendor(old: Any) -> Any:
    """The engine's device type says whose conventions its calls follow."""

    def get_layer_impl_builder(cls: Any, layer_type: Any) -> Any:
        vendors.use(cls.get_name())
        _refuse_broken(cls.get_name())
        if layer_type.name == "PagedAttention":
            _forget_engine(cls)
        return old.__func__(cls, layer_type)

    return classmethod(get_layer_impl_builder)


def _choose_vendor_by_spec(old: Any) -> Any:
    """The same since 0.18, where one function builds every layer."""

    def build_op(cls: Any, spec: Any, **named: Any) -> Any:
        vendors.use(cls.get_name())
        _refuse_broken(cls.get_name())
        if type(spec).__name__ == "PagedAttentionBuildSpec":
            _forget_engine(cls)
            if spec.alibi:
                raise NotImplementedError(_ALIBI)
        return old.__func__(cls, spec, **named)

    return classmethod(build_op)


def _pass_extras(old: Any) -> Any:
    """Window, soft limit and sinks are known to the layer, but not passed to the operators."""

    @functools.wraps(old)
    def forward(self: Any, *given: Any, **named: Any) -> Any:
        window = getattr(self, "sliding_window", None)
        window = window[0] if isinstance(window, (tuple, list)) else window
        limit = getattr(self, "logit_softcapping", None)
        with front.extras(
            window=window if window and window > 0 else -1,
            softcap=limit if limit and limit > 0 else 0.0,
            sinks=named.get("learnable_sink"),
        ):
            return old(self, *given, **named)

    return forward


def _refuse_alibi(old: Any) -> Any:
    """Its slopes reach neither the layer nor the operators."""

    @functools.wraps(old)
    def build(*given: Any, **named: Any) -> Any:
        if named.get("alibi") or named.get("alibi_scale"):
            raise NotImplementedError(_ALIBI)
        return old(*given, **named)

    return staticmethod(build)


def _mask_on_host(old: Any) -> Any:
    """Guided decoding would start a Triton kernel."""

    def apply_batched_bitmap(self: Any, logits: torch.Tensor, guided_bitmask: torch.Tensor) -> None:
        import xgrammar

        host = logits.float().cpu()
        xgrammar.apply_token_bitmask_inplace(host, guided_bitmask.cpu())
        logits.copy_(host)

    return apply_batched_bitmap


def _accept_numbers(old: Any) -> Any:
    """Older versions pass a tensor of one number; xgrammar takes int alone."""

    def accept_token(self: Any, processor: Any, token: Any) -> None:
        old(self, processor, int(token))

    return accept_token


def _name_collectives(old: Any) -> Any:
    """Device type ascend asks for its vendor's library; ditorch's device has NCCL's names."""
    return staticmethod(lambda: "nccl" if is_ours() else old.__func__())


_PATCHES = (
    (_BACKEND, "DlinferOpsBackend.get_layer_impl_builder", _choose_vendor),
    (_BACKEND, "DlinferOpsBackend.build_op", _choose_vendor_by_spec),
    ("lmdeploy.pytorch.backends.dlinfer.attention", "DlinferAttentionImpl.forward", _pass_extras),
    ("lmdeploy.pytorch.backends.dlinfer.attention", "DlinferAttentionBuilder.build", _refuse_alibi),
    ("lmdeploy.pytorch.backends.dlinfer.ascend.op_backend", "AscendOpsBackend.ccl_backend", _name_collectives),
    ("lmdeploy.pytorch.engine.guided_process", "GuidedDecodingManager.apply_batched_bitmap", _mask_on_host),
    ("lmdeploy.pytorch.engine.guided_process", "GuidedDecodingManager.accept_token", _accept_numbers),
    ("lmdeploy.pytorch.engine.engine", "Engine._on_add_message", lmdeploy_requests.check_added),
    ("lmdeploy.pytorch.engine.engine_loop", "EngineLoop._send_resp", lmdeploy_requests.send_failed),
    (_AGENT, "BaseModelAgent.async_forward", lmdeploy_failures.catch_forward),
    (_AGENT, "BaseModelAgent.get_logits", lmdeploy_failures.catch_logits),
    (_AGENT, "BaseModelAgent._push_output", lmdeploy_failures.mark_output),
    ("lmdeploy.pytorch.engine.engine_loop", "EngineLoop._finish_forward_output", lmdeploy_failures.end_requests),
    ("lmdeploy.pytorch.engine.engine_loop", "EngineLoop.start", lmdeploy_failures.start_agent),
    (
        "lmdeploy.pytorch.backends.default.multinomial_sampling",
        "DefaultMultinomialSamplingImpl.forward",
        lmdeploy_sampling.replace_forward,
    ),
    ("lmdeploy.pytorch.models.utils.cudagraph", "CudaGraphMixin.make_buffers_cudagraph", lmdeploy_graph.replace_make),
    ("lmdeploy.pytorch.models.utils.cudagraph", "CudaGraphMixin.fill_buffers_cudagraph", lmdeploy_graph.replace_fill),
)
"""Module, attribute of one of its classes, and what makes the new one of the old one."""
_OTHERWISE = {
    "get_layer_impl_builder": "build_op",
    "DlinferAttentionBuilder.build": "build_op",
    "build_op": "get_layer_impl_builder",
}
"""What a version has in place of a name."""


def make_npu() -> types.SimpleNamespace:
    """`torch.npu` as far as LMDeploy asks. No module torch_npu: other libraries would take it for the real one."""
    return types.SimpleNamespace(
        get_device_name=lambda device=None: "Ascend910B",
        get_soc_version=lambda: 223,
        current_device=lambda: torch.cuda.current_device(),
        device_count=lambda: torch.cuda.device_count(),
        is_available=lambda: torch.cuda.is_available(),
        set_device=lambda device: torch.cuda.set_device(device),
        synchronize=lambda device=None: torch.cuda.synchronize(device),
    )


def _pass_new_calls() -> None:
    """Since 0.18 attention is called with other arguments: its module gets functions that take those."""
    try:
        page = importlib.import_module("lmdeploy.pytorch.kernels.dlinfer.pagedattention")
        vision = importlib.import_module("lmdeploy.pytorch.kernels.dlinfer.flash_attention")
    except ImportError:
        return
    if "cu_seqlens_q_cpu" in inspect.signature(page.paged_attention_fwd).parameters:
        from . import lmdeploy_calls

        page.ext_ops = vision.ext_ops = lmdeploy_calls


def install() -> list[str]:
    """Answer what LMDeploy asks; what this version of it does not have is left out and named."""
    missing = []
    if is_ours() and not hasattr(torch, "npu"):
        torch.npu = make_npu()
    for module, path, make in _PATCHES:
        try:
            owner = getattr(importlib.import_module(module), path.split(".")[0])
            old = vars(owner)[path.split(".")[1]]
        except (ImportError, AttributeError, KeyError):
            missing.append(f"{module}.{path}")
            continue
        if not getattr(owner, f"_dlinfer_{path.split('.')[1]}", False):
            setattr(owner, path.split(".")[1], make(old))
            setattr(owner, f"_dlinfer_{path.split('.')[1]}", True)
    _pass_new_calls()
    backend = vars(getattr(sys.modules.get(_BACKEND), "DlinferOpsBackend", object))
    return [name for name in missing if not any(name.endswith(k) and v in backend for k, v in _OTHERWISE.items())]


if check_version():
    MISSING = install()
