"""torch._C._broadcast, _scatter, _gather and kin: what torch.nn.parallel.comm, and so DataParallel, is built on."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def _device(index: int) -> torch.device:
    return torch.device("cpu") if index < 0 else torch.device("cuda", index)


def _current() -> int:
    return torch.cuda.current_device()


def broadcast(tensor: Tensor, devices: Sequence[int]) -> list[Tensor]:
    """One copy per device; the first result is the tensor itself where it already lives there."""
    return [tensor.to(_device(index), non_blocking=True) for index in devices]


def broadcast_out(tensor: Tensor, out: Sequence[Tensor]) -> Sequence[Tensor]:
    for index, target in enumerate(out):
        if not target.is_cuda:
            raise RuntimeError(
                f"Expected all output tensors to be CUDA tensors, "
                f"but output tensor at index {index} is on {target.device}"
            )
        if target.shape != tensor.shape:
            raise RuntimeError(
                f"Expected all output tensors to have same shape as the source tensor {list(tensor.shape)}, "
                f"but output tensor at index {index} has shape {list(target.shape)}"
            )
        target.copy_(tensor, non_blocking=True)
    return out


def broadcast_coalesced(tensors: Sequence[Tensor], devices: Sequence[int], buffer_size: int = 0) -> list[list[Tensor]]:
    """Host copies have no launch cost worth hiding, so nothing is packed into a buffer."""
    if tensors and devices and tensors[0].get_device() != devices[0]:
        raise RuntimeError(
            f"all tensors must be on devices[0]: tensors[0] is on {tensors[0].device}, devices[0] is cuda:{devices[0]}"
        )
    return [[tensor.to(_device(index), non_blocking=True) for tensor in tensors] for index in devices]


def _chunks(tensor: Tensor, count: int, sizes: Sequence[int] | None, dim: int) -> Sequence[Tensor]:
    if sizes is None:
        return tensor.chunk(count, dim)
    if len(sizes) != count:
        raise RuntimeError(f"Expected devices and chunk_sizes to be of same length, but got {count} and {len(sizes)}")
    if sum(sizes) != tensor.size(dim):
        raise RuntimeError(f"given chunk sizes {list(sizes)} do not sum up to the tensor's size {tensor.size(dim)}")
    return tensor.split(list(sizes), dim)


def scatter(tensor: Tensor, devices: Sequence[int], chunk_sizes=None, dim: int = 0, streams=None) -> list[Tensor]:
    """One chunk per device, each copied on its stream where one is given."""
    if not devices:
        raise RuntimeError("Expected at least one device to scatter to")
    chunks = _chunks(tensor, len(devices), chunk_sizes, dim)
    results = []
    for position, (chunk, index) in enumerate(zip(chunks, devices, strict=False)):
        stream = streams[position] if streams else None
        with torch.cuda.stream(stream):
            results.append(chunk.to(_device(index), non_blocking=True))
    return results


def scatter_out(tensor: Tensor, out: Sequence[Tensor], dim: int = 0, streams=None) -> Sequence[Tensor]:
    chunks = _chunks(tensor, len(out), [target.size(dim) for target in out], dim)
    for position, (chunk, target) in enumerate(zip(chunks, out, strict=True)):
        stream = streams[position] if streams else None
        with torch.cuda.stream(stream):
            target.copy_(chunk, non_blocking=True)
    return out


def gather(tensors: Sequence[Tensor], dim: int, destination: int | None = None) -> Tensor:
    """Concatenate on `destination`: None the current device, -1 the CPU."""
    tensors = list(tensors)
    if not tensors:
        raise RuntimeError("Expected at least one tensor to gather from")
    device = _device(_current() if destination is None else destination)
    return torch.cat([tensor.to(device) for tensor in tensors], dim)


def gather_out(tensors: Sequence[Tensor], out: Tensor, dim: int) -> Tensor:
    joined = torch.cat([tensor.to(out.device) for tensor in tensors], dim)
    if joined.shape != out.shape:
        raise RuntimeError(f"Expected out tensor to have shape {list(joined.shape)}, but got {list(out.shape)}")
    return out.copy_(joined)


def natives() -> dict[str, object]:
    """Names of torch._C supplied by this module."""
    return {
        "_broadcast": broadcast,
        "_broadcast_out": broadcast_out,
        "_broadcast_coalesced": broadcast_coalesced,
        "_scatter": scatter,
        "_scatter_out": scatter_out,
        "_gather": gather,
        "_gather_out": gather_out,
    }
