"""torch.cuda over a vendor's module: every public name is the vendor's, ours, torch's own, or refused by name.

torch's own stays where it is written in terms of names that are answered here (amp, comm, storages). Nothing is
wrapped: torch.cuda.synchronize is the vendor's function itself, so it costs what it costs there. Classes without a
counterpart keep their identity; making an instance is refused. Depends on: the alias (a vendor's function that is given
"cuda:1" reads it through PyTorch), and the vendor's package being exempt for names (it must see "npu:1" then).
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

import torch
import torch.cuda.comm
import torch.cuda.nccl
from torch.utils.dlpack import DLDeviceType

from ..cuda import comm, legacy_types, neutral, refused, state
from ..cuda.tensor import cuda as tensor_cuda
from ..patches import Patches
from ..refusal import refusing
from . import natives
from .probe import Stack

_SUBMODULES = ("random", "memory", "streams", "nvtx", "profiler", "graphs", "tunable", "jiterator", "nccl", "gds")

_KEEP = ("CudaError", "DeferredCudaCallError", "OutOfMemoryError", "AcceleratorError", "check_error", "cudaStatus")
"""Names of torch.cuda that are torch's own code over what is answered here."""

_PRIVATE = (
    "_lazy_init",
    "_lazy_call",
    "_is_in_bad_fork",
    "_sleep",
    "_set_stream_by_id",
    "_get_rng_state_offset",
    "_set_rng_state_offset",
    "_get_generator",
    "_DeviceGuard",
)
"""Names with an underscore that torch's own Python code uses."""


class Surface:
    """One vendor's answers, by name."""

    def __init__(self, stack: Stack) -> None:
        self.stack, self.module = stack, stack.module
        self.device = f"the {stack.device} device of {stack.row.package}"

    def find(self, name: str, submodule: str = "") -> Any:
        """The vendor's object for torch.cuda[.submodule].name, or None. A module is no answer."""
        owner = getattr(self.module, submodule, None) if submodule else self.module
        found = getattr(owner, name, None)
        return None if isinstance(found, types.ModuleType) else found

    def refuse(self, name: str) -> Callable[..., Any]:
        """A function that says that the vendor has no such name."""
        why = f"{self.module.__name__} has no {name.removeprefix('torch.cuda.')}"
        return refusing(name, why, self.device)

    def put(self, patches: Patches, owner: types.ModuleType, name: str, value: Any) -> None:
        """torch.cuda[.submodule].name becomes `value`; None: it is refused."""
        native = getattr(owner, name, None)
        path = f"{owner.__name__}.{name}"
        if value is None and isinstance(native, type):
            if getattr(native.__new__, "__module__", "") != refusing.__module__:
                patches.set(native, "__new__", staticmethod(self.refuse(path)))
            return
        value = self.refuse(path) if value is None else value
        if value is not native:
            patches.set(owner, name, value)

    def answers(self) -> dict[str, Any]:
        """Our own answers: where vendors differ from torch.cuda, or leave a gap that programs fall into."""
        vendor, row = self.module, self.stack.row
        table: dict[str, Any] = {
            "has_magma": False,
            "has_half": True,
            "is_bf16_supported": _constant("is_bf16_supported", True),
            "is_tf32_supported": _constant("is_tf32_supported", False),
            "is_current_stream_capturing": _constant("is_current_stream_capturing", False),
            "is_initialized": _constant("is_initialized", True),
            "init": _constant("init", None),
            "_lazy_init": _constant("_lazy_init", None),
            "_lazy_call": lambda callable, **kwargs: callable(),
            "_is_in_bad_fork": _constant("_is_in_bad_fork", False),
            "ipc_collect": _constant("ipc_collect", None),
            "get_arch_list": _constant("get_arch_list", []),
            "get_gencode_flags": _constant("get_gencode_flags", ""),
            "manual_seed_all": natives.distinct(getattr(vendor, "manual_seed", None)),
            "seed_all": natives.distinct(getattr(vendor, "seed", None)),
        }
        table = {name: value if self.find(name) is None else self.find(name) for name, value in table.items()}
        if row.capability is not None or self.find("get_device_capability") is None:
            table["get_device_capability"] = _make_capability(row.capability or (8, 0))
        return {name: value for name, value in table.items() if value is not None}


def _constant(name: str, value: Any) -> Callable[..., Any]:
    """A function that answers one thing, whatever the device."""

    def answer(*args: Any, **kwargs: Any) -> Any:
        return list(value) if isinstance(value, list) else value

    answer.__name__ = answer.__qualname__ = name
    return answer


def _make_capability(value: tuple[int, int]) -> Callable[..., tuple[int, int]]:
    def get_device_capability(device: Any = None) -> tuple[int, int]:
        """What programs that ask for an architecture are told (torch.cuda.get_device_capability)."""
        return value

    return get_device_capability


def public_names(module: types.ModuleType) -> list[str]:
    """The names of a module of torch.cuda that are functions or classes of torch.cuda."""
    found = {name for name in getattr(module, "__all__", ()) if hasattr(module, name)}
    for name, value in vars(module).items():
        origin = str(getattr(value, "__module__", ""))
        if not name.startswith("_") and callable(value) and origin.startswith("torch.cuda"):
            found.add(name)
    return sorted(found)


def _is_legacy(value: Any) -> bool:
    """torch.cuda.FloatTensor and FloatStorage: legacy_types and torch answer for them."""
    return isinstance(value, type) and value.__name__.endswith(("Tensor", "Storage"))


def install(patches: Patches, stack: Stack) -> None:
    """Install the whole surface. The caller undoes `patches` when this raises."""
    surface = Surface(stack)
    natives.install(patches, stack)
    _install_names(patches, surface)
    _install_submodules(patches, surface)
    _install_backends(patches, stack)
    if torch.device("cuda").type != "cuda":
        install_index(patches, ("cuda", stack.device))
    legacy_types.install(patches)
    _install_tensor(patches, surface)


def _install_names(patches: Patches, surface: Surface) -> None:
    cuda, answers = torch.cuda, surface.answers()
    for name in (*public_names(cuda), *_PRIVATE, *answers):
        native = getattr(cuda, name, None)
        if name in _KEEP or _is_legacy(native) or isinstance(native, types.ModuleType):
            continue
        value = answers.get(name, surface.find(name))
        if value is not None or name not in _PRIVATE:
            surface.put(patches, cuda, name, value)
    patches.set(cuda, "_exchange_device", torch._C._cuda_exchangeDevice)
    patches.set(cuda, "_maybe_exchange_device", torch._C._cuda_maybeExchangeDevice)
    generators = getattr(surface.module, "default_generators", None)
    if generators is not None:
        patches.set(cuda, "default_generators", tuple(generators))


def _install_submodules(patches: Patches, surface: Surface) -> None:
    """torch.cuda.memory.memory_allocated is torch.cuda.memory_allocated; the rest by the vendor's submodule."""
    for submodule in _SUBMODULES:
        module = getattr(torch.cuda, submodule, None) or sys.modules.get(f"torch.cuda.{submodule}")
        if not isinstance(module, types.ModuleType):
            continue
        vendors = getattr(surface.module, submodule, None)
        if submodule in ("nvtx", "profiler") and vendors is None:
            continue
        for name in public_names(module):
            if name in _KEEP:
                continue
            value = surface.find(name, submodule)
            if value is None:
                value = getattr(torch.cuda, name, None) if name in torch.cuda.__all__ else None
            surface.put(patches, module, name, value)
    _install_jiterator(patches, surface)
    patches.set(torch.cuda.nvtx, "_nvtx", neutral.Nvtx())
    patches.set(torch.cuda.nccl, "is_available", _constant("is_available", False))
    if getattr(getattr(surface.module, "nccl", None), "version", None) is None:
        # torch's logger asks for it while it passes an error of a collective on; a refusal would hide that error.
        patches.set(torch.cuda.nccl, "version", _constant("version", (2, 21, 5)))
    _install_amp(patches, surface)


def _install_jiterator(patches: Patches, surface: Surface) -> None:
    """The vendor's two functions, or functions that refuse when they are called."""
    for name in ("_create_jit_fn", "_create_multi_output_jit_fn"):
        value = surface.find(name, "jiterator")
        if value is not None:
            surface.put(patches, torch.cuda.jiterator, name, value)
    if surface.find("_create_jit_fn", "jiterator") is None:
        why = f"{surface.module.__name__} cannot compile CUDA source"
        refused.refuse_jiterator(patches, refusing(refused.JITERATOR, why, surface.device))


def _install_amp(patches: Patches, surface: Surface) -> None:
    """torch.amp on "cuda" works through the alias; a vendor's own gradient scaler and autocast come first."""
    vendors = getattr(surface.module, "amp", None)
    for name in ("GradScaler", "autocast"):
        value = getattr(vendors, name, None)
        if value is not None:
            patches.set(torch.cuda.amp, name, value)


def _install_backends(patches: Patches, stack: Stack) -> None:
    if torch.version.cuda is None:
        patches.set(torch.version, "cuda", state.CUDA_VERSION)
    patches.set(torch._C, "_has_cuda", True)
    cudnn = getattr(torch.backends.cudnn, "m", torch.backends.cudnn)
    patches.set(cudnn, "is_acceptable", lambda tensor: False)
    for name, value in comm.natives().items():
        if not hasattr(torch._C, name):
            patches.set(torch._C, name, value)


def install_index(patches: Patches, names: tuple[str, ...]) -> None:
    """DITORCH_SHOW_DEVICE_AS_CUDA=0: torch.cuda's own check of device arguments knows the name "cuda" only."""
    native = torch.cuda._utils._get_device_index

    def _get_device_index(device, optional=False, allow_cpu=False):
        device = torch.device(device) if isinstance(device, str) else device
        if not isinstance(device, torch.device) or device.type not in names:
            return native(device, optional, allow_cpu)
        return native(None if device.index is None else device.index, optional, allow_cpu)

    for name, module in list(sys.modules.items()):
        if name.startswith("torch.cuda") and getattr(module, "_get_device_index", None) is native:
            patches.set(module, "_get_device_index", _get_device_index)


def _install_tensor(patches: Patches, surface: Surface) -> None:
    """Tensor.cuda, and what would hand out a CUDA pointer that is none."""
    patches.set(torch.Tensor, "cuda", tensor_cuda)
    name = surface.stack.device
    native_device = torch.Tensor.__dlpack_device__

    def __dlpack_device__(self):
        if not self.is_cuda or torch.overrides.has_torch_function_unary(self):
            return native_device(self)
        return (DLDeviceType.kDLExtDev, self.get_device())

    def __cuda_array_interface__(self):
        raise AttributeError(
            f"__cuda_array_interface__ is not supported on {surface.device}: its memory is no CUDA memory; "
            "use tensor.cpu().numpy()"
            if self.is_cuda
            else f"Can't get __cuda_array_interface__ on non-CUDA tensor type: {self.type()} "
            "If CUDA data is required use tensor.cuda() to copy tensor to device memory."
        )

    patches.set(torch.Tensor, "__dlpack_device__", __dlpack_device__)
    patches.set(torch.Tensor, "__cuda_array_interface__", property(__cuda_array_interface__))
    for method in ("_share_cuda_", "_new_shared_cuda", "_release_ipc_counter_cuda"):
        found = getattr(torch.UntypedStorage, method.replace("cuda", name), None)
        if found is None:
            why = f"{surface.stack.row.package} has no {method.replace('cuda', name)}; pass tensor.cpu()"
            found = refusing("sharing CUDA tensors between processes", why, surface.device)
            found = found if method == "_share_cuda_" else staticmethod(found)
        patches.set(torch.UntypedStorage, method, found)
