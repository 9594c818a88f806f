"""Compressed blobs of containers: zlib by Python, zstd by the system's libzstd.so.1.

The size is known before and bounded by the size in the file; anything that does not give exactly that many bytes is
refused. Depends on: limits.
"""

from __future__ import annotations

import ctypes
import functools
import zlib

import torch

from .limits import Refused

MOST = 256
"""A blob is at most so many times as large as its payload."""
ZLIB, ZSTD = 1, 2
WIDTHS = (1, 2, 4, 8)


def unpack(method: int, width: int, content: memoryview, size: int) -> memoryview:
    """`size` bytes, in memory of their own."""
    if method not in (ZLIB, ZSTD) or width not in WIDTHS:
        raise Refused(f"it is compressed in a way that is not known (method {method}, width {width})")
    planes = torch.empty(size, dtype=torch.uint8)
    if method == ZLIB:
        _unpack_zlib(content, planes)
    else:
        _unpack_zstd(content, planes)
    count = size // width
    if width > 1:
        joined = torch.empty(size, dtype=torch.uint8)
        joined[: count * width].view(count, width).copy_(planes[: count * width].view(width, count).t())
        joined[count * width :] = planes[count * width :]
        planes = joined
    return memoryview(planes.numpy())


def _damaged() -> Refused:
    return Refused("a compressed storage is damaged (it does not give the bytes that it promises)")


def _unpack_zlib(content: memoryview, to: torch.Tensor) -> None:
    machine = zlib.decompressobj()
    try:
        whole = machine.decompress(content, len(to) + 1)
    except zlib.error:
        raise _damaged() from None
    if len(whole) != len(to) or not machine.eof:
        raise _damaged()
    to.copy_(torch.frombuffer(bytearray(whole), dtype=torch.uint8))


@functools.cache
def _get_zstd() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL("libzstd.so.1")
        decompress, is_error = library.ZSTD_decompress, library.ZSTD_isError
    except (OSError, AttributeError):
        raise Refused("it is compressed with zstd, and libzstd.so.1 is not on this machine: install it") from None
    decompress.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t]
    decompress.restype = ctypes.c_size_t
    is_error.argtypes = [ctypes.c_size_t]
    return library


def _unpack_zstd(content: memoryview, to: torch.Tensor) -> None:
    library = _get_zstd()
    source = torch.frombuffer(content, dtype=torch.uint8)
    done = library.ZSTD_decompress(to.data_ptr(), len(to), source.data_ptr(), len(source))
    if library.ZSTD_isError(done) or done != len(to):
        raise _damaged()
