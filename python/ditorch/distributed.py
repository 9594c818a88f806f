"""Process groups of the device: init_process_group("nccl") on the embedded device.

torch makes its nccl backend by name: `ProcessGroupNCCL(store, rank, size, options)`. A torch without CUDA has no such
class. The one below makes the adapter's backend (adapter/torch/ProcessGroupNccl.cpp), which reaches Python as a plain
`torch._C._distributed_c10d.Backend`; the class is what isinstance and `.Options` need. Names that torch calls on
NCCL backends alone are added to `Backend`, where they answer for these backends only.
"""

from __future__ import annotations

import copy
import functools
import zlib
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch

from .cuda.streams import DEVICE_NAMES
from .library import call_unseen
from .patches import Patches
from .refusal import refusing

NAME = "nccl"
VERSION = (2, 21, 5)
"""What torch.cuda.nccl.version() says: new enough for all that is done here."""
DEFAULT_TIMEOUT = timedelta(minutes=10)
"""As torch's C++ has it for NCCL."""


def install(patches: Patches) -> None:
    """Give torch.distributed an nccl backend. Without torch.distributed, or without gloo in it, there is none."""
    patches.set(torch.cuda.nccl, "version", lambda: VERSION)
    dist = torch.distributed
    if not dist.is_available() or not dist.is_gloo_available():
        return
    module = dist.distributed_c10d
    binding = torch._C._distributed_c10d
    kind = _make_class(binding)
    for owner in (module, dist, binding):
        patches.set(owner, "ProcessGroupNCCL", kind)
    patches.set(module, "_NCCL_AVAILABLE", True)
    for owner in (module, dist.constants):
        patches.set(owner, "default_pg_nccl_timeout", DEFAULT_TIMEOUT)
    patches.set(binding, "_hash_tensors", _hash_tensors)
    patches.set(binding.Backend.Options, "__deepcopy__", _copy_options)
    for name, value in _BACKEND_NAMES.items():
        patches.set(binding.Backend, name, value)
    _patch_split(patches, binding, kind)
    _patch_gloo(patches, binding)
    _patch_synchronize(patches)


# The class


class Config:
    """ncclConfig_t: every field may be set and read; none has a meaning here."""

    def __init__(self, **fields: Any):
        self.__dict__.update(
            {"blocking": 1, "cga_cluster_size": 0, "min_ctas": 1, "max_ctas": 32, "net_name": "", "split_share": 0}
        )
        self.__dict__.update(fields)


def _make_class(binding: Any) -> type:
    """torch.distributed.ProcessGroupNCCL."""
    base = binding.Backend

    class Options(base.Options):
        """torch.distributed.ProcessGroupNCCL.Options: the timeout counts, the rest is kept."""

        def __init__(self, is_high_priority_stream: bool = False, timeout: timedelta = DEFAULT_TIMEOUT):
            super().__init__(NAME, timeout)
            self.is_high_priority_stream = is_high_priority_stream
            self.config = Config()
            self.split_from = None
            self.split_color = 0

        def __deepcopy__(self, memo: dict) -> Options:
            other = Options(self.is_high_priority_stream, self._timeout)
            other.config = copy.deepcopy(self.config, memo)
            other.global_ranks_in_group = self.global_ranks_in_group
            other.group_name = self.group_name
            return other

        __copy__ = __deepcopy__

    class Meta(type):
        def __call__(cls, store: Any, rank: int, size: int, options: Any = None) -> Any:
            return _make_backend(binding, store, rank, size, options or Options())

        def __instancecheck__(cls, value: Any) -> bool:
            return _is_ours(value)

    return Meta(
        "ProcessGroupNCCL",
        (),
        {
            "__doc__": "The nccl backend of the ditorch device: collectives on device memory, carried by gloo.",
            "__module__": "torch.distributed.distributed_c10d",
            "Options": Options,
            "NCCLConfig": Config,
            "NCCL_CTA_POLICY_DEFAULT": 0,
            "NCCL_CTA_POLICY_EFFICIENCY": 1,
            "NCCL_CTA_POLICY_ZERO": 2,
        },
    )


def _make_backend(binding: Any, store: Any, rank: int, size: int, options: Any) -> Any:
    store = _renew(store, rank)
    _check_world(store, rank, size)
    gloo = binding.ProcessGroupGloo(store, rank, size, timeout=options._timeout)
    gloo.options.global_ranks_in_group = options.global_ranks_in_group
    gloo.options.group_name = options.group_name
    backend, number = _wrap(binding, gloo, store, NAME, options._timeout)
    for gone in _options.keys() - set(torch.ops.ditorch.nccl_list()):
        del _options[gone]
    _options[number] = options
    return backend


def _wrap(binding: Any, gloo: Any, store: Any, name: str, timeout: timedelta) -> tuple[Any, int]:
    """The adapter's backend over `gloo`, and its id. A process group carries them into C++ and back."""
    global _used
    _used = True
    carrier = binding.ProcessGroup(store, gloo.rank(), gloo.size())
    carrier._register_backend(torch.device("cpu"), binding.ProcessGroup.BackendType.GLOO, gloo)
    torch.ops.ditorch.nccl_add(carrier.boxed(), name, round(timeout.total_seconds() * 1000))
    return carrier._get_backend(torch.device("dit")), torch.ops.ditorch.nccl_id(carrier.boxed())


def _renew(store: Any, rank: int) -> Any:
    """Part of the store for this life of the group. torchrun's store outlives destroy_process_group, and a group that
    is made again must not read the addresses of the one before; all its ranks have made it equally often."""
    return torch.distributed.PrefixStore(f"life{store.add(f'ditorch/{rank}', 1)}/", store)


def _check_world(store: Any, rank: int, size: int) -> None:
    """Ranks that were started with different world sizes would wait for each other until the timeout."""
    store.set(f"size/{rank}", str(size))
    for other in range(size) if rank == 0 else (0,):
        given = int(store.get(f"size/{other}"))
        if given != size:
            raise RuntimeError(
                f"world size mismatch: rank {rank} was started with world size {size}, rank {other} with {given}; "
                "give every process the same WORLD_SIZE (or world_size=)"
            )


# What torch asks of NCCL backends alone

_used = False
"""There was a group in this process."""
_options: dict[int, Any] = {}
"""Options by the backend's id, of the backends that are alive."""


def _is_ours(value: Any) -> bool:
    return type(value) is torch._C._distributed_c10d.Backend and value.name() == NAME


def _get_id(backend: Any) -> int:
    binding = torch._C._distributed_c10d
    carrier = binding.ProcessGroup(backend.rank(), backend.size())
    carrier._register_backend(torch.device("dit"), binding.ProcessGroup.BackendType.NCCL, backend)
    return torch.ops.ditorch.nccl_id(carrier.boxed())


class _OfNccl:
    """An attribute that only these backends have."""

    def __init__(self, function: Callable[..., Any], is_value: bool = False):
        self._function, self._is_value = function, is_value
        self.__doc__ = function.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, backend: Any, owner: type) -> Any:
        if backend is None:
            return self
        if not _is_ours(backend):
            raise AttributeError(f"{type(backend).__name__!r} object has no attribute {self._name!r}")
        return self._function(backend) if self._is_value else functools.partial(self._function, backend)


def _get_options(backend: Any) -> Any:
    """ProcessGroupNCCL.Options as given."""
    return _options[_get_id(backend)]


def _set_timeout(backend: Any, timeout: timedelta) -> None:
    """For what is started from now on."""
    backend.set_timeout(timeout)
    _get_options(backend)._timeout = timeout


def _copy_options(options: Any, memo: dict) -> Any:
    """split_group copies the parent's options, which a wrapped backend (see _unwrap) gives without ours around them."""
    kind = torch._C._distributed_c10d.Backend.Options
    if type(options) is not kind:
        raise TypeError(f"cannot copy {type(options).__name__!r} object")
    other = kind(options.backend, options._timeout)
    other.global_ranks_in_group, other.group_name = options.global_ranks_in_group, options.group_name
    return other


def _hash_tensors(tensors: list[torch.Tensor]) -> int:
    """For what TORCH_DISTRIBUTED_DEBUG=DETAIL logs about objects."""
    value = 0
    for tensor in tensors:
        value = zlib.crc32(bytes(tensor.detach().cpu().contiguous().view(torch.uint8).flatten().tolist()), value)
    return value


def _do_nothing(backend: Any, *args: Any) -> None:
    """NCCL's own bookkeeping: communicator groups and splits, which gloo does not have."""


_MEMORY_POOL = "collectives need no memory of their own here; leave the pool out"

_BACKEND_NAMES = {
    "options": _OfNccl(_get_options, is_value=True),
    "uid": _OfNccl(_get_id, is_value=True),
    "_set_default_timeout": _OfNccl(_set_timeout),
    "_add_ephemeral_timeout": _OfNccl(_do_nothing),
    "_group_start": _OfNccl(_do_nothing),
    "_group_end": _OfNccl(_do_nothing),
    "perform_nocolor_split": _OfNccl(_do_nothing),
    "comm_split_count": _OfNccl(lambda backend: 0),
    "_is_initialized": _OfNccl(lambda backend: True),
    "register_mem_pool": _OfNccl(refusing("ProcessGroupNCCL.register_mem_pool", _MEMORY_POOL)),
    "deregister_mem_pool": _OfNccl(refusing("ProcessGroupNCCL.deregister_mem_pool", _MEMORY_POOL)),
}
for _name, _value in _BACKEND_NAMES.items():
    _value.__set_name__(object, _name)


def _unwrap(binding: Any, backend: Any) -> Any:
    """TORCH_DISTRIBUTED_DEBUG=DETAIL wraps backends."""
    while isinstance(backend, binding._ProcessGroupWrapper):
        backend = backend.wrapped_pg
    return backend


def _patch_split(patches: Patches, binding: Any, kind: Any) -> None:
    """ProcessGroup.split_group: torch's asks the backend for a split, which would need gloo's C++ headers."""
    native = binding.ProcessGroup.split_group

    def split_group(
        self: Any, ranks: Any, timeout: Any = None, opts: Any = None, group_name: Any = None, group_desc: Any = None,
        **rest: Any,
    ) -> Any:  # fmt: skip
        devices = rest.get("device_types") or self._device_types
        backends = {device: _unwrap(binding, self._get_backend(device)) for device in devices}
        if not any(_is_ours(backend) for backend in backends.values()):
            return native(self, ranks, timeout, opts, group_name, group_desc, **rest)
        if self.rank() not in ranks:
            return None
        name = group_name or f"{self.group_name}:split:{','.join(map(str, ranks))}"
        store = torch.distributed.PrefixStore(f"{name}/", self.get_group_store())
        group = binding.ProcessGroup(store, ranks.index(self.rank()), len(ranks))
        for device, backend in backends.items():
            _split_backend(binding, kind, group, device, backend, ranks, timeout, name)
        group._set_default_backend(binding.ProcessGroup.BackendType.NCCL)
        group._set_group_name(name)
        group._set_group_desc(group_desc or "undefined")
        return group

    patches.set(binding.ProcessGroup, "split_group", split_group)


def _split_backend(
    binding: Any, kind: Any, group: Any, device: Any, backend: Any, ranks: list[int], timeout: Any, name: str
) -> None:
    ours = _is_ours(backend)
    if not ours and not isinstance(backend, binding.ProcessGroupGloo):
        raise RuntimeError(
            f"split_group: the backend {backend.name()!r} of {device} cannot be split; valid: nccl, gloo"
        )
    parents = list(backend.options.global_ranks_in_group) or list(range(backend.size()))
    options = copy.deepcopy(backend.options) if ours else None
    store = torch.distributed.PrefixStore(f"{device.type}/", group.get_group_store())
    if ours:
        options._timeout = timeout or options._timeout
        options.global_ranks_in_group = [parents[rank] for rank in ranks]
        options.group_name = name
        part = kind(store, group.rank(), group.size(), options)
    else:
        part = binding.ProcessGroupGloo(store, group.rank(), group.size(), timeout=timeout or backend.options._timeout)
        part.options.global_ranks_in_group = [parents[rank] for rank in ranks]
        part.options.group_name = name
    backend_type = binding.ProcessGroup.BackendType
    group._register_backend(device, backend_type.NCCL if ours else backend_type.GLOO, part)


def _patch_gloo(patches: Patches, binding: Any) -> None:
    """ProcessGroup._register_backend: gloo takes CUDA tensors too, but it does not know this device. It gets a second
    gloo of its own behind the adapter's backend: in the first one, the program's calls with CPU tensors would mix."""
    native = binding.ProcessGroup._register_backend

    def register_backend(self: Any, device: Any, backend_type: Any, backend: Any = None) -> None:
        real = _unwrap(binding, backend)
        if torch.device(device).type in DEVICE_NAMES and isinstance(real, binding.ProcessGroupGloo):
            store = _renew(torch.distributed.PrefixStore("ditorch/device/", self.get_group_store()), real.rank())
            own = binding.ProcessGroupGloo(store, real.rank(), real.size(), timeout=real.options._timeout)
            backend, _ = _wrap(binding, own, store, "gloo", real.options._timeout)
            backend_type = binding.ProcessGroup.BackendType.CUSTOM
        native(self, device, backend_type, backend)

    patches.set(binding.ProcessGroup, "_register_backend", register_backend)


def _patch_synchronize(patches: Patches) -> None:
    """torch.cuda.synchronize waits for collectives too, as it does where they run on a stream of the device."""
    native = torch._C._cuda_synchronize

    def synchronize() -> None:
        native()
        if _used:
            call_unseen(torch.ops.ditorch.nccl_drain)

    patches.set(torch._C, "_cuda_synchronize", synchronize)
