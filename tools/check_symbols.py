"""Check that the libraries export nothing but dit_*, diopi* and PyInit_*."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "python" / "ditorch"
ALLOWED = re.compile(r"^(dit_|diopi|PyInit_|_init$|_fini$|_edata$|_end$|__bss_start$)")


def list_exports(library: Path) -> list[str]:
    """Names of the symbols the library defines for others (C++ ones come from torch's inline templates)."""
    output = subprocess.run(["nm", "-D", "--defined-only", str(library)], capture_output=True, text=True, check=True)
    rows = (line.split() for line in output.stdout.splitlines())
    return [row[-1] for row in rows if row[-2] in "TDBR"]


def main() -> int:
    libraries = sorted([*PACKAGE.glob("lib/**/*.so"), *PACKAGE.glob("_C*.so")])
    if not libraries or not shutil.which("nm"):
        print("symbols: skipped (nothing built, or no nm)")
        return 0
    problems = [
        f"{lib.name}: exports {name}" for lib in libraries for name in list_exports(lib) if not ALLOWED.match(name)
    ]
    print("\n".join(problems) or f"symbols: ok ({len(libraries)} libraries)")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
