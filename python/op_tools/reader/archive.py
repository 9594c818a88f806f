"""The records of a ZIP archive as torch writes it: names and places, nothing unpacked.

Only stored (not compressed) records are accepted; every number of the archive is checked against the size of the file
before it is used; records do not overlap; names are relative and unique. Depends on: limits (Refused).
"""

from __future__ import annotations

import itertools
import stat
import struct
import zlib
from dataclasses import dataclass
from typing import Any

from .limits import Refused, one_line

MAGIC = b"PK\x03\x04"
END, END64, LOCATOR64, CENTRAL, LOCAL = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07", b"PK\x01\x02", b"PK\x03\x04"
MAX32, MAX16 = 0xFFFFFFFF, 0xFFFF


@dataclass(frozen=True)
class Record:
    name: str
    offset: int
    """Of its bytes in the file."""
    size: int
    crc: int


def read_records(data: memoryview, limit: int) -> dict[str, Record]:
    """The records of an archive by name; Refused for anything that torch does not write."""
    offset, size, count = _find_directory(data)
    if count > limit:
        raise Refused(f"its archive has {count} records; the limit is {limit}")
    if count * 46 > size:
        raise Refused("its archive has a directory that is too short")
    records: dict[str, Record] = {}
    spans = []
    position = offset
    for _ in range(count):
        record, header, position = _read_entry(data, position, offset + size, offset)
        if record.name in records:
            raise Refused(f"its archive has {one_line(record.name, 80)!r} twice")
        records[record.name] = record
        spans.append((header, record.offset + record.size))
    spans.sort()
    for before, after in itertools.pairwise(spans):
        if before[1] > after[0]:
            raise Refused("records of its archive overlap")
    return records


def check_crc(data: memoryview, record: Record) -> memoryview:
    """The record's bytes, when their checksum is right."""
    content = data[record.offset : record.offset + record.size]
    if zlib.crc32(content) != record.crc:
        raise Refused(f"record {one_line(record.name, 80)!r} is damaged (its checksum is wrong)")
    return content


def _unpack(data: memoryview, form: str, offset: int) -> tuple[Any, ...]:
    size = struct.calcsize(form)
    if offset < 0 or offset + size > len(data):
        raise Refused("its archive ends in the middle")
    return struct.unpack_from(form, data, offset)


def _find_directory(data: memoryview) -> tuple[int, int, int]:
    """Offset, size and number of entries of the central directory."""
    begin = max(len(data) - 22 - MAX16, 0)
    tail = bytes(data[begin:])
    place = tail.rfind(END)
    while place >= 0 and (
        len(tail) - place < 22 or place + 22 + struct.unpack_from("<H", tail, place + 20)[0] != len(tail)
    ):
        place = tail.rfind(END, 0, place + 3) if place > 0 else -1
    if place < 0:
        raise Refused("its archive has no end: the file is truncated or something else")
    end = begin + place
    disk, start_disk, here, count, size, offset = _unpack(data, "<HHHHII", end + 4)
    if MAX16 in (here, count) or MAX32 in (size, offset):
        end, disk, start_disk, here, count, size, offset = _read_end64(data, end)
    if disk or start_disk or here != count:
        raise Refused("its archive is one part of several")
    if offset > end or size > end - offset:
        raise Refused("its archive has a directory outside the file")
    return offset, size, count


def _read_end64(data: memoryview, end: int) -> tuple[int, ...]:
    if end < 20 or bytes(data[end - 20 : end - 16]) != LOCATOR64:
        raise Refused("its archive has no 64-bit end")
    _disk, place, _disks = _unpack(data, "<IQI", end - 16)
    if place > end - 20 or bytes(data[place : place + 4]) != END64:
        raise Refused("its archive has no 64-bit end")
    _size, _made, _needed, disk, start_disk, here, count, size, offset = _unpack(data, "<QHHIIQQQQ", place + 4)
    return place, disk, start_disk, here, count, size, offset


def _read_entry(data: memoryview, position: int, end: int, bound: int) -> tuple[Record, int, int]:
    """One entry of the central directory: the record, where its header begins, the next entry's place."""
    if position + 46 > end or bytes(data[position : position + 4]) != CENTRAL:
        raise Refused("its archive has a damaged directory")
    made, _needed, flags, method, _time, _date, crc = _unpack(data, "<HHHHHHI", position + 4)
    packed, size, name_size, extra_size, comment_size, disk = _unpack(data, "<IIHHHH", position + 20)
    _internal, external, header = _unpack(data, "<HII", position + 36)
    follow = position + 46 + name_size + extra_size + comment_size
    if follow > end:
        raise Refused("its archive has a damaged directory")
    name = _check_name(bytes(data[position + 46 : position + 46 + name_size]))
    extra = data[position + 46 + name_size : position + 46 + name_size + extra_size]
    size, packed, header = _widen(extra, size, packed, header)
    if flags & 0x2041:
        raise Refused(f"record {one_line(name, 80)!r} is encrypted")
    if method != 0 and "/code/" in name:
        raise Refused("it is a TorchScript program, which is code")
    if method != 0 or packed != size:
        raise Refused(f"record {one_line(name, 80)!r} is compressed; torch stores records as they are")
    if made >> 8 == 3 and stat.S_ISLNK(external >> 16):
        raise Refused(f"record {one_line(name, 80)!r} is a link")
    if disk not in (0, MAX16):
        raise Refused("its archive is one part of several")
    offset = _check_local(data, header, name)
    if offset > bound or size > bound - offset:
        raise Refused(f"record {one_line(name, 80)!r} reaches outside the file")
    return Record(name, offset, size, crc), header, follow


def _check_name(raw: bytes) -> str:
    try:
        name = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise Refused("its archive has a name that is no text") from None
    parts = name.split("/")
    if not name or name.startswith("/") or "\\" in name or "\0" in name or ":" in parts[0] or ".." in parts:
        raise Refused(f"its archive has the name {one_line(name, 80)!r}, which leaves it")
    return name


def _widen(extra: memoryview, *values: int) -> list[int]:
    """64-bit sizes and offset, in the order size, packed size, offset, for those that did not fit."""
    wide: list[int] = []
    position = 0
    while position + 4 <= len(extra):
        kind, size = struct.unpack_from("<HH", extra, position)
        if size > len(extra) - position - 4:
            break
        if kind == 1:
            wide = list(struct.unpack_from(f"<{size // 8}Q", extra, position + 4))
            break
        position += 4 + size
    widened = []
    for value in values:
        if value == MAX32:
            if not wide:
                raise Refused("its archive lacks a 64-bit size")
            value = wide.pop(0)
        widened.append(value)
    return widened


def _check_local(data: memoryview, header: int, name: str) -> int:
    """Where the bytes of a record begin; its own header must tell the same name."""
    if header + 30 > len(data) or bytes(data[header : header + 4]) != LOCAL:
        raise Refused(f"record {one_line(name, 80)!r} has no header")
    name_size, extra_size = _unpack(data, "<HH", header + 26)
    offset = header + 30 + name_size + extra_size
    if bytes(data[header + 30 : header + 30 + name_size]) != name.encode():
        raise Refused(f"record {one_line(name, 80)!r} has another name in its header")
    return offset
