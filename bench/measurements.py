"""docs/measurements.md: a head, and one part per section, which names the section, the day, the machine and how long.

Parts are replaced one by one, by section name; a part of a section that is unknown here stays where it is.
"""

import os
import re

HEAD = """# Measurements

(On a GPU: [measurements-gpu.md](measurements-gpu.md).)

Written by `make bench`, or in part by the command under a heading. Each section says when, on which machine, with which
torch and under which load it was measured, and how long that took. Figures are medians with quartiles in parentheses;
both sides of a ratio are measured in turns in one run.
"""
_NAME = re.compile(r"^`make bench SECTIONS=(\w+)( FULL=1)?`$", re.MULTILINE)
_SECONDS = re.compile(r"^Measured .* in (\d+) s", re.MULTILINE)


def render(result):
    """One part. `result` is what run.run_section gives."""
    full = " FULL=1" if result["form"] == "full" else ""
    lines = [f"## {result['title']}", "", f"`make bench SECTIONS={result['section']}{full}`", ""]
    quick = " (few rounds: shows that it runs)" if result["form"] == "quick" else ""
    took = f"{result['seconds']:.0f} s ({result['processor']:.0f} s of processor time)"
    lines += [f"Measured {result['date']} in {took}{quick} by `{result['command']}`. "
              f"Machine: {result['machine']}.", ""]  # fmt: skip
    if result.get("note"):
        lines += [result["note"], ""]
    if result.get("failed"):
        lines += [f"**The program ended with exit status {result['failed']}.**", ""]
    if result.get("text"):
        lines += ["```", result["text"], "```", ""]
    if result.get("rows"):
        lines += ["| what | measured | goal | |", "|---|---|---|---|"]
        lines += [f"| {row['what']} | {row['figure']} | {row['goal']} | {row['met']} |" for row in result["rows"]]
        lines.append("")
    return "\n".join(lines)


def split(text):
    """[(section name or None, part)] without the head."""
    parts = [f"## {part.strip()}\n" for part in text.split("\n## ")[1:]]
    found = [(_NAME.search(part), part) for part in parts]
    return [(match and match[1], part) for match, part in found]


def replace(text, name, part, order):
    """The text with this part in place of the section's last one; a new one goes where `order` has it."""
    parts = split(text)
    names = [other for other, _ in parts]
    if name in names:
        parts[names.index(name)] = (name, part)
    else:
        before = set(order[: order.index(name)])
        place = max((at + 1 for at, other in enumerate(names) if other in before), default=0)
        parts.insert(place, (name, part))
    return "\n".join([HEAD, *(part for _, part in parts)])


def read(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return HEAD


def write(path, text):
    """Whole or not at all: an interrupted run must not cost the parts that were measured before."""
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(f"{path}.new", path)


def read_seconds(text, form):
    """{section name: seconds that it took in this form, as the text tells}"""
    seconds = {}
    for name, part in split(text):
        took, full = _SECONDS.search(part), _NAME.search(part)
        if name and took and ("full" if full[2] else "default") == form:
            seconds[name] = int(took[1])
    return seconds
