"""A wheel as a stranger has it: a fresh environment, torch from PyPI, no source tree, no compiler.

    python tools/try_wheel.py build/wheels/ditorch-*.whl --torch 2.13.0 [--site FOLDER]

`--site`: take torch and its requirements from this folder instead of downloading them.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ONE = "import ditorch, torch; print(torch.ones(2).cuda()+1)"
UNKNOWN = "import torch; torch.__version__ = '2.7.0'; import ditorch"


def run(folder: str, *command: str, status: int = 0) -> str:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH" and not k.startswith("DITORCH_")}
    environment["PATH"] = "/nowhere"  # no compiler, no other Python
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode != status:
        raise SystemExit(f"{command}: status {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return done.stdout + done.stderr


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--torch", default="2.13.0")
    parser.add_argument("--site", type=Path)
    options = parser.parse_args()
    wheel = str(options.wheel.resolve())
    with tempfile.TemporaryDirectory(prefix="ditorch-wheel-") as folder:
        subprocess.run([sys.executable, "-m", "venv", f"{folder}/venv"], check=True)
        python = f"{folder}/venv/bin/python"
        pip = [python, "-m", "pip", "install", "--disable-pip-version-check", "-q"]
        if options.site:
            site = run(folder, python, "-c", "import site; print(site.getsitepackages()[0])").strip()
            Path(site, "outer.pth").write_text(f"{options.site.resolve()}\n")
            run(folder, *pip, "--no-deps", "--no-index", wheel)
        else:
            run(folder, *pip, f"torch=={options.torch}", wheel)
        text = run(folder, python, "-c", ONE)
        assert "tensor([2., 2.], device='cuda:0')" in text, text
        print(text[text.index("tensor(") :].splitlines()[0])
        text = run(folder, python, "-c", UNKNOWN, status=1).strip().splitlines()[-1]
        assert text.startswith("ImportError: ditorch was built for torch") and "torch 2.7.0 is running" in text, text
        print(text)
        for words in (["doctor"], ["conform", "run", "--function", "Softmax", "--quiet", "--jobs", "1"]):
            run(folder, f"{folder}/venv/bin/ditorch", *words)
    print(f"{options.wheel.name} works with torch {options.torch}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
