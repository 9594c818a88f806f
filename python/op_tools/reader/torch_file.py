"""Files of torch.save read without executing anything in them.

`load` reads both formats of torch (the ZIP archive, and the plain stream before it) with our own pickle machine and our
own constructors: what torch.load(weights_only=True) reads, and beyond it slices, Ellipsis, torch.return_types, named
tuples (as tuples), generators and vendors' tensors. Everything is on the CPU. A file that is anything else gives one
CaseError, in time and memory bounded by `Limits`. Large files are mapped, copy on write: their tensors take memory only
where they are written to. A mapped file must not become shorter while its tensors live; `mapped=False` reads it.
Depends on: pickle, tensors, archive, file_bytes.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from . import archive, file_bytes
from .limits import IGNORED, Budget, CaseError, Limits, Refused, Unknown, one_line, survey
from .pickle import Machine
from .tensors import Rebuilder, StorageType, parse_identity
from .values import settle

__all__ = ["CaseError", "Limits", "load", "load_parts", "open_bytes", "refuse"]

MAP_FROM = 8 << 20
"""Files of this size and more are mapped."""
OLD_MAGIC = 0x1950A86A20F9469CFC6C
OLD_VERSION = 1001
TAR = b"ustar"


@contextlib.contextmanager
def refuse(name: str | os.PathLike) -> Iterator[None]:
    """What goes wrong inside becomes one CaseError that names the file."""
    name = one_line(os.fspath(name), 1000)
    try:
        yield
    except CaseError:
        raise
    except Refused as error:
        raise CaseError(f"{name}: {error}") from None
    except OSError as error:
        raise CaseError(f"{name}: cannot be read: {error.strerror or one_line(error)}") from None
    except MemoryError:
        raise CaseError(f"{name}: there is not enough memory to read it") from None
    except RecursionError:
        raise CaseError(f"{name}: its values are nested too deeply") from None


def open_bytes(path: str | os.PathLike, limits: Limits, map_from: int = MAP_FROM, mapped: bool = True) -> memoryview:
    """The bytes of a regular file: read, or mapped when there are many. Writable either way; the file never changes."""
    fd, size = file_bytes.open_regular(path, limits)
    try:
        if mapped and size >= max(map_from, 1):
            return memoryview(mmap.mmap(fd, size, access=mmap.ACCESS_COPY))
        return file_bytes.read_at(fd, 0, size)
    finally:
        os.close(fd)


def load(
    path: str | os.PathLike,
    limits: Limits | None = None,
    verify: bool = True,
    locations: dict[int, str] | None = None,
    mapped: bool = True,
) -> Any:
    """The value in a file. `verify=False` believes the checksums. `locations` receives, by id of the storage's memory,
    the device it was on."""
    limits = limits or Limits()
    with refuse(path):
        data = open_bytes(path, limits, mapped=mapped)
        if not len(data):
            raise Refused("it is empty")
        if bytes(data[:4]) == archive.MAGIC:
            return _load_archive(data, limits, verify, locations)
        if bytes(data[257:262]) == TAR:
            raise Refused("it is a tar archive, which torch wrote before 0.1.10; save it again with a newer torch")
        return _load_stream(data, limits, locations)


def load_parts(
    stream: Any, get_blob: Callable[[str], memoryview | None], limits: Limits, locations: dict[int, str] | None = None
) -> Any:
    """The value of a pickle stream whose storages are given by key. Refused when it cannot be read."""
    return _run(stream, _Storages(get_blob), limits, locations)


def make_storage(content: memoryview) -> torch.UntypedStorage:
    """Memory of its own, or the mapping where its place suits every type."""
    if not len(content):
        return torch.UntypedStorage(0)
    tensor = torch.frombuffer(content, dtype=torch.uint8)
    if not isinstance(content.obj, mmap.mmap) or tensor.data_ptr() % 64:
        tensor = tensor.clone()
    return tensor.untyped_storage()


class _Storages:
    """The storages of one file, each made once."""

    def __init__(self, get_blob: Callable[[str], memoryview | None]) -> None:
        self.get_blob = get_blob
        self.made: dict[str, torch.UntypedStorage] = {}

    def get(self, key: str, size: int) -> torch.UntypedStorage:
        storage = self.made.get(key)
        if storage is None:
            content = self.get_blob(key)
            if content is None:
                raise Refused(f"it lacks the storage {one_line(key, 40)!r}")
            if len(content) != size:
                raise Refused(f"storage {one_line(key, 40)!r} has {len(content)} bytes, not {size}")
            storage = self.made[key] = make_storage(content)
        if storage.nbytes() != size:
            raise Refused(f"storage {one_line(key, 40)!r} has {storage.nbytes()} bytes, not {size}")
        return storage


def _run(stream: Any, storages: _Storages, limits: Limits, locations: dict[int, str] | None, swap: bool = False) -> Any:
    if len(stream) > limits.pickle:
        raise Refused(f"its pickle has {len(stream)} bytes; the limit is {limits.pickle}")
    budget = Budget(limits)
    rebuilder = Rebuilder(storages.get, budget)
    rebuilder.swap = swap
    rebuilder.locations = locations if locations is not None else {}
    machine = Machine(stream, rebuilder.find, rebuilder.load_storage, budget)
    value = machine.run()
    survey(value, limits)
    return settle(value) if rebuilder.unsettled else value


# The archive


def _load_archive(data: memoryview, limits: Limits, verify: bool, locations: dict[int, str] | None) -> Any:
    records = archive.read_records(data, limits.items)
    pickles = [name for name in records if name.count("/") == 1 and name.endswith("/data.pkl")]
    if len(pickles) != 1:
        raise Refused("its archive has no data.pkl, or several: torch.save did not write it")
    stem = pickles[0].removesuffix("data.pkl")
    if stem + "constants.pkl" in records:
        raise Refused("it is a TorchScript program, which is code")

    def get(name: str) -> memoryview | None:
        record = records.get(stem + name)
        if record is None:
            return None
        if not verify:
            return data[record.offset : record.offset + record.size]
        return archive.check_crc(data, record)

    order = get("byteorder")
    order = bytes(order[:16]) if order is not None else sys.byteorder.encode()
    if order not in (b"little", b"big"):
        raise Refused("it has no byte order that is known")
    storages = _Storages(lambda key: get(f"data/{key}"))
    return _run(get("data.pkl"), storages, limits, locations, order != sys.byteorder.encode())


# The stream before it


def _load_stream(data: memoryview, limits: Limits, locations: dict[int, str] | None) -> Any:
    """Pickles one after the other: a number, a version, facts about the machine, the value, the keys of its storages;
    then their bytes, each behind its number of elements. The value is run twice: dry, to learn where it ends and how
    large the storages are, then with their bytes."""
    budget = Budget(limits)
    magic, position = _run_one(data, 0, budget)
    if type(magic) is not int or magic != OLD_MAGIC:
        raise Refused("it is no file of torch.save")
    version, position = _run_one(data, position, budget)
    if type(version) is not int or version != OLD_VERSION:
        raise Refused("it is a file of torch.save in a version that is not known")
    facts, begin = _run_one(data, position, budget)
    if type(facts) is not dict or type(facts.get("little_endian")) is not bool:
        raise Refused("it does not tell its byte order")
    sizes: dict[str, tuple[int, int]] = {}
    _ignored, end = _run_one(data, begin, budget, sizes)
    keys, position = _run_one(data, end, budget)
    if type(keys) is not list or any(type(key) is not str for key in keys):
        raise Refused("it has no list of storages")
    places = _place_storages(data, keys, position, sizes)
    swap = facts["little_endian"] is not (sys.byteorder == "little")
    return _run(data[begin:end], _Storages(places.get), limits, locations, swap)


def _run_one(
    data: memoryview, begin: int, budget: Budget, sizes: dict[str, tuple[int, int]] | None = None
) -> tuple[Any, int]:
    """One pickle of plain values and where it ends; with `sizes`, a dry run that notes the storages."""

    def find(module: str, name: str) -> Any:
        found = rebuilder.find(module, name)
        return found if isinstance(found, StorageType) else IGNORED

    def note(identity: Any) -> Any:
        if sizes is None:
            raise Refused("it is no file of torch.save")
        key, dtype, count = parse_identity(identity)
        sizes.setdefault(key, ((dtype or torch.uint8).itemsize, count))
        return IGNORED

    rebuilder = Rebuilder(lambda _key, _size: torch.UntypedStorage(0), budget)
    machine = Machine(data[begin : begin + budget.limits.pickle], find, note, budget, dry=sizes is not None)
    if sizes is None:
        machine.find = lambda module, name: Unknown(f"{module}.{name}")
    value = machine.run()
    return value, begin + machine.position


def _place_storages(
    data: memoryview, keys: list[str], position: int, sizes: dict[str, tuple[int, int]]
) -> dict[str, memoryview]:
    places = {}
    for key in keys:
        if key not in sizes or key in places:
            raise Refused("its list of storages is not that of its value")
        itemsize, count = sizes[key]
        if position + 8 > len(data) or int.from_bytes(data[position : position + 8], "little", signed=True) != count:
            raise Refused(f"storage {one_line(key, 40)!r} is not where it should be: the file is truncated or damaged")
        position += 8
        if count * itemsize > len(data) - position:
            raise Refused(f"storage {one_line(key, 40)!r} has {count * itemsize} bytes; the file ends before")
        places[key] = data[position : position + count * itemsize]
        position += count * itemsize
    return places
