"""Packs: conformance cases as one file of bytes for a machine without torch (docs/conformance-pack.md).

    pack.write("cases.pack", cases)
    for entry in pack.read_entries("cases.pack"): print(entry.id)

Equal cases give equal bytes. Nothing is pickled. torch is needed for writing alone.
"""

from __future__ import annotations

import ctypes
import os
import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from .. import diopi
from ..output import open_whole

VERSION = 1
_MAGIC = b"DITCONF\n"
_HEADER = struct.Struct("<8sIIQQQI")
_ENTRY = struct.Struct("<QQII")
_NONE = 0xFFFFFFFF
_ROLES = {"in": 0, "out": 1, "inout": 2}
_CHECKS = {"elements": 0, "untouched": 1, "moments": 2, "permutation": 3, "selection": 4, "anything": 5, "kept": 6}
_WIDE = {"int64": 1, "uint64": 2, "float64": 3, "complex128": 4, "bool": 5}
_DTYPES = {
    "uint8": 0,
    "int8": 1,
    "int16": 2,
    "int32": 3,
    "int64": 4,
    "float16": 5,
    "float32": 6,
    "float64": 7,
    "complex32": 8,
    "complex64": 9,
    "complex128": 10,
    "bool": 11,
    "bfloat16": 15,
    "uint16": 27,
    "uint32": 28,
    "uint64": 29,
}
"""Numbers of include/dit/dtype.h."""
_ABSENT, _GIVEN, _RESULT = 0, 1, 2
_kinds = {info.name: info.kinds for info in diopi.list_functions()}


class Entry(NamedTuple):
    """A case of a pack: its number, id, function, what is expected, and its tags."""

    number: int
    id: str
    function: str
    expect: str
    tags: dict[str, str]


class PackError(ValueError):
    """A case that cannot be packed, or a file that is no pack."""


def _align(data: bytearray) -> None:
    data += bytes(-len(data) % 8)


def _string(text: str) -> bytes:
    data = text.encode()
    if len(data) > 0xFFFF or 0 in data:
        raise PackError(f"{text[:80]!r} is too long for a pack, or has a zero inside")
    return struct.pack("<H", len(data)) + data + b"\0"


def _raw_bytes(tensor: Any) -> bytes:
    """The elements of a tensor in row-major order."""
    tensor = tensor.detach().contiguous()
    return ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size()) if tensor.numel() else b""


def _name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _wide_name(dtype: Any) -> str:
    """The type in which the runner keeps values of a dtype."""
    if dtype.is_complex:
        return "complex128"
    if dtype.is_floating_point:
        return "float64"
    name = _name(dtype)
    return name if name in ("bool", "uint64") else "int64"


class _Builder:
    """The payload of one case."""

    def __init__(self, case: Any) -> None:
        self.case = case
        self.storages: list[dict[str, Any]] = []
        self.tensors: list[bytes] = []
        self.numbers: dict[int, int] = {}
        """Position of an argument with a single tensor: number of its tensor."""
        self.by_address: dict[tuple[int, bool], int] = {}
        self.layouts: dict[int, tuple[int, Any]] = {}
        """Position of an argument: its storage and its torch tensor, for aliases."""

    def fail(self, text: str) -> PackError:
        return PackError(f"{self.case.id}: {text}")

    def _storage(self, tensor: Any, role: str, on_host: bool) -> int:
        """The storage behind a tensor; tensors over the same memory share it. Memory of outputs alone has no bytes: the
        runner fills it."""
        memory = tensor.untyped_storage()
        key = (memory.data_ptr(), on_host)
        index = self.by_address.get(key) if memory.nbytes() else None
        if index is None:
            index = len(self.storages)
            self.storages.append({"memory": memory, "bytes": False, "host": on_host, "keep": tensor})
            self.by_address[key] = index
        self.storages[index]["bytes"] |= role != "out"
        return index

    def _expected(self, argument: Any, dtype: Any, role: str) -> tuple[int, bytes, int, bytes]:
        """Kind, bytes and count of the expected values, and the tolerances."""
        import torch

        expected, tolerance = argument.expected, argument.tolerance
        wide, data, count = 0, b"", 0
        if expected is not None and role != "in" and argument.check not in ("untouched", "anything", "moments"):
            name = _wide_name(expected.dtype if argument.check == "selection" else dtype)
            if (expected.dtype.is_complex and name != "complex128") or (
                expected.dtype.is_floating_point and name not in ("float64", "complex128")
            ):
                raise self.fail(f"a result of dtype {dtype} cannot be expected to be {expected.dtype}")
            wide, count = _WIDE[name], expected.numel()
            data = _raw_bytes(expected.to(getattr(torch, name)))
        limits = b"" if tolerance is None else _raw_bytes(torch.as_tensor(tolerance, dtype=torch.float64))
        return wide, data, count, limits

    def _tensor_record(
        self, argument: Any, dtype: Any, role: str, storage: int, shape: Any, strides: Any, offset: int
    ) -> int:
        wide, data, count, limits = self._expected(argument, dtype, role)
        bounds = [float(value) for value in getattr(argument, "bounds", ())]
        source = getattr(argument, "source", None)
        name = _name(dtype)
        if name not in _DTYPES:
            raise self.fail(f"DIOPI has no dtype {name}")
        if wide and count != _numel(shape):
            raise self.fail(f"{count} values are expected of a result of shape {tuple(shape)}")
        record = bytearray(
            struct.pack(
                "<BBBBBBHIiqQQ",
                _ROLES[role],
                _CHECKS[argument.check],
                _DTYPES[name],
                len(shape),
                wide,
                0,
                len(bounds),
                storage,
                -1 if source is None else source,
                offset,
                count,
                len(limits) // 8,
            )
        )
        record += struct.pack(f"<{2 * len(shape)}q{len(bounds)}d", *shape, *strides, *bounds)
        record += data
        _align(record)
        record += limits
        self.tensors.append(bytes(record))
        return len(self.tensors) - 1

    def tensor(self, argument: Any, position: int) -> int:
        """Number of the tensor behind an argument; new ones are added."""
        if argument is None:
            return _NONE
        if not hasattr(argument, "tensor"):  # a result that the library makes
            expected = argument.expected
            strides = expected.contiguous().stride()
            return self._tensor_record(argument, argument.dtype, "out", _NONE, expected.shape, strides, 0)
        tensor = argument.tensor
        on_host = getattr(argument, "on_host", False)
        alias = getattr(argument, "alias", None)
        if alias is not None:
            if alias not in self.layouts:
                raise self.fail(
                    f"argument {position} shares the memory of argument {alias}, which is no earlier tensor"
                )
            storage, other = self.layouts[alias]
            if other.shape != tensor.shape or other.dtype != tensor.dtype:
                raise self.fail(f"argument {position} shares the memory of argument {alias}, but not shape and dtype")
            tensor = other
            self.storages[storage]["bytes"] |= argument.role != "out"
        else:
            storage = self._storage(tensor, argument.role, on_host)
        self.layouts.setdefault(position, (storage, tensor))
        return self._tensor_record(
            argument, tensor.dtype, argument.role, storage, tensor.shape, tensor.stride(), tensor.storage_offset()
        )

    def _words(self, kind: str, value: Any, position: int) -> tuple[int, int, bytes]:
        """Form, count and 8-byte words of an argument."""
        if value is None:
            if kind in "ibfdrmy":
                raise self.fail(f"argument {position} of kind {kind!r} cannot be absent")
            return _ABSENT, 0, b""
        if kind in "ot" and getattr(value, "parts", None):
            numbers = [self.tensor(value, position), *(self.tensor(part, -1) for part in value.parts)]
            return _GIVEN, len(numbers), struct.pack(f"<{len(numbers)}Q", *numbers)
        if kind in "ot":
            return _GIVEN, 1, struct.pack("<Q", self.tensor(value, position))
        if kind in "OT":
            items = value if isinstance(value, (list, tuple)) else [value]
            numbers = [self.tensor(item, position) for item in items]
            return _GIVEN, len(numbers), struct.pack(f"<{len(numbers)}Q", *numbers)
        if kind in "fd":
            return _GIVEN, 1, struct.pack("<d", value)
        if kind in "ibrmy":
            return _GIVEN, 1, struct.pack("<q", int(value))
        if kind in "zZ":
            return _GIVEN, len(value), struct.pack(f"<{len(value)}q", *value)
        if kind == "s":
            return _GIVEN, 1, _scalar(value)
        if kind in "IBD":
            return self._numbers(kind, value)
        if kind == "C":
            return _GIVEN, len(value.encode()), _string(value)
        if kind in "gG":
            items = value if isinstance(value, (list, tuple)) else [value]
            return _GIVEN, len(items), b"".join(struct.pack("<QQ", item.seed, item.offset) for item in items)
        raise self.fail(f"an argument of kind {kind!r} cannot be packed")

    def _numbers(self, kind: str, value: Any) -> tuple[int, int, bytes]:
        """Numbers behind a pointer: given ones, or (with `expected`) results."""
        letter = "d" if kind == "D" else "q"
        if hasattr(value, "expected"):
            tolerance = value.tolerance or 0.0
            return _RESULT, 1, struct.pack(f"<{letter}d", value.expected, tolerance)
        items = list(value) if isinstance(value, (list, tuple)) else [value]
        return _GIVEN, len(items), struct.pack(f"<{len(items)}{letter}", *items)

    def build(self) -> bytes:
        case = self.case
        kinds = _kinds.get(case.function, "")[1:]
        if case.function not in _kinds or len(kinds) != len(case.arguments):
            raise self.fail(
                f"{case.function} takes {len(kinds)} arguments after ctx, the case has {len(case.arguments)}"
            )
        parts = self._order_arguments(kinds)
        flags = (case.expect == "error") | bool(case.deterministic) << 1 | case.no_context << 2
        tags = sorted(case.tags.items())
        out = bytearray(
            struct.pack("<IHHHH", flags, len(tags), len(self.storages), len(self.tensors), len(case.arguments))
        )
        for text in (case.id, case.function, kinds, *(part for tag in tags for part in tag)):
            out += _string(str(text))
        for storage in self.storages:
            _align(out)
            out += struct.pack("<QII", storage["memory"].nbytes(), storage["bytes"] | storage["host"] << 1, 0)
        for record in self.tensors:
            _align(out)
            out += record
        for kind, (form, count, words) in zip(kinds, parts, strict=True):
            _align(out)
            out += struct.pack("<BBHI", ord(kind), form, 0, count) + words
        for storage in self.storages:
            if storage["bytes"]:
                _align(out)
                memory = storage["memory"]
                out += ctypes.string_at(memory.data_ptr(), memory.nbytes()) if memory.nbytes() else b""
        _align(out)
        return bytes(out)

    def _order_arguments(self, kinds: str) -> list[tuple[int, int, bytes]]:
        """Arguments whose memory others share come first, so that an output may share that of a later input."""
        parts: list[Any] = [None] * len(kinds)
        values = self.case.arguments
        for late in (False, True):
            for position, kind in enumerate(kinds):
                if (getattr(values[position], "alias", None) is not None) == late:
                    parts[position] = self._words(kind, values[position], position)
        return parts


def _numel(shape: Any) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def _scalar(value: Any) -> bytes:
    """stype and value, as diopiScalar_t has them."""
    dtype, number = value if isinstance(value, (tuple, list)) else (None, value)
    if dtype is None:
        dtype = "bool" if isinstance(number, bool) else "int64" if isinstance(number, int) else "float64"
    dtype = _name(dtype)
    if dtype in ("float16", "float32", "float64", "bfloat16", "tfloat32"):
        return struct.pack("<Qd", diopi.DTYPES[dtype], number)
    return struct.pack("<Qq", diopi.DTYPES[dtype], int(number))


def encode(case: Any) -> bytes:
    """The payload of one case (case.Case)."""
    return _Builder(case).build()


def _write_payloads(path: str | os.PathLike[str], payloads: Iterable[bytes]) -> int:
    entries = []
    with open_whole(path) as handle, open(handle, "wb", closefd=False) as file:
        file.write(bytes(64))
        offset = 64
        for payload in payloads:
            file.write(payload)
            entries.append(_ENTRY.pack(offset, len(payload), zlib.crc32(payload), 0))
            offset += len(payload)
        index = b"".join(entries)
        file.write(index)
        file.seek(0)
        size = offset + len(index)
        header = _HEADER.pack(_MAGIC, VERSION, 64, len(entries), offset, size, zlib.crc32(index))
        file.write(header + struct.pack("<I", zlib.crc32(header)))
    return len(entries)


def write(path: str | os.PathLike[str], cases: Iterable[Any]) -> int:
    """Write a pack; returns the number of cases. The file appears when it is complete."""
    return _write_payloads(path, (encode(case) for case in cases))


def extract(path: str | os.PathLike[str], numbers: Iterable[int], out: str | os.PathLike[str]) -> int:
    """Write a pack of some cases of another; returns how many."""
    places = read_index(path).places
    with open(path, "rb") as file:

        def read(number: int) -> bytes:
            file.seek(places[number][0])
            return file.read(places[number][1])

        return _write_payloads(out, (read(number) for number in numbers))


class Index(NamedTuple):
    """Where the cases of a pack lie: (offset, size, checksum) each; `identity` is equal for equal packs."""

    identity: int
    places: list[tuple[int, int, int]]


def read_index(path: str | os.PathLike[str]) -> Index:
    """The index of a pack, checked."""
    with open(path, "rb") as file:
        head = file.read(64)
        size = os.fstat(file.fileno()).st_size
        if len(head) < 64 or head[:8] != _MAGIC:
            raise PackError(f"{path}: this is no conformance pack (`ditorch conform pack` writes one)")
        _, version, _, count, offset, told, checksum = _HEADER.unpack_from(head)
        (own,) = struct.unpack_from("<I", head, _HEADER.size)
        if version != VERSION:
            raise PackError(f"{path}: the pack has version {version}, this ditorch reads {VERSION}; write it again")
        if own != zlib.crc32(head[: _HEADER.size]) or told != size or offset + count * _ENTRY.size != size:
            raise PackError(f"{path}: the header is damaged, or the file was cut off")
        file.seek(offset)
        data = file.read(count * _ENTRY.size)
    if zlib.crc32(data) != checksum:
        raise PackError(f"{path}: the index is damaged (its checksum is wrong)")
    return Index(checksum, [(row[0], row[1], row[2]) for row in _ENTRY.iter_unpack(data)])


def read_entries(path: str | os.PathLike[str]) -> Iterator[Entry]:
    """Id, function and tags of every case. Payloads are not checked here: the runner does that."""
    index = read_index(path)
    with open(path, "rb") as file:
        for number, (offset, size, _) in enumerate(index.places):
            file.seek(offset)
            head = file.read(min(size, 4096))
            try:
                yield _read_entry(number, head)
            except (struct.error, UnicodeDecodeError, IndexError) as error:
                raise PackError(f"{path}: case {number} is damaged") from error


def _read_entry(number: int, head: bytes) -> Entry:
    flags, tags, _, _, _ = struct.unpack_from("<IHHHH", head)
    at = 12
    texts = []
    for _ in range(3 + 2 * tags):
        (length,) = struct.unpack_from("<H", head, at)
        text = head[at + 2 : at + 2 + length]
        if len(text) != length:
            raise IndexError
        texts.append(text.decode())
        at += 3 + length
    pairs = texts[3:]
    expect = "error" if flags & 1 else "success"
    return Entry(number, texts[0], texts[1], expect, dict(zip(pairs[::2], pairs[1::2], strict=True)))
