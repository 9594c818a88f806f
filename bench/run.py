"""Measures sections and writes them into docs/measurements.md: machine, commands, medians with spread, goals.

Every section is written as soon as it is measured; the other ones stay as they are. Ctrl-C keeps what is measured.

python bench/run.py [--sections "small_ops step"] [--full | --quick] [--output docs/measurements.md]
"""

import argparse
import datetime
import json
import os
import subprocess
import sys
import time

import common
import measurements
import sections


def run_section(section, form):
    """What measurements.render takes."""
    command = section.command(form)
    environment = dict(os.environ)
    environment["PYTHONPATH"] = os.pathsep.join(
        filter(None, [os.path.join(common.ROOT, "python"), environment.get("PYTHONPATH")])
    )
    facts = {"section": section.name, "form": form, "title": section.name, "note": "", "rows": []}
    facts |= {"machine": common.machine(), "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")}
    words = command if section.is_c else [sys.executable, "-W", "ignore", *command[1:]]
    start, used = time.monotonic(), read_processor_time()
    answer = subprocess.run(words, stdout=subprocess.PIPE, text=True, env=environment, cwd=common.ROOT)
    facts |= {"seconds": time.monotonic() - start, "processor": read_processor_time() - used}
    facts["failed"] = answer.returncode
    if section.is_c:
        print(answer.stdout, file=sys.stderr, end="")
        found = {"title": f"C benchmark {os.path.basename(command[0])}", "text": answer.stdout.rstrip()}
    else:  # without figures, it did not get that far
        found = read_result(answer.stdout) or {}
    return {**facts, **found, "command": " ".join(command)}


def read_processor_time():
    """Of the children that ended: what a section costs, however busy the machine is."""
    times = os.times()
    return times.children_user + times.children_system


def read_result(text):
    """The last line, when it is a result."""
    try:
        result = json.loads(text.splitlines()[-1])
    except (IndexError, ValueError):
        return None
    return result if isinstance(result, dict) and "rows" in result else None


def tell_time(seconds):
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def estimate_rest(chosen, taken, known):
    """Seconds for the sections without an entry in `taken`. `known`: what earlier runs took; this run's pace against
    that counts, as far as it has come."""
    expected = {section.name: known.get(section.name, section.seconds) for section in chosen}
    done = sum(expected[name] for name in taken)
    pace = sum(taken.values()) / done if done else 1.0
    return pace * sum(seconds for name, seconds in expected.items() if name not in taken)


def measure(chosen, options, form):
    """{name: seconds}, names of the ones that failed. Stops at Ctrl-C, with what is measured written."""
    known = measurements.read_seconds(measurements.read(options.output), form)
    order = [section.name for section in sections.SECTIONS]
    taken, failed = {}, []
    for index, section in enumerate(chosen):
        rest = tell_time(estimate_rest(chosen, taken, known))
        print(f"[{index + 1}/{len(chosen)}] {section.name} (about {rest} to go)", file=sys.stderr, flush=True)
        try:
            result = run_section(section, form)
        except KeyboardInterrupt:
            return taken, failed, [section.name for section in chosen[index:]]
        taken[section.name] = result["seconds"]
        failed += [section.name] if result["failed"] else []
        # Read anew: two runs of different sections at the same time keep each other's.
        text = measurements.replace(measurements.read(options.output), section.name, measurements.render(result), order)
        measurements.write(options.output, text)
        processor = f"{result['processor']:.0f} s of processor time"
        print(f"  {section.name} took {result['seconds']:.0f} s, {processor}", file=sys.stderr)
    return taken, failed, []


def sum_up(options, taken, failed, left):
    for name, seconds in sorted(taken.items(), key=lambda item: -item[1]):
        print(f"  {seconds:6.0f} s  {name}", file=sys.stderr)
    print(f"  {sum(taken.values()):6.0f} s  in all; wrote {options.output}", file=sys.stderr)
    if left:
        print(f'interrupted; go on with: make bench SECTIONS="{" ".join(left)}"', file=sys.stderr)
        return 130
    return f"failed: {', '.join(failed)}" if failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sections", default="", help="names, separated by blanks or commas; without: all")
    parser.add_argument("--list", action="store_true", help="the names")
    parser.add_argument("--output", default=os.path.join(common.ROOT, "docs", "measurements.md"))
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--full", action="store_true", help="all rounds, however long it takes")
    forms.add_argument("--quick", action="store_true", help="few rounds: does everything run?")
    options = parser.parse_args()
    chosen = sections.choose(options.sections)
    if options.list:
        print("\n".join(f"{section.name:<14}{section.file}" for section in chosen))
        return 0
    missing = sections.find_missing_programs(chosen)
    if missing:
        raise SystemExit(f"not built (make build): {', '.join(missing)}")
    form = "full" if options.full else "quick" if options.quick else "default"
    return sum_up(options, *measure(chosen, options, form))


if __name__ == "__main__":
    sys.exit(main())
