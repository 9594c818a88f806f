"""Named tensors of a checkpoint, read without executing anything: safetensors, files of torch.save, sharded ones.

`open_weights` gives a mapping of names to functions that make the tensor; files are mapped, so that one tensor at a
time is in memory. What is not right in a file is a WeightsError that names it. Depends on the reader of captured calls.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from typing import Any

import torch

from ..reader import torch_file
from ..reader.limits import CaseError, Limits, one_line

SUFFIXES = (".safetensors", ".pt", ".pth", ".bin", ".ckpt")
INDEX = ".index.json"
MOST_HEADER = 100_000_000
"""Bytes of a safetensors header, as in the format's own library."""
MOST_INDEX = 256 << 20
DTYPES = {
    **{"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16},
    **{"I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8},
    **{"BOOL": torch.bool, "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2, "C64": torch.complex64},
    **{name: getattr(torch, kind) for name, kind in (("U16", "uint16"), ("U32", "uint32"), ("U64", "uint64"))},
}
Make = Callable[[], torch.Tensor]


class WeightsError(ValueError):
    """A file that is no checkpoint, or a broken one."""


class Weights:
    """`tensors`: name -> function; `values`: numbers and texts that stand beside them (torch files)."""

    def __init__(self) -> None:
        self.tensors: dict[str, Make] = {}
        self.values: dict[str, Any] = {}

    def add(self, name: str, make: Make, path: str) -> None:
        if name in self.tensors:
            raise WeightsError(f"{path}: tensor {one_line(name)!r} is there twice")
        self.tensors[name] = make


def find(path: str) -> list[str]:
    """The files of a checkpoint; empty when `path` is none."""
    if os.path.isfile(path):
        return [path] if path.endswith((*SUFFIXES, INDEX)) else []
    if not os.path.isdir(path):
        return []
    names = sorted(os.listdir(path))
    for wanted in (INDEX, *SUFFIXES):
        found = [os.path.join(path, name) for name in names if name.endswith(wanted)]
        if wanted == INDEX:
            found = found[:1] if len(found) == 1 else [name for name in found if "safetensors" in name][:1]
        if found:
            return found
    return []


def open_weights(path: str) -> Weights:
    """Every tensor of a file, of the files that an index names, or of a folder."""
    weights = Weights()
    for file in find(path):
        if file.endswith(INDEX):
            _take_index(weights, file)
        else:
            _take_file(weights, file)
    return weights


def _take_file(weights: Weights, path: str, wanted: set[str] | None = None) -> None:
    try:
        if path.endswith(".safetensors"):
            _take_safetensors(weights, path, wanted)
        else:
            _take_torch(weights, path, wanted)
    except CaseError as error:
        raise WeightsError(str(error)) from None
    except OSError as error:
        raise WeightsError(f"{path}: cannot be read: {error.strerror or error}") from None


# safetensors


def _refuse_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is there twice")
    return found


def _read_header(data: memoryview, path: str) -> tuple[dict[str, Any], int]:
    """The header and the place where the tensors begin."""
    if len(data) < 8:
        raise WeightsError(f"{path}: {len(data)} bytes are too few for safetensors")
    (size,) = struct.unpack_from("<Q", data)
    if size > MOST_HEADER:
        raise WeightsError(f"{path}: a header of {size} bytes; at most {MOST_HEADER} are read. Is it safetensors?")
    if 8 + size > len(data):
        raise WeightsError(f"{path}: the header says {size} bytes and the file has {len(data)}: it is cut off")
    try:
        header = json.loads(bytes(data[8 : 8 + size]).decode("utf-8"), object_pairs_hook=_refuse_twice)
    except (ValueError, RecursionError) as error:
        raise WeightsError(f"{path}: its header is no JSON: {one_line(error)}") from None
    if not isinstance(header, dict):
        raise WeightsError(f"{path}: its header is no JSON object")
    header.pop("__metadata__", None)
    return header, 8 + size


def _check_entry(name: str, entry: Any, room: int, path: str) -> tuple[torch.dtype, list[int], int, int]:
    def refuse(why: str) -> WeightsError:
        return WeightsError(f"{path}: tensor {one_line(name)!r}: {why}")

    def whole(values: Any) -> bool:
        return isinstance(values, list) and all(type(value) is int and 0 <= value < 1 << 62 for value in values)

    if not isinstance(entry, dict):
        raise refuse("its entry is no object")
    dtype = DTYPES.get(entry.get("dtype")) if isinstance(entry.get("dtype"), str) else None
    if dtype is None:
        raise refuse(f"dtype {one_line(entry.get('dtype'))} is not known; valid: {', '.join(DTYPES)}")
    shape, offsets = entry.get("shape"), entry.get("data_offsets")
    if not whole(shape) or len(shape) > 64:
        raise refuse(f"shape {one_line(shape)} is none")
    if not whole(offsets) or len(offsets) != 2 or not offsets[0] <= offsets[1] <= room:
        raise refuse(f"data_offsets {one_line(offsets)} do not lie within {room} bytes")
    numel = 1
    for extent in shape:
        numel *= extent
    if numel * dtype.itemsize != offsets[1] - offsets[0]:
        raise refuse(f"{one_line(shape)} of {entry['dtype']} are not {offsets[1] - offsets[0]} bytes")
    return dtype, shape, offsets[0], offsets[1]


def _take_safetensors(weights: Weights, path: str, wanted: set[str] | None) -> None:
    data = torch_file.open_bytes(path, Limits())
    header, base = _read_header(data, path)
    entries = {name: _check_entry(name, entry, len(data) - base, path) for name, entry in header.items()}
    end = 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1][2:]):
        if entry[2] != end:
            raise WeightsError(f"{path}: tensor {one_line(name)!r} begins at {entry[2]}, not at {end}: overlap or gap")
        end = entry[3]
    if base + end != len(data):
        raise WeightsError(f"{path}: {len(data) - base - end} bytes behind the last tensor")
    for name, entry in entries.items():
        if wanted is None or name in wanted:
            weights.add(name, _make_tensor(data, base, *entry), path)


def _make_tensor(data: memoryview, base: int, dtype: torch.dtype, shape: list[int], begin: int, end: int) -> Make:
    def make() -> torch.Tensor:
        part = data[base + begin : base + end]
        if not len(part):
            return torch.empty(shape, dtype=dtype)
        if (base + begin) % dtype.itemsize:
            part = memoryview(bytearray(part))
        if dtype == torch.bool:
            return (torch.frombuffer(part, dtype=torch.uint8) != 0).reshape(shape)
        return torch.frombuffer(part, dtype=dtype).reshape(shape)

    return make


# Files of torch.save


def _take_torch(weights: Weights, path: str, wanted: set[str] | None) -> None:
    value = torch_file.load(path, Limits())
    todo: list[tuple[str, Any]] = [("", value)]
    while todo:
        name, item = todo.pop()
        if isinstance(item, torch.Tensor):
            if wanted is None or name in wanted:
                weights.add(name or "tensor", lambda tensor=item: tensor.detach(), path)
        elif isinstance(item, dict):
            todo += [(f"{name}.{key}" if name else str(key), part) for key, part in reversed(item.items())]
        elif isinstance(item, (list, tuple)):
            todo += [(f"{name}.{index}" if name else str(index), part) for index, part in enumerate(item)]
        elif isinstance(item, (int, float, str, bool)) and wanted is None:
            weights.values[name] = item


# Sharded


def _take_index(weights: Weights, path: str) -> None:
    if os.path.getsize(path) > MOST_INDEX:
        raise WeightsError(f"{path}: an index of {os.path.getsize(path)} bytes; at most {MOST_INDEX} are read")
    try:
        with open(path, encoding="utf-8") as file:
            table = json.load(file)
        table = table["weight_map"]
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise WeightsError(f"{path}: no index of a checkpoint: {one_line(error)}") from None
    if not isinstance(table, dict) or not all(isinstance(name, str) for name in table.values()):
        raise WeightsError(f"{path}: its weight_map does not lead from names to files")
    files: dict[str, set[str]] = {}
    for name, file in table.items():
        if os.path.basename(file) != file or file in ("", ".", ".."):
            raise WeightsError(f"{path}: {one_line(file)!r} is no file beside the index")
        files.setdefault(file, set()).add(name)
    for file, names in files.items():
        _take_file(weights, os.path.join(os.path.dirname(path), file), names)
    missing = sorted(set(table) - set(weights.tensors))
    if missing:
        raise WeightsError(f"{path}: {len(missing)} tensors are not in their files: {one_line(missing[0])!r} ...")
