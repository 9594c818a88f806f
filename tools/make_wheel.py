"""One wheel of several: the adapters of all, the rest of the first, the range of torch that is true, auditwheel's tag.

    python tools/make_wheel.py build/wheels/torch-*/*.whl --out build/wheels

The wheels are the same package built for different versions of torch. torch's own libraries stay outside: they are in
the process before ditorch is.
"""

from __future__ import annotations

import argparse
import base64
import csv
import hashlib
import io
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

OUTSIDE = ("libtorch*.so*", "libc10*.so*", "libgomp*.so*", "libcuda.so*")
ADAPTER = re.compile(r"ditorch/lib/torch-(\d+\.\d+)/")


def read(path: Path) -> dict[str, tuple[zipfile.ZipInfo, bytes]]:
    with zipfile.ZipFile(path) as wheel:
        return {info.filename: (info, wheel.read(info)) for info in wheel.infolist() if not info.is_dir()}


def list_minors(names: list[str]) -> list[tuple[int, int]]:
    return sorted({tuple(map(int, found[1].split("."))) for name in names if (found := ADAPTER.match(name))})


def describe_range(minors: list[tuple[int, int]]) -> str:
    """A requirement that these minor versions meet and no other."""
    (first, low), (last, high) = minors[0], minors[-1]
    if first != last:
        raise SystemExit("adapters of different major versions of torch are two wheels")
    gaps = "".join(f",!={first}.{minor}.*" for minor in range(low, high) if (first, minor) not in minors)
    return f"torch>={first}.{low},<{last}.{high + 1}{gaps}"


def set_range(metadata: bytes, requirement: str) -> bytes:
    text, count = re.subn(r"(?m)^Requires-Dist: torch\b[^;\n]*$", f"Requires-Dist: {requirement}", metadata.decode())
    if count != 1:
        raise SystemExit(f"the metadata has {count} requirements of torch")
    return text.encode()


def write(path: Path, files: dict[str, tuple[zipfile.ZipInfo, bytes]]) -> None:
    """With a RECORD of what is in it."""
    record = next(name for name in files if name.endswith(".dist-info/RECORD"))
    rows = io.StringIO()
    lines = csv.writer(rows, lineterminator="\n")
    for name, (_, data) in files.items():
        if name != record:
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            lines.writerow([name, f"sha256={digest}", len(data)])
    lines.writerow([record, "", ""])
    files[record] = files[record][0], rows.getvalue().encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for info, data in files.values():
            wheel.writestr(info, data, zipfile.ZIP_DEFLATED)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheels", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    files = read(options.wheels[0])
    for path in options.wheels[1:]:
        files.update({name: found for name, found in read(path).items() if ADAPTER.match(name)})
    requirement = describe_range(list_minors(list(files)))
    metadata = next(name for name in files if name.endswith(".dist-info/METADATA"))
    files[metadata] = files[metadata][0], set_range(files[metadata][1], requirement)
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / options.wheels[0].name
        write(whole, files)
        words = [sys.executable, "-m", "auditwheel"]
        outside = [word for pattern in OUTSIDE for word in ("--exclude", pattern)]
        subprocess.run([*words, "repair", *outside, "-w", str(options.out), str(whole)], check=True)
    made = max(options.out.glob("ditorch-*.whl"), key=lambda path: path.stat().st_mtime)
    print(f"{made}: {made.stat().st_size / 2**20:.1f} MiB, {requirement}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
