"""What workers are at: a file with a slot per task, shared by memory with the parent, so that it outlives a crash."""

from __future__ import annotations

import mmap

NOTE_BYTES = 96
MOST_NOTES = 1 << 15


class Notes:
    """The file at `path` must have MOST_NOTES slots."""

    def __init__(self, path: str) -> None:
        with open(path, "r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)

    def write(self, index: int, text: str) -> None:
        data = text.encode("ascii", "replace")[:NOTE_BYTES].ljust(NOTE_BYTES)
        self._memory[index * NOTE_BYTES : (index + 1) * NOTE_BYTES] = data

    def read(self, index: int) -> str:
        data = self._memory[index * NOTE_BYTES : (index + 1) * NOTE_BYTES]
        return data.rstrip(b" \0").decode("ascii", "replace")

    def close(self) -> None:
        self._memory.close()
