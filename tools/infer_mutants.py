"""Break the C kernels of the inference operators, one line at a time, and see whether tests/python/test_infer_ops.py
notices. Writes the sources back whatever happens.

    python tools/infer_mutants.py
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / "vendors/host/infer"
MUTANTS = [
    ("attention_work.c", "own + 1 - first : call", "own + 2 - first : call"),
    ("attention_work.c", "own - call->window + 1 - first", "own - call->window - first"),
    ("attention_work.c", "score -= call->slopes[head]", "score += call->slopes[head]"),
    ("attention_work.c", "sum += expf(call->sinks[head] - max);", "sum += expf(call->sinks[head] - 2 * max);"),
    ("attention_work.c", "tanhf(score / (float)call->softcap)", "tanhf(score)"),
    ("attention_work.c", "t->sum[row] *= factor;", ""),
    ("attention_work.c", "scale_row(q, call->width, (float)call->scale);", ""),
    ("attention_work.c", "sum += piece[1] * factor;", "sum += piece[1];"),
    ("attention_work.c", "((float)q[i] + zero) * scale", "((float)q[i] - zero) * scale"),
    ("attention_work.c", "j % call->block_size * rows->row", "(j + 1) % call->block_size * rows->row"),
    ("attention.c", "number >= 0 && number < count", "number >= 0"),
    ("attention.c", "lengths[i] <= columns * size", "lengths[i] <= columns * size + 1"),
    ("product.c", "awq_order[8] = {0, 2, 4, 6, 1, 3, 5, 7}", "awq_order[8] = {0, 1, 2, 3, 4, 5, 6, 7}"),
    ("product.c", "p->awq ? 0 : 8, p->awq ? 0 : 8", "0, 0"),
    ("product.c", "k / p->group, first", "0, first"),
    ("product.c", "sum * w->row_scales[row] * scales[j]", "sum * w->row_scales[0] * scales[j]"),
]


def run(*command: str) -> bool:
    return subprocess.run(command, cwd=ROOT, capture_output=True, check=False, timeout=300).returncode == 0


def main() -> int:
    cmake, python = ROOT / ".venv/bin/cmake", ROOT / ".venv/bin/python"
    settings = (ROOT / ".venv/cpu-environment").read_text().split() if (ROOT / ".venv/cpu-environment").exists() else []
    os.environ.update(entry.split("=", 1) for entry in settings if "=" in entry)
    build = (str(cmake), "--build", "build/dev", "--target", "diopi_host", "-j", "2")
    test = (str(python), "-m", "pytest", "-q", "-x", "tests/python/test_infer_ops.py")
    if not (run(*build) and run(*test)):
        print("the unbroken kernels fail already: nothing to learn")
        return 1
    missed = []
    for name, old, new in MUTANTS:
        path = FOLDER / name
        text = path.read_text()
        if old not in text:
            missed.append(f"{name}: no such text: {old}")
            continue
        try:
            path.write_text(text.replace(old, new, 1))
            if not run(*build):
                missed.append(f"{name}: does not build: {new or 'nothing'}")
            elif run(*test):
                missed.append(f"{name}: not noticed: {old} -> {new or 'nothing'}")
        finally:
            path.write_text(text)
    run(*build)
    print(*missed, sep="\n")
    print(f"{len(MUTANTS) - len(missed)} of {len(MUTANTS)} noticed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
