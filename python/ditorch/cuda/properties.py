"""torch.cuda.get_device_properties: the attributes of torch's own object, filled from the vendor's answer."""

from __future__ import annotations

import functools
import uuid
from typing import Any

from .. import _C, visible


class _CUuuid:
    """As torch._C._CUuuid: sixteen bytes, and a text."""

    def __init__(self, text: str):
        self._value = uuid.UUID(text)

    @classmethod
    def from_vendor(cls, text: str, index: int) -> _CUuuid:
        """A vendor may not know the UUID of a device: then it is zeros and the index."""
        return cls(text or str(uuid.UUID(int=index)))

    @property
    def bytes(self) -> list[int]:
        """The numbers of its bytes."""
        return list(self._value.bytes)

    def __str__(self) -> str:
        return str(self._value)

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _CUuuid) and self._value == other._value

    def __hash__(self) -> int:
        return hash(self._value)


class _CudaDeviceProperties:
    """Same attribute names as torch._C._CudaDeviceProperties."""

    def __init__(self, index: int):
        raw = _C.device_properties(index)
        ordinal = visible.ordinals[index] if index < len(visible.ordinals) else index
        self.name: str = raw["name"]
        self.major: int = raw["major"]
        self.minor: int = raw["minor"]
        self.total_memory: int = raw["total_memory"]
        self.multi_processor_count: int = raw["multi_processor_count"]
        self.warp_size: int = raw["warp_size"]
        self.max_threads_per_multi_processor: int = raw["max_threads_per_multi_processor"]
        self.max_threads_per_block: int = raw["max_threads_per_block"]
        self.regs_per_multiprocessor: int = raw["regs_per_multiprocessor"]
        self.shared_memory_per_block: int = raw["shared_memory_per_block"]
        self.shared_memory_per_block_optin: int = raw["shared_memory_per_multiprocessor"]
        self.shared_memory_per_multiprocessor: int = raw["shared_memory_per_multiprocessor"]
        self.L2_cache_size: int = raw["l2_cache_size"]
        self.clock_rate: int = raw["clock_rate_khz"]
        self.memory_clock_rate: int = raw["memory_clock_rate_khz"]
        self.memory_bus_width: int = raw["memory_bus_width"]
        self.pci_domain_id: int = raw["pci_domain"]
        self.pci_bus_id: int = ordinal
        self.pci_device_id: int = raw["pci_device"]
        text = visible.make_uuid(ordinal) if raw["vendor"] == "host" else raw["uuid"]
        self.uuid: _CUuuid = _CUuuid.from_vendor(text, index)
        self.is_integrated: int = int(raw["integrated"])
        self.is_multi_gpu_board: int = 0
        self.gcnArchName: str = raw["architecture"]

    def __repr__(self) -> str:
        return (
            f"_CudaDeviceProperties(name='{self.name}', major={self.major}, minor={self.minor}, "
            f"total_memory={self.total_memory // (1 << 20)}MB, multi_processor_count={self.multi_processor_count}, "
            f"uuid={self.uuid}, pci_bus_id={self.pci_bus_id}, pci_device_id={self.pci_device_id}, "
            f"pci_domain_id={self.pci_domain_id}, L2_cache_size={self.L2_cache_size // (1 << 20)}MB)"
        )

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__:
            raise AttributeError(f"property '{name}' of '_CudaDeviceProperties' object has no setter")
        super().__setattr__(name, value)


@functools.cache
def get_device_properties(index: int) -> _CudaDeviceProperties:
    """The properties of one device; asked once, they do not change."""
    return _CudaDeviceProperties(index)
