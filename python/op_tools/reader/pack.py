"""Capture containers (.dpack, docs/store-format.md) read in place: which items there are, and one of them as a value.

Nothing is unpacked to disk. A frame is believed only when its marker, checksum and sizes are right; damage is passed
over, as in libdit's reader. Work is bounded by a few times the size of the file, whatever its frames claim. The file
may become shorter meanwhile: what is gone is refused. Depends on: torch_file, file_bytes.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Any

from .compressed import MOST, unpack
from .file_bytes import FileBytes
from .limits import Refused, one_line
from .torch_file import Limits, load_parts

MAGIC = b"\x8aDPACK\r\n"
MARKER = b"\xc3\x7a\xd0\xa5"
ALIGNMENT, HEAD = 64, 64
BLOB, ITEM, COMPRESSED = 1, 2, 4
MAX_BLOBS, MAX_PATH = 1 << 20, 4000


@dataclass(frozen=True)
class Frame:
    offset: int
    kind: int
    flags: int
    number: int
    payload: int
    path: int
    blobs: int
    pickle: int
    json: int

    @property
    def begin(self) -> int:
        return self.offset + HEAD

    @property
    def end(self) -> int:
        size = HEAD + self.payload + 4
        return self.offset + (size + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


class Pack:
    """One container. `items` by path, the last one of a path; `damaged` places were passed over."""

    def __init__(self, path: str, limits: Limits) -> None:
        self.path, self.limits = path, limits
        self.data = FileBytes(path, limits)
        self.items: dict[str, Frame] = {}
        self.folders: dict[str, list[str]] = {}
        """Names of the items in each folder."""
        self.damaged = 0
        self._work = 4 * len(self.data) + (1 << 20)
        self.salt, position = self._read_header()
        self._read_frames(position)
        for name in self.items:
            folder, _, last = name.rpartition("/")
            self.folders.setdefault(folder, []).append(last)

    def _read_header(self) -> tuple[int, int]:
        header = bytes(self.data.read(0, min(HEAD, len(self.data))))
        if not header.startswith(MAGIC):
            raise Refused("it is no capture container (its header is wrong)")
        if len(header) < 64:
            return 0, len(self.data)  # torn inside the header: no items
        major, _minor, length = struct.unpack_from("<HHI", header, 8)
        salt, order = struct.unpack_from("<IB", header, 32)
        whole = zlib.crc32(header[:60]) == struct.unpack_from("<I", header, 60)[0]
        if whole and major not in (1, 2):
            raise Refused(f"it is a container of format {major}; formats 1 and 2 are read")
        if whole and order != (1 if struct.pack("=H", 1) == b"\1\0" else 2):
            raise Refused("it was written on a machine of the other byte order")
        self.damaged += not whole
        sound = whole and length >= 64 and length % ALIGNMENT == 0
        return salt, length if sound else 64

    def _look(self, offset: int) -> Frame | None:
        """A sound head at this place."""
        if offset < 0 or offset % ALIGNMENT or offset + HEAD > len(self.data):
            return None
        head = bytes(self.data.read(offset, HEAD))
        if head[:4] != MARKER or zlib.crc32(head[:60], self.salt) != struct.unpack_from("<I", head, 60)[0]:
            return None
        frame = Frame(offset, *struct.unpack_from("<HHQQIIQQ", head, 4))
        return frame if frame.payload <= len(self.data) - offset - HEAD - 4 else None

    def _find_frame(self, position: int, last: int) -> Frame | None:
        frame = self._look(position)
        if frame is not None or position >= len(self.data):
            return frame
        place = last + ALIGNMENT
        while True:
            place = self.data.find(MARKER, place)
            if place < 0:
                return None
            frame = self._look(place)
            if frame is not None:
                self.damaged += 1
                return frame
            place += 1

    def _read_frames(self, position: int) -> None:
        last, count = position - ALIGNMENT, 0
        while (frame := self._find_frame(position, last)) is not None:
            last, position = frame.offset, frame.end
            count += 1
            if count > self.limits.items:
                raise Refused(f"it has more than {self.limits.items} frames")
            if frame.kind == ITEM:
                path = self._read_path(frame)
                if path is None:
                    self.damaged += 1
                else:
                    self.items[path] = frame

    def _check_payload(self, frame: Frame) -> memoryview | None:
        self._work -= frame.payload
        if self._work < 0:
            raise Refused("its frames overlap")
        whole = self.data.read(frame.begin, frame.payload + 4)
        content, crc = whole[:-4], struct.unpack_from("<I", whole, frame.payload)[0]
        return content if zlib.crc32(content) == crc else None

    def _read_path(self, frame: Frame) -> str | None:
        table = frame.blobs * 24
        sound = frame.blobs <= MAX_BLOBS and frame.path <= MAX_PATH and frame.pickle >= 1
        if not sound or table + frame.path + frame.pickle + frame.json != frame.payload:
            return None
        content = self._check_payload(frame)
        if content is None:
            return None
        try:
            path = str(content[table : table + frame.path], "utf-8")
        except UnicodeDecodeError:
            return None
        return None if any(part in ("", ".", "..") for part in path.split("/")) or "\0" in path else path

    def load(self, path: str, locations: dict[int, str] | None = None) -> Any:
        """The value of an item."""
        frame = self.items[path]
        begin = frame.begin + frame.blobs * 24 + frame.path
        stream = self.data.read(begin, frame.pickle)
        self._work = 4 * len(self.data) + (1 << 20)
        return load_parts(stream, lambda key: self._get_blob(frame, key), self.limits, locations)

    def get_json(self, path: str) -> bytes | None:
        """The item's companion."""
        frame = self.items[path]
        begin = frame.begin + frame.payload - frame.json
        return bytes(self.data.read(begin, frame.json)) if frame.flags & 1 else None

    def _get_blob(self, item: Frame, key: str) -> memoryview | None:
        if not (key.isascii() and key.isdigit() and len(key) < 8) or int(key) >= item.blobs:
            return None
        number, offset, size = struct.unpack("<QQQ", self.data.read(item.begin + 24 * int(key), 24))
        if size == 0:
            return memoryview(b"")
        frame = self._look(offset) if offset < item.offset else None
        full = frame and (frame.pickle if frame.kind == COMPRESSED else frame.payload)
        if frame is None or frame.kind not in (BLOB, COMPRESSED) or (frame.number, full) != (number, size):
            raise Refused(f"storage {one_line(key, 40)!r} is not where it should be: the container is damaged")
        content = self._check_payload(frame)
        if content is None:
            raise Refused(f"storage {one_line(key, 40)!r} is damaged (its checksum is wrong)")
        return content if frame.kind == BLOB else self._expand(frame, content)

    def _expand(self, frame: Frame, content: memoryview) -> memoryview:
        """Of a compressed blob: `path` is the method, `blobs` the width, `pickle` the size, `json` what counts."""
        if not 0 < frame.json <= frame.payload or frame.pickle > min(MOST * frame.payload, self.limits.bytes):
            raise Refused("a compressed storage has sizes that cannot be")
        return unpack(frame.path, frame.blobs, content[: frame.json], frame.pickle)
