"""Break the C kernels of the inference operators, one line at a time, and see whether tests/python/test_infer_ops.py
and test_infer_shapes.py notice. Works on copies: the sources and the library stay as they are. What was seen is kept in
build/infer-mutants.jsonl, for the same kernels and the same tests, so that a run that was cut off goes on.

    python tools/infer_mutants.py [--jobs 2] [--afresh] [norm.c cache.c ...]
"""

from __future__ import annotations

import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading

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
    ("attention_work.c", "q[i] *= scale;", "q[i] *= 1 + 0 * scale;"),
    ("attention_work.c", "sum += piece[1] * factor;", "sum += piece[1];"),
    ("attention_work.c", "(acc[i] + zero) * factor", "(acc[i] + 0 * zero) * factor"),
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
    ("cache.c", "offset >= 0 &&", ""),
    (
        "cache.c",
        "offset + get_extent(value) * size <= get_extent(key) * size",
        "offset + 0 * get_extent(value) * size == 0 * get_extent(key)",
    ),
    (
        "cache.c",
        "offset + get_extent(value) * size <= get_extent(key) * size",
        "get_extent(value) * size > 0 * get_extent(key)",
    ),
    (
        "cache.c",
        "if (!lies_inside(&call->value_cache, &call->key_cache)) {",
        "if (lies_inside(&call->value_cache, &call->key_cache) || true) {",
    ),
    ("cache.c", "? row_number(&call->value_scale, 0) : 1", "? row_number(&call->key_scale, 0) : 1"),
]


LIBRARY = "libdiopi_host.so"
TESTS = ("tests/python/test_infer_ops.py", "tests/python/test_infer_shapes.py")


def run(command: list[str], folder: pathlib.Path = ROOT, **variables: str) -> bool:
    environment = {**os.environ, **variables}
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, check=False, timeout=1800, env=environment)
    except subprocess.TimeoutExpired:
        return False  # a broken loop need not end
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


def make_mark() -> str:
    """Of what a result depends on: the kernels and the tests."""
    kept = hashlib.sha256()
    for path in (*sorted(FOLDER.iterdir()), *(ROOT / name for name in TESTS)):
        kept.update(path.read_bytes())
    return kept.hexdigest()[:16]


class Journal:
    """What was seen of each mutant, a line each, written as soon as it is known."""

    def __init__(self, path: pathlib.Path, afresh: bool) -> None:
        self.path, self.mark, self.lock = path, make_mark(), threading.Lock()
        if afresh:
            path.unlink(missing_ok=True)
        rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        self.seen = {tuple(row["mutant"]): row["said"] for row in rows if row["mark"] == self.mark}

    def add(self, mutant: tuple[str, ...], said: str) -> None:
        with self.lock, self.path.open("a") as file:
            self.seen[mutant] = said
            file.write(json.dumps({"mark": self.mark, "mutant": mutant, "said": said}) + "\n")


def try_one(mutant: tuple[str, str, str], files: dict[str, list[str]], link: list[str]) -> str:
    """ "noticed", or why not. In a copy of the folder."""
    name, old, new = mutant
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place) / FOLDER.name
        shutil.copytree(FOLDER, folder)
        text = (folder / name).read_text()
        if old not in text:
            return "no such text"
        (folder / name).write_text(text.replace(old, new, 1))
        library = build(folder, name, files, link)
        if library is None:
            return "does not build"
        return "noticed" if is_noticed(library) else "not noticed"


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("files", nargs="*", help="only the mutants of these files")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--afresh", action="store_true", help="forget what was seen before")
    return parser.parse_args()


def main() -> int:
    arguments = read_arguments()
    settings = (ROOT / ".venv/cpu-environment").read_text().split() if (ROOT / ".venv/cpu-environment").exists() else []
    os.environ.update(entry.split("=", 1) for entry in settings if "=" in entry)
    files, link = read_commands()
    chosen = [mutant for mutant in MUTANTS if not arguments.files or mutant[0] in arguments.files]
    journal = Journal(ROOT / "build/infer-mutants.jsonl", arguments.afresh)
    whole = ("norm.c", "#include", "#include")
    if journal.seen.get(whole) != "not noticed":
        journal.add(whole, try_one(whole, files, link))
        if journal.seen[whole] != "not noticed":
            print(f"the unbroken kernels fail already ({journal.seen[whole]}): nothing to learn")
            return 1
    waiting = [mutant for mutant in chosen if mutant not in journal.seen]

    def see(mutant: tuple[str, str, str]) -> None:
        journal.add(mutant, try_one(mutant, files, link))
        print(f"{mutant[0]}: {journal.seen[mutant]}: {mutant[1]} -> {mutant[2] or 'nothing'}", flush=True)

    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        list(pool.map(see, waiting))
    missed = [mutant for mutant in chosen if journal.seen[mutant] != "noticed"]
    for name, old, new in missed:
        print(f"{name}: {journal.seen[name, old, new]}: {old} -> {new or 'nothing'}")
    print(f"{len(chosen) - len(missed)} of {len(chosen)} noticed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
