"""Runs every benchmark and writes docs/measurements.md: machine, commands, medians with spread, goals, met or missed.

With --only, the sections of the other benchmarks stay as they are in the file.

python bench/run.py [--only bench_alias,bench_import] [--output docs/measurements.md] [--quick]
"""

import argparse
import glob
import json
import os
import subprocess
import sys
import time

import common

# Name: file, arguments, further arguments of --quick.
PROGRAMS = {
    "bench_alias": ("bench_alias", [], ["--rounds", "3", "--calls", "500"]),
    "bench_small_ops": ("bench_small_ops", [], ["--rounds", "9", "--calls", "300"]),
    "bench_fallback": ("bench_fallback", [], ["--rounds", "5"]),
    "bench_step": ("bench_step", [], ["--rounds", "3"]),
    "bench_import": ("bench_import", [], ["--rounds", "3"]),
    "ops/run": ("ops/run", [], ["--rounds", "3", "--dtype", "float32"]),
    "ops/detection": ("ops/detection", [], ["--rounds", "3"]),
    "step": ("step", [], ["--quick"]),
    "step_llama": ("step", ["--model", "llama"], ["--quick"]),
    "act": ("act", [], ["--quick"]),
    "compile": (
        "compile",
        [],
        ["--rounds", "3", "--sides", "aot_eager,dit", "--only", "heavy_64x128,softmax,one_token"],
    ),
    "false_alarms": ("false_alarms", ["--only", "training", "--report"], ["--seeds", "1"]),
    "faultlab/run": ("faultlab/run", [], ["--faults", "24", "--clean", "8", "--fresh"]),
}


def run_python(name, quick):
    file, arguments, few = PROGRAMS[name]
    path = os.path.join(common.ROOT, "bench", file + ".py")
    environment = dict(os.environ)
    environment["PYTHONPATH"] = os.pathsep.join(
        filter(None, [os.path.join(common.ROOT, "python"), environment.get("PYTHONPATH")])
    )
    answer = subprocess.run(
        [sys.executable, "-W", "ignore", path, *arguments, *(few if quick else [])],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    result = read_result(answer.stdout)
    if result is None:  # it did not get as far as its figures
        result = {
            "title": name,
            "command": " ".join(["python", f"bench/{file}.py", *arguments]),
            "note": "",
            "rows": [],
        }
    return {**result, "failed": answer.returncode}


def read_result(text):
    """The last line, when it is a result."""
    try:
        result = json.loads(text.splitlines()[-1])
    except (IndexError, ValueError):
        return None
    return result if isinstance(result, dict) and "rows" in result else None


def c_programs():
    """Executables of bench/c in the build folder of `make build`."""
    found = {}
    for path in sorted(glob.glob(os.path.join(common.ROOT, "build", "dev", "bench", "c", "bench_*"))):
        if os.path.isfile(path) and os.access(path, os.X_OK):
            found[os.path.basename(path)] = path
    return sorted(found.values())


def run_c(path):
    answer = subprocess.run([path], capture_output=True, text=True)
    print(answer.stdout, file=sys.stderr, end="")
    return {
        "title": f"C benchmark {os.path.basename(path)}",
        "command": os.path.relpath(path, common.ROOT),
        "note": "",
        "rows": [],
        "text": answer.stdout.rstrip(),
        "failed": answer.returncode,
    }


def render_head(machine, seconds):
    return "\n".join(
        [
            "# Measurements",
            "",
            "(On a GPU: [measurements-gpu.md](measurements-gpu.md).)",
            "",
            f"Written by `make bench` ({seconds:.0f} s). Machine: {machine}.",
            "Figures are medians with quartiles in parentheses; both sides of a ratio are measured in turns in one "
            "run.",
            "",
            "",
        ]
    )


def render_section(result):
    lines = [f"## {result['title']}", "", f"`{result['command']}`", ""]
    if result.get("note"):
        lines += [result["note"], ""]
    if result.get("failed"):
        lines += [f"**The program ended with exit status {result['failed']}.**", ""]
    if result.get("text"):
        lines += ["```", result["text"], "```", ""]
    if result["rows"]:
        lines += ["| what | measured | goal | |", "|---|---|---|---|"]
        lines += [f"| {row['what']} | {row['figure']} | {row['goal']} | {row['met']} |" for row in result["rows"]]
        lines.append("")
    return "\n".join(lines)


def replace_sections(text, results, machine):
    """The text with these sections in place of those of the same titles, new ones before the C benchmarks; each says
    which machine it was measured on, since the head speaks of another run."""
    head, *sections = text.split("\n## ")
    sections = [f"## {section.strip()}\n" for section in sections]
    for result in results:
        result = {**result, "note": f"{result['note']} Measured apart: {machine}.".strip()}
        title, new = f"## {result['title']}\n", render_section(result)
        places = [i for i, section in enumerate(sections) if section.startswith(title)]
        if places:
            sections[places[0]] = new
        else:
            ends = [i for i, section in enumerate(sections) if section.startswith("## C benchmark")]
            sections.insert(ends[0] if ends else len(sections), new)
    return head.rstrip() + "\n\n" + "\n".join(sections)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", help=f"comma list of {', '.join(PROGRAMS)}")
    parser.add_argument("--output", default=os.path.join(common.ROOT, "docs", "measurements.md"))
    parser.add_argument("--quick", action="store_true", help="few rounds: does everything run?")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else list(PROGRAMS)
    unknown = sorted(set(names) - set(PROGRAMS))
    if unknown:
        raise SystemExit(f"unknown benchmarks: {', '.join(unknown)}; valid: {', '.join(PROGRAMS)}")
    machine, start, results = common.machine(), time.monotonic(), []
    for index, name in enumerate(names):
        print(f"[{index + 1}/{len(names)}] {name}", file=sys.stderr)
        results.append(run_python(name, options.quick))
    if not options.only:
        results += [run_c(path) for path in c_programs()]
    os.makedirs(os.path.dirname(os.path.abspath(options.output)), exist_ok=True)
    text = render_head(machine, time.monotonic() - start) + "\n".join(render_section(result) for result in results)
    if options.only and os.path.exists(options.output):
        with open(options.output) as file:
            text = replace_sections(file.read(), results, machine)
    with open(options.output, "w") as file:
        file.write(text)
    print(f"wrote {options.output}", file=sys.stderr)
    failed = [r["title"] for r in results if r.get("failed")]
    return f"failed: {', '.join(failed)}" if failed else 0


if __name__ == "__main__":
    sys.exit(main())
