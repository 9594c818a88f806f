"""Captured calls by the files of their folders, for tests."""

import os

from op_tools.reader import CaseRef, load_item


def get_path(ref: CaseRef, part: str) -> str:
    return os.path.join(ref.path, f"{part}.pth")


def list_parts(ref: CaseRef) -> tuple[str, ...]:
    return tuple(sorted(name[:-4] for name in os.listdir(ref.path) if name.endswith(".pth")))


def load(ref: CaseRef, part: str) -> dict:
    return load_item(get_path(ref, part))
