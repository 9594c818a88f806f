"""Check that lines of Markdown text have at most 120 columns; `--write` wraps the paragraphs that do not.

Tables, code blocks and headings are left alone: their lines cannot be broken."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WIDTH = 120
GENERATED = {f"docs/{page}.md" for page in ("cuda-surface", "diopi-reference", "diopi-support", "libraries")} | {
    f"docs/{page}.md" for page in ("measurements", "mutation", "opinfo", "options")
}
"""Pages whose lines are those of their generators."""
GLUED = re.compile(r"`[^`]*`|\[[^\]]*\]\([^)]*\)")
"""Code and links stay on one line."""
ITEM = re.compile(r"(\s*)([-*]|\d+\.)\s+")


def wrap(lines: list[str]) -> list[str]:
    """The lines of one paragraph or list item, wrapped."""
    item = ITEM.match(lines[0])
    first = item[0] if item else re.match(r"\s*", lines[0])[0]
    text = " ".join(line.strip() for line in [lines[0][len(first) :], *lines[1:]])
    text = GLUED.sub(lambda match: match[0].replace(" ", "\0"), text)
    wrapped = textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=" " * len(first),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace("\0", " ") for line in wrapped]


def split(text: str) -> list[tuple[bool, list[str]]]:
    """The blocks of a page in order: (whether it is text that can be wrapped, its lines)."""
    blocks, fenced = [], False
    for line in text.split("\n"):
        fence = line.lstrip().startswith("```")
        loose = not fenced and not fence and line.strip() and not re.match(r"\s*(\||#|<|---)", line)
        fenced ^= fence
        if loose and blocks and blocks[-1][0] and not ITEM.match(line):
            blocks[-1][1].append(line)
        else:
            blocks.append((bool(loose), [line]))
    return blocks


def main(arguments: list[str]) -> int:
    """Check or wrap all pages of the repository; the number of problems is the exit status, 1 at most."""
    problems = 0
    for name in subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True).stdout.split():
        path = ROOT / name
        if name in GENERATED:
            continue
        done: list[str] = []
        for loose, lines in split(path.read_text()):
            long = loose and any(len(line) > WIDTH for line in lines)
            wrapped = wrap(lines) if long else lines
            if wrapped != lines and "--write" not in arguments:
                print(f"{name}: '{lines[0][:60]}...' has lines of more than {WIDTH} columns")
                problems += 1
            done += wrapped
        if "--write" in arguments:
            path.write_text("\n".join(done))
    return min(problems, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
