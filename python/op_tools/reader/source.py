"""Where the parts of one captured call are: a folder of files, one file, or a container.

A part is "input", "output", "grad_inputs" ...; reading one gives the dictionary in it, with tensors on the CPU. Depends
on: torch_file, pack.
"""

from __future__ import annotations

import functools
import os
from dataclasses import replace
from typing import Any

from .pack import Pack
from .torch_file import Limits, load, open_bytes, refuse

PACK, FILE = ".dpack", ".pth"
MAX_JSON = 16 << 20


class Source:
    """Where the parts of one case are."""

    def __init__(self) -> None:
        self.locations: dict[int, str] = {}

    def list_parts(self) -> list[str]:
        raise NotImplementedError

    def get_path(self, part: str) -> str:
        raise NotImplementedError

    def read(self, part: str) -> Any:
        raise NotImplementedError

    def read_json(self) -> bytes | None:
        raise NotImplementedError


class FolderSource(Source):
    def __init__(self, folder: str, limits: Limits, verify: bool) -> None:
        super().__init__()
        self.folder, self.limits, self.verify = folder, limits, verify

    def list_parts(self) -> list[str]:
        with refuse(self.folder):
            return sorted(name[: -len(FILE)] for name in os.listdir(self.folder) if name.endswith(FILE))

    def get_path(self, part: str) -> str:
        return os.path.join(self.folder, part + FILE)

    def read(self, part: str) -> Any:
        return load(self.get_path(part), self.limits, self.verify, self.locations, mapped=False)

    def read_json(self) -> bytes | None:
        file = self.get_path("input") + ".json"
        if not os.path.exists(file):
            return None
        with refuse(file):
            return bytes(open_bytes(file, replace(self.limits, bytes=MAX_JSON)))


class FileSource(FolderSource):
    """One file: the arguments alone."""

    def list_parts(self) -> list[str]:
        return ["input"]

    def get_path(self, part: str) -> str:
        return self.folder


class PackSource(Source):
    def __init__(self, path: str, limits: Limits) -> None:
        super().__init__()
        container, _, self.entry = path.partition(f"{PACK}#")
        self.file = container + PACK
        with refuse(self.file):
            self.pack = open_pack(self.file, limits)

    def list_parts(self) -> list[str]:
        return sorted(name[: -len(FILE)] for name in self.pack.folders.get(self.entry, ()) if name.endswith(FILE))

    def get_path(self, part: str) -> str:
        return f"{self.file}#{self.entry}/{part}{FILE}"

    def read(self, part: str) -> Any:
        with refuse(self.get_path(part)):
            return self.pack.load(f"{self.entry}/{part}{FILE}", self.locations)

    def read_json(self) -> bytes | None:
        return self.pack.get_json(f"{self.entry}/input{FILE}")


def open_pack(path: str, limits: Limits) -> Pack:
    status = os.stat(path)
    return _open_pack_once(os.path.abspath(path), limits, status.st_mtime_ns, status.st_size)


@functools.lru_cache(maxsize=2)
def _open_pack_once(path: str, limits: Limits, _changed: int, _size: int) -> Pack:
    return Pack(path, limits)
