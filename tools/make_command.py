"""Write the `ditorch` command of a source tree: make_command.py .venv/bin/ditorch

A small script that points at this tree, so that nothing has to be installed or exported. A command that pip has put
there is left alone.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MARK = "# The ditorch command of this source tree, written by make."
SCRIPT = """#!/bin/sh
{mark}
if [ -s {settings} ]; then
  while IFS== read -r name value; do export "$name=$value"; done < {settings}
fi
PYTHONPATH={python_path}${{PYTHONPATH:+:$PYTHONPATH}} exec {python} -m ditorch "$@"
"""


def make_script(venv: Path, root: Path = ROOT) -> str:
    """The text of the command; paths with blanks are quoted."""
    return SCRIPT.format(
        mark=MARK,
        settings=shlex.quote(str(venv / "cpu-environment")),
        python_path=shlex.quote(str(root / "python")),
        python=shlex.quote(str(venv / "bin" / "python")),
    )


def write(path: Path) -> bool:
    """False when another command is there."""
    if path.exists() and MARK not in path.read_text(encoding="utf-8", errors="replace"):
        return False
    text = make_script(path.absolute().parent.parent)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    temporary.chmod(0o755)
    temporary.replace(path)
    return True


def main(words: list[str]) -> int:
    if len(words) != 1:
        print("usage: make_command.py PATH", file=sys.stderr)
        return 2
    if not write(Path(words[0])):
        print(f"{words[0]} is another command (pip's?); left alone", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
