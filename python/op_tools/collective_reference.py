"""What a collective should have given: computed from what every rank says it put in.

A comparison must never make a program hang, whatever the other ranks do: some may not compare, or have stopped. So no
collective is run. Each rank that compares writes its inputs to the store of the process group *before* the collective
begins; the collective cannot end on a rank before the ranks whose data it needs have begun, so what they wrote is there
when this rank looks afterwards, without waiting. What is not there is a reason not to compare, not an error.

A call is known by its group, the group's own sequence number, the function and the number of calls since the comparison
started; all must agree, and sizes where the function wants it. Contents are raw bytes behind a JSON header and are
checked like those of a file.
"""

from __future__ import annotations

import json
import struct
from collections import deque
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

MAX_BYTES = 64 << 20
"""Of one call on one rank; larger ones are not compared."""
_KEEP_BYTES = 256 << 20
_KEEP_CALLS = 64
_CHUNK = 4 << 20  # the store refuses values of 8 MiB and more
_MAX_HEADER = 1 << 16

_INPUTS = {
    "all_reduce": "tensor",
    "reduce": "tensor",
    "broadcast": "tensor",
    "all_gather": "tensor",
    "all_gather_into_tensor": "input_tensor",
    "all_gather_single": "input_tensor",
    "gather": "tensor",
    "scatter": "scatter_list",
    "reduce_scatter": "input_list",
    "reduce_scatter_tensor": "input",
    "reduce_scatter_single": "input",
    "all_to_all": "input_tensor_list",
    "all_to_all_single": "input",
}
"""The argument that other ranks need."""

_counts: dict[str, int] = {}  # calls of a group since the comparison started
_kept: deque[tuple[list[str], int]] = deque()
_store: tuple[Any, Any] | None = None  # of the process group, and our connection to it
_DTYPES = {str(value)[6:]: value for value in vars(torch).values() if isinstance(value, torch.dtype)}


class Incomparable(RuntimeError):
    """Why a call cannot be compared."""


class Reference:
    """Of one call on this rank."""

    def __init__(self, name: str, reason: str = ""):
        self.name, self.reason = name, reason
        self.group = self.ranks = self.me = self.header = None
        self.key = ""

    def compute(self, argument: Callable[..., Any]) -> None:
        """Write to the target what should be there, in its dtype; `argument(name)` gives the copies to work on."""
        if self.reason:
            raise Incomparable(self.reason)
        _COMPUTE[self.name](self, argument)

    # What others put in

    def read(self, rank: int) -> list[torch.Tensor]:
        """The inputs of a rank of the group, by its number in the group."""
        try:
            return self._read(rank)
        except (RuntimeError, ValueError, KeyError, TypeError, struct.error) as error:
            if isinstance(error, Incomparable):
                raise
            raise Incomparable(f"what rank {self.ranks[rank]} wrote cannot be read: {error}") from None

    def _read(self, rank: int) -> list[torch.Tensor]:
        store, key = _get_store(), f"{self.key}/{rank}"
        if not store.check([f"{key}/0"]):
            raise Incomparable(f"rank {self.ranks[rank]} does not compare this call")
        data = store.get(f"{key}/0")
        size = struct.unpack_from("<I", data)[0]
        if size > _MAX_HEADER or size + 4 > len(data):
            raise ValueError(f"a header of {size} bytes")
        header = json.loads(data[4 : 4 + size])
        theirs = {name: header[name] for name in ("function", "count")}
        mine = {name: self.header[name] for name in theirs}
        if theirs != mine:
            raise Incomparable(f"rank {self.ranks[rank]} is at another call: {theirs} there, {mine} here")
        if header.get("reason"):
            raise Incomparable(f"rank {self.ranks[rank]}: {header['reason']}")
        parts = [data[4 + size :]]
        for chunk in range(1, int(header["chunks"])):
            if not store.check([f"{key}/{chunk}"]):
                raise Incomparable(f"what rank {self.ranks[rank]} wrote is gone already")
            parts.append(store.get(f"{key}/{chunk}"))
        return _decode(header, b"".join(parts))

    def read_all(self, own: list[torch.Tensor]) -> list[list[torch.Tensor]]:
        """The inputs of all ranks; this one's as they are."""
        return [own if rank == self.me else self.read(rank) for rank in range(len(self.ranks))]


# Before the call


def publish(name: str, argument: Callable[..., Any]) -> Reference | None:
    """Write this rank's inputs for the others. None when this rank has no result to compute. Never raises: what went
    wrong is the reason not to compare."""
    if name not in _INPUTS:
        return None
    reference = Reference(name)
    try:
        _publish(reference, argument)
    except Incomparable as unknown:
        reference.reason = str(unknown)
    except Exception as error:  # a store that is gone must not stop a training
        reference.reason = f"the inputs could not be given to the other ranks: {error}"
    if name in ("reduce", "gather") and not reference.reason and _get_root(reference, argument, "dst") != reference.me:
        return None
    return reference


def reset() -> None:
    """A comparison starts: calls are counted from here."""
    _counts.clear()


def _publish(reference: Reference, argument: Callable[..., Any]) -> None:
    group = argument("group") or dist.group.WORLD
    if group is None or group is dist.GroupMember.NON_GROUP_MEMBER or dist.get_rank(group) < 0:
        raise Incomparable("this rank is not in the group")
    reference.group, reference.me = group, dist.get_rank(group)
    reference.ranks = dist.get_process_group_ranks(group)
    label = dist.distributed_c10d._get_process_group_name(group)
    count = _counts[label] = _counts.get(label, -1) + 1
    sequence = group._get_sequence_number_for_group()
    reference.key = f"ditorch.compare/{label}/{sequence}"
    inputs = argument(_INPUTS[reference.name])
    tensors = list(inputs) if isinstance(inputs, (list, tuple)) else [] if inputs is None else [inputs]
    reference.header = {"function": reference.name, "count": count}
    if reference.name == "all_to_all_single":
        reference.header["splits"] = list(argument("input_split_sizes") or [])
    header, data = _encode(reference.header, tensors)
    _write(f"{reference.key}/{reference.me}", header, data)
    if header.get("reason"):
        raise Incomparable(header["reason"])


def _encode(header: dict[str, Any], tensors: list[torch.Tensor]) -> tuple[dict[str, Any], bytes]:
    """Header and bytes; a header with a reason, and no bytes, when it cannot be."""
    header = {**header, "tensors": [[str(tensor.dtype)[6:], list(tensor.shape)] for tensor in tensors]}
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    if size > MAX_BYTES:
        return {**header, "reason": f"{size:,} bytes are more than the {MAX_BYTES:,} that are compared"}, b""
    if any(tensor.layout is not torch.strided or tensor.is_quantized for tensor in tensors):
        return {**header, "reason": "sparse and quantized tensors are not compared"}, b""
    parts = [tensor.detach().resolve_conj().resolve_neg().cpu().contiguous() for tensor in tensors]
    return header, b"".join(bytes(part.reshape(-1).view(torch.uint8).numpy()) for part in parts if part.numel())


def _decode(header: dict[str, Any], data: bytes) -> list[torch.Tensor]:
    tensors, at = [], 0
    for dtype_name, shape in header["tensors"]:
        dtype = _DTYPES[dtype_name]
        numel = 1
        for length in shape:
            if not isinstance(length, int) or length < 0:
                raise ValueError(f"a shape of {shape}")
            numel *= length
        size = numel * dtype.itemsize
        if size > len(data) - at:
            raise ValueError(f"{len(data)} bytes for tensors of more")
        flat = torch.frombuffer(bytearray(data[at : at + size]), dtype=dtype) if size else torch.empty(0, dtype=dtype)
        tensors.append(flat.reshape(shape))
        at += size
    return tensors


def _write(key: str, header: dict[str, Any], data: bytes) -> None:
    store = _get_store()
    header = {**header, "chunks": 1 + (len(data) + _CHUNK - 1) // _CHUNK}
    text = json.dumps(header).encode()
    if len(text) > _MAX_HEADER:
        raise Incomparable(f"{len(header['tensors']):,} tensors are more than are compared")
    keys = [f"{key}/{chunk}" for chunk in range(header["chunks"])]
    for chunk in range(1, header["chunks"]):
        store.set(keys[chunk], data[(chunk - 1) * _CHUNK : chunk * _CHUNK])
    store.set(keys[0], struct.pack("<I", len(text)) + text)  # last: whoever sees it finds the rest
    store.check([keys[0]])  # set() does not wait for the server; the answer to this does
    _kept.append((keys, len(data)))
    while len(_kept) > _KEEP_CALLS or sum(size for _, size in _kept) > _KEEP_BYTES:
        for old in _kept.popleft()[0]:
            store.delete_key(old)


def _get_store() -> Any:
    """Our own connection: another thread may wait in the program's."""
    global _store
    base = dist.distributed_c10d._get_default_store()
    if _store is None or _store[0] is not base:
        _counts.clear()
        _kept.clear()
        try:
            _store = base, base.clone()
        except (AttributeError, RuntimeError, NotImplementedError):
            _store = base, base
    return _store[1]


# After the call: one function per collective


def _reduce(tensors: list[torch.Tensor], op: Any, dtype: torch.dtype) -> torch.Tensor:
    """In `dtype`, in the order of the ranks."""
    kinds = dist.ReduceOp
    wide = [tensor.to(dtype) for tensor in tensors]
    total = wide[0].clone()
    functions = {
        kinds.SUM: torch.add,
        kinds.AVG: torch.add,
        kinds.PRODUCT: torch.mul,
        kinds.MIN: torch.minimum,
        kinds.MAX: torch.maximum,
        kinds.BAND: torch.bitwise_and,
        kinds.BOR: torch.bitwise_or,
        kinds.BXOR: torch.bitwise_xor,
    }
    function = next((function for kind, function in functions.items() if op == kind), None)
    if function is None:
        raise Incomparable(f"{op} is not compared")
    for tensor in wide[1:]:
        function(total, tensor, out=total)
    return total / len(wide) if op == kinds.AVG else total


def _check_alike(tensors: list[torch.Tensor], shape: Any) -> None:
    if any(tensor.numel() != shape.numel() for tensor in tensors):
        raise Incomparable("the ranks have tensors of different sizes")


def _all_reduce(reference: Reference, argument: Callable[..., Any]) -> None:
    tensor = argument("tensor")
    inputs = [tensors[0] for tensors in reference.read_all([tensor])]
    _check_alike(inputs, tensor.shape)
    tensor.copy_(_reduce([each.reshape(tensor.shape) for each in inputs], _get_op(argument), tensor.dtype))


def _get_op(argument: Callable[..., Any]) -> Any:
    return argument("op", dist.ReduceOp.SUM)


def _get_root(reference: Reference, argument: Callable[..., Any], name: str) -> int:
    """The number in the group of `src` or `dst` (a global rank) or of `group_src` or `group_dst`."""
    number = argument(f"group_{name}")
    if number is None:
        rank = argument(name)
        number = 0 if rank is None else reference.ranks.index(rank)
    return number


def _broadcast(reference: Reference, argument: Callable[..., Any]) -> None:
    root = _get_root(reference, argument, "src")
    if root != reference.me:
        argument("tensor").copy_(reference.read(root)[0])


def _all_gather(reference: Reference, argument: Callable[..., Any]) -> None:
    inputs = reference.read_all([argument("tensor")])
    for target, tensors in zip(argument("tensor_list"), inputs, strict=True):
        target.copy_(tensors[0])


def _all_gather_single(reference: Reference, argument: Callable[..., Any]) -> None:
    output = argument("output_tensor")
    inputs = [tensors[0] for tensors in reference.read_all([argument("input_tensor")])]
    _check_alike(inputs, argument("input_tensor").shape)
    output.copy_(torch.cat([each.reshape(-1).to(output.dtype) for each in inputs]).reshape(output.shape))


def _gather(reference: Reference, argument: Callable[..., Any]) -> None:
    for target, tensors in zip(argument("gather_list"), reference.read_all([argument("tensor")]), strict=True):
        target.copy_(tensors[0])


def _scatter(reference: Reference, argument: Callable[..., Any]) -> None:
    root = _get_root(reference, argument, "src")
    inputs = argument("scatter_list") if root == reference.me else reference.read(root)
    argument("tensor").copy_(inputs[reference.me])


def _reduce_scatter(reference: Reference, argument: Callable[..., Any]) -> None:
    output = argument("output")
    inputs = [tensors[reference.me] for tensors in reference.read_all(argument("input_list"))]
    _check_alike(inputs, output.shape)
    output.copy_(_reduce([each.reshape(output.shape) for each in inputs], _get_op(argument), output.dtype))


def _reduce_scatter_single(reference: Reference, argument: Callable[..., Any]) -> None:
    output = argument("output")
    count = output.numel()
    inputs = [tensors[0].reshape(-1) for tensors in reference.read_all([argument("input")])]
    if any(each.numel() != count * len(reference.ranks) for each in inputs):
        raise Incomparable("the ranks have tensors of different sizes")
    mine = [each[reference.me * count : (reference.me + 1) * count].reshape(output.shape) for each in inputs]
    output.copy_(_reduce(mine, _get_op(argument), output.dtype))


def _all_to_all(reference: Reference, argument: Callable[..., Any]) -> None:
    inputs = reference.read_all(argument("input_tensor_list"))
    for target, tensors in zip(argument("output_tensor_list"), inputs, strict=True):
        target.copy_(tensors[reference.me])


def _all_to_all_single(reference: Reference, argument: Callable[..., Any]) -> None:
    if argument("input_split_sizes") or argument("output_split_sizes"):
        raise Incomparable("all_to_all_single with split sizes is not compared")
    output, world = argument("output"), len(reference.ranks)
    inputs = [tensors[0] for tensors in reference.read_all([argument("input")])]
    parts = [each.reshape(world, -1)[reference.me] for each in inputs]
    output.copy_(torch.cat([part.to(output.dtype) for part in parts]).reshape(output.shape))


_COMPUTE = {
    "all_reduce": _all_reduce,
    "reduce": _all_reduce,
    "broadcast": _broadcast,
    "all_gather": _all_gather,
    "all_gather_into_tensor": _all_gather_single,
    "all_gather_single": _all_gather_single,
    "gather": _gather,
    "scatter": _scatter,
    "reduce_scatter": _reduce_scatter,
    "reduce_scatter_tensor": _reduce_scatter_single,
    "reduce_scatter_single": _reduce_scatter_single,
    "all_to_all": _all_to_all,
    "all_to_all_single": _all_to_all_single,
}
