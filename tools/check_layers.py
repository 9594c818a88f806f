"""Check that includes only point downwards through the layers (docs/architecture.md)."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]', re.MULTILINE)
# Lower layers first: a folder of src/ may include itself and the ones before it.
LAYERS = ["core", "numerics", "judge", "record", "store", "device", "helper", "diopirt", "ops"]
VENDOR_HEADERS = ("host.h", "host_", "helper_cuda.h", "helper_driver.h", "helper_kernels.h", "vendors/")
TORCH = re.compile(r"^(ATen|c10|torch|caffe2)/")


def check_file(path: str, text: str) -> list[str]:
    """Return one message per include that this file must not have."""
    problems = []
    for _, name in INCLUDE.findall(text):
        if name == "Python.h" and not path.startswith("python/ext/"):
            problems.append(f"{path}: Python.h belongs to python/ext alone")
        if TORCH.match(name) and not path.startswith("adapter/"):
            problems.append(f"{path}: torch header {name} outside adapter/")
        match = re.match(r"src/(\w+)/", path)
        target = name.split("/")[0]
        if match and target in LAYERS and match[1] in LAYERS and LAYERS.index(target) > LAYERS.index(match[1]):
            problems.append(f"{path}: layer {match[1]} includes {name} of the higher layer {target}")
        if path.startswith(("src/", "include/")) and name.startswith(VENDOR_HEADERS):
            problems.append(f"{path}: vendor header {name} outside its vendor")
    return problems


def main() -> int:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    problems = []
    for path in listed:
        if path.endswith((".cu", ".cuh")) and not path.startswith("vendors/cuda/"):
            problems.append(f"{path}: CUDA kernels outside vendors/cuda")
        if path.endswith((".c", ".h", ".cpp", ".cu", ".cuh")) and (ROOT / path).exists():
            problems += check_file(path, (ROOT / path).read_text())
            if path.endswith(".cpp") and not path.startswith(("adapter/", "tests/")):
                problems.append(f"{path}: C++ outside adapter/")
    print("\n".join(problems) or "layers: ok")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
