"""What is wrong, how sure that is, and what to do: the top of the page."""

from __future__ import annotations

import os
import shlex
from typing import Any

from ..findings import order
from .collected import Collected
from .effects import note_effect
from .runs import Run, take_dict, take_list, take_number, take_text

MOST_ANSWERS = 6
CERTAIN, LIKELY, LOOK = "certain", "likely", "look twice"


def judge(collected: Collected) -> dict[str, Any]:
    """`state` (wrong, nan, sound, nothing), one sentence, and an answer per operator that is to blame."""
    wrong = _find_wrong(collected)
    made = _find_nan(collected)
    compared = sum(operator.compared for operator in collected.operators.values())
    answers = [*map(_answer_wrong, wrong), *map(_answer_nan, made)]
    lost = len(answers) - MOST_ANSWERS
    if wrong:
        state, sentence = "wrong", _count_names(wrong, "gives wrong results", "give wrong results")
        if made:
            sentence += "; " + _count_names(made, "made NaN or Inf", "made NaN or Inf")
    elif made:
        state, sentence = "nan", _count_names(made, "made NaN or Inf", "made NaN or Inf")
    elif compared or _was_on(collected, "nan"):
        state, sentence = "sound", "Nothing wrong was found"
    elif any(operator.calls for operator in collected.operators.values()):
        state, sentence = "nothing", "Nobody looked for wrong results"
    else:
        state, sentence = "nothing", "No operator call was recorded"
    return {
        "state": state,
        "sentence": sentence,
        "answers": answers[:MOST_ANSWERS],
        "more": max(lost, 0),
        "notes": _make_notes(collected, state, compared),
    }


def _was_on(collected: Collected, tool: str) -> bool:
    return any(tool in take_list(process, "tools") for run in collected.runs for process in run.processes)


def _count_names(findings: list[dict[str, Any]], one: str, many: str) -> str:
    names = list(dict.fromkeys(finding["name"] for finding in findings))
    return f"{names[0]} {one}" if len(names) == 1 else f"{len(names)} operators {many}"


def list_findings(collected: Collected) -> list[dict[str, Any]]:
    """Of the runs' own files, which know most; of the log where there is no file, or the process was killed."""
    told: list[dict[str, Any]] = []
    for run in collected.runs:
        for process in run.processes:
            for finding in take_list(process, "findings"):
                if isinstance(finding, dict):
                    command = take_text(process, "command")
                    place = {"run": run, "rank": process["rank"], "command": command, "runs": len(collected.runs)}
                    place["directory"] = _find_directory(collected, run, process)
                    told.append({**finding, **place, "name": take_text(finding, "name")})
    seen = {_make_key(finding) for finding in told}
    for finding in collected.findings:
        lane = collected.lanes[finding["lane"]]
        place = {"run": lane.run, "rank": lane.rank, "command": "", "folder": finding.get("path")}
        place |= {"runs": len(collected.runs), "directory": lane.metadata.get("directory")}
        tool = "nan" if finding.get("tool") in ("overflow", "nan") else "autocompare"
        row = {"error": finding.get("error_size"), **finding, **place, "tool": tool}
        if _make_key(row) not in seen:
            told.append(row)
    return order(told)


def _find_directory(collected: Collected, run: Run, process: dict[str, Any]) -> str | None:
    for lane in collected.lanes:
        if lane.run is run and (lane.rank, lane.pid) == (process["rank"], process["pid"]):
            return lane.metadata.get("directory")
    return None


def _make_key(finding: dict[str, Any]) -> tuple:
    return id(finding["run"]), finding["rank"], take_text(finding, "tool"), finding["name"], take_text(finding, "kind")


def _group(findings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One per operator and direction: the first, with the ranks that had it."""
    groups: dict[tuple, dict[str, Any]] = {}
    for finding in findings:
        key = finding["name"], take_text(finding, "kind")
        first = groups.setdefault(key, {**finding, "ranks": []})
        if finding["rank"] not in first["ranks"]:
            first["ranks"].append(finding["rank"])
    return list(groups.values())


def _find_wrong(collected: Collected) -> list[dict[str, Any]]:
    found = _group([row for row in list_findings(collected) if row.get("tool") == "autocompare"])
    names = {row["name"] for row in found}
    for row in found:
        row["operator"] = collected.operators.get(row["name"])
        row["wrong_alone"] = collected.has_wrong_alone
    for operator in collected.operators.values():  # comparisons in a log without findings
        if operator.wrong and operator.name not in names and operator.worst:
            worst = operator.worst
            lane = collected.lanes[worst["lane"]]
            more = {"name": operator.name, "kind": "backward" if worst.get("what") == "grad" else "forward"}
            place = {
                "run": lane.run,
                "rank": lane.rank,
                "ranks": [lane.rank],
                "command": "",
                "runs": len(collected.runs),
            }
            found.append({**worst, **more, **place, "error": worst.get("error_size"), "operator": operator})
            found[-1]["wrong_alone"] = collected.has_wrong_alone
    return found


def _find_nan(collected: Collected) -> list[dict[str, Any]]:
    rows = [row for row in list_findings(collected) if row.get("tool") == "nan"]
    return _group([row for row in rows if row.get("verdict") in ("producer", None)])


def _answer_wrong(row: dict[str, Any]) -> dict[str, Any]:
    error, allowed = take_number(row, "error"), take_number(row, "allowed")
    ratio = error / allowed if allowed > 0 else 0
    wrong, numel = take_number(row, "wrong"), take_number(row, "numel")
    operator = row.get("operator")
    calls = f"{operator.wrong:,} of {operator.compared:,} compared calls" if operator else ""
    if operator and row["wrong_alone"]:
        calls = f"{_plural(operator.wrong, 'time')}; the log does not count the right ones (rows=wrong)"
    sure, why = _weigh_wrong(row, ratio, wrong, numel)
    way = "the backward of " if take_text(row, "kind") == "backward" else ""
    facts = [
        *_list_places(row),
        ("error", f"off by {error:.4g}, {_show_times(ratio)} times the allowed {allowed:.3g}" if ratio else ""),
        ("elements", f"{wrong:,.0f} of {numel:,.0f}{_describe_worst(row)}" if numel else ""),
        ("how often", calls),
        ("ranks", ", ".join(map(str, row["ranks"])) if len(row["ranks"]) > 1 else ""),
    ]
    return {
        "title": f"{way}{row['name']} is wrong",
        "sure": sure,
        "why": why,
        "facts": [fact for fact in facts if fact[1]],
        "steps": _advise(row),
    }


def _describe_worst(row: dict[str, Any]) -> str:
    if row.get("value") is None or row.get("reference") is None:
        return ""
    return f", worst at {row.get('at')}: {_show(row['value'])} instead of {_show(row['reference'])}"


def _show_times(ratio: float) -> str:
    """Three digits, and no power of ten for what can be read without."""
    return f"{float(f'{ratio:.3g}'):,.10g}" if ratio < 1e9 else f"{ratio:.3g}"


def _show(value: Any) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)[:40]


def _weigh_wrong(row: dict[str, Any], ratio: float, wrong: float, numel: float) -> tuple[str, str]:
    """How sure, and why."""
    operator = row.get("operator")
    repeats = operator.wrong if operator else 1
    if row.get("bad_inputs"):
        return LOOK, "its inputs held NaN or Inf already"
    reasons = ["the CPU had the very same inputs, so it is this operator and not what came before it"]
    if repeats > 1:
        reasons.append(f"it happened {repeats:,} times")
    if ratio >= 100 and (repeats > 1 or wrong * 2 >= numel > 0):
        return CERTAIN, "; ".join([*reasons, "rounding cannot explain an error of this size"])
    if ratio >= 10 or repeats > 2:
        return LIKELY, "; ".join(reasons)
    return LOOK, "; ".join([*reasons, "the error is close to what is allowed: replay it on its own"])


def _answer_nan(row: dict[str, Any]) -> dict[str, Any]:
    way = "the backward of " if take_text(row, "kind") == "backward" else ""
    parts = [
        f"{take_number(row, name):,.0f} {label}" for name, label in (("nan", "NaN"), ("inf", "Inf")) if row.get(name)
    ]
    cause = take_text(row, "cause") or (
        "whether that is the operator's fault or the program's (a logarithm of 0), replaying it on the CPU tells"
    )
    facts = [
        *_list_places(row),
        ("made", " and ".join(parts)),
        ("ranks", ", ".join(map(str, row["ranks"])) if len(row["ranks"]) > 1 else ""),
    ]
    return {
        "title": f"{way}{row['name']} made NaN or Inf",
        "sure": CERTAIN,
        "why": f"its inputs were finite and its result was not; {cause}",
        "facts": [fact for fact in facts if fact[1]],
        "steps": _advise(row),
    }


def _list_places(row: dict[str, Any]) -> list[tuple[str, str]]:
    call = f"step {take_number(row, 'step'):.0f}, call {take_number(row, 'id'):.0f}, rank {row['rank']:.0f}"
    return [
        ("run", row["run"].label if row["runs"] > 1 else ""),
        ("first", call),
        ("place", shorten_location(row)),
        ("module", take_text(row, "module")),
    ]


def shorten_location(row: dict[str, Any]) -> str:
    """`train.py:7 main: y = f(x)`, relative to where the program was started."""
    return take_text(row, "location").removeprefix(f"{row.get('directory') or '.'}{os.sep}")


def shorten_path(path: str) -> str:
    """Relative to the current directory when it is below: commands are typed there."""
    here = os.getcwd() + os.sep
    return path.removeprefix(here) if path.startswith(here) else path


def _advise(row: dict[str, Any]) -> list[tuple[str, str]]:
    """(what for, what to type)."""
    steps = []
    folder = shorten_path(take_text(row, "folder") or take_text(row, "path"))
    name = row["name"]
    if folder:
        steps.append(("run this call again, alone", f"ditorch replay {shlex.quote(folder)}"))
        steps.append(("a repro for its maker", f"ditorch replay {shlex.quote(folder)} --export repro"))
    elif row.get("tool") == "nan" and row["command"]:
        steps.append(("stop there and save its inputs", f"ditorch nan -- {row['command']}"))
    if row.get("tool") != "nan":
        option = shlex.quote(f"fallback.list={name}")
        steps.append(
            ("meanwhile, on the CPU", f"ditorch run --tool fallback --option {option} {row['command'] or '...'}")
        )
    return steps


def _make_notes(collected: Collected, state: str, compared: int) -> list[str]:
    """What the sentence rests on."""
    notes = []
    calls = sum(operator.calls for operator in collected.operators.values())
    names = sum(operator.calls > 0 for operator in collected.operators.values())
    if compared and collected.has_wrong_alone:
        notes.append(f"{compared:,} comparisons were wrong; the right ones are not in the log (rows=wrong)")
    elif compared:
        known = sum(operator.compared > 0 for operator in collected.operators.values())
        unknown = sum(operator.unknown for operator in collected.operators.values())
        notes.append(f"{compared:,} calls of {_plural(known, 'operator')} were compared with the CPU")
        if unknown:
            notes.append(f"{unknown:,} comparisons could not be decided")
    elif state in ("sound", "nothing") and calls:
        notes.append("no result was compared with the CPU: run with --tool autocompare to have that done")
    if calls and not compared:
        notes.append(f"{calls:,} calls of {_plural(names, 'operator')} were recorded")
    if effect := note_effect(collected):
        notes.append(effect)
    if state == "sound":
        notes.append("what was not looked at is at the end of this page")
    missing = find_missing_ranks(collected)
    if missing:
        notes.append(f"no log of rank {', '.join(map(str, missing[:20]))}: what happened there is unknown")
    return notes


def _plural(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def find_missing_ranks(collected: Collected) -> list[int]:
    """Of the runs' world size, those without a log."""
    missing: set[int] = set()
    for run in collected.runs:
        lanes = [lane for lane in collected.lanes if lane.run is run]
        size = min(max((lane.world_size for lane in lanes), default=0), 65_536)
        missing |= set(range(size)) - {lane.rank for lane in lanes}
    return sorted(missing)


def describe_run(run: Run) -> dict[str, Any]:
    """One line about a run."""
    first = run.processes[0] if run.processes else {}
    return {
        "label": run.label,
        "folder": run.folder,
        "command": take_text(first, "command"),
        "tools": ", ".join(map(str, take_list(first, "tools"))),
        "processes": len(run.processes) or None,
        "seconds": max((process["seconds"] for process in run.processes), default=None),
        "steps": max((process["steps"] for process in run.processes), default=None),
        "selection": {key: value for key, value in take_dict(first, "selection").items() if value},
    }
