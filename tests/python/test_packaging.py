"""The wheel: installs into a fresh environment, works without the source tree, leaves nothing when removed."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.full
ROOT = Path(__file__).resolve().parents[2]
SCRIPT = "import torch; x = torch.ones(3, device='cuda'); print((x + 1).sum().item(), torch.cuda.get_device_name())"


def run(*command: str, **changes: str) -> str:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH" and not k.startswith("DITORCH_")}
    answer = subprocess.run(command, capture_output=True, text=True, env={**environment, **changes}, cwd="/")
    assert answer.returncode == 0, f"{command}\n{answer.stdout[-3000:]}\n{answer.stderr[-3000:]}"
    return answer.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "-q", "--no-deps"]
    run(*pip, "--no-build-isolation", "-w", str(folder), str(ROOT))
    return next(folder.glob("ditorch-*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory) -> Path:
    """A fresh environment that sees torch of this one and has the wheel installed; returns its python."""
    home = tmp_path_factory.mktemp("home")
    run(sys.executable, "-m", "venv", "--without-pip", str(home))
    python = home / "bin" / "python"
    site = Path(run(str(python), "-c", "import site; print(site.getsitepackages()[0])").strip())
    (site / "outer.pth").write_text(next(path for path in sys.path if path.endswith("site-packages")) + "\n")
    run(str(python), "-m", "pip", "install", "-q", "--no-deps", "--no-index", str(wheel))
    return python


def test_wheel_contains_the_libraries(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    libraries = ["libdit.so", "libdit_vendor_host.so", "libdiopi_host.so", "libdiopi_faulty.so"]
    adapter = "torch-" + ".".join(torch.__version__.split(".")[:2])
    libraries += ["libdiopi_adapt.so", f"{adapter}/libdit_torch.so"]
    for file in [*libraries, "dit_conform", f"{adapter}/build.json"]:
        assert names.count(f"ditorch/lib/{file}") == 1, names
    assert any(name.startswith("ditorch/_C.") and name.endswith(".so") for name in names)
    assert {f"{name}/py.typed" for name in ("ditorch", "op_tools", "module_tools", "ditorch_pytest")} <= set(names)
    assert "ditorch/_C.pyi" in names
    assert {"ditorch/report/page.html", "ditorch/report/page.css", "ditorch/report/page.js"} <= set(names)
    assert {"ditorch/include/diopi/functions.h", "ditorch/include/dit/diopi.h"} <= set(names)
    assert not [name for name in names if name.endswith((".c", ".cpp", ".o"))]


def test_installed_package_runs_a_script(installed: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    assert run(str(installed), "-m", "ditorch", str(script)).startswith("6.0 ditorch host device")


def test_console_script(installed: Path) -> None:
    assert run(str(installed.parent / "ditorch"), "version").strip()


def test_conformance_suite(installed: Path, tmp_path: Path) -> None:
    """The runner and its cases come with the wheel: the host library passes, the one that lies does not."""
    command = [str(installed), "-m", "ditorch", "conform", "run", "--function", "diopiSoftmax", "--jobs", "1"]
    assert "pass" in run(*command, "--library", "host")
    broken = {**os.environ, "DITORCH_FAULTY": "nan:diopiSoftmax"}
    answer = subprocess.run([*command, "--library", "faulty"], capture_output=True, text=True, env=broken, cwd=tmp_path)
    assert answer.returncode == 1 and "diopiSoftmax" in answer.stdout, answer.stderr


def test_headers_compile(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "vendor.c").write_text('#include "diopi/functions.h"\n#include "dit/device.h"\nint unused;\n')
    headers = run(str(installed), "-m", "ditorch", "include").strip()
    assert headers.startswith(str(installed.parent.parent))
    run("cc", "-std=c11", f"-I{headers}", "-fsyntax-only", str(tmp_path / "vendor.c"))


def test_autoload(installed: Path) -> None:
    assert run(str(installed), "-c", SCRIPT, DITORCH_AUTOLOAD="1").startswith("6.0")
    answer = subprocess.run([str(installed), "-c", SCRIPT], capture_output=True, text=True, cwd="/")
    assert answer.returncode != 0, "without DITORCH_AUTOLOAD nothing may happen"


def test_uninstall_leaves_nothing(installed: Path) -> None:
    site = Path(run(str(installed), "-c", "import site; print(site.getsitepackages()[0])").strip())
    run(str(installed), "-m", "pip", "uninstall", "-q", "-y", "ditorch")
    assert not [path.name for path in site.iterdir() if "ditorch" in path.name]
    assert not (installed.parent / "ditorch").exists()
