"""Parts of a file, read when they are asked for.

Unlike a mapping, which ends the process (SIGBUS) when the file becomes shorter under it, a read says so. Depends on:
limits.
"""

from __future__ import annotations

import mmap
import os
import stat

from .limits import Limits, Refused

WINDOW = 16 << 10
"""Small parts come from a window of this size."""
PAGES_FROM = 64 << 10
"""Parts of this size and more lie on pages of their own, aligned for every type."""


def open_regular(path: str | os.PathLike, limits: Limits) -> tuple[int, int]:
    """Descriptor and size of a regular file that is not too large."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise Refused("it is not a file")
        if status.st_size > limits.bytes:
            raise Refused(f"it has {status.st_size} bytes; the limit is {limits.bytes}")
    except BaseException:
        os.close(fd)
        raise
    return fd, status.st_size


def read_at(fd: int, offset: int, size: int) -> memoryview:
    """Writable memory with these bytes of the file; Refused when they are not all there any more."""
    content = memoryview(mmap.mmap(-1, size) if size >= PAGES_FROM else bytearray(size))
    done = 0
    while done < size:
        got = os.preadv(fd, [content[done:]], offset + done)
        if got <= 0:
            raise Refused("it became shorter while it was read")
        done += got
    return content


class FileBytes:
    """The bytes of one file; closed with the object."""

    def __init__(self, path: str | os.PathLike, limits: Limits) -> None:
        self._fd = -1
        self._fd, self._size = open_regular(path, limits)
        self._begin, self._window = 0, memoryview(b"")

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    def __len__(self) -> int:
        return self._size

    def read(self, offset: int, size: int) -> memoryview:
        """Bytes that lie within the size that the file had when it was opened."""
        if size > WINDOW // 4:
            return read_at(self._fd, offset, size)
        place = offset - self._begin
        if place < 0 or place + size > len(self._window):
            self._window = read_at(self._fd, offset, min(WINDOW, self._size - offset))
            self._begin, place = offset, 0
        return self._window[place : place + size]

    def find(self, what: bytes, offset: int) -> int:
        """Where `what` begins, at `offset` or later; -1."""
        step = 1 << 20
        while offset + len(what) <= self._size:
            size = min(step, self._size - offset)
            place = bytes(read_at(self._fd, offset, size)).find(what)
            if place >= 0:
                return offset + place
            offset += size - len(what) + 1
        return -1
