"""Check that includes and imports only point downwards through the layers (docs/architecture.md)."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]', re.MULTILINE)
# Lower layers first: a folder of src/ may include itself and the ones before it.
LAYERS = ["core", "numerics", "judge", "record", "align", "store", "device", "helper", "diopirt", "ops", "graph"]
VENDOR_HEADERS = ("host.h", "host_", "helper_cuda.h", "driver.h", "helper_kernels.h", "vendors/")
TORCH = re.compile(r"^(ATen|c10|torch|caffe2)/")

# A folder of python/ and what its modules must not import.
UPWARDS = {
    "python/ditorch/": ("op_tools", "module_tools"),
    "python/op_tools/": ("module_tools",),
    "python/op_tools/reader/": ("op_tools.replay", "op_tools.repro", "op_tools.legacy", "op_tools.op_runner"),
}
DISPATCH = ("python/ditorch/cli.py", "python/ditorch/command/")
"""The command line, which may import the tools of a subcommand inside of a function."""
MODULE_NAME = re.compile(r'"((?:ditorch|op_tools|module_tools)(?:\.[A-Za-z]\w*)*)"')
"""A Python module of ours in C; ditorch._C is the extension itself."""
KNOWN_IN_EXTENSION = {
    ("python/ext/engine/backward_hooks.c", "ditorch"),  # a key, no import
    ("python/ext/engine/environ.c", "ditorch.environ_watch"),  # an audit event, no import
    ("python/ext/engine/location.c", "ditorch"),  # whose frames are not the user's
    ("python/ext/engine/location.c", "op_tools"),
}
"""What the extension names of the packages above it today; nothing may be added."""


def check_file(path: str, text: str) -> list[str]:
    """Return one message per include, and per thread that is started in a way, that this file must not have."""
    problems = []
    if "pthread_create(" in text and path.startswith(("src/", "vendors/", "adapter/", "python/ext/")):
        problems += [] if path == "src/core/thread.c" else [f"{path}: threads are started by dit_thread_create alone"]
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


def check_extension(path: str, text: str) -> list[str]:
    """Return one message per Python module above the extension that it names."""
    found = [name for name in MODULE_NAME.findall(text) if (path, name) not in KNOWN_IN_EXTENSION]
    return [f"{path}: the extension names the Python module {name}, which is above it" for name in found]


def check_python(path: str, text: str) -> list[str]:
    """Return one message per import of a higher package."""
    refused = [name for folder, names in UPWARDS.items() if path.startswith(folder) for name in names]
    problems = []
    for line, indent, name in list_imports(path, text) if refused else ():
        if any(f"{name}.".startswith(f"{other}.") for other in refused) and not (path.startswith(DISPATCH) and indent):
            problems.append(f"{path}:{line}: imports {name}, which is above it")
    return problems


def list_imports(path: str, text: str) -> list[tuple[int, int, str]]:
    """Line, indentation and full name of everything that a module imports."""
    package = path.removeprefix("python/").split("/")[:-1]
    found = []
    for node in ast.walk(ast.parse(text, path)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            base = [*base, *filter(None, [node.module])]
            names = [".".join([*base, alias.name]) for alias in node.names]
        elif isinstance(node, ast.Call) and "import" in ast.unparse(node.func):
            names = [value.value for value in node.args if isinstance(value, ast.Constant)]
        found += [(node.lineno, node.col_offset, name) for name in names if isinstance(name, str)]
    return found


def main() -> int:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    problems = []
    for path in listed:
        if path.endswith((".cu", ".cuh")) and not path.startswith("vendors/cuda/"):
            problems.append(f"{path}: CUDA kernels outside vendors/cuda")
        if not (ROOT / path).exists():
            continue
        if path.startswith("python/") and path.endswith(".py"):
            problems += check_python(path, (ROOT / path).read_text())
        if path.startswith("python/ext/") and path.endswith((".c", ".h")):
            problems += check_extension(path, (ROOT / path).read_text())
        if path.endswith((".c", ".h", ".cpp", ".cu", ".cuh")):
            problems += check_file(path, (ROOT / path).read_text())
            if path.endswith(".cpp") and not path.startswith(("adapter/", "tests/")):
                problems.append(f"{path}: C++ outside adapter/")
    print("\n".join(problems) or "layers: ok")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
