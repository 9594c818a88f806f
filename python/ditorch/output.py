"""Files that appear only when they are complete. Depends on nothing of ours."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterator


@contextlib.contextmanager
def open_whole(path: str | os.PathLike) -> Iterator[int]:
    """A descriptor to write to: the file appears, or is replaced, when the block ends well. A pipe or a device is
    written to as it is."""
    path = os.path.abspath(path)
    temporary = None
    if os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode):
        handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    else:
        folder, name = os.path.split(path)
        handle, temporary = tempfile.mkstemp(prefix=f".{name}.", dir=folder)
    try:
        yield handle
        if temporary is not None:
            mask = os.umask(0)
            os.umask(mask)
            os.fchmod(handle, 0o666 & ~mask)
            os.replace(temporary, path)
            temporary = None
    finally:
        os.close(handle)
        if temporary is not None:
            os.unlink(temporary)


def write_whole(path: str | os.PathLike, text: str) -> None:
    """Write a text file in one piece or not at all."""
    with open_whole(path) as handle, open(handle, "w", encoding="utf-8", closefd=False) as file:
        file.write(text)
