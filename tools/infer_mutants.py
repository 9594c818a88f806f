"""Break the C kernels of the inference operators, one line at a time, and see whether tests/python/test_infer_ops.py
and test_infer_shapes.py notice. Writes the sources back whatever happens.

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
    ("attention_work.h", "? own + 1 : call->window", "? own + 2 : call->window"),
    ("attention_work.h", "own - call->window + 1 : 0", "own - call->window : 0"),
    ("attention_work.h", "j % call->block_size * rows->row", "(j + 1) % call->block_size * rows->row"),
    ("attention_few.c", "scores[j] -= slope * fabsf", "scores[j] += slope * fabsf"),
    ("attention_few.c", "tanh_f32(scores[j] / softcap)", "tanh_f32(scores[j])"),
    ("attention_few.c", "sums[l] *= *factor;", ""),
    ("attention_few.c", "if (factor != 1) {", "if (factor > 1) {"),
    ("attention_many.c", "p[l] -= c->slopes[l]", "p[l] += c->slopes[l]"),
    ("attention_many.c", "tanh_f32(p[l] / c->softcap)", "tanh_f32(p[l])"),
    ("attention_many.c", "sum[l] = c->sum[from + l] * factor;", "sum[l] = c->sum[from + l];"),
    ("attention_many.c", "m->high[last] <= first ||", "m->high[from] <= first ||"),
    ("attention_many.c", "m->low[last] > first,", "false,"),
    (
        "attention_work.c",
        "sum += expf(call->sinks[place->head] - max);",
        "sum += expf(call->sinks[place->head] - 2 * max);",
    ),
    ("attention_work.c", "q[i] *= scale;", ""),
    ("attention_work.c", "sum += piece[1] * factor;", "sum += piece[1];"),
    ("attention_work.c", "(acc[i] + zero) * factor", "acc[i] * factor"),
    ("attention_work.c", "return call->k.zero * (float)sum;", "return 0;"),
    ("attention.c", "number >= 0 && number < count", "number >= 0"),
    ("attention.c", "lengths[i] <= columns * size", "lengths[i] <= columns * size + 1"),
    ("panel_loops.h", "j + (i < n ? i : n - 1)", "j + (i < n ? 0 : n - 1)"),
    ("panel_loops.h", "if (p->adds) {", "if (false) {"),
    ("linear_packed.c", "awq_order[8] = {0, 2, 4, 6, 1, 3, 5, 7}", "awq_order[8] = {0, 1, 2, 3, 4, 5, 6, 7}"),
    ("linear_packed.c", "p->awq ? 0 : 0x88888888u", "0"),
    ("linear_packed.c", "read_group(p, g, tile);", "read_group(p, 0, tile);"),
    ("linear_packed.c", "depth, k > 0);", "depth, false);"),
    ("linear_whole.c", "w->row_scales[row + i]", "w->row_scales[0]"),
    ("linear_whole.c", "#define WHOLE_DEPTH 65536", "#define WHOLE_DEPTH 262144"),
    ("moe.c", "part->x_row + k * lanes", "part->x_row"),
    ("moe.c", "m->call->renormalize ? weight / total : weight", "weight"),
    ("moe.c", "part.first += m->inner;", ""),
]


def run(*command: str) -> bool:
    return subprocess.run(command, cwd=ROOT, capture_output=True, check=False, timeout=300).returncode == 0


def main() -> int:
    cmake, python = ROOT / ".venv/bin/cmake", ROOT / ".venv/bin/python"
    settings = (ROOT / ".venv/cpu-environment").read_text().split() if (ROOT / ".venv/cpu-environment").exists() else []
    os.environ.update(entry.split("=", 1) for entry in settings if "=" in entry)
    build = (str(cmake), "--build", "build/dev", "--target", "diopi_host", "-j", "2")
    test = (
        str(python),
        "-m",
        "pytest",
        "-q",
        "-x",
        "tests/python/test_infer_ops.py",
        "tests/python/test_infer_shapes.py",
    )
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
