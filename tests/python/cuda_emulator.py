"""Where the emulated CUDA driver lies, for the tests that run the CUDA library over it."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EMULATOR = sorted(ROOT.glob("build/*/tests/cuda_emulator/libcuda.so.1"), key=os.path.getmtime)
LIBRARY = ROOT / "python" / "ditorch" / "lib" / "libdiopi_cuda.so"
needs_emulator = pytest.mark.skipif(
    not EMULATOR or not LIBRARY.exists(), reason="the emulated CUDA driver is not built (cmake -DDIT_TESTS=ON)"
)
