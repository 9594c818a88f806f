"""Write docs/options.md from the option schema of libdit."""

from __future__ import annotations

import sys
from pathlib import Path

from ditorch import _C

PAGE = Path(__file__).resolve().parent.parent / "docs" / "options.md"
HEAD = """# Options

The same option can be a keyword (`python -m ditorch --set name=value`), an environment variable, or a key of the
`[ditorch]` table in the TOML file that `DITORCH_CONFIG` names; the first of these that is set wins. Unknown names and
bad values are errors that list the valid ones. This page is written by `make docs`.

| option | environment variable | type | default | meaning |
|---|---|---|---|---|
"""


def render() -> str:
    """The whole page."""
    rows = []
    for option in _C.options():
        kind = " \\| ".join(option["choices"]) if option["choices"] else option["type"]
        rows.append(
            f"| `{option['name']}` | `{option['environment']}` | {kind} | `{option['default']}` | {option['help']} |"
        )
    return HEAD + "\n".join(rows) + "\n"


def main() -> int:
    text = render()
    if "--check" in sys.argv:
        if PAGE.read_text() != text:
            print("docs/options.md is not current: run `make docs`")
            return 1
        return 0
    PAGE.write_text(text)
    print(f"wrote {PAGE.relative_to(PAGE.parent.parent)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
