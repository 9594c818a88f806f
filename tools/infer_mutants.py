"""Break the C kernels of the inference operators, one line at a time, and see whether tests/python/test_infer_ops.py
and test_infer_shapes.py notice. Works on copies: the sources and the library stay as they are.

    python tools/infer_mutants.py [norm.c cache.c ...]
"""

from __future__ import annotations

import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build/dev"
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
    ("norm.c", "x[i] * factor * gain[i]", "x[i] * factor + 0 * gain[i]"),
    ("norm.c", "out[i] = a[i] + b[i];", "out[i] = a[i] - b[i];"),
    ("norm.c", "for (; i < count; i++) {\n    most", "for (; i < count - 1; i++) {\n    most"),
    ("norm.c", "const float size = fabsf(x[i + l]);", "const float size = x[i + l];"),
    ("norm.c", "((both + 12582912.0f) - 12582912.0f)", "both"),
    ("norm.c", "[row] = largest / 127;", "[row] = largest / 128;"),
    ("norm.c", "mean + n->epsilon", "mean"),
    ("norm.c", "x = row_read(n->added, row * n->width, n->width, room);", "x = second;"),
    ("norm.c", "row_find(n->residual, row)", "row * n->width"),
    ("activation.c", "gate[i] * sigmoid_f32(gate[i]) * up[i]", "sigmoid_f32(gate[i]) * up[i]"),
    ("activation.c", "a * cos[i] - b * sin[i]", "a * cos[i] + b * sin[i]"),
    ("activation.c", "b * cos[i + half] + a * sin[i + half]", "b * cos[i] + a * sin[i + half]"),
    ("activation.c", "b * cos[2 * i + 1] + a * sin[2 * i + 1]", "b * cos[2 * i + 1] - a * sin[2 * i + 1]"),
    ("activation.c", "x + g->width, g->width);", "x, g->width);"),
    ("cache.c", "&& slot >= 0; head++", "; head++"),
    ("cache.c", "slot % block * strides[1]", "slot % block * strides[2]"),
    ("cache.c", "head * strides[2], f", "head * f->rows->sizes[2], f"),
    ("cache.c", "- f->zero);", "+ f->zero);"),
    ("cache.c", "value < -128 ? -128 : value > 127 ? 127 : value", "value"),
    ("cache.c", "slot < -1 || slot >= count", "slot < -1"),
    ("cache.c", "if (!lies_inside(&call->value_cache, &call->key_cache)) {", "if (true) {"),
    ("cache.c", "? row_number(&call->value_scale, 0) : 1", "? row_number(&call->key_scale, 0) : 1"),
]


LIBRARY = "libdiopi_host.so"
TESTS = ("tests/python/test_infer_ops.py", "tests/python/test_infer_shapes.py")


def run(command: list[str], folder: pathlib.Path = ROOT, **variables: str) -> bool:
    environment = {**os.environ, **variables}
    done = subprocess.run(command, cwd=folder, capture_output=True, check=False, timeout=900, env=environment)
    return done.returncode == 0


def read_commands() -> tuple[dict[str, list[str]], list[str]]:
    """How each file of the folder is compiled, and how the library is linked."""
    rows = json.loads((BUILD / "compile_commands.json").read_text())
    files = {
        pathlib.Path(row["file"]).name: shlex.split(row["command"])
        for row in rows
        if pathlib.Path(row["file"]).parent == FOLDER and "diopi_host.dir" in row["command"]
    }
    listed = subprocess.run(
        [str(ROOT / ".venv/bin/ninja"), "-C", str(BUILD), "-t", "commands", LIBRARY],
        capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    last = next(line for line in reversed(listed) if f"{LIBRARY} " in line and "-shared" in line)
    words = shlex.split(last)
    return files, words[words.index(next(word for word in words if word.startswith("/") or word in ("cc", "gcc"))) :]


def find_users(folder: pathlib.Path, name: str) -> list[str]:
    """The sources that a file is part of."""
    if name.endswith(".c"):
        return [name]
    users: list[str] = []
    for path in sorted(folder.iterdir()):
        if f'#include "{name}"' in path.read_text():
            users += find_users(folder, path.name)
    return sorted(set(users))


def build(folder: pathlib.Path, name: str, files: dict[str, list[str]], link: list[str]) -> str | None:
    """The library with the copy's form of one file; None where it does not build."""
    words = list(link)
    for source in find_users(folder, name):
        command, made = list(files[source]), folder / f"{source}.o"
        old = command[command.index("-o") + 1]
        command = [str(made) if word == old else word for word in command]
        command = [str(folder / source) if word == str(FOLDER / source) else word for word in command]
        if not run(command, BUILD):
            return None
        words = [str(made) if word == old else word for word in words]
    out = folder / LIBRARY
    words[words.index("-o") + 1] = str(out)
    words = words[: words.index("&&")] if "&&" in words else words
    return str(out) if run(words, BUILD) else None


def is_noticed(library: str) -> bool:
    command = [str(ROOT / ".venv/bin/python"), "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *TESTS]
    return not run(command, DITORCH_DIOPI_LIB=library, PYTHONPATH=str(ROOT / "python"))


def main() -> int:
    settings = (ROOT / ".venv/cpu-environment").read_text().split() if (ROOT / ".venv/cpu-environment").exists() else []
    os.environ.update(entry.split("=", 1) for entry in settings if "=" in entry)
    files, link = read_commands()
    chosen = [mutant for mutant in MUTANTS if not sys.argv[1:] or mutant[0] in sys.argv[1:]]
    missed = []
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place) / FOLDER.name
        shutil.copytree(FOLDER, folder)
        whole = build(folder, "norm.c", files, link)
        if whole is None or is_noticed(whole):
            print("the unbroken kernels fail already: nothing to learn")
            return 1
        for name, old, new in chosen:
            text = (folder / name).read_text()
            (folder / name).write_text(text.replace(old, new, 1))
            library = build(folder, name, files, link) if old in text else ""
            (folder / name).write_text(text)
            for made in folder.glob("*.o"):
                made.unlink()
            words = f"{old} -> {new or 'nothing'}"
            said = "no such text" if library == "" else "does not build" if library is None else None
            if said or not is_noticed(str(library)):
                missed.append(f"{name}: {said or 'not noticed'}: {words}")
                print(missed[-1], flush=True)
    print(f"{len(chosen) - len(missed)} of {len(chosen)} noticed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
