"""Write docs/conformance-refused.md: rows that the conformance suite leaves out because the contract refuses them.

python tools/gen_refused.py
"""

from __future__ import annotations

import sys
from pathlib import Path

from ditorch.conform import derive

PAGE = Path(__file__).resolve().parent.parent / "docs" / "conformance-refused.md"


def main() -> int:
    PAGE.write_text(derive.format_refusals(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
