"""The comparison of two runs in words: the verdict first, then where, how it grows, what only one run has, times."""

from __future__ import annotations

import math
from typing import Any

from ditorch.command.parser import get_width, wrap
from ditorch.table import format_table

from ..results import format_location
from .measure import as_number
from .runs import Result, Share

BITS = 1e-300
"""DIT_ALIGN_BITS: the hashes differ, the numbers do not."""
MOST_TEXT = 400
"""Letters of a fact that a file tells."""
BLOCKS = "▁▂▃▄▅▆▇█"


def format_result(result: Result, top: int = 10) -> str:
    """The whole text, without a newline at its end."""
    parts = [_tell_verdict(result), _tell_first(result), _tell_growth(result, top), _tell_modules(result, top)]
    parts += [_tell_alone(result, top), _tell_captures(result), _tell_speed(result, top), _tell_facts(result)]
    return "\n\n".join(part for part in parts if part)


def _count(number: int, noun: str = "call") -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _number(value: float | str) -> str:
    value = float(value)
    if value == BITS:
        return "in bits alone"
    return "0" if value == 0 else "Inf" if math.isinf(value) else f"{value:.2g}"


# Parts


def _tell_verdict(result: Result) -> str:
    counts = result.counts
    words = {0: "the same", 1: "they differ", 3: "nothing was compared"}[result.status]
    lines = [f"== ditorch compare: {words}", f"  A  {result.a.path}", f"  B  {result.b.path}"]
    lines.append(
        wrap(
            f"{_count(counts['pairs'])} of {counts['calls_a']:,} in A and {counts['calls_b']:,} in B stand for each "
            f"other, in {_count(len(result.pairs), 'pair')} of ranks; values of {counts['compared']:,} compared: "
            f"{counts['equal']:,} equal to the bit, {counts['close']:,} close, {counts['differ']:,} differ",
            "  ",
        )
    )
    hints = []
    if not result.values:
        hints.append("values were not looked at (--no-values): order, operators and shapes alone")
    elif not counts["compared"] and counts["pairs"]:
        hints.append(
            "the logs hold no values. Record both runs with: ditorch run --tool observe --option observe.stats=1 ..."
        )
    elif counts["unknown"]:
        hints.append(f"{_count(counts['unknown'])} without values on one side or both")
    if counts["shapes"]:
        hints.append(f"{_count(counts['shapes'])} of other sizes in A and B, not comparable")
    if counts["findings"]:
        hints.append(f"{_count(counts['findings'])} failed, or had a finding, in one run alone")
    for name, ranks in result.missing_ranks.items():
        if ranks:
            hints.append(f"ranks {_list_ranges(ranks)} left no log in {name.upper()}")
    if result.a.world != result.b.world and result.pairs:
        hints.append(
            f"A had {_count(result.a.world, 'rank')}, B {result.b.world}: ranks see other data; trust the "
            "places more than the values"
        )
    hints += [
        f"only {name.upper()} has the steps {_list_ranges(steps)}" for name, steps in result.only_steps.items() if steps
    ]
    return "\n".join([*lines, *(wrap(hint, "  ") for hint in hints)])


def _list_ranges(steps: list[int]) -> str:
    steps = sorted(set(steps))
    parts = []
    while steps:
        last = 0
        while last + 1 < len(steps) and steps[last + 1] == steps[last] + 1:
            last += 1
        parts.append(str(steps[0]) if not last else f"{steps[0]}-{steps[last]}")
        steps = steps[last + 1 :]
    return ", ".join(parts[:8]) + (" ..." if len(parts) > 8 else "")


def format_place(row: dict[str, Any]) -> str:
    """Operator, module, step, rank and line of one pair."""
    ranks = f", rank {row['rank_a']}" if row["rank_a"] else ""
    if row["rank_a"] != row["rank_b"]:
        ranks = f", ranks {row['rank_a']} and {row['rank_b']}"
    way = "the backward of " if row["backward"] else ""
    module = f" in {row['module']}" if row["module"] else ""
    place = format_location(row["location"])
    return f"{way}{row['name']}{module}, step {row['step']}{ranks}{', at ' + place if place else ''}"


def _tell_first(result: Result) -> str:
    lines = []
    if result.first is not None:
        row = result.first
        lines += ["first divergence", wrap(format_place(row), "      ", "  ")]
        lines.append(f"  error {_number(row['error'])}, tolerance {_number(row['tolerance'])}")
        lines += [_tell_stats(name, row[name]["stats"]) for name in ("a", "b") if row[name]["stats"]]
    if result.first_bits is not None and result.first_bits != result.first:
        row = result.first_bits
        lines += ["first difference in bits, within the tolerance" if row != result.first else ""]
        lines += [wrap(f"{format_place(row)}: error {_number(row['error'])}", "      ", "  ")]
    return "\n".join(lines)


def _tell_stats(name: str, stats: dict[str, Any]) -> str:
    text = f"  {name.upper()}: norm {float(stats['norm']):.6g}, mean {float(stats['mean']):.6g}, "
    text += f"{float(stats['min']):.6g} to {float(stats['max']):.6g}"
    strange = [f"{stats[key]} {word}" for key, word in (("nan", "NaN"), ("inf", "Inf")) if stats[key]]
    return f"{text}, {stats['numel']:,} x {stats['dtype']}{', ' if strange else ''}{', '.join(strange)}"


def draw(values: list[float], top: float) -> str:
    """A row of blocks on a logarithmic scale: eight decades below `top`."""
    if top <= 0:
        return BLOCKS[0] * len(values)
    marks = []
    for value in values:
        decades = 8.0 + math.log10(value / top) if 0 < value < math.inf else 8.0 if value else 0.0
        marks.append(BLOCKS[max(0, min(7, int(decades)))])
    return "".join(marks)


def _tell_growth(result: Result, top: int) -> str:
    finite = [value for bins in result.growth.values() for value in bins if math.isfinite(value)]
    if not finite or not any(bins and max(bins) > 0 for bins in result.growth.values()):
        return ""
    most = max(finite)
    rows = []
    keys = list(result.growth)
    shown = keys if len(keys) <= top else [*keys[: top // 2], *keys[-(top - top // 2) :]]
    for key in shown:
        share = result.steps[key]
        step = f"{key[2]}" if len(result.pairs) == 1 else f"{key[2]} (rank {key[0]}/{key[1]})"
        rows.append(
            (step, share.compared, share.differ, _number(max(result.growth[key])), draw(result.growth[key], most))
        )
    text = format_table(("step", "compared", "differ", "worst", "along the step"), rows)
    lines = ["error along the run", *("  " + line for line in text.split("\n"))]
    if len(keys) > len(shown):
        lines.append(f"  ... {len(keys) - len(shown)} steps between; --json has all")
    jumps = [row for row in result.jumps if row != result.first_bits][:5]
    if jumps:
        lines.append("where it grew at once, tenfold or more")
        lines += [wrap(f"{_number(row['error'])}: {format_place(row)}", "      ", "  ") for row in jumps]
    return "\n".join(lines)


def _tell_modules(result: Result, top: int) -> str:
    rows = [
        (name or "(outside)", share.compared, share.differ, _number(share.worst))
        for name, share in sorted(result.modules.items(), key=lambda item: (-item[1].differ, -item[1].worst))
        if share.worst > 0
    ]
    if not rows:
        return ""
    text = format_table(("module", "compared", "differ", "worst"), rows[:top])
    more = [f"  ... {len(rows) - top} more modules with differences"] if len(rows) > top else []
    return "\n".join(["modules", *("  " + line for line in text.split("\n")), *more])


def _tell_alone(result: Result, top: int) -> str:
    counts, lines = result.counts, []
    for name in "ab":
        if counts[f"recomputed_{name}"]:
            lines.append(f"  {_count(counts[f'recomputed_{name}'])} recomputed in {name.upper()} alone (checkpointing)")
    if counts["moved"]:
        lines.append(f"  {_count(counts['moved'])} at another place in B than in A")
    if counts["only_a"] or counts["only_b"]:
        lines.append(f"  {_count(counts['only_a'])} of A and {counts['only_b']:,} of B have no partner:")
    regions = sorted(result.regions.items(), key=lambda item: -item[1]["times"])
    for (module, left, right), region in regions[:top]:
        what = f"A: {left or 'nothing'}; B: {right or 'nothing'}"
        text = f"{region['times']:,} x {'in ' + module + ': ' if module else ''}{what}"
        if region["agree"] or region["differ"]:
            good = f"the results agree in {region['agree']:,}" if region["agree"] else ""
            bad = f"differ in {region['differ']:,}, worst {_number(region['worst'])}" if region["differ"] else ""
            text += f" ({', '.join(filter(None, (good, bad)))})"
        lines.append(wrap(text, "        ", "    "))
    if len(regions) > top:
        lines.append(f"    ... {len(regions) - top} more kinds of places")
    return "\n".join(["calls of one run alone", *lines]) if lines else ""


def _tell_captures(result: Result) -> str:
    counts = result.counts
    if not counts["captures"]:
        return ""
    text = f"captured tensors: {counts['captures']:,} calls of both runs, {counts['capture_differ']:,} differ"
    lines = [text]
    for row in result.captures[:5]:
        why = row.get("reason") or f"max abs difference {_number(row['max_abs'])}"
        place = (
            f"{row['name']} in step {row['step']}: {row['part']}[{row['index']}], error {_number(row['error'])}, {why}"
        )
        lines.append(wrap(place, "      ", "  "))
    return "\n".join(lines)


def _tell_speed(result: Result, top: int) -> str:
    timed = [(name, share) for name, share in result.operators.items() if share.ns_a or share.ns_b]
    if not timed:
        return ""
    total = Share()
    for _, share in timed:
        total.ns_a += share.ns_a
        total.ns_b += share.ns_b
    timed.sort(key=lambda item: -abs(item[1].ns_b - item[1].ns_a))
    rows = [("all pairs", *_times(total)), *((name, *_times(share)) for name, share in timed[: max(3, top // 2)])]
    text = format_table(("time of the calls", "A ms", "B ms", "B/A"), rows)
    return "\n".join("  " + line if i else line for i, line in enumerate(text.split("\n")))


def _times(share: Share) -> tuple[str, str, str]:
    ratio = f"{share.ns_b / share.ns_a:.2f}" if share.ns_a else "-"
    return f"{share.ns_a / 1e6:.2f}", f"{share.ns_b / 1e6:.2f}", ratio


def list_facts(result: Result) -> list[tuple[str, Any, Any]]:
    """What the notes of the two runs say: device, versions, seconds per step, memory."""
    rows = []
    for name in ("command", "device", "torch", "python", "ditorch", "world_size", "steps", "seconds"):
        one, other = result.a.get_note(name), result.b.get_note(name)
        if one is not None or other is not None:
            rows.append((name, one, other))
    memory = [run.get_note("memory") for run in (result.a, result.b)]
    memory = [one if isinstance(one, dict) else {} for one in memory]
    for name in ("device_peak", "host_peak"):
        if name in memory[0] or name in memory[1]:
            rows.append((name, memory[0].get(name), memory[1].get(name)))
    return rows


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _tell_facts(result: Result) -> str:
    lines = []
    for name, one, other in list_facts(result):
        if name.endswith("_peak"):
            one, other = (f"{value / (1 << 20):.1f} MiB" if _is_number(value) else value for value in (one, other))
        elif name == "seconds":
            one, other = (f"{value:.2f}" if _is_number(value) else value for value in (one, other))
        one, other = ("-" if value is None else str(value)[:MOST_TEXT] for value in (one, other))
        if one != other:
            title = name.replace("_", " ")
            line = f"  {title:<12} A {one}   B {other}"
            lines += [line] if len(line) <= get_width() else [f"  {title:<12} A {one}", f"  {'':<12} B {other}"]
    return "\n".join(["what else is different", *lines]) if lines else ""


def _order(shares: dict[str, Share]) -> list[tuple[str, Share]]:
    return sorted(shares.items(), key=lambda item: -item[1].worst)


def as_dict(result: Result) -> dict[str, Any]:
    """Everything, for --json."""
    steps = []
    for key, share in result.steps.items():
        bins = [as_number(value) for value in result.growth.get(key, [])]
        steps.append({"rank_a": key[0], "rank_b": key[1], "step": key[2], **share.as_dict(), "growth": bins})
    regions = [
        {"module": key[0], "a": key[1], "b": key[2], **region, "worst": as_number(region["worst"])}
        for key, region in sorted(result.regions.items(), key=lambda item: -item[1]["times"])
    ]
    return {
        "format": "ditorch-compare",
        "version": 1,
        "status": result.status,
        "a": result.a.path,
        "b": result.b.path,
        "ranks": [{"a": one, "b": other} for one, other in result.pairs],
        "counts": result.counts,
        "first": result.first,
        "first_bits": result.first_bits,
        "jumps": result.jumps,
        "only_steps": result.only_steps,
        "missing_ranks": result.missing_ranks,
        "steps": steps,
        "modules": [{"module": name, **share.as_dict()} for name, share in _order(result.modules)],
        "operators": [{"name": name, **share.as_dict()} for name, share in _order(result.operators)],
        "alone": regions,
        "captures": [{**row, "error": as_number(row["error"])} for row in result.captures],
        "facts": [{"name": name, "a": one, "b": other} for name, one, other in list_facts(result)],
        "problems": result.problems,
    }
