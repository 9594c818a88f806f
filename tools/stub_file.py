"""What the writers of .pyi files share: the formatter, and `--check`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def format_text(text: str, path: Path) -> str:
    """As the formatter would write it."""
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(path), "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def settle(path: Path, text: str) -> int:
    """Write the file; with --check only say whether it is current. The exit status."""
    if "--check" in sys.argv:
        if not path.exists() or path.read_text() != text:
            print(f"{path.name} is not current: run `make docs`")
            return 1
        return 0
    path.write_text(text)
    print(f"wrote {path.relative_to(path.parents[2])}")
    return 0
